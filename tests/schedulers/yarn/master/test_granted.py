"""What a ResourceManager grants is looked at before it is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Tuple

import pytest

from tests.cluster.fakeyarn.cluster import FakeYarn
from tests.cluster.fakeyarn.drive import Driver
from tests.cluster.fakeyarn.harness import hasten
from tests.cluster.fakeyarn.manager import Limits
from tony_core.hadoop.yarn.records import Capability
from tony_core.job.spec import Resources
from tony_core.schedulers.container_pool import ContainerRequest, RequestRejected

NODE = Capability(1024, 16, {"yarn.io/gpu": 2})


@pytest.mark.parametrize("drops", [(), ("yarn.io/gpu",)])
def test_less_than_was_asked_for_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drops: Tuple[str, ...]
) -> None:
    """A ResourceManager may drop a kind of resource, and say nothing of it."""
    hasten(monkeypatch)
    limits = Limits(maximum=NODE, others=tuple(NODE.other), drops=drops)
    with FakeYarn(tmp_path, nodes=1, node=NODE, limits=limits) as yarn, Driver(yarn) as driver:
        assert driver.pool is not None
        driver.pool.request([ContainerRequest("role0", 0, 2, Resources(64, 1, gpus=1))], True)
        if not drops:
            driver.settled(2)
        else:
            driver.wait(lambda: driver.events_of(RequestRejected), "a refusal", 10.0)
            driver.wait(lambda: not driver.live(), "what came to go back", 10.0)
            calls = yarn.masters.calls["allocate"]
            driver.wait(lambda: yarn.masters.calls["allocate"] > calls + 5, "what follows", 10.0)
            words = f"{yarn.rm.active()[0].id} has less than requested: 1 GPU wanted, 0 there"
            assert driver.events_of(RequestRejected) == [RequestRejected("role0", words)]
            assert not driver.held and not driver.live() and not driver.launched
            requests = yarn.applications()[0].attempt.requests
            assert not any(requested.count for requested in requests.values()), (
                "it is asked for again"
            )
        driver.end()

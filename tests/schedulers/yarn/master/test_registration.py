"""A ResourceManager that does not take a master: whose fault it is, and what becomes of the job."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator

import pytest

from tests.cluster.fakeyarn.cluster import FakeYarn
from tests.cluster.fakeyarn.drive import Driver
from tests.cluster.fakeyarn.wire import Call, Fault
from tony_core.hadoop.errors import HadoopError, Unreachable, remote_error
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId
from tony_core.schedulers.port import LastingRefusal, SchedulerError
from tony_core.schedulers.yarn.master import heartbeat
from tony_core.schedulers.yarn.master.application import Application, register

ATTEMPT = AttemptId(ApplicationId.parse("application_1700000000000_0042"), 1)


@pytest.fixture
def site() -> Dict[str, str]:
    """What the client's configuration says, whatever the servers do."""
    return {}


@pytest.fixture
def driver(tmp_path: Path, site: Dict[str, str]) -> Iterator[Driver]:
    with FakeYarn(tmp_path, site=site) as yarn:
        made = Driver(yarn)
        yield made
        made.__exit__()


@pytest.mark.parametrize("site", [{"hadoop.rpc.protection": "privacy"}])
def test_a_resource_manager_without_proof_ends_no_job(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server at its address could offer too little protection: the next attempt tries."""
    monkeypatch.setattr(heartbeat, "FINISH_S", 0.5)
    with pytest.raises(SchedulerError, match=r"hadoop\.rpc\.protection differs") as refused:
        driver.open(1)
    assert not isinstance(refused.value, LastingRefusal)
    assert "\n" not in str(refused.value)
    assert driver.client.report(driver.app).state == "ACCEPTED"


def test_what_may_pass_is_left_to_the_next_attempt(driver: Driver) -> None:
    def refuse(host: str, call: Call) -> Any:
        raise Fault("java.io.IOException", "the state store\nis full")

    masters = driver.yarn.masters
    willing, masters.handler = masters.handler, refuse
    with pytest.raises(SchedulerError, match="the state store is full") as refused:
        driver.open(1)
    assert not isinstance(refused.value, LastingRefusal)
    assert "\n" not in str(refused.value)
    masters.handler = willing
    assert driver.client.report(driver.app).state == "ACCEPTED"
    driver.close()
    assert driver.next_attempt().attempt == 2


def test_a_placement_that_cannot_be_read_is_nothing_that_passes() -> None:
    ended = []
    application = Application(ATTEMPT, "ann", 2, "n0", placement_spec="AND((IN,NODE,a)")
    with pytest.raises(LastingRefusal, match=r"tony\.application\.placement-spec: "):
        register(lambda *words: None, application, "http://n0:80", ended.append)  # type: ignore[arg-type,return-value]
    assert len(ended) == 1


def test_if_the_end_cannot_be_reported_the_reason_still_is() -> None:
    def end(why: str) -> None:
        raise Unreachable("no server there")

    application = Application(ATTEMPT, "ann", 2, "n0", placement_spec="AND((IN,NODE,a)")
    with pytest.raises(LastingRefusal) as refused:
        register(lambda *words: None, application, "http://n0:80", end)  # type: ignore[arg-type,return-value]
    assert not isinstance(refused.value, HadoopError)


def test_a_cluster_without_placement_constraints_is_nothing_that_passes() -> None:
    ended = []

    def refuse(*words: object) -> None:
        prefix = "Found non empty placement constraints map in RegisterApplicationMasterRequest for"
        raise remote_error(
            "org.apache.hadoop.yarn.exceptions.YarnException", f"{prefix} application=x"
        )

    application = Application(ATTEMPT, "ann", 2, "n0", placement_spec="x=2,NOTIN,NODE,x")
    with pytest.raises(LastingRefusal, match=r"leaves out tony\.application\.placement-spec$"):
        register(refuse, application, "http://n0:80", ended.append)  # type: ignore[arg-type]
    assert len(ended) == 1

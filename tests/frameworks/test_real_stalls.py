"""A real collective in which one rank does not join: seen, the rank named, and gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest

from tests.frameworks.submitting import Submitted

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]
PROGRAM = Path(__file__).with_name("gloo_stall.py")


@pytest.mark.parametrize(
    "how",
    [
        "sleep",
        "spin",
        pytest.param("read", marks=pytest.mark.nightly),
    ],
)
def test_the_rank_that_does_not_join_is_named_and_the_gang_restarts_from_its_checkpoint(
    submit: Callable[..., Submitted], environment: Callable[[str], Path], how: str
) -> None:
    python = environment("torch") / "bin" / "python"
    job = submit(
        "pytorch",
        "torch",
        conf=[
            "tony.worker.instances=3",
            "tony.worker.memory=1500m",
            f"tony.worker.command={python} {PROGRAM} {how}",
            "tony.task.stall-timeout=8s",
            "tony.task.stall-action=restart",
            "tony.task.kill-grace=1s",
            "tony.am.retry-count=1",
        ],
    )
    job.ends(0)
    (line,) = [each for each in job.story() if each["kind"] == "stalled"]
    assert "no step for" in line["text"] and "worker:2 lags" in line["text"]
    assert line["fields"]["lagging"] == ["worker:2"] and line["fields"]["step"] == 4
    assert len([each for each in job.story() if each["kind"] == "stall-over"]) == 1
    (cause,) = [each for each in job.story() if each["kind"] == "root-cause"]
    assert cause["fields"]["cause"] == "stalled" and cause["fields"]["task"] == "worker:2"

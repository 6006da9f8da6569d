"""A real collective in which one rank does not join: seen, the rank named, and gone on with.

And real py-spy.
"""

from __future__ import annotations

import os
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
        "spin silent",
        pytest.param("sleep silent", marks=pytest.mark.nightly),
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


BUSY = """
import json, tony
def leaf(n):
    return json.loads(json.dumps([n] * 3))[0]
def spin():
    while True:
        sum(leaf(n) for n in range(9))
for step in range(3):
    tony.report(step=step)
spin()
"""


def test_py_spy_shows_the_whole_stack_of_a_program_that_computes(
    submit: Callable[..., Submitted], environment: Callable[[str], Path], tmp_path: Path
) -> None:
    python = environment("py-spy") / "bin" / "python"  # py-spy stands beside it
    program = tmp_path / "busy.py"
    program.write_text(BUSY)
    job = submit(
        "pytorch",
        "py-spy",
        conf=[
            "tony.worker.instances=4",
            "tony.worker.memory=500m",
            f"tony.worker.command={python} {program}",
            "tony.task.stall-timeout=3s",
        ],
    )
    job.until("the stall", lambda: any(each["kind"] == "stalled" for each in job.story()))
    home = Path(os.environ["TONY_HOME"])
    logs = [path.read_text() for path in home.glob("apps/*/logs/*/stderr")]
    assert len(logs) == 4
    for text in logs:
        assert "by py-spy" in text and "spin (busy.py" in text and "<module>" in text, text
        assert "busy.py\n" not in text, "the command may hold secrets"

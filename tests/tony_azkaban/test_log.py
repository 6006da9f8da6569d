"""What stands in Azkaban's log at the end."""

from __future__ import annotations

from typing import Optional

import pytest

from tony_azkaban.log import Log, lines_wanted
from tony_core.client.errors import UsageError
from tony_core.client.tails import Tail, Tails
from tony_core.schedulers.port import AppState
from tony_core.view import JobView, TaskView

VIEW = JobView(
    "application_1_0001",
    AppState.FAILED,
    "history",
    root_cause={"task": "worker:1", "exit_code": 7, "stderr_tail": ["ValueError: no data"]},
    links={"azkaban_log": "http://az/executor?execid=1&job=train"},
    tasks=(TaskView("worker:0", state="killed"), TaskView("worker:1", state="failed")),
)
TAILS = Tails(
    (
        Tail("worker:0", "stdout", ("step 9", "\x1b]0;x\x07")),
        Tail("worker:1", "stdout", ("step 8",)),
        Tail("worker:1", "stderr", ("ValueError: no data",)),
    )
)


def write_end(capsys: pytest.CaptureFixture[str], tails: Tails, page: str = "") -> list[str]:
    Log().finished(VIEW, 1, "", tails, page)
    return capsys.readouterr().out.splitlines()


def test_the_last_lines_of_every_task_come_before_the_outcome(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = write_end(capsys, TAILS)
    at = lines.index("last lines of worker:0 (stdout):")
    assert lines[at + 1 : at + 5] == [
        "  | step 9",
        "  | \\x1b]0;x\\x07",
        "last lines of worker:1 (stdout):",
        "  | step 8",
    ]
    # Those of the task that failed stand with the reason, which is the last of all.
    assert lines.count("    | ValueError: no data") == 1
    assert not [line for line in lines if line == "  | ValueError: no data"]
    assert lines.index("    | ValueError: no data") > at


def test_advice_comes_before_the_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    advice = ["advice: 1 (1 severe): tony advise a", "  severe: \x1b]0;x\x07"]
    Log().finished(VIEW, 1, "", TAILS, "", advice)
    lines = capsys.readouterr().out.splitlines()
    at = lines.index(advice[0])
    assert lines[at + 1] == "  severe: \\x1b]0;x\\x07"
    assert lines.index("  | step 8") < at < lines.index("    | ValueError: no data")


@pytest.mark.parametrize(
    ("page", "shown"),
    [("http://rm:8088/proxy/application_1_0001/", True), ("", False)],
)
def test_the_applications_page_stands_in_the_summary(
    capsys: pytest.CaptureFixture[str], page: str, shown: bool
) -> None:
    lines = write_end(capsys, Tails(), page)
    assert (f"  application: {page}" in lines) == shown
    assert not [line for line in lines if "azkaban_log" in line]


@pytest.mark.parametrize(
    ("text", "count"), [(None, 10), ("", 10), ("0", 0), (" 50 ", 50), ("200", 200)]
)
def test_how_many_lines(text: Optional[str], count: int) -> None:
    props = {} if text is None else {"tony_azkaban.last_lines": text}
    assert lines_wanted(props) == count


@pytest.mark.parametrize("text", ["-1", "201", "ten", "1.5", "9" * 5000])
def test_a_number_of_lines_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"tony_azkaban\.last_lines: expected 0 to 200"):
        lines_wanted({"tony_azkaban.last_lines": text})

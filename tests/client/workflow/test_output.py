"""What a task's log has of its chief's output."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import pytest
from hypothesis import strategies as st

from tests.fuzzing import fuzz
from tony_core.client.tails import readable
from tony_core.client.workflow import output
from tony_core.client.workflow.output import (
    chief_of,
    is_complete,
    parse_position,
    read_output,
    without_control,
)
from tony_core.job.mask import KnownSecrets
from tony_core.schedulers.port import AppState, LogRef, SchedulerError
from tony_core.view import JobView, read_task


class Logs:
    """A scheduler that has logs and nothing else."""

    def __init__(self, knows_sizes: bool = True) -> None:
        self.files: Dict[Tuple[str, str], bytes] = {}
        self.broken = False
        self._knows_sizes = knows_sizes

    def write(self, text: str, container: str = "c1", name: str = "stdout") -> None:
        self.files[container, name] = self.files.get((container, name), b"") + text.encode()

    def log_size(self, app_id: str, ref: LogRef, name: str) -> Optional[int]:
        return len(self.files.get((ref.container_id, name), b"")) if self._knows_sizes else None

    def read_log(self, app_id: str, ref: LogRef, name: str, offset: int, limit: int) -> bytes:
        if self.broken:
            raise SchedulerError("the node is away")
        return self.files.get((ref.container_id, name), b"")[offset : offset + limit]


def view(*names: str, container: str = "c1") -> JobView:
    tasks = [read_task({"task": name, "container": container}) for name in names]
    return JobView("app", AppState.RUNNING, "page", tasks=tuple(tasks))


class Following:
    def __init__(self, logs: Any, view: JobView) -> None:
        self.logs, self.view = logs, view
        self.position: Dict[str, int] = {}

    def look(self, last: bool = False) -> List[str]:
        lines, self.position = read_output(self.logs, self.view, self.position, last)
        return lines


@pytest.mark.parametrize(
    ("names", "chief"),
    [
        (("ps:0", "worker:1", "worker:0"), "worker:0"),
        (("worker:0", "chief:0"), "chief:0"),
        (("am", "trainer:0"), "trainer:0"),
    ],
)
def test_whose_output_is_followed(names: Tuple[str, ...], chief: str) -> None:
    found = chief_of(view(*names))
    assert found is not None and found.task == chief


def test_each_line_once_when_its_end_is_there() -> None:
    logs = Logs()
    following = Following(logs, view("worker:0"))
    assert following.look() == [] and not is_complete(following.view, following.position)
    logs.write("one\ntw")
    logs.write("careful\n", name="stderr")
    assert following.look() == ["[worker:0] one", "[worker:0 stderr] careful"]
    logs.write("o\n\nthree")
    assert following.look() == ["[worker:0] two", "[worker:0] "]
    assert following.look() == []
    assert following.look(last=True) == ["[worker:0] three"]
    assert following.look(last=True) == [] and is_complete(following.view, following.position)


def test_a_session_in_another_container_follows() -> None:
    logs = Logs()
    following = Following(logs, view("worker:0"))
    logs.write("one\n")
    assert following.look() == ["[worker:0] one"]
    following.view = view("worker:0", container="c2")
    logs.write("two\n", container="c2")
    assert following.look() == ["[worker:0] two"]


@pytest.mark.parametrize("knows_sizes", [True, False])
def test_much_at_once_is_cut_to_its_end(knows_sizes: bool) -> None:
    logs = Logs(knows_sizes)
    following = Following(logs, view("worker:0"))
    logs.write("".join(f"line {number}\n" for number in range(1000)))
    lines = following.look()
    assert len(lines) == output.READ_LINES + 1
    assert "left out" in lines[0] and lines[-1] == "[worker:0] line 999"


def test_what_is_too_much_to_read_is_skipped() -> None:
    logs = Logs()
    following = Following(logs, view("worker:0"))
    logs.write("x" * 100 + "\n")
    logs.write(("y" * 1023 + "\n") * 200)
    lines = following.look()
    assert "left out" in lines[0] and len(lines) == 64
    assert following.look() == []


def test_a_job_as_a_whole_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MOST_LINES", 3)
    logs = Logs()
    following = Following(logs, view("worker:0"))
    logs.write("1\n2\n")
    assert len(following.look()) == 2
    logs.write("3\n4\n")
    lines = following.look()
    assert lines[0] == "[worker:0] 3" and "this log stops here" in lines[1] and len(lines) == 2
    logs.write("5\n")
    assert following.look() == [] and not is_complete(following.view, following.position)


def test_a_progress_bar_a_colour_and_a_secret() -> None:
    logs = Logs()
    following = Following(logs, view("worker:0"))
    logs.write("10%\r50%\r100%\n\x1b[31mred\x1b[0m\nlogin --password=hunter2horse\n")
    lines = following.look()
    assert lines[:2] == ["[worker:0] 100%", "[worker:0] red"]
    assert "hunter2horse" not in lines[2]


def test_a_log_that_cannot_be_read_is_read_later() -> None:
    logs = Logs()
    following = Following(logs, view("worker:0"))
    logs.write("one\n")
    logs.broken = True
    assert following.look() == []
    logs.broken = False
    assert following.look() == ["[worker:0] one"]


@fuzz(pieces=st.lists(st.binary(max_size=200), max_size=8))
def test_whatever_a_program_writes(pieces: List[bytes]) -> None:
    logs = Logs()
    following = Following(logs, view("worker:0"))
    found: List[str] = []
    for piece in pieces:
        logs.files["c1", "stdout"] = logs.files.get(("c1", "stdout"), b"") + piece
        found += following.look()
    found += following.look(last=True)
    assert not any(character in line for line in found for character in "\n\r\x1b\0\x85")
    assert following.position.get("c1/stdout", 0) == sum(map(len, pieces))


@pytest.mark.parametrize("following", [None, [], "x", {"a": "b"}, {"a": -1}, {"a": None}])
def test_a_damaged_position_is_none(following: Any) -> None:
    assert parse_position(following) == {}


def test_what_a_line_hides_behind_control_characters() -> None:
    """Without them a name and its value are whole again; and nothing turns a line around."""
    hidden = "pass\x00word=hunter2x", "Bearer\x1b[K abcdefghij", "a\u202eb\u2066c"
    none = KnownSecrets(())
    assert [without_control(readable(text, none), none) for text in hidden] == [
        "password=********",
        "Bearer ********",
        "abc",
    ]

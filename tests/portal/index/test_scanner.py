"""The scanner over real folders: new jobs, changed ones, removed ones, damaged ones."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest

from tests.portal.histories import NOW, app, write_job
from tests.second_user import UID, as_second_user, needs_root, open_folder
from tony_core.history.limits import GLANCE
from tony_core.portal.index import reading, scanner
from tony_core.portal.index.database import IndexBusy
from tony_core.portal.index.index import Index
from tony_core.portal.index.reader_processes import ReaderProcess
from tony_core.portal.index.reading import Request
from tony_core.portal.index.rows import JobRow, Query
from tony_core.portal.index.scanner import Listing, LocationScan, Scanner, rest_s
from tony_core.portal.job_folders import JobFolder
from tony_core.portal.locations import reader_of
from tony_core.portal.settings import HistoryLocation
from tony_core.portal.viewer import Viewer
from tony_core.schedulers.port import AppState, AppStatus

__all__ = ["open_folder"]

ADMIN = Viewer("root", is_admin=True)
OLD = 1_700_000_000.0


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    made = Index(str(tmp_path / "index"))
    yield made
    made.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "history"
    made.mkdir()
    return made


def read(scan: LocationScan) -> None:
    """Step until nothing is due."""
    end = time.monotonic() + 60
    while scan.step() == 0.0:
        assert time.monotonic() < end


def rows(index: Index, **query: Any) -> List[JobRow]:
    return list(index.page(Query(sort="app_id", limit=500, **query), ADMIN).rows)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_what_is_there_is_read_and_is_its_owners(index: Index, root: Path) -> None:
    write_job(root, app(1), tags=["nightly"], view_acl="bob,eve ops", changed=OLD)
    scan = LocationScan(HistoryLocation("here", str(root)), index)
    read(scan)
    (row,) = rows(index)
    assert (row.location, row.app_id, row.name) == ("here", app(1), "mnist")
    assert row.owner == getpass.getuser() and row.state == "SUCCEEDED"
    assert row.readers == ("group:ops", "user:bob", "user:eve", f"user:{getpass.getuser()}")
    assert row.figures["duration_s"] == 60.0 and row.problem == ""
    assert scan.state().jobs == 1 and scan.state().waiting == 0


def test_a_new_a_changed_and_a_removed_job(index: Index, root: Path) -> None:
    made = Scanner([HistoryLocation("here", str(root))], index)
    made.start()
    try:
        assert made.wait_until_read(60)
        write_job(root, app(1), state="RUNNING", finished=None, progress=0.25)
        wait_for(lambda: bool(rows(index)))
        assert (rows(index)[0].state, rows(index)[0].progress) == ("RUNNING", 0.25)
        write_job(root, app(1), state="FAILED", diagnostics="worker:0 failed")
        wait_for(lambda: rows(index)[0].state == "FAILED")
        assert rows(index)[0].error == "worker:0 failed"
        shutil.rmtree(root / app(1))
        wait_for(lambda: rows(index) == [])
    finally:
        assert made.close()


def test_a_folder_that_gets_its_files_later_is_found(index: Index, root: Path) -> None:
    (root / app(1)).mkdir()
    scan = LocationScan(HistoryLocation("here", str(root)), index)
    read(scan)
    assert rows(index) == []
    write_job(root, app(1))
    wait_for(lambda: scan.step() >= 0.0 and bool(rows(index)))


@needs_root
def test_in_a_place_that_may_not_be_listed_the_schedulers_name_the_jobs(
    index: Index, open_folder: Path
) -> None:
    root = open_folder / "shared"
    write_job(root, app(1), changed=OLD)
    for folder, _, files in os.walk(root):
        os.chmod(folder, 0o755)
        for name in files:
            os.chown(os.path.join(folder, name), UID, UID)
    os.chown(root / app(1), UID, UID)
    write_job(root, app(2), changed=OLD)
    root.chmod(0o3773)
    place = HistoryLocation("here", str(root))
    scan = LocationScan(place, index, list_own=lambda: [app(1), app(3)])
    blind = LocationScan(place, index)
    with as_second_user():
        read(scan)
        blind.step()
    assert [row.app_id for row in rows(index)] == [app(1)]
    (note,) = scan.state().notes
    assert scan.state().problem == "" and "may not list" in note and str(root) in note
    assert "has to be in the group of that folder" in blind.state().problem
    assert "Permission denied" in blind.state().problem


def test_one_bad_job_hides_no_other(index: Index, root: Path, tmp_path: Path) -> None:
    write_job(root, app(1), changed=OLD)
    (write_job(root, app(2)) / "summary.json").write_bytes(b'{"job": {"state": "RUNN')
    (root / app(3)).symlink_to(write_job(tmp_path / "else", app(3)))
    folder = write_job(root, app(4))
    (folder / "summary.json").unlink()
    (folder / "summary.json").symlink_to("/etc/passwd")
    os.mkfifo(write_job(root, app(5)) / "events-0001.jsonl")
    (root / "no id").mkdir()
    (root / app(6)).write_text("a file")
    scan = LocationScan(HistoryLocation("here", str(root)), index)
    read(scan)
    found = {row.app_id: row for row in rows(index)}
    assert list(found) == [app(1), app(2), app(3), app(4), app(5)]
    assert found[app(1)].problem == "" and found[app(5)].state == "SUCCEEDED"
    assert "events-0001.jsonl" in found[app(5)].problem and "plain" in found[app(5)].problem
    assert "summary.json" in found[app(2)].problem and found[app(2)].state == "UNKNOWN"
    assert "symbolic link" in found[app(3)].problem
    assert found[app(3)].name == "" and found[app(3)].owner == getpass.getuser()
    assert found[app(4)].state == "UNKNOWN" and "symbolic link" in found[app(4)].problem


def test_damaged_files_that_are_mended_are_read_again(index: Index, root: Path) -> None:
    folder = write_job(root, app(1))
    (folder / "summary.json").write_bytes(b"{")
    scan = LocationScan(HistoryLocation("here", str(root)), index)
    read(scan)
    assert rows(index)[0].problem
    write_job(root, app(1))
    wait_for(lambda: scan.step() >= 0.0 and not rows(index)[0].problem)


def test_a_location_that_is_missing_is_named_and_found_later(index: Index, root: Path) -> None:
    write_job(root, app(1))
    away = HistoryLocation("away", str(root / "missing"))
    made = Scanner([away, HistoryLocation("here", str(root))], index)
    made.start()
    try:
        wait_for(lambda: bool(rows(index)) and bool(made.states()[0].problem))
        assert "missing" in made.states()[0].problem and made.states()[1].problem == ""
        write_job(root / "missing", app(2))
        wait_for(lambda: len(rows(index)) == 2)
        assert made.states()[0].problem == ""
    finally:
        assert made.close()


def test_a_place_without_owners_is_refused_with_a_reason(index: Index) -> None:
    scan = LocationScan(HistoryLocation("web", "https://example.org/history"), index)
    assert scan.step() > 0
    assert "says whose a file is" in scan.state().problem


def test_the_next_portal_reads_only_what_has_changed(index: Index, root: Path) -> None:
    write_job(root, app(1), changed=OLD)
    write_job(root, app(2), changed=OLD)
    place = HistoryLocation("here", str(root))
    read(LocationScan(place, index))
    opened: List[str] = []

    def ended(place: HistoryLocation, row: JobRow) -> None:
        opened.append(row.app_id)

    write_job(root, app(3), changed=OLD)
    write_job(root, app(2), name="other", changed=OLD + 1)
    scan = LocationScan(place, index, on_ended=ended)
    read(scan)
    wait_for(lambda: scan.step() >= 0.0 and rows(index)[1].name == "other")
    assert opened == [app(3)]


def test_jobs_of_a_location_that_is_no_longer_named_go(index: Index, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_job(tmp_path / name, app(1))
    places = [HistoryLocation(name, str(tmp_path / name)) for name in ("a", "b")]
    for named, expected in ((places, ["a", "b"]), (places[:1], ["a"])):
        made = Scanner(named, index)
        made.start()
        assert made.wait_until_read(60) and made.close()
        assert sorted(row.location for row in rows(index)) == expected
    write_job(tmp_path / "c", app(2))
    made = Scanner([HistoryLocation("a", str(tmp_path / "c"))], index)
    made.start()
    assert made.wait_until_read(60) and made.close()
    assert [row.app_id for row in rows(index)] == [app(2)]


def test_many_jobs_and_large_ones_are_read_by_processes(
    index: Index, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "MANY", 5)
    monkeypatch.setattr(scanner, "LARGE", 50_000)
    for number in range(100):
        write_job(root, app(number), name=f"job {number}", tags=["t"], changed=OLD)
    (root / app(3) / "summary.json").write_bytes(b"{")
    scan = LocationScan(HistoryLocation("here", str(root)), index)
    read(scan)
    found = rows(index)
    assert [row.name for row in found if not row.problem] == [
        f"job {number}" for number in range(100) if number != 3
    ]
    assert found[3].problem and found[4].owner == getpass.getuser() and found[4].tags == ("t",)
    write_job(root, app(100), description="x" * 60_000)
    wait_for(lambda: scan.step() >= 0.0 and len(rows(index)) == 101)
    assert rows(index)[100].name == "mnist" and len(scan._processes) == 0
    scan.close()


def test_a_job_that_ends_its_process_hides_no_other(
    index: Index, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies over one job: here it is killed each time that it is asked for it."""
    monkeypatch.setattr(scanner, "MANY", 1)
    monkeypatch.setattr(scanner, "LARGE", 0)
    for number in range(5):
        write_job(root, app(number), changed=OLD)
    asked = ReaderProcess.ask

    def ask(process: ReaderProcess, chunk: List[Request]) -> None:
        if app(2) in [request.app_id for request in chunk]:
            process._process.kill()
            process._process.wait(60)
        asked(process, chunk)

    monkeypatch.setattr(ReaderProcess, "ask", ask)
    scan = LocationScan(HistoryLocation("here", str(root)), index)
    read(scan)
    found = rows(index)
    assert [row.app_id for row in found] == [app(number) for number in range(5)]
    assert [bool(row.problem) for row in found] == [False, False, True, False, False]
    assert "ended the process" in found[2].problem
    scan.close()


def test_a_running_job_keeps_its_figures_while_it_is_read_in_brief(
    index: Index, root: Path
) -> None:
    tasks = [{"task": "worker:0", "state": "running"}]
    events = [{"n": 1, "time": NOW + 1, "kind": "session-started", "session": 0}]
    write_job(root, app(1), state="RUNNING", finished=None, tasks=tasks, events=events)
    scan = LocationScan(HistoryLocation("here", str(root)), index)
    read(scan)
    figures = rows(index)[0].figures
    assert figures["sessions"] == 1.0
    write_job(root, app(1), state="RUNNING", finished=None, tasks=tasks, progress=0.5)
    wait_for(lambda: scan.step() >= 0.0 and rows(index)[0].progress == 0.5)
    assert rows(index)[0].figures == figures


def test_an_index_that_is_damaged_meanwhile_is_made_anew(
    index: Index, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(root, app(1), changed=OLD)
    logged: List[str] = []
    scan = LocationScan(HistoryLocation("here", str(root)), index, logged.append)
    read(scan)

    def put(entries: object) -> None:
        monkeypatch.undo()
        raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr(index, "put", put)
    write_job(root, app(2), changed=OLD)
    wait_for(lambda: scan.step() >= 0.0 and len(rows(index)) == 2)
    assert index.generation == 2 and "it is made anew" in logged[0]


def test_an_index_that_does_not_answer_ends_no_thread(
    index: Index, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Scanner([HistoryLocation("here", str(root))], index)
    busy: List[str] = []

    def count(location: str) -> int:
        busy.append(location)
        raise IndexBusy("the portal answers too many requests at once")

    with monkeypatch.context() as patched:
        patched.setattr(scanner, "_RETRY_S", 0.01)
        patched.setattr(index, "count", count)
        made.start()
        try:
            wait_for(lambda: len(busy) > 2 and bool(made.states()[0].problem))
            assert "too many requests" in made.states()[0].problem and not made.has_stopped()
            patched.undo()
            write_job(root, app(1))
            wait_for(lambda: bool(rows(index)) and not made.states()[0].problem)
        finally:
            assert made.close()


def test_nor_does_a_damaged_index_that_cannot_be_made_anew(
    index: Index, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*asked: object) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    def refuse() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(index, "tracked", fail)
    monkeypatch.setattr(index, "rebuild", refuse)
    scan = LocationScan(HistoryLocation("here", str(root)), index)
    assert scan.step() > 0.0
    assert "cannot be made anew" in scan.state().problem and "No space" in scan.state().problem


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_is_noticed(
    index: Index, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(self: object, is_closing: object) -> float:
        raise (SystemExit if ends else RuntimeError)("a fault in the scanner")

    ends = False
    monkeypatch.setattr(scanner, "_RETRY_S", 0.01)
    monkeypatch.setattr(LocationScan, "step", step)
    made = Scanner([HistoryLocation("here", str(root))], index)
    made.start()
    try:
        wait_for(lambda: "a fault in the scanner" in made.states()[0].problem)
        assert not made.has_stopped()
        ends = True
        wait_for(made.has_stopped)
    finally:
        assert made.close()
    assert not made.has_stopped()


def test_a_root_is_listed_again_after_a_change() -> None:
    listing = Listing()
    assert listing.is_due("1", 0.0)
    listing.done("1", 0.0, 0.01)
    assert [listing.is_due("1", at) for at in (0.5, 1.9, 2.0)] == [False, False, True]
    listing.done("1", 2.0, 0.01)
    assert not listing.is_due("1", 60.0) and listing.is_due("2", 60.0)
    listing.done("2", 60.0, 1.0)  # an expensive one is made less often
    assert [listing.is_due("3", at) for at in (61.0, 70.0)] == [False, True]


def test_a_small_file_with_much_in_it_is_read_by_a_process(
    index: Index, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that looks at all jobs goes on meanwhile."""
    monkeypatch.setattr(reading, "GLANCE", GLANCE._replace(tasks=100))
    write_job(root, app(1), tasks=[{"task": f"worker:{n}"} for n in range(101)])
    write_job(root, app(2), tasks=[{"task": f"worker:{n}"} for n in range(100)])
    asked: List[Request] = []
    ask = ReaderProcess.ask

    def note(process: ReaderProcess, chunk: List[Request]) -> None:
        asked.extend(chunk)
        ask(process, chunk)

    monkeypatch.setattr(ReaderProcess, "ask", note)
    scan = LocationScan(HistoryLocation("here", str(root)), index)
    try:
        wait_for(lambda: scan.step() is not None and len(rows(index)) == 2)
    finally:
        scan.close()
    assert [each.app_id for each in asked] == [app(1)]
    assert [row.tasks for row in rows(index)] == [101, 100]
    assert not any(row.problem for row in rows(index))


@pytest.mark.parametrize(
    ("unchanged", "cost", "expected"),
    [(0, 0, 1), (15, 0, 1), (300, 0, 10), (1e6, 0, 300), (0, 0.5, 5), (300, 2, 20)],
)
def test_quiet_and_large_jobs_are_looked_at_less_often(
    unchanged: float, cost: float, expected: float
) -> None:
    assert rest_s(unchanged, cost) == expected


class _Counting:
    """A location that says when folders changed, as HDFS does, and counts the looks at them."""

    def __init__(self, root: Path, times: Dict[str, float]) -> None:
        self._reader = reader_of(HistoryLocation("here", str(root)))
        self.times = times
        self.opened: List[str] = []

    def version(self) -> str:
        return str(self.times)

    def names(self) -> Dict[str, float]:
        return self.times

    def open(self, app_id: str) -> JobFolder:
        self.opened.append(app_id)
        return self._reader.open(app_id)

    def remove(self, app_id: str) -> bool:
        return self._reader.remove(app_id)


def test_where_folders_have_times_only_changed_ones_are_looked_at(
    index: Index, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        write_job(root, app(number), changed=OLD)
    place = _Counting(root, {app(1): OLD + 3, app(2): OLD + 3})
    monkeypatch.setattr(scanner, "reader_of", lambda location: place)
    for opened in ([app(2), app(1)], []):  # a new portal, and the one after it
        scan = LocationScan(HistoryLocation("here", str(root)), index)
        read(scan)
        for _ in range(3):
            scan.step()
        assert place.opened == opened
        place.opened.clear()
    write_job(root, app(1), name="other", changed=OLD + 500)
    place.times = {app(1): OLD + 500, app(2): OLD + 3}
    wait_for(lambda: scan.step() >= 0.0 and rows(index)[0].name == "other")
    assert set(place.opened) == {app(1)}


class _Ends:
    """A scheduler that knows how jobs ended, once it was asked."""

    def __init__(self, *ends: AppStatus) -> None:
        self.ends = {(end.app_id, end.user): end for end in ends}
        self.asked: List[Tuple[str, str]] = []

    def ended_status(self, app_id: str, owner: str) -> Optional[AppStatus]:
        return self.ends.get((app_id, owner)) if (app_id, owner) in self.asked else None

    def ask_end(self, app_id: str, owner: str) -> bool:
        is_answered = (app_id, owner) in self.asked
        self.asked.append((app_id, owner))
        return is_answered


def died(number: int, owner: str) -> AppStatus:
    return AppStatus(
        *(app(number), "mnist", owner, "default", AppState.FAILED),
        submitted=NOW, finished=NOW + 1, diagnostics="the master died",
    )  # fmt: skip


def write_dead_job(root: Path, number: int, changed: float) -> None:
    """A job whose master died after its story, and 80 s of points."""
    events = [
        {"n": 1, "time": NOW, "kind": "session-started", "session": 0, "fields": {}},
        {"n": 2, "time": NOW, "kind": "task-state", "session": 0, "task": "worker:0",
         "fields": {"state": "running"}},
    ]  # fmt: skip
    tasks = [{"task": "worker:0", "role": "worker", "state": "running"}]
    folder = write_job(root, app(number), state="RUNNING", finished=None, progress=0.5,
                       tasks=tasks, events=events)  # fmt: skip
    points = [["worker:0", NOW + 80, {"loss": 1.0}]]
    (folder / "metrics-0001.jsonl").write_text(json.dumps({"points": points}) + "\n")
    for file in folder.iterdir():
        os.utime(file, (changed, changed))


@pytest.mark.parametrize("ago", [60.0, 3 * scanner.FORSAKEN_S])
def test_the_end_that_a_scheduler_reports_is_the_indexs(
    index: Index, root: Path, ago: float
) -> None:
    """So filters, counts and sums agree with what a list shows."""
    me = getpass.getuser()
    write_dead_job(root, 1, time.time() - ago)
    write_dead_job(root, 2, time.time() - ago)
    ends = _Ends(died(1, me), died(2, "another"))
    scan = LocationScan(HistoryLocation("here", str(root)), index, ends=ends)
    wait_for(lambda: scan.step() >= 0.0 and len(rows(index, state=("FAILED",))) == 1)
    assert set(ends.asked) == {(app(1), me), (app(2), me)}
    (row,) = rows(index, state=("FAILED",))
    assert (row.app_id, row.finished, row.error) == (app(1), NOW + 80, "the master died")
    assert row.figures["duration_s"] == row.figures["running_s"] == 80
    assert [each.app_id for each in rows(index, state=("RUNNING",))] == [app(2)]
    assert index.facets(ADMIN)["state"] == {"FAILED": 1, "RUNNING": 1}
    assert index.usage("user", ADMIN)[0].states == {"FAILED": 1, "RUNNING": 1}
    again = LocationScan(HistoryLocation("here", str(root)), index)  # the scheduler has forgotten
    read(again)
    assert rows(index, state=("FAILED",)) == [row]


def test_only_a_quiet_job_is_asked_for(index: Index, root: Path) -> None:
    write_dead_job(root, 1, time.time())
    ends = _Ends()
    read(LocationScan(HistoryLocation("here", str(root)), index, ends=ends))
    assert rows(index)[0].state == "RUNNING" and ends.asked == []


def test_a_reported_end_reaches_the_processes_that_read_large_histories(
    index: Index, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "LARGE", 1)
    write_dead_job(root, 1, time.time() - 60)
    ends = _Ends(died(1, getpass.getuser()))
    scan = LocationScan(HistoryLocation("here", str(root)), index, ends=ends)
    wait_for(lambda: scan.step() >= 0.0 and bool(rows(index, state=("FAILED",))))
    assert rows(index)[0].finished == NOW + 80
    scan.close()


def test_figures_of_a_running_job_go_on_without_new_lines_of_its_story(
    index: Index, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dead_job(root, 1, time.time())
    monkeypatch.setattr(scanner, "_FIGURES_S", 0.0)
    scan = LocationScan(HistoryLocation("here", str(root)), index)
    read(scan)
    assert rows(index)[0].figures["running_s"] == 80
    points = [["worker:0", NOW + 200, {"loss": 1.0}]]
    (root / app(1) / "metrics-0001.jsonl").write_text(json.dumps({"points": points}) + "\n")
    write_job(root, app(1), state="RUNNING", finished=None, progress=0.7,
              tasks=[{"task": "worker:0", "role": "worker", "state": "running"}])  # fmt: skip
    wait_for(lambda: scan.step() >= 0.0 and rows(index)[0].figures["running_s"] == 200)


@pytest.mark.parametrize(
    ("age", "cost", "expected"), [(0, 0, 1), (80, 0, 8), (1e6, 0, 60), (80, 2, 20)]
)
def test_figures_are_a_tenth_of_a_jobs_time_old_at_most(
    age: float, cost: float, expected: float
) -> None:
    assert scanner.figures_rest_s(age, cost) == expected


def test_figures_that_were_left_out_are_computed_when_the_files_are_quiet(
    index: Index, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dead_job(root, 1, time.time())
    scan = LocationScan(HistoryLocation("here", str(root)), index)
    read(scan)
    points = [["worker:0", NOW + 200, {"loss": 1.0}]]
    (root / app(1) / "metrics-0001.jsonl").write_text(json.dumps({"points": points}) + "\n")
    write_job(root, app(1), state="RUNNING", finished=None, progress=0.7,
              tasks=[{"task": "worker:0", "role": "worker", "state": "running"}])  # fmt: skip
    wait_for(lambda: scan.step() >= 0.0 and rows(index)[0].progress == 0.7)
    assert rows(index)[0].figures["running_s"] == 80, "it was read in brief"
    scan._jobs[app(1)].figures_due = 0.0
    wait_for(lambda: scan.step() >= 0.0 and rows(index)[0].figures["running_s"] == 200)

"""Retention by the portal: what goes, what stays, what it may not remove."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Iterator, List

import pytest

from tests.portal.histories import app, write_job
from tests.second_user import UID, as_second_user, needs_root, open_folder
from tony_core.history.retention import KeptHistory
from tony_core.portal.assembly import assemble
from tony_core.portal.index import retention
from tony_core.portal.index.database import IndexBusy
from tony_core.portal.index.index import Index
from tony_core.portal.index.rows import Query
from tony_core.portal.index.scanner import LocationScan
from tony_core.portal.locations import reader_of
from tony_core.portal.settings import HistoryLocation, Settings
from tony_core.portal.viewer import Viewer

__all__ = ["open_folder"]

DAY = 86400.0


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    made = Index(str(tmp_path / "index"))
    yield made
    made.close()


def ended(root: Path, number: int, days: float) -> Path:
    at = time.time() - days * DAY
    return write_job(root, app(number), submitted=at - 60, finished=at, changed=at)


def read(scan: LocationScan) -> None:
    end = time.monotonic() + 60
    while scan.step() == 0.0:
        assert time.monotonic() < end


def test_old_jobs_are_removed_and_running_ones_stay(index: Index, tmp_path: Path) -> None:
    root = tmp_path / "history"
    ended(root, 1, 40)
    ended(root, 2, 10)
    old = time.time() - 40 * DAY
    write_job(root, app(3), state="RUNNING", submitted=old, finished=None)
    (root / "else").mkdir()
    scan = LocationScan(HistoryLocation("here", str(root), retention_s=30 * DAY), index)
    read(scan)
    assert sorted(os.listdir(root)) == [app(2), app(3), "else"]
    page = index.page(Query(), Viewer("root", is_admin=True))
    assert sorted(row.app_id for row in page.rows) == [app(2), app(3)]


def test_the_oldest_of_too_much_are_removed(index: Index, tmp_path: Path) -> None:
    root = tmp_path / "history"
    sizes = [
        sum(file.stat().st_size for file in ended(root, number, 10 - number).iterdir())
        for number in range(4)
    ]
    place = HistoryLocation("here", str(root), retention_bytes=sum(sizes[2:]))
    read(LocationScan(place, index))
    assert sorted(os.listdir(root)) == [app(2), app(3)]


def test_a_job_that_has_changed_meanwhile_stays(index: Index, tmp_path: Path) -> None:
    root = tmp_path / "history"
    ended(root, 1, 40)
    keeping = LocationScan(HistoryLocation("here", str(root)), index)
    read(keeping)
    write_job(root, app(1), state="RUNNING", finished=None)
    scan = LocationScan(HistoryLocation("here", str(root), retention_s=30 * DAY), index)
    scan._generation = index.generation  # so that it knows only what the index has
    scan._retention.run(reader_of(HistoryLocation("here", str(root))), lambda: False)
    assert os.listdir(root) == [app(1)]


def test_a_link_is_not_followed_when_a_job_is_removed(tmp_path: Path) -> None:
    root, other = tmp_path / "history", tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("kept")
    folder = ended(root, 1, 40)
    (folder / "link").symlink_to(other)
    (root / app(2)).symlink_to(other)
    reader = reader_of(HistoryLocation("here", str(root)))
    assert reader.remove(app(1)) and not reader.remove(app(1))
    with pytest.raises(OSError, match="symbolic link"):
        reader.remove(app(2))
    assert (other / "file").read_text() == "kept"


@needs_root
def test_a_portal_that_may_not_remove_reports_it(index: Index, open_folder: Path) -> None:
    """A portal without rights over other users' files, in a sticky place."""
    root = open_folder / "history"
    ended(root, 1, 40)
    for path in (root / app(1), *(root / app(1)).iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    root.chmod(0o1777)
    place = HistoryLocation("here", str(root), retention_s=30 * DAY)
    log: List[str] = []
    scan = LocationScan(place, index, log.append)
    with as_second_user():
        for _ in range(3):
            scan.step()
    state = scan.state()
    assert os.listdir(root) == [app(1)] and state.problem == ""
    assert "1 history of 1 user could not be removed" in state.notes[0]
    assert "tony gc" in state.notes[0] and "root" not in state.notes[0]
    assert len(log) == 1 and "Whose they are: root 1" in log[0]


OTHER = UID + 1  # a user beside the one who runs the portal, and root


def shared(folder: Path) -> Path:
    """A place of the portal's, that others may add to: its group may write in what they add."""
    root = folder / "history"
    root.mkdir()
    os.chown(root, UID, UID)
    root.chmod(0o3773)
    return root


def owned(folder: Path, uid: int) -> Path:
    """Make a job's folder a user's, as the job's master makes it in a shared place."""
    folder.chmod(0o2770)
    for path in (folder, *folder.iterdir()):
        os.chown(path, uid, UID)
        if path.is_file():
            path.chmod(0o660)
    return folder


def step_as_portal(scan: LocationScan, times: int = 4) -> None:
    with as_second_user():
        for _ in range(times):
            scan.step()


def numbers(root: Path) -> List[int]:
    return sorted(int(name[-4:]) for name in os.listdir(root))


@needs_root
def test_a_user_loses_no_job_for_anothers_bytes(index: Index, open_folder: Path) -> None:
    root = shared(open_folder)
    for number in (1, 2, 3):
        owned(ended(root, number, 10 - number), 0)
    for number, size in ((8, 10 << 40), (9, 0)):
        folder = ended(root, number, 1)
        with open(folder / "more", "wb") as file:
            file.truncate(size)  # all of it holes
        owned(folder, OTHER)
    (root / app(9) / "more").write_bytes(b"x" * 300_000)
    read(LocationScan(HistoryLocation("here", str(root), retention_bytes=100_000), index))
    assert numbers(root) == [1, 2, 3]


@needs_root
def test_holes_are_no_bytes(index: Index, open_folder: Path) -> None:
    root = shared(open_folder)
    owned(ended(root, 1, 10), 0)
    folder = ended(root, 2, 1)
    with open(folder / "more", "wb") as file:
        file.truncate(10 << 40)
    owned(folder, OTHER)
    read(LocationScan(HistoryLocation("here", str(root), retention_bytes=1 << 30), index))
    assert numbers(root) == [1, 2] and index.rows(app(2), Viewer("root", is_admin=True))


@needs_root
@pytest.mark.parametrize("how", ["link", "closed", "closed-within"])
def test_what_cannot_be_opened_keeps_no_other(
    index: Index, open_folder: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_AT_ONCE", 3)  # so that a round takes a few steps
    root = shared(open_folder)
    for number in range(1, 5):
        folder = owned(ended(root, number, 400 - number), OTHER)
        if how == "closed-within":
            (folder / "more").mkdir()
            os.chown(folder / "more", OTHER, OTHER)
            (folder / "more").chmod(0o700)
            (folder / "more" / "file").write_text("kept")
    if how == "link":
        (root / app(7)).symlink_to("/tmp")
    owned(ended(root, 9, 300), 0)
    owned(ended(root, 10, 10), 0)
    keeping = LocationScan(HistoryLocation("here", str(root)), index)
    step_as_portal(keeping)
    if how == "closed":
        for number in range(1, 5):
            (root / app(number)).chmod(0)
    place = HistoryLocation("here", str(root), retention_s=180 * DAY)
    scan = LocationScan(place, index)
    scan._generation = index.generation  # what is closed is settled, and not looked at for a while
    scan._listing.done(reader_of(place).version(), time.monotonic(), 0.0)
    step_as_portal(scan, 6)
    assert scan.state().problem == ""
    assert numbers(root) == ([7, 10] if how == "link" else [1, 2, 3, 4, 10])
    notes = " ".join(scan.state().notes)
    assert ("4 histories of 1 user could not be removed" in notes) == (how != "link")


def test_a_busy_index_is_asked_again_later(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "history"
    ended(root, 1, 40)
    scan = LocationScan(HistoryLocation("here", str(root), retention_s=30 * DAY), index)
    answers = index.oldest

    def busy(location: str, owner: str = "") -> Iterator[KeptHistory]:
        raise IndexBusy("the list took longer than 5 s")

    monkeypatch.setattr(index, "oldest", busy)
    read(scan)
    assert scan.state().problem == "" and os.listdir(root) == [app(1)]
    monkeypatch.setattr(index, "oldest", answers)
    scan._retention._due = 0.0
    read(scan)
    assert os.listdir(root) == []


@needs_root
def test_the_list_of_jobs_says_what_is_not_kept_to(open_folder: Path) -> None:
    root = open_folder / "history"
    ended(root, 1, 40)
    for path in (root / app(1), *(root / app(1)).iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    root.chmod(0o1777)
    open_folder.chmod(0o777)
    place = HistoryLocation("here", str(root), retention_s=30 * DAY)
    settings = Settings(locations=(place,), index_folder=str(open_folder / "index"), schedulers=())
    with as_second_user():
        portal = assemble(settings, log=lambda text: None)
        try:
            end = time.monotonic() + 60
            while not portal.problems():
                assert time.monotonic() < end
                time.sleep(0.05)
            (problem,) = portal.problems()
        finally:
            portal.close()
    assert problem.startswith("The history location here: 1 history of 1 user could not be removed")

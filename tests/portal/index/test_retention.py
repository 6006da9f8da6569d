"""Retention by the portal: what goes, what stays, what it may not remove."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Iterator, List, Optional

import pytest

from tests.portal.histories import app, write_job
from tests.second_user import as_second_user, needs_root, open_folder
from tony_core.history.reader import KeptHistory
from tony_core.portal.index.index import Index
from tony_core.portal.index.retention import choose
from tony_core.portal.index.rows import Query
from tony_core.portal.index.scanner import LocationScan
from tony_core.portal.locations import reader_of
from tony_core.portal.settings import HistoryLocation
from tony_core.portal.viewer import Viewer

__all__ = ["open_folder"]

DAY = 86400.0


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    made = Index(str(tmp_path / "index"))
    yield made
    made.close()


def jobs(*days: float) -> List[KeptHistory]:
    """Jobs of 10 bytes that ended so many days ago."""
    return [KeptHistory(f"j{day:g}", -day * DAY, 10) for day in days]


@pytest.mark.parametrize(
    ("total", "age", "size", "expected"),
    [
        (30, None, None, []),
        (30, 4 * DAY, None, ["j9", "j5"]),
        (30, None, 30, []),
        (30, None, 29, ["j9"]),
        (30, None, 5, ["j9", "j5", "j1"]),
        (1000, None, 985, ["j9", "j5"]),  # with 970 bytes of newer ones
        (1000, None, 100, ["j9", "j5", "j1"]),
        (30, 8 * DAY, 15, ["j9", "j5"]),
    ],
)
def test_the_oldest_go_first(
    total: int, age: Optional[float], size: Optional[int], expected: List[str]
) -> None:
    assert choose(jobs(9, 5, 1), total, age, size, 0.0) == expected


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
    scan = LocationScan(place, index)
    with as_second_user():
        for _ in range(3):
            scan.step()
    state = scan.state()
    assert os.listdir(root) == [app(1)] and state.problem == ""
    assert "1 histories are older" in state.notes[0] and "tony gc" in state.notes[0]

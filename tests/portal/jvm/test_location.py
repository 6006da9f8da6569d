"""Folders of the JVM TonY as a history location: what is found, and what is not followed."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from tests.portal.jvm.files import APP, EVENTS, NAME, RUNNING, jhist
from tests.portal.jvm.test_reading import CONFIG
from tony_core.history.configuration import parse_config
from tony_core.history.reader import NoHistory
from tony_core.portal.index.index import Index
from tony_core.portal.index.rows import Query
from tony_core.portal.index.scanner import LocationScan
from tony_core.portal.job_folders import UnsafeHistory
from tony_core.portal.locations import open_job, reader_of
from tony_core.portal.settings import HistoryLocation
from tony_core.portal.viewer import Viewer

OTHER = "application_1541469337545_0099"


def location(root: Path) -> HistoryLocation:
    return HistoryLocation("old", str(root), kind="jvm-tony")


def put(folder: Path, name: str = NAME, data: bytes = b"", config: bytes = CONFIG) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data or jhist())
    if config:
        (folder / "tony-final.xml").write_bytes(config)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "finished" / "2018" / "11" / "15" / APP)
    put(tmp_path / "intermediate" / OTHER, RUNNING.replace(APP, OTHER), jhist(EVENTS[1:3]))
    return tmp_path


def test_jobs_are_found_in_both_folders(root: Path) -> None:
    reader = reader_of(location(root))
    assert sorted(reader.names()) == [APP, OTHER]
    with reader.open(APP) as folder:
        record = folder.record()
        assert folder.fingerprint().is_history
        config = folder.config()
    assert record.job["state"] == "FAILED" and record.problems == () and len(record.tasks) == 2
    assert config is not None and b"hunter2000" not in config
    entries = {entry.key: entry for entry in parse_config(config)}
    assert entries["tony.application.name"].source == "tony.xml"
    with open_job(location(root), OTHER) as folder:
        assert folder.record().job["state"] == "RUNNING"


def test_the_owner_is_the_owner_of_the_files(root: Path) -> None:
    import getpass

    with open_job(location(root), APP) as folder:
        assert folder.owner == folder.record().job["user"] == getpass.getuser()


def test_a_job_that_was_moved_is_found_again(root: Path) -> None:
    reader = reader_of(location(root))
    before, version = reader.names(), reader.version()
    day = root / "finished" / "2019" / "01" / "08"
    day.mkdir(parents=True)
    (root / "intermediate" / OTHER).rename(day / OTHER)
    with reader.open(OTHER) as folder:
        assert folder.record().app_id == OTHER
    assert reader.version() != version and reader.names() == before


def test_a_new_job_changes_the_version(root: Path) -> None:
    reader = reader_of(location(root))
    version = reader.version()
    os.utime(root / "intermediate", (1, 1))
    assert reader.version() != version


def test_finished_counts_where_a_job_is_in_both(root: Path) -> None:
    """All users who run jobs can make folders in intermediate."""
    put(root / "intermediate" / APP, NAME.replace("FAILED", "SUCCEEDED"))
    reader = reader_of(location(root))
    reader.names()
    with reader.open(APP) as folder:
        assert folder.record().job["state"] == "FAILED"


def test_the_last_attempt_is_read(root: Path) -> None:
    folder = root / "intermediate" / OTHER
    put(folder, f"{OTHER}-1542325795566-1542325799999-ann-SUCCEEDED.jhist", jhist(EVENTS[1:3]))
    with open_job(location(root), OTHER) as opened:
        assert opened.record().job["state"] == "SUCCEEDED"


def test_files_of_other_applications_are_left_out_and_named(root: Path) -> None:
    put(root / "finished" / "2018" / "11" / "15" / APP, f"{OTHER}-9-9-eve-SUCCEEDED.jhist")
    with open_job(location(root), APP) as folder:
        record = folder.record()
    assert record.job["state"] == "FAILED"
    assert "files of other users or applications are left out" in record.problems[0]


def test_without_a_jhist_there_is_no_history(root: Path) -> None:
    (root / "finished" / "2018" / "11" / "15" / APP / NAME).unlink()
    with open_job(location(root), APP) as folder:
        assert not folder.fingerprint().is_history
        with pytest.raises(NoHistory):
            folder.record()


@pytest.mark.parametrize("name", ["../etc", "..", "", "a/b", ".hidden", "x\n"])
def test_what_is_no_id_is_refused(root: Path, name: str) -> None:
    with pytest.raises(NoHistory):
        open_job(location(root), name)


def test_links_are_not_followed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = put(tmp_path_factory.mktemp("outside") / APP)
    (root / "intermediate" / "application_1_0001").symlink_to(outside)
    (root / "finished" / "2017").symlink_to(root / "finished" / "2018")
    reader = reader_of(location(root))
    assert "application_1_0001" in reader.names()
    with pytest.raises(UnsafeHistory, match="symbolic link"):
        reader.open("application_1_0001")
    folder = root / "finished" / "2018" / "11" / "15" / APP
    for name in (NAME, "tony-final.xml"):
        (folder / name).unlink()
        (folder / name).symlink_to(outside / name)
    with reader.open(APP) as opened:
        assert opened.config() is None
        record = opened.record()
    assert record.tasks == () and len(record.problems) == 2
    assert all("is a symbolic link, which is not followed" in each for each in record.problems)


def test_a_pipe_and_a_large_file_are_named(root: Path) -> None:
    folder = root / "finished" / "2018" / "11" / "15" / APP
    (folder / "tony-final.xml").unlink()
    os.mkfifo(folder / "tony-final.xml")
    with open(folder / NAME, "wb") as stream:
        stream.truncate(1 << 40)
    with open_job(location(root), APP) as opened:
        record = opened.record()
    assert record.job["state"] == "FAILED" and "is larger than" in record.problems[0]


def test_removing(root: Path) -> None:
    reader = reader_of(location(root))
    reader.names()
    assert reader.remove(APP) and not reader.remove(APP)
    assert list(reader.names()) == [OTHER]


def test_the_two_folders_may_be_locations_of_their_own(root: Path) -> None:
    for name, app_id in (("finished", APP), ("intermediate", OTHER)):
        reader = reader_of(location(root / name))
        reader.version()
        assert list(reader.names()) == [app_id]
        with reader.open(app_id) as folder:
            assert folder.record().app_id == app_id


def test_a_root_that_goes_away_has_not_lost_its_jobs(root: Path) -> None:
    """A disk that is not mounted for a while; the index keeps its rows."""
    reader = reader_of(location(root))
    reader.version()
    away = root.rename(root.with_name("away"))
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            reader.version()
    away.rename(root)
    reader.version()
    assert len(reader.names()) == 2


def test_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="is no history of the JVM TonY"):
            reader_of(location(place)).version()


def test_the_index_lists_them_and_one_bad_job_hides_no_other(root: Path, tmp_path: Path) -> None:
    bad = "application_1541469337545_0013"
    put(root / "intermediate" / bad, NAME.replace(APP, bad), b"\xff" * 100, b"<x")
    with closing(Index(str(tmp_path / "index"))) as index:
        scan = LocationScan(location(root), index)
        for _ in range(5):
            scan.step()
        page = index.page(Query(), Viewer("ann", is_admin=True))
    rows = {row.app_id: row for row in page.rows}
    assert sorted(rows) == sorted([APP, OTHER, bad])
    assert (rows[APP].name, rows[APP].queue, rows[APP].state) == ("mnist", "ml", "FAILED")
    assert rows[APP].error.startswith("worker:0 failed") and rows[APP].tags == ("a", "b")
    assert rows[APP].figures["duration_s"] == pytest.approx(38.071)
    assert rows[APP].figures["gpu_hours"] > 0
    assert rows[OTHER].state == "RUNNING"


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")
def test_another_users_file_in_a_jobs_folder_speaks_for_nothing(root: Path) -> None:
    folder = root / "finished" / "2018" / "11" / "15" / APP
    later = NAME.replace("1542325695566", "1542325795566").replace("FAILED", "SUCCEEDED")
    put(folder, later, config=b"")
    os.chown(folder / later, 12345, 12345)
    with open_job(location(root), APP) as opened:
        record = opened.record()
    assert record.job["state"] == "FAILED" and len(record.tasks) == 2
    assert record.problems == (f"files of other users or applications are left out: {later}",)
    os.chown(folder / "tony-final.xml", 12345, 12345)
    with open_job(location(root), APP) as opened:
        assert opened.config() is None and opened.record().job["name"] == ""

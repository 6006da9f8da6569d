"""Ended jobs of a location as .jhist files for other tools."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from typing import Iterator, List

import pytest

from tests.portal.histories import NOW, app, write_job
from tony_core.portal.index.index import Index
from tony_core.portal.index.scanner import LocationScan
from tony_core.portal.jvm import publication
from tony_core.portal.jvm.names import UnusableRoot, check_root
from tony_core.portal.jvm.publication import JhistPublisher
from tony_core.portal.locations import open_job
from tony_core.portal.settings import HistoryLocation

WAIT_S = 60.0


@pytest.fixture
def location(tmp_path: Path) -> HistoryLocation:
    (tmp_path / "history").mkdir()
    return HistoryLocation("main", str(tmp_path / "history"), write_jhist=str(tmp_path / "tony"))


@pytest.fixture
def log() -> List[str]:
    return []


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with closing(Index(str(tmp_path / "index"))) as made:
        yield made


@pytest.fixture
def publisher(location: HistoryLocation, log: List[str]) -> Iterator[JhistPublisher]:
    made = JhistPublisher([location], log.append, lambda: NOW + 3600)
    yield made
    assert made.close()


def written(location: HistoryLocation) -> List[str]:
    return sorted(path.name for path in Path(location.write_jhist).rglob("*.jhist"))


def wait_for(location: HistoryLocation, count: int) -> List[str]:
    end = time.monotonic() + WAIT_S
    while len(written(location)) < count:
        assert time.monotonic() < end, written(location)
        time.sleep(0.02)
    return written(location)


def scan(location: HistoryLocation, index: Index, publisher: JhistPublisher) -> None:
    made = LocationScan(location, index, on_ended=publisher.on_ended)
    while made.step() == 0.0:
        pass


def test_each_ended_job_is_written_once(
    location: HistoryLocation, index: Index, publisher: JhistPublisher
) -> None:
    import getpass

    root = Path(location.root)
    write_job(root, app(1), config="<configuration/>", tasks=[
        {"task": "worker:0", "role": "worker", "state": "succeeded", "started": NOW + 9,
         "ended": NOW + 50}])  # fmt: skip
    write_job(root, app(2), state="RUNNING", finished=None)
    write_job(root, app(3), state="KILLED")
    write_job(root, app(4), submitted=1.0, started=2.0, finished=3.0)  # long ago
    (root / "not-a-job").mkdir()
    scan(location, index, publisher)
    user = getpass.getuser()
    times = f"{int(NOW + 5) * 1000}-{int(NOW + 60) * 1000}"
    assert wait_for(location, 2) == [
        f"{app(1)}-{times}-{user}-SUCCEEDED.jhist", f"{app(3)}-{times}-{user}-KILLED.jhist",
    ]  # fmt: skip
    folder = Path(location.write_jhist) / "intermediate" / app(1)
    assert sorted(os.listdir(folder))[1] == "tony-final.xml"
    assert folder.stat().st_mode & 0o777 == 0o770
    assert all(path.stat().st_mode & 0o777 == 0o640 for path in folder.iterdir())
    # what that TonY's own reader of a location makes of it
    old = HistoryLocation("old", location.write_jhist, kind="jvm-tony")
    with open_job(old, app(1)) as opened:
        record = opened.record()
    assert record.problems == () and record.tasks[0]["duration_s"] == 41.0

    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    index.rebuild()
    scan(location, index, publisher)
    assert publisher.close()
    assert publisher.written == 2
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_what_another_portal_has_moved_on_is_not_written_again(
    location: HistoryLocation, index: Index, publisher: JhistPublisher
) -> None:
    write_job(Path(location.root), app(1))
    scan(location, index, publisher)
    (name,) = wait_for(location, 1)
    root = Path(location.write_jhist)
    day = root / "finished" / time.strftime("%Y/%m/%d", time.gmtime(NOW + 60))
    day.mkdir(parents=True)
    (root / "intermediate" / app(1)).rename(day / app(1))
    write_job(Path(location.root), app(2))
    index.rebuild()
    scan(location, index, publisher)
    wait_for(location, 2)
    assert [path.parent.parent for path in root.rglob(name)] == [day]


def test_a_place_that_cannot_be_written_is_named_once_and_tried_again(
    location: HistoryLocation,
    index: Index,
    publisher: JhistPublisher,
    log: List[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publication, "RETRY_S", 0.05)
    blocking = Path(location.write_jhist)
    blocking.write_text("a file")
    for number in (1, 2, 3):
        write_job(Path(location.root), app(number))
    scan(location, index, publisher)
    end = time.monotonic() + WAIT_S
    while not log:
        assert time.monotonic() < end
        time.sleep(0.02)
    blocking.unlink()
    wait_for(location, 3)
    assert publisher.close()
    assert len(log) == 2, log
    assert "cannot be written: " in log[0] and "are written to" in log[1]


def test_without_a_place_nothing_is_written(
    location: HistoryLocation, index: Index, log: List[str]
) -> None:
    plain = location._replace(write_jhist="")
    publisher = JhistPublisher([plain], log.append)
    write_job(Path(location.root), app(1))
    scan(plain, index, publisher)
    assert publisher.close() and not log


def test_a_path_that_confuses_the_jvms_reader_is_refused() -> None:
    with pytest.raises(UnusableRoot, match="may not contain 'jhist'"):
        check_root("/data/jhist-files")
    assert check_root("hdfs://n/tony-history/") == "hdfs://n/tony-history"


def test_the_portal_writes_them_and_reads_the_jvms_folders(
    location: HistoryLocation, tmp_path: Path
) -> None:
    """Put together as ``tony portal`` does: one location is the other's copy."""
    from tony_core.portal.assembly import assemble
    from tony_core.portal.index.rows import Query
    from tony_core.portal.settings import Settings
    from tony_core.portal.viewer import Viewer

    root = Path(location.write_jhist)
    (root / "intermediate").mkdir(parents=True)
    now = time.time()
    write_job(Path(location.root), app(1), submitted=now - 60, started=now - 55, finished=now - 5)
    old = HistoryLocation("old", location.write_jhist, kind="jvm-tony")
    settings = Settings(locations=(location, old), index_folder=str(tmp_path / "index"))
    log: List[str] = []
    portal = assemble(settings, log=log.append)
    try:
        end = time.monotonic() + WAIT_S
        while portal.numbers()["jobs"] < 2:
            assert time.monotonic() < end, (portal.problems(), log)
            time.sleep(0.05)
        assert portal.problems() == []
    finally:
        portal.close()
    with closing(Index(settings.index_folder)) as index:
        rows = index.page(Query(), Viewer("admin", is_admin=True)).rows
    assert {(row.location, row.app_id, row.state) for row in rows} == {
        ("main", app(1), "SUCCEEDED"), ("old", app(1), "SUCCEEDED"),
    }  # fmt: skip
    assert log == []

"""From artifacts to paths on a node."""

from __future__ import annotations

import os
import shutil
import tarfile
import threading
from pathlib import Path
from typing import List

import pytest

from tests.bundle.conftest import Site
from tests.bundle.jobs import job, ref
from tony_core.bundle import archive, localization
from tony_core.bundle.archive_streams import ArchiveLimits
from tony_core.bundle.client import planning, staging
from tony_core.bundle.local import garbage
from tony_core.bundle.localization import LocalizationError, localize
from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.files.durable import locked


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "empty").mkdir(parents=True)
    (folder / "x").write_text("x")
    path = tmp_path / "data.tar.gz"
    with tarfile.open(path, "w:gz") as out:
        out.add(folder, ".")
    return path


def staged(root: Path, *refs: object, app_id: str = "app-1") -> dict[str, Artifact]:
    what = job(files=refs)  # type: ignore[arg-type]
    plan = planning.plan(what, str(root))
    return {a.name: a for a in staging.stage(plan, str(root), app_id, what, b"")}


def test_kinds(tmp_path: Path, data: Path) -> None:
    root = tmp_path / "root"
    found = staged(root, ref(data), ref(data, "d", archive=True), ref(tmp_path / "data", "folder"))
    assert Path(localize(found[data.name], str(root))).read_bytes() == data.read_bytes()
    assert sorted(os.listdir(localize(found["folder"], str(root)))) == ["empty", "x"]
    assert sorted(os.listdir(localize(found["d"], str(root)))) == ["empty", "x"]


def test_an_archive_is_unpacked_once(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    item = staged(root, ref(data, "d", archive=True))["d"]
    calls: List[str] = []
    real = archive.extract

    def counted(path: str, target: str, limits: ArchiveLimits) -> archive.Listing:
        calls.append(path)
        return real(path, target, limits)

    monkeypatch.setattr(archive, "extract", counted)
    paths: List[str] = []
    threads = [
        threading.Thread(target=lambda: paths.append(localize(item, str(root)))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1 and len(set(paths)) == 1 and len(paths) == 6


def test_a_job_bounds_what_an_archive_may_hold_on_both_sides(tmp_path: Path, data: Path) -> None:
    root = tmp_path / "root"
    what = job(files=(ref(data, "d", archive=True),))
    tight = what.replace(limits=what.limits._replace(archive_members=1))
    (problem,) = planning.plan(tight, str(root)).errors
    assert "more than 1 members (see tony.containers.archive-max-members)" in str(problem)
    item = staged(root, ref(data, "d", archive=True))["d"]
    with pytest.raises(LocalizationError, match="more than 1 members"):
        localize(item, str(root), ArchiveLimits(members=1))
    assert not os.path.exists(os.path.join(os.path.dirname(item.uri), "unpacked"))
    assert os.listdir(os.path.join(root, "store", "tmp")) == []
    assert os.path.isdir(localize(item, str(root)))


def test_an_unpacked_folder_that_was_damaged_is_unpacked_again(tmp_path: Path, data: Path) -> None:
    root = tmp_path / "root"
    item = staged(root, ref(data, "d", archive=True))["d"]
    path = Path(localize(item, str(root)))
    (path / "x").chmod(0o600)
    (path / "x").write_text("")
    assert Path(localize(item, str(root))) == path
    assert (path / "x").read_text() == "x"
    os.unlink(path / "x")
    localize(item, str(root))
    assert (path / "x").read_text() == "x"


def test_too_long_a_wait_is_an_error(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    item = staged(root, ref(data, "d", archive=True))["d"]
    monkeypatch.setattr(localization, "WAIT_S", 0.1)
    held = locked(os.path.join(os.path.dirname(item.uri), "unpack.lock"), True, 1)
    with held, pytest.raises(LocalizationError, match="another process was not done"):
        localize(item, str(root))


def test_a_remote_archive_is_fetched_once_and_leased(tmp_path: Path, data: Path, web: Site) -> None:
    root = tmp_path / "root"
    url = web.put("d.tgz", data.read_bytes())
    item = staged(root, ref(url, "d", archive=True))["d"]
    assert item.uri == url and item.digest == ""
    paths = {localize(item, str(root)) for _ in range(3)}
    assert sorted(os.listdir(paths.pop())) == ["empty", "x"] and not paths
    assert [line.split()[0] for line in web.asked] == ["HEAD", "GET"]
    assert list(garbage.collect(str(root), 0, settle_s=0.0)) == []  # leased, though it came later
    # A new version under the same URL is a new object.
    url = web.put("d.tgz", data.read_bytes(), mtime=2000)
    what = job(files=(ref(url, "d", archive=True),))
    newer = planning.plan(what, str(root)).artifacts[-1]
    assert localization.remote_digest(newer) != localization.remote_digest(item)


def test_a_remote_file_that_changed_since_is_refused(tmp_path: Path, web: Site) -> None:
    root = tmp_path / "root"
    item = staged(root, ref(web.put("f", b"12345")))["f"]
    web.put("f", b"123")
    with pytest.raises(LocalizationError, match="has 3 bytes, but had 5"):
        localize(item, str(root))
    assert os.listdir(root / "store" / "tmp") == []


def test_what_went_away_is_named_without_its_password(tmp_path: Path) -> None:
    item = Artifact("d", Use.RESOURCE, Kind.FILE, "http://u:pw@h/d", "http://u:pw@127.0.0.1:1/d")
    with pytest.raises(LocalizationError, match=r"d \(http://\*\*\*\*@h/d\)") as caught:
        localize(item, str(tmp_path / "root"))
    assert "pw" not in str(caught.value)
    gone = Artifact("d", Use.RESOURCE, Kind.FILE, "d", str(tmp_path / "gone"))
    with pytest.raises(LocalizationError, match="cannot be localized"):
        localize(gone, str(tmp_path / "root"))


def test_a_damaged_staged_archive_is_reported_with_its_mend(tmp_path: Path, data: Path) -> None:
    root = tmp_path / "root"
    item = staged(root, ref(data, "d", archive=True))["d"]
    content = Path(item.uri)
    content.chmod(0o600)
    content.write_bytes(content.read_bytes()[:-20])
    with pytest.raises(LocalizationError) as caught:
        localize(item, str(root))
    message = str(caught.value)
    assert message.startswith(f"d: the copy that was staged of {data} is damaged or cut short")
    mend = f": remove the folder {content.parent} and submit again"
    assert message.endswith(mend) and not (content.parent / "unpacked").exists()
    shutil.rmtree(content.parent)
    again = staged(root, ref(data, "d", archive=True), app_id="app-2")["d"]
    assert again == item and "x" in os.listdir(localize(again, str(root)))


def test_a_bad_remote_archive_is_reported(tmp_path: Path, web: Site) -> None:
    root = tmp_path / "root"
    item = staged(root, ref(web.put("f.zip", b"no zip"), "f", archive=True))["f"]
    with pytest.raises(LocalizationError, match=r"f \(http.*f.zip\): is not an archive"):
        localize(item, str(root))

"""Event files are copied that belong to the job's owner, whatever the log folder holds."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Any, BinaryIO, Callable, List

import pytest

from tests.second_user import UID, needs_root
from tony_core.files.local import LocalFileSystem
from tony_core.files.port import Stat
from tony_core.portal import event_files
from tony_core.portal.event_files import Copied, NoEventFiles, copy_local, copy_remote

ME = getpass.getuser()
EVENTS = "events.out.tfevents.1.host"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    (folder / "train" / "deep").mkdir(parents=True)
    (folder / EVENTS).write_bytes(b"root")
    (folder / "train" / EVENTS).write_bytes(b"train")
    (folder / "train" / "deep" / EVENTS).write_bytes(b"deep")
    (folder / "train" / "model.ckpt").write_bytes(b"no events")
    (folder / "projector_config.pbtxt").write_text('metadata_path: "/etc/passwd"')
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    folder.mkdir()
    return folder


def contents(folder: Path) -> List[str]:
    return sorted(
        f"{path.relative_to(folder)}: {path.read_text()}"
        for path in folder.rglob("*")
        if path.is_file()
    )


Copy = Callable[..., Copied]


def copy_with_port(folder: str, owner: str, target: str, *more: Any) -> Copied:
    """The other way: as from HDFS, by the file-system port."""
    return copy_remote(LocalFileSystem(), folder, owner, target, *more)


BOTH = pytest.mark.parametrize("copy", [copy_local, copy_with_port])


@BOTH
def test_event_files_and_nothing_else(copy: Copy, logs: Path, target: Path) -> None:
    assert copy(str(logs), ME, str(target)) == Copied(3, 13, 0)
    assert contents(target) == [
        f"{EVENTS}: root",
        f"train/deep/{EVENTS}: deep",
        f"train/{EVENTS}: train",
    ]


@BOTH
def test_the_newest_up_to_the_limits(
    copy: Copy, logs: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate((EVENTS, f"train/{EVENTS}", f"train/deep/{EVENTS}")):
        os.utime(logs / name, (number, number))
    monkeypatch.setattr(event_files, "MOST_BYTES", 10)
    assert copy(str(logs), ME, str(target)) == Copied(2, 9, 1)
    assert contents(target) == [f"train/deep/{EVENTS}: deep", f"train/{EVENTS}: train"]


@BOTH
def test_nothing_there(copy: Copy, tmp_path: Path, target: Path) -> None:
    with pytest.raises(NoEventFiles, match="there is no folder"):
        copy(str(tmp_path / "nowhere"), ME, str(target))
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoEventFiles, match="no event files of TensorBoard"):
        copy(str(tmp_path / "empty"), ME, str(target))


@BOTH
def test_a_copy_that_is_not_wanted_any_more(copy: Copy, logs: Path, target: Path) -> None:
    with pytest.raises(NoEventFiles, match="not wanted any more"):
        copy(str(logs), ME, str(target), lambda: False)
    assert contents(target) == []


@BOTH
@needs_root
def test_another_users_folder_folders_and_files(copy: Copy, logs: Path, target: Path) -> None:
    os.chown(logs / "train", UID, UID)
    os.chown(logs / EVENTS, UID, UID)
    (logs / "mine").mkdir()
    (logs / "mine" / EVENTS).write_bytes(b"mine")
    copy(str(logs), ME, str(target))
    assert contents(target) == [f"mine/{EVENTS}: mine"]
    with pytest.raises(NoEventFiles, match="does not belong to daemon, whose job this is"):
        copy(str(logs), "daemon", str(target))


class TestOnThisMachine:
    def test_no_link_is_followed(self, logs: Path, target: Path, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.mkdir()
        (secret / EVENTS).write_bytes(b"secret")
        (logs / f"link-{EVENTS}").symlink_to(secret / EVENTS)
        (logs / "linked").symlink_to(secret)
        copy_local(str(logs), ME, str(target))
        assert not any("secret" in line for line in contents(target))
        (tmp_path / "to-logs").symlink_to(logs)
        with pytest.raises(NoEventFiles):
            copy_local(str(tmp_path / "to-logs"), ME, str(target))

    def test_what_is_no_plain_file_is_not_waited_for(self, logs: Path, target: Path) -> None:
        os.mkfifo(logs / f"pipe-{EVENTS}")
        assert copy_local(str(logs), ME, str(target)).files == 3

    def test_a_file_that_becomes_a_link_meanwhile(
        self, logs: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the list and the copy, which a test cannot hit by chance."""
        (tmp_path / "secret").write_bytes(b"secret")
        found = event_files._find_local

        def and_then(root: int, uid: int) -> Any:
            listed = found(root, uid)
            (logs / EVENTS).unlink()
            (logs / EVENTS).symlink_to(tmp_path / "secret")
            (logs / "train" / "deep").rename(logs / "was-deep")
            (logs / "train" / "deep").symlink_to(tmp_path)
            return listed

        monkeypatch.setattr(event_files, "_find_local", and_then)
        assert copy_local(str(logs), ME, str(target)) == Copied(1, 5, 2)
        assert contents(target) == [f"train/{EVENTS}: train"]

    def test_a_file_that_grows_faster_than_it_is_read(
        self, logs: Path, target: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(event_files, "PIECE", 1)
        opened = os.fdopen

        def grow(handle: int, *args: Any, **more: Any) -> BinaryIO:
            with (logs / "train" / EVENTS).open("ab") as file:
                file.write(b"!" * 100)
            stream: BinaryIO = opened(handle, *args, **more)
            return stream

        monkeypatch.setattr(event_files.os, "fdopen", grow)
        copy_local(str(logs), ME, str(target))
        assert f"train/{EVENTS}: train" in contents(target)

    @pytest.mark.parametrize("folder", ["/etc/passwd", "/nowhere/at/all", "/tmp/\0", ""])
    def test_odd_folders(self, folder: str, target: Path) -> None:
        with pytest.raises(NoEventFiles):
            copy_local(folder, ME, str(target))

    def test_an_owner_that_this_machine_does_not_know(self, logs: Path, target: Path) -> None:
        with pytest.raises(NoEventFiles, match="knows no user eve@EXAMPLE"):
            copy_local(str(logs), "eve@EXAMPLE", str(target))


class Hostile(LocalFileSystem):
    """A file system that says what a test wants."""

    def __init__(self, *found: Stat, owner: str = ME) -> None:
        self.found = list(found)
        self.owner = owner

    def stat(self, location: str) -> Stat:
        return Stat(location, True, 0, 0, owner=self.owner)

    def list(self, location: str) -> List[Stat]:
        return self.found


class TestElsewhere:
    def test_a_place_without_owners(self, target: Path) -> None:
        with pytest.raises(NoEventFiles, match="does not say whose a folder is"):
            copy_remote(Hostile(owner=""), "x://a/b", ME, str(target))

    def test_names_that_lead_elsewhere(self, target: Path) -> None:
        names = ["..", ".", "", "a/../../tfevents", "tfevents\0"]
        found = [Stat(f"x://a/{name}", False, 1, 0, owner=ME) for name in names]
        with pytest.raises(NoEventFiles):
            copy_remote(Hostile(*found), "x://a", ME, str(target))
        assert contents(target.parent) == []

    def test_folders_without_end(self, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(event_files, "MOST_FOLDERS", 50)
        endless = Hostile(Stat("x://a/again", True, 0, 0, owner=ME))
        with pytest.raises(NoEventFiles):
            copy_remote(endless, "x://a", ME, str(target))

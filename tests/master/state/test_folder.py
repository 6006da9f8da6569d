"""State that stands elsewhere: written by a thread, never given up."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest

from tests.master.shell import until
from tests.master.state.remote_files import STATE, FarFileSystem, far
from tony_core.files import registry
from tony_core.master.state import folder as statefolder
from tony_core.master.state.folder import LocalFolder, RemoteFolder, read_with_retries, state_folder
from tony_core.master.state.journal import Journal, JournalContent

__all__ = ["far"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statefolder, "RETRY_S", (0.01,))


def test_the_location_decides(tmp_path: Path, far: FarFileSystem) -> None:
    assert isinstance(state_folder(str(tmp_path)), LocalFolder)
    assert isinstance(state_folder(tmp_path.as_uri()), LocalFolder)
    assert isinstance(state_folder(STATE), RemoteFolder)
    assert far.calls == [], "nothing is made before there is something to write"


def test_on_a_full_disk_the_newest_version_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: List[str] = []
    folder = LocalFolder(str(tmp_path), lambda: called.append(folder.problem))
    folder.put("a", b"1")
    assert called == [] and not folder.pending("a")

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No room")

    with monkeypatch.context() as patch:
        patch.setattr(statefolder, "replace_file", full)
        folder.put("a", b"2")
        folder.put("a", b"3")
        folder.put("b", b"4")
        assert called == ["No room"] * 3 and folder.retry()
        assert folder.pending("a") and folder.pending("b")
        assert (tmp_path / "a").read_bytes() == b"1"
        assert LocalFolder(str(tmp_path)).close(1) == []
        assert folder.close(1) == [f"{tmp_path}/a: No room", f"{tmp_path}/b: No room"]
    assert not folder.retry() and folder.problem == ""
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes()) == (b"3", b"4")


def test_what_is_wrong_with_a_disk_besides_is_an_error(tmp_path: Path) -> None:
    folder = LocalFolder(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        folder.put("a", b"1")
    assert not folder.pending("a")


def test_files_and_their_folder_are_the_owners(far: FarFileSystem) -> None:
    folder = RemoteFolder(STATE)
    folder.put("journal.json", b"{}")
    assert folder.close(5) == []
    assert stat.S_IMODE(far.path(STATE).stat().st_mode) == 0o700
    assert stat.S_IMODE(far.path(STATE + "/journal.json").stat().st_mode) == 0o600
    assert [name for name, _ in far.calls] == ["mkdir", "put"]


def test_writers_do_not_wait_and_only_the_newest_is_put(far: FarFileSystem) -> None:
    called = threading.Event()
    folder = RemoteFolder(STATE, called.set)
    far.hang()
    folder.put("a", b"1")
    until(lambda: far.calls, "the first call")
    for number in range(2, 6):
        folder.put("a", b"%d" % number)
    assert folder.pending("a") and not called.is_set()
    far.back()
    assert folder.close(5) == []
    assert called.is_set() and not folder.pending("a")
    assert far.path(STATE + "/a").read_bytes() == b"5"
    assert [name for name, _ in far.calls] == ["mkdir", "put", "put"]


def test_what_fails_is_tried_until_it_is_there(far: FarFileSystem) -> None:
    folder = RemoteFolder(STATE)
    far.error = "safe mode"
    folder.put("a", b"1")
    until(lambda: len(far.calls) > 3, "more tries")
    assert "safe mode" in folder.problem and folder.pending("a")
    far.back()
    until(lambda: not folder.pending("a"))
    assert folder.problem == ""
    assert folder.close(5) == []


def test_a_folder_that_was_removed_is_made_again(far: FarFileSystem) -> None:
    folder = RemoteFolder(STATE)
    folder.put("a", b"1")
    until(lambda: not folder.pending("a"))
    far.delete(STATE)
    folder.put("a", b"2")
    assert folder.close(5) == []
    assert far.path(STATE + "/a").read_bytes() == b"2"


def test_a_clients_own_fault_does_not_end_the_writing(
    far: FarFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [ZeroDivisionError("a bug")]
    put = far.put

    def broken(location: str, data: bytes, mode: int = 0o644) -> None:
        if answers:
            raise answers.pop()
        put(location, data, mode)

    monkeypatch.setattr(far, "put", broken)
    folder = RemoteFolder(STATE)
    folder.put("a", b"1")
    until(lambda: not folder.pending("a"))
    assert folder.close(5) == []


def test_closing_has_a_deadline_and_names_what_is_missing(far: FarFileSystem) -> None:
    folder = RemoteFolder(STATE)
    far.hang()
    folder.put("a", b"1")
    folder.put("b", b"1")
    assert folder.close(0.05) == [f"{STATE}/a: no answer", f"{STATE}/b: no answer"]
    folder.put("c", b"1")
    far.back()
    until(lambda: not [t for t in threading.enumerate() if t.name == "state"])
    assert not far.path(STATE + "/c").exists()


def test_reading_is_patient(far: FarFileSystem) -> None:
    folder = RemoteFolder(STATE)
    with pytest.raises(FileNotFoundError):
        folder.get("a")
    folder.put("a", b"1")
    folder.close(5)
    far.error = "standby"
    threading.Timer(0.1, far.back).start()
    assert folder.get("a") == b"1"


def test_reading_has_an_end(far: FarFileSystem) -> None:
    def fail() -> bytes:
        raise OSError(5, "standby")

    with pytest.raises(OSError, match="standby"):
        read_with_retries(fail, 0.05)
    far.hang()
    with pytest.raises(TimeoutError, match=r"0\.05 s"):
        read_with_retries(lambda: far.stat(STATE), 0.05)


def test_a_journal_elsewhere(far: FarFileSystem) -> None:
    assert Journal(STATE, 2).read() == JournalContent()
    journal = Journal(STATE, 1)
    journal.write({"session": 3})
    journal.address("c1", "node:1")
    journal.save()
    assert journal.close(5) == []
    content = Journal(STATE, 2).read()
    assert (content.record, content.executors) == ({"session": 3}, {"c1": "node:1"})


class Noting(FarFileSystem):
    """One that keeps notes beside folders, unless ``refuses``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.notes: Dict[Tuple[str, str], bytes] = {}
        self.refuses = False

    def note(self, location: str, name: str, data: bytes) -> None:
        if self.refuses:
            raise OSError(95, "no extended attributes here", location)
        self.notes[location, name] = data

    def noted(self, location: str, name: str) -> Optional[bytes]:
        return self.notes.get((location, name))


@pytest.fixture
def noting(tmp_path: Path, far: FarFileSystem) -> Noting:
    found = Noting(tmp_path / "far")
    registry.register("far", lambda: found)
    return found


def test_what_is_waited_for_is_a_note_until_it_grows(noting: Noting) -> None:
    folder = RemoteFolder(STATE)
    folder.put("journal.json", b"one", soon=True)
    folder.put("master.json", b"here")
    assert folder.close(10) == []
    assert not noting.path(f"{STATE}/journal.json").exists()
    assert noting.path(f"{STATE}/master.json").read_bytes() == b"here"
    assert RemoteFolder(STATE).get("journal.json") == b"one"

    folder = RemoteFolder(STATE)
    assert folder.get("journal.json") == b"one"
    large = os.urandom(20000)
    folder.put("journal.json", large, soon=True)
    assert folder.close(10) == []
    # The note is still there; a file is the newer of the two, and stays the place.
    folder = RemoteFolder(STATE)
    assert folder.get("journal.json") == large
    folder.put("journal.json", b"small again", soon=True)
    assert folder.close(10) == []
    assert RemoteFolder(STATE).get("journal.json") == b"small again"


def test_a_place_without_notes_gets_files(noting: Noting) -> None:
    noting.refuses = True
    folder = RemoteFolder(STATE)
    folder.put("journal.json", b"one", soon=True)
    assert folder.close(10) == []
    assert noting.path(f"{STATE}/journal.json").read_bytes() == b"one"
    with pytest.raises(FileNotFoundError):
        RemoteFolder(STATE).get("other.json")

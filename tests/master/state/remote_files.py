"""A file system that is elsewhere: ``far://`` is a folder of the test, and may be away."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, BinaryIO, Callable, Iterator, List, Tuple

import pytest

from tony_core.files import registry
from tony_core.files.local import LocalFileSystem
from tony_core.files.port import FileSystem, Stat

ROOT = "far://name-node/user/ann/.tony"
STATE = f"{ROOT}/apps/app_1"


class FarFileSystem(FileSystem):
    """Does what a local one does, when it is there; ``calls`` says what it was asked."""

    scheme = "far"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._local = LocalFileSystem()
        self._there = threading.Event()
        self._there.set()
        self.error = ""  # answered with, if any
        self.calls: List[Tuple[str, str]] = []

    def hang(self) -> None:
        """No call is answered until :meth:`back`."""
        self._there.clear()

    def back(self) -> None:
        """It is there."""
        self.error = ""
        self._there.set()

    def path(self, location: str) -> Path:
        """Where the test finds it."""
        assert location.startswith("far://name-node/"), location
        return self._folder / location[len("far://name-node/") :]

    def _do(self, name: str, location: str, what: Callable[[str], Any]) -> Any:
        self.calls.append((name, location))
        assert self._there.wait(30), "the test forgot its file system"
        if self.error:
            raise OSError(5, self.error, location)
        return what(str(self.path(location)))

    def stat(self, location: str) -> Stat:
        found: Stat = self._do("stat", location, self._local.stat)
        return found

    def open(self, location: str, offset: int = 0) -> BinaryIO:
        stream: BinaryIO = self._do("open", location, self._local.open)
        stream.seek(offset)
        return stream

    def list(self, location: str) -> List[Stat]:
        found: List[Stat] = self._do("list", location, self._local.list)
        return found

    def put(self, location: str, data: bytes, mode: int = 0o644) -> None:
        self._do("put", location, lambda path: self._local.put(path, data, mode))

    def write(self, location: str, produce: Callable[[BinaryIO], None], mode: int = 0o644) -> None:
        raise NotImplementedError

    def upload(self, source: str, location: str, mode: int = 0o644) -> None:
        raise NotImplementedError

    def mkdir(self, location: str, mode: int = 0o755) -> None:
        self._do("mkdir", location, lambda path: self._local.mkdir(path, mode))

    def rename(self, source: str, target: str) -> None:
        raise NotImplementedError

    def delete(self, location: str) -> bool:
        gone: bool = self._do("delete", location, self._local.delete)
        return gone

    def chmod(self, location: str, mode: int) -> None:
        raise NotImplementedError


@pytest.fixture
def far(tmp_path: Path) -> Iterator[FarFileSystem]:
    """Registered for the test; it is back at its end, whatever happened."""
    made = FarFileSystem(tmp_path / "far")
    registry.register("far", lambda: made)
    yield made
    made.back()

"""A cluster's file system over a local folder: counted, and as strict as a NameNode.

Every name changes under one lock, as a NameNode does it. ``fail`` names verbs that raise.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from typing import BinaryIO, Callable, Dict, List, Optional

from tony_core.files.local import LocalFileSystem
from tony_core.files.port import FileSystem, Stat

SCHEME = "fake"
ROOT = f"{SCHEME}://cluster/user/me/.tony"


class FakeCluster(FileSystem):
    """``fake://cluster/...`` is below a folder."""

    scheme = SCHEME

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: Counter[str] = Counter()
        self.fail: Dict[str, BaseException] = {}
        self.before: Dict[str, Callable[[str], None]] = {}  # verb -> called with the location
        self._local = LocalFileSystem()
        self._lock = threading.RLock()

    def path(self, location: str) -> str:
        """Where a location is."""
        prefix = f"{SCHEME}://cluster"
        assert location.startswith(prefix + "/"), location
        return str(self.folder) + location[len(prefix) :]

    def _called(self, verb: str, location: str) -> str:
        hook = self.before.get(verb)
        if hook is not None:
            hook(location)
        self.calls[verb] += 1
        if verb in self.fail:
            raise self.fail[verb]
        return self.path(location)

    def _cluster_stat(self, found: Stat, location: str) -> Stat:
        size = 0 if found.is_dir else found.size
        return Stat(location, found.is_dir, size, found.mtime_ms, found.mode)

    def stat(self, location: str) -> Stat:
        return self._cluster_stat(self._local.stat(self._called("stat", location)), location)

    def open(self, location: str, offset: int = 0) -> BinaryIO:
        return self._local.open(self._called("open", location), offset)

    def list(self, location: str) -> List[Stat]:
        path = self._called("list", location)
        with self._lock:
            found = self._local.list(path)
        names = [os.path.basename(item.location) for item in found]
        return [
            self._cluster_stat(item, f"{location}/{name}")
            for item, name in zip(found, names, strict=True)
        ]

    def write(
        self, location: str, produce: Callable[[BinaryIO], object], mode: int = 0o644
    ) -> None:
        path = self._called("write", location)

        def counted(stream: BinaryIO) -> None:
            produce(stream)
            self.calls["bytes"] += stream.tell()

        self._local.write(path, counted, mode)

    def mkdir(self, location: str, mode: int = 0o755) -> None:
        path = self._called("mkdir", location)
        with self._lock:
            missing = []
            while not os.path.isdir(path):
                missing.append(path)
                path = os.path.dirname(path)
            for folder in reversed(missing):  # a NameNode gives those above the same mode
                os.mkdir(folder, mode)
                os.chmod(folder, mode)

    def rename(self, source: str, target: str) -> None:
        old = self._called("rename", source)
        with self._lock:
            self._local.rename(old, self.path(target))

    def delete(self, location: str) -> bool:
        path = self._called("delete", location)
        with self._lock:
            return self._local.delete(path)

    def chmod(self, location: str, mode: int) -> None:
        self._local.chmod(self._called("chmod", location), mode)

    def checksum(self, location: str) -> str:
        """As HDFS has it: of all the bytes."""
        import hashlib

        with open(self._called("checksum", location), "rb") as stream:
            return "SHA-256:" + hashlib.sha256(stream.read()).hexdigest()

    def names(self, below: str = "") -> List[str]:
        """Every path below the staging root, for a glance."""
        top = Path(self.path(ROOT)) / below
        return sorted(str(path.relative_to(top)) for path in top.rglob("*"))

    def took(self) -> Dict[str, int]:
        """The calls since the last time."""
        taken = dict(self.calls)
        self.calls.clear()
        return taken


def fresh(folder: Path, registered: Optional[Callable[..., None]] = None) -> FakeCluster:
    """A cluster of its own, answering for its scheme."""
    from tony_core.files import registry

    cluster = FakeCluster(folder)
    (folder / "user" / "me").mkdir(parents=True)
    (registered or registry.register)(SCHEME, lambda: cluster)
    return cluster

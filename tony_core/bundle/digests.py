"""Digests of files, remembered by their ``stat``.

A virtual environment of a gigabyte is hashed once, not at each submit: a file whose size,
modification and change time, inode and device are the same is the same file. That word is
doubtful only for a file written within the grain of the file system's clock, so nothing
younger than two seconds is remembered.

One cache file stands for one source folder: a submit reads only what it needs, and two
submits at once can at worst lose each other's additions, which costs a hash. It is saved by
staging, never by planning, and lies in the store, never in the user's folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from tony_core.files.durable import replace_file

GRAIN_NS = 2_000_000_000
_BLOCK = 1 << 20


class Stamp(NamedTuple):
    """Size, times and identity of a file: equal stamps mean equal bytes."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)

    def settled(self) -> bool:
        """Whether a later write would show: the last one is older than the clock's grain."""
        return max(self.mtime_ns, self.ctime_ns) < time.time_ns() - GRAIN_NS


class DigestCache:
    def __init__(self, source: str, folder: Optional[str]) -> None:
        self.source = os.path.abspath(source)
        self._path: Optional[str] = None
        if folder is not None:
            name = hashlib.sha256(os.fsencode(self.source)).hexdigest()[:32]
            self._path = os.path.join(folder, name + ".json")
        self._known: Dict[str, List[Any]] = self._load()
        self._used: Dict[str, List[Any]] = {}
        self._dirty = False
        self.hashed_bytes = 0  # by this object, for figures and tests

    def _load(self) -> Dict[str, List[Any]]:
        if self._path is None:
            return {}
        try:
            with open(self._path, encoding="ascii") as stream:
                data = json.load(stream)
            files = data["files"] if data["source"] == os.fsencode(self.source).hex() else {}
            return files if isinstance(files, dict) else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}  # a cache: what cannot be read is not known

    def get(self, name: str, stamp: Stamp) -> Optional[str]:
        """The digest of the file of that name, if it is still the same file."""
        row = self._known.get(name)
        if row is None or row[1:] != list(stamp):
            return None
        self._used[name] = row
        return str(row[0])

    def compute(self, name: str, path: str) -> Tuple[str, Stamp]:
        """Hash the file now and remember it."""
        digest, stamp = self.hash_file(path)
        self.hashed_bytes += stamp.size
        if stamp.settled():
            self._used[name] = [digest, *stamp]
            self._dirty = True
        return digest, stamp

    @staticmethod
    def hash_file(path: str) -> Tuple[str, Stamp]:
        """The SHA-256 of a file and its stamp, taken before: a later change will show."""
        hashed = hashlib.sha256()
        with open(path, "rb", buffering=0) as stream:
            stamp = Stamp.of(os.fstat(stream.fileno()))
            while True:
                block = stream.read(_BLOCK)
                if not block:
                    break
                hashed.update(block)
        return hashed.hexdigest(), stamp

    def save(self) -> None:
        """Write down the digests that were used, if any is new."""
        if self._path is None or not self._dirty:
            return
        folder = os.path.dirname(self._path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        data = {"source": os.fsencode(self.source).hex(), "files": self._used}
        replace_file(self._path, json.dumps(data, separators=(",", ":")).encode(), sync=False)
        self._dirty = False

"""What a next master must know and could not find out: the journal, and master.json.

The journal holds the session machine's record (written ahead: whoever calls
:meth:`Journal.write` goes on only when it is on disk), the executors' addresses (written
soon: a lost address costs a moment, since ``master.json`` is the second way), and the
job's end once it is decided, so that a master that dies between the end and the scheduler's
hearing of it leaves nothing to redo. One small file, replaced atomically.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

JOURNAL = "journal.json"
MASTER_FILE = "master.json"
VERSION = 1


class JournalError(Exception):
    """The journal is there and cannot be read: nothing can be taken over safely."""


@dataclass(frozen=True)
class Past:
    """What the earlier master left."""

    attempt: int = 0
    record: Mapping[str, Any] = field(default_factory=dict)
    executors: Mapping[str, str] = field(default_factory=dict)  # container id -> host:port
    end: Optional[Mapping[str, Any]] = None  # {"state", "diagnostics"} once it was decided
    began: Optional[float] = None  # the job's first Begin, seconds since the epoch


def replace_file(path: Path, data: bytes, mode: int = 0o600, sync: bool = True) -> None:
    """Write a whole file so that a reader, or a crash, finds the old one or the new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as stream:
            stream.write(data)
            stream.flush()
            if sync:
                os.fsync(stream.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if sync:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class Journal:
    """The journal of one master attempt."""

    def __init__(self, state_dir: str, attempt: int) -> None:
        self._path = Path(state_dir) / JOURNAL
        self._attempt = attempt
        self._record: Mapping[str, Any] = {}
        self._executors: Dict[str, str] = {}
        self._end: Optional[Mapping[str, Any]] = None
        self._began: Optional[float] = None
        self.dirty = False  # addresses changed since the last write

    def read(self) -> Past:
        """What is there; an empty :class:`Past` if nothing is."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return Past()
        try:
            data = json.loads(text)
            if data["version"] != VERSION:
                raise ValueError(f"version {data['version']}, this master reads {VERSION}")
            past = Past(
                attempt=int(data["attempt"]),
                record=data["record"],
                executors=data["executors"],
                end=data["end"],
                began=data["began"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise JournalError(f"{self._path}: {error}") from error
        self._record, self._executors = past.record, dict(past.executors)
        self._end, self._began = past.end, past.began
        return past

    def write(self, record: Mapping[str, Any]) -> None:
        """The machine's record; on disk when this returns."""
        self._record = record
        self.save()

    def began(self, at: float) -> None:
        """When the job began (wall clock); goes out with the next write."""
        self._began = at

    def ended(self, state: str, diagnostics: str) -> None:
        """The job's end is decided; on disk when this returns."""
        self._end = {"state": state, "diagnostics": diagnostics}
        self.save()

    def address(self, container_id: str, address: str) -> None:
        """Where an executor listens; :meth:`save` follows soon."""
        if self._executors.get(container_id) != address:
            self._executors[container_id] = address
            self.dirty = True

    def forget(self, container_id: str) -> None:
        """Its container ended."""
        if self._executors.pop(container_id, None) is not None:
            self.dirty = True

    def save(self) -> None:
        """Replace the file."""
        data = {
            "version": VERSION,
            "attempt": self._attempt,
            "record": self._record,
            "executors": self._executors,
            "end": self._end,
            "began": self._began,
        }
        replace_file(self._path, json.dumps(data, separators=(",", ":")).encode())
        self.dirty = False


def write_master_file(state_dir: str, attempt: int, host: str, port: int, page_url: str) -> None:
    """Tell executors and clients where this master listens."""
    data = {"attempt": attempt, "host": host, "port": port, "page_url": page_url}
    path = Path(state_dir) / MASTER_FILE
    replace_file(path, json.dumps(data).encode(), mode=0o644, sync=False)

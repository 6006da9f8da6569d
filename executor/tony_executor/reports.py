"""What the program said by ``tony.report()`` and ``result()``: lines of JSON in a file of its own.

The program appends under a lock; we read under the same lock and shorten the file when all
of it was read and it has grown, so a long training does not fill the disk. The file is the
program's to write: whatever stands in it is taken for what it is, or passed over.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from typing import Any, Dict, Optional

from tony_core.protocol.messages import Reported

_AT_ONCE = 256 * 1024
_SHORTEN_AT = 256 * 1024
_MOST_NAMES = 500
_NO_COUNT = 1 << 63  # a message with a larger number is refused, and its link ended
_LONGEST_NAME = 200
LONGEST_RESULT = 64 * 1024  # as program/tony.py refuses it, and says so


class Reports:
    """One session's file."""

    def __init__(self, path: str, session: int) -> None:
        self.path = path
        self._session = session
        self._offset = 0
        self._known: Dict[str, None] = {}

    def news(self) -> Optional[Reported]:
        """What came since, the newest of each value; None when nothing did."""
        try:
            if os.stat(self.path).st_size <= self._offset:
                return None
            file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            data = self._read(file)
        except OSError:
            return None  # being written: next time
        finally:
            os.close(file)
        return self._newest(data)

    def _read(self, file: int) -> bytes:
        data = os.pread(file, _AT_ONCE, self._offset)
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) == _AT_ONCE:
            whole = len(data)  # one endless line is no report
        self._offset += whole
        if self._offset >= _SHORTEN_AT and self._offset == os.fstat(file).st_size:
            os.ftruncate(file, 0)
            self._offset = 0
        return data[:whole]

    def _newest(self, data: bytes) -> Optional[Reported]:
        progress: Optional[float] = None
        step: Optional[int] = None
        saved: Optional[int] = None
        metrics: Dict[str, float] = {}
        result = ""
        for line in data.splitlines():
            try:
                said = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if not isinstance(said, dict):
                continue
            if _is_number(said.get("progress")):
                progress = float(said["progress"])
            step = _count(said.get("step"), step)
            saved = _count(said.get("saved"), saved)
            values = said.get("metrics")
            for name, value in values.items() if isinstance(values, dict) else ():
                if _is_number(value) and self._admits(name):
                    metrics[name] = float(value)
            if "result" in said:
                result = _as_text(said["result"]) or result
        if progress is None and step is None and saved is None and not metrics and not result:
            return None
        return Reported(self._session, progress, metrics, step, result, saved)

    def _admits(self, name: str) -> bool:
        """A program that makes up names must not fill the master's memory."""
        if name not in self._known:
            if len(self._known) >= _MOST_NAMES or len(name) > _LONGEST_NAME:
                return False
            self._known[name] = None
        return True


def _as_text(value: Any) -> str:
    """A result as it travels; empty for one that no program of ours has written."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        return ""
    return text if len(text) <= LONGEST_RESULT else ""


def _count(value: Any, otherwise: Optional[int]) -> Optional[int]:
    """A whole number that a message may hold."""
    if not _is_number(value) or abs(int(value)) >= _NO_COUNT:
        return otherwise
    return int(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False

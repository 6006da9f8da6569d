"""The text in which YARN's web services wrap a log: a head, the bytes as they are, a tail.

The head says how long the log is at that moment, and so where in it the bytes begin that were
asked for as "the last N"; a server is asked in no other way for what stands behind a place.
"""

from __future__ import annotations

from typing import Optional

from tony_core.hadoop.logs.datainput import FormatError

_FIRST = b"Container: "
_CONTENTS = b"LogContents:\n"
_LENGTH = b"LogLength:"
_TAIL = b"End of LogType:"
_STARS = b"\n" + b"*" * 70
_RUNNING = b"belongs to a running container"
_LONGEST_HEAD = 1 << 16
_LONGEST_TAIL = 1 << 16


class LogTextParser:
    """Parses a response as it arrives; ``last``: the number of bytes requested from the end."""

    def __init__(self, last: Optional[int] = None) -> None:
        self._last = last
        self._rest = b""
        self._left = 0
        self.length: Optional[int] = None  # of the log, when it was asked
        self.begin = 0  # of what comes, in the log

    def feed(self, data: bytes) -> bytes:
        """Take received bytes; returns those of the log."""
        if self.length is None:
            self._rest += data
            if not self._head():
                return b""
            data, self._rest = self._rest, b""
        content, tail = data[: self._left], data[self._left :]
        self._left -= len(content)
        self._rest += tail[: _LONGEST_TAIL - len(self._rest)]
        return content

    def end(self) -> bool:
        """It ended; whether the container still ran. An error when not all of it came."""
        if self.length is None:
            raise FormatError(f"it is no log: {self._rest[:200]!r}")
        if self._left or not self._rest.lstrip(b"\n").startswith(_TAIL):
            raise FormatError(f"it ended before the log did ({self._left} bytes are missing)")
        return _RUNNING in self._rest

    def _head(self) -> bool:
        # Hadoop 2.10 has no head before an empty log.
        if self._rest.startswith(_TAIL) and _STARS in self._rest[:_LONGEST_HEAD]:
            self.length = 0
            return True
        if not any(each.startswith(self._rest[: len(each)]) for each in (_FIRST, _TAIL)):
            raise FormatError(f"it is no log: {self._rest[:200]!r}")
        at = 0
        length: Optional[int] = None
        while True:
            line_end = self._rest.find(b"\n", at)
            if line_end < 0:
                if len(self._rest) > _LONGEST_HEAD:
                    raise FormatError("the head before the log does not end")
                return False
            line = self._rest[at : line_end + 1]
            at = line_end + 1
            if line.startswith(_LENGTH):
                digits = line[len(_LENGTH) :].strip()
                if not digits.isdigit() or len(digits) > 18:
                    raise FormatError(f"the log has a length of {digits[:40]!r}")
                length = int(digits)
            if line == _CONTENTS:
                break
        if length is None:
            raise FormatError("the answer does not say how long the log is")
        self.length = length
        self._left = length if self._last is None else min(length, self._last)
        self.begin = length - self._left
        self._rest = self._rest[at:]
        return True

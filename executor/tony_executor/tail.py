"""The last lines of a log that may be huge, binary, or one line without an end."""

from __future__ import annotations

import os
import re
from typing import List, Sequence

MAX_BYTES = 64 * 1024
MAX_LINE = 500


def size_of(path: str) -> int:
    """Its size now; 0 when there is none."""
    try:
        with open(path, "rb") as file:
            return file.seek(0, 2)
    except OSError:
        return 0


def last_lines(path: str, since: int, count: int) -> List[str]:
    """At most ``count`` lines of what was written after ``since``.

    Empty ones are left out, long ones cut; of a line that was overwritten with carriage
    returns (a progress bar) the last state counts.
    """
    if count <= 0:
        return []
    try:
        with open(path, "rb") as file:
            end = file.seek(0, 2)
            start = max(min(since, end), end - MAX_BYTES)
            file.seek(start)
            data = file.read(MAX_BYTES)
    except OSError:
        return []
    if start > since and b"\n" in data:
        data = data.partition(b"\n")[2]  # the first line is not whole
    lines: List[str] = []
    for raw in reversed(data.split(b"\n")):
        line = raw.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace").rstrip()
        if line:
            lines.append(_cut(line.replace("\x00", "\ufffd")))
            if len(lines) == count:
                break
    return lines[::-1]


def seen_from(folder: str, lines: Sequence[str]) -> List[str]:
    """The same lines with paths as the program in ``folder`` would give them: ``./train.py``.

    A container's path is long, says nothing to a person, and is another one every time: the
    same failure in the next session, or in another container, would not look the same.
    """
    if not lines:
        return []
    names = []
    for each in dict.fromkeys((folder, os.path.realpath(folder))):
        names += [(each, "."), (os.path.dirname(each), "..")]
    out = list(lines)
    for name, short in names:
        if name.strip("/"):
            whole = re.compile(r"(?<![\w.-])" + re.escape(name) + r"(?![\w-]|\.\w)")
            out = [whole.sub(short, line) for line in out]
    return out


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + "\u2026"

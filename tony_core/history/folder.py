"""The files of one job's history folder: which there are, and what is in them, within bounds."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, Callable, List, Optional

from tony_core.files.local import LocalFileSystem
from tony_core.files.location import base_name, is_remote, join, local_path
from tony_core.files.port import FileSystem, Stat
from tony_core.files.registry import filesystem
from tony_core.history.layout import EVENTS, KINDS, segment_number
from tony_core.history.limits import LARGEST, megabytes
from tony_core.jsontext import is_number


def place(named: Optional[str], app_id: str, default: str, later: bool) -> str:
    """Where a master keeps a job's history: as the job says, else the scheduler's place.

    A ``later`` attempt continues where the previous attempt had to fall back to.
    """
    if not named:
        return default
    folder = join(named, app_id)
    fell_back = later and not segments(folder) and bool(segments(default))
    return default if fell_back else folder


def list_folder(files: FileSystem, folder: str) -> List[Stat]:
    """What is in a folder; nothing where there is none."""
    try:
        return files.list(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def segments(folder: str, files: Optional[FileSystem] = None, kind: str = EVENTS) -> List[str]:
    """The names of a job's segments of one kind, in order."""
    names = [base_name(s.location) for s in list_folder(files or filesystem(folder), folder)]
    found = [(segment_number(name, kind), name) for name in names]
    return [name for number, name in sorted(found) if number]


def all_segments(folder: str) -> List[str]:
    """The names of a job's segments of all kinds: a next master goes on behind them."""
    return [name for kind in KINDS for name in segments(folder, kind=kind)]


def read_file(files: FileSystem, location: str, most: Optional[int] = None) -> bytes:
    """The whole file; OSError where it is too large, or no file (a pipe, a device).

    In a place that users share, another user's job has whatever that user likes.
    """
    most = min(LARGEST, most or LARGEST)
    try:
        if is_remote(location) or not isinstance(files, LocalFileSystem):
            return files.get(location, most)
        handle = os.open(local_path(location), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "is not a plain file", location)
            if found.st_size > most:
                raise OSError(errno.EFBIG, f"is larger than {megabytes(most)}", location)
            return stream.read(found.st_size)
    except ValueError as error:
        raise OSError(errno.EFBIG, str(error), location) from None


def take_lines(
    name: str, data: bytes, take: Callable[[bytes], None], what: str, grows: bool
) -> List[str]:
    """Take every line of a file; the problems. The last line may be half-written if it grows."""
    problems: List[str] = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            take(line)
        except ValueError:
            if not (grows and number == len(lines)):
                problems.append(f"{name}:{number}: not a whole {what}, left out")
    return problems


def read_time(value: Any) -> float:
    """Seconds since the epoch; 0 for an invalid time."""
    return float(value) if is_number(value, 1e15) else 0.0

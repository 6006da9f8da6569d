"""TensorBoard's event files of a job, copied into a folder that only the portal reads.

The log folder is where the job says, so anywhere. What is copied is therefore only what belongs to
the job's owner, by the file system: each folder and file is opened below the one above it, through
no link, and asked for its owner once it is open; another's is left out. TensorBoard gets the copy,
and no path of the job's: nothing that is changed meanwhile leads it elsewhere.

Only event files are copied (those with ``tfevents`` in their name), the newest first, up to
:data:`MOST_BYTES`.
"""

from __future__ import annotations

import os
import pwd
import stat as modes
from contextlib import contextmanager, suppress
from typing import Callable, Iterator, List, NamedTuple, Tuple

from tony_core.files.port import FileSystem, Stat

MOST_BYTES = 1 << 30
MOST_FILES = 1000
MOST_FOLDERS = 5000
DEEPEST = 8
PIECE = 1 << 20
_MARK = "tfevents"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NoEventFiles(Exception):
    """There is nothing to show; the message says why."""


class Copied(NamedTuple):
    """What was copied."""

    files: int = 0
    size: int = 0
    left_out: int = 0  # beyond the limits, or another user's


class _Found(NamedTuple):
    """An event file below the log folder."""

    parts: Tuple[str, ...]
    size: int
    changed: float


def uid_of(owner: str) -> int:
    """The user id of a local owner; raises NoEventFiles."""
    try:
        return pwd.getpwnam(owner).pw_uid
    except KeyError:
        if owner.isdigit():
            return int(owner)
        raise NoEventFiles(f"this machine knows no user {owner}") from None


def copy_local(
    folder: str, owner: str, target: str, is_wanted: Callable[[], bool] = lambda: True
) -> Copied:
    """Copy the event files of a folder of this machine; raises NoEventFiles, OSError."""
    uid = uid_of(owner)
    try:
        root = os.open(folder, _FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        raise NoEventFiles(f"there is no folder {folder} on the portal's machine") from None
    except ValueError:
        raise NoEventFiles(f"{folder!r} is no name of a folder") from None
    except OSError as error:
        raise NoEventFiles(f"{folder} cannot be read by the portal: {error.strerror}") from None
    try:
        if os.fstat(root).st_uid != uid:
            raise NoEventFiles(f"{folder} does not belong to {owner}, whose job this is")
        found, left_out = _find_local(root, uid)

        def copy(item: _Found, path: str) -> int:
            return _copy_local(root, item, uid, path)

        return _copy_all(found, left_out, folder, target, copy, is_wanted)
    finally:
        os.close(root)


def copy_remote(
    files: FileSystem,
    folder: str,
    owner: str,
    target: str,
    is_wanted: Callable[[], bool] = lambda: True,
) -> Copied:
    """Copy the event files of a folder of a file system that knows owners."""
    try:
        root = files.stat(folder)
    except FileNotFoundError:
        raise NoEventFiles(f"there is no folder {folder}") from None
    if not root.is_dir:
        raise NoEventFiles(f"{folder} is no folder")
    _check_owner(root, owner)
    found, left_out = _find_remote(files, folder, owner)

    def copy(item: _Found, path: str) -> int:
        with files.open("/".join((folder.rstrip("/"), *item.parts))) as stream:
            return _write(stream.read, item.size, path)

    return _copy_all(found, left_out, folder, target, copy, is_wanted)


# ---------------------------------------------------------------------- this machine


def _find_local(root: int, uid: int) -> Tuple[List[_Found], int]:
    found: List[_Found] = []
    left_out = 0
    folders = 0
    waiting: List[Tuple[str, ...]] = [()]
    while waiting and folders < MOST_FOLDERS:
        parts = waiting.pop()
        folders += 1
        with (
            suppress(OSError),
            _opened_folder(root, parts, uid) as handle,
            os.scandir(handle) as it,
        ):
            for item in it:
                known = item.stat(follow_symlinks=False)
                below = (*parts, item.name)
                if modes.S_ISDIR(known.st_mode) and len(below) <= DEEPEST:
                    waiting.append(below)
                elif _MARK not in item.name or not modes.S_ISREG(known.st_mode):
                    continue
                elif known.st_uid == uid:
                    found.append(_Found(below, known.st_size, known.st_mtime))
                else:
                    left_out += 1
    return found, left_out


@contextmanager
def _opened_folder(root: int, parts: Tuple[str, ...], uid: int) -> Iterator[int]:
    """A folder below an open one, through no link and of one user."""
    handle = os.dup(root)
    try:
        for part in parts:
            below = os.open(part, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = below
            if os.fstat(handle).st_uid != uid:
                raise PermissionError(1, "belongs to another user", part)
        yield handle
    finally:
        os.close(handle)


def _copy_local(root: int, item: _Found, uid: int, path: str) -> int:
    with _opened_folder(root, item.parts[:-1], uid) as folder:
        handle = os.open(item.parts[-1], _FILE, dir_fd=folder)
    with os.fdopen(handle, "rb", buffering=0) as stream:
        known = os.fstat(handle)
        if known.st_uid != uid or not modes.S_ISREG(known.st_mode):
            raise PermissionError(1, "is not a plain file of its owner", item.parts[-1])
        return _write(stream.read, item.size, path)


# ---------------------------------------------------------------------- elsewhere


def _find_remote(files: FileSystem, folder: str, owner: str) -> Tuple[List[_Found], int]:
    found: List[_Found] = []
    left_out = 0
    folders = 0
    waiting: List[Tuple[str, ...]] = [()]
    while waiting and folders < MOST_FOLDERS and len(found) <= MOST_FILES:
        parts = waiting.pop()
        folders += 1
        for item in files.list("/".join((folder.rstrip("/"), *parts))):
            name = item.location.rstrip("/").rpartition("/")[2]
            below = (*parts, name)
            if item.owner != owner:
                left_out += _MARK in name
            elif item.is_dir and len(below) <= DEEPEST:
                waiting.append(below)
            elif not item.is_dir and _MARK in name:
                found.append(_Found(below, item.size, item.mtime_ms / 1000))
    return found, left_out


def _check_owner(root: Stat, owner: str) -> None:
    if not root.owner:
        raise NoEventFiles(
            f"{root.location} is in a file system that does not say whose a folder is, so the"
            " portal does not open it"
        )
    if root.owner != owner:
        raise NoEventFiles(f"{root.location} does not belong to {owner}, whose job this is")


# ---------------------------------------------------------------------- the copy


def _copy_all(
    found: List[_Found],
    left_out: int,
    folder: str,
    target: str,
    copy: Callable[[_Found, str], int],
    is_wanted: Callable[[], bool],
) -> Copied:
    copied = size = 0
    for item, path in _chosen(found, target):
        if not is_wanted():
            raise NoEventFiles("it is not wanted any more")
        if copied >= MOST_FILES or size + item.size > MOST_BYTES:
            left_out += 1
            continue
        try:
            size += copy(item, path)
            copied += 1
        except OSError:
            left_out += 1  # went away, or became another's meanwhile
    if not copied:
        others = f" ({left_out} could not be taken)" if left_out else ""
        raise NoEventFiles(f"there are no event files of TensorBoard in {folder}{others}")
    return Copied(copied, size, left_out)


def _chosen(found: List[_Found], target: str) -> Iterator[Tuple[_Found, str]]:
    """Each file with where it goes, the newest first. Names are of one folder each."""
    for item in sorted(found, key=lambda item: -item.changed):
        if any(part in ("", ".", "..") or "/" in part or "\0" in part for part in item.parts):
            continue
        folder = os.path.join(target, *item.parts[:-1])
        os.makedirs(folder, mode=0o700, exist_ok=True)
        yield item, os.path.join(folder, item.parts[-1])


def _write(read: Callable[[int], bytes], size: int, path: str) -> int:
    """Write no more than ``size`` bytes: a file may grow faster than it is read."""
    left = size
    with open(path, "xb") as out:
        while left > 0:
            data = read(min(PIECE, left))
            if not data:
                break
            out.write(data)
            left -= len(data)
    return size - left

"""Files that a crash leaves whole: written under another name, flushed to the disk, then renamed.

A rename alone replaces a file in one step for every reader, but not for a power cut: the
name may reach the disk before the bytes, and an empty file is what is found then. So the
bytes are flushed before the rename, and the folder after it. ``sync=False`` leaves both out,
for files that mean nothing after a restart of the machine.

And a lock between processes. Light, standard library only, Python 3.8: shims import it.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import BinaryIO, Callable, Iterator, List

_POLL_S = 0.01  # of a lock
_AT_ONCE = 8  # a flush mostly waits, and the disk joins those that wait at once


def replace_file(path: str, data: bytes, mode: int = 0o600, sync: bool = True) -> None:
    """Replace a file by these bytes; a reader, or a crash, finds the old one or the new one."""
    with replacing(path, mode, sync) as stream:
        stream.write(data)


@contextmanager
def replacing(path: str, mode: int = 0o600, sync: bool = True) -> Iterator[BinaryIO]:
    """A stream whose bytes replace the file at the end of the block, unless that raises.

    The file has exactly this mode from its first byte on, whatever the umask.
    """
    folder, name = os.path.split(path)
    # The name is cut: with what is added it must still fit a file system's 255 bytes.
    short = os.fsdecode(os.fsencode(name)[:200])
    aside = os.path.join(folder, ".%s.%d-%s" % (short, os.getpid(), os.urandom(4).hex()))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    handle = os.open(aside, flags, mode & 0o700 | 0o200)
    try:
        with os.fdopen(handle, "wb") as stream:
            os.fchmod(handle, mode)
            yield stream
            if sync:
                stream.flush()
                os.fsync(handle)
        os.replace(aside, path)
    except BaseException:
        try:
            os.unlink(aside)
        except FileNotFoundError:
            pass
        raise
    if sync:
        sync_folder(folder or ".")


def write_at(path: str, data: bytes, offset: int, mode: int = 0o600, sync: bool = True) -> None:
    """Write bytes into a file that grows, at the end of what was written to it before.

    Repeating the same after an error does no harm. A file that is shorter than that by now (it was
    cut or removed) gets the bytes at its end. A new file has exactly this mode.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, mode & 0o700 | 0o200)
    try:
        size = os.fstat(handle).st_size
        if not size:
            os.fchmod(handle, mode)
        at = min(offset, size)
        left = memoryview(data)
        while left:
            written = os.pwrite(handle, left, at)
            at, left = at + written, left[written:]
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)
    if sync and not size:
        sync_folder(os.path.dirname(path) or ".")


def sync_folder(path: str) -> None:
    """Flush the names in a folder: files that were made in it or renamed into it."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(path: str) -> None:
    """Flush a folder and all that is below it, or one file; follows no symbolic links."""
    if not os.path.isdir(path) or os.path.islink(path):
        _sync_file(path)
        return
    files: List[str] = []
    folders: List[str] = [path]
    for folder in folders:  # grows meanwhile
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    files.append(entry.path)
    _for_all(_sync_file, files)
    _for_all(sync_folder, folders)


def _sync_file(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _for_all(work: Callable[[str], None], paths: List[str]) -> None:
    if len(paths) < 2:
        for path in paths:
            work(path)
        return
    from concurrent.futures import ThreadPoolExecutor  # brings logging

    with ThreadPoolExecutor(min(_AT_ONCE, len(paths)), "flush") as pool:
        for _ in pool.map(work, paths):
            pass


@contextmanager
def locked(path: str, exclusive: bool, timeout_s: float) -> Iterator[None]:
    """Hold the lock on a file; ``TimeoutError`` when others held it all that time.

    ``flock``: the kernel frees it when its holder dies, however it dies. The file itself stays.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        how = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(handle, how)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path} was locked for {timeout_s:.0f} s") from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(handle)

"""Copying one file into the store.

Reflink where the file system can (btrfs, xfs): no bytes move, and a later write to either
side parts them. Else the kernel copies. Never a hard link to the user's file: it would be
the same file, and the user's next edit would change what running jobs read.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from typing import Set

from tony_core.bundle.digests import Stamp

_FICLONE = 0x40049409  # linux/fs.h
_CHUNK = 1 << 30
_CANNOT = (errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP)
_no_reflinks: Set[int] = set()  # devices without reflinks


def sealed_mode(executable: bool) -> int:
    """Files in the store are read-only: a program that writes into one is stopped.

    Folders stay writable by their owner, or no ``rm -rf`` could remove a store.
    """
    return 0o555 if executable else 0o444


def copy_file(source: str, target: str, executable: bool) -> Stamp:
    """Copy bytes, exec bit and modification time; returns the stamp of what was opened."""
    with open(source, "rb", buffering=0) as origin:
        found = os.fstat(origin.fileno())
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            done = (
                not found.st_size
                or _reflink(origin.fileno(), handle, found.st_dev)
                or _kernel_copy(origin.fileno(), handle, found.st_size)
            )
            if not done:
                with os.fdopen(os.dup(handle), "wb") as stream:
                    shutil.copyfileobj(origin, stream, 1 << 20)
            os.utime(handle, ns=(found.st_mtime_ns, found.st_mtime_ns))
            os.fchmod(handle, sealed_mode(executable))
        finally:
            os.close(handle)
    return Stamp.of(found)


def _reflink(source: int, target: int, device: int) -> bool:
    if device in _no_reflinks:
        return False
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        _no_reflinks.add(device)
        return False
    return True


def _kernel_copy(source: int, target: int, size: int) -> bool:
    """Without bytes passing through Python; False when the kernel cannot (nothing moved)."""
    copy_range = getattr(os, "copy_file_range", None)
    if copy_range is None:
        return False
    moved = 0
    while moved < size:
        try:
            count = copy_range(source, target, _CHUNK)
        except OSError as error:
            if moved == 0 and error.errno in _CANNOT:
                return False
            raise
        if count == 0:
            return moved > 0  # it has shrunk meanwhile, or the kernel will not copy this one
        moved += count
    return True

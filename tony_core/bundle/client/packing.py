"""A folder as one uncompressed tar, written while it travels.

Theory of operation
===================

A cluster's nodes unpack one file with ``tar xf``; thousands of small files would cost its
NameNode thousands of calls. Nothing is compressed: packing must be as fast as the network.

The same tree with the same times is the same bytes: entries in the tree's order, owner and
group 0 without names, modes 755 and 644 by the exec bit. Modification times are kept (in
whole seconds), for a virtual environment's bytecode is valid only for its sources' times.
Names, links and sizes that the plain header cannot hold are written as GNU tar does.

A thread of its own reads in advance, in blocks of some megabytes that hold many small files; the
caller's thread writes. What is packed is what was hashed: a file whose stamp is not the
hashed one when its last byte was read is :class:`~tony_core.bundle.client.tree.Changed`, and one so
young that its stamp cannot tell is hashed again on its way.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from typing import TYPE_CHECKING, BinaryIO, Iterator, List, Optional, Union

from tony_core.bundle.client.tree import Changed, Entry, Tree, Type, changed
from tony_core.bundle.digests import Stamp

if TYPE_CHECKING:
    import queue

RECORD = 10240  # what tar pads its archives to
_BLOCK = 512
_AT_ONCE = 4 << 20
_BUFFERED = 4  # blocks in memory between reader and writer
_PLAIN_NAME = 100
_PLAIN_SIZE = 8 << 30
_TYPE_FLAGS = {Type.FILE: b"0", Type.LINK: b"2", Type.FOLDER: b"5"}
_REST = bytes(_BLOCK - 264)  # owner, group, devices: nothing


def pack(tree: Tree, output: BinaryIO, mtime: Optional[int] = None) -> None:
    """Write the tree as a tar; raises :class:`Changed`, or what ``output`` raises.

    ``mtime``: one time for all files instead of their own.
    """
    copy_buffered(blocks(tree, mtime), output)


def packed_size(tree: Tree) -> int:
    size = 2 * _BLOCK
    for entry in tree.entries:
        size += _BLOCK if _is_plain(entry) else len(header(entry))
        if entry.stamp is not None:
            size += entry.stamp.size + -entry.stamp.size % _BLOCK
    return size + -size % RECORD


def blocks(tree: Tree, mtime: Optional[int] = None) -> Iterator[bytes]:
    """The bytes of the tar, in blocks of some megabytes."""
    parts: List[bytes] = []
    held = total = 0
    for entry in tree.entries:
        parts.append(header(entry, mtime))
        held += len(parts[-1])
        if entry.type is Type.FILE:
            for part in hashed_bytes(tree.root + "/" + entry.path, entry):
                if len(part) == _AT_ONCE and parts:
                    yield b"".join(parts)  # so that no large part is copied
                    parts = []
                parts.append(part)
                held += len(part)
                if held >= _AT_ONCE:
                    total += held
                    yield b"".join(parts)
                    parts, held = [], 0
            padding = -total - held & _BLOCK - 1
            parts.append(bytes(padding))
            held += padding
    total += held + 2 * _BLOCK
    parts.append(bytes(2 * _BLOCK + -total % RECORD))
    yield b"".join(parts)


def hashed_bytes(path: str, entry: Entry) -> Iterator[bytes]:
    """The bytes of one file, in the end proved to be those that were hashed."""
    stamp = entry.stamp
    assert stamp is not None
    again = None if stamp.settled() else hashlib.sha256()
    left = stamp.size
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Changed(errno.ESTALE, "was removed while it was being staged", path) from None
    try:
        while left:
            part = os.read(handle, min(left, _AT_ONCE))
            if not part:
                raise changed(path)
            left -= len(part)
            if again is not None:
                again.update(part)
            yield part
        if Stamp.of(os.fstat(handle)) != stamp:
            raise changed(path)
    finally:
        os.close(handle)
    if again is not None and again.hexdigest() != entry.digest:
        raise changed(path)


def _is_plain(entry: Entry) -> bool:
    """Whether the plain header surely holds it: cheap to ask of each of many thousands."""
    # No character of a file's name has more than four bytes.
    room = _PLAIN_NAME - 1
    name, target = len(entry.path), len(entry.target)
    if name > room // 4 or target > room // 4:
        name, target = len(os.fsencode(entry.path)), len(os.fsencode(entry.target))
    size = entry.stamp.size if entry.stamp is not None else 0
    return name <= room and target <= room and size < _PLAIN_SIZE


def header(entry: Entry, mtime: Optional[int] = None) -> bytes:
    """One entry's header; several blocks when a name is long."""
    name = os.fsencode(entry.path) + (b"/" if entry.type is Type.FOLDER else b"")
    target = os.fsencode(entry.target)
    size = entry.stamp.size if entry.stamp is not None else 0
    if mtime is None:
        mtime = max(0, entry.stamp.mtime_ns // 1_000_000_000) if entry.stamp is not None else 0
    mode = 0o755 if entry.executable or entry.type is not Type.FILE else 0o644
    if len(name) > _PLAIN_NAME or len(target) > _PLAIN_NAME or size >= _PLAIN_SIZE:
        return _long_header(entry, mode, size, mtime)
    type_flag = _TYPE_FLAGS[entry.type]
    numbers = b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, 0, 0, size, mtime)
    # The checksum counts its own eight bytes as spaces.
    checksum = sum(b"%b%b%b%bustar  " % (name, numbers, type_flag, target)) + 8 * 32
    return b"%b%b%06o\0 %b%bustar  %b" % (
        name.ljust(_PLAIN_NAME, b"\0"),
        numbers,
        checksum,
        type_flag,
        target.ljust(_PLAIN_NAME, b"\0"),
        _REST,
    )


def _long_header(entry: Entry, mode: int, size: int, mtime: int) -> bytes:
    import tarfile

    info = tarfile.TarInfo(entry.path)
    info.type = {Type.FILE: tarfile.REGTYPE, Type.LINK: tarfile.SYMTYPE}.get(
        entry.type, tarfile.DIRTYPE
    )
    info.linkname, info.mode, info.size, info.mtime = entry.target, mode, size, mtime
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def copy_buffered(source: Iterator[bytes], output: BinaryIO) -> None:
    """Write what ``source`` yields while a thread of its own reads on.

    An error of either side ends both; the reader is gone when this returns.
    """
    import queue

    buffered: queue.Queue[Union[bytes, BaseException, None]] = queue.Queue(_BUFFERED)
    stop = threading.Event()

    def reader() -> None:
        last: Union[BaseException, None] = None
        try:
            for block in source:
                buffered.put(block)
                if stop.is_set():
                    return
        except BaseException as error:
            last = error
        buffered.put(last)

    thread = threading.Thread(target=reader, name="packing", daemon=True)
    thread.start()
    try:
        while True:
            block = buffered.get()
            if block is None:
                return
            if isinstance(block, BaseException):
                raise block
            output.write(block)
    finally:
        stop.set()
        while thread.is_alive():
            _drain(buffered)
            thread.join(0.01)


def _drain(buffered: queue.Queue[Union[bytes, BaseException, None]]) -> None:
    while not buffered.empty():  # no other thread takes from it
        buffered.get_nowait()

"""One thing to stage, in the two forms that a destination may need.

A local store takes it as it is: a file, or a folder. A cluster takes one file, which its
nodes unpack: YARN decides by the end of the name how, knows zip, tar and tar.gz, and makes no
symbolic links of a zip's. What would not survive becomes a plain tar on its way; what would
is sent as it is. The end of the name follows from an archive's bytes, whatever its own is.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import ExitStack, contextmanager
from typing import BinaryIO, Callable, Dict, Iterator, NamedTuple, Optional, cast

from tony_core.bundle import archive
from tony_core.bundle.archive_members import Listing
from tony_core.bundle.archive_streams import ArchiveLimits
from tony_core.bundle.client import packing
from tony_core.bundle.client import runtime as runtimes
from tony_core.bundle.client.runtime import Runtime
from tony_core.bundle.client.staging_errors import StagingError
from tony_core.bundle.client.tree import (
    Changed,
    Entry,
    Tree,
    changed,
    copy_entry,
    copy_tree,
    hash_tree,
    scan,
)
from tony_core.bundle.digests import DigestCache, Stamp
from tony_core.files.artifact import Kind
from tony_core.files.location import base_name, masked
from tony_core.files.port import FileSystem, Stat

NODES_UNPACK = (".zip", ".jar", ".tar", ".tar.gz", ".tgz")
"""What the nodes of a cluster unpack, by the end of the name."""

_LONG_AGO = 315532800  # 1980: what was made for the upload has no time; zip knows none before
_AT_ONCE = 1 << 20

Write = Callable[[BinaryIO], None]


class Packed(NamedTuple):
    """A content in the form of one file."""

    digest: str
    file: str
    kind: Kind
    size: int  # exact where it can be known beforehand
    write: Write


class Content(NamedTuple):
    """One thing to stage: how to make it at a local path, and as one file."""

    digest: str
    kind: Kind
    size: int
    mtime_ms: int
    copy: Callable[[str], None]
    packed: Callable[[], Packed]


def of_folder(tree: Tree) -> Content:
    """The content of a folder that was scanned and hashed."""

    def write(output: BinaryIO) -> None:
        packing.pack(tree, output)

    def packed() -> Packed:
        return Packed(tree.digest, "content.tar", Kind.ARCHIVE, packing.packed_size(tree), write)

    def copy(target: str) -> None:
        copy_tree(tree, target)

    return Content(tree.digest, Kind.FOLDER, tree.size, tree.newest_ms, copy, packed)


def of_runtime(runtime: Runtime) -> Content:
    """Our own code; loaded, unless it is staged already."""

    def write(output: BinaryIO) -> None:
        with _temporary_tree(lambda target: runtimes.build(_loaded(runtime), target)) as tree:
            packing.pack(tree, output, _LONG_AGO)

    def copy(target: str) -> None:
        runtimes.build(_loaded(runtime), target)

    packed = Packed(runtime.digest, "content.tar", Kind.ARCHIVE, runtime.size, write)
    return Content(runtime.digest, Kind.FOLDER, runtime.size, 0, copy, lambda: packed)


def of_file(path: str, entry: Entry, name: str) -> Content:
    """One hashed file that stays one; ``name``: its digest in the store."""
    stamp = entry.stamp
    assert stamp is not None

    def write(output: BinaryIO) -> None:
        packing.copy_buffered(packing.hashed_bytes(path, entry), output)

    def copy(target: str) -> None:
        copy_entry(entry, path, target)

    packed = Packed(name, "content", Kind.FILE, stamp.size, write)
    mtime_ms = stamp.mtime_ns // 1_000_000
    return Content(name, Kind.FILE, stamp.size, mtime_ms, copy, lambda: packed)


def of_archive(path: str, entry: Entry, name: str, form: str, limits: ArchiveLimits) -> Content:
    """One hashed archive, which nodes unpack; ``form`` from :func:`form_of`."""
    whole = of_file(path, entry, name)
    suffix, convert = _FORMS[form]

    def converted(output: BinaryIO) -> None:
        assert convert is not None
        try:
            packing.copy_buffered(convert(path, limits), output)
            same = Stamp.of(os.stat(path)) == entry.stamp
        except Exception:
            # It was read whole before; damage now is another file of the same name.
            if Stamp.of(os.stat(path)) == entry.stamp:
                raise
            same = False
        if not same or (
            entry.stamp is not None
            and not entry.stamp.settled()
            and DigestCache.hash_file(path)[0] != entry.digest
        ):
            raise changed(path)

    # The same bytes may be wanted as a plain file, too: that is another object.
    identity = f"tony-archive-1\0{form}\0{name}"
    packed = Packed(
        hashlib.sha256(identity.encode()).hexdigest(),
        f"content{suffix}",
        Kind.ARCHIVE,
        whole.size,
        whole.packed().write if convert is None else converted,
    )
    return whole._replace(kind=Kind.ARCHIVE, packed=lambda: packed)


def of_download(
    source: str, kind: Kind, found: Stat, files: Callable[[str], FileSystem]
) -> Content:
    """A file that stands where nodes cannot fetch it themselves; it goes through this side."""

    def write(output: BinaryIO) -> None:
        size = 0
        with files(source).open(source) as stream:
            while True:
                block = stream.read(_AT_ONCE)
                if not block:
                    break
                size += len(block)
                output.write(block)
        if found.size and size != found.size:
            raise changed(masked(source))

    name = base_name(source).lower()
    suffix = next((end for end in NODES_UNPACK if name.endswith(end)), "")
    if kind is not Kind.ARCHIVE:
        suffix = ""
    identity = f"tony-fetched-1\0{suffix}\0{source}\0{found.size}\0{found.mtime_ms}"
    digest = hashlib.sha256(identity.encode()).hexdigest()
    packed = Packed(digest, f"content{suffix}", kind, found.size, write)

    def copy(target: str) -> None:
        with open(target, "wb") as output:
            write(output)

    return Content(digest, kind, found.size, found.mtime_ms, copy, lambda: packed)


def form_of(path: str, found: Listing) -> str:
    """How an archive that was read must be staged for a cluster."""
    with open(path, "rb") as stream:
        start = stream.read(4)
    if start[:2] == b"PK":
        links = any(member.type == "link" for member in found.members.values())
        return "zip-with-links" if links else "zip"
    magic = {b"\x1f\x8b": "tar.gz", b"BZ": "tar.bz2", b"\xfd7": "tar.xz"}
    return magic.get(start[:2], "tar")


def _loaded(runtime: Runtime) -> Runtime:
    """With its files' bytes, even if it was staged when the job was planned and is gone now."""
    if runtime.data:
        return runtime
    loaded = runtimes.load(runtime)
    if loaded.digest != runtime.digest:
        raise changed(runtimes.NAME)
    return loaded


@contextmanager
def _temporary_tree(make: Callable[[str], object]) -> Iterator[Tree]:
    """A tree in a temporary folder, filled by ``make`` and removed afterwards."""
    with ExitStack() as stack:
        try:
            aside = stack.enter_context(tempfile.TemporaryDirectory(prefix="tony-staging-"))
            target = os.path.join(aside, "made")
            make(target)
            tree = _hashed(target)
        except Changed:
            raise
        except OSError as error:
            where = f" [{error.filename}]" if error.filename else ""
            raise StagingError(
                "the files to pack for the cluster cannot be written on this machine:"
                f" {error.strerror or error}{where}; make room there, or set TMPDIR to a folder"
                " that you can write"
            ) from error
        yield tree


def _hashed(folder: str) -> Tree:
    tree = scan(folder)
    hash_tree(tree, DigestCache(folder, None))
    return tree


def _through(library: str) -> Callable[[str, ArchiveLimits], Iterator[bytes]]:
    def blocks(path: str, limits: ArchiveLimits) -> Iterator[bytes]:
        import importlib

        opened = importlib.import_module(library).open
        with cast(BinaryIO, opened(path)) as stream:
            while True:
                block = stream.read(_AT_ONCE)
                if not block:
                    return
                yield block

    return blocks


def _repacked(path: str, limits: ArchiveLimits) -> Iterator[bytes]:
    with _temporary_tree(lambda target: archive.extract(path, target, limits)) as tree:
        yield from packing.blocks(tree)


class _Form(NamedTuple):
    suffix: str
    convert: Optional[Callable[[str, ArchiveLimits], Iterator[bytes]]] = None


_FORMS: Dict[str, _Form] = {
    "zip": _Form(".zip"),
    "zip-with-links": _Form(".tar", _repacked),
    "tar": _Form(".tar"),
    "tar.gz": _Form(".tar.gz"),
    "tar.bz2": _Form(".tar", _through("bz2")),
    "tar.xz": _Form(".tar", _through("lzma")),
}

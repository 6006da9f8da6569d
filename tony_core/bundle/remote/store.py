"""The content-addressed store of one user on a cluster's file system.

Theory of operation
===================

::

    ROOT/store/                         0700, as everything below
      objects/DIGEST/                   one object, complete from the moment it has this name
        content.tar                     one file, 0600
        sealed-SIZE-MTIME-CHECK         an empty folder: what the file was when it was put
      leases/APP_ID/DIGEST              empty folders: which application uses which objects
      used/SECONDS.APP_ID/DIGEST        a lease that was given back, and when
      tmp/RANDOM/                       an upload in progress
      trash/DIGEST.RANDOM/              a collector's choice, until it has looked again

There are no locks here, only names that appear and go in one step. An object is uploaded
below ``tmp`` and its folder renamed: of two submits that bring the same one the second
rename fails, which is no loss. From then on it is never written to: YARN refuses a file whose
time is not the one that was submitted. A name beside it records size and time, so
that one listing answers whether the object is there, how big, how old, and still the same.

**Lease, then look**: a submit first makes its lease, then looks which objects are missing. A
collector first renames an object away, then looks at the leases again, and puts it back when
one has come meanwhile. Whichever way the two fall together, an object that a submit found is
not deleted: its lease stood before it looked, so before the collector's second look. A submit
that looks while the object is away takes it back itself, for others may have found that very
one; only when it is nowhere does it upload.

An empty folder costs one call to the NameNode; a small file would go to a DataNode, too.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import re
import secrets
import time
from contextvars import copy_context
from typing import (
    BinaryIO,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    TypeVar,
    cast,
)

from tony_core.bundle.local.leases import check_app_id
from tony_core.files.location import base_name, join, masked, parent
from tony_core.files.port import FileSystem, Stat
from tony_core.files.registry import filesystem

FOLDER_MODE = 0o700
FILE_MODE = 0o600
_AT_ONCE = 8  # calls in flight: a round trip each, no work for this side
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_SEAL = re.compile(r"^sealed-(\d+)-(\d+)-([0-9a-f]*)$")

T = TypeVar("T")
R = TypeVar("R")


class Damaged(OSError):
    """A staged object is not what was put there; its words begin with the file or folder."""

    def __str__(self) -> str:
        return f"{masked(str(self.filename))} {self.strerror}"


class Staged(NamedTuple):
    """Size and time of an object in the store."""

    size: int
    mtime_ms: int
    check: str = ""  # of the file's checksum when it was put; empty where there is none


def is_digest(name: str) -> bool:
    """Whether an object can have that name."""
    return _DIGEST.match(name) is not None


class RemoteStore:
    """The store below a remote staging root. Making one touches nothing."""

    def __init__(self, root: str, files: Optional[Callable[[str], FileSystem]] = None) -> None:
        self.root = root.rstrip("/")
        self.path = join(self.root, "store")
        self.apps = join(self.root, "apps")
        self.objects = join(self.path, "objects")
        self.leases = join(self.path, "leases")
        self.used = join(self.path, "used")
        self.tmp = join(self.path, "tmp")
        self.trash = join(self.path, "trash")
        self._open = files or filesystem

    @property
    def files(self) -> FileSystem:
        return self._open(self.root)

    # ------------------------------------------------------------------ objects

    def object_path(self, digest: str) -> str:
        """The folder of an object, there or not."""
        if not _DIGEST.match(digest):
            raise ValueError(f"not a digest: {digest!r}")
        return join(self.objects, digest)

    def content(self, digest: str, file: str) -> str:
        """Where an object's file is: what an artifact's ``uri`` names."""
        return join(self.object_path(digest), file)

    def look(self, digest: str, file: str) -> Optional[Staged]:
        """The object, or None when it is not there; :class:`Damaged` when it is another now."""
        try:
            found = self.files.list(self.object_path(digest))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return sealed(self.content(digest, file), found)

    def look_all(self, wanted: Mapping[str, str]) -> Dict[str, Optional[Staged]]:
        """:meth:`look` for many (digest -> file), in the time of one."""
        return dict(self._at_once(lambda item: (item[0], self.look(*item)), list(wanted.items())))

    def put(self, digest: str, file: str, write: Callable[[BinaryIO], object]) -> Staged:
        """Upload an object that was not found, unless another process has uploaded it since.

        ``write`` may raise: nothing is left then.
        """
        back = self._restore(digest, file)
        if back is not None:
            return back
        aside = join(self.tmp, secrets.token_hex(8))
        target = join(aside, file)
        counted = _Counted()
        mine: Optional[Staged] = None
        try:
            self.files.mkdir(aside, FOLDER_MODE)
            self.files.write(target, lambda stream: write(counted.around(stream)), FILE_MODE)
            found = self.files.stat(target)
            if found.size != counted.size:
                raise OSError(
                    errno.EIO,
                    f"the file has {found.size} bytes after an upload of {counted.size};"
                    " submit again",
                    target,
                )
            staged = Staged(found.size, found.mtime_ms, self.checksum(target))
            self.files.mkdir(join(aside, _seal(staged)), FOLDER_MODE)
            self.files.mkdir(self.objects, FOLDER_MODE)
            # Once more: what others have found may have come and gone again meanwhile.
            other = self._restore(digest, file)
            if other is None:
                mine = self._move_in(aside, digest, staged)
            if mine is None and other is None:
                other = self.look(digest, file) or self._restore(digest, file)
            # There, and gone when looked for: a collector had it; now the name is free.
            mine = mine or (None if other else self._move_in(aside, digest, staged))
        finally:
            if mine is None:
                with contextlib.suppress(OSError):
                    self.files.delete(aside)
        if mine is None and other is None:
            raise FileExistsError(errno.EEXIST, "comes and goes; submit again", target)
        return cast(Staged, mine or other)

    def _restore(self, digest: str, file: str) -> Optional[Staged]:
        """Take an object back from the trash: others may have found that very one."""
        away = [name for name in self.names(self.trash) if name.startswith(digest)]
        for name in away:
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                self.files.rename(join(self.trash, name), self.object_path(digest))
        return self.look(digest, file) if away else None

    def _move_in(self, aside: str, digest: str, staged: Staged) -> Optional[Staged]:
        try:
            self.files.rename(aside, self.object_path(digest))
        except FileExistsError:
            return None
        return staged

    def checksum(self, location: str) -> str:
        """A digest of the file's checksum; empty where the file system keeps none."""
        compute = getattr(self.files, "checksum", None)
        checksum = compute(location) if compute is not None else ""
        return hashlib.sha256(str(checksum).encode()).hexdigest()[:32] if checksum else ""

    def verify(self, digest: str) -> Optional[Damaged]:
        """What is wrong with an object, by the file system's own checksum of all its bytes.

        None when it is intact or gone.
        """
        folder = self.object_path(digest)
        try:
            found = self.files.list(folder)
            names = [base_name(item.location) for item in found if not item.is_dir]
            if len(names) != 1:
                return _damaged(folder, f"holds {len(names)} files")
            location = self.content(digest, names[0])
            staged = sealed(location, found)
            if staged.check and self.checksum(location) != staged.check:
                return _damaged(location, "has another checksum than when it was staged")
        except FileNotFoundError:
            return None
        except Damaged as error:
            return error
        return None

    def verify_all(self) -> Dict[str, Damaged]:
        """:meth:`verify` for every object: reads all bytes; the damaged ones by digest."""
        names = self.names(self.objects)
        found = dict(self._at_once(lambda name: (name, self.verify(name)), names))
        return {name: error for name, error in found.items() if error is not None}

    # ------------------------------------------------------------------ leases

    def prepare(self) -> None:
        """Make root and store for this user only; one call where they are."""
        try:
            found = self.files.stat(self.path)
        except FileNotFoundError:
            # HDFS gives every folder that one call makes the same mode: a home that was not
            # there (or even /user) must not be closed to all others.
            self.files.mkdir(parent(self.root))
            self.files.mkdir(self.root, FOLDER_MODE)
            self.files.mkdir(self.path, FOLDER_MODE)
            return
        if found.mode is not None and found.mode & 0o077:
            self.files.chmod(self.path, FOLDER_MODE)

    def take_lease(self, app_id: str, digests: Iterable[str]) -> None:
        """Lease these objects to an application, before it looks which are there."""
        folder = join(self.leases, check_app_id(app_id))
        names = [join(folder, digest) for digest in sorted(set(digests))]
        self._at_once(lambda name: self.files.mkdir(name, FOLDER_MODE), names or [folder])

    def drop_lease(self, app_id: str) -> bool:
        """Remove a lease that was not used; False when there was none."""
        return self.files.delete(join(self.leases, check_app_id(app_id)))

    def release(self, app_id: str) -> None:
        """The application needs nothing any more: its objects count as used until now.

        Does nothing when it had no lease.
        """
        lease = join(self.leases, check_app_id(app_id))
        mark = join(self.used, f"{int(time.time())}.{app_id}")
        for made in (True, False):
            try:
                self.files.rename(lease, mark)
                return
            except FileExistsError:
                self.drop_lease(app_id)
                return
            except FileNotFoundError:
                # Of the two names in this call, which one is missing?
                if not made or not self.files.exists(lease):
                    return
                self.files.mkdir(self.used, FOLDER_MODE)

    def leased(self, app_ids: Optional[Iterable[str]] = None) -> Dict[str, List[str]]:
        """The digests of each application's lease (by default of all applications)."""
        names = self.names(self.leases) if app_ids is None else list(app_ids)
        return dict(self._at_once(lambda name: (name, self.names(join(self.leases, name))), names))

    # ------------------------------------------------------------------ listing

    def names(self, folder: str) -> List[str]:
        """The names in a folder; none when it is not there."""
        return [base_name(item.location) for item in self.listed(folder)]

    def listed(self, folder: str) -> List[Stat]:
        """What a folder holds; nothing when it is not there."""
        try:
            return self.files.list(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _at_once(self, work: Callable[[T], R], items: List[T]) -> List[R]:
        if len(items) < 2:
            return [work(item) for item in items]
        from concurrent.futures import ThreadPoolExecutor  # brings logging

        with ThreadPoolExecutor(min(_AT_ONCE, len(items)), "staging") as pool:
            # Each in a copy of our context: the file systems may be our caller's own.
            begun = [pool.submit(copy_context().run, work, item) for item in items]
            return [one.result() for one in begun]


class _Counted:
    """How many bytes went through a stream."""

    def __init__(self) -> None:
        self.size = 0

    def around(self, stream: BinaryIO) -> BinaryIO:
        """The stream to write into; an upload that is tried again counts from the start."""
        self.size = 0
        self._stream = stream
        return cast(BinaryIO, self)

    def write(self, data: bytes) -> int:
        self._stream.write(data)
        self.size += len(data)
        return len(data)


def sealed(location: str, found: List[Stat]) -> Staged:
    """The object whose folder holds these; :class:`Damaged` when its file is not the one."""
    seals = [match for item in found if (match := _SEAL.match(base_name(item.location)))]
    name = base_name(location)
    file = next((item for item in found if base_name(item.location) == name), None)
    if file is None or len(seals) != 1:
        raise _damaged(location, "is missing, or the record of its size and time")
    size, mtime_ms, check = int(seals[0][1]), int(seals[0][2]), seals[0][3]
    if file.size != size:
        raise _damaged(location, f"has {file.size} bytes, but had {size} when it was staged")
    if file.mtime_ms != mtime_ms:
        raise _damaged(location, "was written to after it was staged")
    return Staged(size, mtime_ms, check)


def _seal(staged: Staged) -> str:
    return f"sealed-{staged.size}-{staged.mtime_ms}-{staged.check}"


def _damaged(location: str, what: str) -> Damaged:
    return Damaged(errno.EILSEQ, what, location)

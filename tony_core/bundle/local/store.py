"""The content-addressed store of one user.

Theory of operation
===================

::

    ROOT/store/                    0700
      lock                         flock: shared to take a lease, exclusive to collect
      locks/                       who fetches a remote file just now
      objects/ab/abcdef.../        one object, complete from the moment it has this name
        content                    a file, or a folder
        unpacked/                  an archive's content, made by the first task that wants it
        sizes.json                 the size of each of its files, and
        unpacked.json              of each file of ``unpacked``
        meta.json                  what it is; its time is when the object was last used
      leases/APP_ID.json           which objects an application uses, and who submits it
      tmp/OWNER-random/            work in progress of one process (see ``leases.Owner``)
      digests/                     remembered digests of the users' files

An object's name is the digest of its content, so it is never changed, only put and removed.

**Put**: made under ``tmp``, flushed to the disk, then renamed, so that a power cut leaves no
half of an object under its name. What a disk or a person damages later is noticed at reuse: an
object whose files have other sizes than in ``sizes.json`` is put again. When two processes put
the same object at once both make it and one rename loses, which is no loss. A process killed in
the middle leaves its ``tmp`` folder, whose name identifies its dead owner.

**Lease, then look**: a submit first writes a lease that names every object it is about to
use, present or not, under the *shared* lock, and only then looks which are missing. A
collector decides and renames its victims away under the *exclusive* lock (deleting comes
after, outside). So either the lease came first, and the collector saw it, or the collector
came first, and the submit sees that the object is missing and puts it again. No process holds
the lock while copying. A lease is not needed to be *made*: an object may be put early.

**Which lease is dead** is decided before the exclusive lock is taken, because it may mean
asking a scheduler; under the lock a lease counts as dead only if its file is still the very
one that was checked.

Files are read-only, folders are not (see ``copying.sealed_mode``). The store is local to
one user and one file system; where containers fetch from elsewhere, a scheduler stages
elsewhere.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Set

from tony_core.bundle.local.leases import Owner, StoreLease, read_leases, remove_lease, write_lease
from tony_core.files.durable import locked, sync_folder, sync_tree

LOCK_S = 60.0  # collectors hold it for the time of some renames
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class StoreError(OSError):
    """The store cannot be used; the message says what to do."""


class Store:
    """The store below a staging root. Making one touches nothing."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.path = os.path.join(self.root, "store")
        self.digests = os.path.join(self.path, "digests")
        self.leases = os.path.join(self.path, "leases")
        self.locks = os.path.join(self.path, "locks")
        self._objects = os.path.join(self.path, "objects")
        self._tmp = os.path.join(self.path, "tmp")
        self._lock = os.path.join(self.path, "lock")

    # ------------------------------------------------------------------ objects

    def prepare(self) -> None:
        """Make the store's folders, for this user only."""
        try:
            if not os.path.isdir(self.root):
                os.makedirs(self.root, mode=0o700, exist_ok=True)
            below = (self._objects, self.leases, self._tmp, self.digests, self.locks)
            for folder in (self.path, *below):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o700)
            self.check_owner()
            if os.stat(self.path).st_mode & 0o077:
                os.chmod(self.path, 0o700)
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(
                error.errno or errno.EIO,
                f"the store cannot be made ({error.strerror}); "
                "set TONY_HOME to a folder that you can write",
                self.path,
            ) from error

    def check_owner(self) -> None:
        """Refuse a store, or a link to one, that another user made."""
        try:
            link, folder = os.lstat(self.path).st_uid, os.stat(self.path).st_uid
        except OSError:
            return  # none, or none that can be read
        if folder != os.geteuid() or link not in (os.geteuid(), 0):
            raise StoreError(
                errno.EPERM,
                "the store belongs to another user; set TONY_HOME to a folder of your own",
                self.path,
            )

    def object_path(self, digest: str) -> str:
        """The folder of an object, there or not."""
        if not _DIGEST.match(digest):
            raise ValueError(f"not a digest: {digest!r}")
        return os.path.join(self._objects, digest[:2], digest)

    def content(self, digest: str) -> str:
        """The path of an object's content: what an artifact's ``uri`` names."""
        return os.path.join(self.object_path(digest), "content")

    def has(self, digest: str) -> bool:
        """Whether the object is there and whole."""
        return self.is_there(digest) and not self.damage(digest)

    def is_there(self, digest: str) -> bool:
        """Whether there is an object of that name; cheaper than :meth:`has`."""
        return os.path.isdir(self.object_path(digest))

    def damage(self, digest: str) -> str:
        """Compare an object with what was put, by its files' sizes; empty when they are equal."""
        if not self.is_there(digest):
            return ""
        try:
            self.meta(digest)
        except (OSError, ValueError, AssertionError):
            return "is damaged (its meta.json cannot be read)"
        sizes = os.path.join(self.object_path(digest), "sizes.json")
        if not os.path.lexists(self.content(digest)):
            return "is damaged (it is missing)"
        return difference(self.content(digest), sizes)

    def meta(self, digest: str) -> Dict[str, Any]:
        """The record that was put with the object."""
        with open(os.path.join(self.object_path(digest), "meta.json"), encoding="utf-8") as stream:
            data = json.load(stream)
        assert isinstance(data, dict)
        return data

    def put(
        self, digest: str, make: Callable[[str], None], meta: Optional[Mapping[str, Any]] = None
    ) -> bool:
        """Put an object unless it is there and whole; ``make(path)`` makes its content at a path.

        True when this call put it. ``make`` may raise: nothing is left then, and nothing changed.
        """
        target = self.object_path(digest)
        if self.has(digest):
            return False
        with self.scratch() as folder:
            made = os.path.join(folder, "object")
            os.mkdir(made, 0o700)
            make(os.path.join(made, "content"))
            with open(os.path.join(made, "meta.json"), "w", encoding="utf-8") as stream:
                json.dump({**(meta or {}), "put": time.time()}, stream)
            write_sizes(os.path.join(made, "content"), os.path.join(made, "sizes.json"))
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.dirname(target), 0o700)
                sync_folder(self._objects)
            sync_tree(made)
            if not self.is_there(digest):
                return move_in(made, target)
            with self._locked(exclusive=True):
                if self.has(digest):
                    return False
                os.rename(target, os.path.join(folder, "damaged"))
                return move_in(made, target)

    @contextlib.contextmanager
    def scratch(self) -> Iterator[str]:
        """A folder for work in progress, in the store's file system; removed at the end."""
        name = f"{Owner.mine().to_name()}_{secrets.token_hex(6)}"
        folder = os.path.join(self._tmp, name)
        try:
            os.mkdir(folder, 0o700)
        except FileNotFoundError:
            self.prepare()
            os.mkdir(folder, 0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    # ------------------------------------------------------------------ leases

    def take_lease(self, app_id: str, digests: Iterable[str]) -> StoreLease:
        """Lease these objects to an application, before it looks which are there."""
        self.prepare()
        lease = StoreLease(app_id, Owner.mine(), tuple(sorted(set(digests))), time.time())
        with self._locked(exclusive=False):
            write_lease(self.leases, lease)
        self._touch(lease.digests)
        return lease

    def release(self, app_id: str) -> None:
        """The application needs nothing any more; does nothing when it had no lease."""
        for lease in read_leases(self.leases):
            if lease.app_id == app_id:
                self._touch(lease.digests)  # retention counts from here
        remove_lease(self.leases, app_id)

    def _touch(self, digests: Iterable[str]) -> None:
        for digest in digests:
            with contextlib.suppress(OSError):
                os.utime(os.path.join(self.object_path(digest), "meta.json"))

    # ------------------------------------------------------------------ collection

    def collect(
        self,
        dead: Callable[[StoreLease], bool],
        older_than_s: float,
        dry_run: bool = False,
        settle_s: float = 60.0,
    ) -> Iterator[str]:
        """Remove what no application uses; yields a line for each thing.

        ``older_than_s``: how long an unused object is kept since its last use; at least
        ``settle_s``, in which the processes of an ended job may still run from it.
        """
        if not os.path.isdir(self.path):
            return
        dead_leases = [lease for lease in read_leases(self.leases) if dead(lease)]
        victims: List[str] = []
        with self.scratch() as trash:
            with self._locked(exclusive=True):
                expired: List[StoreLease] = []
                in_use: Set[str] = set()
                for lease in read_leases(self.leases):
                    if lease in dead_leases:
                        expired.append(lease)
                    elif lease.damage:
                        # It may name anything: better keep too much than break a running job.
                        raise StoreError(
                            errno.EILSEQ,
                            f"nothing was removed: the lease of {lease.app_id}, which may still"
                            f" run, cannot be read ({lease.damage}); remove it if it does not",
                            os.path.join(self.leases, f"{lease.app_id}.json"),
                        )
                    else:
                        in_use.update(lease.digests)
                limit = time.time() - max(older_than_s, settle_s)
                for digest in self.all_objects():
                    if digest not in in_use and self.last_used(digest) <= limit:
                        victims.append(digest)
                if not dry_run:
                    for lease in expired:
                        remove_lease(self.leases, lease.app_id)
                    for digest in victims:
                        os.rename(self.object_path(digest), os.path.join(trash, digest))
            for lease in expired:
                yield f"lease of {lease.app_id} (its application is gone)"
            for digest in victims:
                folder = self.object_path(digest) if dry_run else os.path.join(trash, digest)
                yield f"object {digest[:12]} ({describe(folder)})"
                if not dry_run:
                    shutil.rmtree(folder, ignore_errors=True)
        yield from self._collect_tmp(dry_run)
        yield from self._collect_digests(dry_run)

    def all_objects(self) -> List[str]:
        found: List[str] = []
        for prefix in _names(self._objects):
            found.extend(
                name for name in _names(os.path.join(self._objects, prefix)) if _DIGEST.match(name)
            )
        return sorted(found)

    def last_used(self, digest: str) -> float:
        """When an application last took or gave back the object; 0 when that is unknown."""
        try:
            return os.stat(os.path.join(self.object_path(digest), "meta.json")).st_mtime
        except OSError:
            return 0.0

    def _collect_tmp(self, dry_run: bool) -> Iterator[str]:
        for name in _names(self._tmp):
            path = os.path.join(self._tmp, name)
            owner = Owner.from_name(name)
            try:
                since = os.stat(path).st_mtime
            except FileNotFoundError:
                continue
            if owner is not None and owner.alive(since):
                continue
            yield f"unfinished work of a process that is gone ({name.split('_')[0]})"
            if not dry_run:
                shutil.rmtree(path, ignore_errors=True)

    def _collect_digests(self, dry_run: bool, older_than_s: float = 90 * 86400.0) -> Iterator[str]:
        for name in _names(self.digests):
            path = os.path.join(self.digests, name)
            with contextlib.suppress(FileNotFoundError):
                if time.time() - os.stat(path).st_mtime > older_than_s:
                    yield f"remembered digests ({name})"
                    if not dry_run:
                        os.unlink(path)

    @contextlib.contextmanager
    def _locked(self, exclusive: bool) -> Iterator[None]:
        try:
            with locked(self._lock, exclusive, LOCK_S):
                yield
        except TimeoutError as error:
            raise StoreError(
                errno.ETIMEDOUT,
                f"the store was locked by another process for {LOCK_S:.0f} s; try again",
                self._lock,
            ) from error


def move_in(made: str, target: str) -> bool:
    """Give a finished folder its name; False (and removed) when another process was first."""
    try:
        os.rename(made, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        shutil.rmtree(made, ignore_errors=True)
        return False
    sync_folder(os.path.dirname(target))
    return True


def write_sizes(content: str, path: str) -> None:
    """Write down the size of every file of an object, for :func:`difference`."""
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as stream:
        json.dump(_sizes(content), stream, separators=(",", ":"), ensure_ascii=False)


def difference(content: str, path: str) -> str:
    """In words, how an object's files differ from what was written down; empty if they do not.

    Files that came later are none: Python puts bytecode beside what it imports.
    """
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            sizes = json.load(stream)
        for name, size in sizes.items():
            found = os.lstat(os.path.join(content, name) if name else content).st_size
            if found != size:
                return f"is damaged ({name or 'it'} has {found} bytes, but had {size})"
    except FileNotFoundError as error:
        if error.filename == path:
            return ""  # put by a version that wrote no sizes
        return f"is damaged ({os.path.relpath(error.filename, content)} is missing)"
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        return f"is damaged ({error})"
    return ""


def _sizes(content: str) -> Dict[str, int]:
    """The size of each file by its path; without bytecode, which Python may make again."""
    if not os.path.isdir(content):
        return {"": os.stat(content).st_size}
    sizes: Dict[str, int] = {}
    folders = [""]
    for folder in folders:  # grows meanwhile
        with os.scandir(os.path.join(content, folder)) as entries:
            for entry in entries:
                name = os.path.join(folder, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        folders.append(name)
                elif entry.is_file(follow_symlinks=False):
                    sizes[name] = entry.stat(follow_symlinks=False).st_size
    return sizes


def describe(folder: str) -> str:
    try:
        with open(os.path.join(folder, "meta.json"), encoding="utf-8") as stream:
            meta = json.load(stream)
        return f"{meta.get('name', '?')}, {int(meta.get('size', 0)) / 1e6:.1f} MB"
    except (OSError, ValueError, AttributeError):
        return "incomplete"


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []

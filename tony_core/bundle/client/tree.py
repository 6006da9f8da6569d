"""A folder as content: a listing, its digest, and a faithful copy.

Theory of operation
===================

A tree is what a program can tell of a folder and what must survive travelling: names,
bytes, the exec bit, symbolic links, empty folders. Owners, other permission bits and times
are not of it: two checkouts of the same commit are one tree. Its digest is the SHA-256 of
the sorted listing, four fields to an entry (type, mode, path, value), each ended by a NUL
byte, which no name can hold: so no two different trees have the same listing.

Symbolic links inside the tree stay as they are; an absolute one that points into its own
tree becomes relative, or the copy would lead back to the user's folder. A relative link
that leaves the tree would mean something else once moved: it becomes absolute. Links that
leave the tree are kept and reported, because they work only where that path exists.

*Scanning* finds every problem (sockets, devices, what cannot be read) and reads no file.
*Hashing* goes through a :class:`~tony_core.bundle.digests.DigestCache`. *Copying* follows
the listing, not the folder: what appeared since is not taken, and what changed since is
noticed by its stamp and refused (or, where the stamp cannot tell, hashed again).
Modification times are copied: a venv's bytecode is valid only for its sources' times.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import os
import stat as modes
from enum import Enum
from typing import Callable, Iterable, List, Optional, Sequence, Tuple, TypeVar

from tony_core.bundle.digests import DigestCache, Stamp
from tony_core.bundle.local.copying import copy_file

# What a source folder holds that no program needs: the records of version control, and
# bytecode, which differs from one run to the next and would change the digest each time.
EXCLUDED = (".git", ".hg", ".svn", "__pycache__", ".tonyignore")
IGNORE_FILE = ".tonyignore"
_PART = 32  # files that a thread takes at once

T = TypeVar("T")


class Changed(OSError):
    """A file was changed while it was being staged."""


def changed(path: str) -> Changed:
    """The error about a file that is not the one that was hashed."""
    why = "was changed while it was being staged"
    if _is_our_output(path):
        why += ": it is what this command prints into; write that elsewhere, or name it in"
        why += f" {IGNORE_FILE}"
    return Changed(errno.ESTALE, why, path)


def _is_our_output(path: str) -> bool:
    for descriptor in (1, 2):
        try:
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return True
        except OSError:
            pass  # closed, or removed
    return False


class Type(str, Enum):
    FILE = "f"
    FOLDER = "d"
    LINK = "l"


class Entry:
    """One name of a tree; ``path`` is relative, by slashes."""

    def __init__(
        self,
        path: str,
        type: Type,
        executable: bool = False,
        target: str = "",
        digest: str = "",
        stamp: Optional[Stamp] = None,
    ) -> None:
        self.path = path
        self.type = type
        self.executable = executable
        self.target = target  # a link's
        self.digest = digest  # a file's, once hashed
        self.stamp = stamp


class Tree:
    def __init__(self, root: str) -> None:
        self.root = root
        self.entries: List[Entry] = []
        self.problems: List[str] = []
        self.links_out: List[str] = []  # "path -> target"
        self.venvs: List[str] = []  # virtual environments below the top
        self.digest = ""

    @property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(entry.stamp.size for entry in self.entries if entry.stamp)

    @property
    def newest_ms(self) -> int:
        times = [entry.stamp.mtime_ns for entry in self.entries if entry.stamp]
        return max(times, default=0) // 1_000_000


def read_ignores(root: str) -> Tuple[str, ...]:
    """The patterns of a ``.tonyignore``: one a line, matched against names and whole paths."""
    try:
        with open(os.path.join(root, IGNORE_FILE), encoding="utf-8") as stream:
            lines = [line.strip() for line in stream]
    except FileNotFoundError:
        return ()
    return tuple(line.strip("/") for line in lines if line and not line.startswith("#"))


def scan(root: str, excluded: Sequence[str] = (), never_enter: Iterable[str] = ()) -> Tree:
    """List a folder. ``never_enter``: absolute paths that are never entered (our own store)."""
    root = os.path.realpath(root)
    tree = Tree(root)
    skipped = {os.path.realpath(path) for path in never_enter}
    plain = {pattern for pattern in excluded if not set(pattern) & set("*?[/")}
    patterns = [pattern for pattern in excluded if pattern not in plain]
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(os.path.join(root, folder)) as found:
                children = list(found)
        except OSError as error:
            tree.problems.append(f"{folder or '.'}: folder cannot be read ({error.strerror})")
            continue
        for child in children:
            path = f"{folder}/{child.name}" if folder else child.name
            if child.name in plain or any(
                fnmatch.fnmatchcase(child.name, pattern) or fnmatch.fnmatchcase(path, pattern)
                for pattern in patterns
            ):
                continue
            try:
                entry = _entry(tree, path, child)
            except OSError as error:
                tree.problems.append(f"{path}: cannot be read ({error.strerror})")
                continue
            if entry is None or (skipped and os.path.join(root, path) in skipped):
                continue
            tree.entries.append(entry)
            if entry.type is Type.FOLDER:
                waiting.append(path)
            elif folder and child.name == "pyvenv.cfg":
                tree.venvs.append(folder)
    tree.entries.sort(key=lambda entry: os.fsencode(entry.path))
    tree.problems.sort()
    return tree


def _entry(tree: Tree, path: str, child: os.DirEntry[str]) -> Optional[Entry]:
    if child.is_symlink():
        return Entry(path, Type.LINK, target=_link_target(tree, path, os.readlink(child.path)))
    found = child.stat(follow_symlinks=False)
    if modes.S_ISDIR(found.st_mode):
        return Entry(path, Type.FOLDER)
    if modes.S_ISREG(found.st_mode):
        return Entry(path, Type.FILE, bool(found.st_mode & 0o100), stamp=Stamp.of(found))
    kinds = (
        (modes.S_ISSOCK, "a socket"),
        (modes.S_ISFIFO, "a named pipe"),
        (modes.S_ISBLK, "a block device"),
        (modes.S_ISCHR, "a character device"),
    )
    kind = next((word for test, word in kinds if test(found.st_mode)), "of an unknown kind")
    tree.problems.append(f"{path}: is {kind}; only files, folders and links can be staged")
    return None


def _link_target(tree: Tree, path: str, target: str) -> str:
    """The target as it must read in a copy; notes it when it leaves the tree."""
    here = os.path.dirname(os.path.join(tree.root, path))
    absolute = os.path.normpath(os.path.join(here, target))
    if absolute == tree.root or absolute.startswith(tree.root + os.sep):
        return os.path.relpath(absolute, here) if os.path.isabs(target) else target
    tree.links_out.append(f"{path} -> {target}")
    return absolute


def hash_tree(tree: Tree, cache: DigestCache) -> None:
    """Fill in every file's digest and the tree's own; adds to ``tree.problems``."""
    files = [entry for entry in tree.entries if entry.type is Type.FILE]
    todo = []
    for entry in files:
        assert entry.stamp is not None
        known = cache.get(entry.path, entry.stamp)
        if known:
            entry.digest = known
        else:
            todo.append(entry)

    def work(entry: Entry) -> Optional[str]:
        try:
            entry.digest, entry.stamp = cache.compute(
                entry.path, os.path.join(tree.root, entry.path)
            )
        except OSError as error:
            return f"{entry.path}: cannot be read ({error.strerror or error})"
        return None

    tree.problems.extend(word for word in _in_threads(work, todo) if word)
    tree.digest = listing_digest(tree.entries)


def listing_digest(entries: Sequence[Entry]) -> str:
    hashed = hashlib.sha256(b"tony-tree-1\0")
    for entry in entries:
        value = entry.digest if entry.type is Type.FILE else entry.target
        mode = "x" if entry.executable else "-"
        for part in (entry.type.value, mode, entry.path, value):
            hashed.update(os.fsencode(part) + b"\0")
    return hashed.hexdigest()


def file_digest_name(digest: str, executable: bool) -> str:
    """The object name of a single file: its bytes and its exec bit."""
    if not executable:
        return digest
    return hashlib.sha256(b"tony-executable-1\0" + digest.encode("ascii")).hexdigest()


def copy_tree(tree: Tree, target: str) -> None:
    """Make the tree at ``target``, which does not exist yet; raises :class:`Changed`."""
    os.mkdir(target, 0o755)
    files = []
    for entry in tree.entries:  # sorted: a folder comes before what it holds
        path = os.path.join(target, entry.path)
        if entry.type is Type.FOLDER:
            os.mkdir(path, 0o755)
        elif entry.type is Type.LINK:
            os.symlink(entry.target, path)
        else:
            files.append(entry)

    def work(entry: Entry) -> None:
        copy_entry(entry, os.path.join(tree.root, entry.path), os.path.join(target, entry.path))

    _in_threads(work, files)


def _in_threads(work: Callable[[Entry], T], entries: Sequence[Entry]) -> List[T]:
    """Hashing and copying let other threads run; more than a few only fight over the disk.

    An exception, Ctrl-C too, cancels what has not begun.
    """
    parts = [entries[at : at + _PART] for at in range(0, len(entries), _PART)]

    def some(part: Sequence[Entry]) -> List[T]:
        return [work(entry) for entry in part]

    if len(parts) < 2:
        return [done for part in parts for done in some(part)]
    from concurrent.futures import ThreadPoolExecutor  # brings logging

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1), "files") as pool:
        return [done for group in pool.map(some, parts) for done in group]


def copy_entry(entry: Entry, source: str, target: str) -> None:
    """Copy one hashed file and make sure that what arrived is what was hashed."""
    assert entry.stamp is not None
    try:
        copied = copy_file(source, target, executable=entry.executable)
    except FileNotFoundError:
        raise Changed(errno.ESTALE, "was removed while it was being staged", source) from None
    after = Stamp.of(os.stat(source))
    if copied != entry.stamp or after != entry.stamp:
        raise changed(source)
    # Changed within the clock's grain: the stamp cannot tell a later write from none.
    if not entry.stamp.settled() and DigestCache.hash_file(target)[0] != entry.digest:
        raise changed(source)

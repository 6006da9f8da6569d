"""The members that an archive lists, and whether they may be unpacked.

Each member is checked when it is read, for a tar is written to the disk as it is read; what only
the whole can tell (a name below a link, a link out) is checked at the end.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import os
import posixpath
from typing import Any, Dict, Iterator, List, Set

from tony_core.bundle.archive_streams import ArchiveLimits, LimitExceeded

SIZE_KEY = "tony.containers.archive-max-size"
MEMBERS_KEY = "tony.containers.archive-max-members"
_MOST_PROBLEMS = 20
_LONGEST_NAME = 2048  # a path may have 4096 bytes, and some stand before it
_LONGEST_PART = 255
_DEEPEST = 128
LONGEST_TARGET = 4095
_MOST_HARD_LINKS = 10_000  # to one file; file systems allow some 65,000
_LATEST = 1 << 33  # the year 2242
_LOOPING = 40  # links that lead to links: as the kernel counts
_STEPS = 5  # of following links, for each member that the limits allow
_LEAST_STEPS = 100_000
_NAME_BYTES = 256  # for each member, on average


class ArchiveError(Exception):
    """The archive cannot be used; ``problems`` holds everything that is wrong with it."""

    def __init__(self, problems: List[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class Member:
    """One entry of an archive; ``type`` is "file", "folder", "link" or "hardlink"."""

    def __init__(
        self,
        name: str,
        type: str,
        executable: bool = False,
        size: int = 0,
        mtime: float = 0.0,
        raw: Any = None,
    ) -> None:
        self.name = name  # relative, normal, by slashes
        self.type = type
        self.executable = executable
        self.target = ""  # of a link: its text; of a hard link: a member's name
        self.size = size
        self.mtime = mtime
        self.raw = raw  # a zip's own record


class Listing:
    def __init__(self, path: str) -> None:
        self.path = path
        self.members: Dict[str, Member] = {}
        self.links_out: List[str] = []

    @property
    def size(self) -> int:
        """Bytes once unpacked."""
        return sum(member.size for member in self.members.values())


class MemberCheck:
    """Collects an archive's members, and the problems that they have."""

    def __init__(self, path: str, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._found = Listing(path)
        self._problems: List[str] = []
        self._more = 0  # problems: of a million only some are kept
        self._members = 0
        self._size = 0
        self._names = 0
        self._folders: Set[str] = set()  # that members lie in
        self._steps = 0  # taken to follow links

    def refuse(self, member: Member, why: str) -> None:
        """Count a member that cannot be unpacked, and report why."""
        self._count(member)
        self._report(f"{shown(member.name)}: {why}")

    def add(self, member: Member) -> bool:
        """Add a member; returns whether it may be written, as far as is known now.

        The later member of a name wins, as tar means it. :class:`LimitExceeded` beyond the limits.
        """
        self._count(member)
        why = _why_bad_name(member.name) or _why_bad_target(member)
        if why:
            self._report(f"{shown(member.name)}: {why}")
            return False
        member.name = posixpath.normpath(member.name)
        if not 0 < member.mtime < _LATEST:
            member.mtime = 0.0
        if member.name == ".":
            return False
        if member.type == "hardlink":
            member.target = posixpath.normpath(member.target)
        older = self._found.members.pop(member.name, None)
        if (
            older is not None
            and "folder" in (older.type, member.type)
            and older.type != member.type
        ):
            self._report(f"{shown(member.name)}: is a folder and something else, too")
        self._found.members[member.name] = member
        for above in _above(member.name):
            if above in self._folders:
                break
            self._folders.add(above)
        if len(self._folders) > self._limits.members:
            raise LimitExceeded(f"has more than {self._limits.members} folders (see {MEMBERS_KEY})")
        return True

    def listing(self) -> Listing:
        """The archive, checked whole; raises :class:`ArchiveError`."""
        hard_links: Dict[str, int] = {}
        for member in self._found.members.values():
            if member.type != "folder" and member.name in self._folders:
                self._report(f"{shown(member.name)}: is no folder, yet other entries lie below it")
            if member.type == "hardlink":
                count = hard_links[member.target] = hard_links.get(member.target, 0) + 1
                self._hard_link(member, count)
            elif member.type == "link":
                self._link(member)
        if self._problems:
            more = [f"and {self._more} more such entries"] if self._more else []
            raise ArchiveError(self._problems + more)
        return self._found

    def _count(self, member: Member) -> None:
        self._members += 1
        self._size += member.size
        self._names += len(member.name) + len(member.target)
        if self._members > self._limits.members:
            raise LimitExceeded(f"has more than {self._limits.members} members (see {MEMBERS_KEY})")
        if self._size > self._limits.size:
            gigabytes = self._limits.size / (1 << 30)
            raise LimitExceeded(f"its files take more than {gigabytes:.3g} GB (see {SIZE_KEY})")
        if self._names > _LONGEST_NAME + self._limits.members * _NAME_BYTES:
            raise LimitExceeded(f"its names take more than {_NAME_BYTES} bytes for each member")

    def _hard_link(self, member: Member, count: int) -> None:
        target = self._found.members.get(member.target)
        if target is None or target.type != "file":
            self._report(
                f"{shown(member.name)}: is a hard link to {member.target!r}, "
                "which is not a file of the archive"
            )
        elif count == _MOST_HARD_LINKS + 1:
            self._report(f"{shown(member.target)}: has more than {_MOST_HARD_LINKS} hard links")

    def _link(self, member: Member) -> None:
        if posixpath.isabs(member.target):
            self._found.links_out.append(f"{shown(member.name)} -> {shown(member.target)}")
        elif self._climbs(member):
            self._report(
                f"{shown(member.name)}: is a link out of the archive (to {shown(member.target)})"
            )

    def _climbs(self, link: Member) -> bool:
        """Whether a relative link leads out of the archive, by way of its other links, too."""
        members = self._found.members
        here = link.name.split("/")[:-1]
        todo = link.target.split("/")[::-1]
        self._steps += len(todo)
        followed = 0
        while todo:
            if self._steps > max(_LEAST_STEPS, _STEPS * self._limits.members):
                raise LimitExceeded("its links lead through too many folders and other links")
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if not here:
                    return True
                here.pop()
                continue
            here.append(part)
            through = members.get("/".join(here)) if todo and len(here) <= _DEEPEST else None
            if through is not None and through.type == "link":
                followed += 1
                if posixpath.isabs(through.target) or followed > _LOOPING:
                    return False  # reported for that link; or it leads nowhere
                here.pop()
                parts = through.target.split("/")[::-1]
                todo += parts
                self._steps += len(parts)
        return False

    def _report(self, problem: str) -> None:
        if len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(problem)
        else:
            self._more += 1


def top_folders(found: Listing) -> Set[str]:
    """The names at the archive's top."""
    return {name.split("/", 1)[0] for name in found.members}


def shown(name: str) -> str:
    """A name for a message: short, without control characters."""
    name = name if len(name) <= 200 else name[:200] + "..."
    return name if name.isprintable() else ascii(name)


def _why_bad_name(name: str) -> str:
    if not name or "\0" in name:
        return "is no name"
    if name.startswith("/"):
        return "is an absolute path, which would be written outside the folder"
    parts = name.split("/")
    if ".." in parts:
        return "holds '..', which could be written outside the folder"
    try:
        sizes = [len(os.fsencode(part)) for part in parts]
    except UnicodeEncodeError:
        return "cannot be the name of a file"
    if max(sizes) > _LONGEST_PART or sum(sizes) + len(sizes) > _LONGEST_NAME:
        return f"is too long ({_LONGEST_NAME} bytes at most, {_LONGEST_PART} between slashes)"
    if len(parts) > _DEEPEST:
        return f"lies more than {_DEEPEST} folders deep"
    return ""


def _why_bad_target(member: Member) -> str:
    if member.type not in ("link", "hardlink"):
        return ""
    try:
        size = len(os.fsencode(member.target))
    except UnicodeEncodeError:
        return "is a link to what cannot be the name of a file"
    if not size or "\0" in member.target:
        return "is a link to nothing"
    if size > LONGEST_TARGET:
        return f"is a link to a name of more than {LONGEST_TARGET} bytes"
    return ""


def _above(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name

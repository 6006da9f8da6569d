"""The names of ``.jhist`` files: what they say of a job. Pure."""

from __future__ import annotations

import re
from typing import Iterable, NamedTuple, Optional

from tony_core.files.location import masked

ENDING = ".jhist"
IN_PROGRESS = ".inprogress"
#: Milliseconds of an epoch have 13 digits until the year 2286.
_NAME = re.compile(
    r"(?P<app_id>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<started>[0-9]{1,15})-(?:(?P<ended>[0-9]{1,15})-)?"
    r"(?P<user>.{0,200}?)(?:-(?P<status>[A-Z_]{1,40}))?\.jhist(?P<running>\.inprogress)?",
    re.DOTALL,
)
_NOT_PLAIN = re.compile(r"[^a-z0-9_]")
#: Characters of a user's name that a file's name has: file systems allow 255 bytes for it all.
MOST_OF_USER = 100


class JhistName(NamedTuple):
    """What the name of a ``.jhist`` file says; times are milliseconds since the epoch."""

    app_id: str
    started_ms: int
    ended_ms: Optional[int] = None
    user: str = ""
    status: str = ""  # SUCCEEDED, FAILED, KILLED; empty while it runs

    @property
    def is_running(self) -> bool:
        return self.ended_ms is None

    def __str__(self) -> str:
        """The file's name. The user's is one that the JVM's reader can take apart again."""
        user = _NOT_PLAIN.sub("_", self.user.lower())[:MOST_OF_USER] or "_"
        app_id = self.app_id.replace("-", "_")
        if self.ended_ms is None:
            return f"{app_id}-{self.started_ms}-{user}{ENDING}{IN_PROGRESS}"
        return f"{app_id}-{self.started_ms}-{self.ended_ms}-{user}-{self.status}{ENDING}"


def parse_name(name: str) -> Optional[JhistName]:
    """What a file's name says; None where it is none of a ``.jhist`` file."""
    found = _NAME.fullmatch(name) if len(name) <= 600 else None
    if found is None:
        return None
    running, ended = found["running"] is not None, found["ended"]
    if running or ended is None or found["status"] is None:
        if not running:
            return None
        user = found["user"] if ended is None else f"{ended}-{found['user']}"
        if found["status"] is not None:
            user += f"-{found['status']}"
        return JhistName(found["app_id"], int(found["started"]), None, user)
    return JhistName(
        found["app_id"], int(found["started"]), int(ended), found["user"], found["status"]
    )


def newest(names: Iterable[str], app_id: str) -> Optional[str]:
    """The file of the job's last attempt; among equals the one that has ended."""
    best: Optional[str] = None
    rank = (-1, False)
    for name in names:
        found = parse_name(name)
        if found is None or found.app_id != app_id:
            continue
        its = (found.started_ms, not found.is_running)
        if its > rank:
            best, rank = name, its
    return best


class UnusableRoot(ValueError):
    """A place that cannot be used for these files; the message says why."""


def check_root(root: str) -> str:
    """The place, as it is used; raises :class:`UnusableRoot`."""
    if ENDING.strip(".") in root:
        raise UnusableRoot(
            f"{masked(root)}: its path may not contain 'jhist', for the JVM TonY's reader takes"
            " every file with that word in its path for a .jhist file; choose another folder"
        )
    return root.rstrip("/") or root

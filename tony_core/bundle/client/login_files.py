"""Keeps the files that a client logs in by out of what a job takes along.

A keytab or a ticket cache in the job's folder would make everyone who reads that folder the user
that they are of, and a service's would make a job's user the service. The login's own files are
recognized by their identity (so by any path, link or hard link) and their content (a copy); others,
where the caller wants none at all, by the form of such files.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, Iterable, NamedTuple, Tuple

from tony_core.bundle.digests import Stamp
from tony_core.hadoop.kerberos.keytab import holds_keys
from tony_core.hadoop.kerberos.ticket_cache import holds_tickets

LARGEST = 1 << 20
"""A file of more bytes is looked at no further, unless it is the login's own: that is data."""

_KINDS: Dict[bytes, Tuple[str, Callable[[bytes], bool]]] = {
    b"\x05\x02": ("a keytab", holds_keys),
    b"\x05\x03": ("a ticket cache", holds_tickets),
    b"\x05\x04": ("a ticket cache", holds_tickets),
}
"""By its first two bytes, what a file may be, and whether it is: damage behind the first entry
does not keep Kerberos' library from using that."""


class _Held(NamedTuple):
    path: str
    stamp: Stamp
    content: bytes


class LoginFiles:
    """The files that no job takes along.

    :param paths: of the login's own files; those that do not exist are none.
    :param refuse_all: whether any other keytab or ticket cache is refused, too.
    """

    def __init__(self, paths: Iterable[str] = (), refuse_all: bool = False) -> None:
        self._held: Tuple[_Held, ...] = tuple(_read(path) for path in paths if os.path.isfile(path))
        self._refuse_all = refuse_all

    def find_problem(self, path: str, stamp: Stamp) -> str:
        """Why a job cannot take a file along; empty if it can. OSError if it cannot be read."""
        identity = (stamp.device, stamp.inode)
        for held in self._held:
            is_same = identity == (held.stamp.device, held.stamp.inode)
            if is_same or (stamp.size == held.stamp.size and _content(path) == held.content):
                return (
                    f"is the file by which this client logs in ({held.path}), and no job takes"
                    " that along: remove it from the job's files"
                )
        found = find_kind(path) if self._refuse_all and stamp.size <= LARGEST else ""
        if found:
            return (
                f"is {found} of this machine, which a job cannot take along from here: store one"
                " for the job itself on HDFS, readable by the job's user alone, and name it by its"
                " hdfs:// location"
            )
        return ""


def _read(path: str) -> _Held:
    return _Held(path, Stamp.of(os.stat(path)), _content(path))


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(LARGEST)


def find_kind(path: str) -> str:
    """``a keytab`` or ``a ticket cache``; empty for other files. OSError if it cannot be read."""
    with open(path, "rb") as file:
        beginning = file.read(2)
        if beginning not in _KINDS:
            return ""
        kind, holds = _KINDS[beginning]
        return kind if holds(beginning + file.read(LARGEST)) else ""

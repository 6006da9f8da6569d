"""The tickets in a cache of the type FILE or DIR: when they end, and whether they can be renewed.

The library does not say until when a ticket may be renewed. Pure, but for :func:`read_cache` and
:func:`find_owner_problem`; keys and the tickets themselves are skipped.

A file (versions 5.3 and 5.4, big endian) is ``05 03`` or ``05 04``; with 5.4 a header after its
length of two bytes; the owner; then credentials: client, server, key, four times (of the login,
start, end, renewable until), a byte, flags, addresses, authorization data, two tickets. A principal
is its type, the number of components, the realm and the components.
"""

from __future__ import annotations

import os
import struct
from typing import Iterator, List, NamedTuple, Optional, Tuple

RENEWABLE = 0x00800000
_VERSIONS = (b"\x05\x03", b"\x05\x04")
_TGS = "krbtgt"
_CONFIGURATION = "X-CACHECONF:"  # the library's own notes, as credentials of this realm


class NoCache(ValueError):
    """The bytes are not a ticket cache."""


class Ticket(NamedTuple):
    """A ticket's times, in seconds since 1970."""

    server: str
    start: int
    end: int
    renewable_until: int = 0  # 0: it cannot be renewed


class TicketCache(NamedTuple):
    """The owner of a cache, and the tickets in it."""

    principal: str
    tickets: Tuple[Ticket, ...] = ()

    @property
    def initial(self) -> Optional[Ticket]:
        """The ticket for the owner's own realm, from which all others come."""
        realm = self.principal.rpartition("@")[2]
        wanted = f"{_TGS}/{realm}@{realm}"
        found = [ticket for ticket in self.tickets if ticket.server == wanted]
        return max(found, key=lambda ticket: ticket.end) if found else None


def read_cache(name: str) -> Optional[TicketCache]:
    """The cache of a name (``FILE:``, ``DIR:``, a path); None where only the library can read it.

    Raises OSError or :class:`NoCache`.
    """
    paths = list(cache_files(name))
    if not paths:
        return None
    with open(paths[-1], "rb") as file:
        return parse_cache(file.read())


def find_owner_problem(cache: str) -> str:
    """Why a cache at the default place is not used; empty if it is this user's.

    In /tmp, where it is by default, another user can put theirs before the first ``kinit``: what
    is submitted then would be theirs, with all that it holds.
    """
    try:
        for path in cache_files(cache):
            for status in (os.lstat, os.stat):
                owner = status(path).st_uid
                if owner not in (0, os.getuid(), os.geteuid()):
                    return (
                        f"the ticket cache {path} is another user's (uid {owner}): ask the"
                        " administrator to remove it, or name your own by KRB5CCNAME"
                    )
    except (OSError, ValueError):
        pass  # the login says what is wrong
    return ""


def cache_files(name: str) -> Iterator[str]:
    """The paths of a cache: a file, or a folder and its current file; none of another type."""
    kind, colon, rest = name.partition(":")
    if not colon or os.sep in kind:
        yield name
    elif kind == "FILE":
        yield rest
    elif kind == "DIR":
        if rest.startswith(":"):
            yield os.path.dirname(rest[1:])
            yield rest[1:]
        else:
            yield rest
            yield from _current(rest)


def _current(folder: str) -> Iterator[str]:
    """The file that names the current cache of a folder, where there is one, and that cache."""
    primary = os.path.join(folder, "primary")
    try:
        with open(primary, encoding="ascii") as file:
            name = file.read().strip()
        yield primary
    except FileNotFoundError:
        name = "tkt"
    yield os.path.join(folder, name)


def parse_cache(data: bytes) -> TicketCache:
    """The content of a cache file; raises :class:`NoCache`."""
    reader = _Reader(data, 2)
    try:
        owner = _read_owner(reader, data)
        tickets: List[Ticket] = []
        while reader.more:
            ticket = reader.ticket()
            if _CONFIGURATION not in ticket.server:
                tickets.append(ticket)
    except (struct.error, UnicodeDecodeError):
        raise NoCache("it is a damaged ticket cache") from None
    return TicketCache(owner, tuple(tickets))


def holds_tickets(data: bytes) -> bool:
    """Whether it is a ticket cache with at least one entry; what follows that may be damaged."""
    reader = _Reader(data, 2)
    try:
        _read_owner(reader, data)
        reader.ticket()
    except (NoCache, struct.error, UnicodeDecodeError):
        return False
    return True


def _read_owner(reader: _Reader, data: bytes) -> str:
    if data[:2] not in _VERSIONS:
        raise NoCache("it is not a ticket cache")
    if data[1] == 4:
        reader.skip(reader.number(">H"))
    return reader.principal()


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    @property
    def more(self) -> bool:
        return self._at < len(self._data)

    def number(self, form: str = ">I") -> int:
        (found,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(found)

    def skip(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise struct.error
        return self._data[start : self._at]

    def block(self) -> bytes:
        return self.skip(self.number())

    def principal(self) -> str:
        self.number()  # its type
        count = self.number()
        if count > len(self._data):
            raise struct.error
        realm = self.block().decode()
        return f"{'/'.join(self.block().decode() for _ in range(count))}@{realm}"

    def ticket(self) -> Ticket:
        self.principal()
        server = self.principal()
        self.number(">H")
        self.block()
        login, start, end, renewable = (self.number() for _ in range(4))
        self.skip(1)
        flags = self.number()
        for _ in range(2):  # addresses, authorization data
            for _ in range(self.number()):
                self.number(">H")
                self.block()
        self.block()
        self.block()
        return Ticket(server, start or login, end, renewable if flags & RENEWABLE else 0)

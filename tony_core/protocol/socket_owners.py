"""Which user of this machine owns a TCP socket: the other end of a connection, or a listener.

Theory of operation
===================

The kernel is asked over netlink (sock_diag): for one connection by its two addresses, which takes
the same time however many connections there are; or for what listens at one port, for which it
walks its listeners, not its connections. ``/proc/net/tcp`` is no substitute: any user can fill it
with closed connections until reading it takes a second.

A reply counts only if it comes from the kernel, carries the number of the request, and names
the socket that was asked for in a state that carries data: the kernel falls back to a listener
at the same address, and a connection whose process has closed it belongs to no process any more (it
would be shown as root's).

Where the kernel gives no answer (no descriptor left, netlink forbidden, no sock_diag in this
kernel), :class:`Unavailable` is raised: the caller must refuse what it wanted to allow. So that a
lack of descriptors does not get that far, one socket is opened early and kept.

Python 3.8.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

Place = Tuple[bytes, int]

ANSWER_S = 1.0  # the kernel answers while the question is sent; this is for one that does not
MAX_LISTENERS = 4096  # at one port
_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_V6_ONLY = 11  # INET_DIAG_SKV6ONLY
_LISTEN = 10
_OPEN = (1, 4, 5, 8)  # established, fin-wait-1, fin-wait-2, close-wait
_ANY_STATE = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_QUESTION = struct.Struct("=BBBxI")  # family, protocol, extensions, states
_SOCKET = struct.Struct("!HH16s16s")  # ports and addresses, from its own side
_ANY_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # interface, cookie
_REPLY = struct.Struct("=BBBB48sIIIII")  # family, state, -, -, socket, -, -, -, uid, inode
_MAPPED = b"\0" * 10 + b"\xff\xff"
_ANY_V4, _ANY_V6 = b"\0" * 4, b"\0" * 16


class Unavailable(Exception):
    """The kernel does not tell who owns a socket; the text says why."""


class SocketOwner(NamedTuple):
    """Who owns a socket."""

    uid: int
    inode: int  # as in /proc/PID/fd: socket:[inode]


class _Found(NamedTuple):
    """A socket as the kernel describes it."""

    state: int
    here: Place
    there: Place
    v6_only: bool
    owner: SocketOwner


class SocketTable:
    """The kernel's table of this machine's TCP sockets; for one thread."""

    def __init__(self) -> None:
        self._sock: Optional[socket.socket] = None
        self._sequence = 0
        try:
            self._open()
        except Unavailable:
            pass  # the first request tries again, and raises

    def close(self) -> None:
        """Close the descriptor."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def owner_of_peer(self, sock: socket.socket) -> Optional[SocketOwner]:
        """The owner of the other end of a connection within this machine.

        None when no process holds that end any more. Raises :class:`Unavailable`.
        """
        try:
            here, there = sock.getsockname(), sock.getpeername()
        except OSError:
            return None  # its peer has closed it
        return self.owner_of_end((there[0], there[1]), (here[0], here[1]))

    def owner_of_end(self, end: Tuple[str, int], other: Tuple[str, int]) -> Optional[SocketOwner]:
        """The owner of one end of a connection, by the addresses and ports of both.

        None when no process of this machine holds it. Raises :class:`Unavailable`, and ValueError
        for a host that is not numeric.
        """
        here, there = (packed(end[0]), end[1]), (packed(other[0]), other[1])
        for found in self._query(_family_of(here[0]), here, there):
            if found.state in _OPEN and (found.here, found.there) == (here, there):
                return found.owner if found.owner.inode else None
        return None

    def listeners(self, host: str, port: int) -> List[SocketOwner]:
        """The owners of all sockets that may be given a connection to this address.

        Several listeners can share a port; one that is bound to all addresses counts. Empty when
        nothing listens. ``host`` is numeric (ValueError), or empty for every address of the
        machine. Raises :class:`Unavailable`.
        """
        wanted = packed(host) if host else b""
        owners = []
        for family in (socket.AF_INET, socket.AF_INET6):
            for found in self._query(family, (_ANY_V4, port)):
                address, at = found.here
                if found.state != _LISTEN or at != port:
                    continue
                everywhere = address == _ANY_V6 and (len(wanted) == 16 or not found.v6_only)
                everywhere = everywhere or (address == _ANY_V4 and len(wanted) == 4)
                if not wanted or address == wanted or everywhere:
                    owners.append(found.owner)
        return owners

    # ------------------------------------------------------------------ netlink

    def _open(self) -> socket.socket:
        if self._sock is None:
            try:
                kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
                self._sock = socket.socket(socket.AF_NETLINK, kind, _SOCK_DIAG)
                self._sock.bind((0, 0))
            except OSError as error:
                self.close()
                raise Unavailable(f"netlink (sock_diag): {_words(error)}") from None
            # Of a kernel without it, an exact question is answered as if there were no such socket.
            self._query(socket.AF_INET, (_ANY_V4, 1))
        return self._sock

    def _query(self, family: int, here: Place, there: Optional[Place] = None) -> List[_Found]:
        """The connection from ``here`` to ``there``; without ``there``, listeners at the port."""
        sock = self._open()
        self._sequence = self._sequence % 0xFFFFFFFF + 1
        flags, states = (_REQUEST, _ANY_STATE) if there else (_REQUEST | _DUMP, 1 << _LISTEN)
        far, far_port = there or (b"", 0)
        body = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, states)
        body += _SOCKET.pack(here[1], far_port, here[0], far) + _ANY_COOKIE
        head = _HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, flags, self._sequence, 0)
        try:
            return self._exchange(sock, head + body, there is not None)
        except OSError as error:
            if there and error.errno == errno.ENOENT:
                return []
            self.close()  # what is still to come would be taken for the next answer
            raise Unavailable(f"netlink (sock_diag): {_words(error)}") from None
        except (ValueError, struct.error):
            self.close()
            raise Unavailable("netlink (sock_diag): the answer cannot be parsed") from None

    def _exchange(self, sock: socket.socket, question: bytes, is_exact: bool) -> List[_Found]:
        found: List[_Found] = []
        end = time.monotonic() + ANSWER_S
        sock.settimeout(ANSWER_S)
        sock.sendto(question, (0, 0))
        while True:
            left = end - time.monotonic()
            if left <= 0 or len(found) > MAX_LISTENERS:
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            sock.settimeout(left)
            data, sender = sock.recvfrom(65536)
            if sender[0] != 0:
                continue  # not the kernel's
            for kind, sequence, body in _messages(data):
                if sequence != self._sequence:
                    continue
                if kind in (_ERROR, _DONE):
                    code = struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
                    if code:
                        raise OSError(abs(code), os.strerror(abs(code)))
                    return found
                if kind == _BY_FAMILY:
                    found.append(_read(body))
                    if is_exact:
                        return found


def packed(host: str) -> bytes:
    """A numeric address in bytes, four for one of version 4 in either notation; ValueError."""
    host = host.partition("%")[0]
    try:
        if ":" not in host:
            return socket.inet_pton(socket.AF_INET, host)
        return _plain(socket.inet_pton(socket.AF_INET6, host))
    except (OSError, UnicodeError):
        raise ValueError(f"{host!r} is not a numeric address") from None


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback address, or ``localhost``: only this machine reaches it."""
    try:
        address = packed(host)
    except ValueError:
        return host == "localhost"
    return address[0] == 127 if len(address) == 4 else address == b"\0" * 15 + b"\1"


def _plain(address: bytes) -> bytes:
    return address[12:] if address.startswith(_MAPPED) else address


def _family_of(address: bytes) -> int:
    return socket.AF_INET if len(address) == 4 else socket.AF_INET6


def _messages(data: bytes) -> Iterator[Tuple[int, int, bytes]]:
    """(type, sequence, body) of each message of a datagram."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, _, sequence, _ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size or at + length > len(data):
            raise ValueError("a message that is longer than what carries it")
        yield kind, sequence, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def _read(body: bytes) -> _Found:
    family, state, _, _, identity, _, _, _, uid, inode = _REPLY.unpack_from(body)
    here_port, there_port, here, there = _SOCKET.unpack_from(identity)
    if family == socket.AF_INET:
        here, there = here[:4], there[:4]
    attributes = _attributes(body[_REPLY.size :])
    v6_only = attributes.get(_V6_ONLY, b"\0")[:1] == b"\1"
    return _Found(
        state,
        (_plain(here), here_port),
        (_plain(there), there_port),
        v6_only,
        SocketOwner(uid, inode),
    )


def _attributes(data: bytes) -> Dict[int, bytes]:
    found = {}
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            break
        found[kind] = data[at + 4 : at + length]
        at += (length + 3) & ~3
    return found


def _words(error: OSError) -> str:
    if isinstance(error, (BlockingIOError, TimeoutError)) or error.errno is None:
        return f"no answer within {ANSWER_S:g} s"
    return error.strerror or str(error)

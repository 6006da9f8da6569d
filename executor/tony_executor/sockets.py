"""Which user's sockets listen at a port, or stand at the other end of a connection.

The kernel is asked by netlink (sock_diag): for the listeners at one port, or for exactly one
connection, so that the answer costs the same on a node with 100,000 connections. A kernel
without that has tables in /proc.
"""

from __future__ import annotations

import os
import sys

from tony_core.light import TYPE_CHECKING, Record, socket

if TYPE_CHECKING:
    from typing import Iterable, Iterator, List, Optional, Set, Tuple


_SOCK_DIAG = 4  # the netlink family, and in it:
_BY_FAMILY = 20
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_LISTEN = 10
_NO_COOKIE = b"\xff" * 8
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ANSWER_BYTES = 72  # struct inet_diag_msg


class Unknown(Exception):
    """The system does not say whose sockets they are."""


class Owner(Record):
    """A socket's user, and its inode: 0 when no process has it any more."""

    uid: int
    inode: int


def listeners(port: int) -> List[Owner]:
    """All sockets that listen at the TCP port, on any address; raises :class:`Unknown`."""
    try:
        found: List[Owner] = []
        for family in (socket.AF_INET, socket.AF_INET6):
            request = _request(family, 1 << _LISTEN, b"", port, b"", 0)
            found += [owner for at, owner in _ask(request, _REQUEST | _DUMP) if at == port]
        return found
    except OSError:
        suffix = f":{port:04X}"
        return [o for here, _, state, o in _rows() if state == _LISTEN and here.endswith(suffix)]


def owner_of_peer(sock: socket.socket) -> Optional[Owner]:
    """The socket at the other end of an IPv4 connection within this machine, None if closed."""
    (here, port), (there, their_port) = sock.getsockname(), sock.getpeername()
    mine, theirs = socket.inet_aton(here), socket.inet_aton(there)
    request = _request(socket.AF_INET, 0xFFFFFFFF, theirs, their_port, mine, port)
    try:
        found = [owner for _, owner in _ask(request, _REQUEST)]
    except OSError:  # none, or no sock_diag: one error number means both
        wanted = (_text(theirs, their_port), _text(mine, port))
        found = [owner for a, b, _, owner in _rows() if (a, b) == wanted]
    return next((owner for owner in found if owner.inode), None)


def are_open_in(inodes: Set[int], pids: Iterable[int]) -> bool:
    """Whether every one of these sockets is open in one of these processes."""
    left = {f"socket:[{inode}]" for inode in inodes}
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for name in names:
            if not left:
                return True
            try:
                left.discard(os.readlink(f"/proc/{pid}/fd/{name}"))
            except OSError:
                continue
    return not left


def _request(
    family: int, states: int, host: bytes, port: int, peer: bytes, peer_port: int
) -> bytes:
    head = bytes((family, socket.IPPROTO_TCP, 0, 0)) + _native(states)
    ports = port.to_bytes(2, "big") + peer_port.to_bytes(2, "big")
    return head + ports + host.ljust(16, b"\0") + peer.ljust(16, b"\0") + _native(0) + _NO_COOKIE


def _ask(request: bytes, flags: int) -> Iterator[Tuple[int, Owner]]:
    """(local port, owner) of each socket in the answer."""
    head = _native(16 + len(request)) + _native(_BY_FAMILY | flags << 16)
    if sys.byteorder == "big":
        head = head[:4] + _BY_FAMILY.to_bytes(2, "big") + flags.to_bytes(2, "big")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as sock:
        sock.bind((0, 0))
        sock.setblocking(False)  # the kernel answers within send()
        sock.send(head + _native(1) + _native(0) + request)
        while True:
            data = sock.recv(65536)
            while len(data) >= 16:
                size, kind = _number(data, 0), _number(data, 4, 2)
                if kind == _DONE:
                    return
                if kind == _ERROR or size < 16 + _ANSWER_BYTES:
                    raise OSError("refused")
                owner = Owner(_number(data, 80), _number(data, 84))
                yield int.from_bytes(data[20:22], "big"), owner
                data = data[size + 3 & ~3 :]
            if not flags & _DUMP:
                return


def _rows() -> Iterator[Tuple[str, str, int, Owner]]:
    """(local address, remote address, state, owner) of what the tables list."""
    read = False
    for path in _TABLES:
        try:
            with open(path, "rb") as table:
                lines = table.read().decode("ascii", "replace").splitlines()[1:]
        except OSError:
            continue
        read = True
        for line in lines:
            words = line.split()
            if len(words) > 9:
                yield words[1], words[2], int(words[3], 16), Owner(int(words[7]), int(words[9]))
    if not read:
        raise Unknown(f"neither sock_diag nor {_TABLES[0]} can be used")


def _text(host: bytes, port: int) -> str:
    return f"{int.from_bytes(host, sys.byteorder):08X}:{port:04X}"


def _native(number: int) -> bytes:
    return number.to_bytes(4, sys.byteorder)


def _number(data: bytes, at: int, size: int = 4) -> int:
    return int.from_bytes(data[at : at + size], sys.byteorder)

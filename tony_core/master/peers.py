"""Which user is at the other end of a connection within this machine.

The page of a job on the embedded scheduler listens on the loopback address, which every user of
the machine can reach. The kernel's table of TCP connections says whose socket the other end
is; a socket that its process has closed is nobody's any more (it would be shown as root's).
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from typing import Iterator, List, Optional, Tuple, Union

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
READINGS = 3  # the table changes while it is read: a row may be passed over once
_Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


class NoTable(Exception):
    """This system has no table of its connections."""


def within_machine(host: str) -> bool:
    """Whether an address is a loopback one."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def owner_of(sock: socket.socket) -> Optional[int]:
    """The uid at the other end of a connection; None when it is nobody's."""
    try:
        here, there = sock.getsockname()[:2], sock.getpeername()[:2]
    except OSError:
        return None  # it has hung up
    rows = [f"{b} {a}" for a, b in zip(_texts(here), _texts(there))]  # as seen from there
    for _ in range(READINGS):
        for uid, inode in _found(rows):
            if inode:
                return uid
    return None


def _found(wanted: List[str]) -> Iterator[Tuple[int, int]]:
    """(uid, inode) of the rows with these addresses."""
    read = 0
    for path in TABLES:
        try:
            with open(path, encoding="ascii") as table:
                lines = table.readlines()[1:]
        except OSError:
            continue
        read += 1
        for line in lines:
            words = line.split()
            if len(words) > 9 and f"{words[1]} {words[2]}" in wanted:
                yield int(words[7]), int(words[9])
    if not read:
        raise NoTable(f"{TABLES[0]} cannot be read")


def _texts(address: Tuple[str, int]) -> List[str]:
    """An address as the tables write it: 32-bit words in this machine's byte order."""
    host = ipaddress.ip_address(address[0].partition("%")[0])
    forms: List[_Address] = [host]
    if isinstance(host, ipaddress.IPv4Address):
        forms.append(ipaddress.IPv6Address(f"::ffff:{host}"))  # a socket of both families
    elif host.ipv4_mapped is not None:
        forms.insert(0, host.ipv4_mapped)
    return [f"{_words(form.packed)}:{address[1]:04X}" for form in forms]


def _words(packed: bytes) -> str:
    parts = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    return "".join(f"{int.from_bytes(part, sys.byteorder):08X}" for part in parts)

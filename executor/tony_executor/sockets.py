"""Which sockets listen at a port of this node, and whether a process has them open.

The kernel is asked (``tony_core/protocol/peers.py``); one without sock_diag has tables in /proc.
"""

from __future__ import annotations

import os
from typing import Iterable, Iterator, List, Optional, Set, Tuple

from tony_core.protocol.peers import Owner, SocketTable, Unavailable

_LISTEN = "0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


class Unknown(Exception):
    """The system does not say whose sockets they are."""


def listeners(port: int) -> List[Owner]:
    """All sockets that listen at the TCP port, on any address; raises :class:`Unknown`."""
    table = SocketTable()
    try:
        return table.listeners("", port)
    except Unavailable:
        suffix = f":{port:04X}"
        return [own for at, state, own in _rows() if state == _LISTEN and at.endswith(suffix)]
    finally:
        table.close()


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


def are_open_before(inodes: Set[int], program: int) -> bool:
    """Whether one of these sockets is open in a process that began before this one."""
    began = _began(str(program))
    if not inodes or began is None:
        return False
    older = [int(e) for e in os.listdir("/proc") if e.isdigit() and (_began(e) or began) < began]
    return any(are_open_in({inode}, older) for inode in inodes)


def _began(pid: str) -> Optional[int]:
    """When the process began, in ticks since the system did."""
    try:
        with open(f"/proc/{pid}/stat", "rb", 0) as file:
            return int(file.read(1024).rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _rows() -> Iterator[Tuple[str, str, Owner]]:
    """(local address, state, owner) of what the tables list."""
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
                yield words[1], words[3], Owner(int(words[7]), int(words[9]))
    if not read:
        raise Unknown(f"neither sock_diag nor {_TABLES[0]} can be used")

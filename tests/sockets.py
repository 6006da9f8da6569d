"""Which sockets a process has, as the kernel's tables say."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Iterable, List, Set

_LISTEN = "0A"


def listening_ports(pids: Iterable[int]) -> List[int]:
    """The TCP ports at which these processes listen."""
    inodes: Set[str] = set()
    for pid in pids:
        inodes |= _sockets_of(pid)
    found = set()
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net", table)
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTEN and words[9] in inodes:
                found.add(int(words[1].rpartition(":")[2], 16))
    return sorted(found)


def session_of(leader: int) -> List[int]:
    """The processes of a session."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.getsid(int(entry)) == leader:
                    found.append(int(entry))
            except ProcessLookupError:
                pass
    return found


def _sockets_of(pid: int) -> Set[str]:
    found: Set[str] = set()
    folder = f"/proc/{pid}/fd"
    try:
        numbers = os.listdir(folder)
    except OSError:
        return found  # it has gone
    for number in numbers:
        try:
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"{folder}/{number}"))
        except OSError:
            continue
        if match:
            found.add(match.group(1))
    return found

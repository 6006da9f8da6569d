"""Who holds something: a process that can be told dead from any other process.

A pid alone is given again; with the process's start time and the boot it belongs to it is
never the same twice. Where the home folder is shared by several hosts, a process of another
host cannot be asked: its word counts until it is old.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import os
import re
import socket
import time
from typing import Any, Dict, Mapping, NamedTuple, Optional

# How long the word of a process on another host is believed.
FOREIGN_S = 24 * 3600.0


class Owner(NamedTuple):
    """One process, on one boot of one host."""

    pid: int
    start: int  # clock ticks since boot; 0 where the system does not say
    boot: str
    host: str

    @classmethod
    def mine(cls) -> Owner:
        """This process."""
        pid = os.getpid()
        return cls(pid, _start_time(pid) or 0, _boot_id(), _host())

    def alive(self, since: Optional[float] = None) -> bool:
        """Whether it still runs. ``since``: when its word was written, for another host's."""
        if self.host != _host():
            return since is not None and time.time() - since < FOREIGN_S
        if self.boot != _boot_id():
            return False
        if not os.path.isdir("/proc/self"):
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return False
            except PermissionError:
                return True
            return True
        return _start_time(self.pid) == self.start

    def to_json(self) -> Dict[str, Any]:
        """Plain data."""
        return {"pid": self.pid, "start": self.start, "boot": self.boot, "host": self.host}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Owner:
        """The owner that :meth:`to_json` described."""
        return cls(int(data["pid"]), int(data["start"]), str(data["boot"]), str(data["host"]))

    def to_name(self) -> str:
        """As part of a file name; :meth:`from_name` reads it back."""
        return f"{self.pid}_{self.start}_{self.boot}_{self.host}"

    @classmethod
    def from_name(cls, name: str) -> Optional[Owner]:
        """The owner in a file name; None when there is none."""
        match = re.match(r"^(\d+)_(\d+)_([0-9a-f-]*)_([^_/]*)", name)
        if not match:
            return None
        return cls(int(match[1]), int(match[2]), match[3], match[4])


def _start_time(pid: int) -> Optional[int]:
    """When it started, in ticks since boot; None for no such process, or one that has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())

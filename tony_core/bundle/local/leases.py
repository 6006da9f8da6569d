"""Leases: which application uses which objects of the store, and which process took them.

A lease belongs to a submit in progress as long as the submitting process lives, then to
the application until it has ended. It is one small file, replaced atomically.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from typing import Any, List, Mapping, NamedTuple, Optional, Tuple

from tony_core.files.durable import replace_file
from tony_core.files.location import is_app_id

FOREIGN_S = 24 * 3600.0  # how long a process of another host counts as alive


class Owner(NamedTuple):
    """One process, on one boot of one host: any other process can tell whether it is dead.

    A pid is reused; with the process's start time and the boot it never is. Where several hosts
    share the home folder, a process of another host cannot be checked: it counts as alive until
    what it wrote is old.
    """

    pid: int
    start: int  # clock ticks since boot; 0 where the system has none
    boot: str
    host: str

    @classmethod
    def mine(cls) -> Owner:
        pid = os.getpid()
        return cls(pid, _start_time(pid) or 0, _boot_id(), _host())

    def alive(self, since: Optional[float] = None) -> bool:
        """Whether it still runs. ``since``: when it wrote what names it, for another host's."""
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

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Owner:
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


class StoreLease(NamedTuple):
    app_id: str
    owner: Owner  # the process that submits it
    digests: Tuple[str, ...]
    taken: float  # seconds since the epoch; with the owner it identifies this lease
    damage: str = ""  # why the objects that it names are not known


def check_app_id(app_id: str) -> str:
    """The id, which becomes a file name, if it is fit for one."""
    if not is_app_id(app_id):
        raise ValueError(f"not an application id: {app_id!r}")
    return app_id


def write_lease(folder: str, lease: StoreLease) -> None:
    path = os.path.join(folder, check_app_id(lease.app_id) + ".json")
    data = {
        "app_id": lease.app_id,
        "owner": lease.owner._asdict(),
        "digests": lease.digests,
        "taken": lease.taken,
    }
    # Not flushed: a restart of the machine ends the application, and frees what it uses.
    replace_file(path, json.dumps(data).encode(), sync=False)


def remove_lease(folder: str, app_id: str) -> bool:
    """Remove it; False when there was none."""
    try:
        os.unlink(os.path.join(folder, check_app_id(app_id) + ".json"))
    except FileNotFoundError:
        return False
    return True


def read_leases(folder: str) -> List[StoreLease]:
    """Every lease, by application: the file's name is the application's, whatever is in it."""
    found: List[StoreLease] = []
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return found
    for name in names:
        app_id, suffix = os.path.splitext(name)
        if suffix != ".json" or not is_app_id(app_id):
            continue
        try:
            with open(os.path.join(folder, name), "rb") as stream:
                text = stream.read()
        except FileNotFoundError:
            continue  # gone meanwhile: not a lease any more
        found.append(_read(app_id, text))
    return found


def _read(app_id: str, text: bytes) -> StoreLease:
    """A lease as it was written; one without objects, and why, when it cannot be understood."""
    try:
        data = json.loads(text)
        if data["app_id"] != app_id:
            raise ValueError(f"it names another application, {str(data['app_id'])[:100]!r}")
        digests = tuple(str(digest) for digest in data["digests"])
        return StoreLease(app_id, Owner.from_json(data["owner"]), digests, float(data["taken"]))
    except (
        ValueError,
        KeyError,
        TypeError,
        OverflowError,
        AttributeError,
        RecursionError,
    ) as error:
        return StoreLease(app_id, Owner(0, 0, "", ""), (), 0.0, str(error) or type(error).__name__)


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

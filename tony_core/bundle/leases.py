"""Leases: which application uses which objects of the store.

A lease belongs to a submit in progress as long as the submitting process lives, then to
the application until it has ended. It is one small file, replaced atomically.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from typing import List, Tuple

from tony_core.bundle.owner import Owner
from tony_core.dataclass import dataclass
from tony_core.files.durable import replace_file

_APP_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


@dataclass(frozen=True)
class Lease:
    """One application's word that it uses these objects."""

    app_id: str
    owner: Owner  # the process that submits it
    digests: Tuple[str, ...]
    taken: float  # seconds since the epoch; with the owner it tells this lease from any other


def check_app_id(app_id: str) -> str:
    """The id, which becomes a file name, if it is fit for one."""
    if not _APP_ID.match(app_id):
        raise ValueError(f"not an application id: {app_id!r}")
    return app_id


def write_lease(folder: str, lease: Lease) -> None:
    """Write or replace an application's lease."""
    path = os.path.join(folder, check_app_id(lease.app_id) + ".json")
    data = {
        "app_id": lease.app_id,
        "owner": lease.owner.to_json(),
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


def read_leases(folder: str) -> List[Lease]:
    """Every lease, by application."""
    found: List[Lease] = []
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return found
    for name in names:
        if name.startswith(".") or not name.endswith(".json"):
            continue
        # One that goes away while we read is not a lease any more. One that cannot be
        # understood stops a collection: better too much kept than a running job broken.
        with contextlib.suppress(FileNotFoundError):
            with open(os.path.join(folder, name), encoding="utf-8") as stream:
                data = json.load(stream)
            found.append(
                Lease(
                    str(data["app_id"]),
                    Owner.from_json(data["owner"]),
                    tuple(str(digest) for digest in data["digests"]),
                    float(data["taken"]),
                )
            )
    return found

"""Leases: which application uses which objects of the store.

A lease belongs to a submit in progress as long as the submitting process lives, then to
the application until it has ended. It is one small file, replaced atomically.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

import json
import os
from typing import List, NamedTuple, Tuple

from tony_core.bundle.local.holder import Owner
from tony_core.files.durable import replace_file
from tony_core.files.location import is_app_id


class Lease(NamedTuple):
    """One application's word that it uses these objects."""

    app_id: str
    owner: Owner  # the process that submits it
    digests: Tuple[str, ...]
    taken: float  # seconds since the epoch; with the owner it tells this lease from any other
    damage: str = ""  # why the objects that it names are not known


def check_app_id(app_id: str) -> str:
    """The id, which becomes a file name, if it is fit for one."""
    if not is_app_id(app_id):
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
    """Every lease, by application: the file's name says whose it is, whatever is in it."""
    found: List[Lease] = []
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


def _read(app_id: str, text: bytes) -> Lease:
    """A lease as it was written; one without objects, and why, when it cannot be understood."""
    try:
        data = json.loads(text)
        if data["app_id"] != app_id:
            raise ValueError(f"it names another application, {str(data['app_id'])[:100]!r}")
        digests = tuple(str(digest) for digest in data["digests"])
        return Lease(app_id, Owner.from_json(data["owner"]), digests, float(data["taken"]))
    except (
        ValueError,
        KeyError,
        TypeError,
        OverflowError,
        AttributeError,
        RecursionError,
    ) as error:
        return Lease(app_id, Owner(0, 0, "", ""), (), 0.0, str(error) or type(error).__name__)

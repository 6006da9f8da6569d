"""The groups of a user, as this machine knows them. May block: names can come from a network.

Python 3.8.
"""

from __future__ import annotations

import grp
import os
import pwd
from typing import FrozenSet


def groups_of(user: str) -> FrozenSet[str]:
    """A user's groups as this node knows them; none where it does not know him."""
    try:
        ids = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
    except (KeyError, OSError, ValueError):
        return frozenset()
    found = set()
    for number in ids:
        try:
            found.add(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    return frozenset(found)

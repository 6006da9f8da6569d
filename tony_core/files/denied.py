"""What a NameNode says of a refused access: who asked, what for, and whose it is. Pure."""

from __future__ import annotations

import re
from typing import Optional

from tony_core.dataclass import dataclass

_SAID = re.compile(
    r"Permission denied: user=(?P<user>[^,\s]+), access=(?P<access>\w+),"
    r' inode="(?P<path>[^"]+)":(?P<owner>[^:\s]+):[^:\s]+:(?P<mode>[-\w+]+)'
)


@dataclass(frozen=True)
class Denied:
    """One refusal. ``path`` is where it was refused: the thing itself or a folder above it."""

    user: str
    access: str
    path: str
    owner: str
    mode: str


def read(text: str) -> Optional[Denied]:
    """The refusal that a text tells, if it tells one so."""
    found = _SAID.search(text)
    return Denied(**found.groupdict()) if found else None

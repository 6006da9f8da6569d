"""From the name and groups that a login found to a viewer. Pure, but for this machine's groups.

A name is compared exactly: ``Ann`` is not ``ann``. What could be read as something else than a name
in a list of users (a blank, a comma, ``*``, a leading ``%``) is no name.
"""

from __future__ import annotations

import re
import time
from typing import Callable, Dict, FrozenSet, Iterable, Optional, Tuple

from tony_core.portal.access.refusal import Refused
from tony_core.portal.settings import Settings
from tony_core.portal.viewer import Viewer
from tony_core.protocol.user_groups import groups_of

MOST_GROUPS = 5000
GROUPS_S = 300.0  # what this machine knows of a user's groups holds so long
_MOST_KNOWN = 10_000
_LONGEST = 256
_NAME = re.compile(r"[^\s,%*:/\\\"'<>\x00-\x1f\x7f][^\s,*:/\\\"'<>\x00-\x1f\x7f]*")


def find_name_problem(name: str) -> str:
    """Why a text cannot be a viewer's name; empty if it can."""
    if not name:
        return "is empty"
    if len(name) > _LONGEST or not name.isprintable() or not _NAME.fullmatch(name):
        return f"is {name[:80]!r}, which is no name of a user"
    return ""


class Accounts:
    """Makes viewers by the settings."""

    def __init__(
        self,
        settings: Settings,
        look_up: Callable[[str], FrozenSet[str]] = groups_of,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._domain = settings.login.domain.lstrip("@").lower()
        admins = settings.admins
        self._admins = frozenset(name for name in admins if not name.startswith("%"))
        self._admin_groups = frozenset(name[1:] for name in admins if name.startswith("%"))
        self._look_up = look_up
        self._now = now
        self._known: Dict[str, Tuple[float, FrozenSet[str]]] = {}

    def viewer(
        self, name: str, groups: Optional[Iterable[str]] = None, is_admin: bool = False
    ) -> Viewer:
        """The viewer of a login; raises :class:`Refused` for what is no name.

        Without ``groups`` they are looked up on this machine, which may block.
        """
        name = self._without_domain(name)
        problem = find_name_problem(name)
        if problem:
            raise Refused(403, f"the name of the login {problem}")
        found = self._groups_here(name) if groups is None else _clean(groups)
        is_admin = is_admin or name in self._admins or bool(found & self._admin_groups)
        return Viewer(name, found, is_admin)

    def _without_domain(self, name: str) -> str:
        user, at, domain = name.rpartition("@")
        return user if at and self._domain and domain.lower() == self._domain else name

    def _groups_here(self, name: str) -> FrozenSet[str]:
        at, found = self._known.get(name, (-GROUPS_S, frozenset()))
        if name not in self._known or self._now() - at >= GROUPS_S:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = _clean(self._look_up(name))
            self._known[name] = (self._now(), found)
        return found


def _clean(groups: Iterable[str]) -> FrozenSet[str]:
    """Those that can be names of groups."""
    found = set()
    for name in groups:
        if name and len(name) <= _LONGEST and name.isprintable() and name == name.strip():
            found.add(name)
        if len(found) >= MOST_GROUPS:
            break
    return frozenset(found)

"""Who asks, and which jobs he may see. Pure."""

from __future__ import annotations

from typing import FrozenSet, NamedTuple

from tony_core.job.access_list import AccessList


class Viewer(NamedTuple):
    """A person at a browser, as the login found him."""

    name: str
    groups: FrozenSet[str] = frozenset()
    is_admin: bool = False


def readers(owner: str, view_acl: str, is_public: bool = False) -> FrozenSet[str]:
    """Who may see a job: ``user:NAME``, ``group:NAME``, and ``*`` where all may.

    ``view_acl`` is as YARN writes it.
    """
    listed = AccessList.parse(view_acl)
    found = {f"user:{name}" for name in (owner, *listed.users) if name}
    found.update(f"group:{name}" for name in listed.groups)
    return frozenset(found | {"*"} if is_public or listed.is_for_all else found)


def names_of(viewer: Viewer) -> FrozenSet[str]:
    """The entries of :func:`readers` that this viewer meets."""
    user = (f"user:{viewer.name}",) if viewer.name else ()
    return frozenset((*user, "*", *(f"group:{name}" for name in viewer.groups if name)))


def is_listed(viewer: Viewer, acl: str) -> bool:
    """Whether a list of users and groups, as :func:`readers` takes it, has the viewer in it."""
    return bool(names_of(viewer) & readers("", acl))


def may_view(viewer: Viewer, allowed: FrozenSet[str]) -> bool:
    """Whether a viewer may see a job with these :func:`readers`."""
    return viewer.is_admin or bool(names_of(viewer) & allowed)

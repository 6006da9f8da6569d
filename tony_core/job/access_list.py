"""Who may see or change a job: Hadoop's lists of users and groups."""

from __future__ import annotations

from typing import FrozenSet, NamedTuple


class AccessList(NamedTuple):
    """Users and groups, as Hadoop's AccessControlList reads them out of such a text."""

    users: FrozenSet[str] = frozenset()
    groups: FrozenSet[str] = frozenset()
    is_for_all: bool = False

    @classmethod
    def parse(cls, text: str) -> AccessList:
        """Read ``user,user group,group``; all users where one of the two parts is ``*`` alone."""
        parts = text.split(" ", 1)
        if any(part.strip() == "*" for part in parts):
            return cls(is_for_all=True)
        users, groups = (_names(part) for part in (*parts, "")[:2])
        return cls(users, groups)

    def __or__(self, other: AccessList) -> AccessList:
        if self.is_for_all or other.is_for_all:
            return AccessList(is_for_all=True)
        return AccessList(self.users | other.users, self.groups | other.groups)

    def __str__(self) -> str:
        if self.is_for_all:
            return "*"
        return f"{_join(self.users)} {_join(self.groups)}".rstrip()


def _names(text: str) -> FrozenSet[str]:
    names = (name.strip() for name in text.replace("\n", ",").split(","))
    return frozenset(name for name in names if name)


def _join(names: FrozenSet[str]) -> str:
    """A text that is read as these names: one that is called ``*`` is not all of them."""
    text = ",".join(sorted(names))
    return "*," if text == "*" else text

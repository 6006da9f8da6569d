"""The NameNodes of a cluster: which of a pair is active, their state, and failover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict

from tests.cluster.hadoop.web import WebError, bean

if TYPE_CHECKING:
    from tests.cluster.hadoop.cluster import Hadoop

_STATE = "Hadoop:service=NameNode,name=FSNamesystemState"
_STATUS = "Hadoop:service=NameNode,name=NameNodeStatus"
_ADMIN = "org.apache.hadoop.hdfs.tools.DFSHAAdmin"


class NameNodes:
    """One, or a pair without automatic failover."""

    def __init__(self, cluster: Hadoop) -> None:
        self._cluster = cluster

    def active(self) -> str:
        """The active daemon's name; empty if there is none. The only one's without asking."""
        names = self._cluster.names("nn")
        return names[0] if len(names) == 1 else next(filter(self._is_active, names), "")

    def activate(self, name: str) -> None:
        """Make it the active one; an active other one steps down."""
        for other in self._cluster.names("nn"):
            if other != name and self._is_active(other):
                self._cluster.tool(_ADMIN, "-transitionToStandby", other)
        self._cluster.tool(_ADMIN, "-transitionToActive", "--forceactive", name, answer="y\n")

    def fail_over(self) -> str:
        """Make the other one of the pair the active one; its name."""
        active = self.active()
        other = next(name for name in self._cluster.names("nn") if name != active)
        self.activate(other)
        return other

    def state(self) -> Dict[str, Any]:
        """What the active one knows of HDFS; empty if there is none, or it does not say."""
        active = self.active()
        return self._bean(active, _STATE) if active else {}

    def are_in_safe_mode(self) -> bool:
        """Whether HDFS can only be read, as far as a NameNode says it."""
        try:
            state = self._bean(self.active() or "nn0", _STATE)
        except (OSError, WebError):
            return False
        return state.get("FSState") == "safeMode"

    def _is_active(self, name: str) -> bool:
        try:
            return bool(self._bean(name, _STATUS).get("State") == "active")
        except (OSError, WebError):
            return False  # it is down

    def _bean(self, daemon: str, name: str) -> Dict[str, Any]:
        return bean(self._cluster.url(daemon), name, 5, self._cluster.admin)

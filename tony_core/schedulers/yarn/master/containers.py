"""The containers that a master holds: who was given, launched, asked to end, and has ended.

Each container's end is said once. Nobody needs to hear of one that was given back before
anything ran in it, of a surplus, or of one whose launch failed (that was said when it did).
What is to be released is repeated until its end comes, for a ResourceManager that restarts
forgets that too. Pure; no locks: its owner has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, Iterable, List, Optional, Set

from tony_core.hadoop.yarn.ids import ContainerId, NodeId
from tony_core.hadoop.yarn.records import Container, ContainerStatus
from tony_core.schedulers import port
from tony_core.schedulers.yarn.master.container_exits import told
from tony_core.schedulers.yarn.master.placement import Given


@dataclass
class Held:
    """One container."""

    given: Container
    role: str
    since: float = 0.0  # when it came; zero for what an earlier master left
    launched: bool = False  # handed to its node (or by an earlier master)
    started: bool = False  # the node has taken it, and that was said
    asked: bool = False  # we had it stopped or released
    silent: bool = False  # nobody needs to hear of its end
    stopped_at: Optional[float] = None  # when its node said that it ends it


class Holding:
    """See the module. ``attempt`` is this master's number."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._held: Dict[ContainerId, Held] = {}
        self._ended: Set[ContainerId] = set()
        self._releases: List[ContainerId] = []  # to be said
        self._released: Set[ContainerId] = set()  # said, and no end came yet

    # ------------------------------------------------------------------ what came

    def take(self, given: Container, role: str, now: float = 0.0) -> Held:
        """One that answers an ask."""
        held = self._held[given.id] = Held(given, role, now)
        return held

    def inherit(self, given: Container, role: str) -> Optional[Held]:
        """One that an earlier master left; None if it is known, or its end."""
        if given.id in self._held or given.id in self._ended:
            return None
        held = self._held[given.id] = Held(given, role, launched=True, started=True)
        return held

    def send_back(self, given: Container) -> None:
        """One that nobody wants."""
        self._held[given.id] = Held(given, "", asked=True, silent=True)
        self._releases.append(given.id)

    # ------------------------------------------------------------------ what there is

    def find(self, container_id: str) -> Optional[Held]:
        """By the port's name for it; None for what was never ours, or has ended."""
        try:
            return self._held.get(ContainerId.parse(container_id))
        except ValueError:
            return None

    def of(self, container: ContainerId) -> Optional[Held]:
        """The same, by YARN's."""
        return self._held.get(container)

    def by_role(self) -> Dict[str, int]:
        """How many of each are there to be used."""
        counts: Dict[str, int] = {}
        for held in self._held.values():
            if not held.asked:
                counts[held.role] = counts.get(held.role, 0) + 1
        return counts

    def given(self, name: Callable[[str, int], str], reported: float) -> List[Given]:
        """Where they are and how large, beside a report of the nodes of that time."""
        return [
            Given(
                name(held.given.node.host, held.given.node.port),
                held.given.capability,
                held.since > reported,
            )
            for held in self._held.values()
            if not held.asked
        ]

    def on(self, nodes: Iterable[NodeId]) -> Set[NodeId]:
        """Those of the nodes on which something of ours is."""
        wanted = set(nodes)
        return {held.given.node for held in self._held.values() if held.given.node in wanted}

    def running(self) -> Dict[NodeId, List[ContainerId]]:
        """What has been started and has not ended, by node."""
        found: Dict[NodeId, List[ContainerId]] = {}
        for held in self._held.values():
            if held.started and not held.silent:
                found.setdefault(held.given.node, []).append(held.given.id)
        return found

    @property
    def ending(self) -> bool:
        """Whether the end of something is waited for."""
        return any(held.asked and not held.silent for held in self._held.values())

    # ------------------------------------------------------------------ what is asked

    def release(self, held: Held, silent: bool = False) -> None:
        """Through the ResourceManager."""
        held.asked = True
        held.silent = held.silent or silent
        if held.given.id not in self._released and held.given.id not in self._releases:
            self._releases.append(held.given.id)

    def to_release(self) -> List[ContainerId]:
        """What the next heartbeat says; it counts as said."""
        said, self._releases = self._releases, []
        self._released.update(said)
        return said

    def resync(self) -> None:
        """The ResourceManager has forgotten what we said."""
        self._releases = sorted(self._released | set(self._releases))
        self._released.clear()

    # ------------------------------------------------------------------ the end

    def end(self, status: ContainerStatus) -> List[port.PoolEvent]:
        """One has ended: what is to be said of it."""
        held = self._held.pop(status.id, None)
        self._released.discard(status.id)
        if status.id in self._releases:
            self._releases.remove(status.id)
        if status.id in self._ended:
            return []
        self._ended.add(status.id)
        if held is None and status.id.attempt.number >= self._attempt:
            return []  # ours, and ended before
        if held is not None and held.silent:
            return []
        code, cause, words = told(
            status.exit_status, held.asked if held else False, status.diagnostics
        )
        events: List[port.PoolEvent] = []
        if held is not None and held.launched and not held.started and status.exit_status >= 0:
            events.append(port.Started(str(status.id)))  # its node's answer is still on the way
        events.append(port.Completed(str(status.id), code, cause, words))
        return events

    def unheard(self, before: float) -> List[port.PoolEvent]:
        """The ends of those that their nodes ended before a time, and nobody has told us of.

        A ResourceManager can lose the word of an end while one master follows another.
        """
        events: List[port.PoolEvent] = []
        for held in list(self._held.values()):
            if held.stopped_at is not None and held.stopped_at < before and not held.silent:
                words = "stopped by the master; the ResourceManager has not said how it ended"
                events += self.end(ContainerStatus(held.given.id, "COMPLETE", -105, words))
                self._releases.append(held.given.id)
        return events

    def never_started(self, held: Held, why: str) -> Optional[port.Completed]:
        """Its node would not have it: said now, and given back."""
        if held.silent:
            return None
        asked = held.asked
        self.release(held, silent=True)
        if asked:
            return port.Completed(str(held.given.id), 137, port.Cause.RELEASED, why)
        return port.Completed(str(held.given.id), 127, port.Cause.LAUNCH, why)

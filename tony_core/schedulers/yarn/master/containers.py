"""The containers that a master holds: allocated, launched, asked to end, ended. Pure; no locks.

Each container's end is reported once. The end is not reported of a surplus container, of one that
was returned before anything ran in it, and of one whose launch failed (the failure was reported).
A release is repeated until the container's end arrives, because a ResourceManager that restarts
forgets it.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Optional, Set

from tony_core.exit_causes import ExitCause
from tony_core.hadoop.yarn.ids import ContainerId, NodeId
from tony_core.hadoop.yarn.records import Container, ContainerStatus
from tony_core.schedulers import container_pool
from tony_core.schedulers.yarn.master.container_exits import describe_exit
from tony_core.schedulers.yarn.master.placement import ContainerUsage


class HeldContainer:
    """A container, from its allocation to its end."""

    def __init__(self, allocation: Container, role: str, since: float = 0.0) -> None:
        self.allocation = allocation
        self.role = role
        self.since = since  # when it was allocated; 0 if a previous attempt left it
        self.launched = False  # its launch was sent to its node, possibly by a previous attempt
        self.started = False  # the node has started it, and that was reported
        self.end_requested = False  # it was stopped or released
        self.silent = False  # its end is not reported
        self.stopped_at: Optional[float] = None  # when its node confirmed the stop


class Containers:
    """The containers of one master; ``attempt`` is its number."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._held: Dict[ContainerId, HeldContainer] = {}
        self._ended: Set[ContainerId] = set()
        self._releases: List[ContainerId] = []  # to be sent
        self._released: Set[ContainerId] = set()  # sent; their ends have not arrived

    # ------------------------------------------------------------------ allocated and inherited

    def add(self, given: Container, role: str, now: float = 0.0) -> HeldContainer:
        """Add an allocated container."""
        held = self._held[given.id] = HeldContainer(given, role, now)
        return held

    def inherit(self, given: Container, role: str) -> Optional[HeldContainer]:
        """Add a container that a previous attempt left; None if it or its end is known."""
        if given.id in self._held or given.id in self._ended:
            return None
        held = self.add(given, role)
        held.launched = held.started = True
        return held

    def return_surplus(self, given: Container) -> None:
        """Return a surplus container."""
        self.release(self.add(given, ""), silent=True)

    # ------------------------------------------------------------------ queries

    def find(self, container_id: str) -> Optional[HeldContainer]:
        """The container with the port's id; None if it has ended or was never held."""
        try:
            return self._held.get(ContainerId.parse(container_id))
        except ValueError:
            return None

    def get(self, container: ContainerId) -> Optional[HeldContainer]:
        """The container with YARN's id; None if it has ended or was never held."""
        return self._held.get(container)

    def is_running(self, container: ContainerId) -> bool:
        """Whether it is held and was not asked to end."""
        held = self._held.get(container)
        return held is not None and not held.end_requested

    def count_by_role(self) -> Dict[str, int]:
        """The number of usable containers of each role."""
        counts: Dict[str, int] = {}
        for held in self._held.values():
            if not held.end_requested:
                counts[held.role] = counts.get(held.role, 0) + 1
        return counts

    def usage(self, name: Callable[[str, int], str], reported: float) -> List[ContainerUsage]:
        """Nodes and sizes of the containers, for comparison with node reports of a time."""
        return [
            ContainerUsage(
                name(held.allocation.node.host, held.allocation.node.port),
                held.allocation.capability,
                held.since > reported,
            )
            for held in self._held.values()
            if not held.end_requested
        ]

    def nodes_in_use(self, nodes: Iterable[NodeId]) -> Set[NodeId]:
        """The nodes among these that run a container of this master."""
        wanted = set(nodes)
        return {
            held.allocation.node for held in self._held.values() if held.allocation.node in wanted
        }

    def running_by_node(self) -> Dict[NodeId, List[ContainerId]]:
        """The containers that are started and have not ended, by node."""
        found: Dict[NodeId, List[ContainerId]] = {}
        for held in self._held.values():
            if held.started and not held.silent:
                found.setdefault(held.allocation.node, []).append(held.allocation.id)
        return found

    @property
    def awaits_end(self) -> bool:
        """Whether a container was asked to end and has not."""
        return any(held.end_requested and not held.silent for held in self._held.values())

    # ------------------------------------------------------------------ releases

    def release(self, held: HeldContainer, silent: bool = False) -> None:
        """Release a container through the ResourceManager."""
        held.end_requested = True
        held.silent = held.silent or silent
        if held.allocation.id not in self._released and held.allocation.id not in self._releases:
            self._releases.append(held.allocation.id)

    def next_releases(self) -> List[ContainerId]:
        """The releases for the next heartbeat; count as sent."""
        releases, self._releases = self._releases, []
        self._released.update(releases)
        return releases

    def resync(self) -> None:
        """Send all releases again: the ResourceManager has restarted."""
        self._releases = sorted(self._released | set(self._releases))
        self._released.clear()

    # ------------------------------------------------------------------ ends

    def record_end(self, status: ContainerStatus) -> List[container_pool.PoolEvent]:
        """Record a container's end; the events to report."""
        held = self._held.pop(status.id, None)
        self._released.discard(status.id)
        if status.id in self._releases:
            self._releases.remove(status.id)
        if status.id in self._ended:
            return []
        self._ended.add(status.id)
        if held is None and status.id.attempt.number >= self._attempt:
            return []  # its end was recorded before
        if held is not None and held.silent:
            return []
        code, cause, words = describe_exit(
            status.exit_status, held.end_requested if held else False, status.diagnostics
        )
        events: List[container_pool.PoolEvent] = []
        if held is not None and held.launched and not held.started and status.exit_status >= 0:
            # The node's confirmation is still on its way.
            events.append(container_pool.Started(str(status.id)))
        events.append(container_pool.Completed(str(status.id), code, cause, words))
        return events

    def end_unreported(self, before: float) -> List[container_pool.PoolEvent]:
        """Report containers as ended whose nodes confirmed their stop before a time.

        The ResourceManager can lose an end while one master follows another.
        """
        events: List[container_pool.PoolEvent] = []
        for held in list(self._held.values()):
            if held.stopped_at is not None and held.stopped_at < before and not held.silent:
                words = "stopped by the master; the ResourceManager has not reported its end"
                events += self.record_end(
                    ContainerStatus(held.allocation.id, "COMPLETE", -105, words)
                )
                self._releases.append(held.allocation.id)
        return events

    def fail_launch(self, held: HeldContainer, why: str) -> Optional[container_pool.Completed]:
        """Release a container that its node did not start; the event to report."""
        if held.silent:
            return None
        end_requested = held.end_requested
        self.release(held, silent=True)
        if end_requested:
            return container_pool.Completed(str(held.allocation.id), 137, ExitCause.RELEASED, why)
        return container_pool.Completed(str(held.allocation.id), 127, ExitCause.LAUNCH, why)

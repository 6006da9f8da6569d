"""Allocates this machine to jobs: a pure decision.

Theory of operation
===================

The input is what is in use, and a queue of applications that ask for containers, each with its
own view of the machine's capacity (a job file may allow a job less). The output is what to
grant now, and for each that still waits, why.

* A *gang* (``whole``) is granted entirely or not at all; otherwise container by container.
  An application's single containers wait for its gangs.
* *Order*: an application that holds containers already comes before those that hold none
  (it was granted its gang, and lost one of it: to let it wait behind a newcomer that waits
  for its other containers would be a deadlock); among equals, the one that waits longest.
* *Overtaking*: what does not fit does not hold up what fits behind it, until it has waited
  for :data:`AGEING_S`. From then on its demand is set aside: whatever becomes free is kept
  for it, and only what it does not need is granted to others. So no job starves.
* *Spare* containers (what an elastic role of a running job has room for beyond its minimum)
  come last: what other jobs wait for, aged or not, is set aside before one is granted, and they do
  not age. So needed containers are granted as if there were no optional ones.
* What could not be granted on an empty machine is never queued: :func:`never_fits`.

Memory and GPUs are always counted, vcores only where a capacity names them: a laptop's
processes share its cores well enough.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

AGEING_S = 30.0


class Capacity(NamedTuple):
    """The resources of this machine that may be allocated; GPUs by id."""

    memory_mb: int
    gpus: Tuple[str, ...] = ()
    vcores: Optional[int] = None


class Demand(NamedTuple):
    """The resources that one or several containers need."""

    memory_mb: int = 0
    gpus: int = 0
    vcores: int = 0

    def __add__(self, other: Demand) -> Demand:  # type: ignore[override]
        return Demand(
            self.memory_mb + other.memory_mb,
            self.gpus + other.gpus,
            self.vcores + other.vcores,
        )

    def times(self, count: int) -> Demand:
        """The demand of that many containers."""
        return Demand(self.memory_mb * count, self.gpus * count, self.vcores * count)


class Usage(NamedTuple):
    """The resources that a container uses."""

    app: str
    name: str  # the application's, for people
    memory_mb: int
    gpus: Tuple[str, ...] = ()
    vcores: int = 0


class RoleRequest(NamedTuple):
    """The container request of a role and session."""

    role: str
    session: int
    count: int  # type: ignore[assignment]  # hides the tuple's method
    each: Demand


class RequestGroup(NamedTuple):
    """Requests that are granted whole or one by one; ``optional`` ones after all others."""

    whole: bool
    requests: Tuple[RoleRequest, ...]
    optional: bool = False

    @property
    def demand(self) -> Demand:
        """All of it."""
        return total(request.each.times(request.count) for request in self.requests)


class QueuedApp(NamedTuple):
    """An application that waits for containers."""

    app: str
    name: str
    since: float
    capacity: Capacity
    groups: Tuple[RequestGroup, ...]


class Grant(NamedTuple):
    """A container granted to an application."""

    app: str
    role: str
    session: int
    each: Demand
    gpus: Tuple[str, ...] = ()


class Decision(NamedTuple):
    """The grants, and why the other requests wait, by application."""

    grants: Tuple[Grant, ...]
    waits: Dict[str, str]


def total(demands: Iterable[Demand]) -> Demand:
    """The sum of demands."""
    result = Demand()
    for demand in demands:
        result = result + demand
    return result


def never_fits(capacity: Capacity, demand: Demand) -> List[str]:
    """Why not even the empty machine could grant this; empty if it could."""
    problems = []
    if demand.memory_mb > capacity.memory_mb:
        problems.append(
            f"{demand.memory_mb} MB of memory are more than the {capacity.memory_mb} MB there are"
        )
    if demand.gpus > len(capacity.gpus):
        problems.append(
            f"{_gpus(demand.gpus)} are requested and there {_are(len(capacity.gpus))}"
            if demand.gpus > 1
            else "a GPU is requested and there is none"
        )
    if capacity.vcores is not None and demand.vcores > capacity.vcores:
        problems.append(
            f"{demand.vcores} vcores are more than the {capacity.vcores} that may be used"
        )
    return problems


def decide(held: Sequence[Usage], queue: Sequence[QueuedApp], now: float) -> Decision:
    """Decide what to grant; the same input gives the same decision in every process."""
    decision = _Deciding(list(held))
    holders = {item.app for item in held}
    for queued in sorted(queue, key=lambda q: (q.app not in holders, q.since, q.app)):
        decision.consider(queued, now)
    decision.set_aside_all()
    for queued in sorted(queue, key=lambda q: (q.since, q.app)):
        decision.consider_spare(queued)
    return Decision(tuple(decision.grants), decision.waits)


class _Deciding:
    """The state of one decision: what is held, granted, and set aside for the aged."""

    def __init__(self, held: List[Usage]) -> None:
        self._held = held
        self._memory = sum(item.memory_mb for item in held)
        self._vcores = sum(item.vcores for item in held)
        self._gpus = {gpu for item in held for gpu in item.gpus}
        self._aside = Demand()
        self._lacking = Demand()  # what all applications wait for
        self.grants: List[Grant] = []
        self.waits: Dict[str, str] = {}

    def consider(self, queued: QueuedApp, now: float) -> None:
        """Grant what one application needs and can get; the rest waits."""
        lacking: Optional[Demand] = None
        # The gang first: were its sidecars started while it waits, two applications could
        # keep each other's gangs waiting by nothing but their sidecars.
        for group in sorted(queued.groups, key=lambda group: not group.whole):
            if group.optional:
                continue
            if lacking is not None and not group.whole:
                lacking = lacking + group.demand
                continue
            units = [list(group.requests)] if group.whole else _singles(group)
            for unit in units:
                demand = total(request.each.times(request.count) for request in unit)
                if self._fits(queued.capacity, demand):
                    self._grant(queued, unit)
                    continue
                lacking = demand if lacking is None else lacking + demand
        if lacking is None:
            return
        self.waits[queued.app] = self._why(queued, lacking)
        self._lacking = self._lacking + lacking
        if now - queued.since >= AGEING_S:
            self._aside = self._aside + lacking

    def set_aside_all(self) -> None:
        """Set aside all that applications wait for: nothing of it is granted from now on."""
        self._aside = self._lacking

    def consider_spare(self, queued: QueuedApp) -> None:
        """Grant one application's optional containers from what no other waits for."""
        lacking: List[RoleRequest] = []
        for unit in (unit for group in queued.groups if group.optional for unit in _singles(group)):
            if self._fits(queued.capacity, unit[0].each):
                self._grant(queued, unit)
            else:
                lacking += unit
        if lacking and queued.app not in self.waits:
            self.waits[queued.app] = self._why(queued, total(request.each for request in lacking))
            if self._aside != Demand():
                self.waits[queued.app] += "; what others wait for is kept for them"

    def _free(self, capacity: Capacity, aside: Demand) -> Tuple[int, List[str], int]:
        """Memory, GPUs and vcores that may be given to one of that capacity."""
        gpus = [gpu for gpu in capacity.gpus if gpu not in self._gpus]
        return (
            capacity.memory_mb - self._memory - aside.memory_mb,
            gpus[: max(0, len(gpus) - aside.gpus)],
            (capacity.vcores or 0) - self._vcores - aside.vcores,
        )

    def _fits(self, capacity: Capacity, demand: Demand) -> bool:
        memory, gpus, vcores = self._free(capacity, self._aside)
        return (
            demand.memory_mb <= memory
            and demand.gpus <= len(gpus)
            and (capacity.vcores is None or demand.vcores <= vcores)
        )

    def _grant(self, queued: QueuedApp, unit: List[RoleRequest]) -> None:
        for request in unit:
            for _ in range(request.count):
                _, gpus, _ = self._free(queued.capacity, Demand())
                mine = tuple(gpus[: request.each.gpus])
                self._gpus.update(mine)
                self._memory += request.each.memory_mb
                self._vcores += request.each.vcores
                self.grants.append(
                    Grant(queued.app, request.role, request.session, request.each, mine)
                )

    def _why(self, queued: QueuedApp, lacking: Demand) -> str:
        """The reason: what is missing, what is free, and which applications use the rest."""
        capacity = queued.capacity
        memory, gpus, vcores = self._free(capacity, Demand())
        short: List[str] = []
        if lacking.memory_mb > memory - self._aside.memory_mb:
            short.append(f"{lacking.memory_mb} MB ({max(0, memory)} of {capacity.memory_mb} free)")
        if lacking.gpus > len(gpus) - self._aside.gpus:
            short.append(f"{_gpus(lacking.gpus)} ({len(gpus)} of {len(capacity.gpus)} free)")
        if capacity.vcores is not None and lacking.vcores > vcores - self._aside.vcores:
            short.append(f"{lacking.vcores} vcores ({max(0, vcores)} of {capacity.vcores} free)")
        if not short:
            short.append(f"{lacking.memory_mb} MB")
        words = "waits for " + " and ".join(short)
        holders = self._holders()
        if holders:
            words += "; " + "; ".join(holders)
        if self._aside != Demand() and not holders:
            words += "; what is free is kept for an application that has waited longer"
        return words

    def _holders(self) -> List[str]:
        """The usage of each application, the largest first."""
        by_app: Dict[str, Tuple[str, int, int]] = {}
        for item in self._held:
            _, memory, gpus = by_app.get(item.app, ("", 0, 0))
            by_app[item.app] = (item.name, memory + item.memory_mb, gpus + len(item.gpus))
        ordered = sorted(by_app.items(), key=lambda pair: (-pair[1][1], pair[0]))
        words = [
            f"application {app} ({name}) holds {memory} MB"
            + (f" and {_gpus(gpus)}" if gpus else "")
            for app, (name, memory, gpus) in ordered[:3]
        ]
        if len(ordered) > 3:
            words.append(f"{len(ordered) - 3} more hold the rest")
        return words


def _singles(group: RequestGroup) -> List[List[RoleRequest]]:
    """The demands of the group's containers, one by one."""
    return [
        [RoleRequest(request.role, request.session, 1, request.each)]
        for request in group.requests
        for _ in range(request.count)
    ]


def _gpus(count: int) -> str:
    return f"{count} GPU" + ("" if count == 1 else "s")


def _are(count: int) -> str:
    return "is 1" if count == 1 else f"are {count}" if count else "is none"

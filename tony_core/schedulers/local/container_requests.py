"""What a master wants and what it was granted: the half of its pool that talks to the ledger.

Asks are absolute: a new one replaces what was wanted under the same (role, session). Those of
one call with ``gang`` stay together until they are granted, whole. Everything here is called
by the pool's one thread; events go to ``emit``.

A ledger that cannot be changed, because its disk is full, is no end of a job that has what it
needs: nothing is granted meanwhile, and what was to be written is, as soon as there is room.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from tony_core.job.spec import Resources
from tony_core.schedulers import port
from tony_core.schedulers.local import capacity, home, processes
from tony_core.schedulers.local.allocation import Capacity, Demand, Group, Want, never_fits
from tony_core.schedulers.local.applications import Application
from tony_core.schedulers.local.home import AppFolder
from tony_core.schedulers.local.ledger import Asking, Book, Holding, Ledger
from tony_core.schedulers.local.processes import Identity

DEATHS_S = 0.2  # how often a waiting master looks whether an owner of a share has died
FULL_S = 1.0  # ... and, when the ledger's disk is full, whether there is room again

_Key = Tuple[str, int]  # role, session


class Wanted:
    """See the module."""

    def __init__(
        self,
        folder: AppFolder,
        app: Application,
        attempt: int,
        emit: Callable[[port.PoolEvent], None],
    ) -> None:
        self._folder = folder
        self._app = app
        self._emit = emit
        self._me = Identity.mine()
        self._prefix = f"container_{app.app_id}_{attempt:02d}_"
        self._ledger = Ledger(folder.home.ledger)
        self._capacity: Optional[Capacity] = None
        self._granted: Dict[str, port.Container] = {}  # and not launched yet
        self._groups: List[Tuple[bool, Dict[_Key, port.Ask]]] = []
        self._since: Optional[float] = None  # what is wanted is wanted since then
        self._next = 1
        self._looked: Tuple[int, int] = (0, 0)
        self._look_at = 0.0
        self._said = ""
        self._unsaid = False  # what is wanted now is not in the ledger yet
        self._later: List[Callable[[], None]] = []  # what the ledger is to be told besides

    @property
    def waiting(self) -> bool:
        """Whether something is wanted that was not granted yet, or to be written."""
        return bool(self._groups or self._unsaid or self._later)

    def capacity_for(self, gpus: bool) -> Capacity:
        """What of the machine this job may use; GPUs are counted when somebody wants one."""
        known = self._capacity
        if known is None or (gpus and not known.gpus):
            known = self._capacity = capacity.capacity(self._app.local, gpus)
        return known

    # ------------------------------------------------------------------ the master's words

    def request(self, asks: Sequence[port.Ask], gang: bool) -> None:
        """Want these, absolutely."""
        group: Dict[_Key, port.Ask] = {}
        needed = self._needs()
        for ask in asks:
            key = (ask.role, ask.session)
            for _, others in self._groups:
                others.pop(key, None)
            if ask.count > 0:
                group[key] = ask
        try:
            room = self.capacity_for(gpus=any(ask.resources.gpus for ask in group.values()))
        except port.SchedulerError as error:
            for ask in group.values():
                self._emit(port.Refused(ask.role, str(error)))
            return
        if group and not self._refuse(group, gang, room):
            self._groups.append((gang, group))
        self._groups = [item for item in self._groups if item[1]]
        if not self._groups:
            self._since = None
        elif self._since is None or (self._needs() and not needed):
            self._since = time.monotonic()  # having waited for spare ones is no merit
        self._said = ""
        self._settle(self._put)

    def withdraw(self) -> None:
        """Want nothing more, and give back what was granted and not launched."""
        self._groups = []
        self._since = None
        self._settle(self._put)
        self.free(list(self._granted))
        self._granted.clear()

    def release(self, container_id: str) -> bool:
        """Give back one that was granted and not launched; whether it was such a one."""
        if self._granted.pop(container_id, None) is None:
            return False
        self.free([container_id])
        return True

    def take(self, container_id: str) -> bool:
        """It is being launched; False if it was not ours to launch."""
        return self._granted.pop(container_id, None) is not None

    def hold(self, containers: Sequence[Tuple[port.Container, Identity]]) -> None:
        """From now on these processes hold the containers' shares."""
        held = [self._holding(container, owner) for container, owner in containers]
        self._tell(lambda: self._ledger.hold(held))

    def free(self, container_ids: Sequence[str]) -> None:
        """They have ended."""
        self._tell(lambda: self._ledger.free(container_ids))

    def forget(self) -> None:
        """The application has ended."""
        try:
            self._ledger.forget(self._app.app_id)
        except OSError as error:
            if not home.is_full(error):
                raise  # else it goes with its owner, this process

    def look(self) -> None:
        """Whether something was granted meanwhile."""
        if not self.waiting:
            return
        if time.monotonic() >= self._look_at or self._ledger.version() != self._looked:
            self._catch_up()
            self._settle(self._put if self._unsaid else None)

    # ------------------------------------------------------------------ the ledger

    def _needs(self) -> bool:
        """Whether anything is wanted besides spare ones."""
        return any(not ask.spare for _, group in self._groups for ask in group.values())

    def _refuse(self, group: Dict[_Key, port.Ask], gang: bool, room: Capacity) -> bool:
        """Say it when this can never be granted; single containers are judged one by one."""
        if gang:
            demand = Demand()
            for ask in group.values():
                demand = demand + demand_of(ask.resources).times(ask.count)
            problems = never_fits(room, demand)
            for ask in group.values() if problems else ():
                self._emit(port.Refused(ask.role, "together, " + "; ".join(problems)))
            return bool(problems)
        for key, ask in list(group.items()):
            problems = never_fits(room, demand_of(ask.resources))
            if problems:
                del group[key]
                self._emit(port.Refused(ask.role, "; ".join(problems)))
        return not group

    def _tell(self, what: Callable[[], None]) -> None:
        """Change the ledger so, now or when its disk has room again; all in their order."""
        self._later.append(what)
        self._catch_up()

    def _catch_up(self) -> None:
        while self._later:
            try:
                self._later[0]()
            except OSError as error:
                if not home.is_full(error):
                    raise
                self._look_at = time.monotonic() + FULL_S
                return
            del self._later[0]

    def _put(self, book: Book) -> None:
        app = self._app
        if not self._groups:
            book.queue.pop(app.app_id, None)
            return
        assert self._since is not None
        groups = tuple(
            Group(gang, tuple(wants), spare)
            for gang, group in self._groups
            for spare in (False, True)
            for wants in (_wants(group, spare),)
            if wants
        )
        book.queue[app.app_id] = Asking(
            app.app_id,
            app.name,
            self._me,
            self._since,
            self.capacity_for(gpus=False),
            groups,
            self._prefix,
            self._next,
        )

    def _settle(self, what: Optional[Callable[[Book], None]] = None) -> None:
        claimed: List[Holding] = []
        asking: Optional[Asking] = None
        try:
            claimed, asking, reason = self._ledger.settle(self._app.app_id, what)
            self._unsaid = False
        except OSError as error:
            if not home.is_full(error):
                raise
            self._unsaid = self._unsaid or what is not None
            full = f"waits for room on the disk of {self._folder.home.ledger}"
            reason = full if self._groups else ""
        self._looked = self._ledger.version()
        self._look_at = time.monotonic() + (FULL_S if self._unsaid else DEATHS_S)
        if asking is not None:
            self._next = asking.next
        if claimed:
            self._allocated(claimed)
        if reason and reason != self._said:
            self._said = reason
            self._emit(port.Waiting(reason))

    def _allocated(self, claimed: List[Holding]) -> None:
        given: List[port.Container] = []
        for item in claimed:
            key = (item.role, item.session)
            group = next((group for _, group in self._groups if key in group), None)
            if group is None:  # withdrawn since
                self.free([item.container_id])
                continue
            ask = group[key]
            group[key] = replace(ask, count=ask.count - 1)
            if group[key].count == 0:
                del group[key]
            container = port.Container(
                id=item.container_id,
                node=processes.host(),
                role=item.role,
                resources=ask.resources,
                gpu_ids=item.gpus,
                log_url=self._folder.container(item.container_id).logs,
            )
            self._granted[container.id] = container
            given.append(container)
        self._groups = [item for item in self._groups if item[1]]
        self._since = self._since if self._groups else None
        if given:
            self._emit(port.Allocated(tuple(given)))

    def _holding(self, container: port.Container, owner: Identity) -> Holding:
        need = container.resources
        return Holding(
            container.id,
            self._app.app_id,
            self._app.name,
            owner,
            need.memory_mb,
            need.vcores,
            container.gpu_ids,
            container.role,
        )


def _wants(group: Dict[_Key, port.Ask], spare: bool) -> List[Want]:
    return [
        Want(ask.role, ask.session, ask.count, demand_of(ask.resources))
        for ask in group.values()
        if ask.spare is spare
    ]


def demand_of(resources: Resources) -> Demand:
    """What the ledger counts of it."""
    return Demand(resources.memory_mb, resources.gpus, resources.vcores)

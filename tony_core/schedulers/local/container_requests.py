"""A master's container requests: the half of its pool that uses the ledger.

Asks are absolute: a new one replaces the one of the same (role, session). Those of one call with
``gang`` stay together until they are granted whole. Only the pool's one thread calls this; events
go to ``emit``.

A ledger whose disk is full does not end a job that has its containers: nothing is granted
meanwhile, and the changes are written as soon as there is room.
"""

from __future__ import annotations

import time
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from tony_core.job.spec import Resources
from tony_core.schedulers import container_pool, port
from tony_core.schedulers.local import capacity, home, processes
from tony_core.schedulers.local.allocation import (
    Capacity,
    Demand,
    RequestGroup,
    RoleRequest,
    never_fits,
)
from tony_core.schedulers.local.applications import Application
from tony_core.schedulers.local.home import AppFolder
from tony_core.schedulers.local.ledger import Ledger, LedgerState, PendingRequest, Reservation
from tony_core.schedulers.local.processes import ProcessIdentity

DEATHS_S = 0.2  # how often a waiting master checks whether an owner has died
FULL_S = 1.0  # ... and, when the ledger's disk is full, whether there is room again

_Key = Tuple[str, int]  # role, session


class ContainerRequests:
    """The requests of an application, and the containers granted to it and not launched yet."""

    def __init__(
        self,
        folder: AppFolder,
        app: Application,
        attempt: int,
        emit: Callable[[container_pool.PoolEvent], None],
    ) -> None:
        self._folder = folder
        self._app = app
        self._emit = emit
        self._me = ProcessIdentity.mine()
        self._prefix = f"container_{app.app_id}_{attempt:02d}_"
        self._ledger = Ledger(folder.home.ledger)
        self._capacity: Optional[Capacity] = None
        self._granted: Dict[str, container_pool.Container] = {}  # and not launched yet
        self._groups: List[Tuple[bool, Dict[_Key, container_pool.ContainerRequest]]] = []
        self._since: Optional[float] = None  # when the oldest of these asks was made
        self._next = 1
        self._seen: Tuple[int, int] = (0, 0)
        self._poll_at = 0.0
        self._last_reason = ""
        self._unwritten = False  # the asks are not in the ledger yet
        self._pending: List[Callable[[], None]] = []  # changes that are not written yet

    @property
    def is_waiting(self) -> bool:
        """Whether a request is not granted yet, or a change not written."""
        return bool(self._groups or self._unwritten or self._pending)

    def capacity_for(self, gpus: bool) -> Capacity:
        """Measure what this job may use of the machine; ``gpus``: count them, which takes 1 s."""
        known = self._capacity
        if known is None or (gpus and not known.gpus):
            known = self._capacity = capacity.capacity(self._app.local, gpus)
        return known

    # ------------------------------------------------------------------ the master's calls

    def request(self, requests: Sequence[container_pool.ContainerRequest], gang: bool) -> None:
        """Replace the application's requests with these."""
        group: Dict[_Key, container_pool.ContainerRequest] = {}
        had_needed = self._has_needed()
        for request in requests:
            key = (request.role, request.session)
            for _, others in self._groups:
                others.pop(key, None)
            if request.count > 0:
                group[key] = request
        try:
            room = self.capacity_for(gpus=any(request.resources.gpus for request in group.values()))
        except port.SchedulerError as error:
            for request in group.values():
                self._emit(container_pool.RequestRejected(request.role, str(error)))
            return
        if group and not self._refuse(group, gang, room):
            self._groups.append((gang, group))
        self._groups = [item for item in self._groups if item[1]]
        if not self._groups:
            self._since = None
        elif self._since is None or (self._has_needed() and not had_needed):
            self._since = time.monotonic()  # the wait for optional ones does not count
        self._last_reason = ""
        self._update(self._write_requests)

    def withdraw(self) -> None:
        """Withdraw all requests; release what was granted and not launched."""
        self._groups = []
        self._since = None
        self._update(self._write_requests)
        self.free(list(self._granted))
        self._granted.clear()

    def release(self, container_id: str) -> bool:
        """Give back one that was granted and not launched; whether it was such a one."""
        if self._granted.pop(container_id, None) is None:
            return False
        self.free([container_id])
        return True

    def take_granted(self, container_id: str) -> bool:
        """Take a granted container to launch it; False if there is none of that id."""
        return self._granted.pop(container_id, None) is not None

    def reserve(
        self, containers: Sequence[Tuple[container_pool.Container, ProcessIdentity]]
    ) -> None:
        """Make these processes the owners of the containers' reservations."""
        held = [self._reservation(container, owner) for container, owner in containers]
        self._change_ledger(lambda: self._ledger.reserve(held))

    def free(self, container_ids: Sequence[str]) -> None:
        """Give back the reservations of containers that have ended."""
        self._change_ledger(lambda: self._ledger.free(container_ids))

    def remove_app(self) -> None:
        """Drop all that the application has in the ledger."""
        try:
            self._ledger.remove_app(self._app.app_id)
        except OSError as error:
            if not home.is_full(error):
                raise  # else it is dropped with its owner, this process

    def poll(self) -> None:
        """Report what was granted meanwhile."""
        if not self.is_waiting:
            return
        if time.monotonic() >= self._poll_at or self._ledger.version() != self._seen:
            self._write_pending()
            self._update(self._write_requests if self._unwritten else None)

    # ------------------------------------------------------------------ the ledger

    def _has_needed(self) -> bool:
        """Whether a request is not optional."""
        return any(not request.optional for _, group in self._groups for request in group.values())

    def _refuse(
        self, group: Dict[_Key, container_pool.ContainerRequest], gang: bool, room: Capacity
    ) -> bool:
        """Report what can never be granted; single containers are checked one by one."""
        if gang:
            demand = Demand()
            for request in group.values():
                demand = demand + demand_of(request.resources).times(request.count)
            problems = never_fits(room, demand)
            for request in group.values() if problems else ():
                self._emit(
                    container_pool.RequestRejected(request.role, "together, " + "; ".join(problems))
                )
            return bool(problems)
        for key, request in list(group.items()):
            problems = never_fits(room, demand_of(request.resources))
            if problems:
                del group[key]
                self._emit(container_pool.RequestRejected(request.role, "; ".join(problems)))
        return not group

    def _change_ledger(self, what: Callable[[], None]) -> None:
        """Change the ledger now, or when its disk has room again; changes keep their order."""
        self._pending.append(what)
        self._write_pending()

    def _write_pending(self) -> None:
        while self._pending:
            try:
                self._pending[0]()
            except OSError as error:
                if not home.is_full(error):
                    raise
                self._poll_at = time.monotonic() + FULL_S
                return
            del self._pending[0]

    def _write_requests(self, book: LedgerState) -> None:
        app = self._app
        if not self._groups:
            book.queue.pop(app.app_id, None)
            return
        assert self._since is not None
        groups = tuple(
            RequestGroup(gang, tuple(requests), optional)
            for gang, group in self._groups
            for optional in (False, True)
            for requests in (_role_requests(group, optional),)
            if requests
        )
        book.queue[app.app_id] = PendingRequest(
            app.app_id,
            app.name,
            self._me,
            self._since,
            self.capacity_for(gpus=False),
            groups,
            self._prefix,
            self._next,
        )

    def _update(self, what: Optional[Callable[[LedgerState], None]] = None) -> None:
        claimed: List[Reservation] = []
        pending: Optional[PendingRequest] = None
        try:
            claimed, pending, reason = self._ledger.update(self._app.app_id, what)
            self._unwritten = False
        except OSError as error:
            if not home.is_full(error):
                raise
            self._unwritten = self._unwritten or what is not None
            full = f"waits for room on the disk of {self._folder.home.ledger}"
            reason = full if self._groups else ""
        self._seen = self._ledger.version()
        self._poll_at = time.monotonic() + (FULL_S if self._unwritten else DEATHS_S)
        if pending is not None:
            self._next = pending.next
        if claimed:
            self._report_granted(claimed)
        if reason and reason != self._last_reason:
            self._last_reason = reason
            self._emit(container_pool.AllocationPending(reason))

    def _report_granted(self, claimed: List[Reservation]) -> None:
        given: List[container_pool.Container] = []
        for item in claimed:
            key = (item.role, item.session)
            group = next((group for _, group in self._groups if key in group), None)
            if group is None:  # withdrawn since
                self.free([item.container_id])
                continue
            request = group[key]
            group[key] = request._replace(count=request.count - 1)
            if group[key].count == 0:
                del group[key]
            container = container_pool.Container(
                id=item.container_id,
                node=processes.host(),
                role=item.role,
                resources=request.resources,
                gpu_ids=item.gpus,
                log_url=self._folder.container(item.container_id).logs,
            )
            self._granted[container.id] = container
            given.append(container)
        self._groups = [item for item in self._groups if item[1]]
        self._since = self._since if self._groups else None
        if given:
            self._emit(container_pool.Allocated(tuple(given)))

    def _reservation(
        self, container: container_pool.Container, owner: ProcessIdentity
    ) -> Reservation:
        need = container.resources
        return Reservation(
            container.id,
            self._app.app_id,
            self._app.name,
            owner,
            need.memory_mb,
            need.vcores,
            container.gpu_ids,
            container.role,
        )


def _role_requests(
    group: Dict[_Key, container_pool.ContainerRequest], optional: bool
) -> List[RoleRequest]:
    return [
        RoleRequest(request.role, request.session, request.count, demand_of(request.resources))
        for request in group.values()
        if request.optional is optional
    ]


def demand_of(resources: Resources) -> Demand:
    """The resources that the ledger counts."""
    return Demand(resources.memory_mb, resources.gpus, resources.vcores)

"""The ledger: what of this machine the containers of all jobs have reserved.

Theory of operation
===================

One file for each host, changed only under a file lock, by a master that asks, gives back, or polls
for grants. Every change ends with the same pure decision (:mod:`allocation`) over the asks of all
jobs: a master that changes the ledger grants for all, and the others find their grants when they
poll.

Every entry names its owner, a process that any other process can find dead (pid, start time, boot
id): the master for its asks and grants, the shim from the moment it runs. Each change drops the
entries of dead owners, so a share is free as soon as its owner is gone; entries from before a
reboot do not count.

Waiting times are on the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from tony_core.schedulers.local import allocation, home, processes
from tony_core.schedulers.local.allocation import (
    Capacity,
    Demand,
    QueuedApp,
    RequestGroup,
    RoleRequest,
    Usage,
)
from tony_core.schedulers.local.processes import ProcessIdentity
from tony_core.schedulers.port import SchedulerError

LOCK_S = 10.0


class Reservation(NamedTuple):
    """The resources reserved for a container. The file holds the fields by name."""

    container_id: str
    app: str
    name: str
    owner: ProcessIdentity
    memory_mb: int
    vcores: int
    gpus: Tuple[str, ...]
    role: str = ""
    session: int = -1
    claimed: bool = True  # whether its master has seen the grant

    @property
    def usage(self) -> Usage:
        """As :func:`allocation.decide` takes it."""
        return Usage(self.app, self.name, self.memory_mb, self.gpus, self.vcores)

    def to_json(self) -> Dict[str, Any]:
        """Plain data."""
        return {**self._asdict(), "owner": self.owner.to_json(), "gpus": list(self.gpus)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Reservation:
        """Read what :meth:`to_json` wrote."""
        owner = ProcessIdentity.from_json(data["owner"])
        assert owner is not None
        return cls(**{**data, "owner": owner, "gpus": tuple(data["gpus"])})


class PendingRequest(NamedTuple):
    """An application's requests, and the name of its next container."""

    app: str
    name: str
    owner: ProcessIdentity
    since: float
    capacity: Capacity
    groups: Tuple[RequestGroup, ...]
    prefix: str
    next: int

    @property
    def queued(self) -> QueuedApp:
        """As :func:`allocation.decide` takes it."""
        return QueuedApp(self.app, self.name, self.since, self.capacity, self.groups)

    def to_json(self) -> Dict[str, Any]:
        """Plain data."""
        capacity = self.capacity
        return {
            "app": self.app,
            "name": self.name,
            "owner": self.owner.to_json(),
            "since": self.since,
            "capacity": [capacity.memory_mb, list(capacity.gpus), capacity.vcores],
            "groups": [_group(group) for group in self.groups],
            "prefix": self.prefix,
            "next": self.next,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PendingRequest:
        """Read what :meth:`to_json` wrote."""
        owner = ProcessIdentity.from_json(data["owner"])
        assert owner is not None
        memory, gpus, vcores = data["capacity"]
        groups = tuple(
            RequestGroup(
                whole,
                tuple(RoleRequest(w[0], w[1], w[2], Demand(*w[3:])) for w in wants),
                *optional,
            )
            for whole, wants, *optional in data["groups"]
        )
        return cls(
            data["app"],
            data["name"],
            owner,
            data["since"],
            Capacity(memory, tuple(gpus), vcores),
            groups,
            data["prefix"],
            data["next"],
        )

    def granted(self, role: str, session: int) -> PendingRequest:
        """The same, with one container less, and the next name used up."""
        groups: List[RequestGroup] = []
        done = False
        for group in self.groups:
            requests: List[RoleRequest] = []
            for request in group.requests:
                if (
                    not done
                    and (request.role, request.session) == (role, session)
                    and request.count
                ):
                    done = True
                    request = request._replace(count=request.count - 1)
                if request.count:
                    requests.append(request)
            if requests:
                groups.append(group._replace(requests=tuple(requests)))
        return self._replace(groups=tuple(groups), next=self.next + 1)


class LedgerState:
    """The ledger's content, while its lock is held."""

    def __init__(
        self,
        held: Dict[str, Reservation],
        queue: Dict[str, PendingRequest],
        waits: Dict[str, str],
    ) -> None:
        self.held = held
        self.queue = queue
        self.waits = waits

    def prune(self) -> None:
        """Drop the entries of dead owners."""
        boot = processes.boot_id()
        alive: Dict[ProcessIdentity, bool] = {}

        def lives(owner: ProcessIdentity) -> bool:
            if owner not in alive:
                alive[owner] = owner.alive(boot)
            return alive[owner]

        self.held = {key: item for key, item in self.held.items() if lives(item.owner)}
        self.queue = {key: item for key, item in self.queue.items() if lives(item.owner)}

    def grant(self, now: float) -> None:
        """Grant what can be granted now."""
        held = [item.usage for item in self.held.values()]
        decision = allocation.decide(held, [item.queued for item in self.queue.values()], now)
        for grant in decision.grants:
            pending = self.queue[grant.app]
            container_id = f"{pending.prefix}{pending.next:06d}"
            self.held[container_id] = Reservation(
                container_id,
                pending.app,
                pending.name,
                pending.owner,
                grant.each.memory_mb,
                grant.each.vcores,
                grant.gpus,
                grant.role,
                grant.session,
                claimed=False,
            )
            self.queue[grant.app] = pending.granted(grant.role, grant.session)
        self.waits = decision.waits

    def claim(self, app: str) -> List[Reservation]:
        """Take the containers granted to the application since it last polled."""
        found = [item for item in self.held.values() if item.app == app and not item.claimed]
        for item in found:
            self.held[item.container_id] = item._replace(claimed=True)
        return found


class Ledger:
    """The file of this host."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = os.path.join(folder, processes.host() + ".json")

    def version(self) -> Tuple[int, int]:
        """A value that differs after every change; cheap to read."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_ino)

    def change(self, what: Optional[Callable[[LedgerState], None]] = None) -> LedgerState:
        """Under the lock, drop dead owners, call ``what``, and grant what has become free."""
        return self._transact(what, "")[0]

    def update(
        self, app: str, what: Optional[Callable[[LedgerState], None]] = None
    ) -> Tuple[List[Reservation], Optional[PendingRequest], str]:
        """:meth:`change`, then what the application was granted, still wants, and waits for."""
        state, claimed, pending = self._transact(what, app)
        return claimed, pending, state.waits.get(app, "")

    def reservations(self) -> List[Reservation]:
        """The reservations of living owners; takes no lock and changes nothing."""
        state = self._read()
        state.prune()
        return list(state.held.values())

    def free(self, container_ids: Sequence[str]) -> None:
        """Give back what these containers have reserved."""

        def drop(state: LedgerState) -> None:
            for container_id in container_ids:
                state.held.pop(container_id, None)

        self.change(drop)

    def reserve(self, reservations: Sequence[Reservation]) -> None:
        """Write down reservations that exist in any case: of started or inherited containers."""

        def put(state: LedgerState) -> None:
            for item in reservations:
                state.held[item.container_id] = item

        self.change(put)

    def remove_app(self, app: str) -> None:
        """Drop an application's reservations and requests."""

        def drop(state: LedgerState) -> None:
            state.queue.pop(app, None)
            state.held = {key: item for key, item in state.held.items() if item.app != app}

        self.change(drop)

    def _transact(
        self, what: Optional[Callable[[LedgerState], None]], app: str
    ) -> Tuple[LedgerState, List[Reservation], Optional[PendingRequest]]:
        with self._locked():
            before = self._read()
            state = LedgerState(dict(before.held), dict(before.queue), {})
            state.prune()
            if what is not None:
                what(state)
            state.grant(time.monotonic())
            claimed = state.claim(app)
            pending = state.queue.get(app)
            if pending is not None and not pending.groups:
                del state.queue[app]
            if (state.held, state.queue) != (before.held, before.queue):
                self._write(state)
        return state, claimed, pending

    @contextmanager
    def _locked(self) -> Iterator[None]:
        home.make_folder(self._folder)
        path = self._path + ".lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            end = time.monotonic() + LOCK_S
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise SchedulerError(
                            f"waited {LOCK_S:.0f} s for the lock {path}; another process holds it "
                            "(stopped, perhaps)"
                        ) from None
                    time.sleep(0.002)
            yield
        finally:
            os.close(handle)

    def _read(self) -> LedgerState:
        data = home.read_json(self._path) or {}
        try:
            held = [Reservation.from_json(item) for item in data.get("held", ())]
            queue = [PendingRequest.from_json(item) for item in data.get("queue", ())]
        except (KeyError, TypeError, ValueError, AssertionError) as error:
            raise SchedulerError(
                f"{self._path} is not a ledger of this version ({error!r}); when no job of "
                "yours runs, remove it"
            ) from None
        return LedgerState(
            {item.container_id: item for item in held}, {item.app: item for item in queue}, {}
        )

    def _write(self, state: LedgerState) -> None:
        home.write_json(
            self._path,
            {
                "held": [item.to_json() for item in state.held.values()],
                "queue": [item.to_json() for item in state.queue.values()],
            },
        )


def _group(group: RequestGroup) -> List[Any]:
    # Only optional ones carry the mark: masters of earlier versions read the others.
    return [
        group.whole,
        [_request(request) for request in group.requests],
        *([True] if group.optional else []),
    ]


def _request(request: RoleRequest) -> List[Any]:
    each = request.each
    return [request.role, request.session, request.count, each.memory_mb, each.gpus, each.vcores]

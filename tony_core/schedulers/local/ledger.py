"""The ledger: what of this machine is held by whose containers, shared by all jobs.

Theory of operation
===================

One file for each host, changed only under a file lock, by whichever master has something to
say: it asks, gives back, or looks whether it may be granted something by now. Every change
ends with the same pure decision (:mod:`allocation`) over everybody's asks, so whoever
changes the ledger grants for all; the others find their grants the next time they look.

Every entry names its owner as a process that can be told dead from anywhere (pid, start
time, boot id): the master for what it asks and was granted, the shim from the moment it
runs. Each look drops what belongs to the dead, so a share is free as soon as its owner is
gone, however it went; and nothing of before a reboot counts.

Waiting times are on the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from tony_core.schedulers.local.allocation import Capacity, Demand, Group, Held, Queued, Want
from tony_core.schedulers.local.processes import Identity
from tony_core.schedulers.port import SchedulerError

LOCK_S = 10.0


class Holding(NamedTuple):
    """One container's share."""

    container_id: str
    app: str
    name: str
    owner: Identity
    memory_mb: int
    vcores: int
    gpus: Tuple[str, ...]
    role: str = ""
    session: int = -1
    claimed: bool = True  # its master knows that it was granted

    @property
    def held(self) -> Held:
        """As the decision sees it."""
        return Held(self.app, self.name, self.memory_mb, self.gpus, self.vcores)

    def to_json(self) -> Dict[str, Any]:
        """Plain data."""
        return {**self._asdict(), "owner": self.owner.to_json(), "gpus": list(self.gpus)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Holding:
        """What :meth:`to_json` wrote."""
        owner = Identity.from_json(data["owner"])
        assert owner is not None
        return cls(**{**data, "owner": owner, "gpus": tuple(data["gpus"])})


class Asking(NamedTuple):
    """What one application wants, and what its next containers are called."""

    app: str
    name: str
    owner: Identity
    since: float
    capacity: Capacity
    groups: Tuple[Group, ...]
    prefix: str
    next: int

    @property
    def queued(self) -> Queued:
        """As the decision sees it."""
        return Queued(self.app, self.name, self.since, self.capacity, self.groups)

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
    def from_json(cls, data: Mapping[str, Any]) -> Asking:
        """What :meth:`to_json` wrote."""
        owner = Identity.from_json(data["owner"])
        assert owner is not None
        memory, gpus, vcores = data["capacity"]
        groups = tuple(
            Group(whole, tuple(Want(w[0], w[1], w[2], Demand(*w[3:])) for w in wants), *spare)
            for whole, wants, *spare in data["groups"]
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

    def granted(self, role: str, session: int) -> Asking:
        """The same, with one container less to want and the next name used up."""
        groups: List[Group] = []
        done = False
        for group in self.groups:
            wants: List[Want] = []
            for want in group.wants:
                if not done and (want.role, want.session) == (role, session) and want.count:
                    done = True
                    want = replace(want, count=want.count - 1)
                if want.count:
                    wants.append(want)
            if wants:
                groups.append(group._replace(wants=tuple(wants)))
        return self._replace(groups=tuple(groups), next=self.next + 1)


@dataclass
class Book:
    """The ledger's content, while its lock is held."""

    held: Dict[str, Holding]
    queue: Dict[str, Asking]
    waits: Dict[str, str]

    def prune(self) -> None:
        """Drop what belongs to the dead."""
        boot = processes.boot_id()
        alive: Dict[Identity, bool] = {}

        def lives(owner: Identity) -> bool:
            if owner not in alive:
                alive[owner] = owner.alive(boot)
            return alive[owner]

        self.held = {key: item for key, item in self.held.items() if lives(item.owner)}
        self.queue = {key: item for key, item in self.queue.items() if lives(item.owner)}

    def grant(self, now: float) -> None:
        """Hand out what can be handed out."""
        held = [item.held for item in self.held.values()]
        decision = allocation.decide(held, [item.queued for item in self.queue.values()], now)
        for grant in decision.grants:
            asking = self.queue[grant.app]
            container_id = f"{asking.prefix}{asking.next:06d}"
            self.held[container_id] = Holding(
                container_id,
                asking.app,
                asking.name,
                asking.owner,
                grant.each.memory_mb,
                grant.each.vcores,
                grant.gpus,
                grant.role,
                grant.session,
                claimed=False,
            )
            self.queue[grant.app] = asking.granted(grant.role, grant.session)
        self.waits = decision.waits

    def claim(self, app: str) -> List[Holding]:
        """What was granted to the application since it last looked."""
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
        """Something that differs after every change; cheap to ask for."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_ino)

    def change(self, what: Optional[Callable[[Book], None]] = None) -> Book:
        """Under the lock: drop the dead, do ``what``, and hand out what has become free."""
        return self._transact(what, "")[0]

    def settle(
        self, app: str, what: Optional[Callable[[Book], None]] = None
    ) -> Tuple[List[Holding], Optional[Asking], str]:
        """:meth:`change`, then what the application was granted, still wants, and waits for."""
        book, claimed, asking = self._transact(what, app)
        return claimed, asking, book.waits.get(app, "")

    def holdings(self) -> List[Holding]:
        """What the living hold; to be looked at, without the lock and without a change."""
        book = self._read()
        book.prune()
        return list(book.held.values())

    def free(self, container_ids: Sequence[str]) -> None:
        """Give back; silence for what is not held."""

        def drop(book: Book) -> None:
            for container_id in container_ids:
                book.held.pop(container_id, None)

        self.change(drop)

    def hold(self, holdings: Sequence[Holding]) -> None:
        """Write down shares that are held in any case: a container was started, or inherited."""

        def put(book: Book) -> None:
            for item in holdings:
                book.held[item.container_id] = item

        self.change(put)

    def forget(self, app: str) -> None:
        """Drop all that an application holds and asks for."""

        def drop(book: Book) -> None:
            book.queue.pop(app, None)
            book.held = {key: item for key, item in book.held.items() if item.app != app}

        self.change(drop)

    def _transact(
        self, what: Optional[Callable[[Book], None]], app: str
    ) -> Tuple[Book, List[Holding], Optional[Asking]]:
        with self._locked():
            before = self._read()
            book = Book(dict(before.held), dict(before.queue), {})
            book.prune()
            if what is not None:
                what(book)
            book.grant(time.monotonic())
            claimed = book.claim(app)
            asking = book.queue.get(app)
            if asking is not None and not asking.groups:
                del book.queue[app]
            if (book.held, book.queue) != (before.held, before.queue):
                self._write(book)
        return book, claimed, asking

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

    def _read(self) -> Book:
        data = home.read_json(self._path) or {}
        try:
            held = [Holding.from_json(item) for item in data.get("held", ())]
            queue = [Asking.from_json(item) for item in data.get("queue", ())]
        except (KeyError, TypeError, ValueError, AssertionError) as error:
            raise SchedulerError(
                f"{self._path} is not a ledger of this version ({error!r}); when no job of "
                "yours runs, remove it"
            ) from None
        return Book(
            {item.container_id: item for item in held}, {item.app: item for item in queue}, {}
        )

    def _write(self, book: Book) -> None:
        home.write_json(
            self._path,
            {
                "held": [item.to_json() for item in book.held.values()],
                "queue": [item.to_json() for item in book.queue.values()],
            },
        )


def _group(group: Group) -> List[Any]:
    # Spare ones alone say so: a master of an earlier version reads the others.
    return [group.whole, [_want(want) for want in group.wants], *([True] if group.spare else [])]


def _want(want: Want) -> List[Any]:
    each = want.each
    return [want.role, want.session, want.count, each.memory_mb, each.gpus, each.vcores]

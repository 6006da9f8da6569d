"""A pool on a fake YARN, driven as a master drives it, with a look at both sides' books.

:class:`Driver` launches what it is given at once (by default), keeps every event, and
checks what must hold whatever went wrong: nothing is launched twice, each end is reported once,
what the master holds is what the ResourceManager counts, and nothing is left in the end.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any, Callable, Dict, List, Optional, Set, Type, TypeVar

from tests.cluster.fakeyarn.cluster import FakeYarn
from tony_core.exit_causes import ExitCause
from tony_core.hadoop.credentials import Credentials, am_rm_token
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.tokens import Token
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId
from tony_core.hadoop.yarn.launch import Launch
from tony_core.hadoop.yarn.messages.client_calls import ApplicationSubmissionContext
from tony_core.hadoop.yarn.records import Capability
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.job.spec import Job, Resources, Role
from tony_core.schedulers import container_pool, port
from tony_core.schedulers.yarn.master.application import Application
from tony_core.schedulers.yarn.master.launch_context import LaunchContexts
from tony_core.schedulers.yarn.master.pool import YarnPool
from tony_core.schedulers.yarn.master.pool_factory import connect_pool

SMALL = Resources(memory_mb=64)
WAIT_S = 60.0

E = TypeVar("E", bound=container_pool.PoolEvent)


class Driver:
    """See the module. A context manager; every attempt of its application begins by ``open``."""

    def __init__(self, yarn: FakeYarn, roles: int = 3, attempts: int = 3) -> None:
        self.yarn = yarn
        self.client = RmClient.open(yarn.configuration, identity=ClusterIdentity(yarn.user))
        self._roles = tuple(Role(f"role{n}", 1, SMALL, "true") for n in range(roles))
        self._attempts = attempts
        self._changed = threading.Condition(threading.RLock())
        self.events: List[container_pool.PoolEvent] = []
        self.held: Dict[str, container_pool.Container] = {}
        self.launched: List[str] = []
        self.superseded: List[str] = []
        self.log: List[str] = []
        self.launch_at_once = True
        self.refills = False
        """Whether it asks anew for what could not be launched, as a master would."""
        self._refilled = 0
        self.pool: Optional[YarnPool] = None
        self.app = self._submit()

    def __enter__(self) -> Driver:
        self.open(1)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.client.close()

    # ---------------------------------------------------------------- the application

    def _submit(self) -> ApplicationId:
        app = self.client.new_application().id
        self.client.submit(
            ApplicationSubmissionContext(
                application_id=app.to_message(),
                application_name="driven",
                am_container_spec=Launch(("sleep 600",)).to_message(),
                application_type="TONY",
                resource=Capability(64, 1).to_message(),
                max_app_attempts=self._attempts,
                keep_containers_across_application_attempts=True,
            )
        )
        return app

    def _token(self, attempt: AttemptId) -> Token:
        """Out of the master's container, which otherwise does nothing."""
        found: List[Token] = []

        def look() -> bool:
            for one in self.yarn.running():
                if one.id.attempt == attempt and one.id.serial == 1:
                    token = am_rm_token(Credentials.decode(one.launch.tokens))
                    assert token is not None
                    found.append(token)
            return bool(found)

        self.yarn.until(look, f"the master's container of {attempt}", WAIT_S)
        return found[0]

    def open(self, number: int) -> container_pool.PoolInfo:
        """The pool of an attempt."""
        attempt = AttemptId(self.app, number)
        token = self._token(attempt)
        application = Application(
            attempt,
            self.yarn.user,
            self._attempts,
            "127.0.0.1",
            with_port=self.yarn.rm.limits.names_with_port,
        )
        job = Job("driven", self._roles)
        self.pool = connect_pool(
            self.yarn.configuration,
            application,
            job,
            LaunchContexts(),
            token,
            ClusterIdentity(self.yarn.user),
            superseded=self.superseded.append,
        )
        return self.pool.start(self._on_event, "http://127.0.0.1:1/")

    def next_attempt(self) -> container_pool.PoolInfo:
        """The master dies without a word, and YARN starts another."""
        with self.yarn.reactor.lock:
            before = self.yarn.rm.applications[self.app].attempt
            assert before.master is not None
            self.yarn.rm.managers[before.master.node].kill(before.master.id, 137, "killed\n")
        self.close()
        with self._changed:
            self.held.clear()
        return self.open(before.id.number + 1)

    def close(self) -> None:
        """As a process that ends."""
        if self.pool is not None:
            self.pool.close()
            self.pool = None

    @property
    def _pool(self) -> YarnPool:
        assert self.pool is not None
        return self.pool

    # ---------------------------------------------------------------- events

    def _on_event(self, event: container_pool.PoolEvent) -> None:
        with self._changed:
            self.events.append(event)
            if isinstance(event, (container_pool.Allocated, container_pool.PreviousContainers)):
                for container in event.containers:
                    self.held[container.id] = container
                    if isinstance(event, container_pool.Allocated) and self.launch_at_once:
                        self.launch(container)
            if isinstance(event, container_pool.Completed):
                self.held.pop(event.container_id, None)
                if self.refills and event.cause in (ExitCause.LAUNCH, ExitCause.LOST):
                    self._refilled += 1
                    self.request(1, session=1000 + self._refilled)
            self._changed.notify_all()

    def launch(self, container: container_pool.Container) -> None:
        self.launched.append(container.id)
        self._pool.launch(container, container_pool.Launch(("true",), {}, ()))

    def request(self, count: int, role: int = 0, session: int = 0, **more: Any) -> None:
        """Absolutely, under role and session."""
        self._pool.request(
            [container_pool.ContainerRequest(f"role{role}", session, count, SMALL, **more)], True
        )

    def stop(self, count: int) -> None:
        """Some of what runs."""
        with self._changed:
            names = sorted(self.held)[:count]
        for name in names:  # without our lock: the pool takes it while it holds its own
            self._pool.stop(name)

    def events_of(self, kind: Type[E], where: Callable[[E], bool] = lambda _: True) -> List[E]:
        """All events of a kind so far."""
        with self._changed:
            return [one for one in self.events if isinstance(one, kind) and where(one)]

    def wait(self, what: Callable[[], Any], reason: str, within_s: float = WAIT_S) -> None:
        """Until something is true; looked at after every event, and now and then."""
        end = time.monotonic() + within_s
        with self._changed:
            while not what():
                left = end - time.monotonic()
                assert left > 0, f"waited {within_s} s: {reason}; heard {self.events[-5:]}"
                self._changed.wait(min(left, 0.02))

    def wait_held(self, count: int, within_s: float = WAIT_S) -> None:
        self.wait(lambda: len(self.held) >= count, f"{count} containers", within_s)

    def running(self) -> Set[str]:
        """What the nodes run, less masters."""
        return {
            str(one.id)
            for one in self.yarn.running()
            if one.id.attempt.application == self.app and one.id.serial != 1
        }

    def live(self) -> Set[str]:
        """What the ResourceManager counts, less masters."""
        return {str(one.id) for one in self.yarn.live() if one.id.attempt.application == self.app}

    # ---------------------------------------------------------------- what must hold

    def check(self) -> None:
        """Nothing was launched twice, no end was reported twice, no start after it."""
        twice = [one for one, n in Counter(map(str, self.yarn.started())).items() if n > 1]
        assert twice == [], f"launched twice: {twice}"
        ends = Counter(one.container_id for one in self.events_of(container_pool.Completed))
        assert [one for one, n in ends.items() if n > 1] == [], "an end was reported twice"
        given = Counter(
            c.id for one in self.events_of(container_pool.Allocated) for c in one.containers
        )
        assert [one for one, n in given.items() if n > 1] == [], "granted twice"
        seen: Set[str] = set()
        for event in self.events:
            if isinstance(event, container_pool.Completed):
                seen.add(event.container_id)
            if isinstance(event, container_pool.Started):
                assert event.container_id not in seen, f"{event} after its end"

    def settled(self, count: int) -> None:
        """The master holds so many, and both sides' books say the same."""
        self.wait(
            lambda: len(self.held) == count and set(self.held) == self.live() == self.running(),
            f"{count} held, counted and running alike: {len(self.held)} held, "
            f"{len(self.live())} counted, {len(self.running())} running",
        )
        self.check()

    def reported(self) -> None:
        """The ResourceManager knows from the nodes what they run: from then on it is kept."""
        self.wait(
            lambda: all(one.state == "RUNNING" for one in self.yarn.live()), "the nodes' reports"
        )

    def end(self) -> None:
        """Stop everything and finish: nothing may be left."""
        for container in list(self.held):
            self._pool.stop(container)
        self.wait(lambda: not self.held, "the ends of all")
        self.wait(lambda: not self.live(), "an empty book")
        self.check()
        self._pool.finish(port.AppState.SUCCEEDED, "all well")
        self.close()
        self.yarn.until(lambda: not self.running(), "empty nodes")

    def container(self, name: str) -> ContainerId:
        return ContainerId.parse(name)

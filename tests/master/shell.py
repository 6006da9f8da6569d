"""A real master shell in the test's process, between a pool and executors that tests script.

Everything between them is real: the protocol over TCP, the session machine, the page over
HTTP, the journal and history on disk. Only what grants containers and what runs programs is
played by the test, because it must misbehave in the right moment.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar

from tests.master.reactors import Running
from tony_core.exit_causes import ExitCause
from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.job.spec import Job, MasterSpec, Resources, Role, Timeouts
from tony_core.master.master import Master
from tony_core.protocol.channel import Channel
from tony_core.protocol.job_secret import executor_key, transport_factory, unpack_secret
from tony_core.protocol.link import Link, dial, listen
from tony_core.protocol.messages import (
    Acknowledge,
    Ended,
    Message,
    Prepare,
    Ready,
    Register,
    Start,
    Welcome,
)
from tony_core.protocol.messages import Running as Runs
from tony_core.schedulers.container_pool import (
    Allocated,
    Completed,
    Container,
    ContainerPool,
    ContainerRequest,
    Launch,
    MasterContext,
    PoolEvent,
    PoolInfo,
    PreviousContainers,
)
from tony_core.schedulers.port import AppState

SECRET = b"a secret of 32 bytes, or nearly."
PATIENCE_S = 60.0
M = TypeVar("M", bound=Any)


def until(what: Callable[[], Any], why: str = "it to happen") -> Any:
    """Wait for a true value, for not too long."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, f"timed out waiting for {why}"
        time.sleep(0.005)


def a_job(*roles: Role, **changes: Any) -> Job:
    """Two workers by default; quick clocks."""
    settings: Dict[str, Any] = {
        "framework": "standalone",
        "user": "tester",
        "timeouts": Timeouts(heartbeat_s=0.1, max_missed_heartbeats=20, kill_grace_s=0.2),
        "master": MasterSpec(user_retries=1),
        **changes,
    }
    return Job("trial", roles or (Role("worker", 2, Resources(), "true"),), **settings)


class ScriptedPool(ContainerPool):
    """Grants what is asked for, at once; records its calls."""

    def __init__(self, previous: Sequence[Container] = (), **info: Any) -> None:
        self.sink: Callable[[PoolEvent], None] = lambda event: None
        self.page_url = ""
        self.launched: Dict[str, Launch] = {}
        self.roles: Dict[str, str] = {}
        self.stopped: List[str] = []
        self.waves: List[str] = []
        self.reports: List[Tuple[float, str]] = []
        self.finished: Optional[Tuple[AppState, str]] = None
        self.ended_at = ""
        self.closed = False
        self.generous = True
        self.obedient = True  # what is stopped ends
        self.previous = previous
        self._info = info
        self._count = 0
        self._ended: set[str] = set()

    def start(self, sink: Callable[[PoolEvent], None], page_url: str) -> PoolInfo:
        self.sink, self.page_url = sink, page_url
        attempt = self._info.get("attempt", 1)
        if attempt > 1:
            for item in self.previous:
                self.roles[item.id] = item.role
            sink(PreviousContainers(tuple(self.previous)))
        more = {name: value for name, value in self._info.items() if name != "attempt"}
        return PoolInfo("app_1", attempt, "tester", "default", settle_s=0.05, **more)

    def request(self, requests: Sequence[ContainerRequest], gang: bool) -> None:
        for wanted in requests:
            for _ in range(wanted.count if self.generous else 0):
                self.grant(wanted.role)

    def grant(self, role: str) -> Container:
        """One container."""
        self._count += 1
        attempt = self._info.get("attempt", 1)
        made = Container(f"c{attempt}-{self._count}", "node1", role, Resources(), log_url="")
        self.roles[made.id] = role
        self.sink(Allocated((made,)))
        return made

    def release(self, container_id: str) -> None:
        self.waves.append(container_id)

    def launch(self, container: Container, launch: Launch) -> None:
        self.launched[container.id] = launch

    def stop(self, container_id: str) -> None:
        self.stopped.append(container_id)
        if self.obedient:
            self.end(container_id, 143, ExitCause.RELEASED)

    def end(self, container_id: str, code: int = 0, cause: ExitCause = ExitCause.EXITED) -> None:
        """A container ends, once."""
        if container_id not in self._ended:
            self._ended.add(container_id)
            self.sink(Completed(container_id, code, cause, "as the test wished"))

    def report(self, progress: float, tracking_url: str, trouble: str = "") -> None:
        self.reports.append((progress, tracking_url))

    def finish(self, state: AppState, diagnostics: str, tracking_url: str = "") -> None:
        self.finished = (state, diagnostics)
        self.ended_at = tracking_url

    def close(self) -> None:
        self.closed = True


class ScriptedExecutor:
    """One connection to a master, and all that came over it."""

    def __init__(self, running: Running, container_id: str, secret: bytes) -> None:
        self.container_id = container_id
        self.registers_as = container_id
        self.received: List[Message] = []
        self.closed: Optional[str] = None
        self.link: Optional[Link] = None
        self._running = running
        self._key = unpack_secret(secret)
        self._make_transport = transport_factory(self._key, master=False)
        self._listener = running.do(lambda: listen(running.reactor, "127.0.0.1", 0, self._accepted))
        self.port = self._listener.port
        self.first: Dict[str, Any] = {}  # what Register says besides

    def dial(self, address: str) -> None:
        """Call the master."""
        self._running.do(
            lambda: dial(self._running.reactor, address, self._connected, self._failed)
        )

    def _connected(self, sock: Any) -> None:
        self._make(sock, dialler=True)

    def _accepted(self, sock: Any) -> None:
        self._make(sock, dialler=False)

    def _make(self, sock: Any, dialler: bool) -> None:
        channel = Channel(
            self._key.secret,
            dialler,
            container_id=self.container_id,
            binding=self._key.fingerprint,
        )
        self.closed = None
        self.link = Link(
            self._running.reactor,
            self._make_transport(sock),
            channel,
            self._message,
            self._closed,
            self._established,
        )

    def _established(self, link: Link) -> None:
        link.send(Register(self.registers_as, "127.0.0.1", self.port, 99, "0", **self.first))

    def _failed(self, reason: str) -> None:
        self.closed = reason

    def _message(self, link: Link, message: Message) -> None:
        self.received.append(message)

    def _closed(self, link: Link, reason: str) -> None:
        self.closed = reason

    def send_messages(self, *messages: Message) -> None:
        """Sends these over the executor's connection."""

        def send() -> None:
            assert self.link is not None
            for message in messages:
                self.link.send(message)

        self._running.do(send)

    def hang_up(self) -> None:
        """Close the connection, as a dying process does."""

        def close() -> None:
            if self.link is not None:
                self.link.close()

        self._running.do(close)

    def close(self) -> None:
        """Connection and listener."""
        self.hang_up()
        self._running.do(self._listener.close)

    def wait_for(self, kind: Type[M], count: int = 1) -> M:
        """The newest message of a type, once there are that many."""

        def find() -> Any:
            found = [message for message in self.received if isinstance(message, kind)]
            return found[-1] if len(found) >= count else None

        return until(
            find, f"{kind.__name__} x {count} at {self.container_id}; received {self.received}"
        )


class Shell:
    """A master at work."""

    def __init__(
        self,
        folder: Path,
        job: Job,
        pool: Optional[ScriptedPool] = None,
        attempt: int = 1,
        context: Optional[Mapping[str, Any]] = None,
        state_dir: str = "",
        secret: bytes = SECRET,
    ) -> None:
        self.folder = folder
        self.pool = pool or ScriptedPool(attempt=attempt)
        self.history = folder / "history" / "app_1"
        job_dir = folder / "apps" / "app_1" / "job"
        job_dir.mkdir(parents=True, exist_ok=True)
        (job_dir / "secret").write_bytes(secret)
        work = folder / "work"
        work.mkdir(exist_ok=True)
        self.job_dir = job_dir
        self.context = MasterContext(
            app_id="app_1",
            attempt=attempt,
            job_dir=str(job_dir),
            work_dir=str(work),
            state_dir=state_dir or str(folder),
            history_dir=str(self.history),
            secret=secret,
            **(context or {}),
        )
        artifacts = (Artifact("tony-runtime", Use.RUNTIME, Kind.FOLDER, "/r", "/r"),)
        self.master = Master(self.context, self.pool, job, artifacts, b"<configuration/>")
        self.error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run)
        self.running = Running()
        self.executors: Dict[str, ScriptedExecutor] = {}

    def _run(self) -> None:
        try:
            self.master.run()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Shell:
        self.running.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._thread.is_alive() and self.pool.finished is None:
            self.kill("the test is over")
        try:
            if kind is None:
                self.join()
        finally:
            self.abandon()
        if kind is None and self.error is not None:
            raise self.error

    def abandon(self) -> None:
        """End it without a word, as a SIGKILL would; sockets and threads are given back."""
        master = self.master
        master.reactor.call_soon_threadsafe(master.reactor.stop)
        self._thread.join(PATIENCE_S)
        master.close()
        for executor in self.executors.values():
            executor.close()
        self.executors.clear()
        if self.running._thread.is_alive():
            self.running.__exit__(None, None, None)

    def join(self) -> Tuple[AppState, str]:
        """The job's end, as the scheduler got it."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the master did not end"
        if self.error is not None:
            raise self.error
        assert self.pool.finished is not None
        return self.pool.finished

    def kill(self, reason: str, by_user: bool = True) -> None:
        """As SIGTERM does."""
        self.master.reactor.call_soon_threadsafe(self.master.kill, reason, by_user)

    # ------------------------------------------------------------------ executors

    @property
    def address(self) -> str:
        """Where executors call."""
        return until(lambda: self.master.executors_call, "the master's port")

    def launched(self, count: int) -> List[str]:
        """The containers in which an executor was started, once there are that many."""
        until(lambda: len(self.pool.launched) >= count, f"{count} launches")
        return list(self.pool.launched)

    def executor(self, container_id: str, **first: Any) -> ScriptedExecutor:
        """An executor that called."""
        key = executor_key(self.context.secret, container_id)
        made = ScriptedExecutor(self.running, container_id, key)
        made.first = first
        made.dial(self.address)
        self.executors[container_id] = made
        made.wait_for(Welcome)
        return made

    def ready(self, container_id: str, **ports: int) -> ScriptedExecutor:
        """... and got ready for its task."""
        made = self.executor(container_id)
        prepare = made.wait_for(Prepare)
        given = {name: 5000 + at for at, name in enumerate(prepare.ports)}
        made.send_messages(Ready(prepare.session, "127.0.0.1", {**given, **ports}))
        return made

    def gang(self, count: int) -> List[ScriptedExecutor]:
        """That many executors whose programs run."""
        made = [self.ready(container_id) for container_id in self.launched(count)]
        for executor in made:
            start = executor.wait_for(Start)
            executor.send_messages(Runs(start.session, 1234))
        return made

    def finish(self, *executors: ScriptedExecutor, code: int = 0, session: int = 0) -> None:
        """Their programs end; the executors get the acknowledgement, and exit."""
        for executor in executors:
            executor.send_messages(Ended(session, code, stderr_tail=["last words"] if code else []))
        for executor in executors:
            executor.wait_for(Acknowledge)

    def go(self, *executors: ScriptedExecutor) -> None:
        """They exit on Shutdown, and so do their containers."""
        for executor in executors:
            until(
                lambda executor=executor: [
                    m for m in executor.received if type(m).__name__ == "Shutdown"
                ],
                f"Shutdown at {executor.container_id}",
            )
            executor.hang_up()
            self.pool.end(executor.container_id)

    # ------------------------------------------------------------------ the page

    def get(
        self, path: str, method: str = "GET", body: Optional[bytes] = None, **headers: str
    ) -> Tuple[int, bytes, Mapping[str, str]]:
        """(status, body, headers) of the job's page."""
        host, _, port = self.pool.page_url[len("http://") : -1].rpartition(":")
        connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=PATIENCE_S)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body=body, headers=named)
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        """A JSON answer."""
        status, body, _ = self.get(path)
        assert status == 200, (status, body)
        return json.loads(body)

    def story(self, kind: str) -> List[str]:
        """The texts of the story's lines of one kind."""
        events = self.json("/api/events")["events"]
        return [event["text"] for event in events if event["kind"] == kind]

"""What every scheduler must do: the contract of ``schedulers/port.py`` as tests.

A scheduler's own test module gives a fixture named ``harness`` (a :class:`Harness`) and takes
these tests in by ``from tests.schedulers.contract import *``. Everything runs on real
processes; nothing here knows which scheduler it talks to.
"""

from __future__ import annotations

import json
import queue
import re
import signal
import sys
import time
import zipfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Callable, List, Optional, Type, TypeVar

import pytest

from tony_core.bundle import jobfolder
from tony_core.bundle.client import planning, staging
from tony_core.exit_causes import ExitCause
from tony_core.files.artifact import Artifact, Use
from tony_core.job.spec import FileRef, Job, Resources, Role
from tony_core.schedulers.container_pool import (
    Allocated,
    AllocationPending,
    Completed,
    Container,
    ContainerPool,
    ContainerRequest,
    Launch,
    PoolEvent,
    PoolInfo,
    PreviousContainers,
    RequestRejected,
    Started,
)
from tony_core.schedulers.port import AppState, LogRef, NoSuchApplication, Scheduler

SECRET = b"not for everybody"
SMALL = Resources(memory_mb=64)
WAIT_S = 50.0  # for what must happen; a healthy scheduler needs far less

E = TypeVar("E", bound=PoolEvent)


class Master:
    """A pool with its events, as a master holds it."""

    def __init__(self, pool: ContainerPool) -> None:
        self.pool = pool
        self.events: queue.SimpleQueue[PoolEvent] = queue.SimpleQueue()
        self.received: List[PoolEvent] = []
        self.info: Optional[PoolInfo] = None
        self.closed = False

    def start(self) -> Master:
        self.info = self.pool.start(self._on_event, "http://localhost:1/")
        return self

    def _on_event(self, event: PoolEvent) -> None:
        assert not self.closed, f"{event} came after close"
        self.events.put(event)

    def next(self, kind: Type[E], where: Callable[[E], bool] = lambda _: True) -> E:
        """The next event of that kind; others before it are kept in ``received``."""
        end = time.monotonic() + WAIT_S
        while True:
            try:
                event = self.events.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {kind.__name__}; heard {self.received}") from None
            self.received.append(event)
            if isinstance(event, kind) and where(event):
                return event

    def quiet(self, seconds: float, kind: type) -> None:
        """Nothing of that kind comes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                event = self.events.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return
            self.received.append(event)
            assert not isinstance(event, kind), event

    def get(
        self, count: int = 1, resources: Resources = SMALL, gang: bool = True
    ) -> List[Container]:
        """Ask for containers and wait until they are granted."""
        self.pool.request([ContainerRequest("worker", 0, count, resources)], True)
        found: List[Container] = []
        while len(found) < count:
            found += self.next(Allocated).containers
        return found

    def run(self, code: str, resources: Resources = SMALL, **env: str) -> Container:
        """A Python program in a container of its own."""
        (container,) = self.get(resources=resources)
        self.launch(container, code, **env)
        return container

    def launch(self, container: Container, code: str, **env: str) -> None:
        argv = (sys.executable, "-I", "-S", "-c", code)
        self.pool.launch(container, Launch(argv, env, (), SECRET))

    def end_of(self, container: Container) -> Completed:
        """How it ended, also when that came while something else was waited for."""
        for event in self.received:
            if isinstance(event, Completed) and event.container_id == container.id:
                return event
        return self.next(Completed, lambda event: event.container_id == container.id)

    def close(self) -> None:
        self.pool.close()
        self.closed = True


class Harness(ABC):
    """What a scheduler's test module gives: applications, masters, and a look at processes."""

    scheduler: Scheduler

    @abstractmethod
    def master(self, name: str = "first") -> Master:
        """A started master of a new application, in this process."""

    @abstractmethod
    def next_master(self, master: Master) -> Master:
        """The next attempt of the same application; the one before was closed."""

    @abstractmethod
    def most_memory_mb(self) -> int:
        """What one application may have at most."""

    @abstractmethod
    def submit(self, **instructions: Any) -> str:
        """Submit an application whose master is ``standin.py``; its id."""

    @abstractmethod
    def artifacts(self) -> List[Artifact]:
        """What a job's staging gives, our own code at least."""

    @abstractmethod
    def kill_master(self, app_id: str) -> None:
        """Its master dies by SIGKILL."""

    sweeps = True
    """Whether the scheduler itself finds what left a container's process group. Where it does
    not (YARN), the executor does: ``tests/executor/test_sweep.py``."""

    at_once = True
    """Whether an application's processes are gone when ``kill`` returns, or its state says that
    it has ended; on YARN they are a moment later."""

    def acknowledged(self) -> None:
        """Wait until the scheduler knows that the masters have received its events: what it
        does not know to be received may be reported to a next master again."""

    def events_file(self, app_id: str) -> Path:
        """What the stand-in master of an application writes down."""
        root = Path(self.scheduler.staging_root(harness_job()))
        return root / "apps" / app_id / "events.jsonl"

    def gone(self, marker: str) -> None:
        """Nothing with this word in its command line runs any more."""
        if not self.at_once:
            until(lambda: not running(marker), "the end of all its processes")
        assert running(marker) == []


def until(what: Callable[[], Any], reason: str) -> Any:
    """Its first true value."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited {WAIT_S} s: {reason}")


def running(marker: str) -> List[int]:
    """The processes with this word in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if marker.encode() in words and state != "Z":
                found.append(int(entry.name))
    return found


# --------------------------------------------------------------------------- containers


def test_a_container_is_granted_launched_and_ends(harness: Harness) -> None:
    master = harness.master()
    (container,) = master.get(resources=Resources(memory_mb=64, vcores=1))
    assert container.role == "worker"
    assert container.node
    assert container.resources.memory_mb >= 64
    master.launch(container, "pass")
    end = master.end_of(container)
    assert (end.exit_code, end.cause) == (0, ExitCause.EXITED)
    kinds = [type(event) for event in master.received if not isinstance(event, AllocationPending)]
    assert kinds == [Allocated, Started, Completed]


def test_the_master_gets_what_the_scheduler_knows(harness: Harness) -> None:
    info = harness.master().info
    assert info is not None
    assert info.app_id
    assert info.attempt == 1
    assert info.user
    assert info.master_lost_s > 0
    assert info.can_restart_master


@pytest.mark.parametrize("code", [1, 77])
def test_an_exit_code_is_passed_on(harness: Harness, code: int) -> None:
    master = harness.master()
    container = master.run(f"import sys; print('last words', file=sys.stderr); sys.exit({code})")
    end = master.end_of(container)
    assert (end.exit_code, end.cause) == (code, ExitCause.EXITED)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_signal_is_an_exit_code_of_128_and_its_number(harness: Harness, number: int) -> None:
    master = harness.master()
    container = master.run(f"import os; os.kill(os.getpid(), {int(number)})")
    end = master.end_of(container)
    assert (end.exit_code, end.cause) == (128 + number, ExitCause.EXITED)


def test_what_cannot_start_completes_as_a_failed_launch(harness: Harness) -> None:
    master = harness.master()
    (container,) = master.get()
    master.pool.launch(container, Launch(("no-such-program-anywhere",), {}, ()))
    end = master.end_of(container)
    assert end.cause in (ExitCause.LAUNCH, ExitCause.EXITED)
    assert end.exit_code == 127
    assert "no-such-program-anywhere" in end.diagnostics
    master.quiet(0.3, Started)


def test_the_environment_names_the_container(harness: Harness) -> None:
    master = harness.master()
    container = master.run(
        "import os, sys; e = os.environ;"
        "ok = e['TONY_CONTAINER_ID'] == e['EXPECTED'] and e['TONY_NODE'] and e['TONY_APP_ID']"
        " and os.path.isabs(e['TONY_LOG_DIR']) and os.path.isdir(e['TONY_LOG_DIR'])"
        " and e['MINE'] == 'my own word';"
        "sys.exit(0 if ok else str(dict(e)))",
        MINE="my own word",
        EXPECTED="will be replaced",
    )
    end = master.end_of(container)
    assert end.exit_code == 1  # the id cannot be known before it is granted
    (container,) = master.get()
    master.launch(
        container,
        "import os, sys; sys.exit(os.environ['TONY_CONTAINER_ID'] != os.environ['EXPECTED'])",
        EXPECTED=container.id,
    )
    assert master.end_of(container).exit_code == 0


def test_the_secret_comes_as_a_private_file_only(harness: Harness) -> None:
    master = harness.master()
    container = master.run(
        "import os, stat, sys\n"
        "path = os.environ['TONY_SECRET_FILE']\n"
        "data = open(path, 'rb').read()\n"
        "mode = stat.S_IMODE(os.stat(path).st_mode)\n"
        f"assert len(data) == {len(SECRET)} and data.endswith(b'every' + b'body'), data\n"
        "assert mode == 0o600, oct(mode)\n"
        "seen = open('/proc/self/environ', 'rb').read() + open('/proc/self/cmdline', 'rb').read()\n"
        "assert data not in seen, seen\n"
        "parents = open('/proc/%d/cmdline' % os.getppid(), 'rb').read()\n"
        "assert data not in parents, parents\n"
    )
    assert master.end_of(container).exit_code == 0


def staged(harness: Harness, *files: FileRef) -> tuple[Artifact, ...]:
    """What planning and staging make of a role's resources."""
    job = harness_job()
    job = job.replace(roles=(job.roles[0]._replace(files=files),))
    root = harness.scheduler.staging_root(job)
    app_id = harness.scheduler.new_app_id(job)
    try:
        found = staging.stage(planning.plan(job, root), root, app_id, job, SECRET)
    finally:
        jobfolder.remove(root, app_id)
    return tuple(item for item in found if item.use is Use.RESOURCE)


def test_equal_content_arrives_under_every_name(harness: Harness, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("same")
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as packed:
        packed.writestr("inside.txt", "packed")
    files = staged(
        harness,
        FileRef(str(tmp_path / "a.txt"), "a.txt"),
        FileRef(str(tmp_path / "b.txt"), "b.txt"),
        FileRef(str(tmp_path / "data.zip"), "train", archive=True),
        FileRef(str(tmp_path / "data.zip"), "test", archive=True),
        FileRef(str(tmp_path / "data.zip"), "data.zip"),
    )
    master = harness.master()
    (container,) = master.get()
    code = (
        "import pathlib, zipfile;"
        "read = lambda name: pathlib.Path(name).read_text();"
        "assert read('a.txt') == read('b.txt') == 'same';"
        "assert read('train/inside.txt') == read('test/inside.txt') == 'packed';"
        "assert zipfile.is_zipfile('data.zip')"
    )
    argv = (sys.executable, "-I", "-S", "-c", code)
    master.pool.launch(container, Launch(argv, {}, files, SECRET))
    end = master.end_of(container)
    assert end.exit_code == 0, end.diagnostics


def test_a_gang_comes_whole(harness: Harness) -> None:
    master = harness.master()
    master.pool.request(
        [ContainerRequest("worker", 0, 2, SMALL), ContainerRequest("ps", 0, 1, SMALL)], True
    )
    found: List[Container] = []
    while len(found) < 3:
        found += master.next(Allocated).containers
    assert sorted(container.role for container in found) == ["ps", "worker", "worker"]
    assert len({container.id for container in found}) == 3
    for container in found:
        master.pool.release(container.id)


def test_what_can_never_fit_is_refused(harness: Harness) -> None:
    master = harness.master()
    much = Resources(memory_mb=harness.most_memory_mb() + 1)
    master.pool.request([ContainerRequest("worker", 0, 1, much)], False)
    refused = master.next(RequestRejected)
    assert refused.role == "worker"
    assert str(much.memory_mb) in refused.reason


def test_a_waiting_request_has_a_reason_and_is_granted_when_there_is_room(harness: Harness) -> None:
    first, second = harness.master("first"), harness.master("second")
    most = Resources(memory_mb=harness.most_memory_mb() * 2 // 3)
    (held,) = first.get(resources=most)
    second.pool.request([ContainerRequest("worker", 0, 1, most)], True)
    reason = second.next(AllocationPending).reason
    assert str(most.memory_mb) in reason
    second.quiet(0.3, Allocated)
    first.pool.release(held.id)
    (container,) = second.next(Allocated).containers
    assert container.role == "worker"


def test_a_withdrawn_ask_is_not_granted(harness: Harness) -> None:
    first, second = harness.master("first"), harness.master("second")
    most = Resources(memory_mb=harness.most_memory_mb() * 2 // 3)
    (held,) = first.get(resources=most)
    second.pool.request([ContainerRequest("worker", 0, 1, most)], True)
    second.next(AllocationPending)
    second.pool.request([ContainerRequest("worker", 0, 0, most)], True)
    second.quiet(0.3, Allocated)  # until the scheduler knows: the two do not wait for each other
    first.pool.release(held.id)
    second.quiet(0.5, Allocated)
    # ... and what it would have got is free.
    (again,) = first.get(resources=most)
    first.pool.release(again.id)


def test_released_memory_can_be_had_again(harness: Harness) -> None:
    master = harness.master()
    most = Resources(memory_mb=harness.most_memory_mb() * 2 // 3)
    for _ in range(3):
        (container,) = master.get(resources=most)
        master.pool.release(container.id)
        master.pool.release(container.id)
    container = master.run("pass", resources=most)
    master.end_of(container)
    (container,) = master.get(resources=most)


def test_over_its_memory_limit_a_container_is_killed(harness: Harness) -> None:
    master = harness.master()
    container = master.run(
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"  # what the child uses counts, wherever it hides
        "    waste = bytearray(180 << 20)\n"
        "    for i in range(0, len(waste), 4096): waste[i] = 1\n"
        "time.sleep(60)\n",
        resources=Resources(memory_mb=128),  # no scheduler rounds that up
    )
    end = master.end_of(container)
    assert end.cause is ExitCause.MEMORY
    assert end.exit_code != 0
    assert "128 MB" in end.diagnostics


STUBBORN = (
    "import os, signal, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork(): os._exit(0)\n"  # a daemon: its own session, its parent is gone
    "    if sys.argv[2:] == ['bare']:\n"
    "        os.execve(sys.executable, [sys.executable, '-I', '-S', '-c',\n"
    "            'import time; time.sleep(60)', sys.argv[1]], {})\n"
    "print('here', flush=True)\n"
    "time.sleep(60)\n"
)


def _stubborn(master: Master, marker: str, *words: str) -> Container:
    """A container with a main process and a daemon that do not heed SIGTERM."""
    (container,) = master.get()
    argv = (sys.executable, "-I", "-S", "-c", STUBBORN, marker, *words)
    master.pool.launch(container, Launch(argv, {}, ()))
    master.next(Started)
    until(lambda: _strays(marker), "the daemon")
    return container


def _strays(marker: str) -> bool:
    """Whether the process and its daemon stand: the daemon's parent is not the process."""
    return len([pid for pid in running(marker) if _is_program(pid)]) == 2


def _is_program(pid: int) -> bool:
    try:
        return b"time.sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize("words", [(), ("bare",)], ids=["daemon", "daemon-without-environment"])
def test_stop_leaves_nothing(harness: Harness, tmp_path: Path, words: tuple[str, ...]) -> None:
    if not harness.sweeps:
        pytest.skip("what leaves its process group is the executor's to end here")
    master = harness.master()
    marker = f"marker-{tmp_path.name}-{time.time_ns()}"
    container = _stubborn(master, marker, *words)
    master.pool.stop(container.id)
    master.pool.stop(container.id)
    end = master.end_of(container)
    assert end.cause is ExitCause.RELEASED
    assert running(marker) == []
    master.pool.stop(container.id)
    master.pool.release(container.id)
    master.quiet(0.3, Completed)


def test_stop_gives_a_grace_period(harness: Harness, tmp_path: Path) -> None:
    master = harness.master()
    goodbye = tmp_path / "goodbye"
    container = master.run(
        "import os, pathlib, signal, sys, time\n"
        f"def bye(*_): pathlib.Path({str(goodbye)!r}).write_text('bye'); sys.exit(5)\n"
        "signal.signal(signal.SIGTERM, bye)\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).write_text('')\n"
        "time.sleep(60)\n"
    )
    until((tmp_path / "ready").exists, "the program")
    master.pool.stop(container.id)
    end = master.end_of(container)
    assert end.cause is ExitCause.RELEASED
    assert goodbye.read_text() == "bye"


def test_the_end_of_the_process_is_the_end_of_its_descendants(
    harness: Harness, tmp_path: Path
) -> None:
    if not harness.sweeps:
        pytest.skip("what leaves its process group is the executor's to end here")
    master = harness.master()
    marker = f"marker-{tmp_path.name}-{time.time_ns()}"
    (container,) = master.get()
    code = STUBBORN.replace("print('here', flush=True)", "os.kill(os.getpid(), 9)")
    argv = (sys.executable, "-I", "-S", "-c", code, marker)
    master.pool.launch(container, Launch(argv, {}, ()))
    end = master.end_of(container)
    assert (end.exit_code, end.cause) == (137, ExitCause.EXITED)
    assert running(marker) == []


def test_no_event_arrives_after_close(harness: Harness) -> None:
    master = harness.master()
    containers = master.get(3)
    for container in containers:
        master.launch(container, "import time; time.sleep(0.2)")
    master.next(Started)
    master.close()  # from here on the sink fails the test
    time.sleep(0.5)


def test_stopping_and_releasing_what_is_unknown_is_silence(harness: Harness) -> None:
    master = harness.master()
    master.pool.stop("container_of_nobody")
    master.pool.release("container_of_nobody")
    master.quiet(0.2, object)


# --------------------------------------------------------------------------- a next master


def test_a_next_master_gets_what_runs(harness: Harness, tmp_path: Path) -> None:
    master = harness.master()
    (kept, ended) = master.get(2)
    go = tmp_path / "go"
    code = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\n"
    master.launch(kept, code + "raise SystemExit(3)")
    master.launch(ended, "pass")
    master.end_of(ended)
    while Started(kept.id) not in master.received:
        master.next(Started)
    harness.acknowledged()
    master.close()

    second = harness.next_master(master)
    assert second.info is not None
    assert second.info.attempt == 2
    previous = second.next(PreviousContainers)
    assert len(second.received) == 1
    assert [container.id for container in previous.containers] == [kept.id]
    go.touch()
    end = second.end_of(kept)
    assert (end.exit_code, end.cause) == (3, ExitCause.EXITED)
    second.quiet(0.2, Completed)


def test_a_next_master_gets_what_ended_meanwhile(harness: Harness) -> None:
    master = harness.master()
    container, other = master.get(2)
    master.launch(other, "import time; time.sleep(60)")  # which is why there is a next master
    master.launch(container, "import time; time.sleep(0.3); raise SystemExit(4)")
    while not {Started(container.id), Started(other.id)} <= set(master.received):
        master.next(Started)
    master.close()
    time.sleep(0.8)
    second = harness.next_master(master)
    previous = second.next(PreviousContainers).containers
    assert {c.id for c in previous} == {container.id, other.id}
    end = second.end_of(container)
    assert (end.exit_code, end.cause) == (4, ExitCause.EXITED)


def test_a_next_master_can_stop_and_ask(harness: Harness) -> None:
    master = harness.master()
    container = master.run("import time; time.sleep(60)")
    master.next(Started)
    master.close()
    second = harness.next_master(master)
    second.next(PreviousContainers)
    second.pool.stop(container.id)
    assert second.end_of(container).cause is ExitCause.RELEASED
    (another,) = second.get()
    assert another.id != container.id
    second.launch(another, "pass")
    assert second.end_of(another).exit_code == 0


# --------------------------------------------------------------------------- the client's side


def sleeper(seconds: float = 60.0) -> List[str]:
    """A program that waits."""
    return [sys.executable, "-I", "-S", "-c", f"import time; time.sleep({seconds})"]


def ended(harness: Harness, app_id: str) -> Any:
    """Its status, once it has ended."""

    def look() -> Any:
        status = harness.scheduler.status(app_id)
        return status if status.state.ended else None

    return until(look, f"the end of {app_id}")


def test_an_application_runs_and_succeeds(harness: Harness) -> None:
    app_id = harness.submit(requests=[["worker", 2, 64]], gang=True, argv=sleeper(0), then="finish")
    status = ended(harness, app_id)
    assert status.state is AppState.SUCCEEDED
    assert status.name == "contract"
    assert status.attempt == 1
    assert status.started is not None
    assert status.finished is not None
    assert status.submitted <= status.started <= status.finished
    assert status.progress == 1.0
    assert app_id in [item.app_id for item in harness.scheduler.list()]


def test_a_failure_is_a_failure(harness: Harness) -> None:
    argv = [sys.executable, "-c", "raise SystemExit(9)"]
    app_id = harness.submit(requests=[["worker", 1, 64]], gang=True, argv=argv, then="finish")
    status = ended(harness, app_id)
    assert status.state is AppState.FAILED
    assert "9" in status.diagnostics


def test_kill_ends_everything_and_can_be_repeated(harness: Harness) -> None:
    marker = f"marker-{time.time_ns()}"
    argv = [*sleeper(), marker]
    app_id = harness.submit(requests=[["worker", 2, 64]], gang=True, argv=argv, then="finish")
    until(lambda: len(running(marker)) >= 2, "both workers")
    assert harness.scheduler.status(app_id).state is AppState.RUNNING
    harness.scheduler.kill(app_id, "enough of it")
    status = harness.scheduler.status(app_id)
    assert status.state is AppState.KILLED
    assert "enough of it" in status.diagnostics
    harness.gone(marker)
    harness.scheduler.kill(app_id, "again")
    assert harness.scheduler.status(app_id) == status


def test_an_unknown_application_is_reported_as_unknown(harness: Harness) -> None:
    unknown = harness.scheduler.new_app_id(harness_job())
    with pytest.raises(NoSuchApplication):
        harness.scheduler.status(unknown)
    with pytest.raises(NoSuchApplication):
        harness.scheduler.kill(unknown, "nobody")


def harness_job() -> Job:
    """Some job."""
    return Job("contract", (Role("worker", 1, SMALL, "true"),))


def test_ids_differ(harness: Harness) -> None:
    ids = {harness.scheduler.new_app_id(harness_job()) for _ in range(50)}
    assert len(ids) == 50


def test_logs_are_read_by_offset(harness: Harness) -> None:
    code = (
        "import os, sys\n"
        "with open(os.path.join(os.environ['TONY_LOG_DIR'], 'stdout'), 'w') as log:\n"
        "    log.write('0123456789')\n"
        "print('out of the process itself')\n"
    )
    argv = [sys.executable, "-c", code]
    app_id = harness.submit(requests=[["worker", 1, 64]], gang=True, argv=argv, then="finish")
    ended(harness, app_id)
    scheduler = harness.scheduler
    (ref,) = until(lambda: log_refs(harness, app_id), "the container's logs")
    names = scheduler.log_reader.list_logs(app_id, ref)
    assert "stdout" in names
    assert scheduler.log_reader.read_log(app_id, ref, "stdout", 0) == b"0123456789"
    assert scheduler.log_reader.read_log(app_id, ref, "stdout", 4, 3) == b"456"
    assert scheduler.log_reader.read_log(app_id, ref, "stdout", 10) == b""
    assert scheduler.log_reader.read_log(app_id, ref, "stdout", 1000) == b""
    assert scheduler.log_reader.read_log(app_id, ref, "not-there", 0) == b""
    everything = b"".join(scheduler.log_reader.read_log(app_id, ref, name, 0) for name in names)
    assert b"out of the process itself" in everything


def log_refs(harness: Harness, app_id: str) -> List[LogRef]:
    """The containers that the stand-in master got events of."""
    found = []
    for words in harness_events(harness, app_id):
        if "Allocated" in words[2]:
            fields = dict(re.findall(r"\b(id|node|log_url)='([^']*)'", words[2]))
            found.append(LogRef(fields["id"], fields["node"], fields["log_url"]))
    return found


def harness_events(harness: Harness, app_id: str) -> List[List[Any]]:
    """What the stand-in master wrote down: [pid, attempt, event]."""
    path = harness.events_file(app_id)
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_request_can_be_printed_before_it_is_sent(harness: Harness) -> None:
    app_id = harness.scheduler.new_app_id(harness_job())
    submission = harness.scheduler.dry_run(app_id, harness_job(), harness.artifacts())
    json.dumps(dict(submission.details))
    assert submission.details
    with pytest.raises(NoSuchApplication):
        harness.scheduler.status(app_id)


def test_a_master_that_cannot_begin_reports_why_and_leaves_nothing(harness: Harness) -> None:
    app_id = harness.submit(requests=[], gang=True, argv=[], then="finish", die="a bad day")
    status = ended(harness, app_id)
    assert status.state is AppState.FAILED
    assert "a bad day" in status.diagnostics


def test_a_dead_master_is_noticed_and_nothing_is_left(harness: Harness) -> None:
    marker = f"marker-{time.time_ns()}"
    app_id = harness.submit(
        requests=[["worker", 1, 64]],
        gang=True,
        argv=[*sleeper(), marker],
        then="finish",
        attempts=1,
    )
    until(lambda: running(marker), "the worker")
    harness.kill_master(app_id)
    status = ended(harness, app_id)
    assert status.state is AppState.FAILED
    assert "master died" in status.diagnostics
    harness.scheduler.cleaner.remove_leftovers(status)  # as the client does that has seen the end
    harness.gone(marker)

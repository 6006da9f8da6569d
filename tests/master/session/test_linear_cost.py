"""What a gang costs the session machine grows as the gang does: no event looks at all tasks.

Time is not measured. The machine's own containers of tasks and records count how many of
their entries are looked at; twice the tasks may take little more than twice the looks. Where each
is journalled by itself (thousands that are restarted within their session) the journal takes
more, and is not counted here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest

from tests.master.session.world import PS, World, job, role
from tony_core.exit_causes import ExitCause
from tony_core.history.store import HistoryWriter
from tony_core.job.spec import Job, Mode, RestartScope, Tracking
from tony_core.master import publish
from tony_core.master.publish import Publisher
from tony_core.master.session import commands as c
from tony_core.master.session import events as e
from tony_core.master.session import reconcile
from tony_core.master.session.machine import SessionMachine
from tony_core.master.session.records import ContainerState, Phase
from tony_core.master.state.journal import Journal
from tony_core.master.view import JobInfo
from tony_core.protocol.reactor import Reactor
from tony_core.schedulers import container_pool
from tony_core.schedulers.container_pool import PoolInfo

FEW = 100
MOST = 2.6  # the work of twice as many, over the work; 4 where each event looks at all


class Looks:
    """How many entries were looked at, while it counts."""

    def __init__(self) -> None:
        self.number = 0
        self.counts = False
        self.in_journal = True

    def at(self, entries: Any) -> Iterator[Any]:
        """Each of them, counted."""
        for entry in entries:
            self.number += self.counts
            yield entry


class CountedDict(dict):  # type: ignore[type-arg]
    """Counts what is gone through; a look-up by key is free."""

    looks: Looks

    def __iter__(self) -> Iterator[Any]:
        return self.looks.at(super().__iter__())

    def keys(self) -> Any:
        return iter(self)

    def values(self) -> Any:
        return self.looks.at(super().values())

    def items(self) -> Any:
        return self.looks.at(super().items())


class CountedSet(set):  # type: ignore[type-arg]
    """The same."""

    looks: Looks

    def __iter__(self) -> Iterator[Any]:
        return self.looks.at(super().__iter__())


class CountedList(list):  # type: ignore[type-arg]
    """The same, and what a part of it holds."""

    looks: Looks

    def __iter__(self) -> Iterator[Any]:
        return self.looks.at(super().__iter__())

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return list(self.looks.at(found)) if isinstance(at, slice) else found


GROWS = ("tasks", "containers", "held", "finished_tasks", "failures")
KINDS: Dict[type, Any] = {dict: CountedDict, set: CountedSet, list: CountedList}


def counted(plain: Any, looks: Looks) -> Any:
    """The same container, counting."""
    made = KINDS[type(plain)](plain)
    made.looks = looks
    return made


def watch(machine: SessionMachine, looks: Looks) -> SessionMachine:
    """Let everything of the machine that grows with the gang count."""
    state = machine.state
    for name in GROWS:
        setattr(state, name, counted(getattr(state, name), looks))
    state.elastic.outside_round = counted(state.elastic.outside_round, looks)
    state.restarts.pending = counted(state.restarts.pending, looks)
    for name, tasks in state.by_role.items():
        state.by_role[name] = counted(tasks, looks)
    state.deadlines._open = counted(state.deadlines._open, looks)
    return machine


class Wide(World):
    """A world of many tasks, which looks at none itself."""

    def __init__(self, job: Job, **options: Any) -> None:
        self.looks = Looks()
        self.scarce = False  # the scheduler gives what the test lets it give
        super().__init__(job, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "machine":
            value = watch(value, self.looks)
        super().__setattr__(name, value)

    def feed(self, event: e.Event, now: Optional[float] = None) -> List[c.Command]:
        self.note(event)
        self.looks.counts = True
        commands = self.machine.handle(event, self.now if now is None else now)
        self.looks.counts = False
        for command in commands:
            self.perform(command)
        return commands

    def do_RequestContainers(self, command: c.RequestContainers) -> None:
        if self.scarce:
            self.wanted.update(
                (request.role, (request.session, request.count)) for request in command.requests
            )
        else:
            super().do_RequestContainers(command)

    def do_WriteJournal(self, command: c.WriteJournal) -> None:
        self.journal = dict(command.record)

    def do_AddStoryLine(self, command: c.AddStoryLine) -> None:
        self.story.append(command)

    def do_Finish(self, command: c.Finish) -> None:
        self.finished = command

    def let(self) -> Wide:
        """All that may happen happens."""
        self.settle(10**6)
        return self

    def each(self) -> List[str]:
        """Every task that has a container."""
        return [name for name, task in self.machine.state.tasks.items() if task.container]


def to_its_end(made: Job) -> Wide:
    """It gathers, runs and succeeds."""
    world = Wide(made)
    world.begin()
    world.let().after(30)
    world.let()
    for name in world.each():
        world.end(name)
    world.let()
    assert world.finished is not None
    return world


def gang(count: int) -> Wide:
    """All together."""
    return to_its_end(job(role("worker", count)))


def stages(count: int) -> Wide:
    """Some that others depend on."""
    world = Wide(job(role("prep", count), role("worker", count, depends_on=("prep",))))
    world.begin()
    for stage in ("prep", "worker"):
        world.let()
        for name in world.each():
            if name.startswith(stage):
                world.end(name)
    world.let()
    assert world.finished is not None
    return world


def fcfs(count: int) -> Wide:
    """Each when it can be."""
    return to_its_end(job(role("worker", count), mode=Mode.FCFS))


def sidecars(count: int) -> Wide:
    """Beside one worker."""
    beside = role("logger", count, tracking=Tracking.SIDECAR)
    return to_its_end(job(role("worker", 1), beside))


def servers(count: int) -> Wide:
    """Servers as many as workers."""
    return to_its_end(job(role("ps", count, **PS), role("worker", count)))


def elastic(count: int) -> Wide:
    """It begins with half, the rest comes one by one."""
    return to_its_end(job(role("worker", count, min_instances=count // 2)))


def elastic_one_by_one(count: int) -> Wide:
    """It begins with half; the others' containers and executors come one at a time."""
    world = Wide(job(role("worker", count, min_instances=count // 2)))
    world.scarce = True
    world.begin()
    for _ in range(count // 2):
        world.grant("worker", 1)
    world.let().after(30)
    world.let()
    assert len(world.running()) == count // 2
    for _ in range(count - count // 2):
        world.grant("worker", 1)
        world.let()
    while world.machine.state.session == 0:
        world.after(3)
        world.let()
    assert len(world.running()) == count
    for name in world.each():
        world.end(name)
    world.let()
    assert world.finished is not None
    return world


def elastic_that_ends_small(count: int) -> Wide:
    """It ends while half of it is waited for."""
    world = Wide(job(role("worker", 2 * count, min_instances=count)))
    world.scarce = True
    world.begin()
    world.grant("worker", count)
    world.let().after(30)
    world.let()
    names = world.running()
    assert len(names) == count
    for name in names:
        world.end(name)
    world.let()
    assert world.finished is not None
    return world


def one_by_one(count: int) -> Wide:
    """Containers come one at a time, ends one after another."""
    world = Wide(job(role("worker", count)))
    world.scarce = True
    world.begin()
    for _ in range(count):
        world.grant("worker", 1)
    world.let()
    world.feed(container_pool.ShutdownRequested("no more"))
    world.let()
    assert world.finished is not None
    return world


def restarted(count: int) -> Wide:
    """One fails, all are begun anew."""
    world = Wide(job(role("worker", count)))
    world.begin()
    world.let()
    world.end("worker:0", 1)
    world.after(4)
    assert world.machine.state.phase is Phase.CLEANUP
    world.let().after(30)
    world.let()
    assert world.machine.state.session == 1
    assert len(world.running()) == count
    return world


def all_lost(count: int) -> Wide:
    """Every container goes away, one by one."""
    world = Wide(job(role("worker", count)))
    world.begin()
    world.let()
    for name in world.each():
        world.kill(name, ExitCause.LOST)
    world.let().after(30)
    world.let()
    assert len(world.running()) == count
    return world


def taken_over(count: int) -> Wide:
    """Its master dies while it runs."""
    world = Wide(job(role("worker", count)))
    world.begin()
    world.let()
    world.takeover()
    world.let()
    assert len(world.running()) == count
    return world


def taken_over_early(count: int) -> Wide:
    """Its master dies while the executors are idle."""
    beside = role("logger", tracking=Tracking.SIDECAR)
    world = Wide(job(role("worker", count), beside))
    world.begin()
    for name in ("grant", "register", "ready logger", "run logger"):
        for item in [item for item in world.queue if item.name.startswith(name)]:
            world.queue.remove(item)
            item.do()
    world.end("logger:0", 1)  # which is journalled: the worker's role is known to be released
    world.takeover()
    world.let().after(30)
    world.let()
    assert world.machine.state.session == 0
    assert len(world.running()) == count + 1
    return world


def taken_over_at_the_barrier(count: int) -> Wide:
    """Its master dies when it has sent every start, and none has arrived."""
    world = Wide(job(role("worker", count)))
    world.begin()
    while not world.started:
        world.queue.pop(0).do()
    world.takeover()
    world.let()
    assert len(world.running()) == count
    return world


def not_taken_over(count: int) -> Wide:
    """Its master dies, and no executor calls the next."""
    world = Wide(job(role("worker", count)))
    world.begin()
    world.let()
    world.takeover()
    world.queue.clear()
    world.after(30)
    world.let().after(30)
    world.let()
    assert len(world.running()) == count
    return world


def tasks_restarted(count: int) -> Wide:
    """Workers that run, and are started again each by itself."""
    worker = role("worker", count, restart_scope=RestartScope.TASK, max_restarts=2)
    world = Wide(job(worker, mode=Mode.FCFS))
    world.begin()
    world.let()
    assert len(world.running()) == count
    world.looks.in_journal = False
    return world


def all_tasks_restarted(count: int) -> Wide:
    """All fail, one by one, and are started again where they were; then all are lost."""
    world = tasks_restarted(count)
    for name in world.each():
        world.end(name, 1)
    world.let().after(30)
    world.let()
    for name in world.each():
        world.kill(name, ExitCause.LOST)
    world.let().after(30)
    world.let()
    assert len(world.running()) == count
    assert {task.restarts for task in world.machine.state.tasks.values()} == {2}
    return world


def tasks_restarted_beside_left_programs(count: int) -> Wide:
    """Half of the executors call no next master, and are ended while the others' tasks fail."""
    world = tasks_restarted(count)
    world.takeover()
    del world.queue[count // 2 :]
    world.let().slow = True
    while (
        sum(x.state is ContainerState.STOPPING for x in list(dict.values(world.machine.state.held)))
        < count // 2
    ):
        world.after(5)
    for name in world.running():
        world.end(name, 1)
    world.after(30)
    world.let().after(30)
    world.let()
    assert len(world.running()) == count
    return world


@pytest.fixture(autouse=True)
def many_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only jobs of thousands do is done here, too."""
    monkeypatch.setattr("tony_core.job.spec.MOST_FCFS_ADDRESSES", FEW // 2)


@pytest.fixture(autouse=True)
def some_journals_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """See the module: a journal whose world says so."""
    write = reconcile.journal_record

    def record(state: Any) -> Any:
        looks = state.tasks.looks
        counts, looks.counts = looks.counts, looks.counts and looks.in_journal
        made = write(state)
        looks.counts = counts
        return made

    monkeypatch.setattr(reconcile, "journal_record", record)


@pytest.mark.parametrize(
    "scenario",
    [
        gang, stages, fcfs, sidecars, servers, elastic, elastic_one_by_one,
        elastic_that_ends_small, one_by_one, restarted, all_lost, taken_over,
        taken_over_early, taken_over_at_the_barrier, not_taken_over, all_tasks_restarted,
        tasks_restarted_beside_left_programs,
    ],
    ids=lambda scenario: scenario.__name__,
)  # fmt: skip
def test_twice_the_tasks_is_twice_the_work(scenario: Callable[[int], Wide]) -> None:
    few, many = (scenario(count).looks.number for count in (FEW, 2 * FEW))
    assert few >= FEW, "nothing was counted"
    assert many <= MOST * few, f"{few} looks at {FEW}, {many} at {2 * FEW}"


class Later(Reactor):
    """Writes down what is to be called, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: List[Any] = []

    def now(self) -> float:
        return 1000.0

    def call_later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> Any:
        self.asked.append((seconds, callback))
        return super().call_later(seconds, callback, *args)


def a_publisher(count: int, tmp_path: Path) -> Publisher:
    """Of a job of that many tasks, whose session machine may not be asked for anything."""

    def state() -> Any:
        raise AssertionError("the session machine was asked")

    info = JobInfo("app_1", 1, "me", "default", 0.0, 0.0)
    history = HistoryWriter(str(tmp_path))
    return Publisher(Later(), count, info, state, history, lambda x: x, 0.0)


def test_the_scheduler_gets_progress_without_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = a_publisher(10, tmp_path)
    made._state = lambda: None  # type: ignore[assignment,return-value]
    monkeypatch.setattr(publish, "progress_of", lambda state: 0.5)
    monkeypatch.setattr(publish, "trouble_of", lambda state, info, clean: "it has stalled")
    monkeypatch.setattr(publish, "view_job", None)
    reported: List[Tuple[float, str, str]] = []
    scheduler = PoolInfo("app_1", 1, "", "")
    made.start_reporting(scheduler, lambda *report: reported.append(report), "http://page/")
    made.changed()
    made._reactor.asked[-1][1]()  # type: ignore[attr-defined]
    assert reported == [(0.5, "http://page/", "it has stalled")]


@pytest.mark.parametrize("count, seconds", [(10, 5.0), (1000, 5.0), (10_000, 50.0)])
def test_many_tasks_are_summarised_seldom(count: int, seconds: float, tmp_path: Path) -> None:
    made = a_publisher(count, tmp_path)
    made.recorder._summarised = 1000.0
    made.recorder.summarise()
    assert made._reactor.asked[-1][0] == seconds  # type: ignore[attr-defined]


@pytest.mark.parametrize("count, seconds", [(10, 0.2), (1000, 0.2), (10_000, 2.0)])
def test_many_addresses_are_written_seldom(count: int, seconds: float, tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), 1)
    for number in range(count):
        journal.address(f"c{number}", "host:1")
    assert journal.address_delay_s == seconds

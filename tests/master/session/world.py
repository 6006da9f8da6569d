"""A world for the session machine: a scheduler and executors made of plain data.

What the machine commands becomes something that *may happen next*; the driver of the world
(a test by hand, hypothesis by chance) picks what does happen, lets time pass, and breaks
things. After every event the machine's invariants are checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from tests.master.session.invariants import Executor, Rules
from tony_core.exit_causes import ExitCause
from tony_core.job.spec import Job, Resources, Role, Tracking
from tony_core.master.session import commands as c
from tony_core.master.session import events as e
from tony_core.master.session.machine import SessionMachine
from tony_core.master.session.records import ContainerState
from tony_core.protocol.messages import Ended, Ready, Register, Running, Stopped
from tony_core.schedulers import container_pool
from tony_core.schedulers.container_pool import Container
from tony_core.schedulers.port import AppState


def role(name: str, instances: int = 1, **more: Any) -> Role:
    """A role with a command."""
    more.setdefault("command", "true")
    return Role(name, instances, Resources(), **more)


def job(*roles: Role, **more: Any) -> Job:
    """A job of these roles."""
    return Job(name="test", roles=roles, **more)


PS = {"tracking": Tracking.UNTRACKED, "stop_on_failure": True}


#: What may arrive more than once, and late.
REPEATED = (container_pool.Completed, e.ExecutorLost, e.ExecutorReported)


def registered(container_id: str, **more: Any) -> e.ExecutorReported:
    """Its executor calls."""
    more.setdefault("host", "host")
    message = Register(container_id, listen_port=1, pid=1, runtime="", **more)
    return e.ExecutorReported(container_id, message)


@dataclass
class Happening:
    """Something that may happen next."""

    name: str
    do: Callable[[], None]


class World(Rules):
    """See the module's docstring."""

    def __init__(self, job: Job, **options: Any) -> None:
        super().__init__()
        self.job = job
        self.options = options
        self.machine = SessionMachine(job, **options)
        self.now = 100.0
        self.queue: List[Happening] = []
        self.finished: Optional[c.Finish] = None
        self.story: List[c.AddStoryLine] = []
        self.journal: Dict[str, Any] = {}
        self.number = 0
        self.started: List[Tuple[int, Tuple[str, ...]]] = []
        self.members: Dict[str, Tuple[c.Member, ...]] = {}
        self.repeatable: List[Any] = []  # events that may be repeated
        #: (container, session, restart) -> the last warning of that program
        self.warned: Dict[Tuple[str, int, int], c.WarnProgram] = {}
        self.asked_for_stacks: List[str] = []  # of which tasks, in this order
        self.slow = False  # reports of an end come after all others
        self.on_story_line: Callable[[str], None] = lambda line: None

    # ------------------------------------------------------------------ feeding

    def feed(self, event: e.Event, now: Optional[float] = None) -> List[c.Command]:
        """Feed one event, check invariants, perform the commands."""
        self.note(event)
        commands = self.machine.handle(event, self.now if now is None else now)
        self.machine.validate()
        self.check_late(event, commands)
        called = isinstance(event, e.ExecutorReported) and isinstance(event.message, Register)
        if isinstance(event, REPEATED) and not called:
            self.repeatable.append(event)
        for command in commands:
            assert self.finished is None, f"{command} after the end"
            self.perform(command)
        self.check()
        return commands

    def report(self, container_id: str, message: e.Report) -> List[c.Command]:
        """An executor sends a message."""
        return self.feed(e.ExecutorReported(container_id, message))

    def again(self, event: e.Event) -> None:
        """The same event once more, perhaps long after."""
        self.feed(event)

    def begin(self) -> World:
        """The master stands."""
        self.feed(e.Begin())
        return self

    def after(self, seconds: float) -> World:
        """Time passes, every deadline on the way in its turn."""
        end = self.now + seconds
        limit = 10_000
        while True:
            due = self.machine.next_deadline()
            if due is None or due > end:
                break
            limit -= 1
            assert limit, f"for ever: {self.machine.state.deadlines.next()} at {self.now}"
            self.now = max(self.now, due)
            self.feed(e.Tick())
        self.now = end
        self.feed(e.Tick())
        return self

    def perform(self, command: c.Command) -> None:
        """What the shell would do."""
        getattr(self, f"do_{type(command).__name__}")(command)

    def later(self, name: str, do: Callable[[], None]) -> None:
        """It may happen now."""
        self.queue.append(Happening(name, do))

    def settle(self, limit: int = 10_000) -> World:
        """Let everything that may happen happen, in order."""
        while self.queue:
            limit -= 1
            assert limit, f"for ever: {[h.name for h in self.queue[:5]]}"
            self.next_item().do()
        return self

    def prompt(self) -> List[int]:
        """Where in the queue the words are that do not lag behind all others."""
        return [at for at, x in enumerate(self.queue) if not x.name.startswith(("end", "stop"))]

    def next_item(self) -> Happening:
        """What happens next, if all goes in order."""
        prompt = self.prompt() if self.slow else []
        return self.queue.pop(prompt[0] if prompt else 0)

    def do_RunPreprocess(self, command: c.RunPreprocess) -> None:
        """It will end."""
        ended = e.PreprocessEnded(0, "found")
        self.later("end preprocess", lambda: self.again(ended))

    # ------------------------------------------------------------------ the scheduler

    def do_RequestContainers(self, command: c.RequestContainers) -> None:
        """Grant what is wanted, when the world comes to it."""
        for request in command.requests:
            self.wanted[request.role] = (request.session, request.count)
            if request.count:
                self.later(f"grant {request.role}", lambda role=request.role: self.grant(role))

    def grant(self, role: str, count: Optional[int] = None) -> None:
        """Containers come, as many as are still wanted (or more)."""
        session, wanted = self.wanted.get(role, (0, 0))
        number = wanted if count is None else count
        if not number:
            return
        self.wanted[role] = (session, max(0, wanted - number))
        out = []
        for _ in range(number):
            self.number += 1
            container = Container(f"c{self.number}", f"n{self.number % 3}", role, Resources())
            self.executors[container.id] = Executor(container)
            out.append(container)
        self.feed(container_pool.Allocated(tuple(out)))

    def do_ReleaseContainer(self, command: c.ReleaseContainer) -> None:
        """Given back unused."""
        executor = self.executors[command.container_id]
        assert not executor.launched
        executor.gone = True

    def do_LaunchExecutor(self, command: c.LaunchExecutor) -> None:
        """The executor will call."""
        executor = self.executors[command.container_id]
        assert not executor.launched, f"{command.container_id} launched twice"
        executor.launched = True
        self.later(f"register {command.container_id}", lambda: self.register(executor))

    def do_StopContainer(self, command: c.StopContainer) -> None:
        """It will end."""
        executor = self.executors[command.container_id]
        self.later(
            f"end {command.container_id}",
            lambda: self.complete(executor, 0, ExitCause.RELEASED),
        )

    def complete(self, executor: Executor, code: int, cause: ExitCause, text: str = "") -> None:
        """The scheduler says that a container ended (perhaps not for the first time)."""
        executor.gone = True
        self.feed(container_pool.Completed(executor.container.id, code, cause, text))

    # ------------------------------------------------------------------ executors

    def register(self, executor: Executor) -> None:
        """It calls, for the first time or again."""
        if executor.gone:
            return
        executor.registered = True
        self.feed(
            registered(
                executor.container.id,
                task=executor.task,
                session=executor.session,
                phase=executor.phase,
                ports={"main": 1000} if executor.phase != "idle" else {},
                ran_s=1.0 if executor.ran else 0.0,
                restart=executor.restart,
                gpus=list(executor.gpus) if executor.ran else [],
            )
        )

    def do_PrepareTask(self, command: c.PrepareTask) -> None:
        """It will be ready."""
        executor = self.executors[command.container_id]
        self.check_place(executor, command)
        number = (command.session, command.restart)

        def ready() -> None:
            mine = (executor.session, executor.restart)
            if executor.gone or (mine == number and executor.phase in ("running", "ended")):
                return
            if number < mine or command.session <= executor.stopped:
                return  # its connection keeps messages in order
            executor.task, (executor.session, executor.restart) = command.task, number
            executor.phase, executor.ran = "ready", False
            name, ports = executor.container.id, {"main": 1000}
            self.report(name, Ready(number[0], "host", ports, number[1]))

        self.later(f"ready {command.task}", ready)

    def do_StartTasks(self, command: c.StartTasks) -> None:
        """Their programs will run."""
        self.check_start(command)
        self.started.append((command.session, command.tasks))
        for name in command.tasks:
            self.members[name] = command.members
            executor = self.executor(name)
            if name.partition(":")[0] in self.machine.state.address_bound:
                place = self.places.setdefault((name, command.session), executor.container.id)
                assert place == executor.container.id, f"{name} is not where the others know it"
            number = (command.session, command.restart)
            self.later(f"run {name}", lambda x=executor, n=number: self.run(x, n))

    def run(self, executor: Executor, number: Tuple[int, int]) -> None:
        """The program starts."""
        if executor.gone or (executor.session, executor.restart) != number:
            return
        if executor.phase != "ready" or number[0] <= executor.stopped:
            return
        executor.phase, executor.ran = "running", True
        name = executor.container.id
        self.feed(
            e.ExecutorReported(
                name, Running(number[0], 7, restart=number[1], gpus=list(executor.gpus))
            )
        )

    def do_StopTask(self, command: c.StopTask) -> None:
        """The program will be ended."""
        executor = self.executors[command.container_id]

        def stopped() -> None:
            if not executor.gone:
                executor.stopped = max(executor.stopped, command.session)
                if executor.session <= command.session:
                    executor.phase = "idle"
                self.report(executor.container.id, Stopped(command.session, True))

        self.later(f"stop {command.container_id}", stopped)

    def do_WarnProgram(self, command: c.WarnProgram) -> None:
        """A program is warned: one that runs, and nothing that it was sent before."""
        executor = self.executors[command.container_id]
        number = (command.session, command.restart)
        assert (executor.session, executor.restart) == number, f"{command}: {executor}"
        assert executor.phase in ("running", "ended"), f"{command}: {executor}"
        assert command.seconds is None or command.seconds >= 0.0, str(command)
        known = (command.container_id, *number)
        assert not command.withdrawn or known in self.warned, f"{command}: never warned"
        self.warned[known] = command

    def do_EndProgram(self, command: c.EndProgram) -> None:
        """The program will be ended, as one that failed."""
        executor = self.executors[command.container_id]

        def ended() -> None:
            mine = (executor.session, executor.restart)
            if executor.gone or executor.phase != "running":
                return
            if mine == (command.session, command.restart):
                executor.phase = "ended"
                self.report_end(executor, 143, cause=command.cause, message=command.message)

        self.later(f"end program {command.container_id}", ended)

    def do_DumpStacks(self, command: c.DumpStacks) -> None:
        """It has no answer unless a test gives one: a deadline covers that."""
        executor = self.executors[command.container_id]
        number = (command.session, command.restart)
        assert (executor.session, executor.restart) == number, f"{command}: {executor}"
        assert executor.phase in ("running", "ended"), f"{command}: {executor}"
        self.asked_for_stacks.append(executor.task)

    def do_AcknowledgeEnd(self, command: c.AcknowledgeEnd) -> None:
        """The executor reports that end no more."""
        end = (command.container_id, command.session, command.restart)
        assert end in self.reported, f"{command}, which no executor reported"

    def do_EndSession(self, command: c.EndSession) -> None:
        """What the framework runs in the master is stopped."""
        assert self.over <= command.session <= self.machine.state.session, f"{command}"
        self.over = command.session

    def end(self, name: str, code: int = 0, **more: Any) -> World:
        """A task's program ends."""
        executor = self.executor(name)
        executor.phase = "ended"
        self.report_end(executor, code, **more)
        return self

    def report_end(self, executor: Executor, code: int, **more: Any) -> None:
        """Its executor reports the end."""
        more["restart"] = executor.restart
        known = (executor.container.id, executor.session, executor.restart)
        if more.pop("notices", False) and known in self.warned:
            more["preempted"] = not self.warned[known].withdrawn
        self.report(executor.container.id, Ended(executor.session, code, **more))

    def kill(self, name: str, cause: ExitCause = ExitCause.LOST, code: int = -1) -> World:
        """A task's container goes away."""
        self.complete(self.executor(name), code, cause)
        return self

    # ------------------------------------------------------------------ the rest

    def do_WriteJournal(self, command: c.WriteJournal) -> None:
        """Written before its commands run; no record is taken back."""
        before, self.journal = self.journal, dict(command.record)
        for word in ("session", "elapsed_s", "chief_done"):
            kept = before.get(word, -1) - 1e-6  # time is counted from another zero
            assert self.journal[word] >= kept, f"{word}: {before}, {command}"
        assert set(before.get("done", ())) <= set(self.journal["done"]), f"{before}, {command}"
        assert before.get("outcome") in (None, self.journal["outcome"]), f"{before}, {command}"

    def do_AddStoryLine(self, command: c.AddStoryLine) -> None:
        """The story, which never goes back."""
        self.on_story_line(f"{self.now:.1f} {command.session} {command.kind.value}: {command.text}")
        if command.kind == "session-started":
            sessions = [x.session for x in self.story if x.kind == command.kind]
            assert not sessions or sessions[-1] < command.session, f"{sessions}, {command}"
        self.check_story_line(command)
        self.story.append(command)

    def do_Finish(self, command: c.Finish) -> None:
        """The end."""
        self.finished = command
        self.machine.validate()

    def executor(self, name: str) -> Executor:
        """The executor that holds a task now."""
        container = self.machine.state.tasks[name].container
        assert container is not None, f"{name} has no container"
        return self.executors[container]

    def state(self, name: str) -> str:
        """A task's state."""
        return self.machine.state.tasks[name].state.value

    def states(self) -> Dict[str, str]:
        """Every task's state."""
        return {name: task.state.value for name, task in self.machine.state.tasks.items()}

    def running(self) -> List[str]:
        """The tasks whose program runs."""
        return [name for name, state in self.states().items() if state == "running"]

    def ending(self) -> List[str]:
        """The containers in which a program is being ended."""
        return [x.id for x in self.machine.state.held.values() if x.state is ContainerState.CLEANUP]

    def story_texts(self, kind: str) -> List[str]:
        """The texts of the story lines of one kind."""
        return [item.text for item in self.story if item.kind == kind]

    @property
    def outcome(self) -> Optional[AppState]:
        """How it ended."""
        return self.finished.state if self.finished else None

    def takeover(self) -> World:
        """The master dies; a later one is given the journal and what still lives."""
        self.machine = SessionMachine(self.job, **self.options)
        self.masters += 1
        self.warned.clear()
        self.queue = [item for item in self.queue if item.name.startswith("end ")]
        self.wanted.clear()
        alive = [x for x in self.executors.values() if x.launched and not x.gone]
        for executor in alive:
            executor.broken = False  # a next master does not know
        containers = tuple(x.container for x in alive)
        self.feed(e.ContainersInherited(containers, dict(self.journal)))
        for executor in alive:
            if executor.registered:
                self.later(f"call {executor.container.id}", lambda x=executor: self.register(x))
        return self

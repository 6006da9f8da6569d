"""The executor machine, pure: events in, commands out.

Theory of operation
===================

An executor runs one task of one session after another, for whatever master there is::

    IDLE -> PREPARING -> READY -> STARTING -> RUNNING -> ENDED -> PREPARING ...

*The program* is started once per session, and once more each time that its task is restarted within
it (``restart``); ``diagnosis.diagnose_end`` judges the end of each once: what ended it wins
over how it ended. The end is sent to every master until one acknowledges it.

*Sweeps.* Whatever brings the end about, the program's own or ours, a sweep follows
(``EndProcesses``): nothing of the program may outlive its session. Answers to Stop and Shutdown,
the next session's folder and our own exit all wait for ``ProcessesEnded``. At most one sweep runs.

*Masters.* Only the newest master is obeyed (``master_link.py``). While there is none the program
goes on, and we look for one; when that has lasted for ``master_lost_s`` everything ends: nothing
runs unfenced.

*Deadlines*, each with its reason: the first master, a lost master, the time from our start to
Ready (registry), the program's own time (execution), heartbeats, an end that is not acknowledged.
From Ready on only the master knows what is waited for (the rest of a gang may take long), and a
master that falls silent has a deadline already.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple, Type

from tony_core.exit_causes import ExitCause, parse_cause
from tony_core.protocol import messages
from tony_executor import commands, events, exit_codes
from tony_executor.commands import Command
from tony_executor.events import Event
from tony_executor.master_link import MasterLink, UnsentTelemetry
from tony_executor.task_state import (
    HAS_PROGRAM,
    ContainerIdentity,
    Ending,
    ExecutorTask,
    TaskPhase,
)
from tony_executor.token_renewal import TokenRenewal

LEFTOVER_GRACE_S = 1.0  # for what the program leaves behind, and when there is no master
RESEND_S = 5.0  # between two reports of an end that no master has acknowledged


class ExecutorMachine:
    """Decides what the executor does. ``register_s``: how long a first master is looked for;
    ``token_refusal``: why fresh tokens are not taken (empty: they are)."""

    def __init__(
        self, identity: ContainerIdentity, register_s: float, token_refusal: str = ""
    ) -> None:
        self.identity = identity
        self.task = ExecutorTask(identity.host)
        self.ended: Optional[messages.Ended] = None  # not acknowledged yet
        self.exited = False
        self._now = 0.0
        self._out: List[Command] = []
        self.master = MasterLink(self._out.append)
        self._telemetry = UnsentTelemetry()
        self._tokens = TokenRenewal(self._out.append, self._report, token_refusal)
        self._register_s = register_s
        self._prepare_since: Optional[float] = None
        self._execution_s: Optional[float] = None
        self._resend_at: Optional[float] = None
        self._ending: Optional[Ending] = None
        self._sweep_until: Optional[float] = None  # when the grace of the running sweep ends
        self._stops: List[int] = []  # sessions whose Stop waits for the sweep
        self._next: Optional[messages.Prepare] = None  # waits for the sweep
        self._survivors = False  # of the last sweep
        self._exit: Optional[commands.Exit] = None  # waits for the sweep
        self._handlers: Dict[Type[Any], Callable[[Any], None]] = {
            events.ExecutorStarted: self._on_executor_started,
            events.LinkOpened: self._on_link_opened,
            events.MessageReceived: self._on_message,
            events.LinkClosed: self._on_link_closed,
            events.Prepared: self._on_prepared,
            events.NotPrepared: self._on_not_prepared,
            events.ProgramStarted: self._on_program_started,
            events.ProgramNotStarted: self._on_program_not_started,
            events.ProgramEnded: self._on_program_ended,
            events.PortsTaken: self._on_ports_taken,
            events.ProcessesEnded: self._on_processes_ended,
            events.Observed: self._on_observed,
            events.TokensNotWritten: lambda e: self._tokens.note_failure(e.reason, e.at),
            events.NoNextMaster: self._on_no_next_master,
            events.Tick: self._on_tick,
        }
        self._messages: Dict[Type[Any], Callable[[Any], None]] = {
            messages.Prepare: self._prepare,
            messages.Start: self._start,
            messages.Acknowledge: self._acknowledge,
            messages.Stop: self._stop,
            messages.Shutdown: self._shut_down,
            messages.Tokens: self._tokens.take,
            messages.Preemption: self._warn,
            messages.EndProgram: self._end_program,
            messages.DumpStacks: self._dump_stacks,
            messages.Ping: lambda message: None,
        }

    # ------------------------------------------------------------------ the one mutator

    def handle(self, event: Event) -> List[Command]:
        """The commands that follow from the event."""
        if self.exited:
            return []
        self._now = event.at
        self._handlers[type(event)](event)
        self.validate()
        out = list(self._out)
        self._out.clear()
        return out

    @property
    def is_exiting(self) -> bool:
        """Whether the executor has begun to end."""
        return self._exit is not None

    def next_deadline(self) -> Optional[float]:
        """When a Tick is due."""
        due = [at for at, _ in self._deadlines()]
        return min(due) if due and not self.exited else None

    def validate(self) -> None:
        """Check what must hold after every event."""
        sweeps, link = self._sweep_until is not None, self.master.link
        assert (self.task.phase is TaskPhase.IDLE) == (self.task.session < 0), self.task.story()
        assert self.ended is None or self.task.phase is TaskPhase.ENDED, self.task.story()
        assert self._next is None or sweeps, self.task.story()
        assert not self._stops or sweeps, self.task.story()
        assert self._exit is None or sweeps or self.exited, self.task.story()
        assert self._ending is None or self.task.phase in HAS_PROGRAM, self.task.story()
        assert (link is None) == (self.master.lost_since is not None), self.task.story()
        assert link is None or link in self.master.registered, self.task.story()

    # ------------------------------------------------------------------ masters

    def _on_executor_started(self, event: events.ExecutorStarted) -> None:
        self.master.find(event.at, start_successor=False)

    def _on_link_opened(self, event: events.LinkOpened) -> None:
        self.master.register(event.link, self.task.register(self.identity, self._now))

    def _on_link_closed(self, event: events.LinkClosed) -> None:
        self.master.closed(event.link, event.reason, event.at, self.is_exiting)

    def _on_no_next_master(self, event: events.NoNextMaster) -> None:
        if self.master.link is None and not self.is_exiting:
            self._begin_exit(exit_codes.EXIT_MASTER_LOST, event.reason, LEFTOVER_GRACE_S)

    def _on_message(self, event: events.MessageReceived) -> None:
        message = event.message
        if isinstance(message, messages.Welcome):
            self._welcome(event.link, message)
        elif event.link == self.master.link:
            handler = self._messages.get(type(message))
            if handler is not None:
                handler(message)
            else:
                name = type(message).__name__
                self._close_link(event.link, f"a master does not send {name}")
        elif isinstance(message, messages.Shutdown) and event.link in self.master.registered:
            self._refused(event.link, message)

    def _refused(self, link: int, message: messages.Shutdown) -> None:
        """Shutdown instead of Welcome: this job does not know our container (any more)."""
        if self.master.link is not None:
            self._close_link(link, "Shutdown from an older master")
            return
        self._do(commands.WriteLog(f"refused by a master: {message.reason}"))
        self._begin_exit(
            exit_codes.EXIT_SHUT_DOWN, message.reason or "refused by the master", message.grace_s
        )

    def _welcome(self, link: int, welcome: messages.Welcome) -> None:
        is_first = self.master.welcome is None
        registered = self.master.accept(link, welcome, self._now)
        if registered is None:
            return
        if is_first or self.task.phase is TaskPhase.PREPARING:
            self._prepare_since = self._now
        self._catch_up(registered)

    def _catch_up(self, registered: messages.Register) -> None:
        """Send what has changed since Register, and what a new master cannot know."""
        if self.ended is not None:
            self._resend_at = self._now + RESEND_S
            if registered.ended is None:
                self.master.send(self.ended)
        elif self.task.phase is TaskPhase.READY and registered.phase != "ready":
            self._send_ready()
        for message in [*self.task.stall_changes(registered), *self._telemetry.take()]:
            self.master.send(message)

    # ------------------------------------------------------------------ a session begins

    def _prepare(self, message: messages.Prepare) -> None:
        number, mine = (message.session, message.restart), (self.task.session, self.task.restart)
        if number < mine or self.is_exiting:
            return
        if number == mine and self.task.phase is not TaskPhase.ENDED:
            # Sent again: so is the answer.
            if self.task.phase is TaskPhase.READY:
                self._send_ready()
            elif self.task.phase is TaskPhase.RUNNING:
                text = f"session {self.task.session} runs already: Prepare is ignored"
                self._do(commands.WriteLog(text))
            return
        if self.task.phase in HAS_PROGRAM and self._ending is None:
            self._ending = Ending(ExitCause.STOPPED, f"session {message.session} follows")
            self._end_processes(LEFTOVER_GRACE_S)
        elif self._survivors:
            self._end_processes(0.0)
        if self._sweep_until is not None:
            self._next = message
            return
        if self.task.phase in (TaskPhase.PREPARING, TaskPhase.READY):
            self._move(TaskPhase.ENDED)
        self._begin_session(message)

    def _begin_session(self, message: messages.Prepare) -> None:
        self._next = None
        self.ended = None  # the master that prepares us again knows the end
        self._resend_at = None
        self._telemetry.begin_session()
        self.task.begin(message, self._now)
        self._prepare_since = self._now
        self._do(commands.PrepareTask(message))

    def _on_prepared(self, event: events.Prepared) -> None:
        if event.session != self.task.session or self.task.phase is not TaskPhase.PREPARING:
            return
        self.task.host = event.host
        self.task.ports = dict(event.ports)
        self._prepare_since = None
        self._move(TaskPhase.READY)
        self._send_ready()

    def _on_not_prepared(self, event: events.NotPrepared) -> None:
        if event.session == self.task.session and self.task.phase is TaskPhase.PREPARING:
            self._end(1, 0, Ending(event.cause, event.message))

    def _start(self, message: messages.Start) -> None:
        is_ours = (message.session, message.restart) == (self.task.session, self.task.restart)
        if not is_ours or self.task.phase is not TaskPhase.READY:
            if is_ours and self.task.phase in HAS_PROGRAM:
                return  # sent again
            text = (
                f"Start of session {message.session} in {self.task.phase.value} {self.task.session}"
            )
            self._do(commands.WriteLog(f"{text} is ignored"))
            return
        self._execution_s = message.execution_timeout_s
        self.task.started_at = self._now
        self._move(TaskPhase.STARTING)
        self._do(commands.StartProgram(self.task.name, message))

    def _on_program_started(self, event: events.ProgramStarted) -> None:
        if event.session != self.task.session or self.task.phase is not TaskPhase.STARTING:
            return
        self.task.started_at = event.at
        self.task.offsets = self.task.offsets or dict(event.offsets)
        self.task.gpus = list(event.gpus)
        self._move(TaskPhase.RUNNING)
        task = self.task
        offsets, gpus = dict(task.offsets), list(task.gpus)
        self.master.send(messages.Running(task.session, event.pid, offsets, task.restart, gpus))

    def _on_program_not_started(self, event: events.ProgramNotStarted) -> None:
        if event.session != self.task.session or self.task.phase is not TaskPhase.STARTING:
            return
        ending = self._ending or Ending(event.cause, event.message)
        self._end(event.exit_code, 0, ending)
        self._end_processes(LEFTOVER_GRACE_S)

    def _warn(self, message: messages.Preemption) -> None:
        if self.task.take_warning(message, self._now):
            self._do(commands.WarnProgram(message))

    def _dump_stacks(self, message: messages.DumpStacks) -> None:
        if self.task.is_running(message.session, message.restart):
            self._do(commands.DumpStacks(message.reason))

    # ------------------------------------------------------------------ and ends

    def _on_program_ended(self, event: events.ProgramEnded) -> None:
        if event.session != self.task.session or self.task.phase not in HAS_PROGRAM:
            return
        ending = self._ending or self.task.diagnose(event, self._now)
        self._end(event.exit_code, event.signal, ending, event)
        self._end_processes(LEFTOVER_GRACE_S)

    def _end(
        self,
        exit_code: int,
        signal: int,
        ending: Ending,
        event: Optional[events.ProgramEnded] = None,
    ) -> None:
        ended = self.task.describe_end(exit_code, signal, ending, event, self._now)
        self._ending = None
        self._prepare_since = None
        self.task.started_at = None
        self._execution_s = None
        self._move(TaskPhase.ENDED)
        self.ended = self.task.last = ended
        self._resend_at = self._now + RESEND_S
        self.master.send(ended)

    def _on_ports_taken(self, event: events.PortsTaken) -> None:
        if event.session == self.task.session:
            names = ", ".join(event.names)
            message = f"another process listens at the task's port ({names})"
            self._fail_program(Ending(ExitCause.ADDRESS_IN_USE, message), LEFTOVER_GRACE_S)

    def _acknowledge(self, message: messages.Acknowledge) -> None:
        number = (message.session, message.restart)
        if self.ended is not None and number == (self.task.session, self.task.restart):
            self.ended = None
            self._resend_at = None

    def _stop(self, message: messages.Stop) -> None:
        if message.session < self.task.session and self.task.phase is not TaskPhase.ENDED:
            return  # of a session that a newer one has replaced
        self._next = None
        if message.session not in self._stops:
            self._stops.append(message.session)
        self._stop_program(message.reason or "stopped by the master")
        self._end_processes(message.grace_s)

    def _shut_down(self, message: messages.Shutdown) -> None:
        reason = message.reason or "shut down by the master"
        self._begin_exit(exit_codes.EXIT_SHUT_DOWN, reason, message.grace_s)

    def _begin_exit(self, code: int, reason: str, grace_s: float) -> None:
        """End everything, then ourselves."""
        self._next = None
        if self._exit is None:
            self._exit = commands.Exit(code, reason)
        self._stop_program(reason)
        self._end_processes(grace_s, everything=True)

    def _stop_program(self, reason: str) -> None:
        if self.task.phase in HAS_PROGRAM:
            self._ending = self._ending or Ending(ExitCause.STOPPED, reason)
        elif self.task.phase in (TaskPhase.PREPARING, TaskPhase.READY):
            self._prepare_since = None
            self._move(TaskPhase.ENDED)

    def _end_processes(self, grace_s: float, everything: bool = False) -> None:
        """Begin a sweep, or shorten the one that runs; a longer grace never lengthens it."""
        until = self._now + grace_s
        if self._sweep_until is None or until < self._sweep_until or everything:
            self._sweep_until = min(
                until, until if self._sweep_until is None else self._sweep_until
            )
            self._do(commands.EndProcesses(max(0.0, self._sweep_until - self._now), everything))

    def _on_processes_ended(self, event: events.ProcessesEnded) -> None:
        if self._sweep_until is None:
            return
        self._sweep_until = None
        clean = not event.survivors
        self._survivors = not clean
        stops, self._stops = self._stops, []
        if self._exit is not None:
            stops = stops or [self.task.session]
        for session in stops:
            self.master.send(messages.Stopped(session, clean, list(event.survivors)))
        if not clean:
            self._do(commands.WriteLog(f"these processes survived KILL: {event.survivors}"))
        if self._exit is not None:
            self._do(self._exit)
            self.exited = True
        elif self._next is not None:
            following = self._next
            if clean:
                self._begin_session(following)
            else:
                self._next = None
                self.master.send(messages.Stopped(self.task.session, False, list(event.survivors)))

    def _on_observed(self, event: events.Observed) -> None:
        message = event.message
        if isinstance(message, messages.Stalled):
            if self.task.note_stalled(message):
                self.master.send(message)
        elif isinstance(message, messages.StacksDumped):
            if self.task.is_running(message.session, message.restart):
                self.master.send(message)  # a next master asks for itself
        elif not isinstance(message, messages.Reported) or message.session == self.task.session:
            self._report(message)

    def _report(self, message: messages.Message) -> None:
        self._telemetry.keep(message, self.master.link is not None)
        self.master.send(message)

    # ------------------------------------------------------------------ time

    def _deadlines(self) -> List[Tuple[float, Callable[[], None]]]:
        due: List[Tuple[float, Callable[[], None]]] = []
        master, welcome = self.master, self.master.welcome
        if master.lost_since is not None and not self.is_exiting:
            wait = welcome.master_lost_s if welcome is not None else self._register_s
            due.append((master.lost_since + wait, self._master_lost))
        if self._prepare_since is not None and welcome is not None and master.link is not None:
            due.append((self._prepare_since + welcome.registry_timeout_s, self._not_ready))
        runs = self.task.started_at is not None and self._ending is None
        if runs and self._execution_s is not None and self.task.started_at is not None:
            due.append((self.task.started_at + self._execution_s, self._ran_too_long))
        if master.heartbeat_at is not None:
            due.append((master.heartbeat_at, self._heartbeat))
        if self._resend_at is not None and master.link is not None:
            due.append((self._resend_at, self._resend_end))
        if self._tokens.retry_at is not None:
            due.append((self._tokens.retry_at, self._tokens.write))
        return due

    def _on_tick(self, event: events.Tick) -> None:
        for at, expired in self._deadlines():
            if at <= event.at:
                expired()

    def _heartbeat(self) -> None:
        assert self.master.welcome is not None
        self.master.heartbeat_at = self._now + self.master.welcome.heartbeat_s
        self.master.send(messages.Heartbeat(self.task.session))

    def _resend_end(self) -> None:
        assert self.ended is not None, self.task.story()
        self._resend_at = self._now + RESEND_S
        self.master.send(self.ended)

    def _master_lost(self) -> None:
        welcome = self.master.welcome
        if welcome is None:
            reason = f"no master was reached within {self._register_s:g} s"
            self._begin_exit(exit_codes.EXIT_NO_MASTER, reason, 0.0)
        else:
            reason = f"no master for {welcome.master_lost_s:g} s (tony.task.master-lost-timeout)"
            self._begin_exit(exit_codes.EXIT_MASTER_LOST, reason, LEFTOVER_GRACE_S)

    def _not_ready(self) -> None:
        assert self.master.welcome is not None
        self._prepare_since = None
        limit = f"within {self.master.welcome.registry_timeout_s:g} s"
        setting = "(tony.task.executor.registry-timeout-sec)"
        if self.task.phase is TaskPhase.PREPARING:
            message = f"the working folder and the ports were not there {limit} {setting}"
            self._end(1, 0, Ending(ExitCause.REGISTRY_TIMEOUT, message))
        else:
            message = f"the master assigned no task {limit} {setting}"
            self.master.send(messages.Noted("warning", message))
            self._begin_exit(exit_codes.EXIT_NO_TASK, message, 0.0)

    def _ran_too_long(self) -> None:
        setting = "tony.task.executor.execution-timeout-ms"
        message = f"it ran for longer than {self._execution_s:g} s ({setting})"
        self._fail_program(Ending(ExitCause.EXECUTION_TIMEOUT, message), LEFTOVER_GRACE_S)

    def _end_program(self, message: messages.EndProgram) -> None:
        if (message.session, message.restart) == (self.task.session, self.task.restart):
            ending = Ending(parse_cause(message.cause), message.message)
            self._fail_program(ending, message.grace_s)

    def _fail_program(self, ending: Ending, grace_s: float) -> None:
        """End the running program for this cause, unless something ends it already."""
        if self.task.phase in HAS_PROGRAM and self._ending is None:
            self._ending = ending
            self._end_processes(grace_s)

    # ------------------------------------------------------------------ shared by all

    def _move(self, phase: TaskPhase) -> None:
        self.task.move(phase, self._now)

    def _send_ready(self) -> None:
        self.master.send(
            messages.Ready(
                self.task.session, self.task.host, dict(self.task.ports), self.task.restart
            )
        )

    def _close_link(self, link: int, reason: str) -> None:
        self.master.close(link, reason, self._now)

    def _do(self, command: Command) -> None:
        self._out.append(command)

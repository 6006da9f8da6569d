"""The life of an executor, pure: events in, commands out.

Theory of operation
===================

An executor is one task of one session after another, for whatever master there is::

    IDLE -> PREPARING -> READY -> STARTING -> RUNNING -> ENDED -> PREPARING ...

*The program* is started once per session, and once more each time that its task is started again
alone in it (``restart``); the end of each is judged once (``_judge``): what ended it wins over how
it ended. The end is said to every master until one acknowledges it.

*Sweeps.* Whatever brings the end about, the program's own or ours, a sweep follows
(``Clear``): nothing of the program may outlive its session. Answers to Stop and Shutdown,
the next session's folder and our own exit all wait for ``Cleared``. At most one sweep runs.

*Masters.* Every authenticated peer is told who we are (Register); one that answers with
Welcome, of an attempt not older than the newest seen, becomes *the* master, and the link of
the former is dropped. Nobody else is obeyed. While there is none the program goes on, and
we seek; when that has lasted for ``master_lost_s`` everything ends: nothing runs unfenced.

*Clocks*, each with its reason: the first master, a lost master, the way from our start to
Ready (registry), the program's own time (execution), heartbeats, an end said again. From
Ready on the master alone knows what is waited for (the rest of a gang may take long), and
its own silence has a clock already.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Type

from tony_core.exit_causes import ExitCause
from tony_core.protocol.messages import (
    Acknowledge,
    Ended,
    Heartbeat,
    Noted,
    Ping,
    Prepare,
    Reported,
    Running,
    Serving,
    Shutdown,
    Start,
    Stop,
    Stopped,
)
from tony_executor.commands import (
    Clear,
    Command,
    Exit,
    LayOut,
    Log,
    StartChild,
)
from tony_executor.diagnosis import judge
from tony_executor.events import (
    Began,
    ChildEnded,
    ChildNotStarted,
    ChildStarted,
    Cleared,
    Event,
    Heard,
    Linked,
    NoMasterWillCome,
    NotPrepared,
    Observed,
    PortsTaken,
    Prepared,
    Tick,
    Unlinked,
)
from tony_executor.masters import Masters
from tony_executor.phases import (
    EXIT_MASTER_LOST,
    EXIT_NO_MASTER,
    EXIT_REGISTRY,
    EXIT_SHUT_DOWN,
    HAS_CHILD,
    LEFTOVER_GRACE_S,
    MAX_NOTES,
    SAY_AGAIN_S,
    Ending,
    Identity,
    Phase,
)


class Life(Masters):
    """See the module. ``register_s`` is how long a first master is sought."""

    def __init__(self, identity: Identity, register_s: float) -> None:
        super().__init__(identity)
        self._register_s = register_s
        self._started_at: Optional[float] = None
        self._execution_s: Optional[float] = None
        self._ending: Optional[Ending] = None
        self._clearing: Optional[float] = None  # the sweep under way: when its grace ends
        self._stops: List[int] = []  # sessions whose Stop waits for the sweep
        self._next: Optional[Prepare] = None  # waits for the sweep
        self._left = False  # something outlived the last sweep
        self._leaving: Optional[Exit] = None  # waits for the sweep
        self._handlers: Dict[Type[Any], Callable[[Any], None]] = {
            Began: self._began,
            Linked: self._linked,
            Heard: self._heard,
            Unlinked: self._unlinked,
            Prepared: self._prepared,
            NotPrepared: self._not_prepared,
            ChildStarted: self._child_started,
            ChildNotStarted: self._child_not_started,
            ChildEnded: self._child_ended,
            PortsTaken: self._ports_taken,
            Cleared: self._cleared,
            Observed: self._observed,
            NoMasterWillCome: self._no_master_will_come,
            Tick: self._tick,
        }
        self._words = {
            Prepare: self._prepare,
            Start: self._start,
            Acknowledge: self._acknowledge,
            Stop: self._stop,
            Shutdown: self._shutdown,
            Ping: lambda message: None,
        }

    # ------------------------------------------------------------------ the one mutator

    def handle(self, event: Event) -> List[Command]:
        """What is to be done about it."""
        if self.exited:
            return []
        self._now = event.at
        self._handlers[type(event)](event)
        self.validate()
        out, self._out = self._out, []
        return out

    @property
    def leaving(self) -> bool:
        """Whether the end has begun."""
        return self._leaving is not None

    def next_deadline(self) -> Optional[float]:
        """When a Tick is due."""
        due = [at for at, _ in self._deadlines()]
        return min(due) if due and not self.exited else None

    def validate(self) -> None:
        """What must hold after every event."""
        assert (self.phase is Phase.IDLE) == (self.session < 0), self._tell()
        assert self.ended is None or self.phase is Phase.ENDED, self._tell()
        assert self._next is None or self._clearing is not None, self._tell()
        assert not self._stops or self._clearing is not None, self._tell()
        assert self._leaving is None or self._clearing is not None or self.exited, self._tell()
        assert self._ending is None or self.phase in HAS_CHILD, self._tell()
        assert (self.link is None) == (self._alone_since is not None), self._tell()
        assert self.link is None or self.link in self._told, self._tell()

    # ------------------------------------------------------------------ a session begins

    def _prepare(self, message: Prepare) -> None:
        number, mine = (message.session, message.restart), (self.session, self.restart)
        if number < mine or self._leaving is not None:
            return
        if number == mine and self.phase is not Phase.ENDED:
            # Said again: so is the answer.
            if self.phase is Phase.READY:
                self._say_ready()
            elif self.phase is Phase.RUNNING:
                self._do(Log(f"session {self.session} runs already: Prepare is not obeyed"))
            return
        if self.phase in HAS_CHILD and self._ending is None:
            self._ending = Ending(ExitCause.STOPPED, f"session {message.session} follows")
            self._clear(LEFTOVER_GRACE_S)
        elif self._left:
            self._clear(0.0)
        if self._clearing is not None:
            self._next = message
            return
        if self.phase in (Phase.PREPARING, Phase.READY):
            self._move(Phase.ENDED)
        self._begin(message)

    def _begin(self, message: Prepare) -> None:
        self._next = None
        self.ended = self._last = None  # whoever prepares us anew has seen the end
        self._again_at = None
        if message.session != self.session:
            self.offsets = {}  # another try in the same session goes on where the first began
        self.task = message.task
        self.session = message.session
        self.restart = message.restart
        self._reported = None
        self._move(Phase.PREPARING)
        self._registry_from = self._now
        self._do(LayOut(message))

    def _prepared(self, event: Prepared) -> None:
        if event.session != self.session or self.phase is not Phase.PREPARING:
            return
        self.host = event.host
        self.ports = dict(event.ports)
        self._registry_from = None
        self._move(Phase.READY)
        self._say_ready()

    def _not_prepared(self, event: NotPrepared) -> None:
        if event.session == self.session and self.phase is Phase.PREPARING:
            self._end(1, 0, Ending(event.cause, event.message))

    def _start(self, message: Start) -> None:
        mine = (message.session, message.restart) == (self.session, self.restart)
        if not mine or self.phase is not Phase.READY:
            if mine and self.phase in HAS_CHILD:
                return  # said again
            text = f"Start of session {message.session} in {self.phase.value} {self.session}"
            self._do(Log(f"{text} is not obeyed"))
            return
        self._execution_s = message.execution_timeout_s
        self._started_at = self._now
        self._move(Phase.STARTING)
        self._do(StartChild(self.task, message))

    def _child_started(self, event: ChildStarted) -> None:
        if event.session != self.session or self.phase is not Phase.STARTING:
            return
        self._started_at = event.at
        self.offsets = self.offsets or dict(event.offsets)
        self.gpus = list(event.gpus)
        self._move(Phase.RUNNING)
        offsets = dict(self.offsets)
        self._say(Running(self.session, event.pid, offsets, self.restart, list(self.gpus)))

    def _child_not_started(self, event: ChildNotStarted) -> None:
        if event.session != self.session or self.phase is not Phase.STARTING:
            return
        ending = self._ending or Ending(event.cause, event.message)
        self._end(event.exit_code, 0, ending)
        self._clear(LEFTOVER_GRACE_S)

    # ------------------------------------------------------------------ and ends

    def _child_ended(self, event: ChildEnded) -> None:
        if event.session != self.session or self.phase not in HAS_CHILD:
            return
        ran_s = self._ran_s()
        ending = self._ending
        if ending is None:
            cause, message = judge(
                event.exit_code,
                event.signal,
                event.stderr_tail,
                ran_s,
                list(self.ports.values()),
                event.ports_taken,
                event.disk_free_mb,
                event.stderr_before,
            )
            ending = Ending(cause, message)
        self._end(event.exit_code, event.signal, ending, event)
        self._clear(LEFTOVER_GRACE_S)

    def _end(
        self, exit_code: int, signal: int, ending: Ending, event: Optional[ChildEnded] = None
    ) -> None:
        ended = Ended(
            session=self.session,
            exit_code=exit_code,
            signal=signal,
            cause=ending.cause.value,
            message=ending.message,
            stderr_tail=list(event.stderr_tail) if event is not None else [],
            duration_s=round(self._ran_s(), 3),
            usage=dict(event.usage) if event is not None else {},
            restart=self.restart,
        )
        self._ending = None
        self._registry_from = None
        self._started_at = None
        self._execution_s = None
        self._move(Phase.ENDED)
        self.ended = self._last = ended
        self._again_at = self._now + SAY_AGAIN_S if self.link is not None else None
        self._say(ended)

    def _ports_taken(self, event: PortsTaken) -> None:
        if event.session == self.session and self.phase is Phase.RUNNING and not self._ending:
            names = ", ".join(event.names)
            message = f"another process listens at the task's port ({names})"
            self._ending = Ending(ExitCause.ADDRESS_IN_USE, message)
            self._clear(LEFTOVER_GRACE_S)

    def _ran_s(self) -> float:
        return self._now - self._started_at if self._started_at is not None else 0.0

    def _acknowledge(self, message: Acknowledge) -> None:
        number = (message.session, message.restart)
        if self.ended is not None and number == (self.session, self.restart):
            self.ended = None
            self._again_at = None

    def _stop(self, message: Stop) -> None:
        if message.session < self.session and self.phase is not Phase.ENDED:
            return  # of a session that a newer one has replaced
        self._next = None
        if message.session not in self._stops:
            self._stops.append(message.session)
        self._stop_child(Ending(ExitCause.STOPPED, message.reason or "stopped by the master"))
        self._clear(message.grace_s)

    def _shutdown(self, message: Shutdown) -> None:
        self._leave(EXIT_SHUT_DOWN, message.reason or "shut down by the master", message.grace_s)

    def _leave(self, code: int, reason: str, grace_s: float) -> None:
        """End everything, then ourselves."""
        self._next = None
        if self._leaving is None:
            self._leaving = Exit(code, reason)
        self._stop_child(Ending(ExitCause.STOPPED, reason))
        self._clear(grace_s, everything=True)

    def _stop_child(self, ending: Ending) -> None:
        if self.phase in HAS_CHILD:
            self._ending = self._ending or ending
        elif self.phase in (Phase.PREPARING, Phase.READY):
            self._registry_from = None
            self._move(Phase.ENDED)

    def _clear(self, grace_s: float, everything: bool = False) -> None:
        """Begin a sweep, or shorten the one under way; a longer grace never lengthens it."""
        ends = self._now + grace_s
        if self._clearing is None or ends < self._clearing or everything:
            self._clearing = ends if self._clearing is None else min(ends, self._clearing)
            self._do(Clear(max(0.0, self._clearing - self._now), everything))

    def _cleared(self, event: Cleared) -> None:
        if self._clearing is None:
            return
        self._clearing = None
        clean = not event.survivors
        self._left = not clean
        stops, self._stops = self._stops, []
        if self._leaving is not None:
            stops = stops or [self.session]
        for session in stops:
            self._say(Stopped(session, clean, list(event.survivors)))
        if not clean:
            self._do(Log(f"could not be ended: {event.survivors}"))
        if self._leaving is not None:
            self._do(self._leaving)
            self.exited = True
        elif self._next is not None:
            following = self._next
            if clean:
                self._begin(following)
            else:
                self._next = None
                self._say(Stopped(self.session, False, list(event.survivors)))

    # ------------------------------------------------------------------ what is passed on

    def _observed(self, event: Observed) -> None:
        message = event.message
        if isinstance(message, Reported):
            if message.session != self.session:
                return
            before = self._reported
            merged = {**(before.metrics if before else {}), **message.metrics}
            progress = message.progress
            step = message.step
            if before is not None:
                progress = before.progress if progress is None else progress
                step = before.step if step is None else step
            result = message.result or (before.result if before else "")
            saved = message.saved
            if saved is None and before is not None:
                saved = before.saved
            self._reported = Reported(message.session, progress, merged, step, result, saved)
        elif isinstance(message, Serving):
            if message.port:
                self._serving[message.name] = message
            else:
                self._serving.pop(message.name, None)
        elif isinstance(message, Noted) and self.link is None:
            self._notes = [*self._notes, message][-MAX_NOTES:]
        self._say(message)

    # ------------------------------------------------------------------ time

    def _deadlines(self) -> List[Any]:
        due: List[Any] = []
        welcome = self._welcome
        if self._alone_since is not None and self._leaving is None:
            wait = welcome.master_lost_s if welcome is not None else self._register_s
            due.append((self._alone_since + wait, self._alone_too_long))
        if self._registry_from is not None and welcome is not None and self.link is not None:
            due.append((self._registry_from + welcome.registry_timeout_s, self._not_ready))
        runs = self._started_at is not None and self._ending is None
        if runs and self._execution_s is not None and self._started_at is not None:
            due.append((self._started_at + self._execution_s, self._ran_too_long))
        if self._heartbeat_at is not None:
            due.append((self._heartbeat_at, self._heartbeat))
        if self._again_at is not None:
            due.append((self._again_at, self._say_again))
        return due

    def _tick(self, event: Tick) -> None:
        for at, passed in self._deadlines():
            if at <= event.at:
                passed()

    def _heartbeat(self) -> None:
        assert self._welcome is not None
        self._heartbeat_at = self._now + self._welcome.heartbeat_s
        self._say(Heartbeat(self.session))

    def _say_again(self) -> None:
        assert self.ended is not None, self._tell()
        self._again_at = self._now + SAY_AGAIN_S
        self._say(self.ended)

    def _alone_too_long(self) -> None:
        if self._welcome is None:
            reason = f"no master was reached within {self._register_s:g} s"
            self._leave(EXIT_NO_MASTER, reason, 0.0)
        else:
            waited = self._welcome.master_lost_s
            reason = f"no master for {waited:g} s (tony.task.master-lost-timeout)"
            self._leave(EXIT_MASTER_LOST, reason, LEFTOVER_GRACE_S)

    def _not_ready(self) -> None:
        assert self._welcome is not None
        self._registry_from = None
        limit = f"within {self._welcome.registry_timeout_s:g} s"
        setting = "(tony.task.executor.registry-timeout-sec)"
        if self.phase is Phase.PREPARING:
            message = f"the working folder and the ports were not there {limit} {setting}"
            self._end(1, 0, Ending(ExitCause.REGISTRY_TIMEOUT, message))
        else:
            message = f"the master did not say {limit} which task to be {setting}"
            self._say(Noted("warning", message))
            self._leave(EXIT_REGISTRY, message, 0.0)

    def _ran_too_long(self) -> None:
        self._ending = Ending(
            ExitCause.EXECUTION_TIMEOUT,
            f"it ran for longer than {self._execution_s:g} s"
            " (tony.task.executor.execution-timeout-ms)",
        )
        self._clear(LEFTOVER_GRACE_S)

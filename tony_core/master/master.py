"""The application master: everything around the session machine that touches the world.

Theory of operation
===================

One thread, one reactor. Whatever happens (a pool's word, an executor's message, a timer, a
signal, a page request) becomes a callback on it; what concerns the job becomes an event of
the :class:`SessionMachine`, which answers with commands; each is performed by the method
that the table names for its type. An event that comes up while a command is performed waits
for its turn (:meth:`Master.feed`), so the machine never sees itself half-way; both wait while
the journal is being written elsewhere (:mod:`tony_core.master.session.journal_gate`).

One timer is armed for the earliest of all deadlines: the machine's, the heartbeats', the
client's lease, the history's flush, the journal's.

Nothing here decides about the job. What may go wrong outside (a connection, a slow file
system) is answered in the parts; what goes wrong in here is a bug, leaves :meth:`run`, and
is main's to report.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional, Tuple, Type

from tony_core.files.artifact import Artifact
from tony_core.files.location import is_remote
from tony_core.frameworks import find_framework
from tony_core.history.store import HistoryWriter
from tony_core.job.spec import Job
from tony_core.master.executors.liveness import Liveness
from tony_core.master.executors.reconnect import Takeover
from tony_core.master.executors.server import Listeners, Rendezvous
from tony_core.master.executors.services import Services
from tony_core.master.executors.task_commands import Orders
from tony_core.master.executors.telemetry import Hearing
from tony_core.master.lease import Lease
from tony_core.master.masking import Masker
from tony_core.master.pool_events import Intake
from tony_core.master.session import commands as c
from tony_core.master.session import events as e
from tony_core.master.session.journal_gate import Ahead
from tony_core.master.session.machine import SessionMachine
from tony_core.master.session.milestones import Milestones
from tony_core.master.state.finalize import Ending, tell_the_end
from tony_core.master.state.journal import Journal, Past, write_master_file
from tony_core.master.state.previous_attempt import look_back
from tony_core.master.web.status_site import Front
from tony_core.protocol.messages import Shutdown, Stop, Welcome
from tony_core.protocol.reactor import Reactor, Timer
from tony_core.schedulers.port import (
    AppState,
    Container,
    ContainerPool,
    MasterContext,
    PoolInfo,
)
from tony_core.version import __version__

if TYPE_CHECKING:
    from tony_core.master.preprocess import Preprocess

STOP_EXTRA_S = 3.0  # from an executor's grace to the scheduler's own stop
CRASH_HISTORY_S = 2.0  # for what waits to be put when this process ends
INHERIT_S = 30.0  # for the scheduler to say what an earlier master left
GATHERED_S = 0.5  # that a decision waits for others until history elsewhere is written


class Master:
    """One attempt. See the module."""

    def __init__(
        self,
        context: MasterContext,
        pool: ContainerPool,
        job: Job,
        artifacts: Tuple[Artifact, ...],
        config: Optional[bytes] = None,
    ) -> None:
        self.reactor = Reactor()
        self.info: Optional[PoolInfo] = None
        self._context = context
        self._pool = pool
        self._job = job
        self._artifacts = artifacts
        self._masker = Masker(job, context.secret)
        self.log = self.reactor.log = self._masker.log
        self._journal = Journal(context.state_dir, context.attempt, self.log)
        self._earlier = look_back(context, job, self._journal)
        self._past = self._earlier.past
        self._history = HistoryWriter(
            self._earlier.history_dir, None, context.history_dir, job.history.location or "",
            lambda text: self.reactor.call_soon_threadsafe(self.warn, "history", text), self.log,
        )  # fmt: skip
        self._lease = Lease.of(job.timeouts, self.reactor.now(), context.attempt)
        self._queue: Deque[e.Event] = deque()
        self._commands: Deque[c.Command] = deque()
        self._ahead = Ahead(
            self.reactor, self._journal, context.attempt == 1, self._go_on, self._tell,
            lambda text: self._publisher.trouble(text),
        )  # fmt: skip
        self._feeding = False
        self._timer: Optional[Timer] = None
        self._soon: Optional[Timer] = None
        self._stops: Dict[str, Timer] = {}
        self._preprocess: Optional[Preprocess] = None
        self._inherit: Optional[Timer] = None
        self._over = False
        self.executors_call = ""  # HOST:PORT, once it is listened at
        self._milestones = Milestones(self.reactor, self.keep)
        front = self._front = Front(
            self.reactor, context, job, self._earlier, self._history, self._masker,
            self._snapshot, self._progress, self._written,
        )  # fmt: skip
        front.log = self.log
        self._publisher, self._story = front.publisher, front.story
        self._page, self._server = front.page, front.server
        self._page.client_seen, self._page.client_waits = self._client_seen, self._client_waits
        self._history.begin(list(self._earlier.segments))
        if config is not None:
            self._history.config(config)
        self._ending = Ending(
            self.reactor, self._context, self._pool, self._journal, self._history,
            self._publisher, self._story, self._page, self._server, self.log,
        )  # fmt: skip
        self._intake = Intake(
            self.reactor, self.feed, self._container_ended,
            lambda cid: self._rendezvous.is_connected(cid),
            lambda cid: self._rendezvous.expect(cid),
            self._inherited,
        )  # fmt: skip
        self._closers: List[Callable[[], object]] = [self._server.close, self._page.close]

    # ------------------------------------------------------------------ the life of it

    def ended_before(self) -> bool:
        """Whether an earlier master decided the end and died over telling it; told now."""
        end = self._past.end
        if end is None:
            return False
        self._server.close()
        self._pool.start(lambda event: None, "")
        state, text = AppState(str(end["state"])), str(end["diagnostics"])
        portal = self._publisher.facts.links.get("portal", "")
        tell_the_end(self._context, self._pool, state, text, portal, self.log)
        self._pool.close()
        return True

    def run(self) -> None:
        """Until the job has ended."""
        info = self.info = self._pool.start(self._intake.sink, self._front.url)
        self._make_parts(info)
        self._publisher.report = self._pool.report
        self.reactor.call_later(0, self._begin)
        self.reactor.run()

    def _make_parts(self, info: PoolInfo) -> None:
        job = self._job
        facts = self._publisher.facts
        facts.user, facts.queue = info.user or facts.user, info.queue or facts.queue
        times = job.timeouts
        self.liveness = Liveness(times.heartbeat_s, times.max_missed_heartbeats)
        welcome = Welcome(
            attempt=self._context.attempt,
            heartbeat_s=times.heartbeat_s,
            silence_s=self.liveness.silence_s,
            master_lost_s=times.master_lost_s or info.master_lost_s,
            metrics_interval_s=job.metrics.interval_s,
            gpu_metrics=job.metrics.gpu,
            error_lines=job.metrics.error_lines,
            registry_timeout_s=times.registry_s,
            gpu_exec_path=job.metrics.gpu_exec_path or "",
        )
        listeners = Listeners()
        hearing = Hearing(self.reactor, self._publisher, self._page, self.feed, self._tell)
        self._hearing = hearing
        listeners.event = hearing.event
        listeners.address = self._journal.address
        listeners.measured = hearing.measured
        listeners.serving = hearing.serving
        listeners.noted = hearing.noted
        listeners.lost = self._connection_lost
        listeners.log = self.log
        self._rendezvous = Rendezvous(
            self.reactor, self._context.secret, welcome, self.liveness, listeners
        )
        self._closers.append(self._rendezvous.close)
        front, folder, grace = self._front, self._journal.folder, times.kill_grace_s
        port = self._rendezvous.listen(front.bind)
        self.executors_call = front.address(port)
        write_master_file(folder, self._context.attempt, front.host, port, front.url, grace)
        framework = find_framework(job.framework)
        self._orders = Orders(job, framework, self._artifacts, self._context.app_id)
        failed, nodes = self._service_failed, self._rendezvous.nodes
        self._services = Services(self.reactor, job, framework, front.host, failed, self.log, nodes)
        self._closers.append(self._services.close_all)
        self._takeover = Takeover(self.reactor, self._rendezvous, self.log)
        bound = frozenset(r.name for r in job.roles if framework.task_restart(job, r).in_place)
        self._machine = SessionMachine(job, info.settle_s, _jitter, info.ends_rest, bound)
        self._performers: Dict[Type[c.Command], Callable[[Any], None]] = {
            c.RunPreprocess: self._run_preprocess,
            c.RequestContainers: lambda x: self._pool.request(x.asks, x.gang),
            c.ReleaseContainer: self._release,
            c.LaunchExecutor: self._launch,
            c.StopContainer: self._stop_container,
            c.PrepareTask: self._prepare,
            c.StartTasks: self._start_tasks,
            c.StopTask: lambda x: self._say(x, Stop(x.session, x.grace_s, x.reason)),
            c.AcknowledgeEnd: lambda x: self._rendezvous.acknowledge(
                x.container_id, x.session, x.restart
            ),
            c.EndSession: self._end_session,
            c.WriteJournal: self._write_journal,
            c.Tell: self._tell,
            c.Finish: self._finish,
        }

    def _begin(self) -> None:
        now = self.reactor.now()
        self.log(f"attempt {self._context.attempt} of {self._context.app_id}, tony {__version__}")
        self._journal.began(self._publisher.facts.started)
        for text in self._earlier.troubles:
            self.log(text)
            self._tell(c.Tell("takeover", text, c.Weight.WARNING))
        if self._context.attempt > 1:
            # The pool's first word tells what the earlier master left.
            self._inherit = self.reactor.call_later(INHERIT_S, self._inherited, ())
        else:
            self.feed(e.Begin(now))
            self._publisher.summarise()

    def _inherited(self, containers: Tuple[Container, ...]) -> None:
        """What the earlier master left; said once, or nothing was said in time."""
        if self._inherit is None:
            return
        self._inherit.cancel()
        self._inherit = None
        past: Past = self._past
        now = self.reactor.now()
        addresses = {
            item.id: past.executors[item.id] for item in containers if item.id in past.executors
        }
        self.feed(e.ContainersInherited(now, containers, past.record))
        self._takeover.call_all(addresses)
        self._publisher.summarise()

    # ------------------------------------------------------------------ the machine

    def feed(self, event: e.Event) -> None:
        """Let the machine handle an event, and perform what it wants."""
        if self._over:
            return
        self._queue.append(event)
        self._go_on()

    def _go_on(self) -> None:
        """Perform what is wanted and take in what happened, in order, until there is no more."""
        if self._feeding:
            return
        self._feeding = True
        try:
            while not self._ahead.holds:
                if self._commands:
                    command = self._commands.popleft()
                    self._performers[type(command)](command)
                elif self._queue:
                    event = self._queue.popleft()
                    self._commands.extend(self._machine.handle(event))
                    if isinstance(event, e.TaskRunning):
                        self._milestones.reached(event.session, "running")
                    elif isinstance(event, e.TaskEnded):
                        self._pool.look_closely()
                else:
                    break
        finally:
            self._feeding = False
        self._publisher.changed()
        self._arm()

    def keep(self) -> None:
        """Write the story down as far as it is told, at once."""
        if not self._over:
            self._history.flush()
            self._publisher.summarise(at_once=True)

    def kill(self, reason: str, by_user: bool = True) -> None:
        """Somebody wants the job's end."""
        self.feed(e.KillAsked(self.reactor.now(), reason, by_user))

    def _snapshot(self) -> Any:
        return self._machine.snapshot()

    def _progress(self) -> float:
        return self._machine.progress()

    def _arm(self) -> None:
        """One timer, for the earliest deadline of all."""
        if self._over:
            return
        at = [
            None if self._ahead.holds else self._machine.next_deadline(),
            self.liveness.next_deadline(),
            self._lease.next_deadline(),
            self._history.next_deadline(),
            self.reactor.now() + self._journal.soon_s if self._journal.dirty else None,
        ]
        known = [deadline for deadline in at if deadline is not None]
        if not known:
            return
        first = min(known)
        if self._timer is not None and self._timer.active:
            if self._timer.at <= first:
                return  # it looks again then
            self._timer.cancel()
        self._timer = self.reactor.call_later(first - self.reactor.now(), self._due)

    def _due(self) -> None:
        now = self.reactor.now()
        for lost in self.liveness.expired(now):
            self._rendezvous.drop(lost.container_id)
            self.feed(e.ExecutorLost(now, lost.container_id, lost.reason))
        reason = self._lease.check(now)
        if reason is not None:
            self.kill(reason, by_user=False)
        flush = self._history.next_deadline()
        if flush is not None and flush <= now:
            self._history.flush()
            self._publisher.summarise()
        if self._journal.dirty and not self._journal.pending:
            self._journal.save()
        due = self._machine.next_deadline()
        if due is not None and due <= now and not self._ahead.holds:
            self.feed(e.Tick(now))
        self._arm()

    # ------------------------------------------------------------------ commands

    def _run_preprocess(self, command: c.RunPreprocess) -> None:
        from tony_core.master import preprocess  # few jobs have one

        told = preprocess.told(self._job, self._context, self._artifacts, command.command)

        def done(code: int, parameters: Optional[str], tail: Any) -> None:
            self._preprocess = None
            self.feed(e.PreprocessEnded(self.reactor.now(), code, parameters, tuple(tail)))

        self._preprocess = preprocess.Preprocess(self.reactor, told, done)

    def _release(self, command: c.ReleaseContainer) -> None:
        self._intake.containers.pop(command.container_id, None)
        self._rendezvous.forget(command.container_id)
        self._pool.release(command.container_id)

    def _launch(self, command: c.LaunchExecutor) -> None:
        container = self._intake.containers[command.container_id]
        launch = self._orders.launch(
            command.task,
            command.container_id,
            self.executors_call,
            self._context.secret,
            self._context.python or self._job.runtime.python,
        )
        self._pool.launch(container, launch)
        self._milestones.reached(self._machine.session, "launched")

    def _stop_container(self, command: c.StopContainer) -> None:
        """First by a word to its executor, which has its grace; then by the scheduler."""
        container_id = command.container_id
        self._takeover.forget(container_id)
        timer = self._stops.pop(container_id, None)
        if timer is not None:
            timer.cancel()
        if self._rendezvous.send(container_id, Shutdown(command.grace_s, command.reason)):
            self._pool.look_closely()
            self._stops[container_id] = self.reactor.call_later(
                command.grace_s + STOP_EXTRA_S, self._pool.stop, container_id
            )
        else:
            self._pool.stop(container_id)

    def _prepare(self, command: c.PrepareTask) -> None:
        self._hearing.prepared(command.container_id, command.task, command.session)
        self._rendezvous.send(command.container_id, self._orders.prepare(command))

    def _start_tasks(self, command: c.StartTasks) -> None:
        try:
            shared, orders = self._orders.start(command, self._services.serve)
            notes = list(self._orders.notes(command))
        except Exception as error:  # a framework's code, perhaps not ours: its session fails
            self.log(f"{self._job.framework}: {type(error).__name__}: {error}")
            text = f"the framework {self._job.framework} cannot start: {error}"
            self.feed(e.ServiceFailed(self.reactor.now(), command.session, text))
            return
        for order in orders:
            self._rendezvous.send(order.container_id, order.start, {"shared": shared})
        for note in notes:
            self._tell(c.Tell("environment", note, c.Weight.WARNING, session=command.session))

    def _say(self, command: c.StopTask, message: Stop) -> None:
        self._rendezvous.send(command.container_id, message)

    def _write_journal(self, command: c.WriteJournal) -> None:
        # What the preprocess wrote goes to the tasks as it is; the rest is only ever shown.
        clean = self._masker.clean
        self._ahead.write(
            {k: v if k == "parameters" else clean(v) for k, v in command.record.items()}
        )

    def _end_session(self, command: c.EndSession) -> None:
        self._services.close(command.session)
        self._orders.forget(command.session)

    def _finish(self, command: c.Finish) -> None:
        self._over = True
        self._queue.clear()
        self._ahead.close()
        if self._timer is not None:
            self._timer.cancel()
        for timer in self._stops.values():
            timer.cancel()
        if self._preprocess is not None:
            self._preprocess.end()
        self._takeover.stop()
        self._intake.close()
        self._services.close_all()
        self._rendezvous.close()
        self._ending.perform(command)

    # ------------------------------------------------------------------ what is heard

    def _container_ended(self, container_id: str) -> None:
        timer = self._stops.pop(container_id, None)
        if timer is not None:
            timer.cancel()
        self._takeover.forget(container_id)
        self._rendezvous.forget(container_id)
        self._journal.forget(container_id)
        self._hearing.ended(container_id)

    def _connection_lost(self, container_id: str) -> None:
        self._intake.connection_ended(container_id)
        self._arm()

    def _service_failed(self, session: int, reason: str, task: str, exit_code: int) -> None:
        self.feed(e.ServiceFailed(self.reactor.now(), session, reason, task, exit_code))

    def _client_seen(self) -> None:
        self._lease.renew(self.reactor.now())

    def _client_waits(self, begins: bool) -> None:
        if begins:
            self._lease.hold()
        else:
            self._lease.let_go(self.reactor.now())
            self._arm()

    # ------------------------------------------------------------------ saying

    def _tell(self, told: c.Tell) -> None:
        self._story.tell(told, self._publisher.wall(self.reactor.now()))
        self._publisher.changed()

    def warn(self, kind: str, text: str) -> None:
        """Log trouble that the job outlives, and show it in its story."""
        self.log(text)
        self._tell(c.Tell(kind, text, c.Weight.WARNING))

    def _written(self, line: bytes, loud: bool) -> None:
        self._history.add(line, self.reactor.now())
        if loud and not is_remote(self._context.history_dir):
            self._history.flush()
            self.reactor.call_later(0, self._publisher.summarise)
        elif loud and not (self._soon is not None and self._soon.active):
            # Decisions come several at a time, and a file elsewhere may take half a second.
            self._soon = self.reactor.call_later(GATHERED_S, self._told)

    def _told(self) -> None:
        if not self._over:
            self._history.flush()
            self._publisher.summarise()

    def close(self) -> None:
        """Give back what this process holds, whatever became of the job."""
        if self._preprocess is not None:
            self._preprocess.end()
        for close in self._closers:
            close()
        self._history.close(CRASH_HISTORY_S)
        self._journal.close(CRASH_HISTORY_S)
        self.reactor.close()

    def running(self) -> List[str]:
        """The containers that have not ended, as far as this master knows."""
        return list(self._intake.containers)


def _jitter() -> float:
    return int.from_bytes(os.urandom(4), "big") / 2.0**32

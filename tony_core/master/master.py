"""The application master: everything around the session machine that touches the world.

Theory of operation
===================

One thread, one reactor. Whatever happens (a pool's event, an executor's message, a timer, a
signal, a page request) becomes a callback on it; what concerns the job becomes an event of
the :class:`SessionMachine`, which answers with commands; each is performed by the method
that the table names for its type. :mod:`tony_core.master.machine_loop` runs the machine; here its
parts are put together, and the commands meet the world.

Nothing here decides about the job. What may go wrong outside (a connection, a slow file system) is
answered in the parts; what goes wrong here is a bug, leaves :meth:`run`, and is main's to report.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from tony_core.files.artifact import Artifact
from tony_core.frameworks import find_framework
from tony_core.history.layout import StoryKind
from tony_core.history.store import HistoryWriter
from tony_core.job.spec import Job
from tony_core.master.client_lease import Lease
from tony_core.master.executors.framework_services import FrameworkServices
from tony_core.master.executors.liveness import Liveness
from tony_core.master.executors.reconnect import Reconnector
from tony_core.master.executors.server import ExecutorServer
from tony_core.master.executors.task_commands import TaskCommands
from tony_core.master.executors.telemetry import Telemetry
from tony_core.master.machine_loop import MachineLoop
from tony_core.master.masking import Masker
from tony_core.master.pool_events import PoolEvents
from tony_core.master.recorder import Milestones
from tony_core.master.session import commands as c
from tony_core.master.session import events as e
from tony_core.master.session.machine import SessionMachine
from tony_core.master.state.finalize import Finalizer, finish_application
from tony_core.master.state.journal import Journal, write_client_key, write_master_file
from tony_core.master.state.journal_gate import JournalGate
from tony_core.master.state.previous_attempt import read_previous_attempt
from tony_core.master.token_watch import TokenWatch
from tony_core.master.tracking.factory import open_tracker
from tony_core.master.web.status_site import StatusSite
from tony_core.protocol.messages import DumpStacks, Ended, EndProgram, Running, Shutdown, Stop
from tony_core.protocol.reactor import Reactor, Timer
from tony_core.schedulers.container_pool import (
    Container,
    ContainerPool,
    MasterContext,
    PoolInfo,
    ShutdownRequested,
)
from tony_core.schedulers.port import AppState
from tony_core.version import __version__

if TYPE_CHECKING:
    from tony_core.master.preprocess import Preprocess

STOP_EXTRA_S = 3.0  # from an executor's grace to the scheduler's own stop
CRASH_HISTORY_S = 2.0  # for what waits to be put when this process ends
INHERIT_S = 30.0  # for the scheduler to list the containers of the previous attempt
DECISIONS_S = 0.5  # that a decision waits for others until a remote history is written


class Master:
    """One attempt at being the job's master."""

    def __init__(
        self,
        context: MasterContext,
        pool: ContainerPool,
        job: Job,
        artifacts: Tuple[Artifact, ...],
        config: Optional[bytes] = None,
    ) -> None:
        self._masker = Masker(job, context.secret)
        self.log = self._masker.log
        self.reactor = Reactor(self.log)
        self.info: Optional[PoolInfo] = None
        self._context = context
        self._pool = pool
        self._job = job
        self._artifacts = artifacts
        self._soon: Optional[Timer] = None
        self._stops: Dict[str, Timer] = {}
        self._preprocess: Optional[Preprocess] = None
        self._inherit: Optional[Timer] = None
        self.executors_call = ""  # HOST:PORT, once the port is open
        self._journal = Journal(context.state_dir, context.attempt, self._journal_changed, self.log)
        self._previous = read_previous_attempt(context, job, self._journal)
        self._history = HistoryWriter(
            self._previous.history_dir, None, context.history_dir, job.history.location or "",
            lambda text: self.reactor.call_soon_threadsafe(self.warn, StoryKind.HISTORY, text),
            self.log,
        )  # fmt: skip
        self._site = StatusSite(
            self.reactor, context, job, self._previous, self._history, self._masker,
            lambda: self._machine.state, self._written, self,
        )  # fmt: skip
        self._publisher, self._story = self._site.publisher, self._site.story
        self._page, self._server = self._site.page, self._site.server
        self._recorder = self._publisher.recorder
        self._history.begin(list(self._previous.segments))
        if config is not None:
            self._history.config(config)
        self._lease = Lease.of(job.timeouts, self.reactor.now(), context.attempt)
        self._milestones = Milestones(self.reactor, self.keep)
        self._journal_gate = JournalGate(
            self.reactor, self._journal, context.attempt == 1, lambda: self._loop.go_on(),
            self._add_line, self._publisher.trouble,
        )  # fmt: skip
        self.liveness = Liveness(job.timeouts.heartbeat_s, job.timeouts.max_missed_heartbeats)
        self._loop = MachineLoop(
            self.reactor, lambda: self._journal_gate.is_closed, self._handled,
            self._publisher.changed,
            (self.liveness.next_deadline, self._lease.next_deadline, self._journal_deadline),
            self._check_deadlines,
        )  # fmt: skip
        self.feed = self._loop.feed
        self._tracker = open_tracker(
            self.reactor, job, context.secret, self._publisher, self._journal, self._add_line,
            self.log,
        )  # fmt: skip
        self._telemetry = Telemetry(
            self._publisher, self._page, self._journal, self.feed, self._add_line,
            self._connection_lost, self._tracker, self._site.streams,
        )  # fmt: skip
        self._executors = ExecutorServer(
            self.reactor, context.secret, self.liveness, self._telemetry, self.log
        )
        self._site.connect_streams(self._executors.send, self._add_line)
        self._reconnector = Reconnector(self.reactor, self._executors, self.log)
        self._pool_events = PoolEvents(
            self.reactor, self.feed, self._container_ended, self._executors, self._inherited
        )
        framework = find_framework(job.framework)
        self._address_bound = frozenset(
            r.name for r in job.roles if framework.task_restart(job, r).address_bound
        )
        self._task_commands = TaskCommands(job, framework, artifacts, context.app_id, self._tracker)
        self._services = FrameworkServices(
            self.reactor, job, framework, self._site.host, self._service_failed, self.log,
            self._executors.nodes,
        )  # fmt: skip
        self._finalizer = Finalizer(
            self.reactor, context, pool, self._journal, self._history,
            self._publisher, self._story, self._page, self._server, self.log,
        )  # fmt: skip
        self._token_watch = TokenWatch(self.reactor, pool, self._executors, self.feed, self.warn)
        self._machine: SessionMachine  # made by _register
        send, acknowledge = self._executors.send, self._executors.acknowledge
        self._loop.performers = {
            c.RunPreprocess: self._run_preprocess,
            c.RequestContainers: lambda x: self._pool.request(x.requests, x.gang),
            c.ReleaseContainer: self._release,
            c.LaunchExecutor: self._launch,
            c.StopContainer: self._stop_container,
            c.PrepareTask: self._prepare,
            c.StartTasks: self._start_tasks,
            c.StopTask: lambda x: send(x.container_id, Stop(x.session, x.grace_s, x.reason)),
            c.WarnProgram: lambda x: send(x.container_id, self._task_commands.preemption(x)),
            c.AcknowledgeEnd: lambda x: acknowledge(x.container_id, x.session, x.restart),
            c.EndProgram: lambda x: send(x.container_id, EndProgram(*x[1:])),
            c.DumpStacks: lambda x: send(x.container_id, DumpStacks(*x[1:])),
            c.EndSession: self._end_session,
            c.WriteJournal: self._write_journal,
            c.AddStoryLine: self._add_line,
            c.Finish: self._finish,
        }

    # ------------------------------------------------------------------ from the begin to the end

    def ended_before(self) -> bool:
        """Report an end that a previous attempt decided; return whether it had decided one."""
        end = self._previous.journal.end
        if end is None:
            return False
        self._server.close()
        self._pool.start(lambda event: None, "")
        state, text = AppState(str(end["state"])), str(end["diagnostics"])
        portal = self._publisher.info.links.get("portal", "")
        finish_application(self._context, self._pool, state, text, portal, self.log)
        self._pool.close()
        return True

    def run(self) -> None:
        """Run until the job has ended."""
        self._register()
        self.reactor.call_later(0, self._begin)
        self.reactor.run()

    def _register(self) -> None:
        """Register with the scheduler; its answer decides how the session machine works."""
        info = self.info = self._pool.start(self._pool_events.sink, self._site.url)
        self._publisher.start_reporting(info, self._pool.report, self._site.url)
        self._listen(info)
        self._machine = self._loop.machine = SessionMachine(
            self._job, info.settle_s, _jitter, info.ends_containers_at_finish, self._address_bound,
            info.scheduler,
        )  # fmt: skip

    def _listen(self, info: PoolInfo) -> None:
        """Open the port for executors and publish it."""
        welcome = self._task_commands.welcome(
            self._context.attempt, self.liveness.silence_s, info.master_lost_s
        )
        site = self._site
        port = self._executors.listen(site.bind, welcome)
        self.executors_call = site.address(port)
        write_master_file(
            self._journal.folder, self._context.attempt, site.host, port, site.url,
            self._job.timeouts.kill_grace_s,
        )  # fmt: skip
        write_client_key(self._journal.folder, self._context.secret, site.url)

    def _begin(self) -> None:
        self.log(f"attempt {self._context.attempt} of {self._context.app_id}, tony {__version__}")
        self._journal.began(self._publisher.info.started)
        for text in self._previous.troubles:
            self.warn(StoryKind.TAKEOVER, text)
        if self._context.attempt > 1:
            # The pool's first event has the containers of the previous attempt.
            self._inherit = self.reactor.call_later(INHERIT_S, self._inherited, ())
        else:
            self._tracker.begin(lambda: self._begin_with(e.Begin()))

    def _inherited(self, containers: Tuple[Container, ...]) -> None:
        """Take over the previous attempt's containers: from the pool, or none after a timeout."""
        if self._inherit is None:
            return
        self._inherit.cancel()
        self._inherit = None
        journal = self._previous.journal
        known = journal.executors
        addresses = {item.id: known[item.id] for item in containers if item.id in known}
        self._tracker.begin(lambda: None)
        self._begin_with(e.ContainersInherited(containers, journal.record))
        self._reconnector.call_all(addresses)

    def _begin_with(self, event: e.Event) -> None:
        self.feed(event)
        self._token_watch.begin(self.info, self._job.hadoop.refresh)
        self._recorder.summarise()

    # ------------------------------------------------------------------ the machine

    def _handled(self, event: e.Event) -> None:
        message = event.message if isinstance(event, e.ExecutorReported) else None
        if isinstance(message, Running):
            self._milestones.mark(message.session, "running")
        elif isinstance(message, Ended):
            self._pool.expect_ends()

    def _journal_deadline(self) -> Optional[float]:
        journal = self._journal
        return self.reactor.now() + journal.address_delay_s if journal.dirty else None

    def _check_deadlines(self, now: float) -> None:
        """Look at the deadlines beside the session machine's."""
        for lost in self.liveness.expired(now):
            self._executors.drop(lost.container_id)
            self.feed(e.ExecutorLost(lost.container_id, lost.reason))
        reason = self._lease.check(now)
        if reason is not None:
            self.kill(reason, by_user=False)
        if self._journal.dirty and not self._journal.pending:
            self._journal.save()

    def keep(self) -> None:
        """Write story and summary to history at once."""
        if not self._loop.is_over:
            self._recorder.flush(sync=True)
            self._recorder.summarise(at_once=True)

    def kill(self, reason: str, by_user: bool = True) -> None:
        """End the job, for this reason."""
        self.feed(ShutdownRequested(reason, by_user))

    # ------------------------------------------------------------------ commands

    def _run_preprocess(self, command: c.RunPreprocess) -> None:
        from tony_core.master import preprocess  # few jobs have one

        request = preprocess.build_request(
            self._job, self._context, self._artifacts, command.command
        )

        def done(code: int, parameters: Optional[str], tail: Any) -> None:
            self._preprocess = None
            self.feed(e.PreprocessEnded(code, parameters, tuple(tail)))

        self._preprocess = preprocess.Preprocess(self.reactor, request, done)

    def _release(self, command: c.ReleaseContainer) -> None:
        self._pool_events.containers.pop(command.container_id, None)
        self._executors.forget(command.container_id)
        self._pool.release(command.container_id)

    def _launch(self, command: c.LaunchExecutor) -> None:
        container = self._pool_events.containers[command.container_id]
        launch = self._task_commands.launch(
            command.task,
            command.container_id,
            self.executors_call,
            self._context.secret,
            self._context.python or self._job.runtime.python,
        )
        self._pool.launch(container, launch)
        self._milestones.mark(self._machine.state.session, "launched")

    def _stop_container(self, command: c.StopContainer) -> None:
        """Ask its executor to stop, within its grace; then the scheduler."""
        container_id = command.container_id
        self._reconnector.forget(container_id)
        timer = self._stops.pop(container_id, None)
        if timer is not None:
            timer.cancel()
        if self._executors.send(container_id, Shutdown(command.grace_s, command.reason)):
            self._pool.expect_ends()
            self._stops[container_id] = self.reactor.call_later(
                command.grace_s + STOP_EXTRA_S, self._pool.stop, container_id
            )
        else:
            self._pool.stop(container_id)

    def _prepare(self, command: c.PrepareTask) -> None:
        self._telemetry.prepared(command.container_id, command.task, command.session)
        self._executors.send(command.container_id, self._task_commands.prepare(command))

    def _start_tasks(self, command: c.StartTasks) -> None:
        try:
            shared, starts = self._task_commands.start(command, self._services.serve)
            notes = list(self._task_commands.notes(command))
        except Exception as error:  # a framework's code, perhaps not ours: its session fails
            self.log(f"{self._job.framework}: {type(error).__name__}: {error}")
            text = f"the framework {self._job.framework} cannot start: {error}"
            self.feed(e.ServiceFailed(command.session, text))
            return
        for each in starts:
            self._executors.send(each.container_id, each.start, {"shared": shared})
        for note in notes:
            level, session = c.Level.WARNING, command.session
            self._add_line(c.AddStoryLine(StoryKind.ENVIRONMENT, note, level, session=session))

    def _write_journal(self, command: c.WriteJournal) -> None:
        # What the preprocess wrote goes to the tasks as it is; the rest is only ever shown.
        clean = self._masker.clean
        self._journal_gate.write(
            {k: v if k == "parameters" else clean(v) for k, v in command.record.items()}
        )

    def _end_session(self, command: c.EndSession) -> None:
        self._services.close(command.session)
        self._task_commands.forget(command.session)

    def _finish(self, command: c.Finish) -> None:
        self._loop.close()
        self._journal_gate.close()
        for timer in self._stops.values():
            timer.cancel()
        if self._preprocess is not None:
            self._preprocess.end()
        self._token_watch.close()
        self._reconnector.stop()
        self._pool_events.close()
        self._services.close_all()
        self._site.tunnels.close("the job has ended")
        self._executors.close()
        self._tracker.finish(command, lambda: self._finalizer.perform(command))

    # ------------------------------------------------------------------ from executors and clients

    def _container_ended(self, container_id: str) -> None:
        timer = self._stops.pop(container_id, None)
        if timer is not None:
            timer.cancel()
        self._reconnector.forget(container_id)
        self._executors.forget(container_id)
        self._journal.forget(container_id)
        self._telemetry.ended(container_id)

    def _connection_lost(self, container_id: str) -> None:
        self._pool_events.connection_ended(container_id)
        self._loop.arm()

    def _service_failed(self, session: int, reason: str, task: str, exit_code: int) -> None:
        self.feed(e.ServiceFailed(session, reason, task, exit_code))

    def _journal_changed(self) -> None:
        if not self._loop.is_over:
            self.reactor.call_soon_threadsafe(self._journal_gate.check)

    def client_seen(self) -> None:
        """Renew the client's lease."""
        self._lease.renew(self.reactor.now())

    def client_waits(self, begins: bool) -> None:
        """Hold the client's lease while a request of its waits for news."""
        if begins:
            self._lease.hold()
        else:
            self._lease.let_go(self.reactor.now())
            self._loop.arm()

    # ------------------------------------------------------------------ the story

    def _add_line(self, line: c.AddStoryLine) -> None:
        self._story.add(line, self._publisher.wall(self.reactor.now()))
        self._publisher.changed()

    def warn(self, kind: StoryKind, text: str) -> None:
        """Log trouble that does not end the job, and show it in its story."""
        self.log(text)
        self._add_line(c.AddStoryLine(kind, text, c.Level.WARNING))

    def _written(self, line: bytes, loud: bool) -> None:
        self._history.add(line)
        if loud and not self._history.is_remote:
            self._history.flush(sync=True)
            self.reactor.call_later(0, self._recorder.summarise)
        elif loud and not (self._soon is not None and self._soon.active):
            # Decisions come several at a time, and a remote file may take half a second.
            self._soon = self.reactor.call_later(DECISIONS_S, self._save_decisions)

    def _save_decisions(self) -> None:
        if not self._loop.is_over:
            self._recorder.flush()
            self._recorder.summarise()

    def close(self) -> None:
        """Close what this process holds."""
        if self._preprocess is not None:
            self._preprocess.end()
        self._server.close()
        self._page.close()
        self._executors.close()
        self._services.close_all()
        self._tracker.close()
        self._history.close(CRASH_HISTORY_S)
        self._journal.close(CRASH_HISTORY_S)
        self.reactor.close()

    def running(self) -> List[str]:
        """List the containers that have not ended, as far as this master knows."""
        return list(self._pool_events.containers)


def _jitter() -> float:
    return int.from_bytes(os.urandom(4), "big") / 2.0**32

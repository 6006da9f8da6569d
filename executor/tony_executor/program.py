"""Programs, one session's after another's: the folder, the process, the end of each.

Performs the executor machine's commands and reports what came of them as events. Nothing is decided
here: an end is described, not judged.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, AbstractSet, Callable, Dict, List, NamedTuple, Optional, Set

from tony_core.exit_causes import ExitCause, decode_status
from tony_core.loopback import loopback_address
from tony_core.protocol.messages import Noted, Preemption, Prepare, Serving, Start, Welcome
from tony_core.protocol.reactor import Reactor
from tony_executor import processes
from tony_executor.context import ContainerContext
from tony_executor.events import (
    Event,
    NotPrepared,
    Observed,
    PortsTaken,
    Prepared,
    ProcessesEnded,
    ProgramEnded,
    ProgramNotStarted,
    ProgramStarted,
)
from tony_executor.launch import environment, working_folder
from tony_executor.launch.gpu_allocation import GpuAllocation
from tony_executor.launch.hadoop_classpath import HadoopClasspath
from tony_executor.launch.spawn import NotExecuted, check_executed, explain_failure, spawn
from tony_executor.monitoring import tensorboard
from tony_executor.monitoring.diagnosis import last_lines, relative_paths, size_of
from tony_executor.monitoring.http_probe import HttpProbe, ProgramServerWatch
from tony_executor.monitoring.nvidia_smi import GpuMetrics
from tony_executor.monitoring.observer import ProgramObserver, Surroundings
from tony_executor.network.ports import NoPort, Ports, PortWatch, serves
from tony_executor.preemption_notice import PreemptionNotice
from tony_executor.sweep import Sweep

if TYPE_CHECKING:
    from tony_executor.network.pmi_relay import PmiRelay

STDERR_LINES = 200  # of the program's stderr, for why it ended
_SHELL = "/bin/bash"


class Running(NamedTuple):
    """The running program and what observes it."""

    session: int
    pid: int
    stderr_since: int
    observer: ProgramObserver
    env: Dict[str, str]
    command: str


class Program:
    """Prepares, starts, watches and ends one program after another.

    ``helpers`` are processes of ours that are not the program's; ``shells`` those of streams, which
    belong to it in all but what it is judged by.
    """

    def __init__(
        self,
        reactor: Reactor,
        context: ContainerContext,
        emit: Callable[[Event], None],
        helpers: Callable[[], AbstractSet[int]],
        shells: Callable[[], AbstractSet[int]],
        reap: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._context = context
        self._emit = emit
        self._helpers = helpers
        self._shells = shells
        self._reap = reap
        self._log = log
        self._ports = Ports()
        self._notice = PreemptionNotice(log)
        self._prepare: Optional[Prepare] = None
        self._folder_maker: Optional[working_folder.FolderMaker] = None
        self.folder = context.work
        self._venv: Optional[str] = None
        self.running: Optional[Running] = None
        self._sweep: Optional[Sweep] = None
        self._everything = False
        self._finder: Optional[tensorboard.TensorBoardFinder] = None
        self._probe: Optional[HttpProbe] = None
        self._program_server: Optional[ProgramServerWatch] = None
        self._relay: Optional[PmiRelay] = None
        self._watch: Optional[PortWatch] = None
        self._interval_s = 5.0
        self._error_lines = 20
        self._gpu_metrics = GpuMetrics(reactor, context.environment)
        self._gpu_allocation = GpuAllocation(reactor, context.environment, context.host, self._warn)
        self._around = Surroundings(
            reactor, emit, self._spared, lambda: self._spared() | self._shells(),
            self._gpu_metrics, lambda: self._interval_s, log,
        )  # fmt: skip
        self._pending: Set[str] = set()  # parts that Ready still waits for
        self._hadoop = HadoopClasspath(reactor, context, self._warn, log)
        self._tensorboard = tensorboard.TensorBoardProcess(
            reactor, self._ports, context.log("tensorboard.log"), self._serving, self._warn, log
        )

    def configure(self, welcome: Welcome) -> None:
        """Apply the master's settings."""
        self._interval_s = max(0.1, welcome.metrics_interval_s)
        self._error_lines = welcome.error_lines
        self._gpu_metrics.enable(welcome.gpu_metrics, welcome.gpu_exec_path)
        self._gpu_allocation.use_program(welcome.gpu_exec_path)

    def reaped(self, pid: int, status: int, largest_rss_mb: float) -> bool:
        """Note the end of a child; returns whether it was one of those here."""
        exit_code, number = decode_status(status)
        if self.running is not None and pid == self.running.pid:
            self._ended(self.running, exit_code, number, largest_rss_mb)
            return True
        if self._finder is not None and self._finder.reaped(pid, exit_code):
            return True
        if self._gpu_allocation.reaped(pid, exit_code) or self._hadoop.reaped(pid, exit_code):
            return True
        if self.running is not None and self.running.observer.reaped(pid, exit_code):
            return True
        return self._tensorboard.reaped(pid, exit_code) or self._gpu_metrics.reaped(pid, exit_code)

    def close(self) -> None:
        """End what is left, at the executor's own end."""
        self._stop_watching()
        self._notice.close()
        if self.running is not None:
            self.running.observer.close()
        self._tensorboard.stop()
        self._gpu_metrics.close()
        self._gpu_allocation.close()
        self._hadoop.cancel()
        self._ports.close()

    # ------------------------------------------------------------------ before

    def prepare(self, prepare: Prepare) -> None:
        """Make the folder in a child process, then hold the ports."""
        self._stop_folder()
        if not prepare.same_ports:
            self._ports.close()
        self._prepare = prepare
        name = working_folder.choose_name(self._context.work, prepare.session)
        self.folder = os.path.join(self._context.work, name)
        try:
            self._folder_maker = working_folder.FolderMaker(
                self._reactor, self._context, name, prepare.source, self._folder_made
            )
        except OSError as error:
            message = f"the node has no more processes: {error.strerror}"
            self._not_prepared(ExitCause.LOCALISATION, message)
            return
        self._pending = {"folder"}
        if prepare.gpus:
            self._pending.add("gpus")
            self._gpu_allocation.allocate(prepare.gpus, self._gpus_allocated)
        self._hadoop.determine(prepare)

    def _gpus_allocated(self, complaint: str) -> None:
        if complaint:
            self._stop_folder()
            self._not_prepared(ExitCause.GPUS, complaint)
            return
        if self._gpu_allocation.visible is not None:
            self._gpu_metrics.restrict_to(self._gpu_allocation.visible)
        self._part_ready("gpus")

    def _part_ready(self, what: str) -> None:
        self._pending.discard(what)
        if not self._pending:
            self._hold_ports()

    def _folder_made(self, made: working_folder.FolderResult) -> None:
        self._folder_maker = None
        if made.error:
            self._gpu_allocation.cancel()
            self._not_prepared(made.cause, made.error)
            return
        self._venv = made.venv
        if made.note:
            self._note("info", made.note)
        self._part_ready("folder")

    def _hold_ports(self) -> None:
        prepare = self._prepare
        assert prepare is not None
        served = self._tensorboard.port
        kept = {tensorboard.PORT: served} if served else {}
        try:
            ports = self._ports.hold(
                prepare.ports, prepare.port_range, kept, same=prepare.same_ports
            )
        except NoPort as error:
            self._not_prepared(error.cause, str(error))
            return
        self._emit(Prepared(self._reactor.now(), prepare.session, self._context.host, ports))

    def _not_prepared(self, cause: ExitCause, message: str) -> None:
        assert self._prepare is not None
        self._emit(NotPrepared(self._reactor.now(), self._prepare.session, cause, message))

    def _stop_folder(self) -> None:
        if self._folder_maker is not None:
            self._folder_maker.cancel()
            self._folder_maker = None

    # ------------------------------------------------------------------ starting

    def start(self, start: Start) -> None:
        """Run it, as soon as what its environment needs is known."""
        if not self._hadoop.when_known(lambda: self.start(start)):
            return
        try:
            env = self._environment(start)
        except (OSError, working_folder.FolderError) as error:
            self._not_started(start, 1, ExitCause.LOCALISATION, f"the task's files: {error}")
            return
        if start.command.strip() == tensorboard.SENTINEL:
            self._find_tensorboard(start, env)
            return
        if env.get("PMI_PORT"):
            from tony_executor.network.pmi_relay import PmiRelay  # only for programs of MPI

            self._close_relay()
            self._relay = PmiRelay(self._reactor, env["PMI_PORT"], self._log)
            env["PMI_PORT"] = self._relay.address
        if self._exec(start, [_SHELL, "-c", start.command], env):
            spec = self._tensorboard_spec(start, env)
            if spec is not None:
                self._tensorboard.serve(spec)
            else:
                self._tensorboard.stop()
            self._watch_program_server()

    def _watch_program_server(self) -> None:
        port = self._ports.numbers.get(tensorboard.PORT)
        if port is not None and self.running is not None:
            self._program_server = ProgramServerWatch(
                self._reactor, self.running.pid, self._host, port, self._serving, self._warn
            )

    def _environment(self, start: Start) -> Dict[str, str]:
        work = self._context.work
        name = os.path.basename(self.folder)[len(working_folder.PREFIX) :]
        files_dir = None
        if start.files:
            files_dir = os.path.join(work, working_folder.FILES_PREFIX + name)
            working_folder.write_files(files_dir, start.files)
        container = {**self._context.environment, **self._hadoop.variables}
        if self._gpu_allocation.visible is not None:
            container["CUDA_VISIBLE_DEVICES"] = self._gpu_allocation.visible
        env = environment.build_environment(
            container,
            start,
            cwd=self.folder,
            program=self._context.program,
            report_file=os.path.join(work, f"report-{name}.jsonl"),
            notice_base=self._notice.begin(os.path.join(work, f"preemption-{name}")),
            files_dir=files_dir,
            venv=self._venv,
            cache_dir=os.path.join(work, working_folder.CACHE),
        )
        self._hadoop.add_to(env)
        return env

    def _exec(self, start: Start, argv: List[str], env: Dict[str, str]) -> bool:
        stdout, stderr = self._context.log("stdout"), self._context.log("stderr")
        offsets = {"stdout": size_of(stdout), "stderr": size_of(stderr)}
        is_program = start.command.strip() != tensorboard.SENTINEL
        tensorboard_port = (start.tensorboard or {}).get("port") if is_program else None
        self._ports.release(start.release_ports)
        given = [name for name in self._ports.numbers if name != tensorboard_port]
        self._ports.share(given)
        try:
            spawned = spawn(argv, env, self.folder, stdout, stderr)
            check_executed(spawned)
        except (OSError, ValueError, NotExecuted) as error:
            cause, message = explain_failure(error, argv[0], env)
            self._not_started(start, 126, cause, message)
            return False
        observer = ProgramObserver(
            self._around, start.session, env["TONY_REPORT_FILE"], start.sending_interval_s
        )
        observer.watch_stalls(start, {"stdout": stdout, "stderr": stderr}, env)
        self.running = Running(
            start.session, spawned.pid, offsets["stderr"], observer, env, start.command
        )
        called = environment.reachable_ports(start, given)
        self._watch = PortWatch(self._reactor, self._ports, called, spawned.pid, self._ports_lost)
        now, gpus = self._reactor.now(), self._gpu_allocation.gpus
        self._emit(ProgramStarted(now, start.session, spawned.pid, offsets, gpus))
        return True

    def _close_relay(self) -> None:
        if self._relay is not None:
            self._relay.close()
            self._relay = None

    def _not_started(self, start: Start, code: int, cause: ExitCause, message: str) -> None:
        self._emit(ProgramNotStarted(self._reactor.now(), start.session, code, cause, message))

    # ------------------------------------------------------------------ TensorBoard

    def _tensorboard_spec(
        self, start: Start, env: Dict[str, str]
    ) -> Optional[tensorboard.TensorBoardSpec]:
        settings = start.tensorboard
        if not settings or not settings.get("log_dir"):
            return None
        port = self._ports.numbers.get(str(settings.get("port", tensorboard.PORT)))
        if port is None:
            self._warn("TensorBoard is not started: the task has no port for it")
            return None
        cwd = self._context.work
        return tensorboard.make_spec(settings, self._host, port, self.folder, self._venv, cwd, env)

    @property
    def _host(self) -> str:
        """The address at which a web server listens, since only the master asks there.

        A node may have another loopback than the usual (Debian names a machine 127.0.1.1).
        """
        return loopback_address() if self._context.host == "localhost" else self._context.host

    def _find_tensorboard(self, start: Start, env: Dict[str, str]) -> None:
        """Run a role that is TensorBoard itself: our child, like any program."""
        spec = self._tensorboard_spec(start, env)
        if spec is None:
            message = f"{tensorboard.SENTINEL} needs tony.application.tensorboard-log-dir"
            self._not_started(start, 1, ExitCause.ENVIRONMENT, message)
            return

        def found(python: Optional[str]) -> None:
            assert spec is not None
            self._finder = None
            if python is None:
                tried = ", ".join(spec.pythons) or "none of the interpreters is here"
                message = tensorboard.NOT_FOUND.format(tried=tried)
                self._not_started(start, 127, ExitCause.ENVIRONMENT, message)
                return
            mine = {**spec.env, "TONY_REPORT_FILE": env["TONY_REPORT_FILE"]}
            if self._exec(start, tensorboard.command(python, spec), mine):
                self._probe = HttpProbe(
                    self._reactor,
                    f"{spec.host}:{spec.port}",
                    tensorboard.READY_S,
                    lambda ready: self._answered(ready, spec),
                )

        self._finder = tensorboard.TensorBoardFinder(
            self._reactor, spec.pythons, spec.env, spec.cwd, found
        )

    def _answered(self, ready: bool, spec: tensorboard.TensorBoardSpec) -> None:
        self._probe = None
        if not ready:
            self._warn(f"TensorBoard did not answer within {tensorboard.READY_S:g} s")
        elif self.running is not None and serves(self.running.pid, spec.port):
            self._serving(spec.port, "")
        else:
            self._ports_lost([spec.name])

    def _ports_lost(self, names: List[str]) -> None:
        if self.running is not None:
            self._emit(PortsTaken(self._reactor.now(), self.running.session, names))

    def _serving(self, port: int, message: str) -> None:
        self._emit(Observed(self._reactor.now(), Serving(tensorboard.PORT, port, message)))

    def _warn(self, text: str, once: str = "") -> None:
        self._note("warning", text, once)

    def _note(self, level: str, text: str, once: str = "") -> None:
        self._emit(Observed(self._reactor.now(), Noted(level, text, once)))

    def warn(self, preemption: Preemption) -> None:
        """Give the program notice of a preemption."""
        if self.running is not None:
            tree = processes.descendants(os.getpid(), self._spared() | self._shells())
            level, text = self._notice.give(preemption, tree)
            if text:
                self._note(level, text)

    def dump_stacks(self, reason: str) -> None:
        """Write the program's stacks into its log, where it is watched for stalls."""
        if self.running is not None:
            self.running.observer.dump_stacks(reason)

    # ------------------------------------------------------------------ and after

    def _ended(self, running: Running, exit_code: int, number: int, rss_mb: float) -> None:
        self._stop_watching()
        running.observer.close()
        self.running = None
        now = self._reactor.now()
        running.observer.read_rest()
        lines = last_lines(self._context.log("stderr"), running.stderr_since, STDERR_LINES)
        lines = relative_paths(self.folder, lines)
        first = max(0, len(lines) - self._error_lines)
        self._emit(
            ProgramEnded(
                now,
                running.session,
                exit_code,
                number,
                lines[first:],
                self._ports.list_taken() if exit_code else [],
                min(map(working_folder.free_mb, (self.folder, self._context.log_dir))),
                running.observer.total(now, rss_mb),
                lines[:first],
                running.observer.has_noticed or self._notice.was_signalled,
            )
        )

    def end_processes(self, grace_s: float, everything: bool) -> None:
        """Sweep; ProcessesEnded follows."""
        self._stop_folder()
        if self.running is not None:
            self.running.observer.end_stall_watch()
        self._gpu_allocation.cancel()
        waited = self._hadoop.is_waited_for
        self._hadoop.cancel()
        if self._finder is not None or waited:
            if self._finder is not None:
                self._finder.cancel()
                self._finder = None
            if self.running is None and self._prepare is not None:
                session, now = self._prepare.session, self._reactor.now()
                self._emit(ProgramNotStarted(now, session, 143, ExitCause.STOPPED, "stopped"))
        if everything:
            self._everything = True
            self._tensorboard.stop()
        if self._sweep is None:
            self._sweep = Sweep(
                self._reactor, grace_s, self._spared, self._reap_program, self._swept
            )
        else:
            self._sweep.shorten(grace_s)

    def child_reaped(self) -> None:
        """Check now whether the sweep is over."""
        if self._sweep is not None:
            self._sweep.check_soon()

    def _swept(self, survivors: List[int]) -> None:
        self._sweep = None
        self._emit(ProcessesEnded(self._reactor.now(), survivors))

    def _reap_program(self) -> Set[int]:
        """The program, while the kernel has not given us its exit code."""
        self._reap()
        return {self.running.pid} if self.running is not None else set()

    def _spared(self) -> Set[int]:
        spared = set(self._helpers()) | self._gpu_metrics.pids
        if self.running is not None:
            spared |= self.running.observer.pids
        return spared if self._everything else spared | self._tensorboard.pids

    def _stop_watching(self) -> None:
        self._close_relay()
        if self._program_server is not None:
            self._program_server.close()
            self._program_server = None
        if self._watch is not None:
            self._watch.cancel()
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None
        if self._finder is not None:
            self._finder.cancel()
            self._finder = None

"""The program of one session after another: its folder, its process, its end.

Does what the life machine's commands say and feeds it what came of it. Nothing here
decides anything: an end is described, not judged.
"""

from __future__ import annotations

import json
import os
from typing import AbstractSet, Callable, Dict, List, NamedTuple, Optional, Set

from tony_core.exit_causes import ExitCause, decode_status
from tony_core.loopback import loopback
from tony_core.protocol.messages import Measured, Noted, Prepare, Serving, Start, Welcome
from tony_core.protocol.reactor import Reactor, Timer
from tony_executor import child, environment, layout, tail, tensorboard, workdir
from tony_executor.events import (
    ChildEnded,
    ChildNotStarted,
    ChildStarted,
    Cleared,
    Event,
    NotPrepared,
    Observed,
    PortsTaken,
    Prepared,
)
from tony_executor.gpucheck import GpuCheck
from tony_executor.gpuwatch import GpuWatch
from tony_executor.hadooppath import HadoopPath
from tony_executor.ownserver import OwnServer
from tony_executor.pmi_relay import PmiRelay
from tony_executor.ports import NoPort, Ports, Watch, serves
from tony_executor.reports import Reports
from tony_executor.sampling import Sampling
from tony_executor.site import Site
from tony_executor.sweep import Sweep

REPORTS_EVERY_S = 0.5
QUIET_REPORTS_EVERY_S = 1.5  # at most, while the program says nothing
QUIET_EARLY_S = 1.0  # ...or sooner, with the next heartbeat: there is one in any second
FIRST_MEASURE_S = 1.0
LINES_LOOKED_AT = 200  # of the program's stderr, for why it ended
_SHELL = "/bin/bash"


class Running(NamedTuple):
    """One program while it runs."""

    session: int
    pid: int
    stderr_since: int
    sampling: Sampling
    reports: Reports


class Program:
    """See the module. ``spared`` are processes of ours that are none of the program's."""

    def __init__(
        self,
        reactor: Reactor,
        site: Site,
        feed: Callable[[Event], None],
        spared: Callable[[], AbstractSet[int]],
        reap: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._site = site
        self._feed = feed
        self._also_spared = spared
        self._reap = reap
        self._log = log
        self._ports = Ports()
        self._prepare: Optional[Prepare] = None
        self._layout: Optional[int] = None  # its pipe
        self._said = b""
        self._folder = site.work
        self._venv: Optional[str] = None
        self._running: Optional[Running] = None
        self._sweep: Optional[Sweep] = None
        self._everything = False
        self._finder: Optional[tensorboard.Finder] = None
        self._probe: Optional[tensorboard.Probe] = None
        self._own_server: Optional[OwnServer] = None
        self._relay: Optional[PmiRelay] = None
        self._timers: List[Timer] = []
        self._watch: Optional[Watch] = None
        self._interval_s = 5.0
        self._error_lines = 20
        self._gpus = GpuWatch(reactor, site.environment)
        self._gpu_check = GpuCheck(reactor, site.environment, site.host, self._warn)
        self._unready: Set[str] = set()  # what Ready still waits for
        self._hadoop = HadoopPath(reactor, site, self._warn, log)
        self._beside = tensorboard.Beside(
            reactor, self._ports, site.log("tensorboard.log"), self._serving, self._warn, log
        )

    def configure(self, welcome: Welcome) -> None:
        """How the master wants things."""
        self._interval_s = max(0.1, welcome.metrics_interval_s)
        self._error_lines = welcome.error_lines
        self._gpus.enable(welcome.gpu_metrics, welcome.gpu_exec_path)
        self._gpu_check.use(welcome.gpu_exec_path)

    def reaped(self, pid: int, status: int, largest_rss_mb: float) -> bool:
        """A child of ours ended; whether it was one of those here."""
        exit_code, number = decode_status(status)
        if self._running is not None and pid == self._running.pid:
            self._ended(self._running, exit_code, number, largest_rss_mb)
            return True
        if self._finder is not None and self._finder.reaped(pid, exit_code):
            return True
        if self._gpu_check.reaped(pid, exit_code) or self._hadoop.reaped(pid, exit_code):
            return True
        return self._beside.reaped(pid, exit_code) or self._gpus.reaped(pid)

    def close(self) -> None:
        """At the executor's own end."""
        self._quiet()
        self._beside.stop()
        self._gpus.close()
        self._gpu_check.close()
        self._hadoop.cancel()
        self._ports.close()

    # ------------------------------------------------------------------ before

    def lay_out(self, prepare: Prepare) -> None:
        """Make the folder in a child process, then hold the ports."""
        self._drop_layout()
        if not prepare.same_ports:
            self._ports.close()
        self._prepare = prepare
        name = workdir.new_name(self._site.work, prepare.session)
        self._folder = os.path.join(self._site.work, name)
        reading, writing = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(reading)
            os.close(writing)
            self._not_prepared(
                ExitCause.LOCALISATION, f"the node has no more processes: {error.strerror}"
            )
            return
        if pid == 0:
            layout.make_and_exit(self._site, name, prepare.source, writing)
        os.close(writing)
        self._layout = reading
        self._said = b""
        self._unready = {"folder"}
        self._reactor.watch(reading, self._layout_says)
        if prepare.gpus:
            self._unready.add("gpus")
            self._gpu_check.begin(prepare.gpus, self._gpus_checked)
        self._hadoop.begin(prepare)

    def _gpus_checked(self, complaint: str) -> None:
        if complaint:
            self._drop_layout()
            self._not_prepared(ExitCause.GPUS, complaint)
            return
        if self._gpu_check.visible is not None:
            self._gpus.see(self._gpu_check.visible)
        self._is_done("gpus")

    def _is_done(self, what: str) -> None:
        self._unready.discard(what)
        if not self._unready:
            self._hold_ports()

    def _layout_says(self) -> None:
        assert self._layout is not None
        data = os.read(self._layout, 65536)
        self._said += data
        if data:
            return
        self._drop_layout()
        try:
            said = json.loads(self._said.decode())
        except ValueError:
            self._gpu_check.cancel()
            self._not_prepared(ExitCause.LOCALISATION, "the working folder was not completed")
            return
        if "error" in said:
            self._gpu_check.cancel()
            self._not_prepared(ExitCause(said["cause"]), said["error"])
            return
        self._venv = said["venv"]
        if said["note"]:
            self._note("info", said["note"])
        self._is_done("folder")

    def _hold_ports(self) -> None:
        prepare = self._prepare
        assert prepare is not None
        kept = {tensorboard.PORT: self._beside.port} if self._beside.port else {}
        try:
            ports = self._ports.hold(
                prepare.ports,
                prepare.port_range,
                {n: p for n, p in kept.items() if p},
                same=prepare.same_ports,
            )
        except NoPort as error:
            self._not_prepared(error.cause, str(error))
            return
        self._feed(Prepared(self._reactor.now(), prepare.session, self._site.host, ports))

    def _not_prepared(self, cause: ExitCause, message: str) -> None:
        assert self._prepare is not None
        self._feed(NotPrepared(self._reactor.now(), self._prepare.session, cause, message))

    def _drop_layout(self) -> None:
        if self._layout is not None:
            self._reactor.unwatch(self._layout)
            os.close(self._layout)
            self._layout = None

    # ------------------------------------------------------------------ starting

    def start(self, start: Start) -> None:
        """Run it, as soon as what its environment needs is known."""
        if not self._hadoop.when_known(lambda: self.start(start)):
            return
        try:
            env = self._environment(start)
        except (OSError, workdir.LayoutError) as error:
            self._not_started(start, 1, ExitCause.LOCALISATION, f"the task's files: {error}")
            return
        if start.command.strip() == tensorboard.SENTINEL:
            self._find_tensorboard(start, env)
            return
        if env.get("PMI_PORT"):
            self._hang_up_relay()
            self._relay = PmiRelay(self._reactor, env["PMI_PORT"], self._log)
            env["PMI_PORT"] = self._relay.address
        if self._exec(start, [_SHELL, "-c", start.command], env):
            wanted = self._tensorboard(start, env)
            if wanted is not None:
                self._beside.want(wanted)
            else:
                self._beside.stop()
            self._look_for_own_server()

    def _look_for_own_server(self) -> None:
        port = self._ports.numbers.get(tensorboard.PORT)
        if port is not None and self._running is not None:
            self._own_server = OwnServer(
                self._reactor, self._running.pid, self._host, port, self._serving, self._warn
            )

    def _environment(self, start: Start) -> Dict[str, str]:
        work = self._site.work
        name = os.path.basename(self._folder)[len(workdir.PREFIX) :]
        files_dir = None
        if start.files:
            files_dir = os.path.join(work, workdir.FILES_PREFIX + name)
            workdir.write_files(files_dir, start.files)
        container = {**self._site.environment, **self._hadoop.variables}
        if self._gpu_check.visible is not None:
            container["CUDA_VISIBLE_DEVICES"] = self._gpu_check.visible
        env = environment.of_program(
            container,
            start,
            cwd=self._folder,
            program=self._site.program,
            report_file=os.path.join(work, f"report-{name}.jsonl"),
            files_dir=files_dir,
            venv=self._venv,
            cache_dir=os.path.join(work, workdir.CACHE),
        )
        self._hadoop.add_to(env)
        return env

    def _exec(self, start: Start, argv: List[str], env: Dict[str, str]) -> bool:
        stdout, stderr = self._site.log("stdout"), self._site.log("stderr")
        offsets = {"stdout": tail.size_of(stdout), "stderr": tail.size_of(stderr)}
        is_program = start.command.strip() != tensorboard.SENTINEL
        beside = str((start.tensorboard or {}).get("port", "")) if is_program else ""
        self._ports.release(start.release_ports)
        given = [name for name in self._ports.numbers if name != beside]
        self._ports.share(given)
        now = self._reactor.now()
        try:
            spawned = child.spawn(argv, env, self._folder, stdout, stderr)
            child.check_executed(spawned)
        except (OSError, ValueError, child.NotExecuted) as error:
            cause, message = child.why_not(error, argv[0], env)
            self._not_started(start, 126, cause, message)
            return False
        self._running = Running(
            start.session,
            spawned.pid,
            offsets["stderr"],
            Sampling(now),
            Reports(env["TONY_REPORT_FILE"], start.session),
        )
        called = environment.called_ports(start, given)
        self._watch = Watch(self._reactor, self._ports, called, spawned.pid, self._ports_lost)
        self._timers = [
            self._reactor.call_later(FIRST_MEASURE_S, self._measure),
            self._reactor.call_later(REPORTS_EVERY_S, self._read_reports),
        ]
        self._feed(ChildStarted(now, start.session, spawned.pid, offsets, self._gpu_check.gpus))
        return True

    def _hang_up_relay(self) -> None:
        if self._relay is not None:
            self._relay.close()
            self._relay = None

    def _not_started(self, start: Start, code: int, cause: ExitCause, message: str) -> None:
        self._feed(ChildNotStarted(self._reactor.now(), start.session, code, cause, message))

    # ------------------------------------------------------------------ TensorBoard

    def _tensorboard(self, start: Start, env: Dict[str, str]) -> Optional[tensorboard.Wanted]:
        said = start.tensorboard
        if not said or not said.get("log_dir"):
            return None
        port = self._ports.numbers.get(str(said.get("port", tensorboard.PORT)))
        if port is None:
            self._warn("TensorBoard is not started: the task has no port for it")
            return None
        cwd = self._site.work
        return tensorboard.wanted(said, self._host, port, self._folder, self._venv, cwd, env)

    @property
    def _host(self) -> str:
        """Where a web server listens for the master alone, which asks at the address it was told.

        A node may be another loopback than the usual (Debian names a machine 127.0.1.1).
        """
        return loopback() if self._site.host == "localhost" else self._site.host

    def _find_tensorboard(self, start: Start, env: Dict[str, str]) -> None:
        """The role is TensorBoard itself: our child, like any program."""
        wanted = self._tensorboard(start, env)
        if wanted is None:
            message = f"{tensorboard.SENTINEL} needs tony.application.tensorboard-log-dir"
            self._not_started(start, 1, ExitCause.ENVIRONMENT, message)
            return

        def found(python: Optional[str]) -> None:
            assert wanted is not None
            self._finder = None
            if python is None:
                tried = ", ".join(wanted.pythons) or "none of the interpreters is here"
                message = tensorboard.NOT_FOUND.format(tried=tried)
                self._not_started(start, 127, ExitCause.ENVIRONMENT, message)
                return
            mine = {**wanted.env, "TONY_REPORT_FILE": env["TONY_REPORT_FILE"]}
            if self._exec(start, tensorboard.command(python, wanted), mine):
                self._probe = tensorboard.Probe(
                    self._reactor,
                    f"{wanted.host}:{wanted.port}",
                    tensorboard.READY_S,
                    lambda ready: self._answered(ready, wanted),
                )

        self._finder = tensorboard.Finder(
            self._reactor, wanted.pythons, wanted.env, wanted.cwd, found
        )

    def _answered(self, ready: bool, wanted: tensorboard.Wanted) -> None:
        self._probe = None
        if not ready:
            self._warn(f"TensorBoard did not answer within {tensorboard.READY_S:g} s")
        elif self._running is not None and serves(self._running.pid, wanted.port):
            self._serving(wanted.port, "")
        else:
            self._ports_lost([wanted.name])

    def _ports_lost(self, names: List[str]) -> None:
        if self._running is not None:
            self._feed(PortsTaken(self._reactor.now(), self._running.session, names))

    def _serving(self, port: int, message: str) -> None:
        self._feed(Observed(self._reactor.now(), Serving(tensorboard.PORT, port, message)))

    def _warn(self, text: str, once: str = "") -> None:
        self._note("warning", text, once)

    def _note(self, level: str, text: str, once: str = "") -> None:
        self._feed(Observed(self._reactor.now(), Noted(level, text, once)))

    # ------------------------------------------------------------------ while it runs

    def _measure(self) -> None:
        running = self._running
        if running is None:
            return
        now = self._reactor.now()
        values = running.sampling.sample(now, self._spared())
        values.update(self._gpus.newest(now))
        self._feed(Observed(now, Measured(running.session, values)))
        early = self._interval_s / 4
        self._timers[0] = self._reactor.call_about(self._interval_s, early, self._measure)

    def _read_reports(self) -> None:
        running = self._running
        if running is None:
            return
        news = running.reports.news()
        if news is not None:
            self._feed(Observed(self._reactor.now(), news))
        every, early = REPORTS_EVERY_S, 0.0
        if news is None:
            every, early = QUIET_REPORTS_EVERY_S, QUIET_EARLY_S
        self._timers[1] = self._reactor.call_about(every, early, self._read_reports)

    # ------------------------------------------------------------------ and after

    def _ended(self, running: Running, exit_code: int, number: int, rss_mb: float) -> None:
        self._quiet()
        self._running = None
        now = self._reactor.now()
        # All that was said: the file may hold more than is read at once.
        news = running.reports.news()
        while news is not None:
            self._feed(Observed(now, news))
            news = running.reports.news()
        lines = tail.last_lines(self._site.log("stderr"), running.stderr_since, LINES_LOOKED_AT)
        lines = tail.seen_from(self._folder, lines)
        first = max(0, len(lines) - self._error_lines)
        self._feed(
            ChildEnded(
                now,
                running.session,
                exit_code,
                number,
                lines[first:],
                self._ports.taken() if exit_code else [],
                min(map(workdir.free_mb, (self._folder, self._site.log_dir))),
                running.sampling.total(now, rss_mb, self._spared()),
                lines[:first],
            )
        )

    def clear(self, grace_s: float, everything: bool) -> None:
        """Sweep; Cleared follows."""
        self._drop_layout()
        self._gpu_check.cancel()
        waited = self._hadoop.waited_for
        self._hadoop.cancel()
        if self._finder is not None or waited:
            if self._finder is not None:
                self._finder.cancel()
                self._finder = None
            if self._running is None and self._prepare is not None:
                session = self._prepare.session
                self._feed(
                    ChildNotStarted(self._reactor.now(), session, 143, ExitCause.STOPPED, "stopped")
                )
        if everything:
            self._everything = True
            self._beside.stop()
        if self._sweep is None:
            self._sweep = Sweep(self._reactor, grace_s, self._spared, self._unreaped, self._swept)
        else:
            self._sweep.shorten(grace_s)

    def look_again(self) -> None:
        """A child was reaped: the sweep may be over."""
        if self._sweep is not None:
            self._sweep.look_soon()

    def _swept(self, survivors: List[int]) -> None:
        self._sweep = None
        self._feed(Cleared(self._reactor.now(), survivors))

    def _unreaped(self) -> Set[int]:
        """The program, while the kernel does not give us its exit code."""
        self._reap()
        return {self._running.pid} if self._running is not None else set()

    def _spared(self) -> Set[int]:
        spared = set(self._also_spared()) | self._gpus.pids
        return spared if self._everything else spared | self._beside.pids

    def _quiet(self) -> None:
        self._hang_up_relay()
        if self._own_server is not None:
            self._own_server.close()
            self._own_server = None
        if self._watch is not None:
            self._watch.cancel()
        for timer in self._timers:
            timer.cancel()
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None
        if self._finder is not None:
            self._finder.cancel()
            self._finder = None

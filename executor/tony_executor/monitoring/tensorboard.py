"""TensorBoard: found in the first environment that has it, started, and probed until it answers.

:class:`TensorBoardFinder` tries the interpreters one after the other, each in a process with a
deadline. :class:`TensorBoardProcess` is a TensorBoard beside the program: it never gates it, its
failures are warnings, it is restarted within a budget, and it stays over warm sessions while it
lives. When we end it, it gets TERM, and KILL if that does not end it; that end is not reported.

An address is reported only when the socket that listens there is open in that very process, or
below it. A TensorBoard whose port another process has taken is restarted at another port.
"""

from __future__ import annotations

import os
import signal
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set

from tony_core.protocol.reactor import Reactor, Timer
from tony_executor.launch.spawn import NotExecuted, check_executed, spawn
from tony_executor.monitoring.http_probe import HttpProbe
from tony_executor.network.ports import NoPort, Ports, is_free, serves

PORT = "tensorboard"  # its name among those of the task
SENTINEL = "tony:tensorboard"  # the command of a role that is TensorBoard itself
FIND_S = 30.0
READY_S = 120.0
RESTARTS = 3
FIRST_BACKOFF_S = 1.0
_RETRY_S = 0.25
TERM_S = 3.0  # from TERM to KILL, where no sweep is quicker
_HAS_IT = "import importlib.util as u,sys;sys.exit(u.find_spec('tensorboard') is None)"
NOT_FOUND = (
    "no TensorBoard was found ({tried}): put tensorboard into the job's environment, or have"
    " the site install it for tony.runtime.python"
)


class TensorBoardSpec(NamedTuple):
    """The log folder to serve, the address, and the interpreters to try."""

    log_dir: str
    pythons: List[str]
    host: str
    port: int
    name: str  # the port's among those of the task
    cwd: str
    env: Dict[str, str]


def make_spec(
    settings: Mapping[str, Any],
    host: str,
    port: int,
    folder: str,
    venv: Optional[str],
    cwd: str,
    env: Mapping[str, str],
) -> TensorBoardSpec:
    """Resolve the settings in Start on this node; ``env`` is the program's."""
    log_dir = str(settings["log_dir"])
    if log_dir.startswith("file://"):
        log_dir = log_dir[len("file://") :]
    if "://" not in log_dir:
        log_dir = os.path.join(folder, log_dir)
    pythons = [str(each) for each in settings.get("pythons", ())]
    return TensorBoardSpec(
        log_dir=log_dir,
        pythons=resolve(pythons, folder, venv, env["PATH"]),
        host=host,
        port=port,
        name=str(settings.get("port", PORT)),
        cwd=cwd,
        env={k: v for k, v in env.items() if k not in ("PYTHONPATH", "TONY_REPORT_FILE")},
    )


def command(python: str, spec: TensorBoardSpec) -> List[str]:
    """The command line; not the script ``tensorboard``, which may name another Python."""
    return [
        python, "-m", "tensorboard.main", "--logdir", spec.log_dir,
        "--host", spec.host, "--port", str(spec.port),
    ]  # fmt: skip


def resolve(pythons: Sequence[str], cwd: str, venv: Optional[str], path: str) -> List[str]:
    """The interpreters that are on this node, as absolute paths."""
    found: List[str] = []
    for name in pythons:
        candidates: List[str] = []
        if name.startswith("/"):
            candidates = [name]
        elif "/" in name:
            if venv is not None and name.startswith("venv/"):
                candidates.append(os.path.join(venv, name[len("venv/") :]))
            candidates.append(os.path.join(cwd, name))
            if venv is not None:
                candidates.append(os.path.join(venv, name))
        else:
            candidates = [os.path.join(f, name) for f in path.split(os.pathsep) if f]
        for candidate in candidates:
            if os.access(candidate, os.X_OK):
                if candidate not in found:
                    found.append(candidate)
                break
    return found


class TensorBoardFinder:
    """Call back once, with an interpreter that has TensorBoard, or None."""

    def __init__(
        self,
        reactor: Reactor,
        pythons: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        done: Callable[[Optional[str]], None],
    ) -> None:
        self._reactor = reactor
        self._left = list(pythons)
        self._env = env
        self._cwd = cwd
        self._done: Optional[Callable[[Optional[str]], None]] = done
        self._trying = ""
        self.pid: Optional[int] = None
        self._deadline: Optional[Timer] = reactor.call_later(0, self._next)

    def cancel(self) -> None:
        """Stop; ``done`` is not called any more."""
        self._done = None
        self._cancel_deadline()
        _kill(self.pid)

    def reaped(self, pid: int, exit_code: int) -> bool:
        """Note the end of a child; returns whether it was ours."""
        if pid != self.pid:
            return False
        self.pid = None
        self._cancel_deadline()
        if exit_code == 0:
            self._finish(self._trying)
        else:
            self._next()
        return True

    def _next(self) -> None:
        if self._done is None:
            return
        while self._left:
            self._trying = self._left.pop(0)
            try:
                spawned = spawn([self._trying, "-c", _HAS_IT], self._env, self._cwd)
                self.pid = spawned.pid
                check_executed(spawned)
            except (OSError, ValueError, NotExecuted):
                self.pid = None
                continue
            self._deadline = self._reactor.call_later(FIND_S, lambda: _kill(self.pid))
            return
        self._finish(None)

    def _finish(self, python: Optional[str]) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(python)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class TensorBoardProcess:
    """A TensorBoard beside the program.

    ``serving(port, message)``: it serves at this port; 0: no longer.
    """

    def __init__(
        self,
        reactor: Reactor,
        ports: Ports,
        output: str,
        serving: Callable[[int, str], None],
        warn: Callable[[str], None],
        log: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._ports = ports
        self._output = output  # a file
        self._log = log
        self._serving = serving
        self._warn = warn
        self._spec: Optional[TensorBoardSpec] = None
        self._python: Optional[str] = None
        self._finder: Optional[TensorBoardFinder] = None
        self._probe: Optional[HttpProbe] = None
        self._pid: Optional[int] = None
        self._restarts = 0
        self._backoff: Optional[Timer] = None
        self._served = False
        self._ending: Set[int] = set()  # these got TERM from us

    @property
    def pids(self) -> Set[int]:
        """The pids of its processes."""
        found = {self._pid, self._finder.pid if self._finder is not None else None}
        return {pid for pid in found if pid is not None} | self._ending

    @property
    def port(self) -> Optional[int]:
        """The port at which it serves; None when it does not run."""
        alive = self._spec is not None and self._pid is not None
        return self._spec.port if alive and self._spec is not None else None

    def serve(self, spec: TensorBoardSpec) -> None:
        """Serve this; a process that serves it already stays."""
        had = self._spec
        if had is not None and self._pid is not None and had.log_dir == spec.log_dir:
            if self._served:
                self._serving(had.port, "")
            return
        self.stop()
        self._spec = spec
        self._restarts = 0
        self._python = None
        self._finder = TensorBoardFinder(
            self._reactor, spec.pythons, spec.env, spec.cwd, self._found
        )

    def stop(self) -> None:
        """End it without a warning; its children go with the next sweep."""
        self._spec = None
        if self._finder is not None:
            self._finder.cancel()
            self._finder = None
        if self._backoff is not None:
            self._backoff.cancel()
        self._cancel_probe()
        if self._served:
            self._served = False
            self._serving(0, "")
        pid, self._pid = self._pid, None
        if pid is not None:
            self._ending.add(pid)
            _kill(pid, signal.SIGTERM)
            self._reactor.call_later(TERM_S, self._kill_if_left, pid)

    def _kill_if_left(self, pid: int) -> None:
        if pid in self._ending:
            _kill(pid)

    def reaped(self, pid: int, exit_code: int) -> bool:
        """Note the end of a child; returns whether it was ours."""
        if self._finder is not None and self._finder.reaped(pid, exit_code):
            return True
        if pid in self._ending:
            self._ending.discard(pid)
            return True
        if pid != self._pid:
            return False
        self._pid = None
        self._cancel_probe()
        if self._served:
            self._served = False
            self._serving(0, f"TensorBoard ended with exit code {exit_code}")
        if self._spec is not None:
            self._restart_later(
                f"it ended with exit code {exit_code}, see {os.path.basename(self._output)}"
            )
        return True

    def _found(self, python: Optional[str]) -> None:
        self._finder = None
        if python is None and self._spec is not None:
            tried = ", ".join(self._spec.pythons) or "none of the interpreters is here"
            self._ports.share([self._spec.name])  # the program may serve there itself
            self._spec = None
            self._warn("TensorBoard is not started: " + NOT_FOUND.format(tried=tried))
            return
        self._python = python
        self._start()

    def _start(self) -> None:
        self._backoff = None
        spec = self._spec
        if spec is None or self._python is None:
            return
        if self._ending:  # the former process still holds the port
            self._backoff = self._reactor.call_later(_RETRY_S, self._start)
            return
        if not is_free(spec.port):
            moved = self._move(spec)
            if moved is None:
                return
            spec = moved
        self._ports.share([spec.name])
        try:
            spawned = spawn(
                command(self._python, spec), spec.env, spec.cwd, self._output, self._output
            )
            self._pid = spawned.pid
            check_executed(spawned)
        except (OSError, ValueError, NotExecuted) as error:
            self._pid = None
            self._restart_later(str(error))
            return
        address = f"{spec.host}:{spec.port}"
        self._probe = HttpProbe(self._reactor, address, READY_S, self._on_probed)

    def _on_probed(self, ready: bool) -> None:
        self._probe = None
        spec, pid = self._spec, self._pid
        if ready and spec is not None and pid is not None:
            if serves(pid, spec.port):
                self._served = True
                self._serving(spec.port, "")
            else:
                _kill(pid)  # and it is started again, at another port
        elif not ready:
            self._warn(f"TensorBoard did not answer within {READY_S:g} s")
            _kill(self._pid)

    def _move(self, spec: TensorBoardSpec) -> Optional[TensorBoardSpec]:
        """Another port, since another process listens at this one."""
        try:
            port = self._ports.renew(spec.name)
        except NoPort as error:
            self._restart_later(str(error))
            return None
        self._log(
            f"another process listens at port {spec.port}, which was TensorBoard's:"
            f" TensorBoard is started at port {port}"
        )
        self._spec = spec._replace(port=port)
        return self._spec

    def _restart_later(self, reason: str) -> None:
        if self._restarts >= RESTARTS:
            self._warn(f"TensorBoard is not restarted again after {RESTARTS} restarts: {reason}")
            self._spec = None
            return
        pause = FIRST_BACKOFF_S * 4.0**self._restarts
        self._restarts += 1
        self._backoff = self._reactor.call_later(pause, self._start)

    def _cancel_probe(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None


def _kill(pid: Optional[int], number: int = signal.SIGKILL) -> None:
    if pid is not None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

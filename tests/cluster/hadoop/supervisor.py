"""The process that keeps a cluster's daemons, and ends all of them whatever happens.

Two processes, started as ``python -I -S supervisor.py FOLDER LIFELINE``, neither a child of the
process that asked for the cluster:

* The **guardian** adopts every orphan below it (PR_SET_CHILD_SUBREAPER), so that no container
  escapes by a process group or a session of its own. It waits for the supervisor, and once
  that is gone, for whatever reason, it kills everything below itself.
* The **supervisor**, its child, starts the daemons of cluster.json, those with ``later`` only when
  it is asked to, and answers requests on the socket FOLDER/control, one line of JSON each. It ends
  on request, at SIGTERM, or when the lifeline breaks: a pipe whose other end the test process
  holds and which the kernel closes when that is killed. The lifeline is -1 for a cluster that
  outlives its maker.

Either of them killed with -9 takes the daemons along: they die with the supervisor
(PR_SET_PDEATHSIG), and the supervisor gets a signal when the guardian dies. What is then left, the
containers, is found by its working folder (``processes_in``).

Data and logs stay; the folder is for its maker to remove. Linux only, standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Set

STOP_S = 10.0
"""What a daemon gets to end by itself when it is stopped."""

KILL_S = 10.0
"""What a killed process gets to go."""

REQUEST_S = 5.0
"""What a caller gets to send its line."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


class RequestRejected(Exception):
    """A request that cannot be done, and why."""


# ------------------------------------------------------------------------ processes


def parents(zombies: bool = False) -> Dict[int, int]:
    """Of every process its parent."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text(errors="replace")
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if zombies or state != "Z":
                found[int(entry)] = int(parent)
    return found


def descendants(root: int) -> Set[int]:
    """The processes below one, itself not among them.

    The way leads through zombies: of a killed JVM the first thread is one while others are
    still ending, and until the last has, its children are below it and no other.
    """
    children: Dict[int, List[int]] = {}
    for pid, parent in parents(zombies=True).items():
        children.setdefault(parent, []).append(pid)
    living = parents()
    found: Set[int] = set()
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found & living.keys()


def processes_in(folder: Path) -> Set[int]:
    """The processes that work in a folder, or were started with something in it as an argument
    or in the environment, as every container is."""
    inside = os.fsencode(str(folder)) + b"/"
    found = set()
    for pid in parents():
        if pid == os.getpid():
            continue
        try:
            cwd = os.fsencode(os.readlink(f"/proc/{pid}/cwd")) + b"/"
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            words += Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if cwd.startswith(inside) or inside in words:
            found.add(pid)
    return found


def kill_all(find: Callable[[], Iterable[int]], limit: float = KILL_S) -> None:
    """Kills what is found until nothing is: who is being killed may be starting others.

    All at one moment, as when the power goes: no process outlives another to report its end.
    """
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        found = list(find())
        if not found:
            return
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                try:
                    os.kill(pid, number)
                except (ProcessLookupError, PermissionError):
                    pass
        time.sleep(0.02)


def _reap(limit: float) -> None:
    """Waits for our children: a dead JVM is a zombie as long as threads of it are ending."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.02)
        except ChildProcessError:
            return


def _die_with_parent(signum: int, parent: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
    if os.getppid() != parent:  # it died before we had asked
        os._exit(1)


# ------------------------------------------------------------------------ supervisor


class Supervisor:
    """See the module."""

    def __init__(self, folder: Path, lifeline: int) -> None:
        self._folder = folder
        self._lifeline = lifeline
        cluster = json.loads((folder / "cluster.json").read_text())
        self._specs: Dict[str, Dict[str, Any]] = cluster["daemons"]
        self._environment: Dict[str, str] = cluster["environment"]
        self._running: Dict[str, subprocess.Popen[bytes]] = {}
        self._since: Dict[str, float] = {}
        self._selector = selectors.DefaultSelector()
        self._over = False

    def run(self) -> None:
        """Until a request to end; the daemons still run then, and the guardian ends them."""
        awake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(awake, False)
        signal.set_wakeup_fd(wake)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, self._end)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        control = socket.socket(socket.AF_UNIX)
        # Relative: the name of a socket must be short. It gets its name when it can be called.
        control.bind("control.new")
        control.listen()
        os.rename("control.new", "control")
        self._selector.register(awake, selectors.EVENT_READ, lambda: os.read(awake, 512))
        self._selector.register(control, selectors.EVENT_READ, lambda: self._answer(control))
        if self._lifeline >= 0:
            self._selector.register(self._lifeline, selectors.EVENT_READ, self._end)
        for name, spec in self._specs.items():
            if not spec.get("later"):
                self._start(name)
        while not self._over:
            for key, _ in self._selector.select():
                key.data()
            for process in self._running.values():
                process.poll()

    def _end(self, *_: object) -> None:
        self._over = True

    # -------------------------------------------------------------- requests

    def _answer(self, control: socket.socket) -> None:
        connection, _ = control.accept()
        with connection:
            connection.settimeout(REQUEST_S)
            try:
                with connection.makefile("r") as lines:
                    request = json.loads(lines.readline())
                reply = self._do(request)
            except RequestRejected as error:
                reply = {"error": str(error)}
            except (OSError, ValueError, KeyError) as error:
                reply = {"error": f"{type(error).__name__}: {error}"}
            try:
                connection.sendall(json.dumps(reply).encode() + b"\n")
            except OSError:
                pass  # who asked is gone

    def _do(self, request: Dict[str, Any]) -> Dict[str, Any]:
        what = request["do"]
        if what == "status":
            return {"supervisor": os.getpid(), "daemons": {n: self._state(n) for n in self._specs}}
        if what == "down":
            self._end()
            return {}
        name = request["daemon"]
        if name not in self._specs:
            raise RequestRejected(
                f"there is no daemon {name!r}; there are: {', '.join(self._specs)}"
            )
        if what == "start":
            if self._alive(name):
                raise RequestRejected(f"{name} is running")
            self._start(name)
        elif what == "signal":
            if self._alive(name):
                os.kill(self._running[name].pid, int(request["signal"]))
        elif what == "stop":
            self._stop(name, bool(request.get("kill")))
            if request.get("folder"):
                kill_all(lambda: processes_in(Path(request["folder"])))
        else:
            raise RequestRejected(f"{what!r} is nothing that a supervisor does")
        return self._state(name)

    def _state(self, name: str) -> Dict[str, Any]:
        """A daemon that was stopped has no pid; one that ended by itself has an exit code."""
        process = self._running.get(name)
        if process is None:
            return {"pid": None, "exit": None, "since": None}
        return {"pid": process.pid, "exit": process.poll(), "since": self._since[name]}

    # -------------------------------------------------------------- daemons

    def _alive(self, name: str) -> bool:
        process = self._running.get(name)
        return process is not None and process.poll() is None

    def _start(self, name: str) -> None:
        spec = self._specs[name]
        us = os.getpid()
        self._since[name] = time.time()

        def before() -> None:
            _die_with_parent(signal.SIGKILL, us)

        with open(spec["log"], "ab") as log:
            self._running[name] = subprocess.Popen(
                spec["argv"],
                cwd=self._folder / "data" / name,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=before,
            )

    def _stop(self, name: str, kill: bool) -> None:
        process = self._running.pop(name, None)
        if process is None or process.poll() is not None:
            return
        if not kill:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(STOP_S)
                return
            except subprocess.TimeoutExpired:
                pass
        process.kill()
        process.wait(KILL_S)


# ------------------------------------------------------------------------ guardian


def guard(folder: Path, lifeline: int) -> None:
    """Runs the supervisor, and ends everything below when it is gone."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    us = os.getpid()
    child = os.fork()
    if child == 0:
        _die_with_parent(signal.SIGTERM, us)
        Supervisor(folder, lifeline).run()
        if os.getppid() != us:
            # Only this process is left to end the daemons, and their containers are not below us.
            kill_all(lambda: descendants(os.getpid()))
            kill_all(lambda: processes_in(folder / "data"))
        return
    if lifeline >= 0:
        os.close(lifeline)

    def forward(signum: int, _: object) -> None:
        try:
            os.kill(child, signum)
        except ProcessLookupError:
            pass

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, forward)
    while os.wait()[0] != child:
        pass
    kill_all(lambda: descendants(us))
    _reap(KILL_S)
    kill_all(lambda: processes_in(folder / "data"))  # who came while the others went
    for name in ("control", "pid"):
        (folder / name).unlink(missing_ok=True)


def main(arguments: Optional[List[str]] = None) -> None:
    """Goes into the background at once; FOLDER/pid names the guardian."""
    folder, lifeline = (sys.argv[1:] if arguments is None else arguments)[:2]
    os.chdir(folder)
    if os.fork():
        os._exit(0)
    os.setsid()
    Path("pid").write_text(f"{os.getpid()}\n")
    guard(Path(folder), int(lifeline))


if __name__ == "__main__":
    main()

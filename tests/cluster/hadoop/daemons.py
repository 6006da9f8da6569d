"""The daemons of a cluster, from outside: asking its supervisor, logs, memory, the end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

from tests.cluster.hadoop import supervisor
from tests.cluster.hadoop.jars import SandboxError
from tests.cluster.hadoop.plan import Ports

SUPERVISOR_S = 30.0
"""What a supervisor gets to come up, and to answer."""

DOWN_S = 20.0


class Daemons:
    """See the module; by the folder alone, so that anyone can have one."""

    def __init__(self, folder: Path, lifeline: Optional[int] = None) -> None:
        self.folder = folder
        self._lifeline = lifeline
        try:
            self._cluster: Dict[str, Any] = json.loads((folder / "cluster.json").read_text())
        except FileNotFoundError:
            raise SandboxError(f"there is no cluster in {folder}") from None

    def names(self, prefix: str) -> List[str]:
        """The daemons of a kind: nn, dn, rm, nm, zk."""
        return [n for n in self._cluster["daemons"] if n.rstrip("0123456789") == prefix]

    def web(self, daemon: str) -> str:
        """HOST:PORT of its web server."""
        return str(self._cluster["daemons"][daemon]["web"])

    def rpc(self, daemon: str) -> str:
        """HOST:PORT where clients call it."""
        return str(self._cluster["daemons"][daemon]["rpc"])

    def call(self, what: str, **more: object) -> Dict[str, Any]:
        """A request to the supervisor."""
        with _control(self.folder) as connection:
            connection.sendall(json.dumps({"do": what, **more}).encode() + b"\n")
            with connection.makefile("r") as lines:
                line = lines.readline()
        if not line:
            raise SandboxError(f"the supervisor of {self.folder} went away")
        reply = dict(json.loads(line))
        if "error" in reply:
            raise SandboxError(reply["error"])
        return reply

    def daemons(self) -> Dict[str, Dict[str, Any]]:
        """Of each its pid (None when stopped) and its exit code (None while it runs)."""
        return dict(self.call("status")["daemons"])

    def start(self, daemon: str) -> None:
        """One that was stopped; ``wait_ready`` waits for it."""
        self.call("start", daemon=daemon)

    def stop(self, daemon: str) -> None:
        """Ends one as an administrator does; it is gone when this returns."""
        self.call("stop", daemon=daemon)

    def kill(self, daemon: str) -> None:
        """Ends one as a power cut does, a node with its containers."""
        folder = self.folder / "data" / daemon if daemon in self.names("nm") else None
        self.call("stop", daemon=daemon, kill=True, folder=folder and str(folder))

    @contextmanager
    def hanging(self, daemon: str) -> Iterator[None]:
        """It holds its connections and does not answer."""
        self.call("signal", daemon=daemon, signal=int(signal.SIGSTOP))
        try:
            yield
        finally:
            self.call("signal", daemon=daemon, signal=int(signal.SIGCONT))

    def log_tail(self, daemon: str, lines: int = 30) -> str:
        """The end of a daemon's log."""
        path = Path(self._cluster["daemons"][daemon]["log"])
        text = path.read_text(errors="replace") if path.exists() else ""
        return "\n".join([f"--- {path}", *text.splitlines()[-lines:]])

    def memory_mb(self) -> Dict[str, int]:
        """What each daemon takes up of the machine's memory."""
        found = {}
        for name, state in self.daemons().items():
            if state["pid"] is not None and state["exit"] is None:
                status = Path(f"/proc/{state['pid']}/status").read_text()
                resident = next(s for s in status.splitlines() if s.startswith("VmRSS:"))
                found[name] = int(resident.split()[1]) // 1024
        return found

    def down(self) -> None:
        """Ends every process; data and logs stay for who wants to look."""
        try:
            self.call("down")
        except SandboxError:
            pass  # it has ended already, or is not even listening yet
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        _wait(lambda: not (self.folder / "pid").exists(), 5, 0.02)
        supervisor.kill_all(lambda: supervisor.processes_in(self.folder / "data"), DOWN_S)


def start_supervisor(folder: Path, ports: Ports, detached: bool) -> Optional[int]:
    """Gives our end of the lifeline. The supervisor goes into the background by itself."""
    theirs, ours = os.pipe()
    try:
        kept = [one.fileno() for one in ports.sockets]
        lifeline = -1 if detached else theirs
        with (folder / "supervisor.log").open("ab") as log:
            subprocess.run(
                [sys.executable, "-I", "-S", supervisor.__file__, str(folder), str(lifeline)],
                env={"PATH": os.environ.get("PATH", "/usr/bin:/bin")},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                pass_fds=kept if detached else [*kept, theirs],
                check=True,
                timeout=SUPERVISOR_S,
            )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    if not _wait(lambda: (folder / "control").exists(), SUPERVISOR_S, 0.01):
        text = (folder / "supervisor.log").read_text(errors="replace")
        os.close(ours)
        raise SandboxError(f"the supervisor did not come up in {SUPERVISOR_S} s:\n{text}")
    if detached:
        os.close(ours)
        return None
    return ours


@contextmanager
def _control(folder: Path) -> Iterator[socket.socket]:
    """A connection to the supervisor. Its name goes by the open folder: a socket's is short."""
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise SandboxError(f"there is no cluster in {folder}: {error.strerror}") from None
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(SUPERVISOR_S)
            try:
                connection.connect(f"/proc/self/fd/{place}/control")
            except OSError as error:
                raise SandboxError(
                    f"the cluster in {folder} is not up: {error.strerror or error}"
                ) from None
            yield connection
    finally:
        os.close(place)


def _wait(done: Callable[[], bool], limit: float, pause: float) -> bool:
    deadline = time.monotonic() + limit
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
    return True

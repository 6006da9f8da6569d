"""Jobs on the embedded scheduler for the benchmarks, in a home of their own.

The programs of the jobs are this file: ``python -I -S running.py VERB FOLDER ...`` writes down when
it began, and does what the verb says. So the very same program runs by hand, for the floor.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

SELF = str(Path(__file__).resolve())
STEP_S = 0.020
VALUES = 64  # numbers that a step's all-reduce adds up
REPORT_S = 0.5


# ------------------------------------------------------------------ what the tasks run


def be_program(verb: str, folder: str, *words: str) -> None:
    """Write down when this began; then ``ends``, ``waits``, ``reports`` or ``steps``."""
    index = os.environ.get("TASK_INDEX") or os.environ.get("RANK") or "0"
    session = os.environ.get("SESSION_ID", "0")
    Path(folder, f"began-{session}-{index}").write_text(f"{time.time()} {os.getpid()}")
    if verb == "ends":
        Path(folder, f"ended-{session}-{index}").write_text(f"{time.time()}")
        os._exit(0)
    if verb == "waits":
        end = time.monotonic() + 600
        while time.monotonic() < end and not Path(folder, "go").exists():
            time.sleep(0.05 if words else 600)
    elif verb == "reports":
        report_steps(600)
    elif verb == "steps":
        rate = steps(int(words[0]))
        if rate is not None:
            Path(folder, "rate").write_text(f"{rate}")


def report_steps(seconds: float) -> None:
    """Report a step twice a second, as a program does that imports ``tony``."""
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)  # which -I leaves out
    import tony

    for step in range(int(seconds / REPORT_S)):
        tony.report(step=step)
        time.sleep(REPORT_S)


def steps(count: int) -> Any:
    """Sleep and add up, so often; steps a second, at rank 0."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    peers = _gathered(address, size) if rank == 0 else [_called(address)]
    mine = [float(rank)] * VALUES
    _all_reduce(rank, peers, mine)
    began = time.monotonic()
    for _ in range(count):
        time.sleep(STEP_S)
        total = _all_reduce(rank, peers, mine)
        assert total[0] == size * (size - 1) / 2
    took = time.monotonic() - began
    for peer in peers:
        peer.close()
    return count / took if rank == 0 else None


def _gathered(address: Any, size: int) -> List[socket.socket]:
    listener = socket.socket()
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        listener.setsockopt(socket.SOL_SOCKET, option, 1)
    listener.bind(address)
    listener.listen(size)
    listener.settimeout(60)
    peers = [listener.accept()[0] for _ in range(size - 1)]
    for peer in peers:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.close()
    return peers


def _called(address: Any) -> socket.socket:
    end = time.monotonic() + 60
    while True:
        try:
            made = socket.create_connection(address, 60)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made


def _all_reduce(rank: int, peers: List[socket.socket], mine: List[float]) -> List[float]:
    from array import array

    if rank == 0:
        total = list(mine)
        for peer in peers:
            theirs = array("d", _exactly(peer, 8 * len(mine)))
            total = [a + b for a, b in zip(total, theirs, strict=True)]
        for peer in peers:
            peer.sendall(array("d", total).tobytes())
        return total
    peers[0].sendall(array("d", mine).tobytes())
    return list(array("d", _exactly(peers[0], 8 * len(mine))))


def _exactly(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        data = sock.recv(size - len(found))
        if not data:
            sys.exit("a peer is gone")
        found += data
    return found


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    be_program(*sys.argv[1:])
    sys.exit(0)


# ------------------------------------------------------------------ who starts them

import json  # noqa: E402 - the programs above need not pay for what follows
import subprocess  # noqa: E402
import tempfile  # noqa: E402

import measuring  # noqa: E402
from measuring import until  # noqa: E402


def program(verb: str, folder: Path, *words: object) -> List[str]:
    """The command of one task."""
    return [sys.executable, "-I", "-S", SELF, verb, str(folder), *map(str, words)]


class Home:
    """A home of the embedded scheduler, for one benchmark."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tony-benchmark-")
        self.path = Path(self._folder.name)
        self.env = measuring.environment(TONY_HOME=str(self.path / "home"))
        self._count = 0

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *_error: object) -> None:
        self._folder.cleanup()

    def folder(self) -> Path:
        """A new one, for what programs write down."""
        self._count += 1
        made = self.path / f"run-{self._count}"
        made.mkdir()
        return made

    def tony(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A verb of the command line, to its end."""
        done = subprocess.run(
            [*measuring.TONY, *words],
            env=self.env, cwd=self.path, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"tony {' '.join(words)}: {done.stdout}{done.stderr}")
        return done


class Submitted:
    """A job that was submitted with its client waiting; ended when this is left."""

    def __init__(self, home: Home, count: int, command: List[str], **settings: object) -> None:
        self.home = home
        self.count = count
        given: Dict[str, object] = {
            "tony.application.framework": "standalone" if count == 1 else "pytorch",
            "tony.application.name": "benchmark",
            "tony.worker.instances": count,
            "tony.worker.memory": "64m",
            "tony.task.kill-grace": "5s",
        }
        given.update({f"tony.{key}": value for key, value in settings.items()})
        words = ["submit", "--scheduler", "local", "--executes", " ".join(command)]
        for key, value in given.items():
            words += ["--conf", f"{key}={value}"]
        self._output = (home.folder() / "client").open("w+")
        self.began = time.time()
        self.process = subprocess.Popen(
            [*measuring.TONY, *words],
            env=home.env, cwd=home.path, stdout=self._output, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def __enter__(self) -> Submitted:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            subprocess.run(
                [*measuring.TONY, "kill", "--all", "-y"],
                env=self.home.env, cwd=self.home.path, capture_output=True, timeout=120,
            )  # fmt: skip
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._output.close()

    @property
    def app_id(self) -> str:
        """Of its application, the only one that goes on."""
        apps = self.home.path / "home" / "apps"
        going = [app.name for app in apps.iterdir() if (app / "master.lock").exists()]
        return max(going, key=lambda name: (apps / name).stat().st_mtime)

    def ends(self) -> float:
        """When the client had exited."""
        code = self.process.wait(120)
        at = time.time()
        if code:
            self._output.seek(0)
            sys.exit(f"the client exited with {code}: {self._output.read()}")
        return at

    def until(self, what: Callable[[], Any], why: str) -> Any:
        """Look until there is something, as long as the client lives."""

        def look() -> Any:
            found = what()
            if not found and self.process.poll() is not None:
                self._output.seek(0)
                sys.exit(f"no {why}: the client ended: {self._output.read()}")
            return found

        return until(look, why, 120, 0.003)

    def story(self, *kinds: str) -> List[Dict[str, Any]]:
        """The lines of the job's history so far."""
        found = []
        for path in sorted((self.home.path / "home" / "history" / self.app_id).glob("events-*")):
            for line in path.read_text().splitlines():
                sample = json.loads(line)
                if sample.get("kind") in kinds:
                    found.append(sample)
        return found


def began(folder: Path, count: int, session: int = 0) -> List[List[str]]:
    """(time, pid) of each program of a session, once all have written it; empty before."""
    found = [path.read_text().split() for path in folder.glob(f"began-{session}-*")]
    return found if len(found) == count and all(len(each) == 2 for each in found) else []


def by_hand(command: List[str], count: int, **more: str) -> List[subprocess.Popen[bytes]]:
    """The same program, started without TonY."""
    return [
        subprocess.Popen(
            command,
            env={**os.environ, "TASK_INDEX": str(index), "RANK": str(index), **more},
            stdout=subprocess.DEVNULL,
        )
        for index in range(count)
    ]


def processes_of(mark: str) -> List[int]:
    """Those that were started with something of the application's, as every container is."""
    wanted = os.fsencode(mark)
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path(f"/proc/{entry}/environ").read_bytes()
                words += Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if wanted in words:
                found.append(int(entry))
    return found


def verb_of(pid: int) -> str:
    """Which of our processes it is: ``master``, ``shim``, ``executor``; empty for others."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    for word in words[:6]:
        if word in (b"master", b"shim", b"executor"):
            return word.decode()
    return ""


def alive(pid: int) -> bool:
    """Whether it runs; what has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

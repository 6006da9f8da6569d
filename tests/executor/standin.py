"""A stand-in master on a real socket, and real executors."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Type, TypeVar

from tests.protocol.ends import master_end
from tony_core.protocol.job_secret import executor_key, transport_factory, unpack_secret
from tony_core.protocol.link import Link, dial, listen
from tony_core.protocol.messages import (
    Acknowledge,
    Ended,
    Message,
    Prepare,
    Ready,
    Register,
    Running,
    Shutdown,
    Start,
    Stop,
    Stopped,
    Welcome,
)
from tony_core.protocol.reactor import Reactor

CHECKOUT = Path(__file__).resolve().parents[2]
SECRET = b"the secret of the test's job"
M = TypeVar("M")


def free_span(count: int) -> List[int]:
    """The first and the last of so many ports that are free now, where the kernel gives none."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(100):
        first = random.randrange(10_000, low - count)
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("0.0.0.0", port)))
            except OSError:
                continue
        return [first, first + count - 1]
    raise AssertionError(f"no {count} free ports side by side below {low}")


def make_runtime(folder: Path) -> Path:
    """Our code as it stands on a node: one folder with all that an executor imports."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, origin in (
        ("tony_core", CHECKOUT / "tony_core"),
        ("tony_executor", CHECKOUT / "executor" / "tony_executor"),
        ("program", CHECKOUT / "program"),
    ):
        if not (folder / name).exists():
            (folder / name).symlink_to(origin)
    (folder / "__main__.py").write_text(
        "import sys\nfrom tony_executor.main import main\nsys.exit(main(sys.argv[2:]))\n"
    )
    return folder


class Master:
    """The master's end of the protocol; ``attempt`` and the welcome may be changed by a test."""

    def __init__(self, attempt: int = 1, secret: bytes = SECRET, **welcome: Any) -> None:
        self.reactor = Reactor()
        self.secret = secret
        self._key = unpack_secret(secret)
        self._make_transport = transport_factory(self._key, master=True)
        self.attempt = attempt
        self.welcome: Dict[str, Any] = {
            "heartbeat_s": 0.2,
            "silence_s": 30.0,
            "master_lost_s": 20.0,
            "metrics_interval_s": 0.2,
            "gpu_metrics": False,
            "error_lines": 5,
            "registry_timeout_s": 60.0,
            **welcome,
        }
        self.welcomes = True
        self.acknowledges = True
        self.messages: List[Message] = []
        self.times: List[float] = []
        self.links: List[Link] = []
        self.closed: List[str] = []
        self.listener = listen(self.reactor, "127.0.0.1", 0, lambda s: self._link(s, False))
        self.address = f"127.0.0.1:{self.listener.port}"

    def _link(self, sock: socket.socket, dialler: bool) -> None:
        self.links.append(
            Link(
                self.reactor,
                self._make_transport(sock),
                master_end(self._key.secret, dialler, binding=self._key.fingerprint),
                self._received,
                lambda _, reason: self.closed.append(reason),
            )
        )

    def call(self, port: int) -> None:
        """Call an executor, as a next master does."""
        dial(self.reactor, f"127.0.0.1:{port}", lambda s: self._link(s, True), self.closed.append)

    def _received(self, link: Link, message: Message) -> None:
        self.messages.append(message)
        self.times.append(time.monotonic())
        if isinstance(message, Register) and self.welcomes:
            link.send(Welcome(attempt=self.attempt, **self.welcome))
        if isinstance(message, Ended) and self.acknowledges:
            link.send(Acknowledge(message.session, message.restart))

    def send(self, message: Message) -> None:
        """To the newest connection."""
        next(link for link in reversed(self.links) if not link.closed).send(message)

    # ------------------------------------------------------------------ waiting

    def until(self, condition: Callable[[], Any], within: float = 60.0) -> Any:
        """Run until the condition holds; returns its value."""
        deadline = time.monotonic() + within
        found: List[Any] = []

        def look() -> None:
            value = condition()
            if value:
                found.append(value)
            if value or time.monotonic() > deadline:
                self.reactor.stop()
            else:
                self.reactor.call_later(0.01, look)

        first = self.reactor.call_later(0, look)
        self.reactor.run()
        first.cancel()
        assert found, f"not within {within} s; received {self.messages}, closed {self.closed}"
        return found[0]

    def wait(self, seconds: float) -> None:
        """Run for so long."""
        self.reactor.call_later(seconds, self.reactor.stop)
        self.reactor.run()

    def received(self, kind: Type[M], **fields: Any) -> List[M]:
        """The messages of a kind, with these fields."""
        return [
            message
            for message in self.messages
            if isinstance(message, kind)
            and all(getattr(message, name) == value for name, value in fields.items())
        ]

    def expect(self, kind: Type[M], within: float = 60.0, **fields: Any) -> M:
        """The first of a kind with these fields, now or later."""
        found: List[M] = self.until(lambda: self.received(kind, **fields), within)
        return found[0]

    # ------------------------------------------------------------------ common steps

    def prepare(self, session: int = 0, **fields: Any) -> Ready:
        """Prepare a session, up to its barrier."""
        self.expect(Register)
        given = {"task": "worker:0", "ports": ["main"], **fields}
        self.send(Prepare(session=session, **given))
        return self.expect(Ready, session=session)

    def start(self, command: str, session: int = 0, **fields: Any) -> Running:
        """Start the program of a prepared session."""
        self.send(Start(session, command, **{"env": {}, **fields}))
        return self.expect(Running, session=session)

    def run_program(self, command: str, session: int = 0, **fields: Any) -> Ended:
        """Run a program from Prepare to Ended."""
        self.prepare(session)
        self.send(Start(session, command, **{"env": {}, **fields}))
        return self.expect(Ended, session=session)

    def stop(self, session: int = 0, grace_s: float = 1.0) -> Stopped:
        """End a session's program."""
        self.send(Stop(session, grace_s, "the test stops it"))
        return self.expect(Stopped, session=session)

    def shut_down(self, executor: Executor, grace_s: float = 0.2) -> int:
        """Shut the executor down; returns its exit code."""
        self.send(Shutdown(grace_s, "the test is over"))
        code: int = self.until(lambda: executor.ended())[0]
        return code

    def close(self) -> None:
        for link in self.links:
            link.close()
        self.listener.close()
        self.reactor.close()


class Executor:
    """A real executor process in a container's folder of its own."""

    def __init__(
        self,
        folder: Path,
        master: str,
        *,
        name: str = "container_1",
        secret: bytes = SECRET,
        env: Optional[Dict[str, str]] = None,
        options: Optional[List[str]] = None,
        python: str = sys.executable,
        through: Optional[List[str]] = None,
    ) -> None:
        self.folder = folder / name
        self.work = self.folder / "work"
        self.logs = self.folder / "logs"
        self.work.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(exist_ok=True)
        if not (self.work / "tony-runtime").exists():
            make_runtime(folder / "runtime")
            (self.work / "tony-runtime").symlink_to(folder / "runtime")
        secret_file = self.folder / "secret"
        secret_file.write_bytes(executor_key(secret, name))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TONY_APP_ID": "app_1",
            "TONY_CONTAINER_ID": name,
            "TONY_NODE": "127.0.0.1",
            "TONY_LOG_DIR": str(self.logs),
            "TONY_SECRET_FILE": str(secret_file),
            **(env or {}),
        }
        argv = [python, "-I", "-S", "tony-runtime", "executor", "--master", master]
        out, err = self.folder / "executor.out", self.folder / "executor.err"
        with out.open("ab") as stdout, err.open("ab") as stderr:
            self.process = subprocess.Popen(
                [*(through or []), *argv, *(options or [])],
                cwd=self.work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def ended(self) -> List[int]:
        """[exit code] once it has."""
        code = self.process.poll()
        return [] if code is None else [code]

    def wait(self, within: float = 60.0) -> int:
        return self.process.wait(within)

    def log(self, name: str) -> str:
        path = self.logs / name
        return path.read_text(errors="replace") if path.exists() else ""

    def errors(self) -> str:
        return (self.folder / "executor.err").read_text()

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(60)


def alive(pid: int) -> bool:
    """Whether there is such a process, zombies not counted."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def pids_in(text: str) -> List[int]:
    """The numbers that a program wrote, one a line."""
    return [int(line) for line in text.split() if line.isdigit()]


def environment_of(text: str) -> Dict[str, str]:
    """What ``env -0``'s JSON twin printed."""
    loaded: Dict[str, str] = json.loads(text)
    return loaded

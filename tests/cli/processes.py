"""The real command line as a process of its own, on the embedded scheduler."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Type

CHECKOUT = Path(__file__).resolve().parents[2]
PATHS = [str(CHECKOUT), str(CHECKOUT / "executor"), str(CHECKOUT / "program")]
WAIT_S = 60.0


def environment(**more: str) -> Dict[str, str]:
    """Ours, with the checkout on the path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), **more}


def _with_signals() -> None:
    # A shell's background job ignores Ctrl-C, and hands that down.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def command(*words: str) -> List[str]:
    """One command line."""
    return [sys.executable, "-m", "tony_core.cli.main", *words]


def tony(*words: str, cwd: Path, timeout: float = WAIT_S) -> subprocess.CompletedProcess[str]:
    """Run one to its end."""
    return subprocess.run(
        command(*words),
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(),
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        preexec_fn=_with_signals,
    )


class Running:
    """One that goes on, with its output gathered in files; ``code``: Python that starts it."""

    def __init__(self, cwd: Path, *words: str, code: str = "") -> None:
        self._out = cwd / f"out-{time.monotonic_ns()}"
        self._err = cwd / f"err-{time.monotonic_ns()}"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, *words] if code else command(*words),
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                cwd=cwd,
                env=environment(),
                preexec_fn=_with_signals,
            )

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)

    @property
    def out(self) -> str:
        """Standard output so far."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """Standard error so far."""
        return self._err.read_text()

    def until(self, text: str, times: int = 1) -> None:
        """Waits until it has printed that."""
        until(lambda: self.out.count(text) >= times, f"{text!r} in its output", self)

    def send(self, number: int) -> float:
        """Send it a signal; the time of that."""
        self.process.send_signal(number)
        return time.monotonic()

    def end(self, timeout: float = WAIT_S) -> int:
        """Its exit code."""
        return self.process.wait(timeout)

    def __str__(self) -> str:
        return f"--- standard output\n{self.out}\n--- standard error\n{self.err}"


def until(true: Callable[[], Any], what: str, context: object = "") -> None:
    """Wait for something."""
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end, f"no {what} within {WAIT_S:g} s\n{context}"
        time.sleep(0.02)


class Terminal:
    """One on a terminal of its own; ``code``: Python that starts it."""

    def __init__(self, cwd: Path, *words: str, code: str = "", **env: str) -> None:
        self.shown = ""
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *words] if code else command(*words),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env=environment(TERM="xterm", COLUMNS="120", LINES="30", **env),
            start_new_session=True,
            preexec_fn=lambda: (_with_signals(), _controlling()),  # type: ignore[func-returns-value]
        )
        os.close(slave)

    def until(self, text: str) -> None:
        """Wait until that was shown."""

        def seen() -> bool:
            self._read(0.02)
            return text in self.shown

        until(seen, f"{text!r} on the terminal", self.shown[-2000:])

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._master, keys)

    def close(self) -> None:
        """Close the terminal, as its window would."""
        os.close(self._master)

    def end(self) -> int:
        """Its exit code; reads what it shows meanwhile."""
        limit = time.monotonic() + WAIT_S
        while self.process.poll() is None and time.monotonic() < limit:
            self._read(0.05)
        self._read(0.0)
        return self.process.wait(60)

    def _read(self, wait: float) -> None:
        while True:
            try:
                if not select.select([self._master], [], [], wait)[0]:
                    return
                data = os.read(self._master, 65536)
            except OSError:
                return
            if not data:
                return
            self.shown += data.decode(errors="replace")
            wait = 0.0


def _controlling() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def application_of(text: str) -> str:
    """The id that a submit printed."""
    first = text.splitlines()[0]
    if first.startswith("{"):
        return str(json.loads(first)["app_id"])
    return first.split()[-1]

"""Jobs by the real command line, on a real cluster or on the embedded scheduler."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

from tests.cluster.hadoop import supervisor
from tests.cluster.hadoop.cluster import Hadoop

CHECKOUT = Path(__file__).resolve().parents[3]
_PATHS = [CHECKOUT / part for part in (".", "executor", "plugins/airflow", "program")]
_ID = re.compile(r"\b(application_\d+_\d+|local_\d+_[0-9a-f]+)\b")
WITHIN = 120.0


def until(ready: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """Its first true value."""
    deadline = time.monotonic() + seconds
    while True:
        found = ready()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


class Running:
    """A ``tony submit``, or another verb, in the foreground; ``group``: its processes' group."""

    def __init__(
        self,
        tony: Tony,
        words: List[str],
        cwd: Path,
        verb: str = "submit",
        group: Optional[int] = None,
    ) -> None:
        self.tony = tony
        tony.folder.mkdir(parents=True, exist_ok=True)
        self._output = tony.folder / f"submit-{len(tony.started)}.out"
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                [*tony.command, verb, *tony.choice, *words],
                cwd=cwd,
                env=tony.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                group=group,
            )

    @property
    def output_text(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def app_id(self) -> str:
        """As soon as it was accepted."""

        def find() -> Optional[str]:
            found = _ID.search(self.output_text)
            assert found or self.process.poll() is None, self.output_text
            return found and found.group(1)

        return str(until(find, "the application's id"))

    def until(self, ready: Callable[[], Any], what: str, seconds: float = WITHIN) -> Any:
        """Something that must come while it runs."""

        def look() -> Any:
            found = ready()
            assert found or self.process.poll() is None, f"ended before {what}\n{self.story()}"
            return found

        return until(look, what, seconds)

    def ends(self, code: int, seconds: float = WITHIN) -> str:
        """Waits for the end with this exit code; returns the client's output."""
        try:
            found = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not end within {seconds} s\n{self.story()}") from None
        assert found == code, f"exit code {found}, not {code}\n{self.story()}"
        return self.output_text

    def story(self) -> str:
        """All that helps when it goes wrong."""
        parts = [self.output_text[-6000:]]
        found = _ID.search(self.output_text)
        if found:
            for words in (("logs", "-t", "am", "--stream", "both"), ("logs", "--stream", "both")):
                done = self.tony(*words, "--tail", "40", found.group(1), check=False)
                parts.append(done.stdout[-6000:] + done.stderr[-1000:])
        return "\n---\n".join(parts)

    def events(self) -> List[Dict[str, Any]]:
        """The story as history has it."""
        shown = json.loads(self.tony("history show", self.app_id, "--json").stdout)
        events: List[Dict[str, Any]] = shown["events"]
        return events

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Tony:
    """The command line against one scheduler."""

    def __init__(self, folder: Path, cluster: Optional[Hadoop] = None) -> None:
        self.folder = folder
        self.cluster = cluster
        self.started: List[Running] = []
        self._left: Set[int] = set()  # processes of containers, as last seen
        self.env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _PATHS))}
        if cluster is not None:
            self.env.update(cluster.environment_of(cluster.user))
        self.command = [sys.executable, "-m", "tony_core.cli.main"]
        self.choice = ["--scheduler", "yarn" if cluster is not None else "local"]

    def __call__(self, verb: str, *words: str, check: bool = True) -> Any:
        """A verb to its end."""
        done = subprocess.run(
            [*self.command, *verb.split(), *self.choice, *words],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=WITHIN,
        )
        assert not check or done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        return done

    def json(self, verb: str, *words: str) -> Any:
        """What it prints with ``--json``."""
        return json.loads(self(verb, "--json", *words).stdout)

    def submit(
        self,
        *words: str,
        conf: Optional[Mapping[str, Any]] = None,
        cwd: Optional[Path] = None,
        small: bool = True,
    ) -> Running:
        """Start a job; it is ended at the test's end if it has not by then."""
        settings = {**({"tony.am.memory": "256"} if small else {}), **(conf or {})}
        spelt = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        running = Running(self, [*spelt, *words], cwd or self.folder)
        self.started.append(running)
        return running

    def start(self, verb: str, *words: str, group: Optional[int] = None) -> Running:
        """Start another verb; it is ended at the test's end if it has not by then."""
        running = Running(self, list(words), self.folder, verb, group)
        self.started.append(running)
        return running

    def nothing_runs(self) -> bool:
        """No process of a container is left on any node."""
        assert self.cluster is not None
        nodes = (self.cluster.folder / "data").glob("nm*/local")
        left = {pid for node in nodes for pid in supervisor.processes_in(node)}
        if left != self._left:
            self._left = left
            for pid in sorted(left):  # for the report of a test that waits for their end
                command = Path(f"/proc/{pid}/cmdline")
                with suppress(OSError):
                    print("still running:", pid, command.read_bytes().replace(b"\0", b" "))
        return not left

    def close(self) -> None:
        for running in self.started:
            running.close()

"""Jobs as an Azkaban server starts them: the program with a file of properties, in a folder."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, List, Mapping, Optional, Type

from tony_azkaban.java_properties import dump

CHECKOUT = Path(__file__).resolve().parents[2]
PATHS = [str(CHECKOUT / part) for part in (".", "executor", "program", "plugins/azkaban")]
WAIT_S = 60.0

PROGRAM = """
import json, os, signal, sys, time
what = sys.argv[1]
print(os.environ["JOB_NAME"], os.environ["SESSION_ID"], "does", what, flush=True)
if what == "fail":
    print("first words", file=sys.stderr)
    print("ValueError: no such data set", file=sys.stderr)
    sys.exit(7)
if what == "fill":
    ballast = bytearray(190 << 20)
    ballast[::4096] = b"x" * len(ballast[::4096])
    sys.exit(int(sys.argv[2]))
if what == "sleep":
    time.sleep(120)
if what == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("does not listen", flush=True)
    time.sleep(120)
if what == "report":
    sys.path[:0] = []
    import tony
    tony.report(step=3, metrics={"loss": 0.25})
    tony.report(step=4, metrics={"loss": 0.125, "accuracy": 0.5})
if what == "show":
    with open(sys.argv[2], "w") as file:
        json.dump({"argv": sys.argv[3:], "env": dict(os.environ)}, file)
"""

SMALL = {
    "tony.worker.instances": "1",
    "tony.worker.memory": "128m",
    "tony.application.framework": "pytorch",
    "tony.am.retry-count": "0",
    "azkaban.flow.execid": "12",
    "azkaban.flow.flowid": "nightly",
    "azkaban.flow.projectid": "3",
    "azkaban.job.attempt": "0",
}


def until(true: Callable[[], Any], what: str, context: object = "") -> Any:
    """Its first true value."""
    end = time.monotonic() + WAIT_S
    while True:
        found = true()
        if found:
            return found
        assert time.monotonic() < end, f"no {what} within {WAIT_S:g} s\n{context}"
        time.sleep(0.02)


class Job:
    """One attempt at a job, in its folder."""

    def __init__(self, folder: Path, what: str = "", **words: str) -> None:
        self.folder = folder
        source = folder / "src"
        if not source.exists():
            source.mkdir(parents=True)
            (source / "train.py").write_text(PROGRAM)
        self.props: Dict[str, str] = {**SMALL}
        if what:
            self.props["executes"] = f"python3 train.py {what}"
        self.env: Dict[str, str] = {}
        self.home: Optional[Path] = None  # the job type's folder
        self._log = folder / f"log-{time.monotonic_ns()}"
        self.process: Optional[subprocess.Popen[bytes]] = None
        self.props.update(words)

    def set(self, settings: Mapping[str, str]) -> Job:
        """Properties whose names are no words of Python."""
        self.props.update(settings)
        return self

    @property
    def outputs_file(self) -> Path:
        return self.folder / "outputs.json"

    @property
    def outputs(self) -> Dict[str, str]:
        """What it left for the next jobs."""
        found: Dict[str, str] = json.loads(self.outputs_file.read_text())
        return found

    def start(self) -> Job:
        """As the server does it."""
        path = self.folder / "job.properties"
        path.write_bytes(dump(self.props))
        server = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}
        env = {
            **server,
            "JOB_PROP_FILE": str(path),
            "JOB_OUTPUT_PROP_FILE": str(self.outputs_file),
            "JOB_NAME": "train",
            **{key[4:]: text for key, text in self.props.items() if key.startswith("env.")},
            **self.env,
        }
        call = f"sys.exit(main({str(self.home) if self.home else None!r}))"
        program = (
            f"import sys; sys.path[:0] = {PATHS!r}; from tony_azkaban.environment import restore;"
            f" restore({server!r}); from tony_azkaban.program import main; {call}"
        )
        words = [sys.executable, "-I", "-c", program]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                words,
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def run(self, code: int = 0) -> str:
        """To its end; its log."""
        with self.start():
            return self.ends(code)

    def ends(self, code: int) -> str:
        """With this exit code; its log."""
        assert self.process is not None
        try:
            found = self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not end within {WAIT_S} s\n{self.log}") from None
        assert found == code, f"exit code {found}, not {code}\n{self.log}"
        return self.log

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def lines(self) -> List[str]:
        return self.log.splitlines()

    def until(self, text: str) -> None:
        """It stands in the log."""
        until(lambda: text in self.log, f"{text!r} in the log", f"{self.log}\n{self.folder}")

    @property
    def app_id(self) -> str:
        """As soon as it is there."""

        def find() -> Optional[str]:
            found = re.search(r"^application (\S+)\n", self.log, re.MULTILINE)
            return found and found[1]

        return str(until(find, "application", self.folder))

    def send(self, number: int = signal.SIGTERM) -> float:
        """A signal to this process alone; when."""
        assert self.process is not None
        os.kill(self.process.pid, number)
        return time.monotonic()

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)

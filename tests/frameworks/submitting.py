"""Examples through the real command line, on the embedded scheduler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

CHECKOUT = Path(__file__).resolve().parents[2]
EXAMPLES = CHECKOUT / "examples"
_PATHS = [CHECKOUT / part for part in (".", "executor", "plugins/airflow", "program")]


class Submitted:
    """One ``tony submit`` in the foreground, with checkpoints and events in its own folder."""

    def __init__(
        self,
        folder: Path,
        example: Path,
        python: Path,
        *,
        params: str = "",
        conf: Sequence[str] = (),
        arguments: Sequence[str] = (),
    ) -> None:
        self.checkpoints = folder / "checkpoints"
        self.events = folder / "events"
        self.output = folder / "submit.out"
        command = [
            *(sys.executable, "-m", "tony_core.cli.main", "submit"),
            *("--python_binary_path", str(python)),
            *("--conf", f"tony.application.checkpoint-dir={self.checkpoints}"),
            *("--conf", f"tony.application.tensorboard-log-dir={self.events}"),
        ]
        for item in conf:
            command += ["--conf", item]
        if params:
            command += ["--task_params", params]
        with open(self.output, "w") as output:
            self.process = subprocess.Popen(
                [*command, *arguments],
                cwd=example,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _PATHS))},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    # ---------------------------------------------------------------- waiting

    def until(self, what: str, ready: Callable[[], bool], seconds: float = 120) -> None:
        """Wait for something that must come while the job runs."""
        deadline = time.monotonic() + seconds
        while not ready():
            assert self.process.poll() is None, f"the job ended before {what}\n{self.evidence()}"
            assert time.monotonic() < deadline, f"{what}: not within {seconds} s\n{self.evidence()}"
            time.sleep(0.05)

    def ends(self, code: int, seconds: float = 180) -> str:
        """Waits for the job's end with this exit code; returns the client's output."""
        try:
            found = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not end within {seconds} s\n{self.evidence()}") from None
        assert found == code, f"exit code {found}, not {code}\n{self.evidence()}"
        return self.output.read_text()

    def close(self) -> None:
        """End the client, which ends the job."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def evidence(self) -> str:
        """The client's words and every task's last lines, for a failed assertion."""
        parts = [self.output.read_text()[-4000:]]
        home = Path(os.environ["TONY_HOME"])
        for log in sorted(home.glob("apps/*/logs/*/std*")) + sorted(home.glob("apps/*/master/*")):
            if log.is_file() and log.stat().st_size:
                parts.append(f"--- {log}\n{log.read_text(errors='replace')[-1500:]}")
        return "\n".join(parts)

    # ---------------------------------------------------------------- what it did

    @property
    def folder(self) -> Optional[Path]:
        """The run's own folder, once it has begun."""
        return next(iter(self.checkpoints.glob("*")), None)

    def steps(self) -> List[Dict[str, Any]]:
        """Every step done so far, with its session."""
        path = self.folder and self.folder / "steps.jsonl"
        if not path or not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines(True) if line[-1] == "\n"]

    def result(self) -> Dict[str, Any]:
        """What the program found at its end."""
        assert self.folder is not None
        found: Dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found

    def printed(self) -> List[str]:
        """Every line that a task's program printed."""
        home = Path(os.environ["TONY_HOME"])
        logs = sorted(home.glob("apps/*/logs/*/stdout*"))
        return [line for log in logs for line in log.read_text().splitlines()]

    def story(self) -> List[Dict[str, Any]]:
        """The job's events, as its history keeps them."""
        home = Path(os.environ["TONY_HOME"])
        lines: List[Dict[str, Any]] = []
        for segment in sorted(home.glob("history/*/events-*.jsonl")):
            lines += [json.loads(line) for line in segment.read_text().splitlines()]
        return lines

    def program_of(self, role: str, index: int) -> int:
        """The pid of a task's own program."""
        wanted = {
            f"TONY_CHECKPOINT_DIR={self.checkpoints}".encode(),
            f"JOB_NAME={role}".encode(),
            f"TASK_INDEX={index}".encode(),
        }
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environment = set((entry / "environ").read_bytes().split(b"\0"))
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if wanted <= environment and b"python" in words[0] and b"train.py" in words:
                found.append(int(entry.name))
        assert found, f"no program of {role}:{index} runs\n{self.evidence()}"
        return max(found)

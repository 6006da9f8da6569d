"""``tony.am.command``: run once, before the first session, beside the master.

The work is done by :mod:`tony_core.master.preprocess_child` in a process of its own; here
it is started, heard and ended. Its log files (``preprocess.stdout``, ``preprocess.stderr``)
stand in the master's own folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from tony_core.files.artifact import Artifact, Use
from tony_core.job.spec import Job
from tony_core.master import preprocess_child
from tony_core.protocol.reactor import Reactor
from tony_core.schedulers.port import MasterContext

AM = "am"  # the master's name among the roles of an artifact
EXTRA_S = 5.0  # beyond the command's grace, for what is killed to go

#: (exit code, parameters, last lines of stderr)
Done = Callable[[int, Optional[str], Sequence[str]], None]


def environment(job: Job, app_id: str) -> Dict[str, str]:
    """What the command sees besides the master's own environment."""
    env = {
        **dict(job.program.container_env),
        **dict(job.program.shell_env),
        "PREPROCESS": "true",
        "PREPROCESSING_JOB": "true",  # what the JVM TonY calls it
        "JOB_NAME": AM,
        "JOB_ID": app_id,
        "APP_ID": app_id,
        "TASK_NUM": str(job.tracked_tasks),
    }
    if job.program.checkpoint_dir:
        env["TONY_CHECKPOINT_DIR"] = job.program.checkpoint_dir
    return env


def told(job: Job, context: MasterContext, artifacts: Sequence[Artifact], command: str) -> bytes:
    """What the child is told: all of it as plain data."""
    return preprocess_child.spec(
        command_line(job, command),
        environment(job, context.app_id),
        context.work_dir,
        context.store_root,
        [item.to_json() for item in wanted(artifacts)],
        job.timeouts.kill_grace_s,
        context.localized_dir,
    )


def command_line(job: Job, command: str) -> str:
    """The command with the job's virtual environment in front of the PATH."""
    if not job.program.venv:
        return command
    return f'export VIRTUAL_ENV="$PWD/venv" PATH="$PWD/venv/bin:$PATH"\n{command}'


def wanted(artifacts: Sequence[Artifact]) -> List[Artifact]:
    """What stands in its working folder: what a task has, and ``tony.am.resources``."""
    uses = (Use.SOURCE, Use.VENV, Use.RESOURCE)
    return [item for item in artifacts if item.use in uses and item.wanted_by(AM)]


class Preprocess:
    """One run of the command."""

    def __init__(self, reactor: Reactor, told: bytes, done: Done) -> None:
        self._reactor = reactor
        self._done = done
        self._answer = bytearray()
        self._grace_s = float(json.loads(told)["grace_s"])
        package = Path(__file__).resolve().parent.parent.parent
        # Not -m: under -I -S nothing but the standard library is on the path.
        code = (
            f"import sys; sys.path.insert(0, {str(package)!r});"
            f"from {preprocess_child.__name__} import main; sys.exit(main())"
        )
        self._process: Optional[subprocess.Popen[bytes]] = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(told + b"\n")
        self._process.stdin.flush()
        reactor.watch(self._process.stdout, on_read=self._read)

    def end(self) -> None:
        """The job ends: so does the command. No word follows."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        self._reactor.unwatch(process.stdout)
        process.stdin.close()  # that is how it knows
        try:
            process.wait(self._grace_s + EXTRA_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _read(self) -> None:
        process = self._process
        assert process is not None and process.stdout is not None
        data = os.read(process.stdout.fileno(), 65536)
        if data:
            self._answer += data
            return
        try:
            answer: Dict[str, Any] = json.loads(bytes(self._answer))
        except ValueError:
            answer = {"exit_code": 1, "stderr_tail": ["the process that ran it was killed"]}
        self.end()
        self._done(
            int(answer["exit_code"]), answer.get("parameters"), answer.get("stderr_tail", ())
        )

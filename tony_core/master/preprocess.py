"""``tony.am.command``: runs once, before the first session, beside the master.

:mod:`tony_core.master.preprocess_child` runs the command in a process of its own; this module
starts that process, reads its result and ends it. The command's logs (``preprocess.stdout``,
``preprocess.stderr``) stand in the master's own folder.
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
from tony_core.schedulers.container_pool import MasterContext

AM = "am"  # the master's name among the roles of an artifact
EXTRA_S = 5.0  # after the command's grace, for killed processes to end

#: (exit code, parameters, last lines of stderr)
Done = Callable[[int, Optional[str], Sequence[str]], None]


def environment(job: Job, app_id: str) -> Dict[str, str]:
    """Return the command's variables besides the master's own environment."""
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


def build_request(
    job: Job, context: MasterContext, artifacts: Sequence[Artifact], command: str
) -> bytes:
    """Build the child's request: plain data on one line."""
    return preprocess_child.encode_request(
        command_line(job, command),
        environment(job, context.app_id),
        context.work_dir,
        context.store_root,
        [item.to_json() for item in select_artifacts(artifacts)],
        job.timeouts.kill_grace_s,
        context.localized_dir,
    )


def command_line(job: Job, command: str) -> str:
    """The command with the job's virtual environment in front of the PATH."""
    if not job.program.venv:
        return command
    return f'export VIRTUAL_ENV="$PWD/venv" PATH="$PWD/venv/bin:$PATH"\n{command}'


def select_artifacts(artifacts: Sequence[Artifact]) -> List[Artifact]:
    """Select what its working folder holds: what a task has, and ``tony.am.resources``."""
    uses = (Use.SOURCE, Use.VENV, Use.RESOURCE)
    return [item for item in artifacts if item.use in uses and item.wanted_by(AM)]


class Preprocess:
    def __init__(self, reactor: Reactor, request: bytes, done: Done) -> None:
        self._reactor = reactor
        self._done = done
        self._answer = bytearray()
        self._grace_s = float(json.loads(request)["grace_s"])
        package = Path(__file__).resolve().parent.parent.parent
        # Not -m: under -I -S nothing but the standard library is on the path.
        code = (
            f"import sys; sys.path.insert(0, {str(package)!r});"
            f"from {preprocess_child.__name__} import main; sys.exit(main())"
        )
        self._process: Optional[subprocess.Popen[bytes]] = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(request + b"\n")
        self._process.stdin.flush()
        reactor.watch(self._process.stdout, on_read=self._read)

    def end(self) -> None:
        """End the command, without calling ``done``: the job ends."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        self._reactor.unwatch(process.stdout)
        process.stdin.close()  # the child ends the command then
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

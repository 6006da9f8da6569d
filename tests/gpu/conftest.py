"""Jobs on a real GPU of this machine, ended whatever becomes of the test.

The interpreter is the one that runs the tests: it has to have PyTorch for CUDA, and JAX.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest

from tests.frameworks.submitting import EXAMPLES, Submitted
from tests.gpu import smi

PROGRAMS = Path(__file__).parent / "programs"
RESOURCES = ",".join(
    str(path)
    for path in (
        EXAMPLES / "data" / "points.csv",
        EXAMPLES / "shared" / "course.py",
        PROGRAMS / "seen.py",
    )
)
ROLE = ("tony.worker.instances=1", "tony.worker.memory=8g", "tony.worker.gpus=1")
RUN = [sys.executable, "-m", "tony_core.cli.main"]


class GpuJob(Submitted):
    """One that uses the programs beside this file."""

    def __init__(self, folder: Path, **rest: Any) -> None:
        super().__init__(folder, folder, Path(sys.executable), **rest)

    @property
    def app_id(self) -> str:
        """Of the one job that this client has submitted."""
        found = re.search(r"\blocal_\d+_[0-9a-f]+", self.output.read_text())
        assert found is not None, self.evidence()
        return found.group()

    def seen(self, role: str = "worker", session: int = 0) -> Dict[str, Any]:
        """What a task has found, of that session."""
        for line in self.lines("seen"):
            printed: Dict[str, Any] = json.loads(line)
            if (printed["seen"]["JOB_NAME"], printed["seen"]["SESSION_ID"]) == (role, str(session)):
                return printed
        raise AssertionError(f"{role} of session {session} has printed nothing\n{self.evidence()}")

    def lines(self, word: str) -> List[str]:
        """What its programs have printed with that word in it."""
        return [line for line in self.printed() if word in line]


@pytest.fixture(autouse=True)
def _a_gpu() -> None:
    if not smi.there():
        pytest.skip("no NVIDIA GPU here")


@pytest.fixture
def submit(tmp_path: Path) -> Iterator[Callable[..., GpuJob]]:
    """``submit("train.py", conf=[...])``: that program of ours, by a real ``tony submit``."""
    made: List[GpuJob] = []

    def start(
        program: str,
        *,
        conf: Optional[List[str]] = None,
        framework: str = "pytorch",
        roles: Any = ROLE,
        **rest: Any,
    ) -> GpuJob:
        folder = tmp_path / f"job-{len(made)}"
        folder.mkdir()
        given = [
            f"tony.application.framework={framework}",
            f"tony.containers.resources={RESOURCES}",
            "tony.task.metrics-interval-ms=500",
            *roles,
            *(conf or []),
        ]
        words = ["--src_dir", str(PROGRAMS), "--executes", program, *rest.pop("arguments", ())]
        made.append(GpuJob(folder, conf=given, arguments=words, **rest))
        return made[-1]

    yield start
    for job in made:
        job.close()


def soon(true: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    """Wait for something that must come."""
    end = time.monotonic() + seconds
    while True:
        found = true()
        if found:
            return found
        assert time.monotonic() < end, f"timed out waiting for {what}"
        time.sleep(0.02)


def environment() -> Dict[str, str]:
    """For a verb of the command line."""
    parts = (".", "executor", "program")
    paths = [str(EXAMPLES.parent / part) for part in parts]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

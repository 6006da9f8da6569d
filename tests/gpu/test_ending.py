"""What is ended in the middle of its work leaves the GPU, and nothing on it."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Callable

import pytest

from tests.gpu import smi
from tests.gpu.conftest import RUN, GpuJob, environment, soon

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


@pytest.mark.parametrize(("how", "processes"), [("", 1), ("stubborn", 2)])
def test_a_kill_frees_the_gpu(submit: Callable[..., GpuJob], how: str, processes: int) -> None:
    """Also of what ignores TERM and of what has left its process group."""
    before = smi.used_mb()
    job = submit("grind.py", params=f"4000 {how}", conf=["tony.task.kill-grace=1s"])
    job.until("work on the GPU", lambda: len(job.lines("grinding")) == processes)
    pids = {int(line.split()[1]) for line in job.lines("grinding")}
    assert pids <= smi.on_gpus()
    assert smi.used_mb() > before + 4000 * processes
    subprocess.run([*RUN, "kill", job.app_id], env=environment(), timeout=60, check=True)
    job.ends(137)
    # The driver takes a moment after the last process has gone.
    soon(lambda: not smi.on_gpus() & pids, "the processes to leave the GPU", 5)
    soon(lambda: smi.used_mb() <= before + 100, "its memory to be free", 5)


def test_the_next_session_finds_the_memory_free(submit: Callable[..., GpuJob]) -> None:
    """Three quarters of it, as JAX takes: what is left of the one before would be in the way."""
    most = smi.total_mb() * 3 // 4
    job = submit("grind.py", params=str(most))
    job.until("work on the GPU", lambda: len(job.lines("grinding")) == 1)
    os.kill(int(job.lines("grinding")[0].split()[1]), signal.SIGKILL)
    job.until("work of the next session", lambda: len(job.lines("grinding")) == 2)
    assert smi.used_mb() > most
    subprocess.run([*RUN, "kill", job.app_id], env=environment(), timeout=60, check=True)
    job.ends(137)


def test_so_does_the_next_job(submit: Callable[..., GpuJob]) -> None:
    """It waits for the GPU, and gets all of it when the first is killed."""
    most = smi.total_mb() * 3 // 4
    first = submit("grind.py", params=str(most), conf=["tony.am.retry-count=0"])
    first.until("work on the GPU", lambda: first.lines("grinding"))
    second = submit("grind.py", params=str(most), conf=["tony.am.retry-count=0"])
    second.until("it to wait", lambda: "waits for" in second.output.read_text())
    subprocess.run([*RUN, "kill", first.app_id], env=environment(), timeout=60, check=True)
    first.ends(137)
    second.until("its work", lambda: len(second.lines("grinding")) == 2)
    subprocess.run([*RUN, "kill", second.app_id], env=environment(), timeout=60, check=True)
    second.ends(137)

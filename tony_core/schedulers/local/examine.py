"""``tony doctor`` on this machine: what the embedded scheduler needs, thing by thing."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Iterator

from tony_core.job.spec import Job
from tony_core.schedulers.local import capacity
from tony_core.schedulers.port import Finding, SchedulerError, Verdict

PYTHON_S = 20.0
LITTLE_MB = 1024
_VERSION = "import sys; print(*sys.version_info[:3], sep='.')"


def examine(root: str, job: Job) -> Iterator[Finding]:
    """``root``: where the scheduler keeps its files; it has been found usable."""
    yield _home(root)
    yield _python(job.runtime.python)
    yield _memory(job)
    yield _gpus(job)
    tensorboard = shutil.which("tensorboard")
    yield Finding(
        "TensorBoard",
        Verdict.OK if tensorboard else Verdict.NOTE,
        tensorboard or "there is none on the PATH",
        "" if tensorboard else "a job that has it in its own environment shows it all the same",
    )


def _home(root: str) -> Finding:
    there = root
    while not os.path.exists(there):
        there = os.path.dirname(there)
    free = shutil.disk_usage(there).free >> 20
    if free < LITTLE_MB:
        advice = "make room (tony gc), or set TONY_HOME to a larger disk"
        return Finding("TONY_HOME", Verdict.NOTE, f"{root} has {free} MB left", advice)
    return Finding("TONY_HOME", Verdict.OK, f"{root}, {free} MB free")


def _python(name: str) -> Finding:
    what = "tony.runtime.python"
    path = shutil.which(name)
    advice = "name one that runs here with tony.runtime.python"
    if path is None:
        return Finding(what, Verdict.WRONG, f"there is no {name} on the PATH", advice)
    try:
        done = subprocess.run(
            [path, "-I", "-S", "-c", _VERSION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PYTHON_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(what, Verdict.WRONG, f"{path} does not run: {error}", advice)
    version = done.stdout.strip()
    numbers = [int(part) for part in version.split(".") if part.isdigit()]
    if done.returncode or numbers < [3, 9]:
        said = f"{path} is {version or 'no Python'}; 3.9 or newer is needed"
        return Finding(what, Verdict.WRONG, said, advice)
    return Finding(what, Verdict.OK, f"{path} {version}")


def _memory(job: Job) -> Finding:
    memory = job.local.memory_mb or capacity.machine_memory_mb()
    vcores = "" if job.local.vcores is None else f", {job.local.vcores} vcores"
    return Finding("to hand out", Verdict.OK, f"{memory} MB of memory{vcores}")


def _gpus(job: Job) -> Finding:
    try:
        found = capacity.gpu_ids(job.local.gpus)
    except SchedulerError as error:
        return Finding("GPUs", Verdict.WRONG, str(error), "look at the driver")
    devices = capacity.gpu_count()
    if devices and not found:
        said = f"{devices} devices, and no nvidia-smi that shows them"
        return Finding("GPUs", Verdict.NOTE, said, "install nvidia-smi, or say tony.local.gpus")
    return Finding("GPUs", Verdict.OK, f"{len(found)}")

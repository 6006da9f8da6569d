"""The capacity of this machine: memory, GPUs, vcores.

Memory: what the job file allows, else what the machine has, within the limits of the control
groups that this process stands in. GPUs: by UUID from nvidia-smi; where there is no
nvidia-smi, as many as the job file sets, called 0, 1, ... Vcores: only if the job file sets them.
nvidia-smi is looked up where the executor looks it up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import List, Optional, Tuple

from tony_core.job.spec import Local
from tony_core.schedulers.local.allocation import Capacity
from tony_core.schedulers.port import SchedulerError

NVIDIA_SMI_S = 20.0
MB = 1 << 20
_PLACES = ("/usr/bin", "/usr/local/nvidia/bin")


def capacity(local: Local, gpus: bool) -> Capacity:
    """The capacity that a job may use; ``gpus``: whether to count them (it takes a second)."""
    return Capacity(
        memory_mb=machine_memory_mb() if local.memory_mb is None else local.memory_mb,
        gpus=gpu_ids(local.gpus, local.nvidia_smi) if gpus else (),
        vcores=local.vcores,
    )


def machine_memory_mb(root: Path = Path("/")) -> int:
    """The machine's memory, or the tightest limit of the control groups around us."""
    text = (root / "proc/meminfo").read_text()
    total = next(int(line.split()[1]) * 1024 for line in text.splitlines() if "MemTotal" in line)
    return min([total, *_cgroup_limits(root)]) // MB


def nvidia_smi(given: Optional[str] = None) -> Optional[str]:
    """The path of nvidia-smi; None where there is none."""
    if given and os.access(given, os.X_OK):
        return given
    places = os.pathsep.join([os.environ.get("PATH", os.defpath), *_PLACES])
    return shutil.which("nvidia-smi", path=places)


def gpu_ids(count: Optional[int], given: Optional[str] = None) -> Tuple[str, ...]:
    """UUIDs from nvidia-smi if there is one, the first ``count`` of them if there is a count."""
    program = nvidia_smi(given)
    if program is None:
        return tuple(str(number) for number in range(count or 0))
    command = [program, "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=NVIDIA_SMI_S,
        )
    except subprocess.TimeoutExpired:
        raise SchedulerError(
            f"{program} did not answer within {NVIDIA_SMI_S:.0f} s; the GPUs cannot be counted"
        ) from None
    except OSError as error:
        raise SchedulerError(f"{program} cannot be run: {error.strerror}") from None
    found = [line.strip() for line in done.stdout.splitlines() if line.startswith("GPU-")]
    if done.returncode != 0:
        found = []  # it is installed, and there is no driver or no GPU
    return tuple(found if count is None else found[:count])


def gpu_count(root: Path = Path("/")) -> int:
    """How many GPUs this host has, by their device files; costs nothing."""
    return len(list((root / "dev").glob("nvidia[0-9]*")))


def _cgroup_limits(root: Path) -> List[int]:
    """Every memory limit from our group up to the root, of either version."""
    found: List[int] = []
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        number, controllers, group = line.split(":", 2)
        if number == "0" and not controllers:
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        parts = [part for part in group.split("/") if part and part != ".."]
        for length in range(len(parts) + 1):
            try:
                word = base.joinpath(*parts[:length], name).read_text().strip()
            except OSError:
                continue
            if word.isdigit():
                found.append(int(word))
    return found

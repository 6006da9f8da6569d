"""How much of the machine there is to hand out."""

from __future__ import annotations

from pathlib import Path
from typing import Dict

import pytest

from tony_core.job.spec import Local
from tony_core.schedulers.local import capacity
from tony_core.schedulers.port import SchedulerError

GB = 1 << 30


def machine(root: Path, cgroup: str, limits: Dict[str, str]) -> Path:
    """A /proc and /sys that say this."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemFree: 1 kB\nMemTotal: {16 * GB // 1024} kB\n")
    (root / "proc/self/cgroup").write_text(cgroup)
    for path, word in limits.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(word + "\n")
    return root


@pytest.mark.parametrize(
    ("cgroup", "limits", "most"),
    [
        ("", {}, 16 * GB),
        ("0::/user/job\n", {"sys/fs/cgroup/user/job/memory.max": "max"}, 16 * GB),
        ("0::/user/job\n", {"sys/fs/cgroup/user/memory.max": str(4 * GB)}, 4 * GB),
        ("0::/../job\n", {"sys/fs/cgroup/memory.max": str(3 * GB)}, 3 * GB),
        (
            "5:cpu,memory:/box\n1:cpu:/x\n",
            {"sys/fs/cgroup/memory/box/memory.limit_in_bytes": str(2 * GB)},
            2 * GB,
        ),
        (
            "5:memory:/box\n",
            {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"},
            16 * GB,
        ),
    ],
)
def test_memory_is_the_machines_within_the_control_groups(
    tmp_path: Path, cgroup: str, limits: Dict[str, str], most: int
) -> None:
    assert capacity.machine_memory_mb(machine(tmp_path, cgroup, limits)) == most >> 20


def test_this_machine_has_memory() -> None:
    assert capacity.machine_memory_mb() > 100
    assert capacity.capacity(Local(), gpus=False).memory_mb == capacity.machine_memory_mb()


def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_gpus_are_named_by_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch, 'test "$1" = --query-gpu=uuid && echo GPU-1 && echo GPU-2')
    assert capacity.gpu_ids(None) == ("GPU-1", "GPU-2")
    assert capacity.gpu_ids(1) == ("GPU-1",)
    assert capacity.gpu_ids(5) == ("GPU-1", "GPU-2")


def test_nvidia_smi_may_stand_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "there"
    there.mkdir()
    smi(there, monkeypatch, "echo GPU-1")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(capacity, "_PLACES", ())
    program = str(there / "nvidia-smi")
    assert (capacity.gpu_ids(None), capacity.gpu_ids(None, program)) == ((), ("GPU-1",))
    assert capacity.capacity(Local(nvidia_smi=program), gpus=True).gpus == ("GPU-1",)
    assert capacity.gpu_ids(2, str(tmp_path / "none")) == ("0", "1")
    monkeypatch.setattr(capacity, "_PLACES", (str(there),))
    assert capacity.gpu_ids(None) == ("GPU-1",)


def test_an_nvidia_smi_without_a_driver_has_no_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(tmp_path, monkeypatch, "echo NVIDIA-SMI has failed; exit 9")
    assert capacity.gpu_ids(3) == ()


def test_an_nvidia_smi_that_hangs_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(tmp_path, monkeypatch, "exec sleep 20")
    monkeypatch.setattr(capacity, "NVIDIA_SMI_S", 0.1)
    with pytest.raises(SchedulerError, match="did not answer within"):
        capacity.gpu_ids(None)


def test_without_nvidia_smi_the_job_file_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(capacity, "_PLACES", ())
    assert capacity.gpu_ids(2) == ("0", "1")
    assert capacity.gpu_ids(None) == ()

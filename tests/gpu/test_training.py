"""Real training on a real GPU, by the whole way from the command line."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from tests.gpu import smi
from tests.gpu.conftest import GpuJob, soon

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

CHIEF_AND_WORKER = (
    *("tony.chief.instances=1", "tony.chief.memory=8g", "tony.chief.gpus=1"),
    *("tony.worker.instances=1", "tony.worker.memory=8g"),
)
EVERY = 20  # steps between two checkpoints


def on_the_gpu(seen: Dict[str, Any]) -> bool:
    """The one GPU of the container by its UUID, and nothing else."""
    return bool(
        seen["available"]
        and seen["uuids"] == [seen["seen"]["CUDA_VISIBLE_DEVICES"]]
        and seen["uuids"][0] in smi.uuids()
        and seen["total"] == 1000
    )


def test_one_role_has_the_gpu_and_the_other_sees_none(submit: Callable[..., GpuJob]) -> None:
    job = submit("train.py", roles=CHIEF_AND_WORKER)
    job.ends(0)
    assert on_the_gpu(job.seen("chief"))
    worker = job.seen("worker")
    assert (worker["available"], worker["uuids"]) == (False, [])
    assert worker["seen"]["CUDA_VISIBLE_DEVICES"] == ""
    result = job.result()
    assert (result["processes"], result["sessions"]) == (2, 1)
    assert result["last_loss"] < result["first_loss"] / 2


def test_a_role_without_gpus_sees_none(submit: Callable[..., GpuJob]) -> None:
    job = submit("seen.py", params="torch", conf=["tony.worker.gpus=0"])
    job.ends(0)
    seen = job.seen()
    assert (seen["available"], seen["seen"]["CUDA_VISIBLE_DEVICES"]) == (False, "")


def test_nccl(submit: Callable[..., GpuJob]) -> None:
    job = submit("train.py", arguments=["--shell_env", "BACKEND=nccl"])
    job.ends(0)
    seen = job.seen()
    assert on_the_gpu(seen)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "PET_NPROC_PER_NODE")
    assert [seen["seen"][name] for name in names] == ["0", "1", "0", "1", "1"]
    assert [line["step"] for line in job.steps()] == list(range(100))


def test_torchrun_starts_a_process_for_each_gpu(submit: Callable[..., GpuJob]) -> None:
    job = submit("-m torch.distributed.run train.py", arguments=["--shell_env", "BACKEND=nccl"])
    job.ends(0)
    seen = job.seen()
    assert on_the_gpu(seen)
    assert (seen["seen"]["LOCAL_RANK"], seen["seen"]["WORLD_SIZE"]) == ("0", "1")
    assert job.result()["processes"] == 1


def test_torchrun_starts_one_where_there_are_none(submit: Callable[..., GpuJob]) -> None:
    """PET_NPROC_PER_NODE is one, with and without a GPU; gloo is between the two nodes."""
    job = submit("-m torch.distributed.run train.py", roles=CHIEF_AND_WORKER)
    job.ends(0)
    assert job.result()["processes"] == 2
    assert on_the_gpu(job.seen("chief")) and not job.seen("worker")["available"]


def test_jax(submit: Callable[..., GpuJob]) -> None:
    job = submit("train_jax.py", framework="jax")
    job.ends(0)
    seen = job.seen()
    assert (seen["platforms"], seen["processes"], seen["total"]) == (["gpu"], 1, 1000)
    assert job.lines("fitted on gpu")


def test_jax_without_a_gpu(submit: Callable[..., GpuJob]) -> None:
    job = submit("train_jax.py", framework="jax", conf=["tony.worker.gpus=0"])
    job.ends(0)
    assert job.seen()["platforms"] == ["cpu"] and job.lines("fitted on cpu")


def beyond_a_checkpoint(submit: Callable[..., GpuJob]) -> GpuJob:
    """A training on the GPU that has something to go on from."""
    job = submit(
        "train.py",
        params="--steps 150 --step-sleep 0.03",
        arguments=["--shell_env", "BACKEND=nccl"],
    )
    job.until("step 45", lambda: len(job.steps()) > 45)
    return job


def test_a_killed_worker_goes_on_from_its_checkpoint_with_the_gpu(
    submit: Callable[..., GpuJob],
) -> None:
    job = beyond_a_checkpoint(submit)
    victim = job.program_of("worker", 0)
    assert victim in smi.on_gpus()
    os.kill(victim, signal.SIGKILL)
    job.ends(0)
    first, second = ([x["step"] for x in job.steps() if x["session"] == at] for at in (0, 1))
    assert first == list(range(len(first)))
    assert second == list(range(second[0], 150))
    assert 0 < second[0] <= len(first) and second[0] % EVERY == 0
    before, after = job.seen(session=0), job.seen(session=1)
    assert on_the_gpu(after) and after["uuids"] == before["uuids"]
    soon(lambda: not smi.on_gpus() & {before["pid"], after["pid"]}, "the GPU to be left", 10)


def test_a_lost_container_is_replaced_with_the_gpu(
    submit: Callable[..., GpuJob], tmp_path: Path
) -> None:
    """Its executor dies as well: the GPU changes containers."""
    job = beyond_a_checkpoint(submit)
    program = job.program_of("worker", 0)
    executor = int(Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[1])
    while b"executor" not in Path(f"/proc/{executor}/cmdline").read_bytes().split(b"\0"):
        executor = int(Path(f"/proc/{executor}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(executor, signal.SIGKILL)
    job.ends(0)
    assert on_the_gpu(job.seen(session=1))
    assert job.result()["sessions"] == 2


def test_a_restarted_task_has_the_gpu_again(submit: Callable[..., GpuJob]) -> None:
    program = (
        "python seen.py torch && if [ $TASK_RESTARTS = 0 ]; then kill -KILL $$; fi; echo twice"
    )
    job = submit(
        "train.py",
        framework="tensorflow",
        conf=[
            "tony.application.distributed-mode=FCFS",
            "tony.worker.restart-scope=task",
            f"tony.worker.command={program}",
        ],
    )
    job.ends(0)
    lines = job.lines('"seen"')
    assert len(lines) == 2 and all('"available": true' in line for line in lines)
    assert job.lines("twice")

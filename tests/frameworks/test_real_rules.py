"""What each framework does in a job beyond training."""

from pathlib import Path
from typing import Callable

import pytest

from tests.frameworks.submitting import Submitted

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]


def _program(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "train.py").write_text(text)
    return folder


def test_an_mpi_abort_ends_the_job_by_the_ranks_name(
    submit: Callable[..., Submitted], tmp_path: Path
) -> None:
    source = _program(
        tmp_path / "src",
        "from mpi4py import MPI\n"
        "MPI.COMM_WORLD.Barrier()\n"
        "if MPI.COMM_WORLD.rank == 1: MPI.COMM_WORLD.Abort(7)\n"
        "MPI.COMM_WORLD.Barrier()\n",
    )
    job = submit("mpi", "mpi", conf=["tony.am.retry-count=0"], arguments=["--src_dir", str(source)])
    output = job.ends(1)
    assert "rank 1 (worker:1) called MPI_Abort with code 7" in output
    (cause,) = [line for line in job.story() if line["kind"] == "root-cause"]
    assert cause["task"] == "worker:1"


def test_torchrun_finds_its_peers(submit: Callable[..., Submitted]) -> None:
    job = submit(
        "pytorch",
        "torch",
        params="--steps 400",
        arguments=["--executes", "-m torch.distributed.run train.py"],
    )
    job.ends(0)
    assert job.result()["processes"] == 2


def test_a_role_beside_the_training_has_no_rank(
    submit: Callable[..., Submitted],
) -> None:
    """A ps under PyTorch is untracked: it serves until the ranks are done, and is ended."""
    job = submit(
        "pytorch",
        "torch",
        conf=[
            "tony.ps.instances=1",
            "tony.ps.memory=256m",
            'tony.ps.command=test -z "$RANK" && test -z "$MASTER_ADDR" && exec sleep 600',
        ],
    )
    job.ends(0)
    assert job.result()["processes"] == 2

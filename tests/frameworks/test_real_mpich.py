"""MPICH's own ranks against our PMI server, started by hand."""

import os
import subprocess
from pathlib import Path
from typing import Callable, Iterator, List, Tuple

import pytest

from tests.frameworks.gangs import gang, job, seen
from tony_core.frameworks.base import ServiceContext
from tony_core.frameworks.mpi import Mpi

pytestmark = pytest.mark.frameworks

_ADD = """
from mpi4py import MPI
import numpy as np
world = MPI.COMM_WORLD
total = np.empty(1000)
world.Allreduce(np.full(1000, world.rank + 1.0), total)
word = world.bcast({"from": world.rank} if world.rank == 0 else None)
print(world.rank, world.size, total.sum(), word["from"])
"""
_ABORT = """
from mpi4py import MPI
world = MPI.COMM_WORLD
world.Barrier()
if world.rank == 1:
    world.Abort(7)
world.Barrier()
"""


class _Ranks:
    """The ranks of one world, as executors would start them."""

    def __init__(self, python: Path, size: int) -> None:
        self.failures: List[Tuple[str, str, int]] = []
        self._python = python
        mpi = Mpi()
        made = job("mpi", {"worker": size})
        context = ServiceContext("127.0.0.1", lambda *what: self.failures.append(what))
        self.service = mpi.serve(made, 0, size, context)
        assert self.service is not None
        spec = gang(made, services=self.service.environment())
        self._environments = list(seen(mpi, spec).values())
        self.processes: List[subprocess.Popen[str]] = []

    def start(self, program: str) -> None:
        self.processes = [
            subprocess.Popen(
                [self._python, "-c", program],
                env={**os.environ, **env},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for env in self._environments
        ]

    def outputs(self) -> List[str]:
        found = []
        for process in self.processes:
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            found.append(out.strip())
        return found

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        assert self.service is not None
        self.service.close()


@pytest.fixture
def ranks(environment: Callable[[str], Path]) -> Iterator[Callable[[int], _Ranks]]:
    made: List[_Ranks] = []

    def make(size: int) -> _Ranks:
        made.append(_Ranks(environment("mpi") / "bin" / "python", size))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_reduce_and_broadcast(ranks: Callable[[int], _Ranks], size: int) -> None:
    world = ranks(size)
    world.start(_ADD)
    total = 1000.0 * size * (size + 1) / 2
    assert world.outputs() == [f"{rank} {size} {total} 0" for rank in range(size)]
    assert world.failures == []


def test_one_world_after_another(ranks: Callable[[int], _Ranks]) -> None:
    world = ranks(2)
    for _ in range(2):
        world.start(_ADD)
        assert len(world.outputs()) == 2
    assert world.failures == []


def test_abort_is_reported_and_no_rank_succeeds(ranks: Callable[[int], _Ranks]) -> None:
    world = ranks(2)
    world.start(_ABORT)
    # MPI_Abort returns, and the rank then waits in MPI_Finalize until it is killed.
    for process in world.processes:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
    assert world.failures == [("rank 1 (worker:1) called MPI_Abort with code 7", "worker:1", 7)]

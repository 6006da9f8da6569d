"""MPI in our own containers: no mpiexec, no ssh, no daemon.

The master serves PMI-1 (:mod:`tony_core.frameworks.pmi`); every task is one rank that finds
it by PMI_PORT. That is what MPICH and its kin (Intel MPI, MVAPICH2, Cray MPICH) speak; Open
MPI does not: its ranks would each be a world of one. A program does well to compare its
world's size with TASK_NUM, and a rank that never calls MPI_Init ends the session.

``MPI_Abort`` ends the session with the rank's name and code. The executor judges the end of a
rank, as of any program. Ranks connect to each other at ports of their own choice.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from tony_core.frameworks.base import (
    Framework,
    FrameworkProblem,
    Gang,
    Peer,
    Service,
    ServiceContext,
    refuse_elastic,
    require_gang,
    trains,
)
from tony_core.frameworks.pmi_service import PmiService
from tony_core.job.spec import Job


class Mpi(Framework):
    """One rank for each task that trains; the PMI server in the master."""

    name = "mpi"

    def validate(self, job: Job) -> List[FrameworkProblem]:
        """Check that all ranks start together: MPI_Init waits for every one."""
        return [
            *require_gang(job, "MPI", "for MPI_Init waits for every one", "MPI has one rank 0"),
            *refuse_elastic(job, "the ranks of MPI are known before any of them begins"),
        ]

    def __init__(self) -> None:
        self._serving: Tuple[int, Optional[PmiService]] = (-1, None)

    def serve(
        self, job: Job, session: int, size: int, context: ServiceContext
    ) -> Optional[Service]:
        """One PMI server for a session, whose stages may each hold some of its ranks.

        Keys and numbers of an older session mean nothing to it.
        """
        if self._serving[0] != session or self._serving[1] is None:
            made = PmiService(world_of(job), context, job.timeouts.registration_s)
            self._serving = (session, made)
        return self._serving[1]

    def environment(self, gang: Gang, peer: Peer) -> Dict[str, str]:
        """PMI_*; a role that does not train gets nothing."""
        places: Optional[Dict[str, int]] = gang.memo.get("mpi_places")
        if places is None:
            places = {task: rank for rank, task in enumerate(world_of(gang.job))}
            gang.memo["mpi_places"] = places
        rank = places.get(peer.name)
        if rank is None:
            return {}  # and where only such tasks start there is no service to ask
        if "mpi_ids" not in gang.memo:
            gang.memo["mpi_ids"] = gang.services["pmi_ids"].split(",")
        return {
            "PMI_PORT": gang.services["pmi_port"],
            # Not the rank: the number that proves it (the PMI server answers with the rank).
            "PMI_ID": gang.memo["mpi_ids"][rank],
            "PMI_RANK": str(rank),
            "PMI_SIZE": str(len(places)),
        }


def world_of(job: Job) -> List[str]:
    """The ranks' tasks in their order, the chief first.

    The ranks are known before any of them has a place: every task that trains, but for
    those of a role that another one waits for, which will have ended by then.
    """
    training = [role for role in job.roles if trains(role)]
    preparing = {name for role in training for name in role.depends_on}
    tasks = [
        (role.name, index)
        for role in training
        if role.name not in preparing
        for index in range(role.instances)
    ]
    tasks.sort(key=lambda task: task != job.chief)
    return [f"{role}:{index}" for role, index in tasks]

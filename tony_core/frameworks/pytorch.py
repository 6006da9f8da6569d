"""PyTorch: the ``env://`` variables, INIT_METHOD, and torchrun's PET_*.

A container is a node of one process: LOCAL_RANK is 0 whatever stands beside it on the
host. Roles that do not train (``ps``, evaluators, untracked ones, sidecars) run without a
rank and find their peers in CLUSTER_SPEC.

TCPStore binds rank 0's port with SO_REUSEADDR, with libuv and without: nothing is
released before the program starts. So does torchrun's agent, which then holds the store.
"""

from __future__ import annotations

from typing import Dict, List

from tony_core.frameworks.base import (
    Framework,
    FrameworkProblem,
    Gang,
    Peer,
    rank_of,
    ranks,
    require_gang,
)
from tony_core.job.spec import Job


class PyTorch(Framework):
    """Rank 0's address is all that the others need."""

    name = "pytorch"

    def validate(self, job: Job) -> List[FrameworkProblem]:
        """All ranks must come together, and there must be one."""
        return require_gang(job, "PyTorch", "and rank 0's address", "PyTorch has one rank 0")

    def environment(self, gang: Gang, peer: Peer) -> Dict[str, str]:
        """What ``init_process_group()`` and torchrun read."""
        rank = rank_of(gang, peer)
        if rank is None:
            return {}
        members = ranks(gang)
        host, port = members[0].host, str(members[0].ports["main"])
        size = str(len(members))
        return {
            "MASTER_ADDR": host,
            "MASTER_PORT": port,
            "INIT_METHOD": f"tcp://{host}:{port}",
            "RANK": str(rank),
            "WORLD_SIZE": size,
            "WORLD": size,  # what the JVM TonY calls it, and its programs read
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "NODE_RANK": str(rank),
            "GROUP_RANK": str(rank),
            "PET_MASTER_ADDR": host,
            "PET_MASTER_PORT": port,
            "PET_NNODES": size,
            "PET_NODE_RANK": str(rank),
            # Under torchrun one container may hold several processes: one for each GPU.
            "PET_NPROC_PER_NODE": str(max(1, gang.role(peer).resources.gpus)),
        }

"""JAX: where the coordinator is, how many processes there are, and which one this is.

JAX itself reads only the coordinator's address from the environment; the other two are
arguments of ``jax.distributed.initialize``. ``tony.jax_initialize()`` in the program's own
module passes them on.

The coordinator is a gRPC server in process 0. It binds with SO_REUSEADDR, so our holding
the port does not disturb it: nothing is released before the program starts.
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


class Jax(Framework):
    """Process 0 is the coordinator."""

    name = "jax"

    def validate(self, job: Job) -> List[FrameworkProblem]:
        """All processes must come together, and one must be the coordinator."""
        return require_gang(job, "JAX", "and the coordinator's address", "JAX has one coordinator")

    def environment(self, gang: Gang, peer: Peer) -> Dict[str, str]:
        """What ``tony.jax_initialize()`` reads; a role that does not train gets nothing."""
        number = rank_of(gang, peer)
        if number is None:
            return {}
        members = ranks(gang)
        return {
            "JAX_COORDINATOR_ADDRESS": members[0].address(),
            "TONY_JAX_NUM_PROCESSES": str(len(members)),
            "TONY_JAX_PROCESS_ID": str(number),
        }

"""Ray: where the head is, how many nodes there are, and what each of them has.

Every task that trains is a node of one Ray cluster, with the resources of its container; rank 0
is the head, and its program the driver. ``tony.ray_init()`` in the program's own module starts
the node; in the head it returns when all are there, elsewhere it ends with the head.

Ray's server (GCS) binds the head's port with SO_REUSEADDR, so our holding it does not disturb
it. All of Ray's other ports are of its own choice.
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
    trains,
)
from tony_core.job.spec import Job

# Of a container: Ray's own processes need some hundred MB, and refuse a smaller object store.
_LEAST_MB = 1024
_STORE_SHARE = 0.2
_TASKS_SHARE = 0.5


class Ray(Framework):
    """Rank 0 is the head."""

    name = "ray"

    def validate(self, job: Job) -> List[FrameworkProblem]:
        """All nodes must come together, one of them the head, each with room for Ray itself."""
        problems = require_gang(job, "Ray", "and the head's address", "Ray has one head")
        names = {role.name for role in job.roles}
        if "head" in names and "chief" not in names:
            problems.append(
                FrameworkProblem(
                    "the head of a Ray job is its chief: call the role chief, not head",
                    "tony.head.instances",
                )
            )
        for role in job.roles:
            if trains(role) and role.resources.memory_mb < _LEAST_MB:
                problems.append(
                    FrameworkProblem(
                        f"a node of Ray needs {_LEAST_MB} MB at least for its own processes and"
                        f" its object store, not {role.resources.memory_mb}",
                        f"tony.{role.name}.memory",
                    )
                )
        return problems

    def environment(self, gang: Gang, peer: Peer) -> Dict[str, str]:
        """What ``tony.ray_init()`` reads; a role that does not train gets nothing."""
        number = rank_of(gang, peer)
        if number is None:
            return {}
        members = ranks(gang)
        resources = gang.role(peer).resources
        memory = resources.memory_mb * 1024 * 1024
        return {
            "RAY_ADDRESS": members[0].address(),
            "TONY_RAY_RANK": str(number),
            "TONY_RAY_NODES": str(len(members)),
            "TONY_RAY_HOST": peer.host,
            "TONY_RAY_CPUS": str(resources.vcores),
            "TONY_RAY_GPUS": str(resources.gpus),
            "TONY_RAY_MEMORY": str(int(memory * _TASKS_SHARE)),
            "TONY_RAY_OBJECT_STORE_MEMORY": str(int(memory * _STORE_SHARE)),
        }

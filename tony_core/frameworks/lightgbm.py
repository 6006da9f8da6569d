"""LightGBM: every machine's address, and the port at which this one listens.

All of it are parameters of the training, none is read from the environment:
``tony.lightgbm_parameters()`` in the program's own module gives them, and a command can name
them (``lightgbm machines=$TONY_LIGHTGBM_MACHINES ...``). A worker knows itself in the list by
its address and port; its place there is its rank.

LightGBM binds its port without SO_REUSEADDR: we cannot hold that meanwhile.
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

_MACHINES = "lightgbm_machines"

# Linux takes no environment value of 128 KiB; an address is at least 13 characters and a comma.
_MOST_TASKS = 128 * 1024 // 14


class LightGbm(Framework):
    """Every task gets all addresses."""

    name = "lightgbm"
    needs_full_spec = True
    release_ports = ("main",)

    def validate(self, job: Job) -> List[FrameworkProblem]:
        """All workers must come together; each connects to every other."""
        problems = require_gang(
            job, "LightGBM", "and the address of every one", "there is one rank 0"
        )
        workers = sum(role.instances for role in job.roles if trains(role))
        if workers > _MOST_TASKS:
            problems.append(
                FrameworkProblem(
                    f"the addresses of {workers} workers do not fit into one environment value"
                    f" of at most 128 KiB; LightGBM can have {_MOST_TASKS} at most",
                    "tony.worker.instances",
                )
            )
        return problems

    def shared(self, gang: Gang) -> Dict[str, str]:
        """The list of machines, in the order of their ranks."""
        return {_MACHINES: ",".join(peer.address() for peer in ranks(gang))}

    def environment(self, gang: Gang, peer: Peer) -> Dict[str, str]:
        """What ``tony.lightgbm_parameters()`` reads; a role that does not train gets nothing."""
        number = rank_of(gang, peer)
        if number is None:
            return {}
        from tony_core.protocol.messages import shared_reference  # not for the client, which checks

        return {
            "TONY_LIGHTGBM_MACHINES": shared_reference(_MACHINES),
            "TONY_LIGHTGBM_NUM_MACHINES": str(len(ranks(gang))),
            "TONY_LIGHTGBM_PORT": str(peer.ports["main"]),
            "TONY_LIGHTGBM_RANK": str(number),
        }

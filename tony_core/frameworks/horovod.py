"""Horovod by gloo: HOROVOD_*, and a rendezvous server in the master; no mpirun, no driver.

Ranks are placed by host, as Horovod has them: those of a host follow each other, the chief's host
is the first. So a rank's number need not be its task's. ``hvd.local_rank()`` counts the ranks of
a host, each in a container of its own.

Ranks ask the rendezvous server while they start, and are then connected to each other: a later
death of the master does not disturb them. Each listens at a port of its own choice, at the
interface HOROVOD_GLOO_IFACE, else at the address of its host's name.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence

from tony_core.frameworks.base import (
    Framework,
    FrameworkProblem,
    Gang,
    Peer,
    Service,
    ServiceContext,
    ranks,
    require_gang,
)
from tony_core.frameworks.horovod_service import RendezvousService
from tony_core.job.spec import Job

# A rank waits longer than the master, which can name the ranks that did not come.
_LONGER_S = 30


class Place(NamedTuple):
    """Which rank a task is: of all, of its host, of those with its place on every host."""

    rank: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


class Horovod(Framework):
    """One rank for each task that trains."""

    name = "horovod"

    def __init__(self) -> None:
        self._services: Dict[str, RendezvousService] = {}  # by port; of all sessions

    def validate(self, job: Job) -> List[FrameworkProblem]:
        """Check that all ranks start together: hvd.init() waits for every one."""
        return require_gang(
            job, "Horovod", "for hvd.init() waits for every one", "Horovod has one rank 0"
        )

    def serve(
        self, job: Job, session: int, size: int, context: ServiceContext
    ) -> Optional[Service]:
        """An empty store for each stage of each session, at a port that had none before."""
        avoid = [int(port) for port in self._services]
        made = RendezvousService(size, context, job.timeouts.registration_s, avoid)
        self._services[str(made.port)] = made
        return made

    def environment(self, gang: Gang, peer: Peer) -> Dict[str, str]:
        """HOROVOD_*; a role that does not train gets nothing."""
        known: Optional[Dict[str, Place]] = gang.memo.get("horovod_places")
        if known is None:
            known = places(ranks(gang))
            gang.memo["horovod_places"] = known
            service = self._services.get(gang.services.get("horovod_port", ""))
            if service is not None:
                service.tasks = sorted(known, key=lambda task: known[task].rank)
        place = known.get(peer.name)
        if place is None:
            return {}
        if "horovod_is_local" not in gang.memo:
            gang.memo["horovod_is_local"] = all(_is_loopback(each.host) for each in ranks(gang))
        timeout = int(gang.job.timeouts.registration_s) + _LONGER_S
        return {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": gang.services["horovod_addr"],
            "HOROVOD_GLOO_RENDEZVOUS_PORT": gang.services["horovod_port"],
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(timeout),
            # Only an administrator knows the name of the interface to other hosts.
            **({"HOROVOD_GLOO_IFACE": "lo"} if gang.memo["horovod_is_local"] else {}),
            "HOROVOD_HOSTNAME": peer.host,
            "HOROVOD_RANK": str(place.rank),
            "HOROVOD_SIZE": str(len(known)),
            "HOROVOD_LOCAL_RANK": str(place.local_rank),
            "HOROVOD_LOCAL_SIZE": str(place.local_size),
            "HOROVOD_CROSS_RANK": str(place.cross_rank),
            "HOROVOD_CROSS_SIZE": str(place.cross_size),
        }


def places(members: Sequence[Peer]) -> Dict[str, Place]:
    """Task -> its place, for these peers in their order (the chief first)."""
    hosts: Dict[str, List[Peer]] = {}
    for peer in members:
        hosts.setdefault(peer.host, []).append(peer)
    across = [0] * max(map(len, hosts.values()), default=0)  # hosts with so many ranks
    for peers in hosts.values():
        for local in range(len(peers)):
            across[local] += 1
    found: Dict[str, Place] = {}
    before = [0] * len(across)
    for peers in hosts.values():
        for local, peer in enumerate(peers):
            found[peer.name] = Place(len(found), local, len(peers), before[local], across[local])
            before[local] += 1
    return found


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.")

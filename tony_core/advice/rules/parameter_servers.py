"""Parameter servers that all workers wait for: their cores are full while workers idle. Pure."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

from tony_core.advice.advice import Advice, Change
from tony_core.advice.facts import Facts, RoleFacts, mean, median
from tony_core.advice.thresholds import FULL_CORES, IDLE_WORKERS, USED_GPU, grade_below
from tony_core.job.spec import Tracking
from tony_core.measures import CPU_PERCENT, GPU_PERCENT

_NAMES = ("ps", "server")  # TensorFlow's, MXNet's


class _Full(NamedTuple):
    severity: str
    servers: RoleFacts
    workers: RoleFacts
    server_share: float
    worker_share: float


def full_servers(facts: Facts) -> Tuple[RoleFacts, ...]:
    """The servers that are full while their workers wait, and those workers."""
    seen = _look(facts)
    return (seen.servers, seen.workers) if seen is not None else ()


def advise_parameter_servers(facts: Facts) -> List[Advice]:
    """More servers, where workers wait for them."""
    seen = _look(facts)
    if seen is None:
        return []
    servers, workers = seen.servers, seen.workers
    key = f"tony.{servers.name}.instances"
    new = str(servers.instances * 2)
    return [
        Advice(
            "parameter-servers",
            seen.severity,
            servers.name,
            f"The cores of {servers.name} are full ({seen.server_share:.0%} in use) while"
            f" {workers.name} uses {seen.worker_share:.0%} of its own: the workers wait for the"
            " servers.",
            f"Set {key} to {new}, and see that the variables are divided among all of them; or"
            " train without servers (all-reduce).",
            {"server cores in use (%)": round(100 * seen.server_share, 1),
             "worker cores in use (%)": round(100 * seen.worker_share, 1),
             "servers": float(servers.instances), "workers": float(len(workers.tasks))},
            (Change(key, new, facts.was(key)),),
        )
    ]  # fmt: skip


def _look(facts: Facts) -> Optional[_Full]:
    servers = [
        role for role in facts.roles if role.name in _NAMES and role.tracking == Tracking.UNTRACKED
    ]
    workers = [
        role for role in facts.roles if role.tracking == Tracking.TRACKED and role.name == "worker"
    ]
    if not servers or not workers:
        return None
    server_share = _share(facts, servers[0])
    worker_share = _share(facts, workers[0])
    if server_share is None or worker_share is None or server_share < FULL_CORES:
        return None
    gpu = [mean(task.values(GPU_PERCENT)) for task in workers[0].measured(GPU_PERCENT, facts.least)]
    if workers[0].gpus and (not gpu or mean(gpu) >= USED_GPU[0]):
        return None
    severity = grade_below(worker_share, IDLE_WORKERS)
    if severity is None:
        return None
    return _Full(severity, servers[0], workers[0], server_share, worker_share)


def _share(facts: Facts, role: RoleFacts) -> Optional[float]:
    """How much of its cores the middle task of a role uses half of the time."""
    tasks = role.measured(CPU_PERCENT, facts.least)
    if not tasks or role.vcores < 1:
        return None
    return median([median(task.values(CPU_PERCENT)) for task in tasks]) / 100 / role.vcores

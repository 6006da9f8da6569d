"""The administrator's caps, checked at submit and again by the master: standard library only."""

from __future__ import annotations

from typing import List

from tony_core.job.problems import Problem, problem_at
from tony_core.job.spec import Job, Role
from tony_core.job.units import format_memory


def check_limits(job: Job) -> List[Problem]:
    problems: List[Problem] = []
    tasks = sum(role.instances for role in job.roles)
    most = job.limits.total_instances
    if most is not None and tasks > most:
        problems.append(
            _over(job, "tony.task.max-total-instances", f"{tasks} instances in all", str(most))
        )
    for name, cap in job.limits.total:
        wanted = sum(role.instances * amount_of(role, name) for role in job.roles)
        if wanted > cap:
            memory = name == "memory"
            text = format_memory(wanted) if memory else str(wanted)
            limit = format_memory(cap) if memory and cap else str(cap)
            problems.append(
                _over(job, f"tony.task.max-total-{name}", f"{text} {name} in all", limit)
            )
    for name, cap in job.limits.instances:
        for role in job.roles:
            if role.name == name and role.instances > cap:
                key = f"tony.{name}.max-instances"
                problems.append(_over(job, key, f"{role.instances} instances", str(cap)))
    return problems


def amount_of(role: Role, resource: str) -> int:
    """The amount of a resource that one task of a role needs."""
    known = {
        "memory": role.resources.memory_mb,
        "vcores": role.resources.vcores,
        "gpus": role.resources.gpus,
    }
    return known.get(resource, dict(role.resources.other).get(resource, 0))


def _over(job: Job, key: str, wanted: str, limit: str) -> Problem:
    return problem_at(job, key, f"the job asks for {wanted}, at most {limit} allowed")

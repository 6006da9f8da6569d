"""Which roles may be elastic: ``min-instances`` below ``instances``."""

from __future__ import annotations

from typing import List, Optional

from tony_core.job.limits import problem_at
from tony_core.job.problems import Problem
from tony_core.job.spec import Job, Mode, Role, Tracking

INTERVAL = "tony.application.elastic-interval"
ROOM_S = 60.0  # newcomers wait for others to come, and for the programs' end, beside the interval


def check_elastic(job: Job) -> List[Problem]:
    """What is wrong with the elastic roles."""
    problems = []
    for role in job.roles:
        why = _why_not(job, role)
        if why is not None:
            problems.append(problem_at(job, f"tony.{role.name}.min-instances", why))
    times = job.timeouts
    too_long = times.elastic_interval_s + ROOM_S >= times.registry_s
    if any(role.is_elastic for role in job.roles) and too_long:
        message = (
            "newcomers wait so long, and their executors give up after"
            f" tony.task.executor.registry-timeout-sec={times.registry_s:g}s: it must be shorter"
            f" by more than {ROOM_S:g} s"
        )
        problems.append(problem_at(job, INTERVAL, message))
    return problems


def _why_not(job: Job, role: Role) -> Optional[str]:
    count = f"tony.{role.name}.instances ({role.instances})"
    if role.least > role.instances:
        return f"{role.least} are more than {count}"
    if not role.is_elastic:
        return None
    if job.mode is not Mode.GANG:
        return (
            f"only a gang is elastic: with tony.application.distributed-mode={job.mode.value}"
            f" every task starts by itself; it must equal {count}"
        )
    if role.tracking is not Tracking.TRACKED:
        kind = role.tracking.value
        return f"{role.name} is {kind}: only a tracked role is elastic; it must equal {count}"
    waiting = [other.name for other in job.roles if role.name in other.depends_on]
    if waiting:
        return (
            f"{', '.join(waiting)} must wait for every {role.name}, so their number must be"
            f" certain: it must equal {count}"
        )
    return None

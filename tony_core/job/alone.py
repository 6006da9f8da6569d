"""Which roles may have ``restart-scope`` task, whatever the framework: it has its own word."""

from __future__ import annotations

from typing import List, Optional

from tony_core.job.limits import problem_at
from tony_core.job.problems import Problem
from tony_core.job.spec import Job, RestartScope, Role


def check_alone(job: Job) -> List[Problem]:
    """What is wrong with the roles whose tasks are to be started again alone."""
    problems = []
    for role in job.roles:
        why = _why_not(role) if role.restart_scope is RestartScope.TASK else None
        if why is not None:
            problems.append(problem_at(job, f"tony.{role.name}.restart-scope", why))
    return problems


def _why_not(role: Role) -> Optional[str]:
    if role.is_elastic:
        return (
            f"{role.name} is elastic: what is lost of it brings a new round for all; it must be"
            " session"
        )
    if role.name == "chief":
        return "the others work for the chief, and begin anew with it; it must be session"
    return None

"""Checks of a job that several frameworks share; each returns the problems that it finds."""

from __future__ import annotations

from typing import List

from tony_core.frameworks.base import Framework, Problem, trains
from tony_core.job.spec import Job, Mode, RestartScope


def refuse_fcfs(job: Job, framework: str, why: str) -> List[Problem]:
    """Refuse FCFS: tasks would start before their peers are known."""
    if job.mode is not Mode.FCFS:
        return []
    return [
        Problem(
            f"{framework} needs all its processes together, {why}: FCFS starts each as soon"
            " as it can be; use GANG",
            "tony.application.distributed-mode",
        )
    ]


def require_gang(job: Job, framework: str, needs: str, why_one_chief: str) -> List[Problem]:
    """Require what every framework of ranks does: all together, one at least, and one chief.

    ``needs``: what the tasks need of each other, as the end of "needs all its processes together,".
    """
    problems = refuse_fcfs(job, framework, needs)
    if not any(trains(role) and role.instances for role in job.roles):
        text = (
            f"no task would be a process of the {framework} job: every role is untracked,"
            " a sidecar or one that does not train"
        )
        problems.append(Problem(text, "tony.worker.instances"))
    return problems + refuse_several(job, "chief", why_one_chief)


def refuse_several(job: Job, role: str, why: str) -> List[Problem]:
    """Refuse more than one task of this role."""
    for candidate in job.roles:
        if candidate.name == role and candidate.instances > 1:
            return [Problem(f"{candidate.instances} x {role}: {why}", f"tony.{role}.instances")]
    return []


def refuse_elastic(job: Job, why: str) -> List[Problem]:
    """Refuse elastic roles: the framework must know the number of tasks before."""
    for role in job.roles:
        if role.is_elastic:
            key = f"tony.{role.name}.min-instances"
            return [Problem(f"{why}: it must equal tony.{role.name}.instances", key)]
    return []


def refuse_task_restart(job: Job, framework: Framework) -> List[Problem]:
    """Refuse restarts of single tasks that their peers would not survive."""
    problems = []
    for role in job.roles:
        if role.restart_scope is RestartScope.TASK:
            why = framework.task_restart(job, role).why_not
            if why:
                key = f"tony.{role.name}.restart-scope"
                problems.append(Problem(f"{why}: it must be session", key))
    return problems

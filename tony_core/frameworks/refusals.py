"""Reasons why a job cannot run that several frameworks share."""

from __future__ import annotations

from typing import Callable, List

from tony_core.frameworks.base import Framework, Problem
from tony_core.job.spec import Job, Mode, RestartScope, Role


def fcfs(job: Job, framework: str, why: str) -> List[Problem]:
    """Tasks that start before their peers are known."""
    if job.mode is not Mode.FCFS:
        return []
    return [
        Problem(
            f"{framework} needs all its processes together, {why}: FCFS starts each as soon"
            " as it can be; use GANG",
            "tony.application.distributed-mode",
        )
    ]


def nobody(job: Job, framework: str, trains: Callable[[Role], bool]) -> List[Problem]:
    """No task that would be a rank."""
    if any(trains(role) and role.instances for role in job.roles):
        return []
    return [
        Problem(
            f"no task would be a process of the {framework} job: every role is untracked,"
            " a sidecar or one that does not train",
            "tony.worker.instances",
        )
    ]


def several(job: Job, role: str, why: str) -> List[Problem]:
    """More than one task of a role that may have one."""
    for candidate in job.roles:
        if candidate.name == role and candidate.instances > 1:
            return [Problem(f"{candidate.instances} x {role}: {why}", f"tony.{role}.instances")]
    return []


def elastic(job: Job, why: str) -> List[Problem]:
    """A role whose number may change, under a framework that must know it before."""
    for role in job.roles:
        if role.is_elastic:
            key = f"tony.{role.name}.min-instances"
            return [Problem(f"{why}: it must equal tony.{role.name}.instances", key)]
    return []


def alone(job: Job, framework: Framework) -> List[Problem]:
    """Roles whose tasks are to be started again alone, which their peers would not survive."""
    problems = []
    for role in job.roles:
        if role.restart_scope is RestartScope.TASK:
            why = framework.alone(job, role).why_not
            if why:
                key = f"tony.{role.name}.restart-scope"
                problems.append(Problem(f"{why}: it must be session", key))
    return problems

"""One program by itself, without peers."""

from __future__ import annotations

from typing import List

from tony_core.frameworks.base import Framework, FrameworkProblem, TaskRestart
from tony_core.job.spec import Job, Role, Tracking


class Standalone(Framework):
    """Exactly one task; sidecars (TensorBoard) may stand beside it."""

    name = "standalone"

    def validate(self, job: Job) -> List[FrameworkProblem]:
        """Refuse several tasks: they would be programs that know nothing of each other."""
        roles = [role for role in job.roles if role.tracking is not Tracking.SIDECAR]
        total = sum(role.instances for role in roles)
        if total == 1:
            return []
        declared = ", ".join(f"{role.instances} x {role.name}" for role in roles) or "none"
        key = f"tony.{roles[0].name}.instances" if roles else "tony.worker.instances"
        return [
            FrameworkProblem(f"standalone runs exactly one task, this job asks for {declared}", key)
        ]

    def task_restart(self, job: Job, role: Role) -> TaskRestart:
        """Allow it: the task has no peers."""
        return TaskRestart()

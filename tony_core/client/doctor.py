"""An examination of a scheduler, with our own code staged as for a job."""

from __future__ import annotations

from typing import Iterator, Tuple

from tony_core.bundle import jobfolder, plan, stage
from tony_core.files.artifact import Artifact
from tony_core.job.spec import Job
from tony_core.schedulers.port import Finding, Scheduler, SchedulerError


def examine(scheduler: Scheduler, job: Job, probe: bool = True) -> Iterator[Finding]:
    """Each finding as it is known; what was staged for it goes again at the end."""
    staged = []

    def bring(of: Job, app_id: str) -> Tuple[Artifact, ...]:
        root = scheduler.staging_root(of)
        planned = plan(of, root)
        if planned.errors:
            raise SchedulerError("; ".join(problem.message for problem in planned.errors))
        staged.append((root, app_id))
        return stage(planned, root, app_id, of, b"")

    try:
        yield from scheduler.examine(job, bring if probe else None)
    finally:
        for root, app_id in staged:
            jobfolder.remove(root, app_id)

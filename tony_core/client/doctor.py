"""Examines the site's file, and a scheduler with our own code staged as for a job."""

from __future__ import annotations

import os
from typing import Iterator, Mapping, Tuple

from tony_core.bundle import jobfolder
from tony_core.bundle.client.planning import plan
from tony_core.bundle.client.staging import stage
from tony_core.files.artifact import Artifact
from tony_core.job.load import JobArguments, load_job
from tony_core.job.problems import JobError, errors
from tony_core.job.spec import Job
from tony_core.schedulers.port import CheckResult, Finding, Scheduler, SchedulerError


def site(env: Mapping[str, str]) -> Finding:
    """What the site's file says, and what is wrong with it."""
    what, folder = "the site's file", env.get("TONY_CONF_DIR", "")
    if not folder:
        return Finding(what, CheckResult.OK, "none (TONY_CONF_DIR is not set)")
    path = os.path.join(folder, "tony-site.xml")
    if not os.path.exists(path):
        advice = "unset TONY_CONF_DIR, or set it to the folder that holds tony-site.xml"
        return Finding(what, CheckResult.NOTE, f"there is no {path}", advice)
    try:
        loaded = load_job(JobArguments(), env=env, cwd=os.devnull, needs_command=False)
    except JobError as error:
        # Warnings are about a job, and there is none here.
        detail = " / ".join(str(problem) for problem in errors(error.problems))
        return Finding(what, CheckResult.WRONG, detail, f"the owner of {path} must correct it")
    doubts = [str(problem) for problem in loaded.warnings if problem.file == path]
    if doubts:
        detail = " / ".join(doubts)
        return Finding(what, CheckResult.NOTE, detail, f"the owner of {path} can correct it")
    own = [item for item in loaded.job.settings if item.source.startswith(path)]
    final = [item.key for item in own if item.final]
    detail = f"{path}: {len(own)} keys, {len(final)} of them final"
    return Finding(what, CheckResult.OK, detail + (f" ({', '.join(final)})" if final else ""))


def examine(scheduler: Scheduler, job: Job, probe: bool = True) -> Iterator[Finding]:
    """Yield each finding as it is known; remove at the end what was staged for it."""
    staged = []

    def stage_runtime(of: Job, app_id: str) -> Tuple[Artifact, ...]:
        root = scheduler.staging_root(of)
        planned = plan(of, root)
        if planned.errors:
            raise SchedulerError("; ".join(problem.message for problem in planned.errors))
        staged.append((root, app_id))
        return stage(planned, root, app_id, of, b"")

    try:
        yield from scheduler.examine(job, stage_runtime if probe else None)
    finally:
        for root, app_id in staged:
            jobfolder.remove(root, app_id)

"""Bringing what was planned to where containers find it.

In this order: lease, content, job folder. Whatever fails, what this call wrote goes again,
apart from content that is whole: the next submit will find it, or ``tony gc`` take it.
"""

from __future__ import annotations

import errno
import json
from typing import Tuple

from tony_core.bundle import jobfolder
from tony_core.bundle.planning import Plan
from tony_core.bundle.store import Store
from tony_core.bundle.tree import Changed
from tony_core.bundle.unpack import remote_digest
from tony_core.files.artifact import Artifact
from tony_core.files.location import is_remote, local_path
from tony_core.job.jsonfile import job_to_json
from tony_core.job.problems import JobError, Problem
from tony_core.job.spec import Job
from tony_core.job.xmlfile import job_to_xml


class StagingError(Exception):
    """The staging place could not take the job's files; the message says what to do."""


def stage(plan: Plan, root: str, app_id: str, job: Job, secret: bytes) -> Tuple[Artifact, ...]:
    """Stage everything for one application.

    :class:`JobError` when the plan has errors or a source changed meanwhile,
    :class:`StagingError` when the staging place failed. Nothing of the job is left then.
    """
    if plan.errors:
        raise JobError(plan.problems)
    root = local_path(root)
    store = Store(root)
    leased = {upload.digest for upload in plan.uploads}
    leased |= {remote_digest(item) for item in plan.artifacts if is_remote(item.uri)}
    try:
        store.take_lease(app_id, leased)
        try:
            for upload in plan.uploads:
                store.put(upload.digest, upload.make, upload.meta)
            for cache in plan.caches:
                cache.save()
            artifacts = [item.to_json() for item in plan.artifacts]
            jobfolder.write(
                root,
                app_id,
                {
                    "job.json": job_to_json(job).encode(),
                    "tony-final.xml": job_to_xml(job, masked=True).encode(),
                    "artifacts.json": json.dumps(artifacts, indent=1).encode(),
                    jobfolder.SECRET: secret,
                },
            )
        except BaseException:
            jobfolder.remove(root, app_id)
            raise
    except Changed as error:
        raise JobError([Problem(f"{error.filename} {error.strerror}; submit again")]) from error
    except OSError as error:
        advice = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "; make room there (tony gc), or set TONY_HOME to a larger disk"
        raise StagingError(f"the job's files cannot be staged below {root}: {error}{advice}") from (
            error
        )
    return plan.artifacts

"""The login to a cluster that a job or a site names, as a scheduler's environment says it."""

from __future__ import annotations

import os
from typing import Dict, Mapping, Optional

from tony_core.job.spec import Hadoop, Job
from tony_core.schedulers import open_scheduler
from tony_core.schedulers.port import Scheduler


def login_variables(hadoop: Hadoop) -> Dict[str, str]:
    """The variables for ``tony.kerberos.principal`` and ``tony.kerberos.keytab``, where set.

    Of one without the other the cluster's identity says that it is missing.
    """
    if not hadoop.principal and not hadoop.keytab:
        return {}
    from tony_core.hadoop.identity import KEYTAB, PRINCIPAL

    return {PRINCIPAL: hadoop.principal or "", KEYTAB: hadoop.keytab or ""}


def job_environment(job: Job, env: Optional[Mapping[str, str]]) -> Optional[Mapping[str, str]]:
    """A scheduler's environment with the job's login; None stands for this process's."""
    found = login_variables(job.hadoop)
    return {**(os.environ if env is None else env), **found} if found else env


def open_for_job(job: Job, env: Optional[Mapping[str, str]] = None) -> Scheduler:
    """Open the scheduler that a job names, as the user that it names."""
    return open_scheduler(job.scheduler, job_environment(job, env))

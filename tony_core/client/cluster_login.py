"""The login to a cluster that a job or a site names, as a scheduler's environment says it."""

from __future__ import annotations

import os
from typing import Dict, Iterable, List, Mapping, Optional

from tony_core.job.layers import SHIP_KEYTAB
from tony_core.job.problems import Problem, problem_at
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


def find_service_keytab_problems(job: Job, service: str, keytabs: Iterable[str]) -> List[Problem]:
    """Why a job may not ship its keytab: it is one of the service that submits the job.

    For adapters, between ``load`` and ``prepare``: who writes a job gets what it ships, and only
    the adapter knows which keytabs are its service's own. What holds for all clients:
    ``find_shipping_problems`` in ``schedulers/yarn/client/security.py``.
    """
    own = {os.path.realpath(os.path.expanduser(path)) for path in keytabs if path}
    if not job.hadoop.ship_keytab or os.path.realpath(job.hadoop.keytab or "") not in own:
        return []
    message = (
        f"is true, and {job.hadoop.keytab} is the keytab of {service}, which no job may have: name"
        " the owner's own, or leave the key out"
    )
    return [problem_at(job, SHIP_KEYTAB, message)]

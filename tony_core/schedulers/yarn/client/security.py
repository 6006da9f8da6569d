"""What a job says of Kerberos, compared with the cluster and with the user who submits it."""

from __future__ import annotations

from typing import List

from tony_core.hadoop.identity import ClusterIdentity
from tony_core.job.spec import Job

_ENABLED = "tony.application.security.enabled"


def find_security_problems(job: Job, identity: ClusterIdentity) -> List[str]:
    """Why a job cannot be submitted as this user."""
    if not identity.is_secure:
        if job.hadoop.security:
            return [
                f"{_ENABLED} is true, and the cluster does not ask for Kerberos"
                " (hadoop.security.authentication in core-site.xml): remove the key, or set"
                " HADOOP_CONF_DIR to the configuration of a cluster that does"
            ]
        return []
    wanted, login = job.hadoop.principal or "", identity.login
    if not wanted or (login is not None and login.is_keytab and _are_same(wanted, login.principal)):
        return []
    return [
        f"tony.kerberos.principal is {wanted}, and this client is logged in as"
        f" {login.principal if login is not None else identity.user}: open the client for the job's"
        " login (tony_core.client.cluster_login), or name it for the whole connection"
    ]


def _are_same(wanted: str, principal: str) -> bool:
    return principal == wanted or ("@" not in wanted and principal.rpartition("@")[0] == wanted)


def find_security_warnings(job: Job, identity: ClusterIdentity) -> List[str]:
    """What a job says of Kerberos and has no effect."""
    if identity.is_secure:
        if job.hadoop.security is False:
            return [
                f"{_ENABLED}=false is of no effect: the cluster asks for Kerberos (core-site.xml)"
            ]
        return []
    if job.hadoop.namenodes:
        return [
            "tony.other.namenodes is of no effect: the cluster does not ask for Kerberos, and"
            " nothing needs a token"
        ]
    return []

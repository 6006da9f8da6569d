"""What a job says of Kerberos, compared with the cluster and with the user who submits it."""

from __future__ import annotations

import os
from typing import List

from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.kerberos.keytab import NoKeytab, select_keys
from tony_core.job.spec import Job

_ENABLED = "tony.application.security.enabled"
_SHIP = "tony.kerberos.ship-keytab"


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
        return find_shipping_problems(job, identity)
    return [
        f"tony.kerberos.principal is {wanted}, and this client is logged in as"
        f" {login.principal if login is not None else identity.user}: open the client for the job's"
        " login (tony_core.client.cluster_login), or name it for the whole connection"
    ]


def ships_keytab(job: Job, identity: ClusterIdentity) -> bool:
    """Whether the job's keytab goes to its master; an open cluster needs none."""
    return identity.is_secure and job.hadoop.ship_keytab


def find_shipping_problems(job: Job, identity: ClusterIdentity) -> List[str]:
    """Why a job may not ship its keytab (``tony.kerberos.ship-keytab``), or cannot.

    A keytab is its owner's for good: only the owner's own goes to the owner's own job. Services
    (Airflow's and Azkaban's adapters) ship none at all.
    """
    if not ships_keytab(job, identity):
        return []
    if identity.real_user:
        return [
            f"{_SHIP} is true, and {identity.real_user} submits for {identity.user}"
            " (HADOOP_PROXY_USER, --proxy-user): the keytab is the service's, and a user's job must"
            " not get it. Leave the key out; the job can live as long as its tokens"
        ]
    try:
        read_shipped_keys(job, identity)
    except ConfigurationError as error:
        return [str(error)]
    return []


def read_shipped_keys(job: Job, identity: ClusterIdentity) -> bytes:
    """A keytab with the owner's keys alone, for the master; raises ConfigurationError."""
    login = identity.login
    held = login.keytab if login is not None else ""
    path = job.hadoop.keytab or held
    if login is None or not held or os.path.realpath(path) != os.path.realpath(held):
        raise ConfigurationError(
            f"{_SHIP} is true, and this client has not logged in by {path or 'a keytab'}: name"
            " the owner's by --principal and --keytab (tony.kerberos.principal,"
            " tony.kerberos.keytab)"
        )
    try:
        with open(path, "rb") as file:
            keys = select_keys(file.read(), login.principal)
    except (OSError, NoKeytab) as error:
        raise ConfigurationError(f"{_SHIP}: {path} cannot be read: {error}") from None
    if not keys:
        raise ConfigurationError(f"{_SHIP}: {path} has no keys of {login.principal}")
    return keys


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
    named = ["tony.other.namenodes"] if job.hadoop.namenodes else []
    named += [_SHIP] if job.hadoop.ship_keytab else []
    return [
        f"{key} is of no effect: the cluster does not ask for Kerberos, and nothing needs a token"
        for key in named
    ]

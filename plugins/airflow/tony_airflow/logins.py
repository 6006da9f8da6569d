"""As whom jobs run on a cluster with Kerberos: the login, and the user for whom it acts.

The login is, in this order:

1. the connection's principal and keytab, or those of the variables that TonY's client knows;
2. the ticket cache of KRB5CCNAME, which Airflow itself sets where ``[core] security`` is
   ``kerberos``;
3. the ticket cache of ``airflow kerberos`` (``[kerberos] ccache``), if there is one;
4. the system's own default.

A service that may act for others names the user by the connection's ``proxy_user``, a task's
``proxy_user`` or ``run_as_owner``. Hadoop's servers decide whether it may; the connection may be
closed for other users than its own (``proxy_user_final``).

The author of a DAG is not the owner of the connection's keytab: its path is in no job's
configuration, a job names no login of its own, and takes no keytab along.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, MutableMapping, Optional

from airflow.providers.common.compat.sdk import conf

from tony_core.bundle.client.login_files import find_kind
from tony_core.client.errors import UsageError
from tony_core.hadoop.identity import PROXY_USER, find_name_problem
from tony_core.hadoop.kerberos.login import CACHE_VARIABLE
from tony_core.hadoop.kerberos.ticket_cache import cache_files, find_owner_problem
from tony_core.job.problems import JobError, Problem, problem_at
from tony_core.job.spec import Job

PRINCIPAL, KEYTAB = "tony.kerberos.principal", "tony.kerberos.keytab"
SHIP_KEYTAB = "tony.kerberos.ship-keytab"
_OFF = ("", "false", "no", "off", "0")

_OTHERS_LOGIN = (
    "a job from Airflow logs in as its connection does, and names no login of its own: remove"
    " {principal} and {keytab} from the job, or set both in the connection"
)
_OTHERS_KEYTAB = (
    "the keytab of a job from Airflow is the connection's or Airflow's own, and stays on this"
    " machine: remove the key. A job that is longer than its tokens ends with them; with retries"
    " the task submits it again, and it goes on from its checkpoint"
)


class SiteError(UsageError):
    """The connection cannot be used as it is; a retry cannot help."""


# ------------------------------------------------------------------ the connection's login


def read_login(
    found: Mapping[str, Optional[str]], keys: MutableMapping[str, str], wrong: List[str]
) -> Dict[str, str]:
    """The login and the proxy user of a connection's fields; adds what is wrong with them.

    Principal and keytab among its TonY keys mean the same, and are taken out of ``keys``.
    """
    login: Dict[str, str] = {}
    for name, key in (("principal", PRINCIPAL), ("keytab", KEYTAB)):
        field, below = found.get(name), keys.pop(key, "").strip()
        if field and below and field != below:
            wrong.append(f"its {name} is {field}, and {key} in its conf is {below}: remove one")
        if field or below:
            login[name] = field or below
    if len(login) == 1:
        (named,) = login
        missing = "keytab" if named == "principal" else "principal"
        wrong.append(f"it names a {named} and no {missing}: name both, or neither")
    keytab = login.get("keytab")
    if keytab and not os.path.isabs(keytab):
        wrong.append(
            f"its keytab {keytab} is not an absolute path: name the file as it is on every worker"
            " and triggerer"
        )
    user = found.get("proxy_user")
    problem = find_name_problem(user) if user else ""
    if problem:
        wrong.append(f"its proxy_user {problem}")
    elif user:
        login["proxy_user"] = user
    return login


def find_ticket_cache(env: Mapping[str, str]) -> str:
    """The ticket cache that ``airflow kerberos`` renews; empty where another one counts.

    Under ``run_as_user`` Airflow removes KRB5CCNAME, and its cache is another user's: that user has
    a ticket of their own.
    """
    if env.get(CACHE_VARIABLE):
        return ""
    cache = str(conf.get("kerberos", "ccache", fallback="") or "")
    is_on = conf.get("core", "security", fallback="") == "kerberos"
    paths = list(cache_files(cache)) if cache else []
    if not cache or any(os.path.exists(path) and not os.access(path, os.R_OK) for path in paths):
        return ""
    if not is_on and not all(map(os.path.exists, paths)):
        return ""
    problem = find_owner_problem(cache)
    if problem and is_on:
        raise SiteError(f"{problem} ([kerberos] ccache)")
    return "" if problem else cache


# ------------------------------------------------------------------ for whom it acts


def requested_user(task: Any) -> Optional[str]:
    """The user for whom a task's arguments ask; None if they leave that to the connection.

    An argument that gives nothing is refused: the job would run as the service.
    """
    if task.run_as_owner:
        return _owner_of(task)
    if task.proxy_user is None and not task.names_proxy_user:
        return None
    name = "" if task.proxy_user is None else str(task.proxy_user)
    problem = find_name_problem("" if name == "None" else name)
    if problem:
        raise SiteError(f"the task's proxy_user {problem}, or leave the argument out")
    return name


def _owner_of(task: Any) -> str:
    """The task's owner, which for a DAG with one owner is the DAG's."""
    owners = [name.strip() for name in str(task.owner or "").split(",") if name.strip()]
    if len(owners) != 1:
        raise SiteError(
            f"run_as_owner: the task's owner is {task.owner!r}, and a job runs as one user: name"
            " one owner, or the user by proxy_user"
        )
    (owner,) = owners
    if owner == conf.get("operators", "default_owner", fallback="airflow"):
        raise SiteError(
            f"run_as_owner: the task has no owner ({owner} is Airflow's default for all): name one"
            " by default_args={'owner': ...}, or the user by proxy_user"
        )
    problem = find_name_problem(owner)
    if problem:
        raise SiteError(f"run_as_owner: the task's owner {problem}, or name the user by proxy_user")
    return owner


def find_embedded_problem(proxy_user: Optional[str], env: Mapping[str, str]) -> str:
    """Why the embedded scheduler cannot run jobs for that user; empty if no user is named."""
    if proxy_user:
        return (
            "the embedded scheduler runs every job as this process's own user, and cannot act for"
            f" {proxy_user}: use a connection to a cluster, or leave the proxy user out"
        )
    if env.get(PROXY_USER) is not None:
        return (
            f"{PROXY_USER} is {env[PROXY_USER]!r}, and the embedded scheduler runs every job as"
            " this process's own user: unset the variable, or use a connection to a cluster"
        )
    return ""


# ------------------------------------------------------------------ what a job may not do


def refuse_own_login(job: Job) -> None:
    """JobError for a job that names a login or ships a keytab."""
    problems: List[Problem] = []
    named = {setting.key: setting.value for setting in job.settings}
    for key in (PRINCIPAL, KEYTAB):
        if named.get(key):
            message = _OTHERS_LOGIN.format(principal=PRINCIPAL, keytab=KEYTAB)
            problems.append(problem_at(job, key, message))
    if named.get(SHIP_KEYTAB, "").strip().lower() not in _OFF:
        problems.append(problem_at(job, SHIP_KEYTAB, _OTHERS_KEYTAB))
    if problems:
        raise JobError(problems)


def refuse_login_file(path: str) -> None:
    """ValueError for a keytab or ticket cache where a text is expected; OSError as on reading."""
    kind = find_kind(path)
    if kind:
        raise ValueError(f"it is {kind}")

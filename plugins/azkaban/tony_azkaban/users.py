"""The user as whom a job runs on a cluster: ``user.to.proxy``.

A cluster with simple authentication believes the user name that a client gives; the administrator
decides whether a job may give one (``user.to.proxy=honour|ignore|refuse`` in ``site.properties``).
``env.HADOOP_USER_NAME`` is another name for the same. On a cluster with Kerberos a job runs as the
user of its tokens or of this process's ticket (:mod:`tony_azkaban.login`); a job that names another
one is refused.

Servers of 3.x set ``user.to.proxy`` in every job, to the user who submitted the flow. Where that
changes nothing, the log says nothing.
"""

from __future__ import annotations

import os
import re
from typing import List, Mapping, NamedTuple, Tuple

from tony_azkaban.execution import USER
from tony_azkaban.login import ON_CLUSTERS
from tony_azkaban.site import FILE, HONOUR, IGNORE, REFUSE, TOKENS, Site
from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.identity import ClusterIdentity, cluster_identity
from tony_core.hadoop.site.configuration import SiteConfiguration, user_name
from tony_core.job.problems import JobError, Problem
from tony_core.job.spec import Job

PROXY, NAMED = "user.to.proxy", "env.HADOOP_USER_NAME"
VARIABLE = "HADOOP_USER_NAME"
#: Without ``@`` and ``/``: a cluster takes the part before them for the name, so that a denied user
#: could pass under another name.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\$?", re.ASCII)


class ProxyUser(NamedTuple):
    """The user that a job names, and whether it runs as that user on a cluster."""

    key: str = ""
    user: str = ""  # empty: the job names no other than this process's
    own: str = ""
    honoured: bool = False
    problem: str = ""
    by_server: bool = False  # a server set it: the user who submitted the flow


def choose_user(props: Mapping[str, str], site: Site) -> ProxyUser:
    """Decide as which user the job runs; from here on this process calls the cluster as that user.

    Call it before reading the job file, which may be on the cluster.
    """
    own = user_name(os.environ)
    key = PROXY if props.get(PROXY, "").strip() else NAMED
    user = props.get(key, "").strip()
    if not user or user == own:
        return ProxyUser(own=own)
    by_server = key == PROXY and user == props.get(USER, "").strip()
    if site.proxy == IGNORE:
        return ProxyUser(key, user, own, by_server=by_server)
    problem = ""
    if site.proxy == REFUSE:
        named = f"{user}, who submitted the flow" if by_server else user
        problem = (
            f"the job asks to run as {named}; jobs run as {own} here: this server's administrator"
            f" lets none run as another user ({site.file})"
        )
    elif _NAME.fullmatch(user) is None:
        problem = f"{user!r} is not a user name"
    elif user in site.denied:
        problem = f"no job may run as {user} ({PROXY}.denied in {site.file})"
    if not problem:
        assert site.proxy == HONOUR
        os.environ[VARIABLE] = user
    return ProxyUser(key, user, own, not problem, problem, by_server)


def apply_user(job: Job, proxy: ProxyUser, site: Site) -> Tuple[Job, List[str]]:
    """The job with its user, and lines for the log; JobError when it may not run as that user."""
    if job.scheduler != ON_CLUSTERS:
        note = f"runs as {proxy.own}: {job.scheduler} knows no other users ({proxy.key})"
        return job, [note] if proxy.user and not proxy.by_server else []
    if proxy.problem:
        raise JobError([Problem(proxy.problem, proxy.key)])
    if not proxy.user and site.login != TOKENS:
        return job, []
    try:
        who = cluster_identity(SiteConfiguration.load(os.environ), os.environ)
    except HadoopError:
        return job, []  # opening the cluster reports what is wrong
    if who.is_secure and site.login == TOKENS:
        return job.replace(user=_owner(who, proxy, site)), []
    if not proxy.user:
        return job, []
    own = who.user if who.is_secure else proxy.own
    if not proxy.honoured:
        note = f"runs as {own}: this server ignores {proxy.key}={proxy.user}"
        return job, [] if proxy.by_server else [note]
    if who.is_secure and who.user != proxy.user:
        message = (
            f"cannot run as {proxy.user}: on a cluster with Kerberos jobs of this server run as"
            f" {who.user}, whose ticket it has. Its administrator can set login={TOKENS} in {FILE},"
            f" for the server to obtain tokens of {proxy.user}, or user.to.proxy=ignore, to run all"
            f" jobs as {who.user}"
        )
        raise JobError([Problem(message, proxy.key)])
    return job.replace(user=proxy.user), []


def _owner(who: ClusterIdentity, proxy: ProxyUser, site: Site) -> str:
    """The owner of the tokens, as whom the job runs; JobError if it names another user."""
    if who.user in site.denied:
        message = f"no job may run as {who.user} ({PROXY}.denied in {site.file})"
        raise JobError([Problem(message, PROXY)])
    if proxy.user and who.user != proxy.user:
        message = (
            f"cannot run as {proxy.user}: the tokens that the server handed to this job are"
            f" {who.user}'s. Name {who.user}, or leave {proxy.key} out"
        )
        raise JobError([Problem(message, proxy.key)])
    return who.user


def explain_error(proxy: ProxyUser, error: BaseException) -> str:
    """Why an error names a user whom the job's author may not know; or empty."""
    named = re.search(rf"(?<![\w.-]){re.escape(proxy.user)}(?![\w-])", str(error))
    return f"the job runs as {proxy.user}: {proxy.key}" if proxy.honoured and named else ""

"""As whom a job runs: ``user.to.proxy``, where the cluster takes our word for it.

A cluster with simple authentication believes whatever user a client names; the administrator
says whether a job may name one (``user.to.proxy=honour|ignore|refuse`` in ``site.properties``).
``env.HADOOP_USER_NAME`` asks for the same in other words, and gets the same answer. On a
cluster with Kerberos another user needs tickets of their own: refused until that is built.

Servers of 3.x set ``user.to.proxy`` in every job, to the user who submitted the flow. Where that
changes nothing it is no news.
"""

from __future__ import annotations

import os
import re
from typing import List, Mapping, Tuple

from tony_azkaban.execution import USER
from tony_azkaban.site import HONOUR, IGNORE, REFUSE, Site
from tony_core.dataclass import dataclass
from tony_core.job.problems import JobError, Problem
from tony_core.job.spec import Job

PROXY, NAMED = "user.to.proxy", "env.HADOOP_USER_NAME"
VARIABLE = "HADOOP_USER_NAME"
ON_CLUSTERS = "yarn"
#: Without ``@`` and ``/``: a cluster takes what stands before them for the name, and whoever is
#: denied would be anybody else to us.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\$?", re.ASCII)


@dataclass(frozen=True)
class Asked:
    """What a job asked for, and what becomes of it on a cluster."""

    key: str = ""
    user: str = ""  # empty: nobody else than this process
    own: str = ""
    honoured: bool = False
    problem: str = ""
    by_server: bool = False  # it is the user who submitted the flow, as a server sets it


def asked(props: Mapping[str, str], site: Site) -> Asked:
    """Decide, and have everything from here on speak to the cluster as that user.

    Before the job file is read, which may lie on the cluster.
    """
    from tony_core.hadoop.site.configuration import user_name

    own = user_name(os.environ)
    key = PROXY if props.get(PROXY, "").strip() else NAMED
    user = props.get(key, "").strip()
    if not user or user == own:
        return Asked(own=own)
    by_server = key == PROXY and user == props.get(USER, "").strip()
    if site.proxy == IGNORE:
        return Asked(key, user, own, by_server=by_server)
    problem = ""
    if site.proxy == REFUSE:
        who = f"{user}, who submitted the flow" if by_server else user
        problem = (
            f"the job asks to run as {who}; jobs run as {own} here: this server's administrator"
            f" lets none run as another user ({site.file})"
        )
    elif _NAME.fullmatch(user) is None:
        problem = f"{user!r} is no name of a user"
    elif user in site.denied:
        problem = f"no job may run as {user} ({PROXY}.denied in {site.file})"
    if not problem:
        assert site.proxy == HONOUR
        os.environ[VARIABLE] = user
    return Asked(key, user, own, not problem, problem, by_server)


def as_whom(job: Job, who: Asked) -> Tuple[Job, List[str]]:
    """The job under its user's name, and what is worth a line; JobError when it may not."""
    if not who.user:
        return job, []
    if job.scheduler != ON_CLUSTERS:
        note = f"runs as {who.own}: {job.scheduler} knows no other users ({who.key})"
        return job, [] if who.by_server else [note]
    if who.problem:
        raise JobError([Problem(who.problem, who.key)])
    if not who.honoured:
        note = f"runs as {who.own}: {who.key}={who.user} is not taken notice of here"
        return job, [] if who.by_server else [note]
    wanted = _authentication()
    if wanted not in ("", "simple"):
        message = (
            f"cannot run as {who.user}: the cluster wants {wanted.capitalize()}, and for that"
            " another user needs a ticket or a token, which is not built yet"
        )
        raise JobError([Problem(message, who.key)])
    return job.replace(user=who.user), []


def explanation(who: Asked, error: BaseException) -> str:
    """Why an error speaks of a user whom the job's author may not have named; or nothing."""
    named = re.search(rf"(?<![\w.-]){re.escape(who.user)}(?![\w-])", str(error))
    return f"the job runs as {who.user}: {who.key}" if who.honoured and named else ""


def _authentication() -> str:
    from tony_core.hadoop.errors import ConfigurationError
    from tony_core.hadoop.site.configuration import SiteConfiguration

    try:
        conf = SiteConfiguration.load(os.environ)
    except ConfigurationError:
        return ""  # opening the cluster says what is wrong with it
    return conf.text("hadoop.security.authentication").lower()

"""How jobs log in to a cluster with Kerberos: ``login`` in ``site.properties``.

Theory of operation
===================

The process that submits runs what a job says: its ``command``, or a library by ``LD_PRELOAD``. So a
key that this process can read is a key of every job, and of all who may upload one. A keytab never
ends, and that of a service that may act for others opens all of their data. Therefore jobs never
log in by a keytab, and never act for another user. There are two ways left:

=============  =============================================  ====================================
``login``      the job runs as                                whose login that is
=============  =============================================  ====================================
``ticket``     the owner of the ticket cache of the process   the server's user, or the job's own
               (of the server's environment, or the default)  user (``execute.as.user``)
``tokens``     the owner of the tokens that the server        the server logs in, obtains tokens
               obtained for this job (``user.to.proxy``)      for one user, and hands them over
=============  =============================================  ====================================

The server's class for that (``azkaban.jobtype.HadoopShell``) writes the path of the token file over
``env.HADOOP_TOKEN_FILE_LOCATION`` of the job, whatever the job says. Where another class starts the
job, or this one obtains nothing, the path would be the job's own choice: it is not used.

A keytab that the server's own plugin logs in by (``proxy.keytab.location``) must be closed to jobs,
too: where this process can read it, the job is refused.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Dict, List, Mapping, MutableMapping, NamedTuple, Optional, Tuple

from tony_azkaban.java_properties import PropertiesError, parse
from tony_azkaban.site import FILE, READABLE_KEYTAB, TOKENS, Site
from tony_core.hadoop.credentials import LOCATION
from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.identity import KEYTAB, PRINCIPAL, PROXY_USER
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.job.problems import JobError, Problem, Severity, errors
from tony_core.job.spec import Job

ENV = "env."
KERBEROS_KEYS = "tony.kerberos."
#: Variables of this process that would be a login, or another user, for every job.
NEVER = (PRINCIPAL, KEYTAB, PROXY_USER)
#: What makes a server obtain tokens for each job, in a file that no job can change.
OBTAINS_TOKENS = {
    "jobtype.class": "azkaban.jobtype.HadoopShell",
    "azkaban.should.proxy": "true",
    "obtain.binary.token": "true",
    "obtain.namenode.token": "true",
    "obtain.jobtracker.token": "true",
}
CLASS, PLAIN_CLASS = "jobtype.class", "azkaban.jobExecutor.ProcessJob"
SWITCHES = ("azkaban.should.proxy", "obtain.binary.token")
SERVICE_KEYTAB = "proxy.keytab.location"
PRIVATE, COMMON_PRIVATE = "private.properties", "commonprivate.properties"


ON_CLUSTERS = "yarn"
_IN_ENVIRONMENT = (
    "is in the server's environment, where every job could use it: start the server without it"
    f" (login in {FILE} says how jobs log in)"
)


class Login(NamedTuple):
    """What this process may log in by, and what was found and is not used."""

    tokens: str = ""  # the file that the server handed over; empty: the ticket cache
    unused: Tuple[str, ...] = ()  # variables of the server's environment


def take_login(
    props: Dict[str, str], site: Site, env: MutableMapping[str, str]
) -> Tuple[Dict[str, str], Login]:
    """Leave in ``env`` only the login that the site allows; the job's own properties, and it.

    Call it before anything may ask a cluster.
    """
    unused = tuple(name for name in (*NEVER, LOCATION) if env.pop(name, ""))
    if site.login != TOKENS:
        return props, Login(unused=unused)
    own = dict(props)
    path = own.pop(ENV + LOCATION, "").strip()
    env.pop("KRB5CCNAME", None)
    if path:
        env[LOCATION] = path
    return own, Login(path, unused)


def check_login(
    job: Job, props: Mapping[str, str], site: Site, login: Login, home: Optional[str]
) -> List[Problem]:
    """Warnings for the log; JobError when the job may not go to its cluster by this login."""
    if job.scheduler != ON_CLUSTERS:
        return []
    found = _find_other_users(props, login)
    if is_secure_cluster():
        found += _find_keytabs(job, site, login)
        found += _find_token_problems(site, login, home)
        if not site.accepts_readable_keytab:
            found += [_readable(path) for path in find_service_keytabs(home) if _can_read(path)]
    if errors(found):
        raise JobError(errors(found))
    return found


def explain_error(site: Site, error: BaseException) -> str:
    """Why an error tells a job's author to log in, who cannot; or empty."""
    if site.login == TOKENS and "there is no token for" in str(error):
        return (
            "the server obtains a job's tokens: its administrator sets obtain.namenode.token=true"
            f" and obtain.jobtracker.token=true in {PRIVATE} of the job type; the job names other"
            " NameNodes in other_namenodes"
        )
    if site.login != TOKENS and "Kerberos ticket" in str(error):
        return (
            "jobs log in by the ticket cache of the user as whom the server starts them; with"
            f" login=tokens in {FILE} the server obtains tokens for each"
        )
    return ""


def is_secure_cluster() -> bool:
    """Whether this process's cluster asks for Kerberos; False where that cannot be known."""
    try:
        return endpoints.is_secure(SiteConfiguration.load(os.environ))
    except HadoopError:
        return False  # opening the cluster reports what is wrong


def _find_other_users(props: Mapping[str, str], login: Login) -> List[Problem]:
    """On an open cluster, too: the job would run as another user than it names."""
    found = []
    if props.get(ENV + PROXY_USER, "").strip():
        message = "no job acts for another user: name the user in user.to.proxy"
        found.append(Problem(message, ENV + PROXY_USER))
    if PROXY_USER in login.unused:
        found.append(Problem(_IN_ENVIRONMENT, PROXY_USER))
    return found


def _find_keytabs(job: Job, site: Site, login: Login) -> List[Problem]:
    how = "by the tokens that the server hands over" if site.login == TOKENS else "by a ticket"
    found = []
    for item in job.settings:
        if item.key.startswith(KERBEROS_KEYS) and item.source != "default" and item.value.strip():
            message = (
                "no job of an Azkaban server logs in by a keytab, since every job could read it;"
                f" jobs log in {how} here: leave this key out"
            )
            found.append(Problem(message, item.key, item.source))
    for name in login.unused:
        if name != PROXY_USER:
            found.append(Problem(_IN_ENVIRONMENT, name))
    return found


def obtains_tokens(home: Optional[str]) -> bool:
    """Whether the server writes its own path over a job's, as far as this process can read it."""
    own = read_properties(Path(home) / PRIVATE) if home else {}
    if not own:
        return True
    known = {**read_properties(Path(home or "").parent / COMMON_PRIVATE), **own}
    on = all(known.get(name, "").strip().lower() == "true" for name in SWITCHES)
    return on and known.get(CLASS, "").strip() != PLAIN_CLASS


def _find_token_problems(site: Site, login: Login, home: Optional[str]) -> List[Problem]:
    if site.login != TOKENS:
        return []
    if not login.tokens or not obtains_tokens(home):
        message = (
            "the server obtained no tokens for this job: its administrator has to set"
            f" {CLASS}={OBTAINS_TOKENS[CLASS]}, {'=true, '.join(SWITCHES)}=true in {PRIVATE} of the"
            f" job type (tony azkaban upgrade --tokens), or login=ticket in {site.file}"
        )
        return [Problem(message, ENV + LOCATION)]
    try:
        mode = stat.S_IMODE(os.stat(login.tokens).st_mode)
    except OSError:
        return []  # opening the cluster reports it
    if not mode & stat.S_IROTH:
        return []
    message = f"every user of this machine can read the job's tokens: {login.tokens}, mode {mode:o}"
    return [Problem(message, severity=Severity.WARNING)]


def find_service_keytabs(home: Optional[str]) -> List[str]:
    """The keytabs that the server logs in by, as far as this process can know them."""
    found: List[str] = []
    for path in (Path(home) / PRIVATE, Path(home).parent / COMMON_PRIVATE) if home else ():
        keytab = read_properties(path).get(SERVICE_KEYTAB, "").strip()
        if keytab:
            found.append(keytab)
    return list(dict.fromkeys(found))


def read_properties(path: Path) -> Dict[str, str]:
    """The properties in a file of the server's; none where they cannot be read."""
    try:
        return {each.key: each.value for each in parse(path.read_bytes().decode("latin-1"))}
    except (OSError, PropertiesError):
        return {}


def _can_read(path: str) -> bool:
    return os.access(path, os.R_OK)


def _readable(path: str) -> Problem:
    message = (
        f"every job can read the server's keytab {path}, since jobs run as a user who can: run"
        " them as their own users (execute.as.user=true) and close the keytab to these, or accept"
        f" it ({READABLE_KEYTAB}=accept in {FILE})"
    )
    return Problem(message, SERVICE_KEYTAB)

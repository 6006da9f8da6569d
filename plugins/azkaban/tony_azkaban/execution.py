"""Which job of which execution this is: the tags on its application, and the links back.

A retry, and ``tony azkaban sweep``, find an application again by its tags. They are written
as Azkaban's own Hadoop job types write theirs (``azkaban.flow.execid:12``), so that what an
administrator has for those finds these too. YARN keeps ten tags of a hundred ASCII letters,
all in lower case: what does not fit so is written with a check sum, and the least needed tags
give way to the user's own, all but the three by which it is found.
"""

from __future__ import annotations

import os
import re
import zlib
from typing import Dict, List, Mapping, Optional, Tuple
from urllib.parse import quote, urlsplit

from tony_core.client.workflow.tags import LONGEST_TAG, MOST_TAGS, printable
from tony_core.dataclass import dataclass

EXECUTION = "azkaban.flow.execid"
FLOW = "azkaban.flow.flowid"
PROJECT = "azkaban.flow.projectname"
PROJECT_ID = "azkaban.flow.projectid"
ATTEMPT = "azkaban.job.attempt"
USER = "azkaban.flow.submituser"
SERVER = "azkaban.server"
JOB = "azkaban.job"
URL = "azkaban.url"
EXECUTION_URL = "azkaban.link.execution.url"
JOB_URL = "azkaban.link.jobexec.url"
ATTEMPT_URL = "azkaban.link.attempt.url"
NESTED = "azkaban.flow.nested.path"

#: Those by which an application is found again come first: the others give way.
IDENTITY = (SERVER, EXECUTION, JOB)
ORDER = (*IDENTITY, ATTEMPT, FLOW, PROJECT, USER)
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True)
class Execution:
    """One attempt of one job in one execution of a flow."""

    job: str  # with the flows that it is embedded in
    execid: str = ""
    flow: str = ""
    project: str = ""
    user: str = ""
    attempt: int = 0
    server: str = ""
    links: Tuple[Tuple[str, str], ...] = ()

    def tags(self) -> Dict[str, str]:
        """Each by what it says, in the order in which they are needed."""
        said = {
            SERVER: self.server,
            EXECUTION: self.execid,
            JOB: self.job,
            ATTEMPT: str(self.attempt),
            FLOW: self.flow,
            PROJECT: self.project,
            USER: self.user,
        }
        return {name: tag(name, said[name]) for name in ORDER if said[name]}

    def is_same_job(self, tags: Tuple[str, ...]) -> bool:
        """Whether an application with these tags is an attempt of this job."""
        if not self.execid:
            return False
        mine = self.tags()
        wanted = {mine[name].lower() for name in IDENTITY}
        return wanted <= {each.lower() for each in tags}


def tag(name: str, value: str) -> str:
    """``name:value``, as YARN can keep it and still tell it from every other."""
    kept = printable(value).strip()
    whole = f"{name}:{kept}"
    if kept == value and value == value.lower() and len(whole) <= LONGEST_TAG:
        return whole
    if name not in (JOB, SERVER, EXECUTION):
        return whole[:LONGEST_TAG]
    mark = f"~{zlib.crc32(value.encode('utf-8', 'surrogatepass')):08x}"
    return whole[: LONGEST_TAG - len(mark)] + mark


def said_by(tags: Tuple[str, ...], name: str) -> Optional[str]:
    """What an application's tags say."""
    for each in tags:
        key, colon, value = each.partition(":")
        if colon and key.lower() == name:
            return value
    return None


def beside(own: Tuple[str, ...], ours: Mapping[str, str]) -> Tuple[Tuple[str, ...], List[str]]:
    """The user's tags with ours behind them, as many as YARN takes; and which gave way.

    Those by which the job is found again give way to nothing: without them a retry would start
    a second application beside the first.
    """
    theirs = list(dict.fromkeys(own))
    needed = [name for name in IDENTITY if name in ours]
    stay = theirs[: MOST_TAGS - len(needed)]
    names = list(ours)[: MOST_TAGS - len(stay)]
    kept = [ours[name] for name in names]
    left_out = [*theirs[len(stay) :], *list(ours)[len(names) :]]
    return tuple(dict.fromkeys((*stay, *kept))), left_out


def host_of(url: str) -> str:
    """``host:port`` of a server's address; ValueError for what is no such address."""
    parts = urlsplit(url)
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("an address has printable ASCII letters, and no blank")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an address begins with http://HOST or https://HOST")
    parts.port  # noqa: B018 - ValueError unless it is a number
    return parts.netloc.rpartition("@")[2]


def read(props: Mapping[str, str], env: Mapping[str, str], name: str, url: str) -> Execution:
    """Out of a job's properties; ``name`` and ``url`` are the administrator's for the server."""
    base = (url or props.get(URL, "")).rstrip("/")
    try:
        host = host_of(base)
    except ValueError:
        base = host = ""  # the job's: the administrator's is looked at when it is read
    name_alone = env.get("JOB_NAME") or props.get("azkaban.job.id") or "job"
    job = props.get(NESTED) or name_alone
    if job.rpartition(":")[2] != name_alone:
        job = f"{job}:{name_alone}"  # never another job's name, whatever the path is of
    execid = props.get(EXECUTION, "")
    attempt = props.get(ATTEMPT, "0")
    if _NUMBER.fullmatch(attempt) is None:
        attempt = "0"
    return Execution(
        job=job,
        execid=execid,
        flow=props.get(FLOW, ""),
        project=props.get(PROJECT) or props.get(PROJECT_ID, ""),
        user=props.get(USER, ""),
        attempt=int(attempt),
        server=name or host or os.uname().nodename,
        links=tuple(_links(props, base, execid, job, attempt)),
    )


def _links(
    props: Mapping[str, str], base: str, execid: str, job: str, attempt: str
) -> List[Tuple[str, str]]:
    found = []
    page = props.get(EXECUTION_URL, "")
    log = props.get(ATTEMPT_URL) or props.get(JOB_URL, "")
    if base and execid:
        of_execution = f"{base}/executor?execid={_quoted(execid)}"
        page = page or of_execution
        log = log or f"{of_execution}&job={_quoted(job)}&attempt={attempt}"
    for name, link in (("azkaban", page), ("azkaban_log", log)):
        try:
            host_of(link)
        except ValueError:
            continue  # a job can say what it likes here
        found.append((name, link))
    return found


def _quoted(text: str) -> str:
    return quote(text, errors="replace")

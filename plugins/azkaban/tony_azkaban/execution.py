"""The execution that a job belongs to: the tags on its application, and the links back to Azkaban.

A retry, and ``tony azkaban sweep``, find an application by its tags. They have the form of those of
Azkaban's own Hadoop job types (``azkaban.flow.execid:12``), so that an administrator's tools find
these applications too. YARN keeps ten tags of a hundred ASCII characters, in lower case: a value
that does not fit gets a check sum. The user's own tags take precedence over these, except over the
three by which the application is found.
"""

from __future__ import annotations

import os
import re
import zlib
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import quote, urlsplit

from tony_core.client.workflow.tags import LONGEST_TAG, MOST_TAGS, printable

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

#: The tags by which an application is found; the user's own take precedence over the others.
IDENTITY = (SERVER, EXECUTION, JOB)
ORDER = (*IDENTITY, ATTEMPT, FLOW, PROJECT, USER)
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


class Execution(NamedTuple):
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
        """The tags by name, the most needed first."""
        values = {
            SERVER: self.server,
            EXECUTION: self.execid,
            JOB: self.job,
            ATTEMPT: str(self.attempt),
            FLOW: self.flow,
            PROJECT: self.project,
            USER: self.user,
        }
        return {name: tag(name, values[name]) for name in ORDER if values[name]}

    def is_same_job(self, tags: Tuple[str, ...]) -> bool:
        """Whether an application with these tags is an attempt of this job."""
        if not self.execid:
            return False
        mine = self.tags()
        wanted = {mine[name].lower() for name in IDENTITY}
        return wanted <= {each.lower() for each in tags}


def tag(name: str, value: str) -> str:
    """``name:value`` in the form that YARN keeps, and different for each value."""
    kept = printable(value).strip()
    whole = f"{name}:{kept}"
    if kept == value and value == value.lower() and len(whole) <= LONGEST_TAG:
        return whole
    if name not in (JOB, SERVER, EXECUTION):
        return whole[:LONGEST_TAG]
    mark = f"~{zlib.crc32(value.encode('utf-8', 'surrogatepass')):08x}"
    return whole[: LONGEST_TAG - len(mark)] + mark


def tag_value(tags: Tuple[str, ...], name: str) -> Optional[str]:
    """The value of one of an application's tags."""
    for each in tags:
        key, colon, value = each.partition(":")
        if colon and key.lower() == name:
            return value
    return None


def merge_tags(own: Tuple[str, ...], ours: Mapping[str, str]) -> Tuple[Tuple[str, ...], List[str]]:
    """The user's tags and then ours, as many as YARN takes; and those left out.

    The tags by which the job is found are never left out: without them a retry would start a second
    application beside the first.
    """
    theirs = list(dict.fromkeys(own))
    needed = [name for name in IDENTITY if name in ours]
    stay = theirs[: MOST_TAGS - len(needed)]
    names = list(ours)[: MOST_TAGS - len(stay)]
    kept = [ours[name] for name in names]
    left_out = [*theirs[len(stay) :], *list(ours)[len(names) :]]
    return tuple(dict.fromkeys((*stay, *kept))), left_out


def host_of(url: str) -> str:
    """``host:port`` of a server's address; ValueError for any other text."""
    parts = urlsplit(url)
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("expected printable ASCII characters without a blank")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected http://HOST or https://HOST")
    parts.port  # noqa: B018 - ValueError unless it is a number
    return parts.netloc.rpartition("@")[2]


def read(props: Mapping[str, str], env: Mapping[str, str], name: str, url: str) -> Execution:
    """The execution in a job's properties; ``name`` and ``url`` are the server's in its site."""
    base = (url or props.get(URL, "")).rstrip("/")
    try:
        host = host_of(base)
    except ValueError:
        base = host = ""  # the job's URL: the site's was checked as it was read
    plain_name = env.get("JOB_NAME") or props.get("azkaban.job.id") or "job"
    job = props.get(NESTED) or plain_name
    if job.rpartition(":")[2] != plain_name:
        job = f"{job}:{plain_name}"  # never another job's name, whatever the path
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
            continue  # a job can put any text here
        found.append((name, link))
    return found


def _quoted(text: str) -> str:
    return quote(text, errors="replace")

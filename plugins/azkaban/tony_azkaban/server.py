"""What an Azkaban server says of its executions, by its own API; standard library only."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Dict, List, Mapping, Optional

from tony_azkaban.execution import JOB, host_of, tag
from tony_core.cli.output import safe
from tony_core.client.errors import ClientError, UsageError
from tony_core.dataclass import dataclass

TIMEOUT_S = 30.0
#: More than a flow of thousands of jobs has to say.
LONGEST_ANSWER = 64 << 20
#: Nothing more happens in these; in any other state, one that we do not know too, it may.
ENDED = frozenset(
    (
        "SUCCEEDED",
        "FAILED",
        "KILLED",
        "CANCELLED",
        "SKIPPED",
        "DISABLED",
        "FAILED_SUCCEEDED",
        "EXECUTION_STOPPED",
    )
)


class ServerError(ClientError):
    """The server was not reached, or refused."""


@dataclass(frozen=True)
class Told:
    """One execution; ``jobs``: the state by the tag of each job."""

    status: str
    jobs: Mapping[str, str]

    @property
    def ended(self) -> bool:
        """Whether nothing more happens in it."""
        return self.status in ENDED

    def left_behind(self, job: str) -> bool:
        """Whether nobody watches an application of that job any more.

        While the job runs somebody does, or a retry is about to end it, whatever attempt it is
        of: ``tony_azkaban.retry=attach`` watches an earlier one's.
        """
        return self.ended or self.jobs.get(job.lower(), "") in ENDED


class Server:
    """One session with a server."""

    def __init__(self, url: str) -> None:
        host_in(url)
        self._url = url.rstrip("/")
        self._session = ""

    def login(self, user: str, password: str) -> None:
        """ServerError when it refuses."""
        answer = self._ask("/", action="login", username=user, password=password)
        session = answer.get("session.id")
        if not session:
            said = answer.get("error") or "it does not say why"
            raise ServerError(f"{self._url} does not let {user} in: {safe(str(said))}")
        self._session = str(session)

    def execution(self, execid: str) -> Optional[Told]:
        """One execution; None if the server knows none of that number."""
        answer = self._ask("/executor", ajax="fetchexecflow", execid=execid)
        if answer.get("error"):
            said = str(answer["error"])
            if "session" in said.lower():
                raise ServerError(f"{self._url}: {safe(said)}")
            return None
        return Told(str(answer.get("status", "")), jobs_of(answer))

    def _ask(self, path: str, **words: str) -> Dict[str, Any]:
        if self._session:
            words["session.id"] = self._session
        # By POST: an address stands in logs, and the session's id would stand in it.
        try:
            request = urllib.request.Request(  # noqa: S310 - http or https
                self._url + path,
                urllib.parse.urlencode(words, errors="surrogateescape").encode(),
                {"X-Requested-With": "XMLHttpRequest"},
            )
            with _OPENER.open(request, timeout=TIMEOUT_S) as response:
                data = response.read(LONGEST_ANSWER + 1)
        except urllib.error.HTTPError as error:
            error.close()
            raise ServerError(f"{self._url}: {safe(str(error))}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise ServerError(f"{self._url}: {safe(str(why))}") from None
        if len(data) > LONGEST_ANSWER:
            raise ServerError(f"{self._url}{path} answered with more than {LONGEST_ANSWER} bytes")
        try:
            return parse(data)
        except ServerError as error:
            raise ServerError(f"{self._url}{path} {error}") from None


def host_in(url: str) -> str:
    """``host:port`` of the address that the command line names; UsageError."""
    try:
        return host_of(url)
    except ValueError as error:
        raise UsageError(f"{safe(url)} is no address of a server: {error}") from None


def parse(data: bytes) -> Dict[str, Any]:
    """An answer's body; ServerError for what is not an object in JSON."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ServerError(f"did not answer in JSON: {safe(str(error))}") from None
    if not isinstance(answer, dict):
        raise ServerError(f"answered {safe(repr(answer))[:200]}")
    return answer


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A password, and what is believed of executions, are for the named server alone."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def jobs_of(answer: Mapping[str, Any]) -> Dict[str, str]:
    """The state of every job, also those of flows within the flow, by its tag."""
    found: Dict[str, str] = {}
    left = [(node, "") for node in _list(answer.get("nodes"))]
    while left:
        node, above = left.pop()
        name = str(node.get("nestedId") or above + str(node.get("id", "")))
        found[tag(JOB, name).lower()] = str(node.get("status", ""))
        left.extend((each, f"{name}:") for each in _list(node.get("nodes")))
    return found


def _list(value: Any) -> List[Dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []

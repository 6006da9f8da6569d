"""Asks an Azkaban server for its executions, by its own API."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional
from urllib.parse import urlencode

import requests

from tony_azkaban.execution import JOB, host_of, tag
from tony_core.cli.output import safe
from tony_core.client.errors import ClientError, UsageError

TIMEOUT_S = 30.0
HEADERS = {
    "X-Requested-With": "XMLHttpRequest",
    "Content-Type": "application/x-www-form-urlencoded",
    "Accept-Encoding": "identity",  # a compressed answer may be any size once unpacked
}
LONGEST_ANSWER, PART = 64 << 20, 1 << 20  # more than that for a flow of thousands of jobs
#: The final states; any other one, an unknown one too, may change.
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
    """The server did not answer, or refused."""


class ExecutionState(NamedTuple):
    """One execution's state; ``jobs`` has the state of each job by its tag."""

    status: str
    jobs: Mapping[str, str]

    @property
    def ended(self) -> bool:
        """Whether its state is final."""
        return self.status in ENDED

    def has_left(self, job: str) -> bool:
        """Whether no attempt watches an application of that job any more.

        While the job runs, one does, or a retry is about to end it, whatever attempt it is of:
        ``tony_azkaban.retry=attach`` watches an earlier one's.
        """
        return self.ended or self.jobs.get(job.lower(), "") in ENDED


class Server:
    """One session with a server."""

    def __init__(self, url: str) -> None:
        host_in(url)
        self._url = url.rstrip("/")
        self._session = ""

    def login(self, user: str, password: str) -> None:
        """Log in; ServerError when the server refuses."""
        answer = self._request("/", action="login", username=user, password=password)
        session = answer.get("session.id")
        if not session:
            why = answer.get("error") or "no reason given"
            raise ServerError(f"{self._url} refuses the login of {user}: {safe(str(why))}")
        self._session = str(session)

    def execution(self, execid: str) -> Optional[ExecutionState]:
        """The state of an execution; None if the server does not know its number."""
        answer = self._request("/executor", ajax="fetchexecflow", execid=execid)
        if answer.get("error"):
            why = str(answer["error"])
            if "session" in why.lower():
                raise ServerError(f"{self._url}: {safe(why)}")
            return None
        return ExecutionState(str(answer.get("status", "")), jobs_of(answer))

    def _request(self, path: str, **parameters: str) -> Dict[str, Any]:
        if self._session:
            parameters["session.id"] = self._session
        data = self._post(self._url + path, parameters)
        if len(data) > LONGEST_ANSWER:
            raise ServerError(f"{self._url}{path} answered with more than {LONGEST_ANSWER} bytes")
        try:
            return parse(data)
        except ServerError as error:
            raise ServerError(f"{self._url}{path} {error}") from None

    def _post(self, url: str, parameters: Mapping[str, str]) -> bytes:
        """The answer's body; by POST, since logs show addresses, and one would have the session.

        A redirect is an error: only the named server gets the password, and is believed.
        """
        with requests.Session() as session:
            try:
                response = session.post(
                    url,
                    urlencode(parameters, errors="surrogateescape").encode(),
                    headers=HEADERS,
                    auth=lambda request: request,  # else requests would send what ~/.netrc has
                    timeout=TIMEOUT_S,
                    allow_redirects=False,
                    stream=True,
                )
                with response:
                    body = _read_body(response)
            except (requests.RequestException, OSError, ValueError) as error:
                raise ServerError(f"{self._url}: {safe(str(_root_cause(error)))}") from None
        if not 200 <= response.status_code < 300:
            problem = f"HTTP Error {response.status_code}: {response.reason}"
            raise ServerError(f"{self._url}: {safe(problem)}")
        return body


def _read_body(response: requests.Response) -> bytes:
    """The body, and no more of it than shows that it is too long."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise ValueError("it compresses its answers, unasked")
    body = b""
    for part in response.iter_content(PART):
        body += part
        if len(body) > LONGEST_ANSWER:
            break
    return body


def _root_cause(error: BaseException) -> BaseException:
    """The first error: requests and urllib3 wrap it in errors of their own."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def host_in(url: str) -> str:
    """``host:port`` of the address that the command line names; UsageError."""
    try:
        return host_of(url)
    except ValueError as error:
        raise UsageError(f"{safe(url)} is not a server's address: {error}") from None


def parse(data: bytes) -> Dict[str, Any]:
    """An answer's body; ServerError for what is not an object in JSON."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ServerError(f"did not answer in JSON: {safe(str(error))}") from None
    if not isinstance(answer, dict):
        raise ServerError(f"answered {safe(repr(answer))[:200]}")
    return answer


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

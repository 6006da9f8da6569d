"""What an Azkaban server says of its executions, by its own API; standard library only."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Dict, List, Mapping, Optional

from tony_azkaban.execution import JOB, tag
from tony_core.client.errors import ClientError, UsageError
from tony_core.dataclass import dataclass

TIMEOUT_S = 30.0
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
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{url} is no address of a server (http://...)")
        self._url = url.rstrip("/")
        self._session = ""

    def login(self, user: str, password: str) -> None:
        """ServerError when it refuses."""
        answer = self._ask("/", action="login", username=user, password=password)
        session = answer.get("session.id")
        if not session:
            said = answer.get("error") or "no word why"
            raise ServerError(f"{self._url} does not let {user} in: {said}")
        self._session = str(session)

    def execution(self, execid: str) -> Optional[Told]:
        """One execution; None if the server knows none of that number."""
        answer = self._ask("/executor", ajax="fetchexecflow", execid=execid)
        if answer.get("error"):
            said = str(answer["error"])
            if "session" in said.lower():
                raise ServerError(f"{self._url}: {said}")
            return None
        jobs: Dict[str, str] = {}
        _walk(answer.get("nodes"), "", jobs)
        return Told(str(answer.get("status", "")), jobs)

    def _ask(self, path: str, **words: str) -> Dict[str, Any]:
        if self._session:
            words["session.id"] = self._session
        # By POST: an address stands in logs, and the session's id would stand in it.
        request = urllib.request.Request(  # noqa: S310 - http or https
            self._url + path,
            urllib.parse.urlencode(words).encode(),
            {"X-Requested-With": "XMLHttpRequest"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
                answer = json.load(response)
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or error
            raise ServerError(f"{self._url}: {why}") from None
        if not isinstance(answer, dict):
            raise ServerError(f"{self._url}{path} answered {answer!r}")
        return answer


def _walk(nodes: Any, above: str, found: Dict[str, str]) -> None:
    """Every job, also those of flows within the flow."""
    for node in _list(nodes):
        name = str(node.get("nestedId") or above + str(node.get("id", "")))
        found[tag(JOB, name).lower()] = str(node.get("status", ""))
        _walk(node.get("nodes"), f"{name}:", found)


def _list(value: Any) -> List[Dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []

"""The ResourceManager by its web server: where its RPC port is closed to clients, and that is open.

The second best way. It takes an application's memory and cores and no other resources, and says
less of the cluster, so that less is checked before a submit. What it answers becomes the same
records that RPC gives. Only this module loads ``requests``.

A submit carries the job's secrets, so no redirect is followed. The standby of a pair sends one to
the active ResourceManager, whose address the site's configuration names as well.
"""

from __future__ import annotations

import base64
import json
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import requests

from tony_core.hadoop.errors import HadoopError, ProtocolError, Unreachable, remote_error
from tony_core.hadoop.rpc.connection import Deadline, Endpoints
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId
from tony_core.hadoop.yarn.launch import LocalFile
from tony_core.hadoop.yarn.records import MEMORY, VCORES, AppReport, Capability, NewApplication
from tony_core.schedulers.port import LogRef
from tony_core.schedulers.yarn.client.cluster_limits import ClusterFacts
from tony_core.schedulers.yarn.client.submission import EVERY_LOG, VALIDITY_S, AppRequest

CONNECT_S = 5.0
ANSWER_S = 20.0
TOTAL_S = 30.0
PAUSE_S = 0.2
LONGEST = 64 << 20  # bytes of an answer

_NOT_FOUND = "org.apache.hadoop.yarn.exceptions.ApplicationNotFoundException"
_NO_ACCESS = "org.apache.hadoop.security.AccessControlException"
_STANDBY = b"This is standby RM"
_AT_ONCE = 1 << 16


class RestClient:
    """The calls of RmClient that a submit, a status and a kill need."""

    def __init__(self, web: Endpoints, user: str, why: str = "") -> None:
        self._urls = web.urls
        self._user = user
        self._why = why  # RPC is not used
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy of the web is not on the way to a cluster
        self._current = 0

    def facts(self) -> ClusterFacts:
        """The little that is known; the rest is judged by the ResourceManager itself."""
        new = self.new_application()
        return ClusterFacts(
            user=self._user,
            maximum=new.maximum,
            by_rest=True,
            why_rest=self._why,
            application=new,
        )

    def new_application(self) -> NewApplication:
        """An id that nobody else has."""
        told = self._call("POST", "apps/new-application")
        with _understood():
            return NewApplication(
                ApplicationId.parse(told["application-id"]),
                _capability(told["maximum-resource-capability"]),
            )

    def submit(self, request: AppRequest, secrets: Mapping[str, bytes]) -> None:
        """Hand an application over. It may still be refused afterwards: see its report."""
        if request.resources.other:
            raise ProtocolError(
                "by the ResourceManager's web server a master cannot ask for"
                f" {', '.join(request.resources.other)}, and its RPC port cannot be reached:"
                f" {self._why}"
            )
        self._call("POST", "apps", body(request, secrets))

    def report(self, application: ApplicationId) -> AppReport:
        """Raises :class:`ApplicationNotFound`."""
        told = self._call("GET", f"apps/{application}")
        with _understood():
            return report_of(told["app"])

    def applications(
        self, *, types: Iterable[str] = (), tags: Iterable[str] = ()
    ) -> List[AppReport]:
        """Those of one of these types and with one of these tags, the newest first."""
        asked = {"applicationTypes": ",".join(types), "applicationTags": ",".join(tags)}
        asked = {name: value for name, value in asked.items() if value}
        told = self._call("GET", "apps", params=asked)
        with _understood():
            found = [report_of(one) for one in (told.get("apps") or {}).get("app", [])]
        return sorted(found, key=lambda one: one.id, reverse=True)

    def masters(self, application: ApplicationId) -> List[LogRef]:
        """The container of each attempt that has one, the first one first."""
        told = self._call("GET", f"apps/{application}/appattempts")
        with _understood():
            listed = (told.get("appAttempts") or {}).get("appAttempt", [])
            return [
                LogRef(str(one["containerId"]), str(one.get("nodeId") or ""), _logs(one))
                for one in sorted(listed, key=lambda one: int(one["id"]))
                if one.get("containerId")
            ]

    def kill(
        self, application: ApplicationId, diagnostics: str = "", *, within_s: float = TOTAL_S
    ) -> None:
        """End an application; returns when the ResourceManager says that it is done."""
        deadline = Deadline(within_s, f"killing {application}")
        wanted = {"state": "KILLED", "diagnostics": diagnostics}
        while True:
            state = self._call("PUT", f"apps/{application}/state", wanted).get("state")
            if state in ("KILLED", "FAILED", "FINISHED"):
                return
            if not deadline.left():
                raise deadline.passed("the ResourceManager has not finished it")
            time.sleep(PAUSE_S)

    def signal(self, container: ContainerId, signal: str) -> None:
        """A signal by its name in YARN to a container; an older web server does not know how."""
        self._call("POST", f"containers/{container}/signal/{signal}")

    def close(self) -> None:
        """Give back connections."""
        self._session.close()

    # ------------------------------------------------------------------ calls

    def _call(
        self,
        method: str,
        path: str,
        data: Optional[Mapping[str, Any]] = None,
        params: Optional[Mapping[str, str]] = None,
    ) -> Dict[str, Any]:
        """The answer of the active one; all that is called here may be called twice."""
        deadline = Deadline(TOTAL_S, f"{method} {path} of the ResourceManager's web server")
        said: Dict[str, None] = {}
        while True:
            for _ in self._urls:
                url = self._urls[self._current]
                try:
                    return self._attempt(method, f"{url}/ws/v1/cluster/{path}", data, params)
                except Unreachable as error:
                    said[f"{url}: {error}"] = None
                    self._current = (self._current + 1) % len(self._urls)
            if deadline.left() <= PAUSE_S:
                raise deadline.passed("; ".join(said))
            time.sleep(PAUSE_S)

    def _attempt(
        self,
        method: str,
        url: str,
        data: Optional[Mapping[str, Any]],
        params: Optional[Mapping[str, str]],
    ) -> Dict[str, Any]:
        try:
            with self._session.request(
                method,
                url,
                params={"user.name": self._user, **(params or {})},
                json=data,
                headers={"Accept": "application/json", "Accept-Encoding": "identity"},
                timeout=(CONNECT_S, ANSWER_S),
                allow_redirects=False,
                stream=True,
            ) as answer:
                status, content = answer.status_code, content_of(answer)
        except (requests.ConnectionError, requests.Timeout) as error:
            raise Unreachable(_words(error)) from None
        except (requests.RequestException, ValueError) as error:
            raise ProtocolError(f"{url}: {error}") from None
        if content.lstrip().startswith(_STANDBY):
            raise Unreachable("it is the standby")
        if 300 <= status < 400:
            raise ProtocolError(
                f"{url} answered with a redirect ({status}), which is not followed: is this the"
                " web address of the ResourceManager (yarn.resourcemanager.webapp.address or, by"
                " yarn.http.policy, webapp.https.address)?"
            )
        if status >= 400:
            raise _refusal(status, content, url)
        try:
            told = json.loads(content) if content else {}
        except (ValueError, RecursionError):
            raise ProtocolError(f"{url} answered no JSON ({status})") from None
        if not isinstance(told, dict):
            raise ProtocolError(f"{url} answered no object")
        return told


def content_of(answer: requests.Response) -> bytes:
    """The body of a streamed answer; ``ValueError`` where it is too long, or takes too long."""
    parts: List[bytes] = []
    total, until = 0, time.monotonic() + TOTAL_S
    for part in answer.iter_content(_AT_ONCE):
        parts.append(part)
        total += len(part)
        if total > LONGEST or time.monotonic() > until:
            raise ValueError(f"an answer of more than {LONGEST} bytes or {TOTAL_S:g} s")
    return b"".join(parts)


@contextmanager
def _understood() -> Iterator[None]:
    """What is no record of YARN's becomes one error."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ProtocolError(
            f"the ResourceManager's web server answered what is no record of YARN's: {error!r}"
        ) from None


def _refusal(status: int, content: bytes, url: str) -> HadoopError:
    try:
        told = json.loads(content)["RemoteException"]
        name, text = str(told["javaClassName"]), str(told["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        name, text = "", content.decode(errors="replace").strip()[:300]
    if status == 404 and "/apps/" in url:
        name = _NOT_FOUND
    elif status in (401, 403):
        name = _NO_ACCESS
    elif status in (502, 503, 504):
        return Unreachable(text or f"HTTP {status}")
    return remote_error(name or f"HTTP {status}", text, server=url.partition("/ws/")[0])


def _words(error: Exception) -> str:
    text = str(error)
    for known in ("Connection refused", "timed out", "Name or service not known"):
        if known in text:
            return known.lower()
    return text


# ---------------------------------------------------------------------- what is sent


def body(request: AppRequest, secrets: Mapping[str, bytes]) -> Dict[str, Any]:
    """An application as the web server takes it."""
    acls = {"VIEW_APP": request.view_acl, "MODIFY_APP": request.modify_acl}
    held = {name: base64.urlsafe_b64encode(data).decode() for name, data in secrets.items()}
    container: Dict[str, Any] = {
        "local-resources": _entries({k: _file(v) for k, v in request.files.items()}),
        "environment": _entries(request.environment),
        "commands": {"command": request.command},
        "credentials": {"tokens": {}, "secrets": _entries(held)},
        "application-acls": _entries(acls),
    }
    told: Dict[str, Any] = {
        "application-id": str(request.app_id),
        "application-name": request.name,
        "application-type": request.type,
        "queue": request.queue,
        "am-container-spec": container,
        "max-app-attempts": request.max_attempts,
        "resource": {
            "memory": request.resources.memory_mb,
            "vCores": request.resources.vcores,
        },
        "keep-containers-across-application-attempts": True,
        "attempt-failures-validity-interval": int(VALIDITY_S * 1000),
        "log-aggregation-context": {
            "log-include-pattern": ".*",
            "log-aggregation-policy-class-name": EVERY_LOG,
        },
    }
    if request.tags:
        told["application-tags"] = {"tag": list(request.tags)}
    if request.priority is not None:
        told["priority"] = request.priority
    if request.node_label:
        told["app-node-label-expression"] = request.node_label
    if request.master_label:
        told["am-container-node-label-expression"] = request.master_label
    if request.lifetime_s is not None:
        lifetime = {"type": "LIFETIME", "value": request.lifetime_s}
        told["application-timeouts"] = {"timeout": [lifetime]}
    return told


def _entries(values: Mapping[str, Any]) -> Dict[str, Any]:
    return {"entry": [{"key": key, "value": value} for key, value in sorted(values.items())]}


def _file(file: LocalFile) -> Dict[str, Any]:
    return {
        "resource": file.location,
        "size": file.size,
        "timestamp": file.timestamp_ms,
        "type": "ARCHIVE" if file.archive else "FILE",
        "visibility": file.visibility,
    }


# ---------------------------------------------------------------------- what is answered


def report_of(told: Mapping[str, Any]) -> AppReport:
    """An application as RPC reports it."""
    application = ApplicationId.parse(told["id"])
    resources = Capability(
        max(0, int(told.get("allocatedMB", 0))), max(0, int(told.get("allocatedVCores", 0)))
    )
    tags = str(told.get("applicationTags") or "")
    submitted = int(told.get("submittedTime") or 0) or int(told.get("startedTime") or 0)
    return AppReport(
        id=application,
        name=str(told.get("name", "")),
        user=str(told.get("user", "")),
        queue=str(told.get("queue", "")),
        type=str(told.get("applicationType", "")),
        state=str(told.get("state", "")),
        final_status=str(told.get("finalStatus", "")),
        tracking_url=_given(told.get("trackingUrl")),
        original_tracking_url="",
        diagnostics=str(told.get("diagnostics") or "").strip(),
        submitted=submitted / 1000,
        launched=int(told.get("launchTime") or 0) / 1000,
        finished=int(told.get("finishedTime") or 0) / 1000,
        progress=float(told.get("progress") or 0.0) / 100,
        attempt=_attempt(application, str(told.get("amContainerLogs") or "")),
        tags=tuple(sorted(tag for tag in tags.split(",") if tag)),
        host="",
        rpc_port=0,
        priority=int(told.get("priority") or 0),
        used=resources,
        containers=max(0, int(told.get("runningContainers", 0))),
        lifetime_left_s=_left(told),
        unmanaged=bool(told.get("unmanagedApplication")),
        am_rm_token=None,
    )


def _attempt(application: ApplicationId, logs: str) -> Optional[AttemptId]:
    """The web server names the current attempt only within the address of its logs."""
    for part in logs.split("/"):
        if part.startswith("container_"):
            try:
                return ContainerId.parse(part).attempt
            except ValueError:
                return None
    return None


def _left(told: Mapping[str, Any]) -> Optional[int]:
    for one in (told.get("timeouts") or {}).get("timeout", []):
        left = int(one.get("remainingTimeInSeconds", -1))
        if one.get("type") == "LIFETIME" and left >= 0:
            return left
    return None


def _capability(told: Mapping[str, Any]) -> Capability:
    other: Dict[str, int] = {}
    listed = (told.get("resourceInformations") or {}).get("resourceInformation", [])
    pairs: List[Tuple[str, int]] = [(one["name"], int(one["value"])) for one in listed]
    other = {name: value for name, value in pairs if name not in (MEMORY, VCORES)}
    return Capability(int(told["memory"]), int(told["vCores"]), other)


def _logs(told: Mapping[str, Any]) -> str:
    """Written for a page that knows the scheme: ``//HOST:PORT/node/containerlogs/...``."""
    link = str(told.get("logsLink") or "")
    return f"http:{link}" if link.startswith("//") else link


def _given(text: Any) -> str:
    return "" if text in (None, "UNASSIGNED", "N/A", "null") else str(text)

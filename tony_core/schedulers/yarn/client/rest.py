"""The ResourceManager by the REST API of its web server, where its RPC port is closed to clients.

REST takes a master's memory and cores and no other resources. It reports less about the cluster,
so a submit checks less beforehand. Its answers become the same records as RPC's.

A submit carries the job's secrets, so redirects are not followed, and on a secure cluster it is
sent on a connection on which the server has proved who it is; not by plain HTTP, where the site
protects RPC: who keeps a client from the RPC port would read them there. The standby of a pair
redirects to the active ResourceManager, whose address the site's configuration holds as well.
"""

from __future__ import annotations

import base64
import json
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple
from urllib.parse import urlencode

from tony_core.files.webhdfs.token_file import parse_url_string
from tony_core.hadoop.credentials import Credentials, url_string
from tony_core.hadoop.errors import (
    ConfigurationError,
    HadoopError,
    ProtocolError,
    Remedy,
    Unreachable,
    remote_error,
)
from tony_core.hadoop.rpc.connection import Deadline, Endpoints
from tony_core.hadoop.tokens import Token
from tony_core.hadoop.web import WebAccess, WebClient, WebResponse, WebUnreachable
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId
from tony_core.hadoop.yarn.launch import LocalFile
from tony_core.hadoop.yarn.records import MEMORY, VCORES, AppReport, Capability, NewApplication
from tony_core.job.spec import Job
from tony_core.schedulers.port import LogRef
from tony_core.schedulers.yarn.client.cluster_limits import ClusterLimits
from tony_core.schedulers.yarn.client.submission import EVERY_LOG, VALIDITY_S, AppRequest

CONNECT_S = 5.0
ANSWER_S = 20.0
TOTAL_S = 30.0
PAUSE_S = 0.2
LONGEST = 64 << 20  # bytes of an answer

_NOT_FOUND = "org.apache.hadoop.yarn.exceptions.ApplicationNotFoundException"
_NO_ACCESS = "org.apache.hadoop.security.AccessControlException"
_STANDBY = b"This is standby RM"
# So answers a standby while no other is active: the first as a redirect to itself.
_NONE_ACTIVE = (b"Can not find any active RM", b"There is no active RM right now")
_ROOT = "/ws/v1/cluster"
_INFO = f"{_ROOT}/info"  # a standby answers it, too
_AT_ONCE = 1 << 16


class RestResourceManager:
    """A :class:`ResourceManager` by REST.

    ``why`` says why RPC is not used, ``unsafe`` why no secrets may be sent here.
    """

    def __init__(
        self, web: Endpoints, user: str, access: WebAccess, why: str = "", unsafe: str = ""
    ) -> None:
        self._servers = tuple(zip(web.urls, web.addresses))
        self._tls = web.tls
        self._user = user
        self._why = why
        self._unsafe = unsafe
        self._web = WebClient(access, ANSWER_S, connect_s=CONNECT_S)
        self._current = 0

    def read_limits(self, job: Job) -> ClusterLimits:
        """The little that REST reports; the ResourceManager checks the rest itself."""
        self._refuse_secrets()  # of the submit that follows
        new = self.new_application()
        return ClusterLimits(
            user=self._user,
            maximum=new.maximum,
            by_rest=True,
            why_rest=self._why,
            application=new,
        )

    def new_application(self) -> NewApplication:
        answer = self._call("POST", "apps/new-application")
        with _parsing():
            return NewApplication(
                ApplicationId.parse(answer["application-id"]),
                _parse_capability(answer["maximum-resource-capability"]),
            )

    def delegation_token(self, renewer: str) -> Token:
        self._refuse_secrets()
        answer = self._call("POST", "delegation-token", {"renewer": renewer})
        with _parsing():
            return Token(*parse_url_string(str(answer["token"]))[1:])

    def submit(self, request: AppRequest, credentials: Credentials) -> None:
        self._refuse_secrets()
        if request.resources.other:
            raise ProtocolError(
                "through the ResourceManager's web server a master cannot ask for"
                f" {', '.join(request.resources.other)}, and its RPC port cannot be reached:"
                f" {self._why}"
            )
        self._call("POST", "apps", submission_body(request, credentials))

    def _refuse_secrets(self) -> None:
        if self._unsafe:
            raise ConfigurationError(
                f"{self._why}; and a job's secrets are not sent to its web server by HTTP, for"
                f" {self._unsafe}: let clients reach the RPC port, or serve HTTPS"
                " (yarn.http.policy=HTTPS_ONLY)"
            )

    def requested_user(self) -> str:
        """Whom the server takes this client for; empty if it does not say."""
        return str(self._call("GET", "userinfo").get("requestedUser") or "")

    def report(self, application: ApplicationId) -> AppReport:
        answer = self._call("GET", f"apps/{application}")
        with _parsing():
            return parse_report(answer["app"])

    def applications(
        self, *, types: Iterable[str] = (), tags: Iterable[str] = (), states: Iterable[str] = ()
    ) -> List[AppReport]:
        query = {"applicationTypes": ",".join(types), "applicationTags": ",".join(tags)}
        query["states"] = ",".join(states)
        query = {name: value for name, value in query.items() if value}
        answer = self._call("GET", "apps", params=query)
        with _parsing():
            found = [parse_report(one) for one in (answer.get("apps") or {}).get("app", [])]
        return sorted(found, key=lambda one: one.id, reverse=True)

    def masters(self, application: ApplicationId) -> List[LogRef]:
        answer = self._call("GET", f"apps/{application}/appattempts")
        with _parsing():
            listed = (answer.get("appAttempts") or {}).get("appAttempt", [])
            return [
                LogRef(str(one["containerId"]), str(one.get("nodeId") or ""), _logs_url(one))
                for one in sorted(listed, key=lambda one: int(one["id"]))
                if one.get("containerId")
            ]

    def node_addresses(self) -> List[str]:
        answer = self._call("GET", "nodes")
        with _parsing():
            listed = (answer.get("nodes") or {}).get("node", [])
            return [str(one["nodeHTTPAddress"]) for one in listed if one.get("nodeHTTPAddress")]

    def master_container(self, application: ApplicationId) -> Optional[ContainerId]:
        masters = self.masters(application)
        return ContainerId.parse(masters[-1].container_id) if masters else None

    def kill(
        self, application: ApplicationId, diagnostics: str = "", *, within_s: float = TOTAL_S
    ) -> None:
        deadline = Deadline(within_s, f"killing {application}")
        wanted = {"state": "KILLED", "diagnostics": diagnostics}
        while True:
            state = self._call("PUT", f"apps/{application}/state", wanted).get("state")
            if state in ("KILLED", "FAILED", "FINISHED"):
                return
            if not deadline.remaining():
                raise deadline.timeout_error("the ResourceManager has not finished it")
            time.sleep(PAUSE_S)

    def signal(self, container: ContainerId, signal: str) -> None:
        self._call("POST", f"containers/{container}/signal/{signal}")

    def close(self) -> None:
        self._web.close()

    # ------------------------------------------------------------------ calls

    def _call(
        self,
        method: str,
        path: str,
        data: Optional[Mapping[str, Any]] = None,
        params: Optional[Mapping[str, str]] = None,
    ) -> Dict[str, Any]:
        """The answer of the active ResourceManager; all calls here may be repeated."""
        deadline = Deadline(TOTAL_S, f"{method} {path} of the ResourceManager's web server")
        problems: Dict[str, None] = {}
        while True:
            for _ in self._servers:
                url, _ = self._servers[self._current]
                try:
                    return self._request(method, path, data, params)
                except Unreachable as error:
                    if error.remedy is Remedy.NONE:
                        raise  # no KDC: another server is no help
                    problems[f"{url}: {error}"] = None
                    self._current = (self._current + 1) % len(self._servers)
            if deadline.remaining() <= PAUSE_S:
                raise deadline.timeout_error("; ".join(problems))
            time.sleep(PAUSE_S)

    def _request(
        self,
        method: str,
        path: str,
        data: Optional[Mapping[str, Any]],
        params: Optional[Mapping[str, str]],
    ) -> Dict[str, Any]:
        server, address = self._servers[self._current]
        url = f"{server}{_ROOT}/{path}"
        query = urlencode({**self._web.access.query(), **(params or {})})
        body, fields = None, {"Accept": "application/json"}
        if data is not None:
            body = json.dumps(data).encode()
            fields["Content-Type"] = "application/json"
        try:
            with self._web.request(
                method,
                str(address),
                f"{_ROOT}/{path}{'?' if query else ''}{query}",
                body,
                tls=self._tls,
                fields=fields,
                proof=_INFO if body else "",
            ) as answer:
                status, content = answer.status, read_content(answer)
        except WebUnreachable as error:
            raise Unreachable(_describe_error(error)) from None
        except ValueError as error:
            raise ProtocolError(f"{url}: {error}") from None
        if content.lstrip().startswith(_STANDBY):
            raise Unreachable("it is the standby")
        if content.lstrip().startswith(_NONE_ACTIVE):
            raise Unreachable("it is the standby, and no other is active")
        if 300 <= status < 400:
            raise ProtocolError(
                f"{url} answered with a redirect ({status}), which is not followed: is this the"
                " web address of the ResourceManager (yarn.resourcemanager.webapp.address or, by"
                " yarn.http.policy, webapp.https.address)?"
            )
        if status >= 400:
            raise _remote_error(status, content, url)
        try:
            answer = json.loads(content) if content else {}
        except (ValueError, RecursionError):
            raise ProtocolError(f"{url} answered {status} without JSON") from None
        if not isinstance(answer, dict):
            raise ProtocolError(f"{url} answered JSON that is not an object")
        return answer


def read_content(answer: WebResponse) -> bytes:
    """The body of a streamed answer; ``ValueError`` if it is too long or takes too long."""
    parts: List[bytes] = []
    total, until = 0, time.monotonic() + TOTAL_S
    while True:
        part = answer.read(_AT_ONCE)
        if not part:
            return b"".join(parts)
        parts.append(part)
        total += len(part)
        if total > LONGEST or time.monotonic() > until:
            raise ValueError(f"an answer of more than {LONGEST} bytes or {TOTAL_S:g} s")


@contextmanager
def _parsing() -> Iterator[None]:
    """Turn the errors of parsing an answer into one :class:`ProtocolError`."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ProtocolError(
            f"the ResourceManager's web server answered in an unknown form: {error!r}"
        ) from None


def _remote_error(status: int, content: bytes, url: str) -> HadoopError:
    try:
        answer = json.loads(content)["RemoteException"]
        name, text = str(answer["javaClassName"]), str(answer["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        name, text = "", content.decode(errors="replace").strip()[:300]
    if status == 404 and "/apps/" in url:
        name = _NOT_FOUND
    elif status in (401, 403):
        name = _NO_ACCESS
    elif status in (502, 503, 504):
        return Unreachable(text or f"HTTP {status}")
    return remote_error(name or f"HTTP {status}", text, server=url.partition("/ws/")[0])


def _describe_error(error: Exception) -> str:
    text = str(error)
    for known in ("Connection refused", "timed out", "Name or service not known"):
        if known in text:
            return known.lower()
    return text


# ---------------------------------------------------------------------- requests


def submission_body(request: AppRequest, credentials: Credentials) -> Dict[str, Any]:
    """The JSON of a submission."""
    acls = {"VIEW_APP": request.view_acl, "MODIFY_APP": request.modify_acl}
    held = {
        name: base64.urlsafe_b64encode(data).decode() for name, data in credentials.secrets.items()
    }
    tokens = {alias: url_string(token) for alias, token in credentials.tokens.items()}
    container: Dict[str, Any] = {
        "local-resources": _entries({k: _local_resource(v) for k, v in request.files.items()}),
        "environment": _entries(request.environment),
        "commands": {"command": request.command},
        "credentials": {"tokens": _entries(tokens), "secrets": _entries(held)},
        "application-acls": _entries(acls),
    }
    body: Dict[str, Any] = {
        "application-id": str(request.app_id),
        "application-name": request.name,
        "application-type": request.type,
        "queue": request.queue,
        "am-container-spec": container,
        "cancel-tokens-when-complete": request.cancel_tokens,
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
        body["application-tags"] = {"tag": list(request.tags)}
    if request.priority is not None:
        body["priority"] = request.priority
    if request.node_label:
        body["app-node-label-expression"] = request.node_label
    if request.master_label:
        body["am-container-node-label-expression"] = request.master_label
    if request.lifetime_s is not None:
        lifetime = {"type": "LIFETIME", "value": request.lifetime_s}
        body["application-timeouts"] = {"timeout": [lifetime]}
    return body


def _entries(values: Mapping[str, Any]) -> Dict[str, Any]:
    return {"entry": [{"key": key, "value": value} for key, value in sorted(values.items())]}


def _local_resource(file: LocalFile) -> Dict[str, Any]:
    return {
        "resource": file.location,
        "size": file.size,
        "timestamp": file.timestamp_ms,
        "type": "ARCHIVE" if file.archive else "FILE",
        "visibility": file.visibility,
    }


# ---------------------------------------------------------------------- answers


def parse_report(answer: Mapping[str, Any]) -> AppReport:
    """The report of an application, as from RPC."""
    application = ApplicationId.parse(answer["id"])
    resources = Capability(
        max(0, int(answer.get("allocatedMB", 0))), max(0, int(answer.get("allocatedVCores", 0)))
    )
    tags = str(answer.get("applicationTags") or "")
    submitted = int(answer.get("submittedTime") or 0) or int(answer.get("startedTime") or 0)
    return AppReport(
        id=application,
        name=str(answer.get("name", "")),
        user=str(answer.get("user", "")),
        queue=str(answer.get("queue", "")),
        type=str(answer.get("applicationType", "")),
        state=str(answer.get("state", "")),
        final_status=str(answer.get("finalStatus", "")),
        tracking_url=_optional_url(answer.get("trackingUrl")),
        original_tracking_url="",
        diagnostics=str(answer.get("diagnostics") or "").strip(),
        submitted=submitted / 1000,
        launched=int(answer.get("launchTime") or 0) / 1000,
        finished=int(answer.get("finishedTime") or 0) / 1000,
        progress=float(answer.get("progress") or 0.0) / 100,
        attempt=_parse_attempt(application, str(answer.get("amContainerLogs") or "")),
        tags=tuple(sorted(tag for tag in tags.split(",") if tag)),
        host="",
        rpc_port=0,
        priority=int(answer.get("priority") or 0),
        used=resources,
        containers=max(0, int(answer.get("runningContainers", 0))),
        lifetime_left_s=_lifetime_left(answer),
        unmanaged=bool(answer.get("unmanagedApplication")),
        am_rm_token=None,
        may_view=bool(answer.get("startedTime")),  # to others it is 0
    )


def _parse_attempt(application: ApplicationId, logs: str) -> Optional[AttemptId]:
    """The current attempt, which REST names only in the address of its logs."""
    for part in logs.split("/"):
        if part.startswith("container_"):
            try:
                return ContainerId.parse(part).attempt
            except ValueError:
                return None
    return None


def _lifetime_left(answer: Mapping[str, Any]) -> Optional[int]:
    for one in (answer.get("timeouts") or {}).get("timeout", []):
        left = int(one.get("remainingTimeInSeconds", -1))
        if one.get("type") == "LIFETIME" and left >= 0:
            return left
    return None


def _parse_capability(answer: Mapping[str, Any]) -> Capability:
    other: Dict[str, int] = {}
    listed = (answer.get("resourceInformations") or {}).get("resourceInformation", [])
    pairs: List[Tuple[str, int]] = [(one["name"], int(one["value"])) for one in listed]
    other = {name: value for name, value in pairs if name not in (MEMORY, VCORES)}
    return Capability(int(answer["memory"]), int(answer["vCores"]), other)


def _logs_url(answer: Mapping[str, Any]) -> str:
    """The address of an attempt's logs, which comes without scheme: ``//HOST:PORT/node/...``."""
    link = str(answer.get("logsLink") or "")
    return f"http:{link}" if link.startswith("//") else link


def _optional_url(text: Any) -> str:
    return "" if text in (None, "UNASSIGNED", "N/A", "null") else str(text)

"""The ResourceManager's web server as a client calls it: pairs, refusals, broken answers."""

from __future__ import annotations

import io
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from tests.fuzzing import fuzz, mutations
from tests.schedulers.yarn.clusters import RUNTIME, job
from tony_core.hadoop.credentials import Credentials, url_string
from tony_core.hadoop.errors import (
    AccessDenied,
    ApplicationNotFound,
    DeadlineExceeded,
    HadoopError,
    InvalidRequest,
    ProtocolError,
)
from tony_core.hadoop.rpc.connection import Address, Endpoints
from tony_core.hadoop.tokens import Token
from tony_core.hadoop.web import WebAccess
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.hadoop.yarn.records import Capability
from tony_core.job.spec import Job, MasterSpec, Resources
from tony_core.schedulers.port import LogRef
from tony_core.schedulers.yarn.client import rest
from tony_core.schedulers.yarn.client.rest import RestResourceManager
from tony_core.schedulers.yarn.client.submission import build_request

APP = ApplicationId(1700000000000, 42)
TOKEN = Token(b"who", b"password", "RM_DELEGATION_TOKEN", "10.0.0.1:8032")
STANDBY = (200, "This is standby RM. The redirect url is: /cluster\n")
NEW = {
    "application-id": str(APP),
    "maximum-resource-capability": {
        "memory": 8192,
        "vCores": 32,
        "resourceInformations": {
            "resourceInformation": [
                {"name": "memory-mb", "value": 8192},
                {"name": "yarn.io/gpu", "value": 4},
            ]
        },
    },
}


@dataclass(frozen=True)
class Redirect:
    """An answer that leads elsewhere."""

    status: int
    where: str
    text: str = ""


class Web:
    """Answers in order, the last one again and again; keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers: List[Any] = list(answers)
        self.requests: List[Tuple[str, str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size)
                outer.requests.append((self.command, self.path, json.loads(body) if body else None))
                answers = outer.answers
                found = answers.pop(0) if len(answers) > 1 else answers[0]
                where = ""
                if isinstance(found, Redirect):
                    where, found = found.where, (found.status, found.text)
                status, content = found if isinstance(found, tuple) else (200, found)
                data = (content if isinstance(content, str) else json.dumps(content)).encode()
                self.send_response(status)
                if where:
                    self.send_header("Location", where)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = answer

            def log_message(self, *words: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = Address("127.0.0.1", self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


@pytest.fixture
def start() -> Iterator[Any]:
    webs: List[Web] = []
    clients: List[RestResourceManager] = []

    def make(*answers: Any, pair: Any = None) -> Tuple[RestResourceManager, Web]:
        web = Web(*answers)
        webs.append(web)
        addresses = [web.address]
        if pair is not None:
            webs.append(Web(*pair))
            addresses.append(webs[-1].address)
        client = RestResourceManager(
            Endpoints("the web", tuple(addresses)), "ada", WebAccess("ada"), "refused"
        )
        clients.append(client)
        return client, web

    yield make
    for client in clients:
        client.close()
    for web in webs:
        web.close()


def test_what_a_check_needs(start: Any) -> None:
    client, web = start(NEW)
    limits = client.read_limits(Job("j", ()))
    assert limits.by_rest
    assert limits.maximum == Capability(8192, 32, {"yarn.io/gpu": 4})
    assert limits.application is not None
    assert limits.application.id == APP
    ((method, path, _),) = web.requests
    assert (method, path) == ("POST", "/ws/v1/cluster/apps/new-application?user.name=ada")


def test_the_standby_of_a_pair_is_passed_over(start: Any) -> None:
    client, web = start(STANDBY, pair=[NEW])
    assert client.new_application().id == APP
    assert client.new_application().id == APP
    assert len(web.requests) == 1  # it is remembered who answered


def test_no_resource_manager_is_active(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "TOTAL_S", 0.1)
    monkeypatch.setattr(rest, "PAUSE_S", 0.02)
    client, _ = start(STANDBY, pair=[(503, "starting")])
    with pytest.raises(DeadlineExceeded, match=r"it is the standby; .*: starting"):
        client.new_application()


def remote(name: str, text: str) -> Dict[str, Any]:
    return {"RemoteException": {"exception": "X", "javaClassName": name, "message": text}}


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            (404, remote("org.x.NotFoundException", "app with id not found")),
            ApplicationNotFound,
            "not found",
        ),
        ((403, "Forbidden"), AccessDenied, "Forbidden"),
        (
            (400, remote("org.x.InvalidResourceRequestException", "too much")),
            InvalidRequest,
            "too much",
        ),
        ("<html>", ProtocolError, "answered 200 without JSON"),
        ([1], ProtocolError, "answered JSON that is not an object"),
    ],
)
def test_refusals(start: Any, answer: Any, kind: type, words: str) -> None:
    client, _ = start(answer)
    with pytest.raises(kind, match=words):
        client.report(APP)


def test_a_kill_waits_until_it_is_done(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "PAUSE_S", 0.01)
    client, web = start((202, {"state": "ACCEPTED"}), {"state": "KILLED"})
    client.kill(APP, "enough")
    assert [sent[2] for sent in web.requests] == [{"state": "KILLED", "diagnostics": "enough"}] * 2


def test_a_list_without_any(start: Any) -> None:
    client, web = start({"apps": None})
    assert client.applications(types=["TONY"]) == []
    assert "applicationTypes=TONY" in web.requests[0][1]


def test_the_masters_containers(start: Any) -> None:
    link = "//one:8042/node/containerlogs/container_1_42_02_000001/ada"
    answer = [
        {"id": 2, "containerId": "container_1_42_02_000001", "nodeId": "one:1", "logsLink": link},
        {"id": 1, "containerId": "", "nodeId": "", "logsLink": ""},  # it has ended
    ]
    client, _ = start({"appAttempts": {"appAttempt": answer}})
    assert client.masters(APP) == [LogRef("container_1_42_02_000001", "one:1", f"http:{link}")]


def test_the_nodes_web_servers(start: Any) -> None:
    nodes = [
        {"id": "one:1", "state": "RUNNING", "nodeHTTPAddress": "one:8042"},
        {"id": "two:1", "state": "LOST", "nodeHTTPAddress": ""},
    ]
    client, web = start({"nodes": {"node": nodes}})
    assert client.node_addresses() == ["one:8042"]
    assert web.requests[0][1] == "/ws/v1/cluster/nodes?user.name=ada"


def test_what_it_cannot_carry_is_not_sent(start: Any) -> None:
    client, web = start((202, ""))
    wanted = job(master=MasterSpec(resources=Resources(512, 1, 1)))
    with pytest.raises(ProtocolError, match=r"cannot ask for yarn.io/gpu.*: refused"):
        client.submit(build_request(APP, wanted, (RUNTIME,), "ada", {}), Credentials())
    client.submit(
        build_request(APP, job(), (RUNTIME,), "ada", {}),
        Credentials({"nn": TOKEN}, {"tony.secret": b"x"}),
    )
    ((method, path, sent),) = web.requests
    assert (method, path) == ("POST", "/ws/v1/cluster/apps?user.name=ada")
    assert sent["application-id"] == str(APP)
    assert sent["cancel-tokens-when-complete"] is True
    held = sent["am-container-spec"]["credentials"]
    assert held["tokens"] == {"entry": [{"key": "nn", "value": url_string(TOKEN)}]}
    assert held["secrets"] == {"entry": [{"key": "tony.secret", "value": "eA=="}]}


def test_a_token_for_this_resource_manager(start: Any) -> None:
    client, web = start({"token": url_string(TOKEN), "kind": TOKEN.kind})
    assert client.delegation_token("rm/host@REALM") == TOKEN
    ((method, path, sent),) = web.requests
    assert (method, path) == ("POST", "/ws/v1/cluster/delegation-token?user.name=ada")
    assert sent == {"renewer": "rm/host@REALM"}


class TestStrangers:
    """What answers there is not the cluster, or a proxy stands in between."""

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    @pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
    def test_no_redirect_is_followed(self, start: Any, status: int, method: str) -> None:
        """Neither the body, with secrets in it, nor the call itself goes to another place."""
        _, other = start(NEW)
        where = f"http://{other.address}/stolen"
        client, web = start(Redirect(status, where))
        with pytest.raises(ProtocolError, match="redirect"):
            client._call(method, "apps", {"secret": "x"} if method != "GET" else None)
        assert (len(web.requests), other.requests) == (1, [])

    def test_a_redirect_of_the_standby_names_the_active_one_of_the_site(self, start: Any) -> None:
        """Who that is stands in the site's configuration, not in what the standby says."""
        _, other = start(NEW)
        text = "This is standby RM. The redirect url is: /ws/v1/cluster/apps\n"
        client, _ = start(Redirect(307, f"http://{other.address}/stolen", text), pair=[NEW])
        assert client.new_application().id == APP
        assert other.requests == []

    @pytest.mark.parametrize(
        ("status", "text"),
        [
            (307, "Can not find any active RM. Will retry in next 5 seconds.\n"),
            (200, "There is no active RM right now.\n"),
        ],
    )
    def test_while_none_is_active_it_is_waited_for(
        self, start: Any, monkeypatch: pytest.MonkeyPatch, status: int, text: str
    ) -> None:
        monkeypatch.setattr(rest, "TOTAL_S", 0.1)
        monkeypatch.setattr(rest, "PAUSE_S", 0.02)
        none = (status, f"{text}HA Zookeeper Connection State: CONNECTED\n")
        client, _ = start(none, pair=[none])
        with pytest.raises(DeadlineExceeded, match="it is the standby, and no other is active"):
            client.report(APP)

    def test_an_application_may_be_called_like_the_standby(self, start: Any) -> None:
        answer = {"app": {"id": str(APP), "name": "This is standby RM", "state": "RUNNING"}}
        client, _ = start(answer)
        assert client.report(APP).name == "This is standby RM"

    def test_an_answer_without_end(self, start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rest, "LONGEST", 1 << 16)
        client, _ = start("x" * (1 << 20))
        with pytest.raises(ProtocolError, match="65536 bytes"):
            client.new_application()

    @pytest.mark.parametrize("answer", ["[" * 100_000, "[]", "{}", '{"apps": 3}', '{"app": null}'])
    def test_odd_answers(self, start: Any, answer: str) -> None:
        client, _ = start(answer)
        calls = [client.new_application, client.applications, lambda: client.report(APP),
                 lambda: client.masters(APP)]  # fmt: skip
        for call in calls:
            try:
                call()
            except HadoopError:
                pass

    @fuzz(
        data=mutations(
            json.dumps(NEW).encode(),
            b'{"app": {"id": "application_1_2", "name": "n", "allocatedMB": 1, "progress": 3.5,'
            b' "timeouts": {"timeout": [{"type": "LIFETIME", "remainingTimeInSeconds": "5"}]},'
            b' "amContainerLogs": "http://h/container_1_1_01_000001/x", "submittedTime": 5}}',
            b'{"apps": {"app": [{"id": "application_1_2", "finishedTime": 1e999}]}}',
            b'{"appAttempts": {"appAttempt": [{"id": 1, "containerId": "c", "logsLink": "//h"}]}}',
        )
    )
    def test_any_answer_is_a_record_or_an_error_of_ours(self, data: bytes) -> None:
        client = RestResourceManager(
            Endpoints("the web", (Address("127.0.0.1", 1),)), "ada", WebAccess("ada")
        )

        class Canned(io.BytesIO):
            status = 200

        client._web.request = lambda *words, **more: Canned(data)  # type: ignore[method-assign,assignment,return-value]
        for call in (client.new_application, client.applications, lambda: client.report(APP),
                     lambda: client.masters(APP)):  # fmt: skip
            try:
                call()
            except HadoopError:
                pass

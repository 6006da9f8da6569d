"""The page's client against a real HTTP server."""

from __future__ import annotations

import http.server
import threading
from email.message import Message
from typing import Iterator, List, Optional, Tuple
from urllib.parse import SplitResult

import pytest
from hypothesis import strategies as st

from tests.client.scripted import PageServer, task
from tests.fuzzing import fuzz, mutations
from tests.hadoop.kerberos.handshakes import HandshakeServer, ScriptedLogin
from tony_core.client.errors import PageError
from tony_core.client.page import JobPage
from tony_core.hadoop.rpc.connection import Address
from tony_core.hadoop.web import WebAccess


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer() as made:
        yield made


@pytest.fixture
def page(server: PageServer) -> Iterator[JobPage]:
    made = JobPage(server.url, timeout_s=2.0)
    yield made
    made.close()


def test_reads_job_tasks_and_events(server: PageServer, page: JobPage) -> None:
    server.tasks = [task("worker:0")]
    server.tell("one", "two", "three")
    assert page.job()["name"] == "mnist"
    assert page.tasks() == server.tasks
    events, following = page.events(1)
    assert [item["text"] for item in events] == ["two", "three"]
    assert following == 3


def test_every_request_renews_the_lease(server: PageServer, page: JobPage) -> None:
    page.job()
    page.events(0)
    assert [headers["X-Tony-Client"] for headers in server.headers] == ["1", "1"]


def test_a_look_renews_nothing(server: PageServer) -> None:
    page = JobPage(server.url, timeout_s=2.0, renews_lease=False)
    page.job()
    page.events(0)
    page.close()
    for headers in server.headers:
        assert "X-Tony-Client" not in headers
        assert not headers["User-Agent"].startswith("tony-client/")


def test_a_long_poll_ends_with_the_event(server: PageServer, page: JobPage) -> None:
    timer = threading.Timer(0.2, server.tell, ["late"])
    timer.start()
    events, _ = page.events(0, wait_s=60)
    timer.join()
    assert [item["text"] for item in events] == ["late"]


def test_a_silent_page_is_an_error_in_time(server: PageServer) -> None:
    server.silent.set()
    page = JobPage(server.url, timeout_s=0.2)
    with pytest.raises(PageError, match="does not answer"):
        page.job()
    server.silent.clear()


def test_a_closed_connection_is_opened_again(server: PageServer, page: JobPage) -> None:
    page.job()
    assert page._connection is not None
    page._connection.sock.close()  # what an idle time-out of the server's does
    assert page.job()["name"] == "mnist"


def test_no_server_at_the_address(server: PageServer) -> None:
    page = JobPage(server.url, timeout_s=1.0)
    server.close()
    with pytest.raises(PageError, match="does not answer"):
        page.job()


def test_abort_from_another_thread_ends_a_wait(server: PageServer, page: JobPage) -> None:
    timer = threading.Timer(0.2, page.abort)
    timer.start()
    with pytest.raises(PageError):
        page.events(0, wait_s=600)
    timer.join()
    with pytest.raises(PageError):
        page.job()


@pytest.mark.parametrize("raw", [b"", b"no json", b"[]", b'{"tasks": 1}', b'{"events": []}'])
def test_what_is_no_page_is_an_error(server: PageServer, page: JobPage, raw: bytes) -> None:
    server.raw = raw
    with pytest.raises(PageError):
        page.tasks()
    with pytest.raises(PageError):
        page.events(0)


PROXIED = "proxy/application_1_0001/"


def test_a_proxys_redirect_is_followed_and_a_circle_is_not(
    server: PageServer, page: JobPage
) -> None:
    server.raw = b'{"name": "mnist"}'
    with PageServer() as proxy:
        proxy.redirect = server.url.rstrip("/")
        through = JobPage(proxy.url + PROXIED, access=WebAccess("ann"))
        assert through.job()["name"] == "mnist"
        through.close()
    server.redirect = server.url.rstrip("/")
    with pytest.raises(PageError, match="redirects more than"):
        page.job()


def test_a_page_that_is_asked_directly_sends_to_no_other_server(
    server: PageServer, page: JobPage
) -> None:
    with PageServer() as other:
        for where in (other.url, other.url.replace("127.0.0.1", "localhost"), "//127.0.0.1:1/"):
            server.redirect = where.rstrip("/")
            for call in (page.job, lambda: page.exchange("PUT", "tunnel/new", b"to the job alone")):
                with pytest.raises(PageError, match=r"to another server, .* is not followed"):
                    call()
        assert other.requests == []


@pytest.mark.parametrize("where", ["http://h:80/x", "http://H/x", "/x", "x"])
def test_a_page_that_is_asked_directly_sends_to_itself(where: str) -> None:
    head = Message()
    head["Location"] = where
    page = JobPage("http://h/")
    answers = [(302, head, b""), (200, Message(), b"{}")]
    page._fetch = lambda *_: answers.pop(0)  # type: ignore[method-assign]
    assert page.job() == {}


@pytest.mark.parametrize("url", ["", "ftp://x/", "http://", "nonsense", "http://x:port/"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(PageError):
        JobPage(url).job()


class TestThroughAProxy:
    """As a ResourceManager's does it (tests/master/web/test_behind_proxy.py asks a real one)."""

    def test_it_names_the_client_and_waits_on_this_side(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HADOOP_USER_NAME", "ann lee")
        pauses: List[float] = []
        with RecordingServer() as recording:
            page = JobPage(f"{recording.url}proxy/application_1_0001/")
            monkeypatch.setattr(page._gone, "wait", pauses.append)
            recording.answers = [
                (200, "application/json;charset=utf-8", b'{"events":[],"next":3}')
            ] * 9
            for _ in range(9):
                page.events(3, 20)
            recording.answers = [
                (200, "application/json", b'{"events":[{"n":4}],"next":4}'),
                (200, "application/json", b'{"events":[],"next":4}'),
            ]
            page.events(3, 20)
            page.events(4, 0.1)
            page.close()
        assert recording.targets[0] == (
            "/proxy/application_1_0001/api/events?since=3&wait=0&user.name=ann%20lee"
        )
        assert all(agent.startswith("tony-client/") for agent in recording.agents)
        assert pauses[0] == 0.25 and pauses[8] == 5.0, "longer while nothing happens"
        assert pauses[10] == 0.1, "never longer than was asked for"

    def test_it_names_the_user_that_it_is_given(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HADOOP_USER_NAME", "ann")
        with RecordingServer() as recording:
            recording.answers = [(200, "application/json", b"{}")]
            page = JobPage(f"{recording.url}proxy/application_1_0001/", access=WebAccess("bob"))
            page.job()
            page.close()
        assert recording.targets == ["/proxy/application_1_0001/api/job?user.name=bob"]

    def test_it_knows_whose_program_answers(self) -> None:
        """Else a secure cluster's proxy warns everybody but the job's owner by its own page."""
        with RecordingServer() as recording:
            recording.answers = [(200, "application/json", b"{}")]
            page = JobPage(f"{recording.url}proxy/application_1_0001/", access=WebAccess("bob"))
            page.job()
            page.close()
        assert recording.cookies == ["checked_application_1_0001=true"]

    def test_a_proxys_own_page_is_not_the_jobs(self) -> None:
        with RecordingServer() as recording:
            page = JobPage(f"{recording.url}proxy/application_1_0001/")
            html = b"<html>The requested application exited before setting a tracking URL.</html>"
            recording.answers = [(200, "text/html;charset=utf-8", html), (500, "text/html", html)]
            with pytest.raises(PageError, match="not the job's page"):
                page.job()
            with pytest.raises(PageError, match="500"):
                page.job()
            page.close()

    def test_abort_ends_a_pause(self) -> None:
        page = JobPage("http://127.0.0.1:1/proxy/application_1_0001/")
        page._pause_s = 300.0
        threading.Timer(0.05, page.abort).start()
        with pytest.raises(PageError):
            page.events(0, 300.0)


class TestWithALogin:
    """Through the proxy of a secure cluster."""

    @pytest.fixture
    def proxy(self) -> Iterator[HandshakeServer]:
        with HandshakeServer() as made:
            yield made

    @pytest.fixture
    def login(self) -> ScriptedLogin:
        return ScriptedLogin()

    @pytest.fixture
    def known(self) -> List[int]:
        """The ports of further servers of the cluster."""
        return []

    @pytest.fixture
    def page(
        self, proxy: HandshakeServer, login: ScriptedLogin, known: List[int]
    ) -> Iterator[JobPage]:
        url = f"http://{proxy.address}/proxy/application_1_0001/"
        servers = (Address("127.0.0.1", proxy.port),)
        access = WebAccess(login=login, login_for=servers, is_node=lambda host, port: port in known)
        made = JobPage(url, timeout_s=5.0, access=access)
        yield made
        made.close()

    def test_one_handshake_and_both_cookies(self, proxy: HandshakeServer, page: JobPage) -> None:
        page.job()
        page.metrics()
        assert proxy.greetings == [1]
        assert [each.path for each in proxy.requests] == [
            "/proxy/application_1_0001/api/job",
            "/proxy/application_1_0001/api/metrics",
        ], "no user is named"
        first, second = proxy.requests
        assert first.cookie == "checked_application_1_0001=true"
        assert second.cookie.startswith("checked_application_1_0001=true; hadoop.auth=")

    def test_a_stranger_is_not_believed(self, proxy: HandshakeServer, page: JobPage) -> None:
        proxy.prove = lambda token: None
        with pytest.raises(PageError, match="has not proved that it is HTTP/127"):
            page.job()

    def test_without_a_ticket(
        self, proxy: HandshakeServer, page: JobPage, login: ScriptedLogin
    ) -> None:
        login.broken = "no Kerberos ticket"
        with pytest.raises(PageError, match=r"^no Kerberos ticket$"):
            page.job()

    def test_a_redirect_begins_a_handshake_there(
        self, proxy: HandshakeServer, page: JobPage, login: ScriptedLogin, known: List[int]
    ) -> None:
        page.job()
        with HandshakeServer() as other:
            known.append(other.port)
            proxy.status = 302
            proxy.headers = {"Location": f"http://localhost:{other.port}/page"}
            page.job()
            page.close()
        assert login.targets == ["HTTP/127.0.0.1", "HTTP/localhost"]
        assert other.greetings == [1]
        assert "hadoop.auth" not in other.requests[0].cookie, "the cookie stays where it is from"

    def test_a_redirect_to_a_stranger_is_not_followed(
        self, proxy: HandshakeServer, page: JobPage, login: ScriptedLogin
    ) -> None:
        with HandshakeServer() as other:
            proxy.status = 302
            proxy.headers = {"Location": f"http://{other.address}/page"}
            with pytest.raises(PageError, match="gets no login, for the cluster does not name it"):
                page.job()
            assert other.connections == 0
        assert login.targets == ["HTTP/127.0.0.1"]

    def test_a_page_that_is_asked_directly_gets_no_login(self, proxy: HandshakeServer) -> None:
        proxy.asks = False
        page = JobPage(f"http://{proxy.address}/", access=WebAccess(login=ScriptedLogin()))
        page.job()
        page.close()
        assert (proxy.requests[0].authorization, proxy.requests[0].cookie) == ("", "")


@pytest.mark.parametrize("where", ["http://h/page", "//h/page", "/page"])
def test_a_redirect_stays_on_https(where: str) -> None:
    head = Message()
    head["Location"] = where
    page = JobPage(f"https://rm:1/{PROXIED}", access=WebAccess("ann"))
    asked: List[str] = []

    def fetch(
        url: SplitResult, wait_s: float, method: str, content: Optional[bytes]
    ) -> Tuple[int, Message, bytes]:
        asked.append(url.geturl())
        return (302, head, b"") if len(asked) == 1 else (200, Message(), b"{}")

    page._fetch = fetch  # type: ignore[method-assign]
    if where.startswith("http:"):
        with pytest.raises(PageError, match="from https to http, which is not followed"):
            page.job()
        assert len(asked) == 1
    else:
        page.job()
        assert asked[1].startswith("https://")


class RecordingServer:
    """Answers with the given responses, one after the other."""

    def __init__(self) -> None:
        self.answers: List[Tuple[int, str, bytes]] = []
        self.targets: List[str] = []
        self.agents: List[str] = []
        self.cookies: List[str] = []
        recording = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                recording.targets.append(self.path)
                recording.agents.append(self.headers["User-Agent"])
                recording.cookies.append(self.headers["Cookie"])
                status, kind, body = recording.answers.pop(0)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_words: object) -> None:
                pass

        self._server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> RecordingServer:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.mark.parametrize(
    ("location", "body"), [("http://[", b""), ("//[::", b""), ("", b"[" * 100_000)]
)
def test_what_is_no_address_and_no_page(location: str, body: bytes) -> None:
    with pytest.raises(PageError):
        answered_by(302 if location else 200, location, body).job()


def test_an_address_that_is_none() -> None:
    with pytest.raises(PageError, match="not the address of a page"):
        JobPage("http://[").job()


def answered_by(status: int, location: str, body: bytes) -> JobPage:
    """A page whose server gives this one answer to everything."""
    head = Message()
    if location:
        head["Location"] = location
    made = JobPage("http://127.0.0.1:1/")
    made._fetch = lambda *_: (status, head, body)  # type: ignore[method-assign]
    return made


@fuzz(
    status=st.sampled_from([200, 302, 404]),
    location=mutations(b"http://rm:8088/proxy/application_1_2/api/job?a=b", b"//h:1/", b"../x"),
    body=mutations(
        b'{"events": [{"text": "a", "seq": 1}], "next": 5}',
        b'{"tasks": [{"task": "worker:0"}]}',
        b"[" * 5000,
    ),
)
def test_any_answer_is_the_jobs_or_one_error(status: int, location: bytes, body: bytes) -> None:
    page = answered_by(status, location.decode("latin-1").replace("\n", "").replace("\r", ""), body)
    for call in (page.job, page.tasks, page.metrics, lambda: page.events(0)):
        try:
            call()
        except PageError:
            pass

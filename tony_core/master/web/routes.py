"""The job's own page: its routes.

GET and HEAD only, but for tunnels (:mod:`tony_core.master.web.tunnels`), which ask for a proof of
their own. The user's client may read everything here; nothing can be changed. On a loopback
address only the master's own user and root are answered (:mod:`tony_core.protocol.socket_owners`);
behind a cluster's proxy, those whom its gate lets in (:mod:`tony_core.master.web.proxy_gate`). The
request's Host must name this page, so that no browser reads it for another site by a foreign name
that resolves to this address.

What TensorBoard shows, scripts included, comes from a log folder that a training writes. So it is
relayed at a port of its own, which is another origin to a browser: what runs there cannot
read the page. The same users are answered there. The page's ``/tensorboard/`` leads there.

Behind YARN's proxy the page is below ``/proxy/application_x/``. The proxy passes on the path
behind that, GET and PUT, and of a request's headers only User-Agent, Accept and a few of
that kind; it follows redirects itself. So every link is relative and names what it means to
the letter, the client names itself in its User-Agent too, and the page that sends a browser
to TensorBoard does it in HTML. Nothing waits there: each request that does would hold a thread
of the ResourceManager's web server, which all jobs of the cluster share. That web server is one
origin for all pages of all jobs, and passes requests on to one port of a job: behind it,
TensorBoard is relayed below ``/tensorboard/``.
"""

from __future__ import annotations

import math
import os
import socket
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    List,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Tuple,
)

from tony_core.job.spec import Job
from tony_core.master.publish import Publisher
from tony_core.master.story import Story
from tony_core.master.web.logs import read_ends, read_log
from tony_core.master.web.proxy_gate import ProxyGate
from tony_core.master.web.request import MAX_BODY, Request, seconds, whole_number
from tony_core.master.web.server import SMALL_BODY, Admission, Exchange, Response
from tony_core.master.web.tunnels import Tunnels
from tony_core.protocol import socket_owners
from tony_core.protocol.reactor import Reactor
from tony_core.protocol.tunnel import PREFIX

LONGEST_WAIT_S = 30.0
STORY_LINES = 200
WATCHED_S = 10.0  # twice the page's own long poll
OTHER_USER = (
    "this page belongs to a job of another user of this machine; only its owner (and root) may"
    " read it"
)
UNKNOWN = "this machine does not show which user asks, so the page refuses every user: {}"
LOG_EVERY_S = 60.0
NO_TENSORBOARD = "no task serves TensorBoard (yet)\n"
CLIENT = "tony-client"
_JSON = "application/json"
_BASE = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


class ClientListener(Protocol):
    """Takes what the page sees of the job's client."""

    def client_seen(self) -> None:
        """Take a request of the client's."""

    def client_waits(self, begins: bool) -> None:
        """Take the begin or the end of a request that waits for news."""


class Site(Protocol):
    """The addresses at which the page is served."""

    host: str
    bind: str

    def open_port(self, handler: Callable[[Exchange], None]) -> int:
        """Listen at one more port with a handler of its own; return the port. Raises OSError."""

    def address(self, port: int) -> str:
        """``HOST:PORT`` as a URL wants it."""


class Page:
    """Answers requests from what the publisher and the story hold."""

    def __init__(
        self,
        reactor: Reactor,
        job: Job,
        publisher: Publisher,
        story: Story,
        site: Site,
        clients: ClientListener,
        gate: Optional[ProxyGate],
        log: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._job = job
        self._publisher = publisher
        self._story = story
        self._site = site
        self._clients = clients
        self._hosts = {"localhost", socket.gethostname().lower(), site.host.lower()}
        self.owners: Optional[FrozenSet[int]] = None  # the users who are answered; None: all
        self._gate = gate
        self._log = log
        self._logged = -math.inf  # when it last was logged that a connection's user is unknown
        self._sockets: Optional[socket_owners.SocketTable] = None
        if gate is None and socket_owners.is_loopback(site.bind):  # any user of the machine
            self.owners = frozenset((0, os.getuid()))
            self._sockets = socket_owners.SocketTable()
        self.tunnels: Optional[Tunnels] = None  # set by the master
        self.tensorboard: Optional[Tuple[str, int]] = None
        self.tensorboard_port: Optional[int] = None  # ours, where it is relayed
        self._over = False  # no more events follow
        self._watched: Optional[float] = None  # when a browser last asked for something
        self._routes: Dict[str, Callable[[Exchange], None]] = {
            "/": self._root,
            "/job": self._page,
            "/inside": self._inside,
            "/logs": self._all_logs,
            "/api/job": lambda ex: self._cached(ex, "job", self._publisher.job),
            "/api/tasks": lambda ex: self._cached(ex, "tasks", self._tasks),
            "/api/metrics": lambda ex: self._cached(ex, "metrics", self._metrics),
            "/api/events": self._events,
            "/metrics": self._exposition,
        }

    def handle(self, exchange: Exchange) -> None:
        if not self._is_host_ours(exchange):
            return
        if exchange.request.path.startswith(PREFIX) and self.tunnels is not None:
            if self.tunnels.handle(exchange):
                self._clients.client_seen()
        elif exchange.request.method == "PUT":
            _refuse_method(exchange)
        elif self._gate is not None:
            self._gate.admit(exchange, self._route)
        else:
            self._route(exchange)

    def finish(self) -> None:
        """Let no request wait any more: the job has ended."""
        self._over = True

    def serve_tensorboard(self, host: str, port: int) -> str:
        """Relay the TensorBoard at this address; return the readers' URL. Raises OSError.

        Behind a proxy, which passes requests on to one port only, it is below the page.
        """
        if self._gate is None and self.tensorboard_port is None:
            self.tensorboard_port = self._site.open_port(self.handle_tensorboard)
        self.tensorboard = (host, port)
        if self._gate is not None:
            return f"{self._publisher.info.links['page']}tensorboard/"
        return f"http://{self._site.address(self.tensorboard_port or 0)}/"

    def remove_tensorboard(self) -> None:
        """Relay to TensorBoard no more."""
        self.tensorboard = None

    def handle_tensorboard(self, exchange: Exchange) -> None:
        """Answer one request at TensorBoard's own port."""
        if self._is_host_ours(exchange):
            if exchange.request.method == "PUT":
                _refuse_method(exchange)
                return
            self._note_browser(exchange.request)
            self._relay(exchange, exchange.request.path)

    def _route(self, exchange: Exchange) -> None:
        request = exchange.request
        if _of_client(exchange):
            self._clients.client_seen()
        self._note_browser(request)
        if request.path.startswith("/tensorboard/") and self._gate is not None:
            self._relay(exchange, request.path[len("/tensorboard") :])
        elif request.method == "POST":
            _refuse_method(exchange)
        elif request.path == "/tensorboard" and self._gate is not None:
            # The proxy would follow a redirect, and the browser would not know where it is.
            self._html(exchange, to_tensorboard=True)
        elif request.path == "/tensorboard" or request.path.startswith("/tensorboard/"):
            self._redirect_to_tensorboard(exchange)
        elif request.path.startswith("/logs/"):
            self._logs(exchange)
        else:
            route = self._routes.get(request.path)
            if route is None:
                _text(exchange, 404, "there is no such page; the job's page is at its root\n")
            else:
                route(exchange)

    def body_limit(self, request: Request) -> int:
        """The bytes of a body that are taken, by the request's head.

        Behind a proxy only tunnels have large ones, and those of an open tunnel know its number.
        """
        if self.tunnels is not None and request.path.startswith(PREFIX):
            return self.tunnels.body_limit(request)
        return MAX_BODY if self._gate is None else SMALL_BODY

    def watched_lately(self) -> bool:
        """Whether a person seems to be looking."""
        return self._watched is not None and self._reactor.now() - self._watched < WATCHED_S

    def screen(self, sock: socket.socket) -> Admission:
        """Whether the other end of a new connection is a user's who may read this page."""
        if self._gate is not None:
            return Admission(self._gate.is_proxy(str(sock.getpeername()[0])))
        if self.owners is None or self._sockets is None:
            return Admission(trusted=True)
        try:
            owner = self._sockets.owner_of_peer(sock)
        except socket_owners.Unavailable as error:
            text = UNKNOWN.format(error)
            if self._reactor.now() - self._logged >= LOG_EVERY_S:
                self._logged = self._reactor.now()
                self._log(text)
            return Admission(trusted=False, refusal=text)
        if owner is None or owner.uid not in self.owners:
            return Admission(trusted=False, refusal=OTHER_USER)
        return Admission(trusted=True)

    def close(self) -> None:
        """Close the page's table of sockets."""
        if self._sockets is not None:
            self._sockets.close()

    def _note_browser(self, request: Request) -> None:
        if request.headers.get("user-agent", "").startswith("Mozilla"):
            self._watched = self._reactor.now()

    def _is_host_ours(self, exchange: Exchange) -> bool:
        """Whether the request names this host; refuses it where not."""
        name = _host_of(exchange.request)
        if not name or name in self._hosts or _is_address(name):
            return True
        text = "this page does not answer under that host name; open it by its address\n"
        _text(exchange, 403, text)
        return False

    # ------------------------------------------------------------------ JSON

    def _tasks(self) -> Mapping[str, Any]:
        return {"tasks": self._publisher.tasks()}

    def _metrics(self) -> Mapping[str, Any]:
        return self._publisher.series.to_json()

    def _cached(self, exchange: Exchange, name: str, make: Callable[[], Any]) -> None:
        body, version = self._publisher.encoded(name, make)
        tag = f'"{self._publisher.info.attempt}-{version}"'
        headers = {**_BASE, "ETag": tag, "Cache-Control": "no-cache"}
        if exchange.request.headers.get("if-none-match") == tag:
            exchange.answer(Response(304, b"", _JSON, headers))
        else:
            exchange.answer(Response(200, body, _JSON, headers))

    def _exposition(self, exchange: Exchange) -> None:
        from tony_core.prometheus import CONTENT_TYPE

        exchange.answer(Response(200, self._publisher.exposition(), CONTENT_TYPE, _BASE))

    def _events(self, exchange: Exchange) -> None:
        query = exchange.request.query
        since = whole_number(query.get("since", "0"), "since")
        wait = min(LONGEST_WAIT_S, seconds(query.get("wait", "0"), "wait"))
        if since > self._story.last:
            since = self._story.last  # of another master, or made up
        if since < self._story.last or wait <= 0 or self._over or self._gate is not None:
            self._send_events(exchange, since)
            return

        def over() -> None:
            timer.cancel()
            if _of_client(exchange):
                self._clients.client_waits(False)

        def wake() -> None:
            over()
            exchange.on_gone = None
            # Not at once: events that happen together are sent together.
            exchange.reactor.call_later(0, self._send_events, exchange, since)

        def gone() -> None:
            self._story.forget(wake)
            over()

        def late() -> None:
            self._story.forget(wake)
            over()
            exchange.on_gone = None
            self._send_events(exchange, since)

        timer = exchange.reactor.call_later(wait, late)
        exchange.on_gone = gone
        self._story.wait(wake)
        if _of_client(exchange):
            self._clients.client_waits(True)

    def _send_events(self, exchange: Exchange, since: int) -> None:
        lines, reached = self._story.since(since)
        body = b'{"events":' + lines + b',"next":' + str(reached).encode() + b"}"
        exchange.answer(Response(200, body, _JSON, _BASE))

    # ------------------------------------------------------------------ HTML

    def _root(self, exchange: Exchange) -> None:
        first = self._job.program.tensorboard_first and self.tensorboard is not None
        self._html(exchange, to_tensorboard=first)

    def _page(self, exchange: Exchange) -> None:
        self._html(exchange, to_tensorboard=False)

    def _html(self, exchange: Exchange, to_tensorboard: bool) -> None:
        from tony_core.master.web import page_html  # for browsers: most jobs are never looked at

        nonce = os.urandom(16).hex()
        text = page_html.page(
            *self._content(), nonce, self._story.last, to_tensorboard=to_tensorboard,
            waits=self._gate is None, breaks=self._breaks(),
        )  # fmt: skip
        exchange.answer(Response(200, text.encode(), "text/html; charset=utf-8", _html_head(nonce)))

    def _inside(self, exchange: Exchange) -> None:
        from tony_core.master.web import page_html

        content = self._content()
        headers = {**_BASE, "X-Tony-Over": str(int(content[0]["state"] != "RUNNING"))}
        body = page_html.inside(*content, self._breaks()).encode()
        exchange.answer(Response(200, body, "text/html; charset=utf-8", headers))

    def _content(
        self,
    ) -> Tuple[Mapping[str, Any], List[Dict[str, Any]], Mapping[str, Any], List[Mapping[str, Any]]]:
        return (
            self._publisher.job(),
            self._publisher.tasks(),
            self._publisher.series.to_json(),
            self._story.newest(STORY_LINES),
        )

    def _breaks(self) -> Sequence[float]:
        """When all sessions but the first began."""
        return list(self._story.session_begins)[1:]

    # ------------------------------------------------------------------ logs, TensorBoard

    def _all_logs(self, exchange: Exchange) -> None:
        from tony_core.master.web import page_html

        nonce = os.urandom(16).hex()
        text = page_html.logs_page(self._publisher.job(), self._publisher.tasks(), read_ends, nonce)
        exchange.answer(Response(200, text.encode(), "text/html; charset=utf-8", _html_head(nonce)))

    def _logs(self, exchange: Exchange) -> None:
        request = exchange.request
        task, _, name = request.path[len("/logs/") :].partition("/")
        container = request.query.get("container", "")
        urls = {}
        for item in self._publisher.view()[0].tasks:
            if item.task == task:
                urls = {run.container: run.log_url for run in item.runs}
                urls[item.container] = item.log_url
                container = container or item.container or next(reversed(list(urls)), "")
        exchange.answer(read_log(urls.get(container, ""), name, request.query.get("offset"), _BASE))

    def _relay(self, exchange: Exchange, path: str) -> None:
        if self.tensorboard is None:
            _text(exchange, 503, NO_TENSORBOARD)
            return
        from tony_core.master.web.tensorboard_relay import Relay

        # The proxy's path names the application.
        may_cache = self._gate is not None
        Relay(exchange, self.tensorboard, path, self._problem_of, may_cache)

    def _problem_of(self, sock: socket.socket) -> str:
        """Why nothing may be sent to this server; empty when something may.

        Within this machine any user may take a port that TensorBoard has left.
        """
        host, port = sock.getpeername()[:2]
        here = socket_owners.is_loopback(host) or host == sock.getsockname()[0]
        if self.owners is None or self._sockets is None or not here:
            return ""
        try:
            listeners = self._sockets.listeners(host, port)
        except socket_owners.Unavailable as error:
            return f"this machine does not show whose server it is: {error}"
        if all(owner.uid in self.owners for owner in listeners):
            return "" if listeners else "it has just ended"
        return "that port is held by another user of this machine"

    def _redirect_to_tensorboard(self, exchange: Exchange) -> None:
        if self.tensorboard is None or self.tensorboard_port is None:
            _text(exchange, 503, NO_TENSORBOARD)
            return
        from tony_core.master.web.tensorboard_relay import target_of

        request = exchange.request
        base = f"http://{self._site.address(self.tensorboard_port)}"
        host = _host_of(request)
        if host:  # as this reader calls us
            host = f"[{host}]" if ":" in host else host
            base = f"http://{host}:{self.tensorboard_port}"
        target = target_of(request, request.path[len("/tensorboard") :] or "/")
        exchange.answer(Response(302, headers={**_BASE, "Location": base + target}))


def _of_client(exchange: Exchange) -> bool:
    """Whether the job's client asks, and not a browser."""
    headers = exchange.request.headers
    if headers.get("x-tony-client") == "1":
        return True
    return headers.get("user-agent", "").startswith(CLIENT)  # the proxy passes this on


def _refuse_method(exchange: Exchange) -> None:
    exchange.answer(Response(405, b"GET and HEAD only\n", headers={"Allow": "GET, HEAD"}))


def _host_of(request: Request) -> str:
    """The host that a request is for, without its port."""
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return name.strip("[]").lower()


def _html_head(nonce: str) -> Mapping[str, str]:
    policy = (
        f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}';"
        " connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'self'"
    )
    return {**_BASE, "Content-Security-Policy": policy}


def _is_address(name: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, name)
        except (OSError, ValueError):
            continue
        return True
    return False


def _text(exchange: Exchange, status: int, text: str) -> None:
    exchange.answer(Response(status, text.encode(), headers=_BASE))

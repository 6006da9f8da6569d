"""The job's page as a client reads it: JSON over HTTP, with a deadline on every call.

One connection is kept open and used again. Everything that goes wrong is a :class:`PageError`: the
scheduler is asked first about a job, the page second, and its readers must manage without it. Each
request of a client that waits for the job renews its lease (``tony.client.lease``); one that looks
once, or for many (``tony status``, the portal), must not: the job would outlive its client.

Behind a ResourceManager's proxy four things differ. It drops the headers that it does not know, so
the User-Agent too says that a client asks. A request authenticates as the cluster wants it
(:class:`tony_core.hadoop.web.WebAccess`). On a secure cluster the proxy warns everybody but the
job's owner, by a page of its own, unless a cookie says that they know whose program answers. And a
request never waits at the page: it would hold one of the ResourceManager's few threads. So the
client pauses, longer while nothing happens. A proxy without a job's page behind it answers with a
web page of its own, which is not JSON.
"""

from __future__ import annotations

import http.client
import re
import socket
import threading
from email.message import Message
from typing import Any, Callable, List, Mapping, Optional, Tuple
from urllib.parse import SplitResult, quote, urlencode, urljoin, urlsplit

from tony_core.client.errors import PageError, PageGone, PageRefused
from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.web import WebAccess, WebConnection, describe_error
from tony_core.jsontext import read_object
from tony_core.version import __version__

CALL_S = 5.0  # one answer, long polls apart
LONGEST_POLL_S = 30.0
MOST_BYTES = 64 * 1024 * 1024
REDIRECTS = 3
HEADERS = {
    "X-Tony-Client": "1",
    "Accept": "application/json",
    "User-Agent": f"tony-client/{__version__}",
}
ONLOOKER = {"Accept": "application/json", "User-Agent": f"tony-onlooker/{__version__}"}
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 5.0  # between two requests through a proxy
_PROXY = re.compile(r"/proxy/(application_\d+_\d+)/")


class JobPage:
    """One job's page. Not for several threads, but for :meth:`abort`."""

    def __init__(
        self,
        url: str,
        timeout_s: float = CALL_S,
        access: Optional[WebAccess] = None,
        *,
        problem_of: Callable[[str], str] = lambda url: "",
        most_bytes: int = MOST_BYTES,
        renews_lease: bool = True,
    ) -> None:
        """``access`` is for a proxy in front of the page; by default as the Hadoop user.

        ``problem_of`` an address: why it may not be asked, redirects included; empty if it may.
        """
        self.url = url if url.endswith("/") else url + "/"
        self._timeout_s = timeout_s
        self._problem_of = problem_of
        self._most_bytes = most_bytes
        self._connection: Optional[WebConnection] = None
        self._where: Tuple[str, str] = ("", "")
        self._aborted = False
        self._gone = threading.Event()  # abort() was called
        found = _PROXY.search(self.url)
        self.proxied = found is not None
        self._fields = dict(HEADERS if renews_lease else ONLOOKER)
        if found:
            self._fields["Cookie"] = f"checked_{found[1]}=true"
        if not self.proxied:
            access = WebAccess()  # the page itself knows no users
        self._access = access or WebAccess(_user())
        self._pause_s = FIRST_PAUSE_S

    def job(self) -> Mapping[str, Any]:
        """``/api/job``."""
        return self._get("api/job")

    def tasks(self) -> List[Mapping[str, Any]]:
        """``/api/tasks``."""
        tasks = self._get("api/tasks").get("tasks")
        if not isinstance(tasks, list):
            raise PageError(f"{self.url}api/tasks does not list tasks")
        return tasks

    def events(self, since: int, wait_s: float = 0.0) -> Tuple[List[Mapping[str, Any]], int]:
        """The events after number ``since``, waiting for one; and where to go on."""
        wait_s = max(0.0, min(wait_s, LONGEST_POLL_S))
        if self.proxied:
            self._gone.wait(min(wait_s, self._pause_s))
            wait_s = 0.0
        answer = self._get(f"api/events?since={since}&wait={wait_s:g}", wait_s)
        events, following = answer.get("events"), answer.get("next")
        if not isinstance(events, list) or not isinstance(following, int):
            raise PageError(f"{self.url}api/events does not list events")
        self._pause_s = FIRST_PAUSE_S if events else min(LONGEST_PAUSE_S, self._pause_s * 1.5)
        return events, following

    def metrics(self) -> Mapping[str, Any]:
        """``/api/metrics``."""
        return self._get("api/metrics")

    def close(self) -> None:
        """Give back the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def abort(self) -> None:
        """Make a call that waits in another thread fail now, and every later one."""
        self._aborted = True
        self._gone.set()
        connection = self._connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it was gone already

    # ------------------------------------------------------------------ the calls

    def _get(self, path: str, wait_s: float = 0.0) -> Mapping[str, Any]:
        url, head, body = self.exchange("GET", path, wait_s=wait_s)
        if "json" not in (head.get("Content-Type") or "json"):
            raise PageError(f"{url} is not the job's page (any more)")
        try:
            return read_object(body)
        except ValueError as error:
            raise PageError(f"{url} did not answer a JSON object: {error}") from error

    def exchange(
        self, method: str, path: str, content: Optional[bytes] = None, wait_s: float = 0.0
    ) -> Tuple[str, Message, bytes]:
        """Ask for a path below the page; the address that answered 200, the head, and the body.

        May send twice what is sent: a kept connection may be closed by then.
        """
        try:
            url = urljoin(self.url, path)
        except ValueError as error:
            raise PageError(f"{self.url} is not the address of a page: {error}") from error
        query = urlencode(self._access.query(), quote_via=quote)
        if query:
            url += f"{'&' if '?' in url else '?'}{query}"
        for _ in range(REDIRECTS + 1):
            problem = self._problem_of(url)
            if problem:
                raise PageRefused(problem)
            status, head, body = self._fetch(urlsplit(url), wait_s, method, content)
            location = head.get("Location") or ""
            if status in (301, 302, 303, 307, 308) and location:
                url = _follow(url, location, self.proxied)
                continue
            if status in (401, 403):
                raise PageRefused(_explain_refusal(url, status, head, body))
            if status == 410:
                raise PageGone(_plain_text(head, body) or f"{url} answered 410")
            if status != 200:
                raise PageError(f"{url} answered {status}{_reason(head, body)}")
            return url, head, body
        raise PageError(f"{self.url} redirects more than {REDIRECTS} times")

    def _fetch(
        self, url: SplitResult, wait_s: float, method: str, content: Optional[bytes]
    ) -> Tuple[int, Message, bytes]:
        fresh = self._connect(url)
        target = url.path + (f"?{url.query}" if url.query else "")
        while True:
            connection = self._connection
            if connection is None or self._aborted:
                raise PageError(f"reading {self.url} was aborted")
            try:
                response = connection.request(
                    method, target, self._fields, content, timeout_s=self._timeout_s + wait_s
                )
                body = response.read(self._most_bytes + 1)
                if len(body) > self._most_bytes:
                    raise PageError(f"{url.geturl()} answers more than {self._most_bytes} bytes")
                return response.status, response.headers, body
            except PageError:
                connection.close()
                raise
            except HadoopError as error:  # no login, or the proxy has not proved who it is
                connection.close()
                raise PageRefused(str(error)) from error
            except (OSError, http.client.HTTPException, ValueError) as error:
                connection.close()
                # A kept connection may have been closed meanwhile: try a new one.
                if fresh or self._aborted or isinstance(error, TimeoutError):
                    reason = describe_error(error)
                    raise PageError(f"{url.geturl()} does not answer: {reason}") from error
                fresh = True

    def _connect(self, url: SplitResult) -> bool:
        """Open a connection to that host where none is kept; whether it is a new one."""
        where = (url.scheme, url.netloc)
        if self._connection is not None and self._where == where:
            return self._connection.sock is None
        self.close()
        if url.scheme not in ("http", "https") or not url.hostname:
            raise PageError(f"{url.geturl()} is not the address of a page")
        try:
            self._connection = WebConnection(
                url.hostname,
                url.port,
                url.scheme == "https",
                self._access,
                timeout_s=self._timeout_s,
                connect_s=self._timeout_s,
            )
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise PageError(f"{url.geturl()} is not the address of a page: {error}") from error
        self._where = where
        return True


def _explain_refusal(url: str, status: int, head: Message, body: bytes) -> str:
    if status == 401:
        return (
            f"{url} answered 401: it asks for a Kerberos ticket (kinit); neither a name nor a"
            " delegation token (HADOOP_TOKEN_FILE_LOCATION) opens it"
        )
    return f"{url} answered {status}{_reason(head, body)}"


def _reason(head: Message, body: bytes) -> str:
    text = _plain_text(head, body)
    return f": {text}" if text else ""


def _plain_text(head: Message, body: bytes) -> str:
    plain = "text/plain" in (head.get("Content-Type") or "")
    return " ".join(body[:300].decode("utf-8", "replace").split()) if plain else ""


def _follow(url: str, location: str, anywhere: bool) -> str:
    """Where a redirect leads; :class:`PageError` for what is not followed.

    A proxy may send to another host, as a ResourceManager on standby does. What answers as the page
    itself is a job, or another process that has its port by now: it must not choose whom its
    reader asks.
    """
    try:
        target = urljoin(url, location)
        scheme = urlsplit(target).scheme
        is_elsewhere = not anywhere and _server(target) != _server(url)
    except ValueError as error:
        raise PageError(f"{url} redirects to an invalid address: {error}") from error
    if urlsplit(url).scheme == "https" and scheme != "https":
        raise PageError(f"{url} redirects from https to {scheme}, which is not followed")
    if is_elsewhere:
        raise PageError(f"{url} redirects to another server, {target}, which is not followed")
    return target


def _server(url: str) -> Tuple[str, str, int]:
    parts = urlsplit(url)
    port = parts.port if parts.port is not None else 443 if parts.scheme == "https" else 80
    return parts.scheme, parts.hostname or "", port


def _user() -> str:
    from tony_core.hadoop.site.configuration import user_name  # only for a cluster's proxy

    return user_name()

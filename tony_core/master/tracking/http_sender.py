"""Sends requests to an MLflow server from a thread of its own, one at a time.

The server may be slow, broken or hostile: a request has a deadline as a whole, an answer a length,
redirects are not followed (they would take the credentials elsewhere), and a certificate is
checked. Nothing of the credentials is ever in a text.
"""

from __future__ import annotations

import base64
import http.client
import socket
import threading
from typing import Any, Callable, Dict, Optional
from urllib.parse import quote, urlencode, urlsplit

from tony_core.job.spec import Mlflow
from tony_core.master.tracking.mlflow_api import Answer, Request, encode, read_answer
from tony_core.version import __version__

CONNECT_S = 5.0
READ_S = 25.0  # between two pieces of an answer; the machine's deadline is for all of it
MOST_BYTES = 1 << 20
PREFIX = "/api/2.0/mlflow/"

Answered = Callable[[int, Answer], None]


class HttpSender:
    """One server; ``answered`` is called on the sender's thread."""

    def __init__(self, mlflow: Mlflow, answered: Answered) -> None:
        parts = urlsplit(mlflow.tracking_uri)
        self._host, self._port = parts.hostname or "", parts.port
        self._tls = parts.scheme == "https"
        self._prefix = quote(parts.path.rstrip("/"), safe="/%") + PREFIX
        self._authorities = mlflow.ca_pem
        self._headers = {"User-Agent": f"tony/{__version__}", **authorization(mlflow)}
        self._answered = answered
        self._changed = threading.Condition()
        self._next: Optional[tuple[int, Request]] = None
        self._closed = False
        self._is_busy = False
        self._connection: Optional[http.client.HTTPConnection] = None
        self._thread: Optional[threading.Thread] = None

    def send(self, number: int, request: Request) -> None:
        """Send a request; one that is on its way is given up."""
        with self._changed:
            self._next = (number, request)
            self._break_off()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mlflow", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, within_s: float = 1.0) -> None:
        """Send nothing more; what is on its way is given up."""
        with self._changed:
            self._closed = True
            self._break_off()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(within_s)

    def _break_off(self) -> None:
        """End a request that is on its way: its thread may wait for a byte at a time."""
        connection = self._connection
        sock = connection.sock if connection is not None and self._is_busy else None
        if sock is not None:
            try:
                sock.shutdown(2)
            except OSError:
                pass  # it has just ended

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._next is None and not self._closed:
                    self._changed.wait()
                if self._closed or self._next is None:
                    break
                number, request = self._next
                self._next = None
                self._is_busy = True
            answer = self._exchange(request)
            if not self._is_free():
                break
            self._answered(number, answer)
        self._disconnect()

    def _is_free(self) -> bool:
        """Note the end of a request, before the next one may come; False: it was the last."""
        with self._changed:
            self._is_busy = False
            return not self._closed

    def _exchange(self, request: Request) -> Answer:
        """The answer to a request; a connection that the server has closed is opened once more.

        Only for a request that may be carried out twice, since the first one may have arrived; the
        others get a connection of their own. A server that is late is not asked twice.
        """
        if not request.may_repeat:
            self._disconnect()
        was_open = self._connection is not None
        answer = self._try(request)
        if answer.problem and was_open and not answer.is_late and not self._is_given_up():
            answer = self._try(request)
        return answer

    def _is_given_up(self) -> bool:
        """Whether the answer to the request that is on its way is of no more use."""
        with self._changed:
            return self._closed or self._next is not None

    def _try(self, request: Request) -> Answer:
        try:
            if self._connection is None:
                self._connection = self._connect()
            connection = self._connection
            target = self._prefix + request.path
            if request.query:
                target += "?" + urlencode(request.query, errors="replace")
            headers: Dict[str, str] = dict(self._headers)
            body = None
            if request.body is not None:
                body = encode(request.body)
                headers["Content-Type"] = "application/json"
            method = "GET" if body is None else "POST"
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            data = response.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES or response.will_close:
                self._disconnect()
            return read_answer(
                response.status, data[:MOST_BYTES], response.getheader("Retry-After") or ""
            )
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._disconnect()
            is_late = isinstance(error, socket.timeout)
            return Answer(problem=f"it does not answer ({describe(error)})", is_late=is_late)

    def _connect(self) -> http.client.HTTPConnection:
        made: Any
        if self._tls:
            import ssl  # 4 MB: for those who need it

            context = ssl.create_default_context()
            if self._authorities:
                context.load_verify_locations(cadata=self._authorities)
            made = http.client.HTTPSConnection(
                self._host, self._port, timeout=CONNECT_S, context=context
            )
        else:
            made = http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_S)
        made.connect()
        made.sock.settimeout(READ_S)
        return made  # type: ignore[no-any-return]

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def authorization(mlflow: Mlflow) -> Dict[str, str]:
    """The header that MLflow's own client would send; empty without credentials."""
    if mlflow.username and mlflow.password:
        pair = f"{mlflow.username}:{mlflow.password}".encode()
        return {"Authorization": "Basic " + base64.b64encode(pair).decode()}
    return {"Authorization": f"Bearer {mlflow.token}"} if mlflow.token else {}


def describe(error: Exception) -> str:
    """What is wrong with a connection, in short."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]

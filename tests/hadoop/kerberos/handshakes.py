"""A login and a web server whose handshake is a word and its echo: SPNEGO without Kerberos.

The client's token is ``hello N to HTTP/host``, the server's proof the same with ``proof of`` before
it. The server keeps what it was asked for, with the number of the connection.
"""

from __future__ import annotations

import base64
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Type

from tony_core.hadoop.errors import LoginError
from tony_core.hadoop.kerberos.gssapi import Target
from tony_core.hadoop.kerberos.login import Login

GOOD = 'hadoop.auth="u=ann&p=ann@REALM&t=kerberos&e=1&s={}="; Path=/; HttpOnly'


class ScriptedContext:
    """The client's side of one handshake."""

    def __init__(self, number: int, target: Target) -> None:
        self.target = str(target)
        self._token = f"hello {number} to {target}".encode()
        self.is_mutual = False

    def step(self, token: bytes = b"") -> bytes:
        if not token:
            return self._token
        if token == b"half of " + self._token:
            return b"more"
        if token != b"proof of " + self._token:
            raise LoginError("Kerberos refused: a token was invalid")
        self.is_mutual = True
        return b""


class ScriptedLogin(Login):
    """A login that needs no Kerberos; ``broken`` is why there is none."""

    def __init__(self) -> None:
        super().__init__({}, "a script", "ann@REALM")
        self.targets: List[str] = []
        self.broken = ""

    def new_context(self, target: Target, mechanism: str = "") -> Any:
        if self.broken:
            raise LoginError(self.broken)
        self.targets.append(str(target))
        return ScriptedContext(len(self.targets), target)


class Request(NamedTuple):
    """What came, and on which connection."""

    connection: int
    method: str
    path: str
    authorization: str
    cookie: str
    body: bytes


class HandshakeServer:
    """Answers those who greet it, or have its cookie; ``prove`` makes the answer to a greeting."""

    def __init__(self) -> None:
        self.requests: List[Request] = []
        self.connections = 0
        self.cookies: List[str] = []  # that are good
        self.gives_cookies = True
        self.asks = True  # who calls; a DataNode does not
        self.closes = False
        self.status, self.body = 200, b"{}"
        self.headers: Dict[str, str] = {}
        self.prove: Callable[[bytes], Optional[bytes]] = lambda token: b"proof of " + token
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                server.connections += 1
                self.number = server.connections

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                sent = self.headers.get("Authorization", ""), self.headers.get("Cookie", "")
                server.requests.append(
                    Request(self.number, self.command, self.path, *sent, body=body)
                )
                status, fields = server._judge(*sent)
                data = server.body if status == server.status else b"<html>no</html>"
                self.send_response(status)
                for name, value in fields:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                if server.closes:
                    self.send_header("Connection", "close")
                    self.close_connection = True
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.address = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def secure(self, folder: Path) -> str:
        """From now on over TLS, as ``localhost``; the certificate to trust, as PEM."""
        key, certificate = folder / "server.key", folder / "server.pem"
        words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost".split()
        names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key)]
        subprocess.run([*words, *names, "-out", str(certificate)], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        return certificate.read_text()

    def expire_cookies(self) -> None:
        """Take no cookie that was given so far."""
        self.cookies.clear()

    @property
    def greetings(self) -> List[int]:
        """The connections of requests with a handshake."""
        return [each.connection for each in self.requests if each.authorization]

    def _judge(self, authorization: str, cookie: str) -> Tuple[int, List[Tuple[str, str]]]:
        fields = list(self.headers.items())
        if not self.asks:
            return self.status, fields
        if any(good and good in cookie for good in self.cookies):
            return self.status, fields
        if not authorization.startswith("Negotiate "):
            return 401, [("WWW-Authenticate", "Negotiate")]
        proof = self.prove(base64.b64decode(authorization[len("Negotiate ") :]))
        if proof is None:
            return self.status, fields
        fields.append(("WWW-Authenticate", f"Negotiate {base64.b64encode(proof).decode()}"))
        if self.gives_cookies:
            fields += [("Set-Cookie", "other=1"), ("Set-Cookie", GOOD.format(len(self.requests)))]
            self.cookies.append(GOOD.format(len(self.requests)).partition(";")[0])
        return self.status, fields

    def __enter__(self) -> HandshakeServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)

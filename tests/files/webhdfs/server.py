"""A NameNode or two and a DataNode in this process, which play back recorded answers."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Union
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.files.webhdfs.recorder import RECORDED
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration

ANSWERS: Dict[str, Any] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}


@dataclass(frozen=True)
class Request:
    """One request, as it came."""

    server: str  # nn0, nn1, dn0, dn1
    method: str
    target: str
    body: bytes
    headers: Mapping[str, str]

    @property
    def path(self) -> str:
        """In the file system."""
        return unquote(urlsplit(self.target).path)[len("/webhdfs/v1") :]

    @property
    def query(self) -> Dict[str, str]:
        """Its parameters, decoded."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    def __str__(self) -> str:
        return f"{self.server} {self.query.get('op')}"


Step = Union[str, Callable[["Handler"], None]]
"""What a server does with a request: the name of a recorded answer, or anything else."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server  # type: ignore[assignment]

    def do_GET(self) -> None:
        step = self.server.next_step()
        if step is not early:
            body = self._body()
            request = Request(self.server.name, self.command, self.path, body, dict(self.headers))
            self.server.hdfs.seen.append(request)
        if callable(step):
            step(self)
        else:
            self.play(step)

    do_PUT = do_DELETE = do_GET

    def play(self, name: str, **changes: Any) -> None:
        """A recorded answer."""
        one = {**ANSWERS[name], **changes}
        body = str(one["body"]).encode()
        self.send_response(one["status"])
        chunked = False
        for key, value in one["headers"].items():
            chunked = chunked or key.lower() == "transfer-encoding"
            self.send_header(key, self.server.hdfs.here(value))
        if not chunked:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if chunked:  # in two pieces, as no length is sent
            for part in filter(None, (body[:7], body[7:])):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.wfile.write(body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """One of them; its steps are taken from ``steps``, then all requests get ``always``."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, hdfs: FakeHdfs, name: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.hdfs = hdfs
        self.name = name
        self.steps: List[Step] = []
        self.always: Step = "mkdirs"
        self.connections = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def address(self) -> str:
        """HOST:PORT"""
        return f"127.0.0.1:{self.server_address[1]}"

    def next_step(self) -> Step:
        with self._lock:
            return self.steps.pop(0) if self.steps else self.always

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client broke off

    def secure(self, certificate: str) -> None:
        """From now on over TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True)

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


@dataclass
class FakeHdfs:
    """The servers of one file system, and what they were asked."""

    name_nodes: int = 1
    data_nodes: int = 1
    seen: List[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nn = [Server(self, f"nn{number}") for number in range(self.name_nodes)]
        self.dn = [Server(self, f"dn{number}") for number in range(self.data_nodes)]
        self.leads_to = self.dn[0].address
        self._clients: List[WebHdfsFileSystem] = []

    def client(
        self, user: str = "me", tokens: Optional[Credentials] = None, **more: Any
    ) -> WebHdfsFileSystem:
        """Ours, configured for these servers."""
        ids = [server.name for server in self.nn]
        values = {
            "fs.defaultFS": "hdfs://sandbox",
            "dfs.nameservices": "sandbox",
            "dfs.ha.namenodes.sandbox": ",".join(ids),
        }
        for server in self.nn:
            values[f"dfs.namenode.rpc-address.sandbox.{server.name}"] = "127.0.0.1:1"
            values[f"dfs.namenode.http-address.sandbox.{server.name}"] = server.address
        more.setdefault("patience_s", 0.3)
        client = WebHdfsFileSystem(
            SiteConfiguration.of(values), ClusterIdentity(user, tokens=tokens), **more
        )
        self._clients.append(client)
        return client

    def plays(self, *steps: Step, nn: int = 0) -> None:
        """What a NameNode does, one request after the other."""
        self.nn[nn].steps += steps

    def node_plays(self, *steps: Step, dn: int = 0) -> None:
        """What a DataNode does."""
        self.dn[dn].steps += steps

    def here(self, text: str) -> str:
        """A recorded address as it is now."""
        found = text.replace("{datanode}", self.leads_to)
        return found.replace("{namenode}", self.nn[0].address)

    def story(self) -> List[str]:
        """``nn0 CREATE``, ``dn0 CREATE``, ``nn0 RENAME``"""
        return [str(request) for request in self.seen]

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for server in (*self.nn, *self.dn):
            server.stop()


# ---------------------------------------------------------------------- steps


def drop(handler: Handler) -> None:
    """The request is read, and the connection ends without an answer."""
    handler.close_connection = True


def hang(handler: Handler) -> None:
    """The request is read, and nothing comes; until the client has given up."""
    handler.rfile.read(1)
    handler.close_connection = True


def early(handler: Handler) -> None:
    """Refused before the body was read, as a DataNode does it."""
    handler.play("create-no-space")
    handler.wfile.flush()
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_WR)


def leads_to(name: str, address: str) -> Step:
    """A recorded redirect, to another DataNode."""

    def step(handler: Handler) -> None:
        headers = dict(ANSWERS[name]["headers"])
        headers["Location"] = headers["Location"].replace("{datanode}", address)
        handler.play(name, headers=headers)

    return step


def changed(name: str, **body: Any) -> Step:
    """A recorded answer of JSON with other values at its top."""

    def step(handler: Handler) -> None:
        handler.play(name, body=json.dumps({**json.loads(ANSWERS[name]["body"]), **body}))

    return step


def page(found: Iterable[str], remaining: int) -> Step:
    """A page of a large folder."""
    one = json.loads(ANSWERS["list"]["body"])["DirectoryListing"]["partialListing"]["FileStatuses"]
    entries = [{**one["FileStatus"][0], "pathSuffix": name} for name in found]
    listing = {"partialListing": {"FileStatuses": {"FileStatus": entries}}}
    return changed("list", DirectoryListing={**listing, "remainingEntries": remaining})

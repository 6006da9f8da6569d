"""A small HTTP server that answers as MLflow's REST API does, or badly."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, List, Optional, Tuple
from urllib.parse import parse_qs, urlsplit

Misbehave = Callable[["Handler"], bool]
"""Answers in its own way and returns True; or returns False."""


class FakeMlflow:
    """One experiment store, served on loopback while it is a context."""

    def __init__(self) -> None:
        self.runs: Dict[str, Dict[str, Any]] = {}
        self.experiments: Dict[str, str] = {}
        self.requests: List[Tuple[str, Dict[str, Any], Dict[str, str]]] = []
        self.misbehave: Optional[Misbehave] = None
        self.connections: List[socket.socket] = []
        self._lock = threading.Lock()
        self._server: Optional[ThreadingHTTPServer] = None
        self.port = 0

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> FakeMlflow:
        fake = self

        class Bound(Handler):
            mlflow = fake

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Bound)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), name="fake").start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        for connection in self.connections:  # as those of a process that died
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.connections.clear()

    def wrap(self, context: ssl.SSLContext) -> None:
        """Answer by TLS from now on."""
        assert self._server is not None
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )

    @property
    def run(self) -> Dict[str, Any]:
        """The one run."""
        (found,) = self.runs.values()
        return found

    def answer(self, path: str, body: Dict[str, Any]) -> Tuple[int, Dict[str, Any]]:
        with self._lock:
            return self._answer(path, body)

    def _answer(self, path: str, body: Dict[str, Any]) -> Tuple[int, Dict[str, Any]]:
        if path == "experiments/get-by-name":
            found = self.experiments.get(body["experiment_name"])
            if found is None:
                return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no"}
            return 200, {"experiment": {"experiment_id": found}}
        if path == "experiments/create":
            return 200, {"experiment_id": self.experiments.setdefault(body["name"], "7")}
        if path == "runs/create":
            run_id = f"run{len(self.runs)}"
            tags = {tag["key"]: tag["value"] for tag in body["tags"]}
            self.runs[run_id] = {
                "name": body["run_name"], "tags": tags, "params": {}, "metrics": [],
                "status": "RUNNING",
            }  # fmt: skip
            return 200, {"run": {"info": {"run_id": run_id}}}
        if path == "runs/search":
            name, value = re.fullmatch(r"tags\.`([^`]+)` = '([^']+)'", body["filter"]).groups()
            found = [key for key, run in self.runs.items() if run["tags"].get(name) == value]
            listed = [{"info": {"run_id": key}} for key in found]
            return 200, {"runs": listed[: body["max_results"]]}
        run = self.runs.get(body["run_id"])
        if run is None:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no run"}
        if path == "runs/update":
            run["status"] = body["status"]
        else:
            run["metrics"] += [(m["key"], m["value"], m["step"]) for m in body.get("metrics", ())]
            run["params"].update((p["key"], p["value"]) for p in body.get("params", ()))
            run["tags"].update((t["key"], t["value"]) for t in body.get("tags", ()))
        return 200, {}


class Handler(BaseHTTPRequestHandler):
    mlflow: FakeMlflow
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.mlflow.connections.append(self.connection)

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(data) if data else {k: v[0] for k, v in parse_qs(parts.query).items()}
        path = parts.path.partition("/api/2.0/mlflow/")[2]
        self.mlflow.requests.append((path, body, dict(self.headers)))
        misbehave = self.mlflow.misbehave
        if misbehave is not None and misbehave(self):
            return
        self.send(*self.mlflow.answer(path, body))

    def send(self, status: int, body: Any, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass

"""A node's web service made after recordings of real ones: logs in memory that can grow and go."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Type
from urllib.parse import parse_qs, unquote, urlsplit

RECORDED: Mapping[str, Mapping[str, Any]] = json.loads(
    (Path(__file__).with_name("recordings") / "node_logs.json").read_text(encoding="utf-8")
)
UNKNOWN = RECORDED["3.4.2"]["answers"]["gone"]["body"].encode()
MISSING = RECORDED["3.4.2"]["answers"]["missing"]["body"].encode()


def wrapped(container: str, name: str, text: bytes, size: Optional[int], running: bool) -> bytes:
    """An answer as a NodeManager gives it."""
    first = f"Container: {container} on node:1"
    head = (
        f"{first}\nLogAggregationType: LOCAL\n{'=' * len(first)}\nLogType:{name}\n"
        f"LogLastModifiedTime:Sat Nov 21 13:59:39 +0000 2026\nLogLength:{len(text)}\nLogContents:\n"
    )
    if size is not None:
        text = text[:size] if size >= 0 else text[max(0, len(text) + size) :]
    tail = f"End of LogType:{name}."
    if running:
        tail += (
            f"This log file belongs to a running container ({container}) and so may not be"
            " complete."
        )
    return head.encode() + text + f"{tail}\n{'*' * 70}\n\n".encode()


class Node:
    """A web server with containers' logs; ``asked`` is what it was asked for."""

    def __init__(self) -> None:
        self.containers: Dict[str, Dict[str, bytes]] = {}
        self.attempts: Any = None  # what a ResourceManager would say of an application's
        self.running = True
        self.requests: List[str] = []
        self.sent = 0
        self.before: Callable[[str], None] = lambda target: None
        self.override: Optional[Tuple[int, bytes]] = None
        node = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                node.requests.append(self.path)
                node.before(self.path)
                status, body = node._answer(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    node.sent += len(body)
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Node:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, target: str) -> Tuple[int, bytes]:
        if self.override is not None:
            return self.override
        parts = urlsplit(target)
        words = [unquote(word) for word in parts.path.split("/")]
        if words[-1] == "appattempts":
            return 200, json.dumps(self.attempts).encode()
        # /ws/v1/node/containers/ID/logs[/NAME], and a log server's, from "containers" on
        words = words[words.index("containers") + 1 :]
        logs = self.containers.get(words[0])
        if logs is None:
            return 404, UNKNOWN
        if len(words) == 2:
            listed = [{"fileName": name, "fileSize": str(len(logs[name]))} for name in logs]
            info = {"containerLogInfo": listed, "logAggregationType": "LOCAL"}
            return 200, json.dumps({"containerLogsInfo": info}).encode()
        if words[2] not in logs:
            return 404, MISSING
        size = parse_qs(parts.query).get("size")
        text = logs[words[2]]
        return 200, wrapped(words[0], words[2], text, int(size[0]) if size else None, self.running)

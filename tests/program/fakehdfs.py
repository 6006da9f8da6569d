"""A small HDFS in this process: NameNodes (one active) and a DataNode, over WebHDFS."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, List, Optional
from urllib.parse import parse_qsl, quote, unquote, urlsplit


class Refuse(Exception):
    """A RemoteException."""

    def __init__(self, name: str, message: str = "", code: int = 403) -> None:
        super().__init__(message)
        self.name, self.message, self.code = name, message or name, code


class FakeHdfs:
    """``files`` maps paths to bytes, or None for a folder; ``trouble`` may raise or drop."""

    def __init__(self, namenodes: int = 1) -> None:
        self.files: Dict[str, Optional[bytes]] = {"/": None}
        self.changed: Dict[str, int] = {"/": 1}
        self.calls: List[str] = []
        self.active = 0
        self.token: Optional[str] = None  # the only one that is accepted
        self.refused: List[str] = []  # operations, for their token
        self.lock = threading.RLock()
        self.trouble: Callable[[str, str], Any] = lambda op, path: None
        self.servers = [self._serve(number) for number in range(namenodes)]
        self.urls = [f"http://127.0.0.1:{server.server_port}" for server in self.servers]

    def environment(self, user: str = "ann") -> str:
        """TONY_HDFS for it."""
        answer = {"default_fs": "hdfs://ns", "user": user, "namenodes": {"ns": self.urls}}
        return json.dumps(answer)

    def put(self, path: str, content: Optional[bytes]) -> None:
        with self.lock:
            parts = path.strip("/").split("/")
            for end in range(1, len(parts)):
                parent = "/" + "/".join(parts[:end])
                if parent not in self.files:
                    self.put(parent, None)
            self.files[path] = content
            self.changed[path] = int(time.time() * 1000)

    def names(self, below: str = "/") -> List[str]:
        return sorted(each for each in self.files if each != below and each.startswith(below))

    def close(self) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def _serve(self, number: int) -> ThreadingHTTPServer:
        hdfs = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hdfs.answer(self, number)

            do_PUT = do_DELETE = do_GET

            def log_message(self, *words: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    # -------------------------------------------------------------- answers

    def answer(self, handler: BaseHTTPRequestHandler, number: int) -> None:
        parts = urlsplit(handler.path)
        query = dict(parse_qsl(parts.query))
        path = unquote(parts.path)[len("/webhdfs/v1") :].rstrip("/") or "/"
        size = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(size)
        op = ("DATA-" if "data" in query else "") + query["op"]
        code, headers, answer = 200, {}, b""
        try:
            alive = self.token is None or query.get("delegation") == self.token
            if alive:
                pass
            elif op.startswith("DATA-") or number == self.active:
                self.refused.append(op)
                raise Refuse("InvalidToken", "token (token for ann: ...) is expired")
            if op.startswith("DATA-"):
                drop = self.trouble(op, path)
            else:
                self.calls.append(f"{op} {path} {query.get('user.name')}")
                if number != self.active:
                    raise Refuse("StandbyException", "Operation category READ is not supported")
                drop = self.trouble(op, path)
            with self.lock:
                code, headers, answer = self._do(op, path, query, body)
        except Refuse as refused:
            code = refused.code
            words = {"exception": refused.name, "message": refused.message}
            answer, drop = json.dumps({"RemoteException": words}).encode(), None
        if drop == "answer":  # done, and the answer is lost
            handler.close_connection = True
            return
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer[: len(answer) // 2] if drop == "half" else answer)

    def _do(self, op: str, path: str, query: Dict[str, str], body: bytes) -> Any:
        if op in ("OPEN", "CREATE"):
            if op == "OPEN":
                self._status(path)
            here = f"{self.urls[self.active]}/webhdfs/v1{quote(path)}?data=1&op={op}"
            if "delegation" in query:  # a NameNode passes on what the caller has sent
                here += f"&delegation={query['delegation']}"
            return 307, {"Location": f"{here}&offset={query.get('offset', '0')}"}, b""
        if op == "DATA-OPEN":
            return 200, {}, (self.files[path] or b"")[int(query["offset"]) :]
        if op == "DATA-CREATE":
            self.put(path, body)
            return 201, {}, b""
        answer: Any = {"boolean": True}
        if op == "GETFILESTATUS":
            answer = {"FileStatus": self._status(path)}
        elif op == "LISTSTATUS_BATCH":
            self._status(path)
            prefix = path.rstrip("/") + "/"
            below = [each for each in self.files if each.startswith(prefix) and each != "/"]
            direct = sorted({each for each in below if "/" not in each[len(prefix) :]})
            found = [{**self._status(each), "pathSuffix": each[len(prefix) :]} for each in direct]
            listed = {"FileStatuses": {"FileStatus": found}}
            answer = {"DirectoryListing": {"partialListing": listed, "remainingEntries": 0}}
        elif op == "MKDIRS":
            self.put(path, None)
        elif op == "DELETE":
            for each in self._tree(path):
                del self.files[each]
        elif op == "RENAME":
            target = query["destination"]
            assert query["renameoptions"] == "NONE"
            self._status(path)
            if target in self.files:
                raise Refuse("FileAlreadyExistsException", f"{target} already exists")
            for each in self._tree(path):
                self.put(target + each[len(path) :], self.files.pop(each))
            return 200, {}, b""
        return 200, {"Content-Type": "application/json"}, json.dumps(answer).encode()

    def _tree(self, path: str) -> List[str]:
        return [each for each in self.files if each == path or each.startswith(path + "/")]

    def _status(self, path: str) -> Dict[str, Any]:
        if path not in self.files:
            raise Refuse("FileNotFoundException", f"File does not exist: {path}", 404)
        content = self.files[path]
        return {
            "type": "DIRECTORY" if content is None else "FILE",
            "length": len(content or b""),
            "modificationTime": self.changed.get(path, 1),
            "pathSuffix": "",
        }

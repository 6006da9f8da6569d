"""The fake's web servers, all behind one port: WebHDFS over a folder, and logs of containers.

Of WebHDFS there is what ``tony_core/files`` asks for, NameNode and DataNode in one; no user
is refused. Logs come as a NodeManager's web service gives them while their application
runs, and from what stands for the log server at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Dict, Optional
from urllib.parse import parse_qsl, unquote, urlsplit

_HDFS = "/webhdfs/v1"
_NODE = "/ws/v1/node/containers/"
_HISTORY = "/ws/v1/applicationhistory/containers/"
LOG_SERVER = "/ws/v1/applicationhistory"

FindLogs = Callable[[str, bool], Optional[Path]]
"""The folder of a container's logs; asked for its node, only while the node has them."""


class Refusal(Exception):
    """An exception of Java's, as JSON."""

    def __init__(self, status: int, name: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.name = name


class Web:
    """The server, in threads of its own."""

    def __init__(self, root: Path, find_logs: FindLogs) -> None:
        root.mkdir(parents=True, exist_ok=True)
        handler = type("Handler", (_Handler,), {"root": root, "find_logs": staticmethod(find_logs)})
        self._server = ThreadingHTTPServer(("0.0.0.0", 0), handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="fakeyarn-web"
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    root: Path
    find_logs: FindLogs
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    do_PUT = do_POST = do_DELETE = do_GET

    def _serve(self) -> None:
        self.close_connection = True  # a socket that a client keeps is one of this process too
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        try:
            if path.startswith(_HDFS):
                self._hdfs(path[len(_HDFS) :] or "/", query)
            elif path.startswith(_NODE):
                self._logs(path[len(_NODE) :], query, on_node=True)
            elif path.startswith(_HISTORY):
                self._logs(path[len(_HISTORY) :], query, on_node=False)
            else:
                raise Refusal(404, "NotFoundException", f"there is no {path} here")
        except Refusal as error:
            answer = {
                "exception": error.name,
                "javaClassName": f"java.io.{error.name}",
                "message": str(error),
            }
            self._json({"RemoteException": answer}, error.status)
        except (BrokenPipeError, ConnectionResetError):
            pass

    # ---------------------------------------------------------------- answering

    def _json(self, answer: Any, status: int = 200) -> None:
        self._send(json.dumps(answer).encode(), "application/json", status)

    def _send(
        self, data: bytes, kind: str = "application/octet-stream", status: int = 200, to: str = ""
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        if to:
            self.send_header("Location", to)
        self.end_headers()
        self.wfile.write(data)

    # ---------------------------------------------------------------- WebHDFS

    def _hdfs(self, path: str, query: Dict[str, str]) -> None:
        operation = query.get("op", "").upper()
        step = getattr(self, f"_op_{operation.lower()}", None)
        if step is None:
            raise Refusal(400, "IllegalArgumentException", f"Invalid value for op: {operation}")
        step(path, query)

    def _place(self, path: str) -> Path:
        return self.root / path.strip("/")

    def _there(self, path: str) -> Path:
        place = self._place(path)
        if not place.exists():
            raise Refusal(404, "FileNotFoundException", f"File does not exist: {path}")
        return place

    def _op_getfilestatus(self, path: str, query: Dict[str, str]) -> None:
        self._json({"FileStatus": _status(self._there(path), "")})

    def _op_liststatus_batch(self, path: str, query: Dict[str, str]) -> None:
        place = self._there(path)
        if place.is_dir():
            names = sorted(one.name for one in place.iterdir())
            found = [
                _status(place / one, one) for one in names if one > query.get("startAfter", "")
            ]
        else:
            found = [_status(place, "")]
        listing = {"FileStatuses": {"FileStatus": found}}
        self._json({"DirectoryListing": {"partialListing": listing, "remainingEntries": 0}})

    def _op_getcontentsummary(self, path: str, query: Dict[str, str]) -> None:
        place = self._there(path)
        every = [place, *place.rglob("*")]
        size = sum(one.stat().st_size for one in every if one.is_file())
        self._json(
            {
                "ContentSummary": {
                    "directoryCount": sum(one.is_dir() for one in every),
                    "fileCount": sum(one.is_file() for one in every),
                    "length": size,
                    "quota": -1,
                    "spaceConsumed": size,
                    "spaceQuota": -1,
                }
            }
        )

    def _op_mkdirs(self, path: str, query: Dict[str, str]) -> None:
        place = self._place(path)
        missing = [one for one in (place, *place.parents) if not one.exists()]
        try:
            place.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            text = f"Path is not a directory: {path}"
            raise Refusal(403, "FileAlreadyExistsException", text) from None
        mode = int(query.get("permission", "755"), 8)
        for one in missing:
            one.chmod(mode if one == place else mode | 0o300)
        self._json({"boolean": True})

    def _op_delete(self, path: str, query: Dict[str, str]) -> None:
        place = self._place(path)
        there = place.exists()
        if place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
        elif there:
            place.unlink(missing_ok=True)
        self._json({"boolean": there})

    def _op_setpermission(self, path: str, query: Dict[str, str]) -> None:
        self._there(path).chmod(int(query["permission"], 8))
        self._send(b"")

    def _op_rename(self, path: str, query: Dict[str, str]) -> None:
        source, target = self._place(path), self._place(query["destination"])
        if not source.exists():
            text = f"rename source {path} is not found."
            raise Refusal(404, "FileNotFoundException", text)
        if not target.parent.is_dir():
            text = f"rename destination parent {query['destination']} not found."
            raise Refusal(404, "FileNotFoundException", text)
        if target.exists() and (query.get("renameoptions") != "OVERWRITE" or target.is_dir()):
            text = f"rename destination {query['destination']} already exists"
            raise Refusal(403, "FileAlreadyExistsException", text)
        os.replace(source, target)
        self._send(b"")

    def _op_open(self, path: str, query: Dict[str, str]) -> None:
        place = self._there(path)
        if "data" not in query:
            self._lead()
            return
        offset = int(query.get("offset", "0"))
        if offset > place.stat().st_size:
            text = f"Offset={offset} out of the range [0, {place.stat().st_size}); OPEN"
            raise Refusal(403, "IOException", text)
        with place.open("rb") as file:
            file.seek(offset)
            self._send(file.read())

    def _op_getfilechecksum(self, path: str, query: Dict[str, str]) -> None:
        place = self._there(path)
        if "data" not in query:
            self._lead()
            return
        found = hashlib.md5(place.read_bytes(), usedforsecurity=False).hexdigest()
        answer = {"algorithm": "MD5-of-0MD5-of-512CRC32C", "bytes": found, "length": 28}
        self._json({"FileChecksum": answer})

    def _op_create(self, path: str, query: Dict[str, str]) -> None:
        place = self._place(path)
        if not place.parent.is_dir():
            if query.get("createparent") == "false":
                text = f"Parent directory doesn't exist: {os.path.dirname(path)}"
                raise Refusal(404, "FileNotFoundException", text)
            place.parent.mkdir(parents=True)
        if "data" not in query:
            self._lead()
            return
        with place.open("xb" if query.get("overwrite") == "false" else "wb") as file:
            self._copy_body(file)
        place.chmod(int(query.get("permission", "644"), 8))
        self._send(b"", status=201)

    def _lead(self) -> None:
        """To the DataNode, which is here too."""
        address = self.request.getsockname()
        self._send(b"", status=307, to=f"http://{address[0]}:{address[1]}{self.path}&data=1")

    def _copy_body(self, file: Any) -> None:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            file.write(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
            return
        while True:
            size = int(self.rfile.readline().split(b";")[0], 16)
            file.write(self.rfile.read(size))
            self.rfile.readline()
            if not size:
                return

    # ---------------------------------------------------------------- logs

    def _logs(self, rest: str, query: Dict[str, str], *, on_node: bool) -> None:
        container, _, name = rest.partition("/logs")
        folder = self.find_logs(container, on_node)
        if folder is None or not folder.is_dir():
            raise Refusal(404, "NotFoundException", f"Unknown container {container}")
        name = name.strip("/")
        if not name:
            files = sorted(one for one in folder.iterdir() if one.is_file())
            answer = [{"fileName": one.name, "fileSize": str(one.stat().st_size)} for one in files]
            self._json(
                {"containerLogsInfo": {"containerLogInfo": answer, "containerId": container}}
            )
            return
        path = folder / name
        if not path.is_file():
            text = f"Cannot find this log on the local disk. {name}"
            raise Refusal(404, "NotFoundException", text)
        data = path.read_bytes()
        length = len(data)
        size = int(query.get("size", length))
        part = data[:size] if size >= 0 else data[size:]
        head = (
            f"Container: {container}\nLogAggregationType: LOCAL\n{'=' * 20}\n"
            f"LogType:{name}\nLogLastModifiedTime:Thu Jan 01 00:00:00 +0000 1970\n"
            f"LogLength:{length}\nLogContents:\n"
        )
        tail = f"\nEnd of LogType:{name}"
        if on_node:
            tail += (
                f".This log file belongs to a running container ({container}) and so may not be"
                " complete."
            )
        self._send(head.encode() + part + tail.encode() + b"\n\n\n", "text/plain; charset=utf-8")


def _status(place: Path, name: str) -> Dict[str, Any]:
    stat = place.stat()
    folder = place.is_dir()
    return {
        "accessTime": 0,
        "blockSize": 0 if folder else 128 << 20,
        "group": "supergroup",
        "length": 0 if folder else stat.st_size,
        "modificationTime": stat.st_mtime_ns // 1_000_000,
        "owner": "root",
        "pathSuffix": name,
        "permission": f"{stat.st_mode & 0o777:o}",
        "replication": 0 if folder else 1,
        "type": "DIRECTORY" if folder else "FILE",
    }

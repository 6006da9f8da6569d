"""A scheduler that does what a test says, and a real HTTP server that is a job's page."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type
from urllib.parse import parse_qs, urlsplit

from tony_core.files.artifact import Artifact
from tony_core.job.spec import Job
from tony_core.schedulers.port import (
    AppState,
    AppStatus,
    Cleaner,
    LifetimeLimit,
    LogReader,
    LogRef,
    NoSuchApplication,
    Scheduler,
    SchedulerError,
    Submission,
)

APP = "app_1_0001"


def status(app_id: str = APP, state: AppState = AppState.RUNNING, **words: Any) -> AppStatus:
    """One application's status."""
    words.setdefault("submitted", 1000.0)
    return AppStatus(app_id, "mnist", "ann", "default", state, **words)


class Scripted(Scheduler, LogReader, Cleaner):
    """In memory; a test sets what it answers."""

    name = "scripted"

    def __init__(self, root: str = "", *apps: AppStatus) -> None:
        self.root = root
        self.apps: Dict[str, AppStatus] = {app.app_id: app for app in apps}
        self.problems: List[str] = []
        self.submitted: List[Tuple[str, Submission, bytes]] = []
        self.refusal: Optional[BaseException] = None
        self.unreachable: Optional[str] = None
        self.asked = 0
        self.killed: List[Tuple[str, str]] = []
        self.logs: Dict[Tuple[str, str], bytes] = {}
        self.on_status: Optional[Callable[[int], None]] = None
        self.closed = 0
        self.kill_takes: Optional[threading.Event] = None
        self.garbage: List[str] = []
        self.limit: Optional[LifetimeLimit] = None

    @property
    def log_reader(self) -> Scripted:
        return self

    @property
    def cleaner(self) -> Scripted:
        return self

    def lifetime_limit(self, app_id: str) -> Optional[LifetimeLimit]:
        return self.limit

    def set(self, app_id: str = APP, **changes: Any) -> None:
        """Change what is answered for an application."""
        self.apps[app_id] = self.apps[app_id]._replace(**changes)

    def staging_root(self, job: Optional[Job] = None) -> str:
        return (job.yarn.staging_dir if job is not None else None) or self.root

    def new_app_id(self, job: Job) -> str:
        return f"app_1_{len(self.apps) + 1:04d}"

    def check(self, job: Job) -> List[str]:
        return self.problems

    def dry_run(self, app_id: str, job: Job, artifacts: Sequence[Artifact]) -> Submission:
        details = {"app_id": app_id, "argv": ["python3", "master"], "secret": "never shown"}
        return Submission(self.name, job, tuple(artifacts), details)

    def submit(self, app_id: str, submission: Submission, secret: bytes) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.submitted.append((app_id, submission, secret))
        self.apps[app_id] = status(app_id, submitted=time.time())

    def status(self, app_id: str) -> AppStatus:
        self.asked += 1
        if self.on_status is not None:
            self.on_status(self.asked)
        if self.unreachable is not None:
            raise SchedulerError(self.unreachable)
        if app_id not in self.apps:
            raise NoSuchApplication(f"no application {app_id}")
        return self.apps[app_id]

    def list(self) -> List[AppStatus]:
        return sorted(self.apps.values(), key=lambda app: -app.submitted)

    def kill(self, app_id: str, reason: str) -> None:
        self.killed.append((app_id, reason))
        if self.kill_takes is not None:
            self.kill_takes.wait(10)
        if not self.apps[app_id].state.ended:
            self.set(app_id, state=AppState.KILLED, finished=time.time(), diagnostics=reason)

    def list_logs(self, app_id: str, ref: LogRef) -> List[str]:
        return sorted(name for container, name in self.logs if container == ref.container_id)

    def read_log(
        self, app_id: str, ref: LogRef, name: str, offset: int, limit: int = 1 << 20
    ) -> bytes:
        return self.logs.get((ref.container_id, name), b"")[offset : offset + limit]

    def history_root(self, job: Optional[Job] = None) -> Optional[str]:
        return f"{self.root}/history" if self.root else None

    def collect_garbage(self, older_than_s: float, dry_run: bool = False) -> Iterator[str]:
        yield from self.garbage

    def close(self) -> None:
        self.closed += 1


OPENED: List[Scripted] = []


def open_last(env: Optional[Mapping[str, str]] = None) -> Scripted:
    """What a scheduler's name opens in a test: the one that was put here last."""
    return OPENED[-1]


class PageServer:
    """A job's page on a port of its own; a test sets what it answers."""

    def __init__(self) -> None:
        self.job: Dict[str, Any] = {"app_id": APP, "name": "mnist", "state": "RUNNING"}
        self.tasks: List[Dict[str, Any]] = []
        self.events: List[Dict[str, Any]] = []
        self.requests: List[str] = []
        self.headers: List[Mapping[str, str]] = []
        self.silent = threading.Event()  # set: no answer ever comes
        self.raw: Optional[bytes] = None  # answered to everything, when set
        self.redirect: Optional[str] = None
        self.refusal: Optional[Tuple[int, str]] = None  # status and text
        self._changed = threading.Condition()
        self._over = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 10
            wbufsize = 1 << 16  # head and body together: no wait for an acknowledgement

            def do_GET(self) -> None:
                outer._answer(self)

            def do_PUT(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"] or 0))
                outer._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def tell(self, *texts: str, kind: str = "note") -> None:
        """Add lines to the story."""
        with self._changed:
            for text in texts:
                n = (self.events[-1]["n"] if self.events else 0) + 1
                self.events.append(event(n, text, kind))
            self._changed.notify_all()

    def __enter__(self) -> PageServer:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop answering."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self.silent.clear()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests.append(handler.path)
        self.headers.append(dict(handler.headers))
        end = time.monotonic() + 8
        while self.silent.is_set() and time.monotonic() < end:
            time.sleep(0.01)
        if self.redirect is not None:
            self._send(handler, 302, b"", {"Location": self.redirect + handler.path})
            return
        if self.refusal is not None:
            code, text = self.refusal
            self._send(handler, code, text.encode(), {"Content-Type": "text/plain"})
            return
        if self.raw is not None:
            self._send(handler, 200, self.raw, {})
            return
        url = urlsplit(handler.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        routes: Dict[str, Callable[[], Any]] = {
            "/api/job": lambda: self.job,
            "/api/tasks": lambda: {"tasks": self.tasks},
            "/api/events": lambda: self._since(int(query["since"]), float(query["wait"])),
        }
        if url.path not in routes:
            self._send(handler, 404, b"no", {})
            return
        self._send(handler, 200, json.dumps(routes[url.path]()).encode(), {})

    def _since(self, number: int, wait_s: float) -> Any:
        end = time.monotonic() + wait_s
        with self._changed:
            while True:
                found = [item for item in self.events if item["n"] > number]
                left = end - time.monotonic()
                if found or left <= 0 or self._over:
                    return {"events": found, "next": found[-1]["n"] if found else number}
                self._changed.wait(left)

    @staticmethod
    def _send(
        handler: BaseHTTPRequestHandler, code: int, body: bytes, headers: Mapping[str, str]
    ) -> None:
        try:
            handler.send_response(code)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
        except OSError:
            pass  # the reader went away


def event(n: int, text: str, kind: str = "note") -> Dict[str, Any]:
    """One line of a story."""
    return {
        "n": n,
        "time": 1000.0 + n,
        "kind": kind,
        "text": text,
        "weight": "info",
        "task": "",
        "session": 0,
        "fields": {},
    }


def task(name: str = "worker:0", state: str = "running", **words: Any) -> Dict[str, Any]:
    """One task as the page says it."""
    role, _, index = name.partition(":")
    return {"task": name, "role": role, "index": int(index), "state": state, "session": 0, **words}

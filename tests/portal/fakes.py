"""A portal's parts held in memory: an index, sources, endings and a login."""

from __future__ import annotations

from typing import (
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
)

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from tony_core.history.configuration import ConfigEntry
from tony_core.history.metric_file import Wanted
from tony_core.history.reader import JobHistory
from tony_core.portal.app import create_app
from tony_core.portal.index.queries import BadQuery
from tony_core.portal.index.rows import JobPage, JobRow, Query, Usage
from tony_core.portal.job_source import LogChunk, LogProblem
from tony_core.portal.settings import HistoryLocation, Settings
from tony_core.portal.site import TensorBoardOpener
from tony_core.portal.viewer import Viewer, may_view
from tony_core.view import HISTORY, JobView, read_job

NASTY = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;{{7*7}}"
ANN = Viewer("ann")


class FakeIndex:
    """Some rows."""

    def __init__(self, *rows: JobRow) -> None:
        self.held = list(rows)
        self.asked: List[Query] = []
        self.sums: Sequence[Usage] = ()

    def page(self, query: Query, viewer: Viewer) -> JobPage:
        self.asked.append(query)
        if query.after not in ("", "10"):
            raise BadQuery("after: the cursor is of another list")
        if query.sort.lstrip("-") not in ("submitted", "name"):
            raise BadQuery(f"sort: unknown column {query.sort!r}")
        rows = [row for row in self.held if self._shows(row, query, viewer)]
        begin = int(query.after or 0)
        shown = tuple(rows[begin : begin + query.limit])
        return JobPage(shown, "10" if begin + query.limit < len(rows) else "", len(rows))

    def _shows(self, row: JobRow, query: Query, viewer: Viewer) -> bool:
        text = " ".join([row.name, row.app_id, row.owner, row.error, *row.tags]).lower()
        return (
            may_view(viewer, frozenset(row.readers))
            and (not query.state or row.state in query.state)
            and all(word in text for word in query.q.lower().split())
        )

    def rows(self, app_id: str, viewer: Viewer) -> Sequence[JobRow]:
        readable = [row for row in self.held if may_view(viewer, frozenset(row.readers))]
        return [row for row in readable if row.app_id == app_id]

    def runs(
        self,
        viewer: Viewer,
        pipeline: str = "",
        tag: str = "",
        since: float = 0.0,
        owner: str = "",
    ) -> Sequence[JobRow]:
        found = [
            row
            for row in self.held
            if may_view(viewer, frozenset(row.readers))
            and pipeline in ("", row.pipeline)
            and (not tag or tag in row.tags)
            and row.submitted >= since
            and owner in ("", row.owner)
        ]
        return sorted(found, key=lambda row: row.submitted)

    def usage(self, by: str, viewer: Viewer, since: float = 0.0) -> Sequence[Usage]:
        if by not in ("user", "queue", "pipeline"):
            raise BadQuery(f"by: unknown {by!r}")
        return self.sums

    def facets(self, viewer: Viewer) -> Mapping[str, Mapping[str, int]]:
        return {"user": {row.owner: 1 for row in self.held}, "state": {"RUNNING": 3}}


class FakeSource:
    """One job."""

    def __init__(self, row: JobRow, record: JobHistory, running: bool = False) -> None:
        self.row = row
        self.held = record
        self.is_running = running
        self.logs: Dict[Tuple[str, str], bytes] = {}
        self.begins: Mapping[int, int] = {}
        self.entries: Tuple[ConfigEntry, ...] = ()
        self.data: Optional[bytes] = None
        self.more: Dict[str, str] = {}

    def record(
        self, events: bool = True, metrics: Wanted = True, known: Optional[JobView] = None
    ) -> JobHistory:
        return self.held

    def view(self) -> JobView:
        return read_job(self.held.job, self.held.tasks, HISTORY, self.row.app_id)

    def metrics_json(self) -> Optional[bytes]:
        return None

    def events(self, since: int) -> Tuple[List[Mapping[str, Any]], int]:
        found = [event for event in self.held.events if event["n"] > since]
        return found, max((event["n"] for event in self.held.events), default=0)

    def config(self) -> Tuple[ConfigEntry, ...]:
        return self.entries

    def config_file(self) -> Optional[bytes]:
        return self.data

    def streams(self, task: str) -> Tuple[Tuple[str, str], ...]:
        return tuple(("c1", name) for its_task, name in self.logs if its_task == task)

    def sessions(self, task: str, name: str, container: str) -> Mapping[int, int]:
        return self.begins

    def log(self, task: str, name: str, container: str, offset: int, limit: int) -> LogChunk:
        data = self.logs.get((task, name))
        if data is None:
            raise LogProblem(f"there is no {name} of {task}")
        begin = max(0, len(data) + offset) if offset < 0 else min(offset, len(data))
        return LogChunk(data[begin : begin + limit], begin, len(data), not self.is_running)

    def links(self) -> Mapping[str, str]:
        return self.more


class FakeEndings:
    """Ends what is the viewer's own."""

    def __init__(self) -> None:
        self.ended: List[str] = []
        self.problem = ""

    def may_end(self, viewer: Viewer, row: JobRow, find_modify_acl: Callable[[], str]) -> bool:
        return viewer.name == row.owner and row.state == "RUNNING"

    def end_job(self, viewer: Viewer, row: JobRow, find_modify_acl: Callable[[], str]) -> str:
        if self.problem:
            raise OSError(self.problem)
        self.ended.append(row.app_id)
        return f"{row.app_id} is ending"


class HasViewer(Protocol):
    """Something with a viewer."""

    @property
    def viewer(self) -> Viewer:
        """Who asks."""


class Always(NamedTuple):
    """The same viewer for every request."""

    viewer: Viewer


class LoggedIn:
    """Every request is of the viewer that its holder has at that time."""

    def __init__(self, app: Any, holder: HasViewer) -> None:
        self._app = app
        self._holder = holder

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {}).update(viewer=self._holder.viewer, csrf="the-token")
        await self._app(scope, receive, send)


class FakePortal:
    """The whole application over these."""

    def __init__(
        self,
        *sources: FakeSource,
        viewer: Optional[Viewer] = ANN,
        locations: Tuple[str, ...] = ("here",),
        tensorboards: Optional[TensorBoardOpener] = None,
    ) -> None:
        self.sources = {(each.row.location, each.row.app_id): each for each in sources}
        self.index = FakeIndex(*(each.row for each in sources))
        self.endings = FakeEndings()
        self.viewer = viewer
        self.log: List[str] = []
        settings = Settings(tuple(HistoryLocation(name, f"/{name}") for name in locations))
        self.app: Starlette = create_app(
            settings,
            self.index,
            lambda row, viewer: self.sources[row.location, row.app_id],
            endings=self.endings,
            tensorboards=tensorboards,
            middleware=[Middleware(LoggedIn, holder=self)],
            log=self.log.append,
        )

    def client(self) -> TestClient:
        return TestClient(self.app, raise_server_exceptions=False, follow_redirects=False)


def a_row(number: int = 1, **changes: Any) -> JobRow:
    """One job of ann's."""
    made = JobRow(
        "here", f"application_1_{number:04d}", "ann", name=f"train-{number}", queue="default",
        framework="pytorch", state="SUCCEEDED", submitted=1.7e9 + number, started=1.7e9 + number,
        finished=1.7e9 + number + 61, tasks=2, readers=("user:ann",),
        figures={"gpu_hours": 1.5, "waiting_s": 3.0},
    )  # fmt: skip
    return made._replace(**changes)


def a_task(name: str, **changes: Any) -> Dict[str, Any]:
    """As the page's JSON has it."""
    role, _, index = name.partition(":")
    run = {"session": 0, "container": f"c-{index}", "node": "node1", "log_url": "", "state": "",
           "exit_code": None, "offsets": {}}  # fmt: skip
    return {
        "task": name, "role": role, "index": int(index), "state": "succeeded", "session": 0,
        "container": f"c-{index}", "node": "node1", "exit_code": 0, "duration_s": 60.0,
        "started": 1.7e9, "runs": [run], **changes,
    }  # fmt: skip


def an_event(number: int, text: str, weight: str = "info") -> Dict[str, Any]:
    """A line of a story."""
    return {"n": number, "time": 1.7e9 + number, "kind": "task-state", "text": text,
            "weight": weight, "task": "", "session": 0, "fields": {}}  # fmt: skip


def a_source(row: Optional[JobRow] = None, running: bool = False, **changes: Any) -> FakeSource:
    """A job with two workers and a loss."""
    row = row or a_row(state="RUNNING" if running else "SUCCEEDED")
    line = [[1.7e9 + at, 5.0 - at / 10] for at in range(40)]
    job = {
        "app_id": row.app_id, "state": row.state, "name": row.name, "user": row.owner,
        "queue": row.queue, "framework": "pytorch", "submitted": row.submitted,
        "started": row.started, "finished": None if running else row.finished,
        "description": "pytorch: 2 x worker", "progress": 0.5,
    }  # fmt: skip
    record = JobHistory(
        row.app_id,
        {**job, **changes.pop("job", {})},
        changes.pop("tasks", (a_task("worker:0"), a_task("worker:1"))),
        changes.pop("metrics", {"task": {"worker:0": {"loss": line, "rss_mb": line}}}),
        changes.pop("events", (an_event(1, "session 0 began"), an_event(2, "worker:0 running"))),
        changes.pop("problems", ()),
    )
    made = FakeSource(row, record, running)
    made.logs = {("worker:0", "stdout"): b"hello\n", ("worker:0", "stderr"): b"oh\n"}
    made.entries = (
        ConfigEntry("tony.worker.instances", "2", "tony.xml"),
        ConfigEntry("tony.worker.memory", "2g", "default"),
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made

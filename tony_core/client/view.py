"""One job as the client sees it, whoever told: the page, history, or the scheduler alone.

The scheduler's word on the state wins over the page's and over history's, because a master
may have died in the middle of a sentence.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple
from urllib.parse import urlsplit

from tony_core.jsontext import is_number
from tony_core.schedulers.port import AppState, AppStatus, LogRef

PAGE, HISTORY, SCHEDULER = "page", "history", "scheduler"
TASK_ENDS = ("succeeded", "failed", "killed", "lost")
MASTER = "am"  # the word for a master among the containers that only the scheduler knows


@dataclass(frozen=True)
class RunView:
    """One container that ran a task in one session; ``offsets``: where its output begins."""

    session: int
    container: str
    node: str = ""
    log_url: str = ""
    state: str = ""
    exit_code: Optional[int] = None
    offsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """One session's part of a log; ``end`` is None while (or because) no later one begins."""

    begin: int = 0
    end: Optional[int] = None
    next_is_near: bool = False  # a later session is there, and has not begun to write


@dataclass(frozen=True)
class TaskView:
    """One task; ``started`` and ``ended`` are seconds since the epoch."""

    task: str
    role: str = ""
    index: int = 0
    tracking: str = "tracked"
    state: str = "pending"
    session: int = -1
    container: str = ""
    node: str = ""
    host: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)
    log_url: str = ""
    pid: int = 0
    gpus: Tuple[str, ...] = ()  # as CUDA names them
    exit_code: Optional[int] = None
    signal: int = 0
    cause: str = ""
    message: str = ""
    stderr_tail: Tuple[str, ...] = ()
    started: Optional[float] = None
    ended: Optional[float] = None
    duration_s: Optional[float] = None
    usage: Mapping[str, float] = field(default_factory=dict)
    measures: Mapping[str, float] = field(default_factory=dict)
    reported: Mapping[str, float] = field(default_factory=dict)
    progress: Optional[float] = None
    restarts: int = 0  # how often it was started again alone in its session
    runs: Tuple[RunView, ...] = ()

    @property
    def has_ended(self) -> bool:
        """Whether it is over in its session."""
        return self.state in TASK_ENDS

    def log_refs(self) -> Tuple[LogRef, ...]:
        """Every container it ever ran in, in order, each once."""
        found: Dict[str, LogRef] = {}
        for run in self.runs:
            if run.container:
                found.setdefault(run.container, LogRef(run.container, run.node, run.log_url))
        if self.container:
            found.setdefault(self.container, LogRef(self.container, self.node, self.log_url))
        return tuple(found.values())

    def sessions_in(self, container_id: str) -> Tuple[int, ...]:
        """The sessions in which it ran in that container."""
        found = {run.session for run in self.runs if run.container == container_id}
        if self.container == container_id and self.session >= 0:
            found.add(self.session)
        return tuple(sorted(found))

    def part_of(self, container_id: str, name: str, session: int) -> Optional[Part]:
        """What a session wrote to a log of a container; None is nothing (yet).

        The whole, where nobody said at which byte a session begins.
        """
        if session not in self.sessions_in(container_id):
            return None
        runs = [run for run in self.runs if run.container == container_id]
        if not any(name in run.offsets for run in runs):
            return Part()
        begins = [
            run.offsets[name] for run in runs if run.session == session and name in run.offsets
        ]
        if not begins:
            return None  # its program was not started
        later = [run for run in runs if run.session > session]
        ends = [run.offsets[name] for run in later if name in run.offsets]
        return Part(min(begins), min(ends, default=None), bool(later) and not ends)


@dataclass(frozen=True)
class JobView:
    """One job."""

    app_id: str
    state: AppState
    source: str  # page, history or scheduler: who told the rest
    name: str = ""
    user: str = ""
    queue: str = ""
    framework: str = ""
    session: int = -1
    attempt: int = 0
    progress: float = 0.0
    submitted: Optional[float] = None
    started: Optional[float] = None
    finished: Optional[float] = None
    waiting: str = ""
    diagnostics: str = ""
    description: str = ""
    root_cause: Mapping[str, Any] = field(default_factory=dict)
    budgets: Mapping[str, Any] = field(default_factory=dict)
    elastic: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # role -> there, of
    links: Mapping[str, str] = field(default_factory=dict)
    tags: Tuple[str, ...] = ()
    tasks: Tuple[TaskView, ...] = ()
    result: Any = None  # what the chief gave by tony.result()

    @property
    def counts(self) -> Dict[str, int]:
        """How many tasks stand in which state; a master is none."""
        found: Dict[str, int] = {}
        for task in self.tasks:
            if task.task == MASTER:
                continue
            found[task.state] = found.get(task.state, 0) + 1
        return found

    @property
    def sizes(self) -> str:
        """How many of each elastic role are there: ``worker 3 of 2..4``; while it goes on."""
        if self.state.ended:
            return ""
        return ", ".join(
            f"{role} {size['there']} of {size['least']}..{size['most']}"
            for role, size in self.elastic.items()
        )

    def duration_s(self, now: float) -> Optional[float]:
        """How long it has taken since it was submitted."""
        begin = self.submitted or self.started
        if not begin:
            return None
        # What the tasks took is by their master's clock, which nobody sets back.
        known = [task.started + (task.duration_s or 0.0) for task in self.tasks if task.started]
        return max(0.0, (self.finished or max([now, *known])) - begin)

    def to_json(self) -> Dict[str, Any]:
        """Plain data: what ``--json`` prints (docs/json.md)."""
        data = asdict(self)
        data["state"] = self.state.value
        return data


def from_status(status: AppStatus) -> JobView:
    """All that the scheduler alone knows."""
    links = {}
    if not status.state.ended and (status.tracking_url or status.page_url):
        links["page"] = str(status.tracking_url or status.page_url)
    return JobView(
        app_id=status.app_id,
        state=status.state,
        source=SCHEDULER,
        name=status.name,
        user=status.user,
        queue=status.queue,
        attempt=status.attempt,
        progress=status.progress,
        submitted=status.submitted or None,
        started=status.started,
        finished=status.finished,
        diagnostics=status.diagnostics,
        links=links,
        tags=status.tags,
    )


def from_page(
    job: Mapping[str, Any],
    tasks: Iterable[Mapping[str, Any]],
    status: Optional[AppStatus] = None,
    source: str = PAGE,
    app_id: str = "",
) -> JobView:
    """What the page (or history, in the same shapes) says, under the scheduler's word."""
    base = from_status(status) if status is not None else None
    state = _state(job.get("state"), AppState.RUNNING)
    if base is not None and (base.state.ended or not state.ended):
        state = base.state
    links = dict(base.links) if base is not None else {}
    links.update(_found_from_here(_mapping(job.get("links")), links.get("page")))
    if state.ended:
        links = lasting(links)

    def pick(name: str, fallback: Any) -> Any:
        value = job.get(name)
        if value not in (None, "", 0):
            return value
        told = getattr(base, name, None)
        return told if told not in (None, "", 0) else fallback

    return JobView(
        app_id=str(job.get("app_id") or app_id or (base.app_id if base else "")),
        state=state,
        source=source,
        name=str(pick("name", "")),
        user=str(pick("user", "")),
        queue=str(pick("queue", "")),
        framework=str(job.get("framework") or ""),
        session=_int(job.get("session"), -1),
        attempt=_int(pick("attempt", 0), 0),
        progress=1.0 if state is AppState.SUCCEEDED else _seconds(pick("progress", 0.0)) or 0.0,
        submitted=(base and base.submitted) or _seconds(pick("submitted", None)),
        started=_seconds(pick("started", None)),
        finished=_seconds(pick("finished", None)) if state.ended else None,
        waiting="" if state.ended else str(job.get("waiting") or ""),
        diagnostics=str(pick("diagnostics", "")),
        description=str(job.get("description") or ""),
        root_cause=_mapping(job.get("root_cause")),
        budgets=_mapping(job.get("budgets")),
        elastic=_elastic(job.get("elastic")),
        links=links,
        tags=_texts(pick("tags", ())),
        result=job.get("result"),
        tasks=tuple(task_view(task) for task in tasks),
    )


def _found_from_here(told: Mapping[str, Any], page: Optional[str]) -> Dict[str, str]:
    """The page's links; those to itself as they are reached from here, through a proxy maybe."""
    found = {str(name): str(url) for name, url in told.items() if url}
    own = found.get("page")
    if page and own and page.endswith("/"):
        for name, url in found.items():
            if url.startswith(own):
                found[name] = page + url[len(own) :]
    return found


def lasting(links: Any) -> Dict[str, str]:
    """What still leads somewhere when the master is gone: not its page, nor its TensorBoard."""
    found = {str(name): str(url) for name, url in _mapping(links).items() if url}
    page = found.pop("page", "")
    return {name: url for name, url in found.items() if not is_of_master(name, url, page)}


def is_of_master(name: str, url: str, page: str) -> bool:
    """Whether a job's master answers at its link ``name``, by where its page is.

    TensorBoard has a port of its own there, or is below the page.
    """
    if not page:
        return False
    beside = name == "tensorboard" and _host_of(url) == _host_of(page) != ""
    return beside or url.startswith(page)


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def end_of(state: str, job: AppState) -> str:
    """What became of a task (or a run) in a job that ended so, when nobody heard it.

    It was lost with the master, or killed with the job; and what was not begun never was.
    """
    if state in TASK_ENDS or state == "pending" or job is AppState.SUCCEEDED:
        return state
    return "killed" if job in (AppState.KILLED, AppState.TIMED_OUT) else "lost"


def closed(view: JobView) -> JobView:
    """A job that has ended as one whose master could not tell has no task that goes on."""
    if not view.state.ended:
        return view
    tasks = tuple(
        task
        if end_of(task.state, view.state) == task.state
        else replace(
            task,
            state=end_of(task.state, view.state),
            runs=tuple(replace(run, state=end_of(run.state, view.state)) for run in task.runs),
        )
        for task in view.tasks
    )
    return replace(view, tasks=tasks)


def with_containers(view: JobView, containers: Iterable[Tuple[str, LogRef]]) -> JobView:
    """The same view with the containers that only the scheduler knows of."""
    tasks = {task.task: task for task in view.tasks}
    known = {ref.container_id for task in view.tasks for ref in task.log_refs()}
    for name, ref in containers:
        if ref.container_id in known:
            continue
        task = tasks.get(name) or task_view({"task": name, "state": "launched"})
        run = RunView(task.session, ref.container_id, ref.node, ref.url)
        tasks[name] = replace(
            task,
            container=task.container or ref.container_id,
            node=task.node or ref.node,
            log_url=task.log_url or ref.url,
            runs=(*task.runs, run),
        )
    return replace(view, tasks=tuple(tasks.values()))


def under_status(view: JobView, status: AppStatus) -> JobView:
    """The same view with the scheduler's newer word on the state."""
    if not status.state.ended:
        return view
    return replace(
        view,
        state=status.state,
        waiting="",
        finished=status.finished or view.finished,
        diagnostics=status.diagnostics or view.diagnostics,
        links=lasting(view.links),
    )


def task_view(data: Mapping[str, Any]) -> TaskView:
    """One task from the page's or history's JSON; what is missing has its default."""
    name = str(data.get("task", "?"))
    role, _, index = name.rpartition(":")
    return TaskView(
        task=name,
        role=str(data.get("role") or role),
        index=_int(data.get("index"), _int(index, 0)),
        tracking=str(data.get("tracking") or "tracked"),
        state=str(data.get("state") or "pending"),
        session=_int(data.get("session"), -1),
        container=str(data.get("container") or ""),
        node=str(data.get("node") or ""),
        host=str(data.get("host") or ""),
        ports={str(k): _int(v, 0) for k, v in _mapping(data.get("ports")).items()},
        log_url=str(data.get("log_url") or ""),
        pid=_int(data.get("pid"), 0),
        gpus=_texts(data.get("gpus")),
        exit_code=_optional_int(data.get("exit_code")),
        signal=_int(data.get("signal"), 0),
        cause=str(data.get("cause") or ""),
        message=str(data.get("message") or ""),
        stderr_tail=_texts(data.get("stderr_tail")),
        started=_seconds(data.get("started")),
        ended=_seconds(data.get("ended")),
        duration_s=_seconds(data.get("duration_s")),
        usage=_numbers(data.get("usage")),
        measures=_numbers(data.get("measures")),
        reported=_numbers(data.get("reported")),
        progress=_seconds(data.get("progress")),
        restarts=_int(data.get("restarts"), 0),
        runs=tuple(_run(run) for run in _list(data.get("runs"))),
    )


def _run(data: Mapping[str, Any]) -> RunView:
    return RunView(
        session=_int(data.get("session"), -1),
        container=str(data.get("container") or ""),
        node=str(data.get("node") or ""),
        log_url=str(data.get("log_url") or ""),
        state=str(data.get("state") or ""),
        exit_code=_optional_int(data.get("exit_code")),
        offsets={str(k): _int(v, 0) for k, v in _mapping(data.get("offsets")).items()},
    )


def _state(value: Any, fallback: AppState) -> AppState:
    try:
        return AppState(value)
    except ValueError:
        return fallback


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _elastic(value: Any) -> Dict[str, Dict[str, int]]:
    return {
        str(role): {name: _int(_mapping(size).get(name), 0) for name in ("there", "least", "most")}
        for role, size in _mapping(value).items()
    }


def _texts(value: Any) -> Tuple[str, ...]:
    return tuple(str(text) for text in value) if isinstance(value, (list, tuple)) else ()


def _list(value: Any) -> List[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _numbers(value: Any) -> Dict[str, float]:
    return {str(name): number for name, number in _mapping(value).items() if is_number(number)}


def _int(value: Any, fallback: int) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return fallback


def _optional_int(value: Any) -> Optional[int]:
    return None if value is None else _int(value, 0)


def _seconds(value: Any) -> Optional[float]:
    return float(value) if is_number(value) else None

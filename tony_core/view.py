"""What a job, its tasks and their runs look like from outside.

One set of records for all who show a job: the master fills them (:mod:`tony_core.master.view`), its
page and the history hold them as JSON, and the client reads that JSON again. Reading is lenient:
what is missing or odd gets its default, since another version, or damage, may have written it.
``docs/json.md`` describes every field.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import urlsplit

from tony_core.jsontext import is_number
from tony_core.schedulers.port import AppState, LogRef

PAGE, HISTORY, SCHEDULER = "page", "history", "scheduler"
TASK_ENDS = ("succeeded", "failed", "killed", "lost", "ended")  # ended: nothing says how
MASTER = "am"  # the master among the containers that only the scheduler knows
#: What only the page and history show, and ``--json`` does not.
_ONLY_PAGE = ("mode", "phase")
ROLE_FACTS = ("instances", "memory_mb", "vcores", "gpus")


class RunView(NamedTuple):
    """One container that ran a task in one session; ``offsets``: where its output begins."""

    session: int
    container: str
    node: str = ""
    log_url: str = ""
    state: str = ""
    exit_code: Optional[int] = None
    offsets: Mapping[str, int] = {}


class LogPart(NamedTuple):
    """One session's part of a log; ``end`` is None while (or because) no later one begins."""

    begin: int = 0
    end: Optional[int] = None
    next_is_near: bool = False  # a later session is there, and has not begun to write


class TaskView(NamedTuple):
    """One task; ``started`` and ``ended`` are seconds since the epoch."""

    task: str
    role: str = ""
    index: int = 0  # type: ignore[assignment]  # hides the tuple's method
    tracking: str = "tracked"
    state: str = "pending"
    session: int = -1
    container: str = ""
    node: str = ""
    host: str = ""
    ports: Mapping[str, int] = {}
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
    usage: Mapping[str, float] = {}
    measures: Mapping[str, float] = {}
    reported: Mapping[str, float] = {}
    progress: Optional[float] = None
    step: Optional[int] = None
    restarts: int = 0  # how often it was restarted within its session
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

    def part_of(self, container_id: str, name: str, session: int) -> Optional[LogPart]:
        """What a session wrote to a log of a container; None is nothing (yet).

        The whole, where it is not known at which byte a session begins.
        """
        if session not in self.sessions_in(container_id):
            return None
        runs = [run for run in self.runs if run.container == container_id]
        if not any(name in run.offsets for run in runs):
            return LogPart()
        begins = [
            run.offsets[name] for run in runs if run.session == session and name in run.offsets
        ]
        if not begins:
            return None  # its program was not started
        later = [run for run in runs if run.session > session]
        ends = [run.offsets[name] for run in later if name in run.offsets]
        return LogPart(min(begins), min(ends, default=None), bool(later) and not ends)

    def to_json(self) -> Dict[str, Any]:
        """An entry of the page's ``/api/tasks``, and of ``tasks`` in history."""
        return {**self._asdict(), "runs": [run._asdict() for run in self.runs]}


class JobView(NamedTuple):
    """One job."""

    app_id: str
    state: AppState
    source: str  # page, history or scheduler: where the rest is from
    name: str = ""
    user: str = ""
    queue: str = ""
    framework: str = ""
    mode: str = ""
    phase: str = ""
    session: int = -1
    attempt: int = 0
    progress: float = 0.0
    submitted: Optional[float] = None
    started: Optional[float] = None
    finished: Optional[float] = None
    waiting: str = ""
    trouble: str = ""  # while it lasts: programs have stalled, its state cannot be stored
    stalled: int = 0  # how many of its running tasks have stalled
    diagnostics: str = ""
    description: str = ""
    root_cause: Mapping[str, Any] = {}
    budgets: Mapping[str, Any] = {}
    elastic: Mapping[str, Mapping[str, int]] = {}  # role -> there, of
    links: Mapping[str, str] = {}
    tags: Tuple[str, ...] = ()
    roles: Mapping[str, Mapping[str, int]] = {}  # as asked: instances, and of each the resources
    view_acl: str = ""  # who else may see it, as YARN writes it
    tasks: Tuple[TaskView, ...] = ()
    result: Any = None  # what the chief gave to tony.result()

    @property
    def counts(self) -> Dict[str, int]:
        """How many tasks are in which state; a master is none."""
        found: Dict[str, int] = {}
        for task in self.tasks:
            if task.task != MASTER:
                found[task.state] = found.get(task.state, 0) + 1
        return found

    @property
    def sizes(self) -> str:
        """How many of each elastic role are there: ``worker 3 of 2..4``; empty after the end."""
        if self.state.ended:
            return ""
        return ", ".join(
            f"{role} {size['there']} of {size['least']}..{size['most']}"
            for role, size in self.elastic.items()
        )

    def duration_s(self, now: float) -> Optional[float]:
        """How long it has taken since it was submitted."""
        return self.since(self.submitted or self.started, now)

    def since(self, begin: Optional[float], now: float) -> Optional[float]:
        """The time from ``begin`` to the job's end, or to now; None without a beginning."""
        if not begin or (self.state is AppState.UNKNOWN and not self.finished):
            return None
        # The tasks' durations are by their master's clock, which is never set back.
        known = [task.started + (task.duration_s or 0.0) for task in self.tasks if task.started]
        return max(0.0, (self.finished or max([now, *known])) - begin)

    def to_json(self) -> Dict[str, Any]:
        """What ``--json`` prints."""
        data = {name: value for name, value in self._asdict().items() if name not in _ONLY_PAGE}
        data["state"] = self.state.value
        data["tasks"] = [task.to_json() for task in self.tasks]
        for task in data["tasks"]:
            del task["step"]
        return data

    def to_page_json(self) -> Dict[str, Any]:
        """The page's ``/api/job``, and ``job`` in history: without the tasks, with their counts."""
        data = {**self._asdict(), "state": self.state.value, "counts": self.counts}
        del data["source"], data["tasks"]
        return data


def read_job(
    job: Mapping[str, Any],
    tasks: Iterable[Mapping[str, Any]],
    source: str = PAGE,
    app_id: str = "",
) -> JobView:
    """The view that the page's or history's JSON describes."""
    return JobView(
        app_id=str(job.get("app_id") or app_id),
        state=_state(job.get("state")),
        source=source,
        name=str(job.get("name") or ""),
        user=str(job.get("user") or ""),
        queue=str(job.get("queue") or ""),
        framework=str(job.get("framework") or ""),
        mode=str(job.get("mode") or ""),
        phase=str(job.get("phase") or ""),
        session=_int(job.get("session"), -1),
        attempt=_int(job.get("attempt"), 0),
        progress=_seconds(job.get("progress")) or 0.0,
        submitted=_seconds(job.get("submitted")),
        started=_seconds(job.get("started")),
        finished=_seconds(job.get("finished")),
        waiting=str(job.get("waiting") or ""),
        trouble=str(job.get("trouble") or ""),
        stalled=_int(job.get("stalled"), 0),
        diagnostics=str(job.get("diagnostics") or ""),
        description=str(job.get("description") or ""),
        root_cause=_mapping(job.get("root_cause")),
        budgets=_mapping(job.get("budgets")),
        elastic={
            str(role): {key: _int(_mapping(size).get(key), 0) for key in ("there", "least", "most")}
            for role, size in _mapping(job.get("elastic")).items()
        },
        links={str(name): str(url) for name, url in _mapping(job.get("links")).items() if url},
        tags=_texts(job.get("tags")),
        roles={
            str(role): {key: _int(_mapping(asked).get(key), 0) for key in ROLE_FACTS}
            for role, asked in _mapping(job.get("roles")).items()
        },
        view_acl=str(job.get("view_acl") or ""),
        result=job.get("result"),
        tasks=tuple(read_task(task) for task in tasks),
    )


def read_task(data: Mapping[str, Any]) -> TaskView:
    """The task that an entry of the page's or history's JSON describes."""
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
        step=_optional_int(data.get("step")),
        restarts=_int(data.get("restarts"), 0),
        runs=tuple(_read_run(run) for run in _list(data.get("runs"))),
    )


def _read_run(data: Mapping[str, Any]) -> RunView:
    return RunView(
        session=_int(data.get("session"), -1),
        container=str(data.get("container") or ""),
        node=str(data.get("node") or ""),
        log_url=str(data.get("log_url") or ""),
        state=str(data.get("state") or ""),
        exit_code=_optional_int(data.get("exit_code")),
        offsets={str(k): _int(v, 0) for k, v in _mapping(data.get("offsets")).items()},
    )


def _state(value: Any) -> AppState:
    try:
        return AppState(value)
    except ValueError:
        return AppState.RUNNING


def is_web(url: str) -> bool:
    """Whether a browser may follow a link, which a job's author wrote: it leads to a web server."""
    try:
        return url.startswith(("http://", "https://")) and bool(urlsplit(url).hostname)
    except ValueError:
        return False


def web_links(links: Any, *without: str) -> Dict[str, str]:
    """The links that a browser may follow, but those named ``without``."""
    found = {str(name): str(url) for name, url in _mapping(links).items() if name not in without}
    return {name: url for name, url in found.items() if is_web(url)}


def name_link(name: str) -> str:
    """The name of a link as a person writes it: ``azkaban_log`` is Azkaban log."""
    if name == "page":
        return "The job's own page"
    return name.replace("_", " ").capitalize() if name.islower() else name.replace("_", " ")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


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


def names_task(name: str, task: str) -> bool:
    """Whether a user's name of a task (``worker:1``) or of a role (``worker``) means this task."""
    return bool(name) and name in (task, task.rpartition(":")[0])

"""Reads history: the list of jobs, and the story of one, while it is written or long after.

Tolerates what a dying master leaves: a last line cut short, a summary that was never
written, a job that has no end. What cannot be read is named (:attr:`JobHistory.problems`),
and the rest is read. Older layouts are read as well: they have no live changes, and metrics only
in the summary.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from functools import partial
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
)

from tony_core.files.local import LocalFileSystem
from tony_core.files.location import is_app_id, is_remote, join, local_path
from tony_core.files.port import FileSystem, Stat
from tony_core.files.registry import filesystem
from tony_core.history.layout import (
    CONFIG,
    EVENTS,
    KINDS,
    LIVE,
    METRICS,
    POINTS,
    SUMMARY,
    is_history_file,
    segment_name,
    segment_number,
)
from tony_core.history.limits import LARGEST, READING, Limits, count_values, megabytes
from tony_core.history.live_changes import Overlay
from tony_core.history.metric_file import Wanted, decode_series
from tony_core.history.metric_log import replay, replay_tasks, set_latest
from tony_core.history.metric_series import SeriesStore
from tony_core.jsontext import is_number, read_lines, read_object

_CUT = ", and no more is read here"
TRIES = 5  # to read a summary and what has changed since, while both are replaced
ENDED = ("SUCCEEDED", "FAILED", "KILLED", "TIMED_OUT")


class NoHistory(LookupError):
    """There is no history of that job."""


class JobHistory(NamedTuple):
    """One job's history as it was read."""

    app_id: str
    job: Mapping[str, Any] = {}  # as /api/job answers
    tasks: Tuple[Mapping[str, Any], ...] = ()  # as /api/tasks
    metrics: Mapping[str, Any] = {}  # as /api/metrics
    events: Tuple[Mapping[str, Any], ...] = ()
    problems: Tuple[str, ...] = ()
    is_cut: bool = False  # it has more than the reader takes


class KeptHistory(NamedTuple):
    """What retention asks of one job's history."""

    app_id: str
    changed: float  # when it ended, or without an end: when its newest file was written
    size: int = 0  # bytes
    has_ended: bool = True


def list_jobs(root: str) -> Iterator[Mapping[str, Any]]:
    """The summary of every job below a history root, the newest first."""
    jobs: List[Mapping[str, Any]] = []
    for app_id, job, at in _summaries(filesystem(root), root):
        # The id is the folder's name, whatever the file says.
        jobs.append({**(job or {"state": "UNKNOWN", "submitted": at}), "app_id": app_id})
    yield from sorted(jobs, key=lambda job: _time(job.get("submitted")), reverse=True)


def read_job(root: str, app_id: str, events: bool = True) -> JobHistory:
    """Everything known of one job; raises :class:`NoHistory` if there is nothing.

    Without ``events`` only the job and its tasks, as they are now.
    """
    if not app_id or "/" in app_id or app_id.startswith("."):
        raise NoHistory(f"{app_id!r} is not the id of an application")
    return read_folder(join(root, app_id), app_id, events)


def read_folder(
    folder: str,
    app_id: str,
    events: bool = True,
    files: Optional[FileSystem] = None,
    metrics: Optional[Wanted] = None,
    known: Optional[JobHistory] = None,
    limits: Limits = READING,
) -> JobHistory:
    """Everything known of one job, from its own history folder.

    ``metrics``: whether, or of which tasks, their series are wanted; unless it says otherwise, all
    with the events. The newest values are those of all tasks.
    ``known`` has the job and its tasks where they have been read, of a job that has ended.
    ``files`` reads it in place of the folder's own file system, by rules of its own.
    """
    files = files or filesystem(folder)
    summary, latest, problems = (
        _read_state(files, folder, limits) if known is None else _state_of(known)
    )
    job = summary.get("job") or {}
    story: List[Mapping[str, Any]] = []
    series: Mapping[str, Any] = summary.get("metrics") or {}
    grows = not job.get("finished")
    if events:
        story, more = read_events(folder, files, grows, limits)
        problems += more
    wanted = events if metrics is None else metrics
    if wanted:
        found, more = _read_metrics(
            files, folder, latest, grows, wanted, summary.get("tasks") or [], limits
        )
        problems += more
        if known is not None and not found:  # an older layout has them in the summary
            series = _read_summary(files, folder, limits)[0].get("metrics") or {}
        series = found or series
    if not summary and not story and not files.exists(folder):
        raise NoHistory(f"no history of {app_id} below {folder.rpartition('/')[0]}")
    return JobHistory(
        app_id=app_id,
        job=job,
        tasks=tuple(summary.get("tasks") or ()),
        metrics=series,
        events=tuple(story),
        problems=tuple(problems),
        is_cut=any(problem.endswith(_CUT) for problem in problems),
    )


def place(named: Optional[str], app_id: str, default: str, later: bool) -> str:
    """Where a master keeps a job's history: as the job says, else the scheduler's place.

    A ``later`` attempt continues where the previous attempt had to fall back to.
    """
    if not named:
        return default
    folder = join(named, app_id)
    fell_back = later and not segments(folder) and bool(segments(default))
    return default if fell_back else folder


def segments(folder: str, files: Optional[FileSystem] = None, kind: str = EVENTS) -> List[str]:
    """The names of a job's segments of one kind, in order."""
    names = [s.location.rpartition("/")[2] for s in _listed(files or filesystem(folder), folder)]
    found = [(segment_number(name, kind), name) for name in names]
    return [name for number, name in sorted(found) if number]


def all_segments(folder: str) -> List[str]:
    """The names of a job's segments of all kinds: a next master goes on behind them."""
    return [name for kind in KINDS for name in segments(folder, kind=kind)]


def read_events(
    folder: str,
    files: Optional[FileSystem] = None,
    grows: bool = False,
    limits: Limits = READING,
) -> Tuple[List[Mapping[str, Any]], List[str]]:
    """Every event in order, and what could not be read; ``grows``: a master may be writing it."""
    files = files or filesystem(folder)
    story: List[Mapping[str, Any]] = []

    def add(event: Dict[str, Any]) -> None:
        event["time"] = _time(event.get("time"))
        story.append(event)

    problems: List[str] = []
    names = segments(folder, files)
    size = values = 0
    for name in names:
        if len(story) >= limits.lines:
            break
        try:
            data = _get(files, join(folder, name))
        except OSError as error:
            problems.append(f"{name}: {error}")
            continue
        size, values = size + len(data), values + count_values(data)
        if size > limits.size or values > limits.values:
            problems.append(f"{name}: the story has {megabytes(limits.size)} before its end{_CUT}")
            break
        left = limits.lines - len(story)
        if data.count(b"\n") > left:
            problems.append(f"{name}: the story has {limits.lines} lines before its end{_CUT}")
            data = b"\n".join(data.split(b"\n", left)[:left])
        found = read_lines(data)
        if found is not None:
            for event in found:
                add(event)
            continue
        last = grows and name == names[-1]
        problems += _take_lines(name, data, lambda line: add(read_object(line)), "event", last)
    return story, problems


def read_series(folder: str) -> SeriesStore:
    """The metric series as the previous master had them, for the next one. Raises OSError."""
    files = filesystem(folder)
    latest = _read_state(files, folder, READING)[1]
    return _read_points(files, folder, latest, [], True, True)


def read_config(root: str, app_id: str) -> Optional[bytes]:
    """The masked configuration the job ran with, if it was kept."""
    location = join(root, app_id, CONFIG)
    try:
        return _get(filesystem(location), location)
    except FileNotFoundError:
        return None


def expired(
    root: str,
    retention_s: float,
    now: Optional[float] = None,
    warn: Callable[[str], None] = lambda text: None,
    retention_bytes: Optional[int] = None,
) -> List[str]:
    """Ids of ended jobs whose history is older, or all larger, than the retention, for ``tony gc``.

    Of what is too large together the oldest go (:func:`choose_expired`). The id is the folder's own
    name, and only a folder that holds a history counts: below a root that others write to, too,
    a file says what its writer likes. ``warn`` gets what is ignored. A job without an end counts
    from the newest of its files.
    """
    files = filesystem(root)
    kept: List[KeptHistory] = []
    for app_id, job, _ in _summaries(files, root):
        held = {
            item.location.rpartition("/")[2]: item for item in _listed(files, join(root, app_id))
        }
        if not any(map(is_history_file, held)):
            continue
        if not is_app_id(app_id):
            warn(f"{join(root, app_id)} is kept: {app_id!r} is not the id of an application")
            continue
        finished = _time(job.get("finished")) if job.get("state") in ENDED else 0.0
        has_ended = bool(finished)
        if job.get("app_id", app_id) != app_id:
            warn(
                f"the {SUMMARY} of {join(root, app_id)} names another application,"
                f" {str(job['app_id'])[:100]!r}; it is ignored"
            )
            finished, has_ended = 0.0, False
        if not finished:
            finished = max((item.mtime_ms / 1000 for item in held.values()), default=0.0)
        size = sum(item.size for item in held.values())
        kept.append(KeptHistory(app_id, finished, size, has_ended))
    now = time.time() if now is None else now
    return choose_expired(kept, retention_s, retention_bytes, now)


def choose_expired(
    kept: Iterable[KeptHistory], retention_s: float, retention_bytes: Optional[int], now: float
) -> List[str]:
    """Ids of what to remove: all that is too old, then the oldest that have ended, by size."""
    kept = list(kept)
    old = [item for item in kept if now - item.changed > retention_s]
    left = [item for item in kept if now - item.changed <= retention_s]
    size = sum(item.size for item in left)
    for item in sorted(left, key=lambda item: (item.changed, item.app_id)):
        if retention_bytes is None or size <= retention_bytes:
            break
        if item.has_ended:
            old.append(item)
            size -= item.size
    return [item.app_id for item in old]


def remove(root: str, app_id: str) -> bool:
    """Remove one job's history; False if there was none."""
    if not is_app_id(app_id):
        raise NoHistory(f"{app_id!r} is not the id of an application")
    return filesystem(root).delete(join(root, app_id))


def _summaries(
    files: FileSystem, root: str
) -> Iterator[Tuple[str, Mapping[str, Any], Optional[float]]]:
    """Of every folder its name, what its summary says of the job, and its time."""
    for item in _listed(files, root):
        if item.is_dir:
            job = _read_summary(files, item.location, READING)[0].get("job")
            app_id = item.location.rstrip("/").rpartition("/")[2]
            yield app_id, job if isinstance(job, dict) else {}, item.mtime_ms / 1000


def _listed(files: FileSystem, folder: str) -> List[Stat]:
    try:
        return files.list(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _get(files: FileSystem, location: str, most: Optional[int] = None) -> bytes:
    """The whole file; OSError where it is too large, or no file (a pipe, a device).

    In a place that users share, another user's job has whatever that user likes.
    """
    most = min(LARGEST, most or LARGEST)
    try:
        if is_remote(location) or not isinstance(files, LocalFileSystem):
            return files.get(location, most)
        handle = os.open(local_path(location), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "is not a plain file", location)
            if found.st_size > most:
                raise OSError(errno.EFBIG, f"is larger than {megabytes(most)}", location)
            return stream.read(found.st_size)
    except ValueError as error:
        raise OSError(errno.EFBIG, str(error), location) from None


def _time(value: Any) -> float:
    """Seconds since the epoch; 0 for an invalid time."""
    return float(value) if is_number(value, 1e15) else 0.0


def _take_lines(
    name: str, data: bytes, take: Callable[[bytes], None], what: str, grows: bool
) -> List[str]:
    """Take every line of a file; the problems. The last line may be half-written if it grows."""
    problems: List[str] = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            take(line)
        except ValueError:
            if not (grows and number == len(lines)):
                problems.append(f"{name}:{number}: not a whole {what}, left out")
    return problems


def _state_of(
    known: JobHistory,
) -> Tuple[Dict[str, Any], Mapping[str, Any], List[str]]:
    return {"job": known.job, "tasks": list(known.tasks)}, {}, list(known.problems)


def _read_state(
    files: FileSystem, folder: str, limits: Limits
) -> Tuple[Dict[str, Any], Mapping[str, Any], List[str]]:
    """The summary brought up to date, the newest values of metrics since, and the problems."""
    for _ in range(TRIES):
        summary, problems = _read_summary(files, folder, limits)
        number = summary.get("live")
        if not isinstance(number, int) or number <= 0:
            break
        name = segment_name(number, LIVE)
        try:
            data = _get(files, join(folder, name))
        except FileNotFoundError:
            if _read_summary(files, folder, limits)[0].get("live") == number:
                break  # nothing has changed since
            continue  # a newer summary has replaced both
        except OSError as error:
            return summary, {}, [*problems, f"{name}: {error}"]
        if count_values(data) > limits.values or data.count(b"\n") > limits.lines:
            return summary, {}, [*problems, f"{name}: it has too many changes{_CUT}"]
        overlay = Overlay(summary.get("job") or {}, summary.get("tasks") or [])
        problems += _take_lines(name, data, overlay.apply, "change", True)
        overlay.count()
        tasks = _some(list(overlay.tasks.values()), limits, name, problems)
        return {**summary, "job": overlay.job, "tasks": tasks}, overlay.latest, problems
    return summary, {}, problems


def _read_metrics(
    files: FileSystem,
    folder: str,
    latest: Mapping[str, Any],
    grows: bool,
    wanted: Wanted,
    tasks: List[Mapping[str, Any]],
    limits: Limits,
) -> Tuple[Mapping[str, Any], List[str]]:
    """The metric series, and what could not be read; empty where the layout has them elsewhere."""
    for again in (True, False):
        problems: List[str] = []
        try:
            return decode_series(_get(files, join(folder, METRICS), limits.metrics), wanted)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            problems.append(f"{METRICS}: {error}")
        newest = _newest(tasks) if callable(wanted) else {}
        chosen = wanted(newest) if callable(wanted) else None
        try:
            store = _read_points(files, folder, latest, problems, grows, tasks=chosen)
        except FileNotFoundError as error:
            if again:
                continue  # just now replaced by the series of the end
            return {}, [*problems, str(error)]
        break
    if not store.count:
        return {}, problems
    found = store.to_json()
    return {**found, "latest": {**newest, **found["latest"]}}, problems


def _newest(tasks: List[Mapping[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """The newest values of a running job's metrics, as the summary has them."""
    return {
        str(task.get("task")): {
            name: value
            for kind in ("measures", "reported")
            for name, value in (task.get(kind) if isinstance(task.get(kind), dict) else {}).items()  # type: ignore[union-attr]
        }
        for task in tasks
    }


def _read_points(
    files: FileSystem,
    folder: str,
    latest: Mapping[str, Any],
    problems: List[str],
    grows: bool,
    strict: bool = False,
    tasks: Optional[Collection[str]] = None,
) -> SeriesStore:
    """The series by their points, of all tasks or of these. Raises FileNotFoundError; ``strict``:
    any OSError."""
    store = SeriesStore()
    left = LARGEST
    names = segments(folder, files, POINTS)
    for name in names:
        try:
            data = _get(files, join(folder, name))
        except OSError as error:
            if strict or isinstance(error, FileNotFoundError):
                raise
            problems.append(f"{name}: {error}")
            continue
        left -= len(data)
        if left < 0:
            problems.append(f"{name}: the points are larger than {LARGEST >> 20} MB together")
            break
        if tasks is not None:
            replay_tasks(store, data, tasks)
            continue
        last = grows and name == names[-1]
        problems += _take_lines(name, data, partial(replay, store), "line of points", last)
    known = latest if tasks is None else {task: latest[task] for task in tasks if task in latest}
    set_latest(store, known)
    return store


def _some(
    tasks: List[Dict[str, Any]], limits: Limits, name: str, problems: List[str]
) -> List[Dict[str, Any]]:
    if len(tasks) > limits.tasks:
        problems.append(f"{name}: it has {len(tasks)} tasks, here are {limits.tasks}{_CUT}")
    return tasks[: limits.tasks]


def _read_summary(
    files: FileSystem, folder: str, limits: Limits
) -> Tuple[Dict[str, Any], List[str]]:
    try:
        text = _get(files, join(folder, SUMMARY), limits.size)
        if count_values(text) > limits.values:
            return {}, [f"{SUMMARY}: it has more than {limits.values} values{_CUT}"]
        data = read_object(text)
        kinds = {"job": dict, "tasks": list, "metrics": dict, "live": int}
        wrong = [name for name, kind in kinds.items() if not isinstance(data.get(name), kind)]
        tasks = [] if "tasks" in wrong else [t for t in data["tasks"] if isinstance(t, dict)]
        found = {name: data[name] for name in kinds if name not in wrong}
        missing = [f"{SUMMARY}: {name} is damaged" for name in wrong if data.get(name)]
        return {**found, "tasks": _some(tasks, limits, SUMMARY, missing)}, missing
    except (FileNotFoundError, NotADirectoryError):
        return {}, []
    except (OSError, ValueError) as error:
        return {}, [f"{SUMMARY}: {error}"]

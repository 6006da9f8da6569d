"""Reads history: the list of jobs, and the story of one, while it is written or long after.

Tolerates what a dying master leaves: a last line cut short, a summary that was never
written, a job that has no end. What cannot be read is named (:attr:`JobHistory.problems`),
and the rest is read. Older layouts are read as well: they have no live changes, and metrics only
in the summary.
"""

from __future__ import annotations

from contextlib import suppress
from typing import (
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
)

from tony_core.files.location import base_name, is_app_id, join
from tony_core.files.port import FileSystem, Stat
from tony_core.files.registry import filesystem
from tony_core.history.access import with_owner
from tony_core.history.folder import list_folder, read_file, read_time, segments, take_lines
from tony_core.history.layout import (
    CONFIG,
    EVENTS,
    LIVE,
    POINTS,
    SUMMARY,
    is_history_file,
    segment_name,
)
from tony_core.history.limits import READING, Limits, count_values, megabytes
from tony_core.history.live_changes import Overlay
from tony_core.history.metric_file import Wanted
from tony_core.history.metric_reader import read_metrics, read_points
from tony_core.history.metric_series import SeriesStore
from tony_core.history.story_end import end_of_story
from tony_core.jsontext import read_lines, read_object

_CUT = ", and no more is read here"
TRIES = 5  # to read a summary and what has changed since, while both are replaced


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
    #: Of a job without an end: the newest time in what was not asked for, or is not kept above.
    seen: float = 0.0
    is_cut: bool = False  # it has more than the reader takes


def list_jobs(root: str, by_owner: bool = False) -> Iterator[Mapping[str, Any]]:
    """The summary of every job below a history root, the newest first.

    The id is the folder's name, whatever the file says, and with ``by_owner`` the user is the
    folder's owner. A folder without a file of history is no job.
    """
    files = filesystem(root)
    jobs: List[Tuple[float, Mapping[str, Any]]] = []
    for item, app_id, job in read_summaries(files, root):
        if not is_app_id(app_id) or not (job or _holds_history(files, item.location)):
            continue
        found = {**(job or {"state": "UNKNOWN"}), "app_id": app_id}
        at = read_time(found.get("submitted")) if job else item.mtime_ms / 1000
        jobs.append((at, with_owner(found, item.location, item) if by_owner else found))
    yield from (job for _, job in sorted(jobs, key=lambda each: each[0], reverse=True))


def read_job(root: str, app_id: str, events: bool = True, by_owner: bool = False) -> JobHistory:
    """Everything known of one job; raises :class:`NoHistory` if there is nothing.

    Without ``events`` only the job and its tasks, as they are now. With ``by_owner`` its user is
    the owner of its folder, where the file system says it: below a root that several users write
    to, a file says what its writer likes.
    """
    if not app_id or "/" in app_id or app_id.startswith("."):
        raise NoHistory(f"{app_id!r} is not the id of an application")
    folder = join(root, app_id)
    record = read_folder(folder, app_id, events)
    if by_owner and record.job:
        return record._replace(job=with_owner(record.job, folder))
    return record


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
    seen = 0.0
    if events or not job:
        story, more = read_events(folder, files, not job.get("finished"), limits)
        job = job or end_of_story(story)
        problems += more
        story = story if events else []
    grows = not job.get("finished")
    wanted = events if metrics is None else metrics
    if grows:
        unread = {EVENTS: not events, POINTS: wanted is not True}
        seen = _last_time(files, folder, latest, [kind for kind in unread if unread[kind]])
    if wanted:
        found, more = read_metrics(
            files, folder, latest, grows, wanted, summary.get("tasks") or [], limits
        )
        problems += more
        if known is not None and not found:  # an older layout has them in the summary
            series = _read_summary(files, folder, limits)[0].get("metrics") or {}
        series = found or series
    if not summary and not story and not files.exists(folder):
        raise NoHistory(f"no history of {app_id} below {folder.rpartition('/')[0]}")
    if not summary and not problems:
        problems += _explain_missing(files, folder)
    return JobHistory(
        app_id=app_id,
        job={**job, "app_id": app_id} if job else {},
        tasks=tuple(summary.get("tasks") or ()),
        metrics=series,
        events=tuple(story),
        problems=tuple(problems),
        seen=seen,
        is_cut=any(problem.endswith(_CUT) for problem in problems),
    )


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
        event["time"] = read_time(event.get("time"))
        story.append(event)

    problems: List[str] = []
    names = segments(folder, files)
    size = values = 0
    for name in names:
        if len(story) >= limits.lines:
            break
        try:
            data = read_file(files, join(folder, name))
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
        problems += take_lines(name, data, lambda line: add(read_object(line)), "event", last)
    return story, problems


def read_series(folder: str) -> SeriesStore:
    """The metric series as the previous master had them, for the next one. Raises OSError."""
    files = filesystem(folder)
    latest = _read_state(files, folder, READING)[1]
    return read_points(files, folder, latest, [], True, True)


def read_config(root: str, app_id: str) -> Optional[bytes]:
    """The masked configuration the job ran with, if it was kept."""
    location = join(root, app_id, CONFIG)
    try:
        return read_file(filesystem(location), location)
    except FileNotFoundError:
        return None


def read_summaries(files: FileSystem, root: str) -> Iterator[Tuple[Stat, str, Mapping[str, Any]]]:
    """Of every folder its facts, its name, and what its summary says of the job."""
    for item in list_folder(files, root):
        if item.is_dir:
            job = _read_summary(files, item.location, READING)[0].get("job")
            yield item, base_name(item.location), job if isinstance(job, dict) else {}


def _explain_missing(files: FileSystem, folder: str) -> List[str]:
    """That a history has no summary, where it is not just being made."""
    if files.exists(join(folder, SUMMARY)) or not _holds_history(files, folder):
        return []
    return [f"{SUMMARY}: is missing; what is known of the job is from its story"]


def _holds_history(files: FileSystem, folder: str) -> bool:
    """Whether a folder holds a job's history, or may hold one that this user may not see."""
    try:
        return any(is_history_file(base_name(item.location)) for item in list_folder(files, folder))
    except OSError:
        return True


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
            data = read_file(files, join(folder, name))
        except FileNotFoundError:
            if _read_summary(files, folder, limits)[0].get("live") == number:
                break  # nothing has changed since
            continue  # a newer summary has replaced both
        except OSError as error:
            return summary, {}, [*problems, f"{name}: {error}"]
        if count_values(data) > limits.values or data.count(b"\n") > limits.lines:
            return summary, {}, [*problems, f"{name}: it has too many changes{_CUT}"]
        overlay = Overlay(summary.get("job") or {}, summary.get("tasks") or [])
        problems += take_lines(name, data, overlay.apply, "change", True)
        overlay.count()
        tasks = _some(list(overlay.tasks.values()), limits, name, problems)
        return {**summary, "job": overlay.job, "tasks": tasks}, overlay.latest, problems
    return summary, {}, problems


def _last_time(
    files: FileSystem, folder: str, latest: Mapping[str, Any], kinds: Iterable[str]
) -> float:
    """The newest time among the newest values, and in the newest segments of these kinds."""
    pairs = [found for found in latest.values() if isinstance(found, list) and len(found) == 2]
    times = [read_time(found[0]) for found in pairs]
    for kind in kinds:
        for name in segments(folder, files, kind)[-1:]:
            try:
                lines = read_file(files, join(folder, name)).split(b"\n")
            except OSError:
                continue  # named where it is read whole; or just replaced
            for line in lines[-3:]:  # the last one may be half-written
                with suppress(ValueError):
                    times += _times_of(read_object(line))
    return max(times, default=0.0)


def _times_of(line: Mapping[str, Any]) -> List[float]:
    """The times of a line of the story, or of a line of points."""
    points = line.get("points")
    if not isinstance(points, list):
        return [read_time(line.get("time"))]
    return [read_time(point[1]) for point in points if isinstance(point, list) and len(point) > 1]


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
        text = read_file(files, join(folder, SUMMARY), limits.size)
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

"""What the rules look at: a job's roles and tasks, and what was measured of them. Pure.

All of it is a file's word, and may be another user's: what is missing or odd is left out here, so
that rules can count with what they get. Roles whose names no job file could have are no roles.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import suppress
from math import floor
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.advice.coverage import Coverage, points_within
from tony_core.advice.thresholds import LEAST_EVIDENCE, MB_OF_GB, LeastEvidence
from tony_core.history.configuration import parse_config
from tony_core.history.figures import job_figures
from tony_core.history.layout import StoryKind
from tony_core.history.metric_points import Points, points_of, tasks_with
from tony_core.history.reader import JobHistory
from tony_core.history.story_lines import FAILURES, RUNNING, Bar, Line, Span, lines_of
from tony_core.history.timeline import timeline
from tony_core.job.keys.table import ROLE_NAME, modern_name, table
from tony_core.job.spec import WAITING_ROLES, Mode, Tracking
from tony_core.jsontext import is_number
from tony_core.measures import SAVED, STEP

HOUR_S = 3600.0
_END_STALLS = frozenset(
    kind.value for kind in (StoryKind.STALL_OVER, StoryKind.ROOT_CAUSE, StoryKind.SESSION_STARTED)
)
SINGLE = "worker"  # what the one task of a job without instances is called
_MOST = 1e12
_LONGEST_NAME = 64


#: How long before or after the end of a stall a failure may come that was its end.
_AT_ITS_END_S = 1.0
_ENDED_BADLY = frozenset((*FAILURES, "killed"))


class Stall(NamedTuple):
    """When programs of the job stood still, and when that was seen: its line in the story."""

    span: Span
    seen_at: float
    roles: Tuple[str, ...] = ()  # of the tasks that the line names
    has_passed: bool = False  # the programs went on, or came to their end, without a failure

    @property
    def length_s(self) -> float:
        return self.span.end - self.span.begin


class TaskFacts:
    """One task, with what was measured while its program ran."""

    def __init__(
        self, record: JobHistory, bar: Bar, entry: Mapping[str, Any], stalls: Coverage
    ) -> None:
        self._record = record
        self._stalls = stalls
        self._points: Dict[str, Points] = {}
        self._times: Dict[str, Sequence[float]] = {}
        self._values: Dict[str, Tuple[float, ...]] = {}
        self.name, self.bar, self.entry = bar.task, bar, entry
        self.spans = tuple(span for span in bar.spans if span.kind == RUNNING)
        self.held_s = bar.held_s
        self.running_s = max(0.0, bar.running_s - stalls.overlap_s(self.spans))

    @property
    def cause(self) -> str:
        """Why it ended; empty while it runs."""
        return _text(self.entry.get("cause"))

    @property
    def node(self) -> str:
        """Where it ran last."""
        nodes = [span.node for span in self.spans if span.node]
        return nodes[-1] if nodes else _text(self.entry.get("node"))

    def usage(self, name: str) -> Optional[float]:
        """A number over the whole run of its program, the newest one."""
        return number(mapping(self.entry.get("usage")).get(name))

    def points(self, metric: str) -> Points:
        """A metric while its program ran and did not stand still.

        All of it, where it is not known when that was.
        """
        known = self._points.get(metric)
        if known is None:
            known = points_of(self._record, self.name, metric)
            if self.spans:
                known = points_within(known, [at for at, _ in known], self.spans)
            self._points[metric] = known = tuple(
                (at, value)
                for at, value in known
                if abs(value) <= _MOST and not self._stalls.has(at)
            )
            self._times[metric] = [at for at, _ in known]
        return known

    def values(self, metric: str) -> Tuple[float, ...]:
        """The same without the times; what is below 0 was not measured."""
        known = self._values.get(metric)
        if known is None:
            known = tuple(value for _, value in self.points(metric) if value >= 0)
            self._values[metric] = known
        return known

    def metrics(self) -> Tuple[str, ...]:
        """The names of its metrics."""
        series = mapping(mapping(self._record.metrics.get("task")).get(self.name))
        return tuple(name for name in series if isinstance(name, str))

    def within(self, metric: str, span: Span) -> Points:
        """A metric in one of its runs."""
        points = self.points(metric)
        return points_within(points, self._times[metric], [span])

    def steps_per_s(self, span: Span, least: LeastEvidence) -> Optional[float]:
        """How fast it was in one of its runs; None where there is too little to know it."""
        points = self.within(STEP, span)
        if len(points) < max(2, least.steps):
            return None
        passed, done = points[-1][0] - points[0][0], points[-1][1] - points[0][1]
        return done / passed if passed >= max(1.0, least.run_s / 2) and done > 0 else None


class RoleFacts(NamedTuple):
    """One role: what one of its tasks asked for, and the tasks that there were."""

    name: str
    instances: int
    memory_mb: float
    vcores: float
    gpus: float
    tracking: str
    is_elastic: bool
    tasks: Tuple[TaskFacts, ...]

    @property
    def trains(self) -> bool:
        """Whether it does the job's work; a notebook's program waits for its user."""
        return self.tracking == Tracking.TRACKED and self.name not in WAITING_ROLES

    @property
    def held_h(self) -> float:
        """The hours that its tasks had containers, all together."""
        return sum(task.held_s for task in self.tasks) / HOUR_S

    @property
    def longest_s(self) -> float:
        """The longest time that a program of it ran."""
        return max((task.running_s for task in self.tasks), default=0.0)

    def cost_of(self, hours: float) -> Dict[str, float]:
        """What its tasks asked for, in so many hours of one of them."""
        resources = (
            ("gpu_hours", self.gpus),
            ("memory_gb_hours", self.memory_mb / MB_OF_GB),
            ("vcore_hours", self.vcores),
        )
        return {name: each * hours for name, each in resources if each}

    def measured(self, metric: str, least: LeastEvidence) -> Tuple[TaskFacts, ...]:
        """The tasks of which there are enough values; none, if a task that ran long has too few.

        Of a role that is half measured the largest value is not known.
        """
        ran = [task for task in self.tasks if task.running_s >= least.run_s]
        if any(len(task.values(metric)) < max(1, least.samples) for task in ran):
            return ()
        return tuple(ran)


class Facts:
    """One job."""

    def __init__(
        self, record: JobHistory, config: bytes = b"", least: LeastEvidence = LEAST_EVIDENCE
    ) -> None:
        self.record = record = _whole(record)
        self.least = least
        self.job = record.job
        self.line = timeline(record)
        self.story: Tuple[Line, ...] = tuple(lines_of(record))
        self.stalls_seen = _stalls(self.story, self.line.end, not self.is_gang)
        self.stalls: Tuple[Span, ...] = _one_after_the_other(self.stalls_seen)
        self.figures: Mapping[str, float] = job_figures(record, self.line)
        self.config = _read_config(config)
        self.sums = self.line.sums()
        self.duration_s = self.line.end - self.line.begin
        self.roles = self._roles()
        self.tasks = tuple(task for role in self.roles for task in role.tasks)

    @property
    def has_failed(self) -> bool:
        return self.job.get("state") == "FAILED"

    @property
    def has_succeeded(self) -> bool:
        return self.line.is_over and self.job.get("state") == "SUCCEEDED"

    @property
    def is_gang(self) -> bool:
        """Whether its tasks wait for each other."""
        return self.job.get("mode") != Mode.FCFS

    def has_seen_all(self, role: RoleFacts) -> bool:
        """Whether what a role used at most is known: more may follow in a job that goes on."""
        least = (
            self.least.run_s
            if self.has_succeeded
            else max(self.least.run_s, self.least.unfinished_s)
        )
        return role.longest_s >= least

    def key_of(self, role: RoleFacts, name: str) -> str:
        """The key of the job file that sets a resource of a role."""
        own = f"tony.{role.name}.{name}"
        is_single = self.config and not any(
            key.startswith("tony.") and key.endswith(".instances") for key in self.config
        )
        master = f"tony.am.{name}"
        if is_single and role.name == SINGLE and own not in self.config and master in self.config:
            return master  # the one task of a job has what the job sets for its master
        return own

    def was(self, key: str) -> str:
        """The value that the job file has; empty: none."""
        return self.config.get(key, "")

    def setting(self, key: str) -> str:
        """A value of the configuration, or else the default of its key."""
        return self.config.get(key) or default_of(key)

    def count(self, key: str) -> float:
        """The same as a number; the default where it is none that can be counted with."""
        with suppress(ValueError):
            value = float(self.setting(key))
            if 0 < value <= _MOST:
                return value
        return float(default_of(key))

    @property
    def saved_at(self) -> List[float]:
        """When checkpoints were reported, in order."""
        tasks = tasks_with(self.record, SAVED)
        return sorted({at for task in tasks for at, _ in points_of(self.record, task, SAVED)})

    @property
    def first_steps(self) -> Dict[int, float]:
        """When the programs of each session reported their first step, by the session's number."""
        tasks = tasks_with(self.record, STEP)[:1]
        times = [at for task in tasks for at, _ in points_of(self.record, task, STEP)]
        found = {}
        for session in self.line.sessions:
            first = bisect_left(times, session.begin)
            if first < len(times) and times[first] <= session.end:
                found[session.number] = times[first]
        return found

    def cost_of(self, spans: Sequence[Span]) -> Dict[str, float]:
        """What the tasks that ran in these times asked for."""
        found = {"duration_s": sum(span.end - span.begin for span in spans)}
        covered = Coverage(spans)
        for role in self.roles:
            hours = sum(covered.overlap_s(task.spans) for task in role.tasks) / HOUR_S
            for name, each in role.cost_of(hours).items():
                found[name] = found.get(name, 0.0) + each
        return found

    def _roles(self) -> Tuple[RoleFacts, ...]:
        entries = {str(task.get("task")): task for task in self.record.tasks}
        tasks: Dict[str, List[TaskFacts]] = {}
        stalls = Coverage(self.stalls)
        for bar in self.line.bars:
            role, _, index = bar.task.rpartition(":")
            if role == bar.role and index.isdecimal() and len(index) < 10:
                one = TaskFacts(self.record, bar, entries.get(bar.task, {}), stalls)
                tasks.setdefault(role, []).append(one)
        found = []
        elastic = mapping(self.job.get("elastic"))
        for name, asked in mapping(self.job.get("roles")).items():
            if not isinstance(name, str) or not isinstance(asked, dict) or name not in tasks:
                continue
            if len(name) > _LONGEST_NAME or ROLE_NAME.fullmatch(name) is None:
                continue
            found.append(
                RoleFacts(
                    name,
                    int(number(asked.get("instances")) or len(tasks[name])),
                    memory_mb=number(asked.get("memory_mb")) or 0.0,
                    vcores=number(asked.get("vcores")) or 0.0,
                    gpus=number(asked.get("gpus")) or 0.0,
                    tracking=_text(tasks[name][0].entry.get("tracking")) or Tracking.TRACKED.value,
                    is_elastic=name in elastic,
                    tasks=tuple(tasks[name]),
                )
            )
        return tuple(found)


# ------------------------------------------------------------------ times


def _stalls(story: Sequence[Line], end: float, by_task: bool) -> Tuple[Stall, ...]:
    """When programs of the job stood still, by its story; of the job, or of each task."""
    found: List[Stall] = []
    unfinished: Dict[str, Stall] = {}
    over_at: Dict[str, float] = {}
    failed_at = [line.at for line in story if _is_failure(line)]
    for line in story:
        whose = line.task if by_task else ""
        if line.kind == StoryKind.STALLED.value and whose not in unfinished:
            stood = number(line.fields.get("still_s")) or 0.0
            begin = max(line.at - stood, over_at.get(whose, 0.0))
            seen_at = max(begin, line.at)
            span = Span(StoryKind.STALLED.value, begin, max(seen_at, end))
            unfinished[whose] = Stall(span, seen_at, _roles_in(line))
        elif line.kind in _END_STALLS:
            is_over = line.kind == StoryKind.STALL_OVER.value
            for name in [whose] if is_over else list(unfinished):
                stall = unfinished.pop(name, None)
                if stall is not None:
                    over_at[name] = ended = max(stall.seen_at, line.at)
                    until = bisect_right(failed_at, ended + _AT_ITS_END_S)
                    is_failed = bisect_left(failed_at, stall.seen_at) < until
                    span = stall.span._replace(end=ended, session=line.session)
                    found.append(stall._replace(span=span, has_passed=is_over and not is_failed))
    return tuple(sorted((*found, *unfinished.values()), key=lambda stall: stall.span.begin))


def _is_failure(line: Line) -> bool:
    return line.kind == StoryKind.ROOT_CAUSE.value or (
        line.kind == StoryKind.TASK_STATE.value and _text(line.fields.get("state")) in _ENDED_BADLY
    )


def _roles_in(line: Line) -> Tuple[str, ...]:
    tasks = [task for task in (line.task, *_items(line.fields.get("tasks"))) if task]
    return tuple(dict.fromkeys(str(task).rpartition(":")[0] for task in tasks))


def _one_after_the_other(stalls: Sequence[Stall]) -> Tuple[Span, ...]:
    """Their times, without what lies in an earlier one."""
    found: List[Span] = []
    for stall in stalls:
        begin = max(stall.span.begin, found[-1].end if found else 0.0)
        if begin < stall.span.end or not found:
            found.append(stall.span._replace(begin=begin))
    return tuple(found)


# ------------------------------------------------------------------ numbers


def number(value: Any) -> Optional[float]:
    """A number that can be counted with and is not negative."""
    return float(value) if is_number(value, _MOST) and value >= 0 else None


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def quantile(values: Iterable[float], share: float) -> float:
    """The value that so much of them are not above; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, floor(share * len(ordered)))] if ordered else 0.0


def median(values: Iterable[float]) -> float:
    """The middle one, or the mean of the two in the middle; 0 of none."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return 0.0
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def mean(values: Sequence[float]) -> float:
    """Their mean; 0 of none."""
    return sum(values) / len(values) if values else 0.0


def default_of(key: str) -> str:
    """What a key is worth that no file sets."""
    return table().by_name[key].default or ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _whole(record: JobHistory) -> JobHistory:
    """The record with the shapes that all readers take."""
    return record._replace(
        job=mapping(record.job),
        tasks=tuple(task for task in _items(record.tasks) if isinstance(task, dict)),
        metrics=mapping(record.metrics),
        events=tuple(event for event in _items(record.events) if isinstance(event, dict)),
    )


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _read_config(config: bytes) -> Dict[str, str]:
    try:
        entries = parse_config(config) if config else ()
        return {modern_name(entry.key): entry.value for entry in entries}
    except ValueError:
        return {}

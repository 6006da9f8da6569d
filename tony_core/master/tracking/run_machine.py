"""The run of a job at MLflow: what is to be sent, and when. Pure.

Theory of operation
===================

Events go in with the time (:meth:`RunMachine.handle`), commands come out. One request is on its way
at a time, and each says what follows:

``find experiment`` -> (``create experiment``) -> ``find run`` -> (``create run``) -> ``log`` ... ->
``end``

A run is looked for by the job's id before one is made wherever one may be there: in a next master,
and after a request to make one whose answer was lost. So a job has one run however often its master
dies, and the journal only spares a next master the search.

What is to be logged waits in bounded queues until the run is there and the server answers. A server
that does not answer is asked again, with a growing pause; a request that it refuses as wrong (400)
is halved until the wrong entry is alone, and that one is dropped. After :data:`MOST_REFUSALS` the
tracking is given up. Nothing here holds up the job: the queues drop their oldest entries, and at
the job's end one failure more ends the waiting.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Deque, Dict, List, Mapping, NamedTuple, Optional, Tuple, TypeVar, Union

from tony_core.master.tracking import mlflow_api as api
from tony_core.master.tracking.mlflow_api import Answer, Batch, Metric, Request

_T = TypeVar("_T")

QUEUED = 20_000  # points that wait
MOST_NAMES = 1000  # of metrics
FLUSH_S = 2.0  # that points wait for others
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
ANSWER_S = 30.0  # for one request
MOST_REFUSALS = 100


class Phase(str, Enum):
    """How far the run is."""

    FIND_EXPERIMENT = "find experiment"
    CREATE_EXPERIMENT = "create experiment"
    FIND_RUN = "find run"
    CREATE_RUN = "create run"
    RESUME = "resume"  # a previous attempt's run
    LOG = "log"
    OVER = "over"


class RunFacts(NamedTuple):
    """What a run is made of."""

    app_id: str
    experiment: str
    name: str
    user: str
    start_ms: int
    tags: Tuple[Tuple[str, str], ...] = ()
    params: Tuple[Tuple[str, str], ...] = ()


class KnownRun(NamedTuple):
    """A run and its experiment, by their ids."""

    run_id: str = ""
    experiment_id: str = ""


class Begin(NamedTuple):
    """Tracking begins; ``known`` is in the journal, ``is_first`` says that no run can be there."""

    known: KnownRun = KnownRun()
    is_first: bool = True


class MetricsReported(NamedTuple):
    """A program has reported values; ``at`` is seconds since the epoch."""

    values: Mapping[str, float]
    step: int
    at: float


class TagsChanged(NamedTuple):
    """Something about the job has changed."""

    tags: Mapping[str, str]


class JobEnded(NamedTuple):
    """The job has ended, in this state; ``tags`` are its last."""

    state: str
    at: float
    tags: Mapping[str, str] = {}


class Answered(NamedTuple):
    """The answer to a request, by its number."""

    number: int
    answer: Answer


class Tick(NamedTuple):
    """A deadline may have passed."""


Event = Union[Begin, MetricsReported, TagsChanged, JobEnded, Answered, Tick]


class Send(NamedTuple):
    """Send a request; a later one replaces it."""

    number: int
    request: Request


class RunKnown(NamedTuple):
    """The run is there."""

    run: KnownRun


class Unavailable(NamedTuple):
    """The server cannot be used now: what waits for the run need not wait longer."""


class Note(NamedTuple):
    """A line for the job's story."""

    text: str
    is_warning: bool = True


class Done(NamedTuple):
    """Nothing more will be sent."""


Command = Union[Send, RunKnown, Unavailable, Note, Done]


class RunMachine:
    """The run of one job."""

    def __init__(self, facts: RunFacts) -> None:
        self._facts = facts
        self.phase = Phase.FIND_EXPERIMENT
        self.run = KnownRun()
        self._may_exist = False  # a run of this job may be there that we do not know
        self._names = api.Names(MOST_NAMES)
        self.metrics: Deque[Metric] = deque()
        self._params: Deque[Tuple[str, str]] = deque(facts.params)
        self._tags: Dict[str, str] = {}
        self._retried: Deque[Batch] = deque()  # parts of a batch that was refused
        self._batch: Optional[Batch] = None  # on its way
        self._waiting: Optional[Tuple[int, float]] = None  # number and deadline of a request
        self._number = 0
        self._pause_s = 0.0  # 0: the last request was answered
        self._not_before = 0.0
        self._flush_at: Optional[float] = None
        self._refusals = 0
        self.dropped = 0
        self._end: Optional[JobEnded] = None
        self._end_sent = False
        self._noted: Dict[str, None] = {}
        self._out: List[Command] = []

    # ------------------------------------------------------------------ events

    def handle(self, event: Event, now: float) -> List[Command]:
        """Take an event; what is to be done."""
        self._out = []
        if self.phase is not Phase.OVER:
            if isinstance(event, Begin):
                self._begin(event)
            elif isinstance(event, MetricsReported):
                self._add_metrics(event, now)
            elif isinstance(event, TagsChanged):
                self._add_tags(event.tags)
            elif isinstance(event, JobEnded):
                self._add_tags(event.tags)
                self._end = event
                self._not_before = now
            elif isinstance(event, Answered):
                if self._waiting is not None and event.number == self._waiting[0]:
                    self._waiting = None
                    self._take_answer(event.answer, now)
            elif self._waiting is not None and now >= self._waiting[1]:
                self._waiting = None
                self._take_answer(Answer(problem=f"no answer for {ANSWER_S:g} s"), now)
            self._send_next(now)
        return self._out

    def next_deadline(self) -> Optional[float]:
        """When a :class:`Tick` is due."""
        if self.phase is Phase.OVER:
            return None
        if self._waiting is not None:
            return self._waiting[1]
        if self.phase is Phase.LOG and not self._has_work:
            return None
        due = self._not_before
        if self.phase is Phase.LOG and not self._is_urgent and self._flush_at is not None:
            due = max(due, self._flush_at)
        return due

    @property
    def _has_work(self) -> bool:
        return bool(
            self.metrics or self._params or self._tags or self._retried or self._end is not None
        )

    @property
    def _is_urgent(self) -> bool:
        """Whether it is sent without waiting for more."""
        full = len(self.metrics) >= api.BATCH_METRICS
        return full or bool(self._params or self._tags or self._retried) or self._end is not None

    def _begin(self, event: Begin) -> None:
        self._may_exist = not event.is_first
        if event.known.run_id:
            self.run = event.known
            self.phase = Phase.RESUME
            self._out.append(RunKnown(self.run))

    def _add_metrics(self, event: MetricsReported, now: float) -> None:
        at_ms = int(event.at * 1000)
        for name, value in event.values.items():
            key = self._names.find(name)
            if key is None:
                self._note(
                    "names",
                    f"more than {MOST_NAMES} names of metrics: MLflow gets the first of them",
                )
                continue
            self.metrics.append(Metric(key, value, at_ms, event.step))
        if self.metrics and self._flush_at is None:
            self._flush_at = now + FLUSH_S
        while len(self.metrics) > QUEUED:
            self.metrics.popleft()
            self.dropped += 1
            self._note(
                "dropped",
                f"MLflow does not take the job's metrics as fast as they come: of more than"
                f" {QUEUED} that wait the oldest are left out there",
            )

    def _add_tags(self, tags: Mapping[str, str]) -> None:
        for name, value in tags.items():
            self._tags[api.name_of(name)] = api.plain(value, api.LONGEST_TAG)

    # ------------------------------------------------------------------ answers

    def _take_answer(self, answer: Answer, now: float) -> None:
        handlers = {
            Phase.FIND_EXPERIMENT: self._found_experiment,
            Phase.CREATE_EXPERIMENT: self._created_experiment,
            Phase.FIND_RUN: self._found_run,
            Phase.CREATE_RUN: self._created_run,
            Phase.RESUME: self._resumed,
            Phase.LOG: self._logged,
        }
        if handlers[self.phase](answer, now):
            self._pause_s, self._not_before = 0.0, now

    def _found_experiment(self, answer: Answer, now: float) -> bool:
        if answer.is_ok and api.read_experiment(answer):
            self.run = KnownRun("", api.read_experiment(answer))
            self.phase = Phase.FIND_RUN if self._may_exist else Phase.CREATE_RUN
            return True
        if answer.status == 404 and answer.code == "RESOURCE_DOES_NOT_EXIST":
            self.phase = Phase.CREATE_EXPERIMENT
            return True
        return self._failed(answer, now)

    def _created_experiment(self, answer: Answer, now: float) -> bool:
        if answer.is_ok and api.read_experiment(answer):
            self.run = KnownRun("", api.read_experiment(answer))
            self.phase = Phase.FIND_RUN if self._may_exist else Phase.CREATE_RUN
            return True
        self.phase = Phase.FIND_EXPERIMENT  # another job may have made it
        if answer.code == "RESOURCE_ALREADY_EXISTS":
            self._refusals += 1  # a deleted one of that name is neither found nor made
            if self._refusals < 3:
                return True
            self._give_up(
                f"the experiment {self._facts.experiment!r} was deleted there: restore it, or name"
                " another by tony.mlflow.experiment"
            )
            return False
        return self._failed(answer, now)

    def _found_run(self, answer: Answer, now: float) -> bool:
        if not answer.is_ok:
            return self._failed(answer, now)
        found = api.read_found_run(answer)
        if found:
            self._know(found)
            self.phase = Phase.RESUME
        else:
            self._may_exist = False
            self.phase = Phase.CREATE_RUN
        return True

    def _created_run(self, answer: Answer, now: float) -> bool:
        if answer.is_ok and api.read_run(answer):
            self._know(api.read_run(answer))
            self.phase = Phase.LOG
            return True
        self._may_exist = True  # the answer may be lost, and not the request
        self.phase = Phase.FIND_RUN
        return self._failed(answer, now)

    def _resumed(self, answer: Answer, now: float) -> bool:
        if answer.is_ok:
            self.phase = Phase.LOG
            return True
        return self._failed(answer, now)

    def _logged(self, answer: Answer, now: float) -> bool:
        batch, self._batch = self._batch, None
        if answer.is_ok:
            if self._end_sent:
                self.phase = Phase.OVER
                self._out.append(Done())
            return True
        if batch is None:
            self._end_sent = False
        elif answer.is_refusal:
            self._refusals += 1
            parts = batch.halves()
            if not parts:
                self._note(
                    "refused",
                    f"MLflow refuses an entry ({answer.describe()}): it is left out there,"
                    f" {_entry(batch)}",
                )
                self.dropped += len(batch.metrics)
            self._retried.extendleft(reversed(parts))
            if self._refusals <= MOST_REFUSALS:
                return True
        else:
            self._retried.appendleft(batch)
        return self._failed(answer, now)

    def _know(self, run_id: str) -> None:
        self.run = KnownRun(run_id, self.run.experiment_id)
        self._out.append(RunKnown(self.run))

    def _failed(self, answer: Answer, now: float) -> bool:
        """Ask again later, or never."""
        why = answer.describe()
        is_gone = answer.status == 404 and bool(answer.code) and bool(self.run.run_id)
        if is_gone or self._refusals > MOST_REFUSALS:
            self._give_up(f"{why}: the job is not tracked any more")
            return False
        if answer.is_refusal and self.phase is not Phase.LOG:
            self._give_up(f"{why}: the job is not tracked")
            return False
        if self._end is not None and self._pause_s:
            self._give_up(
                f"{why}: the job's end, and {len(self.metrics)} points, are missing there"
            )
            return False
        self._note("failed", f"{why}; metrics wait, and the job goes on")
        self._out.append(Unavailable())
        pause = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._pause_s))
        if answer.retry_after_s is not None:
            pause = min(LONGEST_PAUSE_S, max(pause, answer.retry_after_s))
        self._pause_s = pause
        self._not_before = now + (min(pause, FIRST_PAUSE_S) if self._end is not None else pause)
        return False

    def _give_up(self, text: str) -> None:
        self._note("given up", text)
        self.phase = Phase.OVER
        self._out += [Unavailable(), Done()]
        self.metrics.clear()

    def _note(self, subject: str, text: str) -> None:
        """A line, once for each subject: a server may come and go a thousand times."""
        if subject not in self._noted:
            self._noted[subject] = None
            self._out.append(Note(text))

    # ------------------------------------------------------------------ requests

    def _send_next(self, now: float) -> None:
        if self.phase is Phase.OVER or self._waiting is not None or now < self._not_before:
            return
        request = self._next_request(now)
        if request is not None:
            self._number += 1
            self._waiting = (self._number, now + ANSWER_S)
            self._out.append(Send(self._number, request))

    def _next_request(self, now: float) -> Optional[Request]:
        facts, ids = self._facts, self.run
        if self.phase is Phase.FIND_EXPERIMENT:
            return api.find_experiment(facts.experiment)
        if self.phase is Phase.CREATE_EXPERIMENT:
            return api.create_experiment(facts.experiment)
        if self.phase is Phase.FIND_RUN:
            return api.find_run(ids.experiment_id, facts.app_id)
        if self.phase is Phase.CREATE_RUN:
            return api.create_run(
                ids.experiment_id, facts.name, facts.user, facts.start_ms,
                (*facts.tags, (api.APP_TAG, facts.app_id)),
            )  # fmt: skip
        if self.phase is Phase.RESUME:
            return api.resume_run(ids.run_id)
        self._batch = self._next_batch(now)
        if self._batch is not None:
            return api.log_batch(ids.run_id, self._batch)
        if self._end is None:
            return None
        self._end_sent = True
        return api.end_run(ids.run_id, self._end.state, int(self._end.at * 1000))

    def _next_batch(self, now: float) -> Optional[Batch]:
        if self._retried:
            return self._retried.popleft()
        is_due = self._flush_at is not None and now >= self._flush_at
        if not (self._is_urgent or is_due):
            return None
        metrics = _take(self.metrics, api.BATCH_METRICS)
        self._flush_at = now + FLUSH_S if self.metrics else None
        params = _take(self._params, api.BATCH_PARAMS)
        tags = list(self._tags.items())[: api.BATCH_TAGS]
        for name, _ in tags:
            del self._tags[name]
        batch = Batch(metrics, params, tuple(tags))
        return batch if batch.entries else None

    def validate(self) -> None:
        """Check what must hold after every event; for tests."""
        assert len(self.metrics) <= QUEUED
        assert self._batch is None or 0 < self._batch.entries <= api.BATCH
        assert self._waiting is None or self.phase is not Phase.OVER
        assert self.phase is not Phase.LOG or self.run.run_id


def _take(queue: Deque[_T], most: int) -> Tuple[_T, ...]:
    return tuple(queue.popleft() for _ in range(min(most, len(queue))))


def _entry(batch: Batch) -> str:
    names = [item.key for item in batch.metrics]
    names += [name for name, _ in (*batch.params, *batch.tags)]
    return repr(names[0][:100])

"""The run of a job at MLflow: what is to be sent, and when. Pure.

Theory of operation
===================

Events go in with the time (:meth:`RunMachine.handle`), commands come out. One request is on its way
at a time, and each says what follows:

``find experiment`` -> (``create experiment``) -> ``find run`` -> (``create run``) -> ``log`` ... ->
``end``

:data:`MOVES` has every step from one to the next, and each phase has one request and one reader of
its answer. A phase is left by an answer, or by the deadline for it.

The run is known by the id that the server gave it, which the journal keeps. Where one may be there
whose id we do not know (a next master without a journal; the answer to a request to make one was
lost) it is looked for before one is made, by :attr:`RunFacts.key`. The job's id is known to others,
who could make a run under it first; the key is not, until our run has it. Where two runs have it,
nothing says which is ours, and nothing is sent to either. A request that makes a run may be carried
out long after its answer was due, so that no run is found says nothing for :data:`LATE_S`. So a job
has one run however often its master dies, and writes to no other.

What is to be logged waits in a bounded queue (:mod:`.log_queue`) until the run is there and the
server answers. A server that does not answer is asked again, with a growing pause, which only a
run that is there makes short again: a server that finds and makes none is asked seldom. A batch
that it refuses as wrong (400) is halved until the wrong entry is alone, and that one is dropped.
After :data:`MOST_REFUSALS`, or where this user may make no run, the tracking is given up. Nothing
here holds up the job: the queue drops its oldest points, and at the job's end one failure more, or
:data:`ANSWER_S`, ends the waiting.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

from tony_core.master.tracking import mlflow_api as api
from tony_core.master.tracking.log_queue import LogQueue
from tony_core.master.tracking.mlflow_api import Answer, Batch, Request

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
ANSWER_S = 30.0  # for one request, and at the job's end for all
LATE_S = 60.0  # after a request that was not answered in time: it may yet make a run
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


#: Which phases may follow.
MOVES: Mapping[Phase, Tuple[Phase, ...]] = {
    Phase.FIND_EXPERIMENT: (
        Phase.CREATE_EXPERIMENT, Phase.FIND_RUN, Phase.CREATE_RUN, Phase.RESUME, Phase.OVER,
    ),
    Phase.CREATE_EXPERIMENT: (
        Phase.FIND_EXPERIMENT, Phase.FIND_RUN, Phase.CREATE_RUN, Phase.OVER,
    ),
    Phase.FIND_RUN: (Phase.CREATE_RUN, Phase.RESUME, Phase.OVER),
    Phase.CREATE_RUN: (Phase.FIND_RUN, Phase.LOG, Phase.OVER),
    Phase.RESUME: (Phase.LOG, Phase.OVER),
    Phase.LOG: (Phase.OVER,),
    Phase.OVER: (),
}  # fmt: skip


class RunFacts(NamedTuple):
    """What a run is made of."""

    app_id: str
    key: str  # cannot be guessed; others may see it once the run is there
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
        self.queue = LogQueue(facts.params, self._note)
        self._batch: Optional[Batch] = None  # on its way
        self._waiting: Optional[Tuple[int, float]] = None  # number and deadline of a request
        self._number = 0
        self._now = 0.0
        self._pause_s = 0.0  # 0: no request has failed since the run was there
        self._not_before = 0.0
        self._late_until = 0.0  # till then a run may appear
        self._refusals = 0
        self._end: Optional[JobEnded] = None
        self._end_by = math.inf
        self._end_sent = False
        self._noted: Dict[str, None] = {}
        self._out: List[Command] = []
        #: What is asked in a phase, and who reads the answer: whether all went well.
        self._requests: Dict[Phase, Callable[[], Optional[Request]]] = {
            Phase.FIND_EXPERIMENT: lambda: api.find_experiment(facts.experiment),
            Phase.CREATE_EXPERIMENT: lambda: api.create_experiment(facts.experiment),
            Phase.FIND_RUN: lambda: api.find_runs(self.run.experiment_id, facts.key),
            Phase.CREATE_RUN: self._create_run,
            Phase.RESUME: lambda: api.resume_run(self.run.run_id),
            Phase.LOG: self._log,
        }
        self._readers: Dict[Phase, Callable[[Answer], bool]] = {
            Phase.FIND_EXPERIMENT: self._found_experiment,
            Phase.CREATE_EXPERIMENT: self._created_experiment,
            Phase.FIND_RUN: self._found_run,
            Phase.CREATE_RUN: self._created_run,
            Phase.RESUME: self._resumed,
            Phase.LOG: self._logged,
        }

    # ------------------------------------------------------------------ events

    def handle(self, event: Event, now: float) -> List[Command]:
        """Take an event; what is to be done."""
        self._out, self._now = [], now
        if self.phase is not Phase.OVER:
            if isinstance(event, Begin):
                self._begin(event)
            elif isinstance(event, MetricsReported):
                self.queue.add_metrics(event.values, event.step, event.at, now)
            elif isinstance(event, TagsChanged):
                self.queue.add_tags(event.tags)
            elif isinstance(event, JobEnded):
                self.queue.add_tags(event.tags)
                self._end, self._end_by = event, now + ANSWER_S
                self._not_before = now
                if self._waiting is not None:
                    self._waiting = (self._waiting[0], min(self._waiting[1], self._end_by))
            elif isinstance(event, Answered):
                if self._waiting is not None and event.number == self._waiting[0]:
                    self._waiting = None
                    self._take_answer(event.answer)
            elif self._waiting is not None and now >= self._waiting[1]:
                self._waiting = None
                allowed = f"for {ANSWER_S:g} s" if self._end is None else "in time"
                self._take_answer(Answer(problem=f"no answer {allowed}", is_late=True))
            self._send_next()
        return self._out

    def next_deadline(self) -> Optional[float]:
        """When a :class:`Tick` is due."""
        if self.phase is Phase.OVER:
            return None
        if self._waiting is not None:
            return self._waiting[1]
        if self.phase is not Phase.LOG or self._end is not None:
            return self._not_before
        return max(self._not_before, self.queue.due()) if self.queue else None

    def _move(self, phase: Phase) -> None:
        assert phase in MOVES[self.phase], f"{self.phase.value} -> {phase.value}"
        self.phase = phase

    def _begin(self, event: Begin) -> None:
        self._may_exist = not event.is_first
        if event.known.run_id:
            self._know(event.known)
            self._move(Phase.RESUME)

    # ------------------------------------------------------------------ answers

    def _take_answer(self, answer: Answer) -> None:
        if self._readers[self.phase](answer):
            self._not_before = self._now
            if self.phase is Phase.LOG:
                self._pause_s = 0.0

    def _found_experiment(self, answer: Answer) -> bool:
        if answer.status == 404 and answer.code == "RESOURCE_DOES_NOT_EXIST":
            self._move(Phase.CREATE_EXPERIMENT)
            return True
        return self._has_experiment(answer) or self._failed(answer)

    def _created_experiment(self, answer: Answer) -> bool:
        if self._has_experiment(answer):
            return True
        if answer.status in (401, 403):
            self._give_up_refused(answer, "make")
            return False
        self._move(Phase.FIND_EXPERIMENT)  # another job may have made it
        if answer.code == "RESOURCE_ALREADY_EXISTS":
            self._refusals += 1  # a deleted one of that name is neither found nor made
            if self._refusals < 3:
                return True
            self._give_up(
                f"the experiment {self._facts.experiment!r} was deleted there: restore it, or name"
                " another by tony.mlflow.experiment"
            )
            return False
        return self._failed(answer)

    def _has_experiment(self, answer: Answer) -> bool:
        """Whether the answer has the experiment: its run is next."""
        found = api.read_experiment(answer) if answer.is_ok else ""
        if found:
            self.run = KnownRun("", found)
            self._move(Phase.FIND_RUN if self._may_exist else Phase.CREATE_RUN)
        return bool(found)

    def _found_run(self, answer: Answer) -> bool:
        if not answer.is_ok:
            return self._failed(answer)
        found = api.read_found_runs(answer)
        if len(found) > 1:
            self._give_up(
                f"several runs of the experiment {self._facts.experiment!r} have this job's"
                f" {api.KEY_TAG}: one is a copy, and the job is not tracked any more"
            )
            return False
        if not found and self._end is None and self._now < self._late_until:
            return self._failed(Answer(problem="it was asked for a run, and has none yet"))
        if found:
            self._know(KnownRun(found[0], self.run.experiment_id))
        self._may_exist = bool(found)
        self._move(Phase.RESUME if found else Phase.CREATE_RUN)
        return True

    def _created_run(self, answer: Answer) -> bool:
        found = api.read_run(answer) if answer.is_ok else ""
        if found:
            self._know(KnownRun(found, self.run.experiment_id))
            self._move(Phase.LOG)
            return True
        if answer.status in (401, 403):
            self._give_up_refused(answer, "make a run in")
            return False
        self._late_until = self._now + LATE_S if answer.is_late else 0.0
        self._may_exist = True  # the answer may be lost, and not the request
        self._move(Phase.FIND_RUN)
        return self._failed(answer)

    def _resumed(self, answer: Answer) -> bool:
        if not answer.is_ok:
            return self._failed(answer)
        self._move(Phase.LOG)
        return True

    def _logged(self, answer: Answer) -> bool:
        batch, self._batch = self._batch, None
        if answer.is_ok:
            if self._end_sent:
                self._move(Phase.OVER)
                self._out.append(Done())
            return True
        if batch is None:
            self._end_sent = False
        elif answer.is_refusal:
            self._refusals += 1
            self.queue.split(batch, answer.describe())
            if self._refusals <= MOST_REFUSALS:
                return True
        else:
            self.queue.put_back(batch)
        return self._failed(answer)

    def _know(self, run: KnownRun) -> None:
        self.run = run
        self._out.append(RunKnown(run))

    def _failed(self, answer: Answer) -> bool:
        """Ask again later, or never."""
        why = answer.describe()
        is_gone = answer.status == 404 and bool(answer.code) and bool(self.run.run_id)
        if is_gone or self._refusals > MOST_REFUSALS:
            self._give_up(f"{why}: the job is not tracked any more")
            return False
        if answer.is_refusal and self.phase is not Phase.LOG:
            self._give_up(f"{why}: the job is not tracked")
            return False
        if self._end is not None and (self._pause_s or self._now >= self._end_by):
            self._give_up(f"{why}: {_describe_missing(self.queue.points)} missing there")
            return False
        self._note("failed", f"{why}; metrics wait, and the job goes on")
        self._out.append(Unavailable())
        pause = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._pause_s))
        if answer.retry_after_s is not None:
            pause = min(LONGEST_PAUSE_S, max(pause, answer.retry_after_s))
        self._pause_s = pause
        self._not_before = self._now + (pause if self._end is None else min(pause, FIRST_PAUSE_S))
        return False

    def _give_up_refused(self, answer: Answer, what: str) -> None:
        self._give_up(
            f"it does not let this user {what} the experiment {self._facts.experiment!r} (HTTP"
            f" {answer.status}), and the job is not tracked: ask its administrators for that"
            " right, name another by tony.mlflow.experiment, or submit with other credentials"
            " (MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN)"
        )

    def _give_up(self, text: str) -> None:
        self._note("given up", text)
        self._move(Phase.OVER)
        self._out += [Unavailable(), Done()]
        self.queue.clear()

    def _note(self, subject: str, text: str) -> None:
        """A line, once for each subject: a server may come and go a thousand times."""
        if subject not in self._noted:
            self._noted[subject] = None
            self._out.append(Note(text))

    # ------------------------------------------------------------------ requests

    def _send_next(self) -> None:
        now = self._now
        if self.phase is Phase.OVER or self._waiting is not None or now < self._not_before:
            return
        request = self._requests[self.phase]()
        if request is not None:
            self._number += 1
            self._waiting = (self._number, min(now + ANSWER_S, max(now, self._end_by)))
            self._out.append(Send(self._number, request))

    def _create_run(self) -> Request:
        facts = self._facts
        tags = (*facts.tags, (api.APP_TAG, facts.app_id), (api.KEY_TAG, facts.key))
        return api.create_run(self.run.experiment_id, facts.name, facts.user, facts.start_ms, tags)

    def _log(self) -> Optional[Request]:
        is_due = self._end is not None or self.queue.due() <= self._now
        self._batch = self.queue.take(self._now) if is_due else None
        if self._batch is not None:
            return api.log_batch(self.run.run_id, self._batch)
        if self._end is None:
            return None
        self._end_sent = True
        return api.end_run(self.run.run_id, self._end.state, int(self._end.at * 1000))

    def validate(self) -> None:
        """Check what must hold after every event; for tests."""
        self.queue.validate()
        assert self._batch is None or 0 < self._batch.entries <= api.BATCH
        assert self._waiting is None or self.phase is not Phase.OVER
        idle = self.phase is Phase.LOG and not self.queue and self._end is None
        assert self.next_deadline() is not None or idle or self.phase is Phase.OVER
        assert self.phase is not Phase.LOG or self.run.run_id


def _describe_missing(points: int) -> str:
    """What the server did not get of a job that ended, with its verb."""
    if not points:
        return "the job's end is"
    return f"the job's end and {points} {'point' if points == 1 else 'points'} are"

"""What is sent to MLflow and when, whatever the server answers: no socket, no clock."""

from __future__ import annotations

import itertools
from typing import Any, Dict, List, Optional, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tony_core.master.tracking import log_queue, run_machine
from tony_core.master.tracking import mlflow_api as api
from tony_core.master.tracking.mlflow_api import Answer, Batch, Metric, Names, name_of
from tony_core.master.tracking.run_machine import (
    MOVES,
    Answered,
    Begin,
    Command,
    Done,
    Event,
    JobEnded,
    KnownRun,
    MetricsReported,
    Note,
    Phase,
    RunFacts,
    RunKnown,
    RunMachine,
    Send,
    TagsChanged,
    Tick,
    Unavailable,
)

FACTS = RunFacts(
    "app_1", "key_1", "exp", "train", "ann", 1000, (("tony/queue", "q"),), (("lr", "0.1"),)
)
DOWN = Answer(problem="it does not answer (refused)")


class Server:
    """MLflow as the machine sees it: the runs that it has, and what was logged."""

    def __init__(self) -> None:
        self.experiments: Dict[str, str] = {}
        self.runs: Dict[str, Dict[str, str]] = {}  # id -> the tags that it was made with
        self.metrics: List[Tuple[str, float, int]] = []
        self.params: Dict[str, str] = {}
        self.tags: Dict[str, str] = {}
        self.status = ""
        self.refused_key = ""

    def answer(self, request: api.Request) -> Answer:
        body = request.body or {}
        if request.path == "experiments/get-by-name":
            found = self.experiments.get(request.query[0][1])
            if found is None:
                return Answer(404, {"error_code": "RESOURCE_DOES_NOT_EXIST"})
            return Answer(200, {"experiment": {"experiment_id": found}})
        if request.path == "experiments/create":
            self.experiments[str(body["name"])] = "7"
            return Answer(200, {"experiment_id": "7"})
        if request.path == "runs/search":
            runs = [
                {"info": {"run_id": run}}
                for run, tags in self.runs.items()
                if body["filter"] == f"tags.`{api.KEY_TAG}` = '{tags.get(api.KEY_TAG)}'"
            ]
            return Answer(200, {"runs": runs[: body["max_results"]]} if runs else {})
        if request.path == "runs/create":
            run = f"run{len(self.runs)}"
            self.runs[run] = {tag["key"]: tag["value"] for tag in body["tags"]}
            self.tags.update(self.runs[run])
            return Answer(200, {"run": {"info": {"run_id": run}}})
        if request.path == "runs/update":
            self.status = str(body["status"])
            return Answer(200, {})
        assert request.path == "runs/log-batch"
        entries = [*body.get("metrics", []), *body.get("params", []), *body.get("tags", [])]
        assert 0 < len(entries) <= api.BATCH
        if self.refused_key in [entry["key"] for entry in entries]:
            return Answer(400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "bad key"})
        for each in body.get("metrics", []):
            self.metrics.append((each["key"], each["value"], each["step"]))
        self.params.update((each["key"], each["value"]) for each in body.get("params", []))
        self.tags.update((each["key"], each["value"]) for each in body.get("tags", []))
        return Answer(200, {})


class Conversation:
    """A machine and a server; time goes on as the machine asks."""

    def __init__(self, facts: RunFacts = FACTS, server: Optional[Server] = None) -> None:
        self.server = server or Server()
        self.machine = RunMachine(facts)
        self.now = 0.0
        self.all: List[Command] = []
        self.request: Optional[Send] = None

    def feed(self, event: Event) -> List[Command]:
        found = self.machine.handle(event, self.now)
        self.machine.validate()
        self.all += found
        sends = [command for command in found if isinstance(command, Send)]
        assert len(sends) <= 1
        if isinstance(event, Answered):
            self.request = None
        for command in sends:
            assert self.request is None, "one request at a time"
            self.request = command
        return found

    def step(self, answer: Optional[Answer] = None) -> None:
        """The next answer, or the next deadline."""
        if self.request is not None:
            number, request = self.request
            self.feed(Answered(number, answer or self.server.answer(request)))
            return
        due = self.machine.next_deadline()
        if due is not None:
            self.now = max(self.now, due)
            self.feed(Tick())

    def settle(self, answer: Optional[Answer] = None, most: int = 200) -> None:
        """Go on until nothing is due."""
        for _ in range(most):
            if self.request is None and self.machine.next_deadline() is None:
                return
            self.step(answer)

    def of(self, kind: Any) -> List[Any]:
        return [command for command in self.all if isinstance(command, kind)]


def begun(**more: Any) -> Conversation:
    made = Conversation(**more)
    made.feed(Begin())
    made.settle()
    return made


def test_a_run_from_its_begin_to_its_end() -> None:
    talk = begun()
    assert talk.of(RunKnown) == [RunKnown(KnownRun("run0", "7"))]
    talk.feed(MetricsReported({"loss": 0.5}, 3, 10.0))
    talk.settle()
    talk.feed(JobEnded("SUCCEEDED", 20.0, {"tony/model": "/m"}))
    talk.settle()
    server = talk.server
    assert server.metrics == [("loss", 0.5, 3)]
    assert server.params == {"lr": "0.1"}
    assert server.tags == {
        "tony/queue": "q", "tony/app_id": "app_1", "tony/run_key": "key_1", "tony/model": "/m",
    }  # fmt: skip
    assert server.status == "FINISHED"
    assert talk.machine.phase is Phase.OVER and talk.of(Done) == [Done()]
    assert not talk.of(Note)


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("SUCCEEDED", "FINISHED"),
        ("FAILED", "FAILED"),
        ("KILLED", "KILLED"),
        ("TIMED_OUT", "FAILED"),
    ],
)
def test_a_run_has_the_status_of_its_job(state: str, status: str) -> None:
    talk = begun()
    talk.feed(JobEnded(state, 1.0))
    talk.settle()
    assert talk.server.status == status


def test_a_next_master_goes_on_with_the_run_of_the_journal() -> None:
    server = Server()
    begun(server=server)
    talk = Conversation(server=server)
    found = talk.feed(Begin(KnownRun("run0", "7"), is_first=False))
    assert RunKnown(KnownRun("run0", "7")) in found, "at once, though the server may be down"
    talk.settle()
    talk.feed(MetricsReported({"loss": 0.4}, 9, 1.0))
    talk.settle()
    assert list(server.runs) == ["run0"] and server.status == "RUNNING"
    assert server.metrics == [("loss", 0.4, 9)]


def test_a_next_master_without_a_journal_finds_the_run() -> None:
    server = Server()
    begun(server=server)
    talk = Conversation(server=server)
    talk.feed(Begin(is_first=False))
    talk.settle()
    assert list(server.runs) == ["run0"]
    assert talk.machine.run.run_id == "run0"


def test_anothers_run_under_the_jobs_id_is_not_ours() -> None:
    server = Server()
    server.experiments["exp"] = "7"
    server.runs["theirs"] = {"tony/app_id": "app_1", "tony/run_key": "a guess"}
    talk = Conversation(server=server)
    talk.feed(Begin(is_first=False))
    talk.settle()
    assert talk.machine.run.run_id == "run1" and server.runs["run1"]["tony/run_key"] == "key_1"


def test_nothing_is_sent_to_any_of_two_runs_with_the_key() -> None:
    server = Server()
    begun(server=server)
    server.runs["copied"] = dict(server.runs["run0"])
    talk = Conversation(server=server)
    talk.feed(Begin(is_first=False))
    talk.feed(MetricsReported({"loss": 0.4}, 9, 1.0))
    talk.settle()
    assert talk.machine.phase is Phase.OVER and len(talk.of(Done)) == 1
    assert {each.request.path for each in talk.of(Send)} == {
        "experiments/get-by-name", "runs/search",
    }  # fmt: skip
    (note,) = talk.of(Note)
    assert "tony/run_key" in note.text and not server.metrics
    again = Conversation(server=server)
    again.feed(Begin(KnownRun("run0", "7"), is_first=False))
    again.settle()
    assert again.machine.phase is Phase.LOG, "the journal knows which is ours"


def test_a_request_whose_answer_was_lost_makes_no_second_run() -> None:
    talk = Conversation()
    talk.feed(Begin())
    while talk.machine.phase is not Phase.CREATE_RUN or talk.request is None:
        talk.step()
    talk.server.answer(talk.request.request)  # it was carried out
    talk.step(DOWN)
    talk.settle()
    assert list(talk.server.runs) == ["run0"]


def test_a_server_that_is_down_loses_nothing_once_it_is_back() -> None:
    talk = begun()
    for step in range(50):
        talk.feed(MetricsReported({"loss": float(step)}, step, float(step)))
        if step % 5 == 0:
            talk.step(DOWN)
            talk.step(DOWN)
    assert len(talk.of(Note)) == 1, "one line, however long it lasts"
    talk.settle()
    assert sorted(step for _, _, step in talk.server.metrics) == list(range(50))


def test_pauses_grow_and_are_bounded() -> None:
    talk = Conversation()
    talk.feed(Begin())
    times = []
    for _ in range(12):
        talk.step(DOWN)
        talk.step()
        times.append(talk.now)
    pauses = [later - before for before, later in itertools.pairwise(times)]
    assert pauses[:5] == [2, 4, 8, 16, 32] and set(pauses[5:]) == {60}
    assert Unavailable() in talk.all


PATHS = (
    "experiments/get-by-name", "experiments/create", "runs/search", "runs/create",
    "runs/log-batch", "runs/update",
)  # fmt: skip
FAILURES = [*(Answer(status) for status in (200, 302, 400, 401, 403, 404, 429, 500, 503)), DOWN]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(PATHS), st.sampled_from([*FAILURES, None]), st.booleans(),
    st.floats(0, 3600), st.booleans(),
)  # fmt: skip
def test_one_request_that_fails_for_ever_is_asked_seldom_and_holds_up_no_end(
    path: str, failure: Optional[Answer], is_first: bool, ends: float, has_experiment: bool
) -> None:
    """``failure`` None: no answer at all."""
    talk = Conversation()
    if has_experiment:
        talk.server.experiments["exp"] = "7"
    talk.feed(Begin(is_first=is_first))
    reported = 0
    while talk.machine.phase is not Phase.OVER and talk.now < ends:
        if talk.request is not None and talk.request.request.path == path:
            if failure is not None:
                talk.step(failure)
                continue
            talk.request = None  # till its deadline
        due = talk.machine.next_deadline() if talk.request is None else talk.now
        if due is None or due > reported * 60:
            talk.now = max(talk.now, min(ends, reported * 60.0))
            talk.feed(MetricsReported({"loss": 1.0}, reported, talk.now))
            reported += 1
        else:
            talk.step()
    assert len(talk.of(Send)) <= 2 * 3600 / run_machine.LONGEST_PAUSE_S + reported + 100
    ended = talk.now
    talk.feed(JobEnded("SUCCEEDED", 1.0))
    for _ in range(200):
        if talk.machine.phase is Phase.OVER:
            break
        if talk.request is not None and talk.request.request.path == path:
            if failure is not None:
                talk.step(failure)
                continue
            talk.request = None
        talk.step()
    assert talk.machine.phase is Phase.OVER and len(talk.of(Done)) == 1
    assert talk.now - ended <= run_machine.ANSWER_S
    assert len(talk.server.runs) <= 1


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("path", ["experiments/create", "runs/create"])
def test_a_user_without_the_right_ends_the_tracking(path: str, status: int) -> None:
    talk = Conversation()
    talk.feed(Begin())
    while talk.request is None or talk.request.request.path != path:
        talk.step()
    talk.step(Answer(status, {"error_code": "PERMISSION_DENIED"}))
    assert talk.machine.phase is Phase.OVER and Unavailable() in talk.all
    (note,) = talk.of(Note)
    assert "'exp'" in note.text and f"HTTP {status}" in note.text
    assert "administrators" in note.text and "MLFLOW_TRACKING_TOKEN" in note.text


@pytest.mark.parametrize("carried_out_s", [1.0, 28.0, 45.0])
def test_a_run_that_is_made_after_its_answer_was_due_is_the_only_one(carried_out_s: float) -> None:
    talk = Conversation()
    talk.feed(Begin())
    while talk.request is None or talk.request.request.path != "runs/create":
        talk.step()
    late = talk.request.request
    made_at = talk.now + carried_out_s
    talk.now += 25
    talk.feed(Answered(talk.request.number, DOWN._replace(is_late=True)))
    for _ in range(40):
        if late is not None and talk.now >= made_at:
            talk.server.answer(late)
            late = None
        talk.step()
    assert list(talk.server.runs) == ["run0"] and talk.machine.run.run_id == "run0"


def test_a_late_run_that_never_appears_is_made_again() -> None:
    talk = Conversation()
    talk.feed(Begin())
    while talk.request is None or talk.request.request.path != "runs/create":
        talk.step()
    talk.step(DOWN._replace(is_late=True))
    talk.settle()
    assert talk.machine.phase is Phase.LOG and talk.now <= 2 * run_machine.LATE_S


def test_a_server_names_the_pause() -> None:
    talk = begun()
    talk.feed(TagsChanged({"a": "b"}))
    talk.step(Answer(429, retry_after_s=17.0))
    assert talk.machine.next_deadline() == talk.now + 17
    talk.step()
    talk.step(Answer(429, retry_after_s=1e9))
    assert talk.machine.next_deadline() == talk.now + 60


def test_no_answer_has_a_deadline() -> None:
    talk = Conversation()
    talk.feed(Begin())
    request, talk.request = talk.request, None
    assert request is not None
    talk.step()
    assert talk.now == run_machine.ANSWER_S
    assert Unavailable() in talk.all
    talk.feed(Answered(request.number, Answer(200, {"experiment": {"experiment_id": "9"}})))
    assert talk.machine.phase is Phase.FIND_EXPERIMENT, "too late"


def test_what_the_server_refuses_is_found_and_dropped() -> None:
    talk = begun()
    talk.server.refused_key = "bad"
    values = {f"m{number}": 1.0 for number in range(100)}
    talk.feed(MetricsReported({**values, "bad": 2.0}, 1, 1.0))
    talk.feed(TagsChanged({"good": "tag"}))
    talk.settle()
    assert {key for key, _, _ in talk.server.metrics} == set(values)
    assert talk.server.tags["good"] == "tag"
    (note,) = talk.of(Note)
    assert "'bad'" in note.text


def test_a_server_that_refuses_everything_is_given_up() -> None:
    talk = begun()
    for step in range(500):
        talk.feed(MetricsReported({"loss": 1.0}, step, 1.0))
    talk.settle(Answer(400), most=1000)
    assert talk.machine.phase is Phase.OVER
    assert len(talk.of(Send)) < 200
    assert talk.feed(MetricsReported({"loss": 1.0}, 1, 1.0)) == []


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503, 302, 200])
def test_odd_answers_are_tried_again(status: int) -> None:
    talk = Conversation()
    talk.feed(Begin())
    for _ in range(10):
        talk.step(Answer(status, {"message": "x" * 1000}))
    assert talk.machine.phase in (Phase.FIND_EXPERIMENT,)
    (note,) = talk.of(Note)
    assert len(note.text) < 400
    talk.settle()
    assert talk.machine.run.run_id == "run0"


def test_a_run_that_was_deleted_there_is_given_up() -> None:
    talk = begun()
    talk.feed(TagsChanged({"a": "b"}))
    talk.step(Answer(404, {"error_code": "RESOURCE_DOES_NOT_EXIST"}))
    assert talk.machine.phase is Phase.OVER


def test_an_experiment_that_was_deleted_is_named() -> None:
    talk = Conversation()
    talk.feed(Begin())
    for _ in range(10):
        talk.step(Answer(404, {"error_code": "RESOURCE_DOES_NOT_EXIST"}))
        talk.step(Answer(400, {"error_code": "RESOURCE_ALREADY_EXISTS"}))
    assert talk.machine.phase is Phase.OVER
    assert "was deleted" in talk.of(Note)[0].text


def test_the_end_waits_for_one_failure_more_only() -> None:
    talk = begun()
    talk.feed(TagsChanged({"a": "b"}))
    talk.step(DOWN)
    talk.feed(JobEnded("FAILED", 1.0))
    talk.step(DOWN)
    assert talk.machine.phase is Phase.OVER and talk.of(Done) == [Done()]


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({}, "the job's end is missing there"),
        ({"loss": 1.0}, "the job's end and 1 point are missing there"),
        ({"loss": 1.0, "accuracy": 0.5}, "the job's end and 2 points are missing there"),
    ],
)
def test_the_last_note_counts_what_the_server_did_not_get(
    values: Dict[str, float], missing: str
) -> None:
    talk = begun()
    talk.feed(MetricsReported(values, 1, 1.0) if values else TagsChanged({"a": "b"}))
    talk.step(DOWN)
    talk.feed(JobEnded("FAILED", 1.0))
    talk.settle(DOWN)
    assert talk.of(Note)[-1].text == f"{DOWN.describe()}: {missing}"


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_queue, "QUEUED", 100)
    talk = Conversation()
    talk.feed(Begin())
    for step in range(1000):
        talk.feed(MetricsReported({"loss": 1.0}, step, 1.0))
    assert talk.machine.queue.dropped == 900
    talk.settle()
    assert [step for _, _, step in talk.server.metrics] == list(range(900, 1000))
    assert len(talk.of(Note)) == 1


def test_the_number_of_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_queue, "MOST_NAMES", 10)
    talk = begun()
    talk.feed(MetricsReported({f"m{number}": 1.0 for number in range(50)}, 1, 1.0))
    talk.settle()
    assert len(talk.server.metrics) == 10
    assert len(talk.of(Note)) == 1


ANSWERS = st.one_of(
    st.none(),
    st.builds(
        Answer,
        st.sampled_from([0, 200, 302, 400, 401, 404, 429, 500]),
        st.dictionaries(
            st.sampled_from("error_code experiment experiment_id run runs message".split()),
            st.one_of(
                st.sampled_from(["RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS", "1"]),
                st.text(max_size=5), st.none(), st.lists(st.none(), max_size=2),
                st.dictionaries(st.just("info"), st.none()),
            ),
        ),
    ),
)  # fmt: skip
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), ANSWERS),
        st.tuples(st.just("metrics"), st.dictionaries(st.text(), st.floats(-1e9, 1e9), max_size=3)),
        st.tuples(st.just("tags"), st.dictionaries(st.text(), st.text(), max_size=3)),
        st.tuples(st.just("late"), st.integers(0, 50)),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.booleans())
def test_whatever_happens_it_ends_and_makes_one_run(steps: List[Any], answers: bool) -> None:
    talk = Conversation()
    talk.feed(Begin())
    for number, (kind, value) in enumerate(steps):
        if kind == "step":
            talk.step(value)
        elif kind == "metrics":
            talk.feed(MetricsReported(value, number, float(number)))
        elif kind == "tags":
            talk.feed(TagsChanged(value))
        else:
            talk.feed(Answered(value, Answer(200)) if talk.request is None else Tick())
    talk.feed(JobEnded("SUCCEEDED", 1.0))
    talk.settle(None if answers else DOWN, most=400)
    assert talk.machine.phase is Phase.OVER
    assert len(talk.of(Done)) == 1
    assert len(talk.server.runs) <= 1
    assert len(talk.of(Note)) <= 6


@settings(max_examples=150, deadline=None)
@given(STEPS, st.booleans(), st.booleans())
def test_every_phase_is_left_by_a_deadline(steps: List[Any], first: bool, ends: bool) -> None:
    """Whatever was answered before: with no answer at all there is always a next time to act."""
    talk = Conversation()
    talk.feed(Begin(is_first=first))
    for number, (kind, value) in enumerate(steps):
        if kind == "step":
            talk.step(value)
        elif kind == "metrics":
            talk.feed(MetricsReported(value, number, float(number)))
    talk.feed(JobEnded("FAILED", 1.0) if ends else TagsChanged({"a": "b"}))
    began = talk.now
    for _ in range(12):
        if talk.machine.phase is Phase.OVER:
            break
        due = talk.machine.next_deadline()
        assert due is not None and due <= talk.now + max(
            run_machine.ANSWER_S, run_machine.LONGEST_PAUSE_S
        )
        talk.now, talk.request = max(talk.now, due), None
        before = talk.machine.phase, due
        found = talk.feed(Tick())
        assert found or (talk.machine.phase, talk.machine.next_deadline()) != before
    if ends:
        assert talk.machine.phase is Phase.OVER and len(talk.of(Done)) == 1
        assert talk.now - began <= 3 * (run_machine.ANSWER_S + run_machine.FIRST_PAUSE_S)


def test_the_table_has_a_way_from_each_phase_to_the_end() -> None:
    assert set(MOVES) == set(Phase)
    for phase, following in MOVES.items():
        assert (Phase.OVER in following) is (phase is not Phase.OVER)


class TestNames:
    @given(st.text(max_size=300))
    def test_are_what_mlflow_accepts(self, text: str) -> None:
        made = name_of(text)
        assert 0 < len(made) <= api.LONGEST_NAME
        assert not made.startswith(("/", "..")) and "//" not in made
        assert all(part not in ("", ".", "..") for part in made.split("/"))

    @given(st.lists(st.text(), unique=True, max_size=50))
    def test_of_different_texts_are_different(self, texts: List[str]) -> None:
        names = Names(100)
        assert len({names.find(text) for text in texts}) == len(texts)
        assert all(names.find(text) == names.find(text) for text in texts)

    def test_keep_what_they_can(self) -> None:
        assert name_of("train/loss top-1.x") == "train/loss top-1.x"
        assert name_of("../../etc") == "etc"
        assert name_of("a:b") == "a_b"


def test_a_batch_in_halves_has_all_of_it() -> None:
    points = tuple(Metric(str(number), 1.0, 1, 1) for number in range(5))
    whole = Batch(points, (("p", "1"),), (("t", "2"),))
    parts, singles = [whole], []
    while parts:
        part = parts.pop()
        halves = part.halves()
        parts += halves
        if not halves:
            singles.append(part)
    assert len(singles) == 7 and all(part.entries == 1 for part in singles)

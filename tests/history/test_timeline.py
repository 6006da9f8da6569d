"""The time line of a job: where its time went."""

from __future__ import annotations

import json
import math
from typing import Any, List

import pytest
from hypothesis import strategies as st

from tests.fuzzing import fuzz
from tests.history.stories import BEGIN, StoryBuilder, kinds
from tony_core.history.figures import job_figures
from tony_core.history.layout import StoryKind
from tony_core.history.reader import JobHistory
from tony_core.history.timeline import PHASES, timeline


def simple() -> StoryBuilder:
    """A job up to its running programs: 2 s queued, 3 s waiting, 4 s staging, 1 s starting."""
    made = StoryBuilder().wait(2).begin().wait(1).move("launched", "worker:0")
    made.wait(2).move("launched", "worker:1").wait(5)
    return made.move("running", ready_s=1.0)


def test_every_second_of_a_job_is_in_one_phase() -> None:
    story = simple().wait(60).move("succeeded").line("ending").wait(0.5)
    line = timeline(story.finish())
    assert kinds(line.phases) == [
        ("queued", 2), ("waiting", 3), ("staging", 4), ("starting", 1), ("running", 60),
        ("stopping", 0.5),
    ]  # fmt: skip
    assert line.sums() == pytest.approx({span.kind: span.end - span.begin for span in line.phases})
    assert line.end - line.begin == 70.5 and line.is_over


def test_an_older_story_has_no_times_of_ready_tasks() -> None:
    story = StoryBuilder().begin().move("launched").wait(5).move("running").wait(9)
    assert kinds(timeline(story.finish()).phases) == [("staging", 5), ("running", 9)]


def test_the_bars_show_who_the_others_waited_for() -> None:
    line = timeline(simple().wait(60).move("succeeded").finish())
    first, last = line.bars
    assert kinds(first.spans) == [("waiting", 1), ("staging", 6), ("ready", 1), ("running", 60)]
    assert kinds(last.spans) == [("waiting", 3), ("staging", 4), ("ready", 1), ("running", 60)]
    assert (first.held_s, last.held_s) == (67, 65)
    assert first.spans[-1].text == "succeeded" and first.spans[-1].node == "n1"


def restarted() -> StoryBuilder:
    """30 s of running, a failure, 5 s until nothing is left, a pause of 4 s."""
    story = simple().wait(30).move("failed", "worker:1").wait(1)
    story.line("root-cause", "worker:1 failed with exit code 3\nmore", "worker:1")
    story.line("restarting").wait(4).move("killed", "worker:0").line("backoff").wait(4)
    return story


def test_a_failed_session_stops_when_its_task_fails_and_pauses() -> None:
    story = restarted().begin(asks=False).wait(2).move("running", ready_s=0.5).wait(10)
    line = timeline(story.move("succeeded").finish())
    assert kinds(line.phases)[4:] == [
        ("running", 30), ("stopping", 5), ("pausing", 4), ("staging", 1.5), ("starting", 0.5),
        ("running", 10),
    ]  # fmt: skip
    assert [session.text for session in line.sessions] == ["worker:1 failed with exit code 3", ""]
    assert not line.lost_known, "neither steps nor checkpoints were reported"


def test_lost_is_what_the_next_session_did_again() -> None:
    story = simple()
    for step in range(30):
        story.measure("worker:0", "step", step).wait(1)
    story.move("failed", "worker:1").line("root-cause", "", "worker:1").line("restarting")
    story.move("killed", "worker:0").begin(asks=False).wait(1).move("running")
    for step in range(20, 40):
        story.measure("worker:0", "step", step).wait(1)
    line = timeline(story.move("succeeded").finish())
    assert line.lost_known
    assert kinds(line.phases)[4:] == [
        ("running", 20), ("lost", 10), ("staging", 1), ("running", 20)
    ]  # fmt: skip


def test_without_steps_lost_begins_at_the_last_checkpoint() -> None:
    story = simple().wait(12).measure("worker:0", "saved", 100).wait(18)
    story.move("failed", "worker:1").line("root-cause", "", "worker:1").line("restarting")
    story.begin(asks=False).wait(1).move("running").wait(5)
    line = timeline(story.finish())
    assert kinds(line.phases)[4:6] == [("running", 12), ("lost", 18)]


def test_a_session_that_began_from_the_start_again_has_lost_all() -> None:
    story = simple().wait(3).measure("worker:0", "step", 1).wait(27)
    story.move("failed", "worker:1").line("root-cause", "", "worker:1").line("restarting")
    story.begin(asks=False).move("running").wait(3).measure("worker:0", "step", 1).wait(9)
    assert kinds(timeline(story.finish()).phases)[4:] == [("lost", 30), ("running", 12)]


def test_a_task_that_is_restarted_within_its_session_does_not_stop_the_job() -> None:
    story = simple().wait(10).move("failed", "worker:1")
    story.line("task-again", "worker:1 is restarted", "worker:1").wait(3)
    story.move("launched", "worker:1").wait(2).move("running", "worker:1").wait(5)
    line = timeline(story.move("succeeded").finish())
    assert kinds(line.phases)[4:] == [("running", 20)]
    assert kinds(line.bars[1].spans)[3:] == [
        ("running", 10), ("waiting", 3), ("staging", 2), ("running", 5)
    ]  # fmt: skip
    assert job_figures(story.record(), line)["restarts"] == 1


def test_a_stage_that_waits_for_containers_while_nothing_runs_is_waiting() -> None:
    story = simple().wait(10).move("succeeded")
    story.line("stage-released", roles=["eval"]).wait(7)
    story.tasks["eval:0"] = {"task": "eval:0", "role": "eval"}
    story.move("launched", "eval:0").wait(1).move("running", "eval:0").wait(5)
    line = timeline(story.finish())
    assert kinds(line.phases)[4:] == [
        ("running", 10), ("waiting", 7), ("staging", 1), ("running", 5)
    ]  # fmt: skip


def test_a_released_gang_waits_on() -> None:
    story = StoryBuilder().begin().move("launched", "worker:0").wait(60)
    story.line("allocation-timeout").wait(30).move("launched").wait(2).move("running").wait(1)
    line = timeline(story.finish())
    assert kinds(line.phases) == [("waiting", 90), ("staging", 2), ("running", 1)]
    assert kinds(line.bars[0].spans)[0] == ("staging", 60)
    assert line.bars[0].spans[0].text == "released" and line.bars[0].held_s == 63


def test_a_next_master_that_takes_over_interrupts_nothing() -> None:
    story = simple().wait(10).line("takeover", "a new master takes over").move("running").wait(5)
    line = timeline(story.move("succeeded").finish())
    assert kinds(line.phases)[4:] == [("running", 15)]
    assert kinds(line.bars[0].spans)[3:] == [("running", 15)]
    assert [marker.kind for marker in line.markers] == ["takeover"]


def test_a_session_whose_end_no_master_wrote_ends_with_the_next_one() -> None:
    story = simple().wait(10).line("takeover").begin().wait(3).move("launched").wait(1)
    line = timeline(story.move("running").wait(5).finish())
    assert kinds(line.phases)[4:] == [
        ("running", 10),
        ("waiting", 3),
        ("staging", 1),
        ("running", 5),
    ]
    assert kinds(line.bars[0].spans)[3:] == [
        ("running", 10), ("waiting", 3), ("staging", 1), ("running", 5)
    ]  # fmt: skip


def test_a_job_that_still_waits_shows_so() -> None:
    story = StoryBuilder().begin().line("waiting", "queue is full").move("launched", "worker:0")
    story.tasks["worker:1"]["state"] = "requested"
    line = timeline(story.record(), now=BEGIN + 60)
    assert kinds(line.phases) == [("waiting", 60)] and line.phases[0].text == "queue is full"
    assert not line.is_over and "duration_s" not in job_figures(story.record(), line)
    assert kinds(line.bars[1].spans) == [("waiting", 60)]
    story.tasks["worker:1"]["state"] = "launched"
    story.move("launched", "worker:1")
    assert kinds(timeline(story.record(), now=BEGIN + 60).phases) == [("staging", 60)]


def test_a_sidecar_does_not_make_a_job_run() -> None:
    story = StoryBuilder().begin()
    story.tasks["tensorboard:0"] = {"task": "tensorboard:0", "tracking": "sidecar"}
    story.move("launched", "tensorboard:0").move("running", "tensorboard:0").wait(5)
    story.move("launched", "worker:0", "worker:1").wait(1).move("running", "worker:0", "worker:1")
    story.wait(9)
    line = timeline(story.finish())
    assert kinds(line.phases) == [("waiting", 5), ("staging", 1), ("running", 9)]


def test_a_job_whose_master_died_early_is_shown_as_far_as_it_is_known() -> None:
    line = timeline(JobHistory("app_1", {"submitted": BEGIN, "finished": BEGIN + 9}))
    assert kinds(line.phases) == [("queued", 9)]
    assert timeline(JobHistory("app_1")).phases == ()
    story = simple().wait(5)
    assert kinds(timeline(story.record(), now=story.at + 5).phases)[-1] == ("running", 10)


def test_of_many_tasks_those_that_failed_are_shown_first() -> None:
    story = StoryBuilder(workers=300).begin().move("launched").move("running").wait(5)
    data = timeline(story.move("failed", "worker:299").finish()).to_json(bars=10)
    assert len(data["bars"]) == 10 and data["more_bars"] == 290
    assert "worker:299" in [bar["task"] for bar in data["bars"]]


# ------------------------------------------------------------------ figures


def test_hours_are_what_was_asked_for_as_long_as_it_was_held() -> None:
    story = StoryBuilder().begin().move("launched").wait(900).move("running")
    for percent in (40.0, 60.0):
        story.wait(900)
        for task in story.tasks:
            story.measure(task, "gpu_percent", percent).measure(task, "rss_mb", 1024)
            story.measure(task, "cpu_percent", 100)
    story.wait(900).move("succeeded")
    figures = job_figures(story.finish())
    assert figures["gpu_hours"] == 2.0
    assert figures["gpu_hours_used"] == pytest.approx(0.75)
    assert figures["gpu_hours_wasted"] == pytest.approx(1.25)
    assert figures["memory_gb_hours"] == 4.0
    assert figures["memory_gb_hours_used"] == pytest.approx(1.5)
    assert (figures["vcore_hours"], figures["vcore_hours_used"]) == (4.0, pytest.approx(1.5))
    assert (figures["staging_s"], figures["running_s"], figures["duration_s"]) == (900, 2700, 3600)


def test_a_restart_is_counted_and_a_container_that_stays_is_held() -> None:
    story = restarted().begin(asks=False).wait(2).move("running").wait(10)
    figures = job_figures(story.move("succeeded").finish())
    assert (figures["sessions"], figures["restarts"], figures["tasks"]) == (2, 1, 2)
    assert figures["pausing_s"] == 4
    assert figures["vcore_hours"] == pytest.approx((2 * 58 + 2 * 56) / 3600)


def test_results_and_last_reports_are_figures() -> None:
    story = simple().wait(1)
    story.job["result"] = {"loss": 0.5, "model": "/m", "ok": True, "nested": {"x": 1}}
    story.tasks["worker:0"]["reported"] = {"accuracy": 0.9}
    figures = job_figures(story.finish())
    assert {name: v for name, v in figures.items() if "." in name} == {
        "result.loss": 0.5, "metric.accuracy": 0.9,
    }  # fmt: skip
    story.job["result"] = 7
    assert job_figures(story.finish())["result.value"] == 7


# ------------------------------------------------------------------ whatever a file holds

NUMBERS = st.one_of(
    st.floats(), st.integers(-5, 5), st.floats(0, 2000).map(lambda x: BEGIN + x),
    st.just(1e300), st.just(10**400), st.booleans(),
)  # fmt: skip
JUNK = st.recursive(
    st.one_of(st.none(), NUMBERS, st.text(max_size=4)),
    lambda below: st.one_of(
        st.lists(below, max_size=3), st.dictionaries(st.text(max_size=3), below, max_size=3)
    ),
    max_leaves=5,
)
STATES = ["launched", "running", "succeeded", "failed", "killed", "lost", "requested", "pending"]
TASKS = ["worker:0", "worker:1", "chief:0", "tb:0", "", "x"]
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.one_of(st.integers(0, 40), JUNK),
        "time": st.one_of(st.floats(0, 500).map(lambda x: BEGIN + x), NUMBERS, JUNK),
        "kind": st.one_of(st.sampled_from([kind.value for kind in StoryKind]), JUNK),
        "text": st.one_of(st.text(max_size=5), JUNK),
        "task": st.one_of(st.sampled_from(TASKS), JUNK),
        "session": st.one_of(st.integers(-1, 3), JUNK),
        "fields": st.one_of(
            JUNK,
            st.fixed_dictionaries(
                {"state": st.one_of(st.sampled_from(STATES), JUNK)},
                optional={"ready_s": NUMBERS, "roles": JUNK, "role": JUNK, "node": JUNK},
            ),
        ),
    },
)
KINDS = [kind.value for kind in StoryKind if kind is not StoryKind.TASK_STATE]
SANE = st.builds(
    lambda kind, state, passed, task, ready_s: (kind, state, passed, task, ready_s),
    st.one_of(st.sampled_from(KINDS), st.just("session-started"), *[st.just("task-state")] * 4),
    st.sampled_from(["running", *STATES[:6]]),
    st.sampled_from([0.0, 0.0, 1.0, 5.0, -3.0]),
    st.sampled_from(TASKS[:4]),
    st.sampled_from([0.0, 0.5, 2.0, 100.0]),
)


def story_of(steps: List[Any]) -> JobHistory:
    """A story whose lines are whole, in an order that no master would write."""
    made = StoryBuilder().wait(1).begin()
    made.tasks["tb:0"] = {"task": "tb:0", "role": "tb", "tracking": "sidecar", "state": "pending"}
    for kind, state, passed, task, ready_s in steps:
        made.wait(passed)
        if kind == "session-started":
            made.begin()
        elif kind == "task-state":
            made.line(kind, "", task, state=state, ready_s=ready_s)
            made.measure(task, "step", ready_s).measure(task, "saved", passed)
        else:
            made.line(kind, kind, task, roles=["worker"], role="worker")
    return made.finish() if steps and steps[-1][1] != "lost" else made.record()


SERIES = st.lists(st.one_of(st.tuples(NUMBERS, NUMBERS), JUNK), max_size=6)
RECORDS = st.builds(
    lambda job, tasks, metrics, lines: JobHistory("a", job, tuple(tasks), metrics, tuple(lines)),
    st.fixed_dictionaries(
        {},
        optional={
            "submitted": NUMBERS, "started": NUMBERS, "finished": NUMBERS, "session": JUNK,
            "result": JUNK, "roles": st.one_of(JUNK, st.fixed_dictionaries(
                {"worker": st.fixed_dictionaries(
                    {"memory_mb": NUMBERS, "gpus": NUMBERS, "vcores": NUMBERS})})),
        },
    ),
    st.lists(st.one_of(
        st.fixed_dictionaries({"task": st.sampled_from(TASKS)}, optional={
            "state": st.one_of(st.sampled_from(STATES), JUNK), "started": NUMBERS,
            "ended": NUMBERS, "tracking": st.sampled_from(["tracked", "sidecar"]),
            "usage": JUNK, "reported": JUNK, "role": JUNK, "session": JUNK}),
        st.dictionaries(st.text(max_size=3), JUNK, max_size=2)), max_size=4),
    st.one_of(
        st.dictionaries(st.text(max_size=3), JUNK, max_size=2),
        st.fixed_dictionaries({"task": st.dictionaries(
            st.sampled_from(TASKS),
            st.dictionaries(st.sampled_from(["step", "saved", "gpu_percent", "rss_mb"]), SERIES),
            max_size=2)}),
    ),
    st.lists(EVENTS, max_size=25),
)  # fmt: skip
RECORDS = st.one_of(RECORDS, st.lists(SANE, max_size=40).map(story_of))


@fuzz(record=RECORDS, now=st.one_of(st.none(), NUMBERS), by_day=80)
def test_phases_cover_the_whole_and_never_overlap(record: JobHistory, now: Any) -> None:
    line = timeline(record, now)
    at = line.begin
    for span in line.phases:
        assert span.kind in PHASES and span.begin == at and span.end > at
        at = span.end
    assert at == line.end
    assert sum(line.sums().values()) == pytest.approx(line.end - line.begin)
    for bar in line.bars:
        assert bar.held_s >= 0 and bar.running_s >= 0
        at = line.begin
        for span in bar.spans:
            assert at <= span.begin <= span.end <= line.end, (bar, line.begin, line.end)
            at = span.end
    json.dumps(line.to_json(), allow_nan=False)


@fuzz(record=RECORDS, by_day=80)
def test_figures_are_finite_and_not_negative(record: JobHistory) -> None:
    for name, value in job_figures(record).items():
        assert math.isfinite(value)
        assert value >= 0 or name.startswith(("result.", "metric."))


def test_a_launch_after_an_end_without_a_line_is_no_wait() -> None:
    began = ("session-started", "", 0.0, "worker:0", 0.0)
    moves = [("task-state", state, 1.0, "worker:0", 0.0) for state in ("running", "launched")]
    (bar,) = (b for b in timeline(story_of([began, *moves])).bars if b.task == "worker:0")
    assert [span.kind for span in bar.spans] == ["running"]

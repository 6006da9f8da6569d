"""Jobs side by side."""

from __future__ import annotations

import json
import math
from typing import Any, Dict, List

import pytest
from hypothesis import example
from hypothesis import strategies as st

from tests.fuzzing import fuzz
from tests.history.stories import BEGIN, StoryBuilder
from tests.history.test_timeline import RECORDS
from tony_core.history.compare import BY_SECONDS, Compared, Comparison, compare, differences
from tony_core.history.reader import JobHistory


def trained(wait: float, losses: List[float], steps: bool = True, **job: Any) -> JobHistory:
    """A job that waits, and then reports a loss each 10 s."""
    story = StoryBuilder(workers=1).begin().wait(wait).move("launched").wait(1)
    story.move("running", ready_s=0.0)
    for step, loss in enumerate(losses):
        story.wait(10)
        if steps:
            story.measure("worker:0", "step", step * 100)
        story.measure("worker:0", "loss", loss)
    story.job.update(job)
    return story.move("succeeded").finish()


def both(first: JobHistory, second: JobHistory, across: str = "") -> Comparison:
    return compare([Compared(first), Compared(second)], across)


def test_where_the_time_went_side_by_side() -> None:
    found = both(trained(5, [1.0] * 6), trained(65, [1.0] * 6))
    assert {row.name: row.values for row in found.phases} == {
        "waiting": (5, 65), "staging": (1, 1), "running": (60, 60),
    }  # fmt: skip
    costs = {row.name: row.values for row in found.costs}
    assert costs["duration_s"] == (66, 126) and costs["waiting_s"] == (5, 65)
    assert costs["sessions"] == (1, 1) and "restarts" not in costs


def sized(workers: int, seconds_per_step: float, steps: int = 10) -> JobHistory:
    """A job of so many workers that step at the same speed."""
    story = StoryBuilder(workers).begin().move("launched").move("running")
    for step in range(steps):
        story.wait(seconds_per_step).measure("worker:0", "step", step)
    return story.move("succeeded").finish()


def test_the_speed_up_of_more_workers() -> None:
    found = compare(
        [Compared(sized(*each)) for each in ((2, 2.0), (4, 1.0), (8, 1.0), (2, 1.0, 1))]
    )
    assert {row.name: row.values for row in found.speed} == {
        "steps_per_s": (0.5, 1.0, 1.0, None), "tasks": (2, 4, 8, 2),
        "speed_up": (1.0, 2.0, 2.0, None), "speed_up_of_growth": (1.0, 1.0, 0.5, None),
    }  # fmt: skip
    assert both(sized(2, 1.0), sized(2, 1.0, 1)).speed == ()
    assert [row.name for row in both(sized(2, 1.0), sized(2, 2.0)).speed][-1] == "speed_up"


FAR = st.sampled_from([0.0, 1.0, 5e-324, 1e-300, 1e-9, 9e299, -9e299, 1.7e308, -1.7e308])
SERIES = st.lists(st.tuples(FAR, FAR), min_size=2, max_size=4)


@fuzz(
    jobs=st.lists(st.tuples(st.integers(1, 3), SERIES), min_size=2, max_size=3),
    across=st.sampled_from(["", "step", "seconds"]),
)
@example([(1, [(0.0, 0.0), (1e-300, 9e299)]), (2, [(0.0, 0.0), (1.0, 1.0)])], "")
@example([(1, [(0.0, 0.0), (9e299, 1e-9)]), (2, [(0.0, 0.0), (1e-300, 1.0)])], "")
def test_numbers_are_finite_whatever_was_reported(jobs: List[Any], across: str) -> None:
    records = []
    for workers, points in jobs:
        tasks = tuple({"task": f"worker:{index}"} for index in range(workers))
        series = {name: sorted(points) for name in ("step", "loss")}
        result = {"loss": points[0][0] * 10, "all": [math.inf]}
        records.append(JobHistory("a", {"result": result}, tasks, {"task": {"worker:0": series}}))
    found = compare([Compared(record) for record in records], across)
    json.dumps(found.to_json(), allow_nan=False)


def test_only_what_differs_in_the_configurations() -> None:
    rows = differences([{"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4"}, None])
    assert [(row.name, row.values) for row in rows] == [
        ("b", ("2", "4", None)), ("c", ("3", None, None)),
    ]  # fmt: skip
    assert differences([{"a": "1"}, None]) == ()


def test_results_are_shown_with_what_is_nested() -> None:
    found = both(
        trained(1, [1.0], result={"loss": 0.5, "at": [1, 2]}), trained(1, [1.0], result="fine")
    )
    assert {row.name: row.values for row in found.results} == {
        "loss": (0.5, None), "at": ("[1, 2]", None), "value": (None, "fine"),
    }  # fmt: skip
    assert [row.differs for row in found.results] == [True, True, True]


def test_metrics_are_aligned_by_step() -> None:
    found = both(trained(1, [5.0, 4.0, 3.0]), trained(500, [6.0, 5.0, 4.0, 2.0, 1.0]))
    (loss,) = found.metrics
    assert (loss.name, loss.across, loss.at) == ("loss", "step", 200)
    assert loss.values == (3.0, 4.0) and loss.last == (3.0, 1.0)
    assert loss.curves[1].points == ((0, 6.0), (100, 5.0), (200, 4.0), (300, 2.0), (400, 1.0))


def test_metrics_are_aligned_by_the_time_since_the_programs_started() -> None:
    found = both(trained(1, [5.0, 4.0]), trained(500, [6.0, 5.0, 4.0], steps=False))
    (loss,) = found.metrics
    assert (loss.across, loss.at, loss.values) == (BY_SECONDS, 20, (4.0, 5.0))
    assert [curve.points[0] for curve in loss.curves] == [(10, 5.0), (10, 6.0)]
    by_time = both(trained(1, [5.0, 4.0]), trained(1, [5.0]), BY_SECONDS).metrics[0]
    assert by_time.across == BY_SECONDS


def test_a_step_that_was_done_again_counts_as_it_was_done_last() -> None:
    story = StoryBuilder(workers=1).begin().move("launched").move("running")
    for step, loss in ((0, 9.0), (1, 8.0), (2, 7.0), (1, 6.0), (2, 5.0)):
        story.wait(1).measure("worker:0", "step", step).measure("worker:0", "loss", loss)
    record = story.finish()
    points = both(record, record).metrics[0].curves[0].points
    assert points == ((0, 9.0), (1, 6.0), (2, 5.0))


def sampled(*times: float) -> JobHistory:
    """A job that reports a loss with each of 20 steps, and is measured now and then."""
    story = StoryBuilder(workers=1).begin().move("launched").wait(1).move("running")
    for step in range(20):
        story.wait(1).measure("worker:0", "step", step).measure("worker:0", "loss", 20.0 - step)
        story.metrics["worker:0"].setdefault(
            "rss_mb", [[BEGIN + 1 + at, 10.0 * (number + 1)] for number, at in enumerate(times)]
        )
    story.tasks["worker:0"].update(measures={"rss_mb": 10.0}, reported={"loss": 1.0, "step": 19})
    return story.move("succeeded").finish()


def test_what_was_measured_is_aligned_by_time_and_what_was_reported_by_step() -> None:
    jobs = [Compared(sampled(*times)) for times in ((2.97, 9), (3.3, 12), (5, 8.5))]
    found = {row.name: row for row in compare(jobs).metrics}
    assert (found["loss"].across, found["loss"].at) == ("step", 19)
    assert (found["rss_mb"].across, found["rss_mb"].at) == (BY_SECONDS, 8.5)
    assert found["rss_mb"].values == (10.0, 10.0, 20.0) and len(found["rss_mb"].curves) == 3
    assert all(len(curve.points) == 2 for curve in found["rss_mb"].curves)


def test_steps_are_whole() -> None:
    jobs = [Compared(sampled(2.97, 8.97))] * 2
    (memory,) = [row for row in compare(jobs, "step").metrics if row.name == "rss_mb"]
    assert memory.at == 7 and [point[0] for point in memory.curves[0].points] == [1, 7]


def test_jobs_without_a_common_time_have_only_their_last_values() -> None:
    (memory,) = [row for row in both(sampled(2, 3), sampled(9)).metrics if row.name == "rss_mb"]
    assert (memory.at, memory.values, memory.last) == (None, (None, None), (20.0, 10.0))


def test_long_series_are_thinned_and_keep_their_last_point() -> None:
    long = trained(1, [float(number) for number in range(1000)])
    curve = both(long, long).metrics[0].curves[0]
    assert len(curve.points) <= 301 and curve.points[-1] == (99900, 999.0)


@pytest.mark.parametrize("count", [0, 1, 21])
def test_too_few_and_too_many_jobs_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} jobs cannot be compared; expected 2 to 20"):
        compare([Compared(trained(1, [1.0]))] * count)


def test_a_job_of_which_nothing_is_known() -> None:
    found = both(JobHistory("app_1"), trained(1, [1.0]))
    assert found.jobs[0]["app_id"] == "app_1" and found.metrics[0].last == (None, 1.0)
    assert found.unknown_configs == (0, 1)


@fuzz(first=RECORDS, second=RECORDS, by_day=40)
def test_whatever_the_records_hold(first: JobHistory, second: JobHistory) -> None:
    config: Dict[str, str] = {"a": "1"}
    found = compare([Compared(first, config), Compared(second)])
    json.dumps(found.to_json(), default=str, allow_nan=False)
    assert all(len(row.values) == 2 for row in (*found.phases, *found.costs, *found.results))
    assert BEGIN

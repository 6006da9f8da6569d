"""The runs of a pipeline over time: the run that changed is named, and noise is not."""

from __future__ import annotations

import math
import random
from itertools import combinations
from typing import Any, Callable, Dict, List, Optional

import pytest
from hypothesis import strategies as st

from tests.fuzzing import fuzz
from tony_core.history.trends import (
    AFTER,
    BEFORE,
    Run,
    _exact,
    config_changes,
    find_shifts,
    find_trends,
)

NOISES: Dict[str, Callable[[random.Random], float]] = {
    "normal": lambda rng: rng.gauss(60, 3),
    "skewed": lambda rng: 60 * rng.lognormvariate(0, 0.4),
    "outliers": lambda rng: rng.gauss(60, 3) + (rng.random() < 0.1) * rng.uniform(50, 5000),
    "two kinds of nodes": lambda rng: rng.gauss(60, 2) + (rng.random() < 0.4) * 20,
    "counts": lambda rng: float(rng.random() < 0.2),
}


def series(seed: int, length: int, noise: str = "normal") -> List[float]:
    rng = random.Random(seed)
    return [NOISES[noise](rng) for _ in range(length)]


@pytest.mark.parametrize("noise", NOISES)
def test_noise_is_no_shift(noise: str) -> None:
    """Of 300 series at most 2 in 100 are taken for a shift: counts 1 in 100, others 1 in 500."""
    found = [find_shifts(series(seed, 10 + seed % 60, noise)) for seed in range(300)]
    assert sum(map(bool, found)) <= 6


@pytest.mark.parametrize(("length", "place"), [(20, 17), (30, 15), (40, 35), (60, 10)])
def test_the_run_that_changed_is_named(length: int, place: int) -> None:
    """From 60 s to 78 s in noise of 3 s: the very run, in at least 97 of 100 series."""
    right = 0
    for seed in range(100):
        values = [v + (18 if at >= place else 0) for at, v in enumerate(series(seed, length))]
        right += [shift.at for shift in find_shifts(values)] == [place]
    assert right >= 97


def test_a_shift_among_outliers_is_found() -> None:
    values = [v + 30 * (at >= 20) for at, v in enumerate(series(0, 40, "outliers"))]
    assert sum(value > 150 for value in values) >= 3
    (shift,) = find_shifts(values)
    assert shift.at == 20
    assert shift.before == pytest.approx(60, abs=3) and shift.after == pytest.approx(90, abs=3)
    assert shift.change == pytest.approx(0.5, abs=0.1)


def test_two_shifts_are_two() -> None:
    values = [v + 30 * (15 <= at < 30) for at, v in enumerate(series(3, 45))]
    assert [shift.at for shift in find_shifts(values)] == [15, 30]


def test_little_evidence_is_none() -> None:
    assert find_shifts([60.0] * 5 + [90.0] * 3) == []  # chance shows it in 1 of 28 arrangements
    assert find_shifts([60.0] * 40 + [90.0] * (AFTER - 1)) == []
    assert find_shifts([60.0] * (BEFORE - 1) + [90.0] * 40) == []
    assert [shift.at for shift in find_shifts([60.0] * 40 + [90.0] * AFTER)] == [40]


def test_what_is_too_small_to_matter_is_no_shift() -> None:
    assert find_shifts([60.0 + at % 2 / 100 for at in range(20)] + [61.0] * 20) == []


@pytest.mark.parametrize(("few", "many", "least"), [(3, 5, 0), (3, 5, 4), (4, 4, 7), (2, 6, 3)])
def test_the_chance_is_the_share_of_all_arrangements(few: int, many: int, least: int) -> None:
    arrangements = list(combinations(range(few + many), few))
    wins = [
        sum(1 for at in chosen for other in range(at) if other not in chosen)
        for chosen in arrangements
    ]
    expected = sum(win <= least for win in wins) / len(arrangements)
    assert _exact(few, many, least) == pytest.approx(expected)


# ------------------------------------------------------------------ runs


def a_run(number: int, state: str = "SUCCEEDED", **figures: float) -> Run:
    return Run(f"app_{number:03}", "here", 1.7e9 + number * 86400, state, figures)


def test_the_trends_of_a_pipeline() -> None:
    noise = series(1, 30)
    runs = [
        a_run(number, duration_s=noise[number] + 40 * (number >= 20), waiting_s=2.0,
              **{"result.loss": 0.5 + number % 3 / 10})
        for number in range(30)
    ]  # fmt: skip
    runs.append(a_run(30, "FAILED", duration_s=3.0, waiting_s=2.0))
    runs.append(a_run(31, "RUNNING"))
    found = find_trends(random.Random(0).sample(runs, len(runs)))
    assert [run.app_id for run in found.runs] == [f"app_{number:03}" for number in range(31)]
    by_name = {trend.name: trend for trend in found.trends}
    assert list(by_name) == ["duration_s", "waiting_s", "result.loss"]
    (shift,) = by_name["duration_s"].shifts
    assert (shift.at, shift.app_id, shift.runs_before, shift.runs_after) == (20, "app_020", 20, 10)
    assert list(found.shifts()) == [20]
    assert len(by_name["duration_s"].values) == 30, "a run that failed says nothing of durations"
    assert len(by_name["waiting_s"].values) == 31
    (before, after) = by_name["duration_s"].levels()
    assert before[:2] == (0, 19) and after[:2] == (20, 29) and after[2] - before[2] > 30


def test_what_differs_in_every_run_is_no_change_of_the_configuration() -> None:
    before = [{"batch": "64", "date": str(day), "seed": "1"} for day in range(3)]
    after = [{"batch": "128", "date": str(day), "lr": "1"} for day in range(3, 5)]
    assert config_changes(before, after) == (
        ("batch", "64", "128"), ("lr", None, "1"), ("seed", "1", None),
    )  # fmt: skip
    assert config_changes([], after) == ()


NUMBERS = st.one_of(st.floats(), st.sampled_from([0.0, 1.0, -1.0, 1e300, 5e-324]))


@fuzz(
    runs=st.lists(
        st.builds(
            Run, st.text(max_size=3), st.just(""), NUMBERS,
            st.sampled_from(["SUCCEEDED", "FAILED", "RUNNING", ""]),
            st.dictionaries(
                st.sampled_from(["duration_s", "waiting_s", "result.x", "metric.", "y"]), NUMBERS
            ),
        ),
        max_size=30,
    ),
    by_day=60,
)  # fmt: skip
def test_whatever_figures_hold(runs: List[Any]) -> None:
    for trend in find_trends(runs).trends:
        assert all(math.isfinite(value) for _, value in trend.values)
        for shift in trend.shifts:
            change: Optional[float] = shift.change
            assert change is None or isinstance(change, float)
        trend.levels()

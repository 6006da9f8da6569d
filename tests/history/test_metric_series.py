"""Metric series of bounded size."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_core.history.metric_series import FEWEST, Series, SeriesStore


@given(st.integers(1, 3000), st.integers(FEWEST, 100))
def test_a_series_never_grows_beyond_its_limit_and_keeps_its_ends(count: int, limit: int) -> None:
    series = Series()
    for number in range(count):
        series.add(float(number), number * 2.0, limit)
    points = series.points()
    assert len(points) <= limit + 1
    assert points[0] == (0.0, 0.0)
    assert points[-1] == (count - 1.0, (count - 1) * 2.0)
    assert [at for at, _ in points] == sorted({at for at, _ in points})
    assert all(value == at * 2 for at, value in points)
    if count > limit:
        assert len(points) >= limit / 2


def test_points_are_spread_over_the_whole_run() -> None:
    series = Series()
    for number in range(10_000):
        series.add(float(number), 0.0, 100)
    gaps = [b - a for (a, _), (b, _) in zip(series.points(), series.points()[1:], strict=False)]
    assert max(gaps) <= 2 * 10_000 / 50


def test_what_is_no_number_is_passed_over() -> None:
    store = SeriesStore()
    store.add("w", 1.0, {"a": math.nan, "b": math.inf, "c": 1, "d": "x"})  # type: ignore[dict-item]
    assert store.latest("w") == {"c": 1.0}
    json.dumps(store.to_json(), allow_nan=False)


def test_shapes() -> None:
    store = SeriesStore()
    store.add("worker:0", 1.23456, {"loss": 0.5})
    store.add("worker:0", 2.0, {"loss": 0.25, "rss_mb": 3})
    assert store.to_json() == {
        "task": {"worker:0": {"loss": [[1.235, 0.5], [2.0, 0.25]], "rss_mb": [[2.0, 3.0]]}},
        "latest": {"worker:0": {"loss": 0.25, "rss_mb": 3.0}},
    }
    assert store.latest("unknown") == {}


def test_all_series_share_one_budget() -> None:
    store = SeriesStore(points=100, total=2000)
    for round_ in range(300):
        for task in range(50):
            store.add(f"w:{task}", float(round_), {"a": 1.0, "b": 2.0})
    kept = sum(len(p) for t in store.to_json()["task"].values() for p in t.values())
    assert kept <= 2 * 2000


class TestTheRate:
    def test_of_the_last_minute(self) -> None:
        series = Series()
        for at in range(200):
            series.add(float(at), at * 3.0, 400)
        assert series.rate(199.0, 60.0) == pytest.approx(3.0)

    def test_counts_anew_where_a_program_starts_again(self) -> None:
        series = Series()
        for at, step in enumerate((100, 110, 120, 50, 52, 54)):
            series.add(float(at), float(step), 400)
        assert series.rate(5.0, 60.0) == pytest.approx(2.0)

    def test_is_0_once_nothing_is_reported(self) -> None:
        series = Series()
        series.add(0.0, 1.0, 400)
        assert series.rate(1.0, 60.0) is None, "one value is no speed"
        series.add(1.0, 5.0, 400)
        assert series.rate(2.0, 60.0) == 4.0
        assert series.rate(62.0, 60.0) == 0.0

    def test_of_a_thinned_series(self) -> None:
        series = Series()
        for at in range(1000):
            series.add(float(at), at * 2.0, 16)
        assert series.rate(999.0, 60.0) == pytest.approx(2.0)

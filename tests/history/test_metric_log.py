"""Metric series out of the lines of a running job: the very series that its master has."""

from __future__ import annotations

import json
from typing import Any, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import bounds, fuzz, mutations
from tony_core.history.metric_log import encode_points, replay, set_latest
from tony_core.history.metric_series import Kept, SeriesStore

#: Of each report: task, its metrics.
REPORTS = st.lists(
    st.tuples(
        st.sampled_from(["w:0", "w:1", "ps:0"]),
        st.dictionaries(st.sampled_from(["loss", "rss", "progress"]), st.floats(-1e9, 1e9)),
    ),
    max_size=300,
)


def log(store: SeriesStore, reports: List[Tuple[str, Any]], first: float = 0.0) -> List[bytes]:
    """Offer reports to a store; the lines that history gets of it, one for three reports."""
    lines: List[bytes] = []
    pending: List[Tuple[str, Kept]] = []
    for number, (task, values) in enumerate(reports):
        pending.append((task, store.add(task, first + number, values)))
        if number % 3 == 2:
            lines.append(encode_points(pending))
            pending = []
    return [line for line in (*lines, encode_points(pending)) if line]


def points(store: SeriesStore) -> Any:
    """The kept points alone."""
    return {
        (task, name): (list(one.times), list(one.values))
        for task, known in store._series.items()
        for name, one in known.items()
        if one.times
    }


@given(REPORTS, REPORTS)
def test_lines_give_the_same_series_and_a_next_master_goes_on_with_them(
    reports: List[Tuple[str, Any]], more: List[Tuple[str, Any]]
) -> None:
    store = SeriesStore(points=20, total=100)
    lines = log(store, reports)
    read = SeriesStore(points=20, total=100)
    for line in lines:
        replay(read, line)
    assert points(read) == points(store)
    lines = log(read, more, 1000.0)  # by the next master, with what it has read
    again = SeriesStore()
    for line in [*log(SeriesStore(points=20, total=100), reports), *lines]:
        replay(again, line)
    assert points(again) == points(read)


def test_the_newest_values_are_known_besides() -> None:
    store = SeriesStore(points=16)
    lines = log(store, [("w:0", {"loss": float(n)}) for n in range(100)])
    read = SeriesStore()
    for line in lines:
        replay(read, line)
    assert read.latest("w:0")["loss"] < 99.0
    set_latest(read, {"w:0": [99.0, {"loss": 99.0}], "w:1": [1.0, {"x": 2.0}]})
    assert read.to_json()["latest"] == {"w:0": {"loss": 99.0}, "w:1": {"x": 2.0}}
    assert read.to_json()["task"]["w:0"] == store.to_json()["task"]["w:0"]
    set_latest(read, {"w:0": [5.0, {"loss": 1.0}], "a": 1, "b": [1], "c": ["x", {"y": 1}]})
    assert read.latest("w:0") == {"loss": 99.0}, "older and odd values change nothing"


def test_a_long_run_costs_few_points() -> None:
    store = SeriesStore()
    size = sum(map(len, log(store, [("w:0", {"loss": n / 7}) for n in range(100_000)])))
    assert size < 300_000, "a point in each interval would be some 4 MB"


def test_nothing_taken_is_no_line() -> None:
    assert encode_points([]) == b""
    assert encode_points([("w:0", Kept(1.0, {"a": 1.0}, {}))]) == b""


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"{}", b'{"points": 1}', b'{"points": [1]}', b'{"points": [[1, 2, {}]]}',
     b'{"points": [["w", "x", {}]]}', b'{"points": [["w", 1, []]]}',
     b'{"points": [["w", 1e400, {}]]}'],
)  # fmt: skip
def test_what_is_no_line_of_points_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        replay(SeriesStore(), line)


def test_a_hostile_line_costs_little() -> None:
    thinned = json.dumps({"points": [["w", 1, {"a": 1}, ["a"] * 300_000]]}).encode()
    store = SeriesStore()
    with bounds(seconds=10.0):
        replay(store, thinned)
    assert store.latest("w") == {"a": 1.0}


SAMPLE = encode_points([("w:0", Kept(1.5, {"a": 1.0}, {"a": 1.0}, ("a",)))])


@fuzz(data=mutations(SAMPLE, b'{"points": [["w:0", 1e999, {"a": NaN}, [1]]]}'))
def test_any_line_is_read_or_refused(data: bytes) -> None:
    store = SeriesStore()
    try:
        replay(store, data)
    except ValueError:
        pass
    json.dumps(store.to_json(), allow_nan=False)

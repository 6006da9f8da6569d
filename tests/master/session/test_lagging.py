"""Which task of a gang that stands still lags."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_core.master.session.lagging import StandingTask, find_lagging


def gang(count: int, step: int = 7, **more: object) -> List[StandingTask]:
    return [StandingTask(f"worker:{i}", step)._replace(**more) for i in range(count)]


def test_the_lowest_step_lags() -> None:
    tasks = gang(4)
    tasks[2] = tasks[2]._replace(step=6)
    lag = find_lagging(tasks)
    assert lag.names == ("worker:2",) and lag.why == "its last step is 6, the others' 7"


def test_one_that_moves_is_never_named_however_far_behind() -> None:
    tasks = gang(3)
    tasks[0] = tasks[0]._replace(step=3, is_still=False)
    assert find_lagging(tasks)[:2] == ((), "the others go on")
    tasks[1] = tasks[1]._replace(step=6)
    assert find_lagging(tasks).names == ("worker:1",)


INSIDE = {"in_collective": True, "frame": "train (train.py:31)", "cpu_percent": 100.0}
OUTSIDE = {"in_collective": False, "frame": "load (data.py:3)", "cpu_percent": 100.0}
UNKNOWN = {"in_collective": None, "frame": "train (train.py:33)", "cpu_percent": 100.0}


def silent_gang(*where: Dict[str, Any]) -> List[StandingTask]:
    """A gang of which only rank 0 reports steps, and stands still; the others spin."""
    tasks = [each._replace(**at) for each, at in zip(gang(len(where)), where, strict=True)]
    return [
        task if not at else task._replace(step=None, is_still=False, has_stacks=True)
        for at, task in enumerate(tasks)
    ]


def test_of_those_that_report_no_step_nothing_is_known_without_their_stacks() -> None:
    tasks = silent_gang(INSIDE, INSIDE, OUTSIDE)
    tasks = [each._replace(has_stacks=False) for each in tasks]
    assert find_lagging(tasks)[:2] == ((), "2 of the others report no step, and log or compute")


@pytest.mark.parametrize(
    ("where", "lags"),
    [
        ((INSIDE, INSIDE, OUTSIDE), "worker:2"),
        ((INSIDE, OUTSIDE), "worker:1"),
        ((INSIDE, UNKNOWN, OUTSIDE), "worker:2"),
        # Rank 0 evaluates, or writes a checkpoint.
        ((OUTSIDE, INSIDE, INSIDE), "worker:0"),
        ((OUTSIDE, INSIDE), "worker:0"),
        # Rank 2 may be no part of the collective: the one that is known to stand still is named.
        ((OUTSIDE, INSIDE, OUTSIDE), "worker:0"),
        # Without a collective that rank 0 waits in nothing shows that the others should be in one.
        ((UNKNOWN, INSIDE, OUTSIDE), ""),
        ((UNKNOWN, OUTSIDE), ""),
        ((OUTSIDE, {**OUTSIDE, "frame": ""}, OUTSIDE), ""),
        ((INSIDE, INSIDE, INSIDE), ""),
        # More are outside than inside: so it is no collective of the whole gang.
        ((INSIDE, OUTSIDE, OUTSIDE), ""),
        # It does no more than wait where the others spin.
        (({**UNKNOWN, "cpu_percent": 1.0}, UNKNOWN, UNKNOWN), "worker:0"),
        (({**UNKNOWN, "frame": "save (x.py:3)"}, UNKNOWN, UNKNOWN), "worker:0"),
        ((UNKNOWN, UNKNOWN, {**UNKNOWN, "cpu_percent": 1.0}), ""),
    ],
)
def test_where_only_rank_0_reports_steps_stacks_show_who_lags(
    where: Tuple[Dict[str, Any], ...], lags: str
) -> None:
    lag = find_lagging(silent_gang(*where))
    assert lag.names == ((lags,) if lags else ())
    assert lag.is_certain and (lags or "their stacks do not show which one lags" in lag.why)


@pytest.mark.parametrize(
    "where",
    [
        # Rank 0 waits for its device, and rank 1 at the same place.
        (UNKNOWN, UNKNOWN, OUTSIDE),
        # ...or inside of C++ (.item()), which no stack shows.
        (*[{**OUTSIDE, "frame": "train (train.py:33)"}] * 2, OUTSIDE),
    ],
)
def test_one_without_steps_at_an_odd_place_may_lag(where: Tuple[Dict[str, Any], ...]) -> None:
    why = "it stands in load (data.py:3), the others in train (train.py:33)"
    assert find_lagging(silent_gang(*where)) == (("worker:2",), why, False)
    both = [*silent_gang(*where, where[0], where[0]), StandingTask("worker:5", 7, **OUTSIDE)]
    assert find_lagging(both) == (("worker:5",), why, True)  # that one stands still, too


def test_a_rank_whose_steps_go_on_is_not_named_for_its_stack() -> None:
    tasks = silent_gang(INSIDE, INSIDE, OUTSIDE)
    tasks[2] = tasks[2]._replace(step=9)
    assert find_lagging(tasks)[:2] == ((), "the others go on")


def test_at_the_same_step_the_one_outside_the_collective_lags() -> None:
    tasks = gang(2, in_collective=True, frame="train (train.py:31)")
    tasks[1] = tasks[1]._replace(in_collective=False, frame="load (data.py:3)")
    lag = find_lagging(tasks)
    assert lag.names == ("worker:1",)
    assert "not in the collective" in lag.why and "load (data.py:3)" in lag.why


def test_in_three_the_odd_place_lags() -> None:
    tasks = gang(3, frame="train (train.py:31)")
    tasks[0] = tasks[0]._replace(frame="load (data.py:3)")
    lag = find_lagging(tasks)
    assert lag.names == ("worker:0",) and "train (train.py:31)" in lag.why


def test_the_place_of_the_others_is_the_one_that_they_share() -> None:
    silent = StandingTask("worker:0", None, False, True, frame="log (a.py:9)")
    frames = ("wait (b.py:1)", "wait (b.py:1)", "read (c.py:2)")
    still = [StandingTask(f"worker:{at}", 7, frame=each) for at, each in enumerate(frames, 1)]
    lag = find_lagging([silent, *still])
    assert lag.names == ("worker:3",)
    assert lag.why == "it stands in read (c.py:2), the others in wait (b.py:1)"


def test_a_step_is_that_of_all_only_where_each_has_reported_it() -> None:
    tasks = [*gang(1, 5), StandingTask("worker:1")]
    assert find_lagging(tasks).why == "all stand, and none differs from the others"


def test_in_three_the_odd_use_of_processors_lags() -> None:
    tasks = gang(3, cpu_percent=100.0)
    tasks[1] = tasks[1]._replace(cpu_percent=0.0)
    assert find_lagging(tasks).names == ("worker:1",)
    tasks = gang(3, cpu_percent=0.5)
    tasks[2] = tasks[2]._replace(cpu_percent=99.0)
    lag = find_lagging(tasks)
    assert lag.names == ("worker:2",) and "it computes (99 % of a core)" in lag.why


def test_where_all_are_alike_none_is_named() -> None:
    lag = find_lagging(gang(8, cpu_percent=100.0, in_collective=True, frame="x (y.py:1)"))
    assert lag.names == () and lag.why == "all stand at step 7, and none differs from the others"
    assert find_lagging([]).names == ()
    assert find_lagging(gang(2, cpu_percent=50.0)).names == ()


class Counted(StandingTask):
    """Counts how often one is compared with another."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return self is other

    __hash__ = StandingTask.__hash__


def test_thousands_are_not_compared_with_each_other() -> None:
    for is_still in (True, False):
        tasks = [Counted(f"worker:{i}", 7, is_still, True, 1.0, f"f{i}") for i in range(1000)]
        find_lagging([StandingTask("chief:0", 7), *tasks])
    assert Counted.comparisons <= 2 * 1000


TASKS = st.lists(
    st.builds(
        StandingTask,
        st.sampled_from(["a:0", "a:1", "b:0"]),
        st.none() | st.integers(0, 3),
        st.booleans(),
        st.booleans(),
        st.sampled_from([0.0, 30.0, 100.0]),
        st.sampled_from(["", "x", "y"]),
        st.none() | st.booleans(),
    ),
    max_size=8,
)


@given(TASKS)
def test_never_all_of_several_are_named(tasks: List[StandingTask]) -> None:
    lag = find_lagging(tasks)
    assert len(lag.names) < max(1, len(tasks))
    waits = any(task.is_still and task.in_collective for task in tasks)
    may_lag = {
        task.name
        for task in tasks
        if task.is_still
        or (waits and task.step is None and task.has_stacks and task.in_collective is False)
    }
    silent = {task.name for task in tasks if task.step is None and task.has_stacks}
    assert set(lag.names) <= (may_lag if lag.is_certain else silent)
    assert not lag.names or lag.why

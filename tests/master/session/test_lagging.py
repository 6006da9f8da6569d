"""Which task of a gang that stands still lags."""

from __future__ import annotations

from typing import List

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
    assert find_lagging(tasks) == ((), "the others go on")
    tasks[1] = tasks[1]._replace(step=6)
    assert find_lagging(tasks).names == ("worker:1",)


def test_of_those_that_report_no_step_nothing_is_known() -> None:
    """Only rank 0 reports, and the others spin in the collective."""
    tasks = gang(3)
    tasks[1:] = [task._replace(step=None, is_still=False) for task in tasks[1:]]
    assert find_lagging(tasks) == ((), "2 of the others report no step, and log or compute")


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


TASKS = st.lists(
    st.builds(
        StandingTask,
        st.sampled_from(["a:0", "a:1", "b:0"]),
        st.none() | st.integers(0, 3),
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
    assert set(lag.names) <= {task.name for task in tasks if task.is_still}
    assert not lag.names or lag.why

"""Ranks that report no step, where another one has stalled: their stacks show which lags."""

from __future__ import annotations

import itertools
from typing import List, NamedTuple, Optional

import pytest

from tests.master.session.stalling import (
    LIMIT_S,
    lines,
    page,
    running,
    shows,
    silent,
    stands,
    steps,
    watched,
)
from tony_core.job.spec import Mode, StallAction
from tony_core.master.session import commands as c
from tony_core.master.session.stalls import MOST_ASKED
from tony_core.protocol.messages import Register
from tony_core.schedulers.container_pool import PreemptionRequested, PreemptionWithdrawn


def test_ranks_that_report_no_step_are_asked_for_their_stacks() -> None:
    world = silent()
    stands(world, "worker:0", looked=False)
    assert world.asked_for_stacks == ["worker:1", "worker:2"]
    stands(world, "worker:0", step=7, in_collective=True, frame="train (train.py:31)")
    shows(world, "worker:1", True, frame="train (train.py:31)")
    assert lines(world) == []
    shows(world, "worker:2", False, frame="spin (train.py:9)")
    (line,) = [each for each in world.story if each.kind == "stalled"]
    assert line.task == "worker:2" and line.fields["lagging"] == ["worker:2"]
    assert line.fields["tasks"] == ["worker:0"] and line.fields["count"] == 1
    assert "worker:0 has stalled: no step for 1 min, the last was 7" in line.text
    assert "worker:2 lags: it is not in the collective that the others wait in" in line.text
    assert "spin (train.py:9)" in line.text and world.asked_for_stacks == ["worker:1", "worker:2"]
    stands(world, "worker:0", "")
    assert lines(world) == ["stalled", "stall-over"]


def test_rank_0_that_is_busy_while_the_others_wait_for_it_is_named() -> None:
    world = silent()
    stands(world, "worker:0", in_collective=False, frame="evaluate (train.py:52)")
    shows(world, "worker:1", True)
    shows(world, "worker:2", True)
    (text,) = world.story_texts("stalled")
    assert "worker:0 lags: it is not in the collective" in text


def test_a_rank_without_steps_that_may_lag_is_named_and_rank_0_is_ended() -> None:
    world = silent(StallAction.RESTART)
    stands(world, "worker:0", in_collective=None, frame="train (train.py:31)")
    shows(world, "worker:1", None, frame="train (train.py:31)")
    shows(world, "worker:2", False, frame="load (data.py:3)")
    (text,) = world.story_texts("stalled")
    assert "worker:2 may lag: it stands in load (data.py:3), the others in train" in text
    world.settle()
    world.after(30.0).settle()
    assert world.machine.state.session == 1
    assert world.machine.state.root_cause["task"] == "worker:0"


def test_ranks_that_report_steps_are_not_asked_and_not_named() -> None:
    world = silent()
    steps(world, "worker:2", 7)
    stands(world, "worker:0", in_collective=True)
    assert world.asked_for_stacks == ["worker:1"]
    shows(world, "worker:1", True)
    shows(world, "worker:2", False)  # not asked for
    assert lines(world) == []  # it may come to stand still as well
    world.after(25.0)
    assert "worker:2" not in world.story_texts("stalled")[0]


def test_a_first_step_that_comes_after_the_stacks_shows_that_it_does_not_lag() -> None:
    world = silent(StallAction.RESTART)
    stands(world, "worker:0", looked=False)
    shows(world, "worker:2", False)
    steps(world, "worker:2", 1)
    shows(world, "worker:1", True)
    stands(world, "worker:0", in_collective=True)
    world.after(25.0)
    assert "worker:2" not in world.story_texts("stalled")[0]


def test_without_an_answer_the_line_names_no_rank() -> None:
    world = silent()
    stands(world, "worker:0", in_collective=True)
    shows(world, "worker:1", True)
    shows(world, "worker:2", False, restart=3)  # late, of another attempt
    world.after(25.0)
    (text,) = world.story_texts("stalled")
    assert "1 of the others report no step" in text and "lags" not in text


def test_restart_ends_the_silent_rank_that_lags_and_the_job_goes_on() -> None:
    world = silent(StallAction.RESTART)
    stands(world, "worker:0", in_collective=True)
    shows(world, "worker:1", True)
    shows(world, "worker:2", False)
    world.settle()
    world.after(30.0).settle()
    state = world.machine.state
    assert state.session == 1 and len(world.running()) == 3
    assert state.root_cause["task"] == "worker:2" and state.root_cause["cause"] == "stalled"
    assert lines(world) == ["stalled", "stall-over"] and state.stalls.stacks == {}


def test_a_silent_rank_that_cannot_be_ended_is_given_up_and_the_order_is_sent_again() -> None:
    world = silent(StallAction.RESTART)
    stands(world, "worker:0", in_collective=True)
    shows(world, "worker:1", True)
    shows(world, "worker:2", False)
    world.queue = [each for each in world.queue if not each.name.startswith("end program")]
    executor = world.executor("worker:2")
    register = Register(executor.container.id, "host", 1, 1, "", "worker:2", 0, "running")
    out = world.report(executor.container.id, register)
    assert [type(each) for each in out if isinstance(each, c.EndProgram)] == [c.EndProgram]
    world.queue = [each for each in world.queue if not each.name.startswith("end program")]
    world.after(20.0).settle()
    world.after(20.0).settle()
    assert world.machine.state.session == 1 and len(world.running()) == 3


def test_a_lost_connection_has_the_executor_asked_again() -> None:
    world = silent()
    stands(world, "worker:0", in_collective=True)
    executor = world.executor("worker:2")
    register = Register(executor.container.id, "host", 1, 1, "", "worker:2", 0, "running")
    world.report(executor.container.id, register)
    assert world.asked_for_stacks == ["worker:1", "worker:2", "worker:2"]


def test_a_silent_rank_warned_of_preemption_is_not_ended() -> None:
    world = silent(StallAction.RESTART)
    world.feed(PreemptionRequested((world.executor("worker:2").container.id,), None))
    stands(world, "worker:0", in_collective=True)
    shows(world, "worker:1", True)
    shows(world, "worker:2", False)
    world.settle()
    world.after(30.0).settle()
    assert lines(world) == ["stalled"] and world.machine.state.session == 0


def test_a_stall_that_lasts_is_acted_upon_again_by_new_stacks() -> None:
    world = silent(StallAction.RESTART)
    world.feed(PreemptionRequested((world.executor("worker:1").container.id,), None))
    stands(world, "worker:0", in_collective=True)
    shows(world, "worker:1", False)
    shows(world, "worker:2", True)  # worker:1 lags, and is left alone
    world.feed(PreemptionWithdrawn((world.executor("worker:1").container.id,)))
    world.after(LIMIT_S + 25.0)
    assert world.asked_for_stacks == ["worker:1", "worker:2"] * 2
    shows(world, "worker:1", True)
    shows(world, "worker:2", False)
    world.settle()
    world.after(30.0).settle()
    assert lines(world) == ["stalled", "stall-lag", "stall-over"]
    assert world.machine.state.root_cause["task"] == "worker:2"


def test_tasks_that_train_by_themselves_are_not_asked_for_anothers_stall() -> None:
    world = silent(mode=Mode.FCFS)
    stands(world, "worker:0")
    world.after(1.0)
    assert lines(world) == ["stalled"] and world.asked_for_stacks == []


def test_silent_ranks_are_asked_a_bounded_number_of_times() -> None:
    world = silent()
    for _ in range(5 * MOST_ASKED):
        stands(world, "worker:0", looked=False)
        stands(world, "worker:0", "")
        world.after(5.0)
    assert world.asked_for_stacks == ["worker:1", "worker:2"] * MOST_ASKED
    stands(world, "worker:0", step=7)
    world.after(25.0)
    assert "worker:0 has stalled" in page(world)


SHOWN = (True, False, None)


class Rank(NamedTuple):
    """What one rank of a gang does."""

    reports: bool  # steps, before the stall
    stands: bool
    reports_later: bool  # its first step, once it was asked for its stacks
    answers: bool
    in_collective: Optional[bool]


RANKS = [
    *(Rank(reports, True, False, True, at) for reports in (True, False) for at in SHOWN),
    Rank(True, False, False, False, None),
    *(Rank(False, False, later, True, at) for later in (True, False) for at in SHOWN),
    *(Rank(False, False, later, False, None) for later in (True, False)),
]


@pytest.mark.parametrize("first", RANKS)
def test_only_one_that_stands_or_is_outside_of_their_collective_is_ended(first: Rank) -> None:
    for more in itertools.combinations_with_replacement(RANKS, 2):
        _check_who_is_ended([first, *more])


def _check_who_is_ended(ranks: List[Rank]) -> None:
    world = running(watched(action=StallAction.RESTART))
    gang = {f"worker:{index}": rank for index, rank in enumerate(ranks)}
    ended: List[str] = []

    def note_end(command: c.EndProgram) -> None:
        ended.append(world.executors[command.container_id].task)

    world.do_EndProgram = note_end  # type: ignore[method-assign]
    for name, rank in gang.items():
        if rank.reports:
            steps(world, name, 7)
    for name, rank in gang.items():
        if rank.stands:
            stands(world, name, "steps" if rank.reports else "quiet", looked=False)
    for name, rank in gang.items():
        if rank.reports_later and not rank.stands:
            steps(world, name, 8)
    for name, rank in gang.items():
        if rank.stands:
            kind = "steps" if rank.reports else "quiet"
            frame = str(rank.in_collective)
            stands(world, name, kind, in_collective=rank.in_collective, frame=frame)
        elif rank.answers:
            shows(world, name, rank.in_collective, frame=str(rank.in_collective))
    world.after(25.0)
    waits = any(rank.stands and rank.in_collective for rank in ranks)
    has_stalled = any(rank.stands and rank.reports for rank in ranks)
    assert len(ended) == (has_stalled or all(rank.stands for rank in ranks))
    for name in ended:
        rank = gang[name]
        silent = rank.answers and not rank.reports and not rank.reports_later
        assert rank.stands or (silent and waits and rank.in_collective is False)

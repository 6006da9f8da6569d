"""Programs that stand still while one master follows another."""

from __future__ import annotations

from tests.master.session.stalling import (
    lines,
    next_master,
    page,
    running,
    shows,
    silent,
    stands,
    watched,
)
from tony_core.job.spec import StallAction
from tony_core.master.session.stalls import describe_trouble


def test_a_takeover_writes_no_second_line_and_ends_what_has_ended() -> None:
    world = running(watched())
    for index in range(3):
        stands(world, f"worker:{index}")
    assert lines(world) == ["stalled"]
    still = next_master(world, ["steps"] * 3, StallAction.WARN).after(60.0)
    assert lines(still) == [] and "3 tasks have stalled" in describe_trouble(still.machine.state)
    stands(still, "worker:0", "")
    stands(still, "worker:1", "")
    stands(still, "worker:2", "")
    assert lines(still) == ["stall-over"]
    moved = next_master(world, [None] * 3, StallAction.WARN)
    assert lines(moved) == ["stall-over"]


def test_a_takeover_does_what_the_previous_attempt_had_no_time_for() -> None:
    world = running(watched())
    for index in range(3):
        stands(world, f"worker:{index}")
    after = next_master(world, ["steps"] * 3, StallAction.RESTART).settle()
    after.after(60.0).settle()
    assert after.machine.state.session == 1 and "stalled" not in lines(after)


def test_a_next_master_asks_for_the_stacks_itself_and_acts() -> None:
    world = silent()
    stands(world, "worker:0", in_collective=True)
    shows(world, "worker:1", True)
    shows(world, "worker:2", False)
    assert lines(world) == ["stalled"]
    after = next_master(world, ["steps", None, None], StallAction.RESTART)
    assert after.asked_for_stacks == ["worker:1", "worker:2"]
    stands(after, "worker:0", in_collective=True)
    shows(after, "worker:1", True)
    shows(after, "worker:2", False)
    after.settle()
    after.after(30.0).settle()
    state = after.machine.state
    assert state.session == 1 and "stalled" not in lines(after)
    assert state.root_cause["task"] == "worker:2"


def test_the_next_master_knows_which_lag_the_story_names() -> None:
    world = running(watched())
    for index in range(3):
        stands(world, f"worker:{index}", step=7 - (index == 2))
    assert world.journal["stalled"] == {"": ("worker:2", 1)}
    same = next_master(world, ["steps"] * 3, StallAction.WARN, 7, 7, 6).after(60.0)
    assert lines(same) == [] and "worker:2 lags" in page(same)
    other = next_master(world, ["steps"] * 3, StallAction.WARN, 7, 6, 7).after(60.0)
    assert lines(other) == ["stall-lag"] and "worker:1 lags" in page(other)

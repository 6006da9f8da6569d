"""The view of a job while programs have stalled: what readers, Prometheus and the scheduler get."""

from __future__ import annotations

from typing import Any

from tests.master.session.stalling import running, stands, watched
from tests.master.session.world import World
from tony_core.job.spec import Mode
from tony_core.master.view import JobInfo, trouble_of, view_head
from tony_core.schedulers.container_pool import ShutdownRequested


def an_info() -> JobInfo:
    return JobInfo("app_1", 1, "ann", "default", 0.0, 0.0)


def same(value: Any) -> Any:
    return value


def stalled(world: World) -> int:
    return view_head(world.machine.state, an_info(), same).stalled


def test_a_gang_counts_those_that_stand_still_as_long_as_that_is_a_stall() -> None:
    world = running(watched())
    assert stalled(world) == 0
    stands(world, "worker:0", "quiet")
    assert stalled(world) == 0, "the others may be at work for it"
    for name in ("worker:1", "worker:2"):
        stands(world, name, "quiet")
    assert stalled(world) == 3
    view = view_head(world.machine.state, an_info(), same)
    assert "3 tasks have stalled" in view.trouble
    assert view.to_json()["trouble"] == view.trouble == view.to_page_json()["trouble"]
    for name in ("worker:0", "worker:1", "worker:2"):
        stands(world, name, "")
    assert stalled(world) == 0


def test_tasks_of_their_own_are_counted_each_for_itself() -> None:
    world = running(watched(mode=Mode.FCFS))
    for count, name in enumerate(("worker:2", "worker:0"), 1):
        stands(world, name)
        world.after(1.0)  # they are looked at together
        assert stalled(world) == count


def test_a_job_that_ends_has_not_stalled() -> None:
    world = running(watched())
    for name in ("worker:0", "worker:1", "worker:2"):
        stands(world, name)
    assert stalled(world) == 3
    world.feed(ShutdownRequested("killed by ann"))
    assert stalled(world) == 0


def test_what_is_wrong_around_the_job_comes_first_and_secrets_are_masked() -> None:
    world = running(watched())
    stands(world, "worker:0", frame="in load (key=hunter2)")
    info = an_info()
    info.trouble = "its state cannot be written"
    world.after(30.0)
    text = trouble_of(world.machine.state, info, lambda value: value.replace("hunter2", "***"))
    assert text.startswith("its state cannot be written. worker:0 has stalled: ")
    assert "key=***" in text and "hunter2" not in text

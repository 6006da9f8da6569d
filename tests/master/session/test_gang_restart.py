"""A gang restart on request, which no budget pays for; and the end of a job whose tokens end."""

from __future__ import annotations

from typing import Tuple

from tests.master.session.world import World, job, role
from tony_core.job.spec import MasterSpec, RestartMode
from tony_core.master.session import events as e
from tony_core.schedulers.port import AppState

REQUEST = e.GangRestartRequested("the job has fresh tokens")


def budgets(world: World) -> Tuple[int, int]:
    found = world.machine.state.budgets
    return found.user_left, found.system_left


def test_programs_start_anew_in_their_containers_and_nothing_is_charged() -> None:
    world = World(job(role("worker", 2)), settle_s=0.2).begin().settle()
    before, held = budgets(world), set(world.machine.state.held)
    world.feed(REQUEST)
    world.after(1.0).settle()
    assert world.machine.state.session == 1 and len(world.running()) == 2
    assert budgets(world) == before and set(world.machine.state.held) == held
    assert world.story_texts("round") == ["the job has fresh tokens: a new round (session 1)"]


def test_a_fresh_restart_mode_keeps_the_containers_too() -> None:
    spec = MasterSpec(restart_mode=RestartMode.FRESH)
    world = World(job(role("worker", 2), master=spec), settle_s=0.2).begin().settle()
    held = set(world.machine.state.held)
    world.feed(REQUEST)
    world.after(1.0).settle()
    assert world.machine.state.session == 1 and set(world.machine.state.held) == held


def test_programs_that_have_yet_to_start_are_not_restarted() -> None:
    world = World(job(role("worker", 2)), settle_s=0.2).begin()
    world.feed(REQUEST)
    world.settle()
    assert world.machine.state.session == 0 and len(world.running()) == 2
    assert not world.story_texts("round")


def test_a_job_whose_tokens_end_is_not_tried_again_and_has_the_reason() -> None:
    world = World(job(role("worker", 2)), settle_s=0.2).begin().settle()
    world.feed(e.TokensExpiring("its tokens end"))
    world.after(1.0).settle()
    state = world.machine.state
    assert world.outcome is AppState.FAILED and state.session == 0
    assert state.diagnostics == "its tokens end"
    assert state.root_cause["cause"] == "tokens-expiring"
    assert state.root_cause["message"] == "its tokens end"

"""The session machine under chance: any order, duplicates, losses, deaths, time."""

from __future__ import annotations

import os
from typing import List

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.master.world import PS, World, job, role
from tony_core.job.spec import Job, MasterSpec, Mode, RestartMode, Timeouts, Tracking
from tony_core.master import events as e
from tony_core.schedulers.port import AppState, Cause

SEQUENCES = int(os.environ.get("TONY_SIMULATED_SEQUENCES", "400"))


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A job of any shape."""
    roles = [role("worker", draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        roles.append(role("ps", draw(st.integers(1, 2)), **PS))
    if draw(st.booleans()):
        roles.append(role("chief"))
    if draw(st.booleans()):
        roles.append(role("board", tracking=Tracking.SIDECAR, max_restarts=1))
    if draw(st.booleans()):
        roles.append(role("last", depends_on=("worker",)))
    return job(
        *roles,
        mode=draw(st.sampled_from(Mode)),
        fail_on_worker_failure=draw(st.booleans()),
        master=MasterSpec(
            user_retries=draw(st.integers(0, 2)),
            infrastructure_retries=draw(st.integers(0, 2)),
            restart_mode=draw(st.sampled_from(RestartMode)),
        ),
        timeouts=Timeouts(application_s=draw(st.sampled_from([None, 2000.0])), allocation_s=60.0),
    )


def chance(world: World, draw: st.DataObject) -> None:
    """One thing happens."""
    choice = draw.draw(st.integers(0, 11))
    alive = [x for x in world.executors.values() if x.launched and not x.gone]
    if choice <= 5 and world.queue:
        index = draw.draw(st.integers(0, len(world.queue) - 1))
        item = world.queue.pop(index)
        if draw.draw(st.integers(0, 9)) == 0 and not item.name.startswith(("end", "grant")):
            return  # lost
        item.do()
        if draw.draw(st.integers(0, 9)) == 0:
            item.do()  # and once more
    elif choice == 6:
        world.after(draw.draw(st.sampled_from([0.1, 1.0, 5.0, 61.0, 301.0])))
    elif choice == 7 and alive:
        executor = draw.draw(st.sampled_from(alive))
        if executor.phase == "running":
            executor.phase = "ended"
            code = draw.draw(st.sampled_from([0, 0, 0, 1, 137]))
            world.feed(e.TaskEnded(world.now, executor.container.id, executor.session, code))
    elif choice == 8 and alive:
        executor = draw.draw(st.sampled_from(alive))
        world.complete(executor, -1, draw.draw(st.sampled_from(Cause)))
    elif choice == 9 and alive:
        executor = draw.draw(st.sampled_from(alive))
        world.feed(e.ExecutorLost(world.now, executor.container.id, "silent"))
    elif choice == 10 and alive:
        executor = draw.draw(st.sampled_from(alive))
        if executor.registered:
            world.register(executor)
        elif draw.draw(st.booleans()):
            world.grant(executor.container.role, 1)  # a surplus
    elif choice == 11 and draw.draw(st.integers(0, 5)) == 0:
        if draw.draw(st.booleans()):
            world.feed(e.KillAsked(world.now, "asked"))
        elif world.finished is None and world.journal:
            world.takeover()


def to_the_end(world: World) -> None:
    """From here on nothing breaks any more: the job must come to its end."""
    for _ in range(400):
        if world.finished:
            return
        world.settle()
        running = world.running()
        if running and not world.finished:
            world.end(running[0])
            world.settle()
        else:
            world.after(30.0)
    story = "\n".join(f"{item.kind}: {item.text}" for item in world.story[-40:])
    raise AssertionError(f"no end: {world.machine.phase} {world.states()}\n{story}")


@settings(max_examples=SEQUENCES, suppress_health_check=list(HealthCheck), deadline=None)
@given(jobs(), st.data())
def test_whatever_happens_every_invariant_holds_and_the_job_ends(
    job: Job, draw: st.DataObject
) -> None:
    world = World(job, settle_s=0.2, ends_rest=draw.draw(st.booleans())).begin()
    for _ in range(draw.draw(st.integers(0, 60))):
        if world.finished:
            break
        chance(world, draw)
    to_the_end(world)
    world.settle()
    world.check_nothing_is_left()
    assert world.outcome in (
        AppState.SUCCEEDED,
        AppState.FAILED,
        AppState.KILLED,
        AppState.TIMED_OUT,
    )
    sessions: List[int] = [session for session, _ in world.started]
    healed = sum(item.kind == "budget-healed" for item in world.story)
    limit = job.master.user_retries + job.master.infrastructure_retries * (1 + healed)
    assert max(sessions, default=0) <= limit

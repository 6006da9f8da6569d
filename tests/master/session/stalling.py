"""What tests of programs that stand still are made of: executors that report it, and the story."""

from __future__ import annotations

from typing import Any, List, Optional

from tests.master.session.world import World, job, role
from tony_core.job.spec import Job, StallAction, Timeouts
from tony_core.master.session import events as e
from tony_core.master.session.stalls import describe_trouble
from tony_core.protocol.messages import Register, Reported, StacksDumped, Stalled
from tony_core.schedulers.container_pool import Container

LIMIT_S = 60.0


def watched(*roles: Any, action: StallAction = StallAction.WARN, **more: Any) -> Job:
    timeouts = Timeouts(stall_s=LIMIT_S, stall_action=action, kill_grace_s=1.0)
    return job(*(roles or (role("worker", 3),)), timeouts=timeouts, **more)


def running(spec: Job) -> World:
    return World(spec, settle_s=0.2).begin().settle()


def stands(world: World, name: str, kind: str = "steps", **fields: Any) -> None:
    """The executor of a task reports it; without a kind, that it moves again."""
    executor = world.executor(name)
    fields.setdefault("still_s", LIMIT_S)
    fields.setdefault("looked", True)
    report = Stalled(executor.session, executor.restart, kind, **fields)
    world.report(executor.container.id, report)


def shows(world: World, name: str, in_collective: Optional[bool], **fields: Any) -> None:
    """The executor of a task answers what the stacks of its program show."""
    executor = world.executor(name)
    made = StacksDumped(executor.session, executor.restart, 100.0, "", in_collective)
    world.report(executor.container.id, made._replace(**fields))


def steps(world: World, name: str, number: int) -> None:
    executor = world.executor(name)
    world.report(executor.container.id, Reported(executor.session, None, {}, number))


def lines(world: World) -> List[str]:
    return [line.kind.value for line in world.story if line.kind.startswith("stall")]


def next_master(world: World, kinds: List[Optional[str]], action: StallAction, *at: int) -> World:
    """Another attempt, with executors that register so."""
    after = World(watched(action=action), settle_s=0.2)
    after.now, after.executors, after.journal = world.now + 5.0, world.executors, world.journal
    held = [world.executor(f"worker:{index}").container for index in range(3)]
    containers = tuple(Container(x.id, x.node, x.role, x.resources) for x in held)
    after.feed(e.ContainersInherited(containers, world.journal))
    for index, kind in enumerate(kinds):
        executor = world.executor(f"worker:{index}")
        step = at[index] if at else None
        stalled = Stalled(0, 0, kind, LIMIT_S + 5.0, step, looked=True) if kind else None
        after.report(
            executor.container.id,
            Register(
                executor.container.id, "host", 1, 1, "", f"worker:{index}", 0, "running",
                {"main": 1000}, ran_s=100.0, stalled=dict(stalled._asdict()) if stalled else None,
            ),
        )  # fmt: skip
    return after


def silent(action: StallAction = StallAction.WARN, **more: Any) -> World:
    """A gang of which only rank 0 reports steps."""
    world = running(watched(action=action, **more))
    steps(world, "worker:0", 7)
    return world


def page(world: World) -> str:
    return describe_trouble(world.machine.state)

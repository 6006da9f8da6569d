"""A job of any shape, and a life for it in which anything may happen: one definition, two drivers.

What happens is drawn from a *chance*. Hypothesis gives one that it can make shorter when a life
goes wrong (:class:`tests.master.test_session_simulation.Drawn`); :class:`Seeded` gives one that
is ten times as fast, and the same for the same seed. Whoever wants to read a life again::

    python -m tests.master.chances SEED

prints its story, and what went wrong in it.
"""

from __future__ import annotations

import random
import sys
from typing import Callable, List, Protocol, Sequence, TypeVar

from tests.master.world import PS, Executor, World, job, role
from tony_core.job.spec import Job, MasterSpec, Mode, RestartMode, Timeouts, Tracking
from tony_core.master import events as e
from tony_core.schedulers.port import AppState, Cause

T = TypeVar("T")

KINDS_OF_THINGS = 17
MOST_THINGS = 60


class Chance(Protocol):
    """Where the choices come from."""

    def number(self, low: int, high: int) -> int:
        """One of these numbers, both ends included."""
        ...

    def one_of(self, items: Sequence[T]) -> T:
        """One of these things."""
        ...


class Seeded:
    """Choices that are the same for the same seed, wherever and whenever."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        """One of these numbers, both ends included."""
        return low + int(self._random.random() * (high - low + 1))

    def one_of(self, items: Sequence[T]) -> T:
        """One of these things."""
        return items[int(self._random.random() * len(items))]


def a_job(chance: Chance) -> Job:
    """A job of any shape."""

    def maybe() -> bool:
        return chance.number(0, 1) == 1

    mode = chance.one_of(list(Mode))
    workers = chance.number(1, 4)
    waited_for = maybe()
    may = mode is Mode.GANG and not waited_for
    least = chance.number(1, workers) if may else workers
    roles = [role("worker", workers, min_instances=least)]
    if maybe():
        roles.append(role("ps", chance.number(1, 2), **PS))
    if maybe():
        roles.append(role("chief"))
    if maybe():
        roles.append(role("board", tracking=Tracking.SIDECAR, max_restarts=1))
    if waited_for:
        roles.append(role("last", depends_on=("worker",)))
    return job(
        *roles,
        mode=mode,
        fail_on_worker_failure=maybe(),
        master=MasterSpec(
            user_retries=chance.number(0, 2),
            infrastructure_retries=chance.number(0, 2),
            restart_mode=chance.one_of(list(RestartMode)),
            preprocess="look" if chance.number(0, 7) == 7 else "",
        ),
        timeouts=Timeouts(application_s=chance.one_of([None, 2000.0]), allocation_s=60.0),
    )


def life(chance: Chance, hear: Callable[[str], None] = lambda line: None) -> World:
    """A job's whole life: some chances, then its end, with every invariant looked at."""
    world = World(a_job(chance), settle_s=0.2, ends_rest=chance.number(0, 1) == 1)
    world.hear = hear
    world.begin()
    for _ in range(chance.number(0, MOST_THINGS)):
        if world.finished:
            break
        happen(world, chance)
    to_the_end(world)
    world.settle()
    check_the_end(world)
    return world


def happen(world: World, chance: Chance) -> None:
    """One thing happens."""
    choice = chance.number(0, KINDS_OF_THINGS)
    if choice <= 6 and world.queue:
        the_next_thing(world, chance)
    elif choice == 7:
        world.after(chance.one_of([0.1, 1.0, 5.0, 61.0, 301.0]))
    elif choice == 11:
        rarely(world, chance)
    elif choice == 12 and world.said:
        # A word that was on its way for long, or comes once more.
        world.again(chance.one_of(world.said))
    elif choice == 13:
        node = f"n{chance.number(0, 2)}"
        world.feed(e.NodeWentAway(world.now, node))
        for executor in [x for x in living(world) if x.container.node == node]:
            world.complete(executor, -1, Cause.LOST)
    else:
        alive = living(world)
        if alive:
            to_an_executor(world, chance, choice, chance.one_of(alive))


def living(world: World) -> List[Executor]:
    """The executors that are there."""
    return [x for x in world.executors.values() if x.launched and not x.gone]


def the_next_thing(world: World, chance: Chance) -> None:
    """What was begun goes on, in any order; or is lost, or comes twice."""
    item = world.queue.pop(chance.number(0, len(world.queue) - 1))
    if chance.number(0, 9) == 0 and not item.name.startswith(("end", "grant")):
        return  # lost
    item.do()
    if chance.number(0, 9) == 0:
        item.do()  # and once more


def to_an_executor(world: World, chance: Chance, choice: int, executor: Executor) -> None:
    """Something happens to one executor or its program."""
    name = executor.container.id
    if choice in (8, 14) and executor.phase == "running":
        code = chance.one_of([0, 0, 0, 1, 137])
        cause = chance.one_of(["exited", "exited", "exited", "memory", "port-in-use", "no-space"])
        executor.phase = "ended"
        world.feed(e.TaskEnded(world.now, name, executor.session, code, cause=cause))
    elif choice == 9:
        world.complete(executor, -1, chance.one_of(list(Cause)))
    elif choice == 10:
        world.feed(e.ExecutorLost(world.now, name, "silent"))
    elif choice == 15:
        if executor.registered:
            world.register(executor)
        elif chance.number(0, 1):
            world.grant(executor.container.role, 1)  # a surplus
    elif choice == 16 and executor.phase == "running":
        step = chance.number(0, 5)
        world.feed(e.TaskReported(world.now, name, executor.session, step=step))
    elif choice == 17:
        world.feed(e.PreemptionWarned(world.now, (name,)))


def rarely(world: World, chance: Chance) -> None:
    """What does not happen to every job."""
    what = chance.number(0, 15)
    if what == 0:
        world.feed(e.KillAsked(world.now, "asked"))
    elif what == 1 and world.finished is None and world.journal:
        world.takeover()
    elif what == 2:
        world.feed(e.AllocationRefused(world.now, "worker", "no node is as big"))
    elif what == 3:
        world.feed(e.ServiceFailed(world.now, world.machine.session, "aborted", "worker:0"))
    elif what == 4:
        world.feed(e.AllocationWaits(world.now, chance.one_of(["", "full", "fuller"])))
    elif what == 5:
        world.feed(e.Tick(world.now - 100.0))  # a clock that was set back
    elif what == 6:
        world.feed(e.PreprocessEnded(world.now, chance.number(0, 1)))


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
    raise AssertionError(f"no end: {world.machine.phase} {world.states()}")


def check_the_end(world: World) -> None:
    """What holds of every job that has ended."""
    for _, names in world.started:
        number = sum(name.startswith("worker:") for name in names)
        least = world.job.role("worker").least
        assert number in (0, 1) or least <= number, f"{names} began with fewer than {least}"
    world.check_nothing_is_left()
    assert world.outcome in (
        AppState.SUCCEEDED,
        AppState.FAILED,
        AppState.KILLED,
        AppState.TIMED_OUT,
    )
    if world.job.role("worker").is_elastic:
        return  # rounds have no limit
    sessions = [session for session, _ in world.started]
    healed = sum(item.kind == "budget-healed" for item in world.story)
    master = world.job.master
    limit = (master.user_retries + master.infrastructure_retries) * (1 + healed)
    assert max(sessions, default=0) <= limit


def replay(seed: int, hear: Callable[[str], None] = lambda line: None) -> World:
    """The life of a seed; what goes wrong in it says which seed it was."""
    try:
        return life(Seeded(seed), hear)
    except Exception as error:
        again = f"python -m tests.master.chances {seed}"
        raise AssertionError(f"seed {seed} ({again}): {type(error).__name__}: {error}") from error


def main(words: Sequence[str]) -> None:
    """Print the story of each seed."""
    for seed in map(int, words):
        world = replay(seed, print)
        assert world.finished is not None
        print(f"seed {seed}: {world.finished.state.value}: {world.finished.diagnostics}")


if __name__ == "__main__":
    main(sys.argv[1:])

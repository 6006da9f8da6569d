"""A job of any shape, and a run of it in which anything may happen: one definition, two drivers.

What happens is drawn from a *chance*. Hypothesis gives one that it can make shorter when a life
goes wrong (:class:`tests.master.session.test_simulation.Drawn`); :class:`Seeded` gives one that
is ten times as fast, and the same for the same seed. To print the story of a run again::

    python -m tests.master.session.random_jobs SEED

prints its story, and what went wrong in it.
"""

from __future__ import annotations

import random
import sys
from typing import Any, Callable, Dict, List, Protocol, Sequence, TypeVar

from tests.master.session.world import PS, Executor, Happening, World, job, role
from tony_core.exit_causes import CONTAINER_CAUSES, ExitCause
from tony_core.job.spec import (
    GroupDependency,
    Job,
    MasterSpec,
    Mode,
    RestartMode,
    RestartScope,
    Timeouts,
    Tracking,
)
from tony_core.master.session import events as e
from tony_core.master.session.records import Phase
from tony_core.master.session.verdict import UNUSABLE_CONTAINER_CAUSES
from tony_core.protocol.messages import Ended, Reported, Stopped
from tony_core.schedulers import container_pool
from tony_core.schedulers.port import AppState

T = TypeVar("T")

KINDS_OF_THINGS = 19
MOST_THINGS = 60
SLOW_S = 6.0  # in which the words that something has ended may come, and may not

#: How a program ends that does not end by itself, in the words that the master knows.
CAUSES = sorted(cause.value for cause in ExitCause if cause not in CONTAINER_CAUSES)
CAUSES += [cause.value for cause in sorted(UNUSABLE_CONTAINER_CAUSES)] * 3


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
    waited_for = chance.number(0, 2) == 0
    may = mode is Mode.GANG and not waited_for
    least = chance.number(1, workers) if may else workers

    def scope() -> Dict[str, Any]:
        """What is started again when one of a role fails."""
        scopes = [RestartScope.SESSION, RestartScope.SESSION, RestartScope.TASK]
        return {"restart_scope": chance.one_of(scopes), "max_restarts": chance.number(0, 2)}

    scope_fields = scope() if least == workers else {}
    roles = [role("worker", workers, min_instances=least, **scope_fields)]
    if maybe():
        roles.append(role("ps", chance.number(1, 2), **PS, **scope()))
    if maybe():
        roles.append(role("chief"))
    if maybe():
        roles.append(role("board", tracking=Tracking.SIDECAR, max_restarts=1))
    if waited_for:
        roles.append(role("last", depends_on=("worker",), **scope()))
    if chance.number(0, 2) == 0:
        roles.append(role("aside", tracking=Tracking.UNTRACKED, **scope()))
    groups: Dict[str, Any] = {}
    if chance.number(0, 2) == 0:
        roles.append(role("evaluator"))
        after = GroupDependency("evaluator", "trainers", 120.0, ignored=maybe())
        groups = {"groups": (("trainers", ("worker",)),), "group_dependencies": (after,)}
    return job(
        *roles,
        **(groups if maybe() else {}),
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


def run_job(chance: Chance, on_story_line: Callable[[str], None] = lambda line: None) -> World:
    """Runs a whole job: some chances, then its end, with every invariant checked."""
    job = a_job(chance)
    gangs = job.mode is Mode.GANG
    bound = frozenset(x for x in ("worker", "ps") if gangs and chance.number(0, 1))
    ends_containers_at_finish = chance.number(0, 1) == 1
    world = World(
        job, settle_s=0.2, ends_containers_at_finish=ends_containers_at_finish, address_bound=bound
    )
    world.on_story_line = on_story_line
    world.slow = chance.number(0, 5) == 0
    patient = chance.number(0, 3) == 0
    world.begin()
    if chance.number(0, 1):
        world.settle()  # much of what may happen happens to programs that run
    for _ in range(chance.number(0, MOST_THINGS)):
        if world.finished:
            break
        happen(world, chance)
    to_the_end(world, patient)
    world.settle()
    check_the_end(world)
    return world


def happen(world: World, chance: Chance) -> None:
    """One thing happens."""
    if world.machine.state.elastic.regrouping and world.journal and chance.number(0, 2) == 0:
        world.takeover()
        return
    if world.ending() and chance.number(0, 7) == 0:
        while_it_ends(world, chance)
        return
    choice = chance.number(0, KINDS_OF_THINGS)
    if choice <= 6 and world.queue:
        the_next_thing(world, chance)
    elif choice == 7:
        world.after(chance.one_of([0.1, 1.0, 5.0, 61.0, 301.0]))
    elif choice == 11:
        rarely(world, chance)
    elif choice == 12 and world.repeatable:
        # A word that was on its way for long, or comes once more.
        late = [x for x in world.repeatable if isinstance(getattr(x, "message", None), Stopped)]
        world.again(chance.one_of(late if late and chance.number(0, 1) else world.repeatable))
    elif choice == 13:
        node = f"n{chance.number(0, 2)}"
        world.feed(container_pool.NodeLost(node))
        for executor in [x for x in living(world) if x.container.node == node]:
            world.complete(executor, -1, ExitCause.LOST)
    else:
        alive = living(world)
        if alive:
            to_an_executor(world, chance, choice, chance.one_of(alive))


def living(world: World) -> List[Executor]:
    """The executors that are there."""
    return [x for x in world.executors.values() if x.launched and not x.gone]


def the_next_thing(world: World, chance: Chance) -> None:
    """What was begun goes on, in any order; or is lost, or comes twice."""
    prompt = world.prompt() if world.slow else []
    if world.slow and not prompt and chance.number(0, 3):
        world.after(SLOW_S)
        return
    at = chance.one_of(prompt) if prompt else chance.number(0, len(world.queue) - 1)
    item = world.queue.pop(at)
    if item.name.startswith("grant") and chance.number(0, 1):
        some_of(world, chance, item)
        return
    if chance.number(0, 9) == 0 and not item.name.startswith(("end", "grant")):
        return  # lost
    item.do()
    if chance.number(0, 9) == 0:
        item.do()  # and once more


def some_of(world: World, chance: Chance, item: Happening) -> None:
    """The scheduler grants a part of what is wanted, and the rest perhaps much later."""
    role = item.name.split()[1]
    wanted = world.wanted.get(role, (0, 0))[1]
    if wanted > 1:
        world.queue.append(item)
    if wanted:
        world.grant(role, chance.number(1, max(1, wanted - 1)))
    if chance.number(0, 3) == 0:
        world.after(61.0)


def to_an_executor(world: World, chance: Chance, choice: int, executor: Executor) -> None:
    """Something happens to one executor or its program."""
    name = executor.container.id
    if choice in (8, 14, 18) and executor.phase in ("ready", "running"):
        code = chance.one_of([0, 0, 0, 1, 137])
        ends = executor.phase == "running" and chance.number(0, 1)
        executor.phase = "ended"
        cause = "exited" if ends else chance.one_of(CAUSES)
        world.report_end(executor, code, cause=cause, notices=ends and chance.number(0, 1) == 1)
    elif choice == 9:
        world.complete(executor, -1, chance.one_of(CONTAINER_CAUSES))
    elif choice == 10:
        world.feed(e.ExecutorLost(name, "silent"))
    elif choice == 15:
        if executor.registered:
            world.register(executor)
        elif chance.number(0, 1):
            world.grant(executor.container.role, 1)  # a surplus
    elif choice == 16 and executor.phase == "running":
        step = chance.number(0, 5)
        saved = step if step == 5 else None
        world.report(name, Reported(executor.session, None, {}, step=step, saved=saved))
    elif choice == 19 and executor.phase == "ended":
        restart = chance.number(0, executor.restart)  # its own end, or one of those before
        world.report(name, Ended(executor.session, 1, restart=restart))
    elif choice == 17:
        seconds = chance.one_of([None, 0.0, 15.0])
        world.feed(container_pool.PreemptionRequested((name,), seconds))
        if chance.number(0, 2) == 0:
            world.feed(container_pool.PreemptionWithdrawn((name,)))


def rarely(world: World, chance: Chance) -> None:
    """What does not happen to every job."""
    what = chance.number(0, 15)
    if what == 0:
        world.feed(container_pool.ShutdownRequested("asked"))
    elif what in (1, 15) and world.finished is None and world.journal:
        world.takeover()
    elif what == 2:
        world.feed(container_pool.RequestRejected("worker", "no node is as big"))
    elif what == 3:
        world.feed(e.ServiceFailed(world.machine.state.session, "aborted", "worker:0"))
    elif what == 4:
        world.feed(container_pool.AllocationPending(chance.one_of(["", "full", "fuller"])))
    elif what == 5:
        world.feed(e.Tick(), world.now - 100.0)  # a clock that was set back
    elif what == 6:
        world.feed(e.PreprocessEnded(chance.number(0, 1)))
    elif what in (7, 8):
        old = [x for x in living(world) if x.phase == "ended"]
        if old:  # its next program was to begin, and something of the last is left
            name = chance.one_of(old).container.id
            world.report(name, Stopped(world.executors[name].session, False))
    elif what in (9, 10, 11) and world.journal and world.machine.state.phase in _BETWEEN:
        world.takeover()


_BETWEEN = (Phase.SETTLING, Phase.CLEANUP, Phase.BACKOFF, Phase.ENDING)


def while_it_ends(world: World, chance: Chance) -> None:
    """A program is being ended: a previous one's end is reported again, or something is left."""
    ends = [x for x in living(world) if x.container.id in world.ending()]
    if not ends:
        return
    executor = chance.one_of(ends)
    name = executor.container.id
    if chance.number(0, 1):
        world.report(name, Stopped(executor.prepared[0] - 1, True))
    elif executor.prepared[0] == executor.session >= 0 and chance.number(0, 2) == 0:
        executor.broken = True
        world.report(name, Stopped(executor.session, False))


def to_the_end(world: World, patient: bool) -> None:
    """From here on nothing breaks any more: the job must come to its end.

    Where it is *patient*, programs that have a while to end take all of it.
    """
    for _ in range(400):
        if world.finished:
            return
        world.settle()
        running = world.running()
        waits = world.machine.state.deadlines
        if patient and any(key in waits for key in _WHILES):
            world.after(30.0)
        elif running and not world.finished:
            # What never ran has not ended well.
            ran = world.executor(running[0]).ran
            world.end(running[0], *(() if ran else (1,)), cause="exited" if ran else "disk-full")
            world.settle()
        else:
            world.after(30.0)
    raise AssertionError(f"no end: {world.machine.state.phase} {world.states()}")


_WHILES = (("group", "0"), ("chief-grace", "others"), ("chief-grace", "evaluators"))


def check_the_end(world: World) -> None:
    """What holds of every job that has ended."""
    world.check_nothing_is_left()
    assert world.outcome in (
        AppState.SUCCEEDED,
        AppState.FAILED,
        AppState.KILLED,
        AppState.TIMED_OUT,
    )
    ended = world.finished
    if ended is not None and "twice running" in ended.diagnostics:
        assert ended.root_cause.get("exit_code") != 137, "a SIGKILL says nothing of the program"
    if world.job.role("worker").is_elastic:
        return  # rounds have no limit
    sessions = [session for session, _ in world.started]
    healed = sum(item.kind == "budget-healed" for item in world.story)
    master = world.job.master
    limit = (master.user_retries + master.infrastructure_retries) * (1 + healed)
    assert max(sessions, default=0) <= limit


def replay(seed: int, on_story_line: Callable[[str], None] = lambda line: None) -> World:
    """Runs the job of a seed; a failure names the seed."""
    try:
        return run_job(Seeded(seed), on_story_line)
    except Exception as error:
        again = f"python -m tests.master.session.random_jobs {seed}"
        raise AssertionError(f"seed {seed} ({again}): {type(error).__name__}: {error}") from error


def main(words: Sequence[str]) -> None:
    """Print the story of each seed."""
    for seed in map(int, words):
        world = replay(seed, print)
        assert world.finished is not None
        print(f"seed {seed}: {world.finished.state.value}: {world.finished.diagnostics}")


if __name__ == "__main__":
    main(sys.argv[1:])

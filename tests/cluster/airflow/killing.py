"""What can be done to tasks and to what serves them, and what must hold whenever it is done.

A *strike* hits tasks of different ages at one moment, of each age one that waits on its worker and
one that is deferred. Two things hold for each task, whatever it is that strikes:

* no two jobs of it are there at once;
* none runs a minute after the task has ended.

A task that was not ended on purpose goes on to its success, with a job that is there once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random
from typing import Any, Callable, Dict, List, Sequence

from tests.cluster.airflow.rest import wait_for
from tests.cluster.airflow.standing import LOST_S, Airflow
from tests.cluster.airflow.training import LIVING, Training

AGES = (20.0, 10.0, 0.0)
"""Of the tasks that one strike hits, in seconds; the same number is added to each."""

STEPS = 10
"""Strikes at 0, 1, ... more seconds look at every second of a task's first half minute."""

LEFT_S = 60.0
"""So long after its task's end no job of it is running; or after its own start, if that is later:
a submit may be under way as the task ends."""

SLOW_S = 30.0
"""What a master and the clusters' daemons take on a busy machine, from then on."""

SETTLED_S = 300.0
"""What a task may take to go on: Airflow notices the end of a worker or a scheduler after
``LOST_S``, and a try takes some seconds to begin."""

WAYS = ("sync_killed", "deferred_killed")

Train = Callable[..., Training]


def _each(
    order: Callable[[Training], Any],
) -> Callable[[Airflow, Sequence[Training], Random], None]:
    def strike(airflow: Airflow, found: Sequence[Training], chance: Random) -> None:
        for one in found:
            order(one)

    return strike


def _delete_run(one: Training) -> None:
    """Airflow refuses to delete a run that is running."""
    one.rest.mark_run(one.place, "failed")
    one.rest.delete_run(one.place)


def _processes(task_only: bool) -> Callable[[Airflow, Sequence[Training], Random], None]:
    def strike(airflow: Airflow, found: Sequence[Training], chance: Random) -> None:
        airflow.kill_workers([one.task()["id"] for one in found], task_only)

    return strike


def component(
    name: str, host: bool = False
) -> Callable[[Airflow, Sequence[Training], Random], None]:
    """A component ends at once, by chance with all that it has started (``host``: always), and is
    started again at once or when the others have noticed."""

    def strike(airflow: Airflow, found: Sequence[Training], chance: Random) -> None:
        end = chance.choice((airflow.crash, airflow.power_cut))
        absent_s = chance.choice((0.0, LOST_S * 1.5))
        if host:
            end = airflow.power_cut
        print(f"{end.__name__} of {name}, absent for {absent_s} s")
        end(name)
        time.sleep(absent_s)
        airflow.start(name)
        airflow.wait_healthy()

    return strike


@dataclass(frozen=True)
class Strike:
    """What is done, and whether the tasks have ended by that."""

    do: Callable[[Airflow, Sequence[Training], Random], None]
    ends: bool = False
    anew: bool = False
    """Whether a new job begins, where there was one before."""


STRIKES: Dict[str, Strike] = {
    "mark_failed": Strike(_each(lambda one: one.rest.mark(one.place, "failed")), ends=True),
    "mark_success": Strike(_each(lambda one: one.rest.mark(one.place, "success")), ends=True),
    # Airflow makes what a run lacks anew: the task begins once more.
    "delete": Strike(_each(lambda one: one.rest.delete(one.place))),
    "delete_run": Strike(_each(_delete_run), ends=True),
    "clear": Strike(_each(lambda one: one.rest.clear(one.place)), anew=True),
    "kill_task": Strike(_processes(task_only=True)),
    "kill_worker": Strike(_processes(task_only=False)),
    "kill_triggerer": Strike(component("triggerer")),
    "kill_scheduler": Strike(component("scheduler")),
    "kill_api_server": Strike(component("api-server", host=True)),
}
"""By name."""


def hit(airflow: Airflow, training: Train, strike: Strike, more_s: float, chance: Random) -> None:
    """Tasks live for ``AGES`` and ``more_s``, the strike hits them, and they come to their end."""
    found: List[Training] = []
    start = time.monotonic()
    for age in AGES:
        _until(start + AGES[0] - age)
        found += [training(way) for way in WAYS]
    _until(start + AGES[0] + more_s)
    before = [{one["id"] for one in each.applications()} for each in found]
    ids = [one.task()["id"] for one in found]
    states = [one.state() for one in found]
    print(
        *(
            f"{one.run_id}: {state}, {sorted(old)}"
            for one, state, old in zip(found, states, before, strict=True)
        ),
        sep="\n",
    )
    strike.do(airflow, found, chance)
    ended = time.time()
    wrong: List[str] = []
    for one, task_instance, old in zip(found, ids, before, strict=True):
        try:
            if not strike.ends:
                _goes_on(airflow, one, old if strike.anew else set())
                one.over()
                one.wait("success")
                ended = time.time()
            _nothing_is_left(airflow, one, task_instance, ended)
        except AssertionError as error:
            wrong.append(f"{one.run_id}: {error}")
        wrong += [f"{one.run_id}: {words}\n{one.story()}" for words in one.overlaps()]
    assert not wrong, "\n\n".join(wrong)


def _until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _goes_on(airflow: Airflow, one: Training, old: set[str]) -> None:
    """A task waits for its one job, whose program runs."""

    def look() -> str:
        if one.state() == "deleted":
            return "it is deleted"
        task = one.task()
        if task["state"] in ("success", "failed"):
            return f"hopeless: the task is {task['state']}"
        if task["state"] != "deferred" and not airflow.works_on(task["id"]):
            return f"no process for a task that is {task['state']}"
        living = [app["id"] for app in one.applications(LIVING)]
        if len(living) != 1 or living[0] in old:
            return f"its jobs: {living}, and before: {sorted(old)}"
        ran = [path.name for path in one.folder.glob("application_*")]
        return "" if living[0] in ran else f"the program of {living[0]} does not run"

    wait_for(
        look,
        lambda words: not words,
        lambda words: f"it does not go on: {words}\n{one.story()}",
        lambda words: words.startswith("hopeless"),
        SETTLED_S,
    )


def _nothing_is_left(airflow: Airflow, one: Training, task_instance: str, ended: float) -> None:
    def look() -> str:
        found = one.applications(LIVING)
        left = [
            f"{app['id']} since {int(app['startedTime']) / 1000 - ended:.1f} s" for app in found
        ]
        left += ["a process of the task"] if airflow.works_on(task_instance) else []
        return ", ".join(left)

    starts = [int(app["startedTime"]) / 1000 for app in one.applications()]
    wait_for(
        look,
        lambda words: not words,
        lambda words: (
            f"still there {time.time() - ended:.0f} s after its end: {words}\n{one.story()}"
        ),
        within=max(ended, *starts, 0) + LEFT_S + SLOW_S - time.time(),
    )

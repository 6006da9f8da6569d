"""How soon a death is known to the master, and how soon the gang trains again.

    python benchmarks/core_detection.py [--quick] [--runs 7]

Two workers on the embedded scheduler. A program is killed by SIGKILL: until the job's story
has it (the story's own times, which are the master's), and until both programs of the next
session have begun, in the containers that are there. Then an executor is killed. The floor is a
bare parent that waits for its child, and starts it again.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Callable, Dict, List, Tuple

from measuring import by_turns, figure, median, options
from running import Home, Submitted, began, by_hand, processes_of, program, verb_of

CHILD_BAR_S, EXECUTOR_BAR_S, RECOVERY_BAR_S = 0.1, 1.0, 1.0
BAD = ("failed", "lost")


def main() -> None:
    args = options(__doc__, 7, 1)
    with Home() as home:
        ways: Dict[str, Callable[[], Tuple[float, float]]] = {
            "child": lambda: child_killed(home),
            "executor": lambda: executor_killed(home),
            "floor": lambda: bare(home),
        }
        found = by_turns(args.runs, ways)

    def of(way: str, at: int) -> float:
        return median([sample[at] for sample in found[way]])

    for name, way, at, bar, floor_is in (
        ("a program's death known to the master", "child", 0, CHILD_BAR_S, "waitpid of a child"),
        ("a program's death to its gang's next first lines", "child", 1, RECOVERY_BAR_S,
         "waitpid of a child, the same program again"),
        ("an executor's death known to the master", "executor", 0, EXECUTOR_BAR_S,
         "waitpid of a child"),
    ):  # fmt: skip
        figure(name, of(way, at), "s", floor=of("floor", at), floor_is=floor_is, bar=bar,
               runs=args.runs)  # fmt: skip
    figure(
        "an executor's death to its gang's next first lines", of("executor", 1), "s",
        floor=of("floor", 1), floor_is="waitpid of a child, the same program again",
        runs=args.runs,
    )  # fmt: skip


def child_killed(home: Home) -> Tuple[float, float]:
    """Seconds to the story's line, and to the next session's first lines."""

    def victim(job: Submitted, first: List[List[str]]) -> int:
        return int(first[0][1])

    return _killed(home, victim)


def executor_killed(home: Home) -> Tuple[float, float]:
    """The same of an executor; its container is another then."""

    def victim(job: Submitted, first: List[List[str]]) -> int:
        return next(pid for pid in processes_of(job.app_id) if verb_of(pid) == "executor")

    return _killed(home, victim)


def _killed(home: Home, victim: Callable[[Submitted, List[List[str]]], int]) -> Tuple[float, float]:
    folder = home.folder()
    with Submitted(home, 2, program("waits", folder)) as job:
        first = job.until(lambda: began(folder, 2), "program that runs")
        time.sleep(0.5)  # the master knows that both run
        pid = victim(job, first)
        at = time.time()
        os.kill(pid, signal.SIGKILL)
        again = job.until(lambda: began(folder, 2, 1), "next session")

        def known() -> Any:
            lines = job.story("task-state")
            times = [line["time"] for line in lines if line["fields"].get("state") in BAD]
            return min(times, default=None)

        received = job.until(known, "line in the story")
        return received - at, max(float(sample[0]) for sample in again) - at


def bare(home: Home) -> Tuple[float, float]:
    """A parent and its child."""
    folder = home.folder()
    (process,) = by_hand(program("waits", folder), 1)
    while not began(folder, 1):
        time.sleep(0.005)
    at = time.time()
    process.kill()
    process.wait(60)
    known = time.time() - at
    (again,) = by_hand(program("waits", folder), 1, SESSION_ID="1")
    while not began(folder, 1, 1):
        time.sleep(0.001)
    again.kill()
    again.wait(60)
    return known, float(began(folder, 1, 1)[0][0]) - at


if __name__ == "__main__":
    main()

"""How fast a job begins and ends on the embedded scheduler, beside the bare programs.

    python benchmarks/core_start.py [--quick] [--runs 10]

From the start of `tony submit` to the last program's first line, for 1 and 8 workers; from the last
program's end to the end of `tony submit`; from the start of `tony kill` to when no process of the
job is left. The floor is the same program started by hand, as often at once; for the end, what
waiting for a child takes; for the kill, TERM to a bare child and its end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Callable, Dict, Tuple

from measuring import TONY, by_turns, figure, median, options, until
from running import Home, Submitted, alive, began, by_hand, processes_of, program

START_BARS_S = {1: 0.8, 8: 1.5}
END_BAR_S, KILL_BAR_S = 0.3, 2.0


def main() -> None:
    args = options(__doc__, 10, 1)
    with Home() as home:
        for count, bar in START_BARS_S.items():
            ways: Dict[str, Callable[[], Tuple[float, float]]] = {
                "ours": lambda count=count: submitted(home, count),
                "floor": lambda count=count: bare(home, count),
            }
            found = by_turns(args.runs, ways)
            medians = [
                median([sample[at] for sample in found[way]]) for at in (0, 1) for way in ways
            ]
            bare_is = f"{count} of the same program by Popen"
            figure(
                f"submit to the first line of {count}", medians[0], "s",
                floor=medians[1], floor_is=bare_is, bar=bar, runs=args.runs,
            )  # fmt: skip
            figure(
                f"last of {count} programs' end to the client's", medians[2], "s",
                floor=medians[3], floor_is=bare_is, bar=END_BAR_S, runs=args.runs,
            )  # fmt: skip
        kills = by_turns(args.runs, {"ours": lambda: killed(home), "floor": lambda: termed(home)})
        figure(
            "kill to the last process gone", median(kills["ours"]), "s",
            floor=median(kills["floor"]), floor_is="TERM to one bare child, and its end",
            bar=KILL_BAR_S, runs=args.runs,
        )  # fmt: skip


def submitted(home: Home, count: int) -> Tuple[float, float]:
    """Seconds to the last first line, and from the last end to the client's."""
    folder = home.folder()
    with Submitted(home, count, program("ends", folder)) as job:
        over = job.ends()
        return _times(folder, count, job.began, over)


def bare(home: Home, count: int) -> Tuple[float, float]:
    """The same without us."""
    folder = home.folder()
    at = time.time()
    for process in by_hand(program("ends", folder), count):
        process.wait(60)
    return _times(folder, count, at, time.time())


def _times(folder: Path, count: int, at: float, over: float) -> Tuple[float, float]:
    started = began(folder, count)
    assert started, list(folder.iterdir())
    last = max(float(path.read_text()) for path in folder.glob("ended-*"))
    return max(float(sample[0]) for sample in started) - at, over - last


def killed(home: Home) -> float:
    """Two workers that mind TERM; until no process of the job is left."""
    folder = home.folder()
    with Submitted(home, 2, program("waits", folder)) as job:
        job.until(lambda: began(folder, 2), "program that runs")
        app_id = job.app_id
        there = processes_of(app_id)
        at = time.time()
        subprocess.run(
            [*TONY, "kill", app_id], env=home.env, cwd=home.path, check=True, capture_output=True
        )
        until(lambda: not any(map(alive, there)), "the processes' end")
        took = time.time() - at
        left = [pid for pid in processes_of(app_id) if pid != job.process.pid]
        assert not [pid for pid in left if alive(pid)], left
        job.process.wait(60)
        return took


def termed(home: Home) -> float:
    """One program by hand."""
    folder = home.folder()
    (process,) = by_hand(program("waits", folder), 1)
    until(lambda: began(folder, 1), "a program that runs")
    at = time.time()
    os.kill(process.pid, signal.SIGTERM)
    process.wait(60)
    return time.time() - at


if __name__ == "__main__":
    main()

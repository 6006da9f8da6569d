"""Steps a second under TonY over the same processes by hand, at 1, 2, 4 and 8 workers.

    python benchmarks/core_overhead.py [--quick] [--runs 10] [--steps 75]

A step sleeps 20 ms and adds up 64 numbers of all workers over sockets (``running.py``); rank 0
measures from the first step to the last, so that nothing of the start is in it. Each pair is one
run by hand and one under TonY, whichever first by turns; the ratio is the mean over pairs, with
its 95 % interval (Student's t). The interval should reach 0.99, and nothing of it lie below 0.95:
one that is wider than that says only that the machine was busy, and does not hold.
"""

from __future__ import annotations

import argparse
import math
import socket
import statistics
import sys
from functools import partial
from typing import Callable, List, Tuple

from measuring import figure, median
from running import Home, Submitted, by_hand, program

WANTED, LEAST = 0.99, 0.95
PAIRS = {1: 10, 2: 10, 4: 10, 8: 20}  # the more processes for a core, the wider the interval
#: Student's t for 95 % both sides, by degrees of freedom; from 30 on the normal's is near enough.
T95 = (
    12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045,
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, help="pairs of each (10, at 8 workers 20, quick 2)")
    parser.add_argument("--steps", type=int, help="in each run (default 75, quick 10)")
    parser.add_argument("--quick", action="store_true", help="two short pairs: does it work?")
    args = parser.parse_args()
    steps = args.steps or (10 if args.quick else 75)
    with Home() as home:
        for count in (1, 2) if args.quick else PAIRS:
            pairs = args.runs or (2 if args.quick else PAIRS[count])
            compare(
                f"steps a second at {count}, over those by hand", "the same processes by hand",
                pairs, steps, partial(rate_by_hand, home, count, steps),
                partial(submitted, home, count, steps),
            )  # fmt: skip


def compare(
    name: str,
    floor_is: str,
    pairs: int,
    steps: int,
    rate_by_hand: Callable[[], float],
    submitted: Callable[[], float],
) -> None:
    """So many pairs of steps a second, either first by turns, and the line of their ratio."""
    hand: List[float] = []
    ours: List[float] = []
    for number in range(pairs):
        ways = [(hand, rate_by_hand), (ours, submitted)]
        for rates, way in ways if number % 2 else reversed(ways):
            rates.append(way())
    ratio, low, high = interval(ours, hand)
    figure(
        name, ratio, "ratio", floor=1.0, floor_is=floor_is,
        bar_is=f"the interval reaches {WANTED} and lies above {LEAST}", held=holds(low, high),
        low=low, high=high, pairs=pairs, steps=steps,
        steps_per_s=median(ours), by_hand_per_s=median(hand), ours=ours, by_hand=hand,
    )  # fmt: skip


def interval(ours: List[float], hand: List[float]) -> Tuple[float, float, float]:
    """The mean ratio of the pairs, and its 95 % interval; on logarithms, as ratios are."""
    logs = [math.log(a / b) for a, b in zip(ours, hand, strict=True)]
    freedom = len(logs) - 1
    mean = statistics.fmean(logs)
    wide = (T95[freedom - 1] if freedom <= len(T95) else 1.96) if freedom else math.inf
    half = wide * statistics.stdev(logs) / math.sqrt(len(logs)) if freedom else math.inf
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def holds(low: float, high: float) -> bool:
    """Whether an interval says that next to nothing is lost; a very wide one does not."""
    return high >= WANTED and low >= LEAST


def submitted(home: Home, count: int, steps: int) -> float:
    """Under TonY."""
    folder = home.folder()
    command = program("steps", folder, steps)
    with Submitted(home, count, command, **{"application.framework": "pytorch"}) as job:
        job.ends()
    return float((folder / "rate").read_text())


def rate_by_hand(home: Home, count: int, steps: int) -> float:
    """Steps a second of processes that run without TonY."""
    folder = home.folder()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count)}
    for process in by_hand(program("steps", folder, steps), count, **where):
        if process.wait(120):
            sys.exit(f"a process by hand exited with {process.returncode}")
    return float((folder / "rate").read_text())


if __name__ == "__main__":
    main()

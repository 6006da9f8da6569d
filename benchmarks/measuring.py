"""What the benchmarks share: a line of JSON for a figure, and what processes have cost.

A figure stands beside its *floor*: the least that the same thing takes without TonY, measured in
the same run and by turns with it. So a line means something on a machine that is slow or busy,
which the load average in it tells.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

CHECKOUT = Path(__file__).resolve().parents[1]
PATHS = [str(CHECKOUT / part) for part in (".", "executor", "program")]
TONY = [sys.executable, "-m", "tony_core.cli.main"]
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
MASTER_KB, TASK_KB = 40 * 1024, 10  # the most memory of a master, and for each task
HELD, MISSED = "held", "missed"


def options(description: Optional[str], runs: int, quick: int) -> argparse.Namespace:
    """The words every benchmark takes; ``runs`` is a number in any case."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, help=f"how many of each (default {runs})")
    parser.add_argument("--quick", action="store_true", help=f"{quick} of each: does it work?")
    found = parser.parse_args()
    found.runs = found.runs or (quick if found.quick else runs)
    return found


def figure(
    name: str,
    value: float,
    unit: str,
    *,
    floor: Optional[float] = None,
    floor_is: str = "",
    bar: Optional[float] = None,
    bar_is: str = "",
    held: Optional[bool] = None,
    **more: Any,
) -> None:
    """Print one; ``held`` when the bar is not simply the most that it may be."""
    line: Dict[str, Any] = {"figure": name, "value": rounded(value), "unit": unit}
    if floor is not None:
        line.update(floor=rounded(floor), floor_is=floor_is)
        if floor > 0 and unit != "ratio":
            line["over_floor"] = rounded(value - floor)
    if bar is not None or bar_is:
        line["bar"] = bar_is or bar
        good = held if held is not None else bar is not None and value <= bar
        line["verdict"] = HELD if good else MISSED
    line.update({key: rounded(sample) for key, sample in more.items()})
    line["load"] = round(os.getloadavg()[0], 2)
    print(json.dumps(line), flush=True)


def master_bar_mb(tasks: int) -> float:
    """The most memory that a master of so many tasks may hold."""
    return (MASTER_KB + TASK_KB * tasks) / 1024


def judged(value: float, bar: float, *, least: bool = False) -> Dict[str, Any]:
    """A bar and whether it was held, for a line of one's own; ``least``: it may not be below."""
    held = value >= bar if least else value <= bar
    return {"bar": bar, "verdict": HELD if held else MISSED}


def rounded(value: Any) -> Any:
    """Four digits that count: more is noise."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    return value


def by_turns(
    runs: int, ways: Mapping[str, Callable[[], Any]], warm: int = 1
) -> Dict[str, List[Any]]:
    """What each way gave, A B A B ...; the first rounds fill caches and are not counted."""
    found: Dict[str, List[Any]] = {name: [] for name in ways}
    for number in range(-warm, runs):
        for name, way in ways.items():
            sample = way()
            if number >= 0:
                found[name].append(sample)
    return found


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return float(statistics.median(values))


def environment(**more: str) -> Dict[str, str]:
    """For processes that import this checkout, with bytecode as an installed package has it."""
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), **more}
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return found


def rss_kb(pid: int) -> float:
    """What a process holds of the memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES / 1024


def cpu_s(pid: int) -> float:
    """The processor time that a process has had."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def exact_cpu_s(pid: int) -> float:
    """The same, finer than the clock's ticks, where the kernel counts it; of all its threads."""
    spent = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        spent += int(path.read_text().split()[0])
    return spent / 1e9


def until(what: Callable[[], Any], why: str, within_s: float = 60.0, every_s: float = 0.005) -> Any:
    """Look until there is something."""
    end = time.monotonic() + within_s
    while True:
        found = what()
        if found:
            return found
        if time.monotonic() > end:
            sys.exit(f"waited {within_s:g} s for {why}: it did not come")
        time.sleep(every_s)

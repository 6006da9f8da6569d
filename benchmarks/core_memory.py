"""What TonY's own processes hold and do while the programs only sleep.

    python benchmarks/core_memory.py [--quick] [--runs 3]

One job of one worker and one of 32, on the embedded scheduler. Memory is resident, as the
kernel counts it; an executor's share of a core is measured over 20 s in which nothing happens
but heartbeats and the sampling of the program. The floor is a bare Python that waits for input.

Another job has a program that reports a step twice a second, and a ``tony.task.stall-timeout`` of
20 s, for which its executor looks every 2.5 s. Its floor is the same job without one.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Dict, List

from measuring import by_turns, exact_cpu_s, figure, master_bar_mb, median, options, rss_kb
from running import Home, Submitted, began, processes_of, program, verb_of

EXECUTOR_BAR_MB, IDLE_BAR = 16.0, 0.002
SLOW_S = 20.0
MANY = 32
STALL_WATCH = {"task.stall-timeout": "20s"}


def main() -> None:
    args = options(__doc__, 3, 1)
    calm_s = 2.0 if args.quick else SLOW_S
    many = 4 if args.quick else MANY
    bare = [bare_python(calm_s) for _ in range(args.runs)]
    floor_mb = median([sample["rss_kb"] for sample in bare]) / 1024
    floor_is = "a bare Python that waits"
    with Home() as home:
        one = [held(home, 1, calm_s) for _ in range(args.runs)]
        figure(
            "an executor's memory", median([sample["executor_kb"] for sample in one]) / 1024, "MB",
            floor=floor_mb, floor_is=floor_is, bar=EXECUTOR_BAR_MB, runs=args.runs,
        )  # fmt: skip
        figure(
            "an idle executor's share of a core", median([run["idle"] for run in one]), "cores",
            floor=median([sample["idle"] for sample in bare]), floor_is=floor_is,
            bar=IDLE_BAR, runs=args.runs, over_s=calm_s,
        )  # fmt: skip
        ways = {
            "watched": lambda: held(home, 1, calm_s, "reports", **STALL_WATCH),
            "not watched": lambda: held(home, 1, calm_s, "reports"),
        }
        reporting = by_turns(args.runs, ways, warm=0)
        watched, unwatched = ([run["idle"] for run in reporting[way]] for way in ways)
        figure(
            "an executor's share of a core, its program reports and is watched for stalls",
            median(watched), "cores",
            floor=median(unwatched), floor_is="the same without tony.task.stall-timeout",
            bar=IDLE_BAR, each=watched, floors=unwatched, runs=args.runs, over_s=calm_s,
        )  # fmt: skip
        more = [held(home, many, 1.0)]
        for count, samples in ((1, one), (many, more)):
            figure(
                f"the master's memory at {count}",
                median([each["master_kb"] for each in samples]) / 1024, "MB",
                floor=floor_mb, floor_is=floor_is,
                bar=master_bar_mb(count), runs=len(samples),
            )  # fmt: skip


def held(
    home: Home, count: int, calm_s: float, verb: str = "waits", **settings: object
) -> Dict[str, float]:
    """A job's processes, when all its programs have run for a moment."""
    folder = home.folder()
    with Submitted(home, count, program(verb, folder), **settings) as job:
        job.until(lambda: began(folder, count), "program that runs")
        time.sleep(min(calm_s, 3.0))
        pids = processes_of(job.app_id)
        executors = [pid for pid in pids if verb_of(pid) == "executor"]
        (master,) = (pid for pid in pids if verb_of(pid) == "master")
        assert len(executors) == count, (executors, count)
        before, at = exact_cpu_s(executors[0]), time.monotonic()
        time.sleep(calm_s)
        idle = (exact_cpu_s(executors[0]) - before) / (time.monotonic() - at)
        return {
            "executor_kb": median([rss_kb(pid) for pid in executors]),
            "idle": idle,
            "master_kb": rss_kb(master),
        }


def bare_python(calm_s: float) -> Dict[str, float]:
    """One that does nothing."""
    command: List[str] = [sys.executable, "-I", "-S", "-c", "print(flush=True); input()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdout.readline()
    before, at = exact_cpu_s(process.pid), time.monotonic()
    time.sleep(min(calm_s, 2.0))
    idle = (exact_cpu_s(process.pid) - before) / (time.monotonic() - at)
    sample = {"rss_kb": rss_kb(process.pid), "idle": idle}
    process.stdin.write(b"\n")
    process.communicate()
    return sample


if __name__ == "__main__":
    main()

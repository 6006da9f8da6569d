"""What it costs a master to write history as the job goes: processor time, bytes, the end.

    python benchmarks/history_cost.py [--quick] [--tasks 1000] [--seconds 120]

The master is real, in a process of its own, with simulated executors as in ``core_scale.py``: each
sends a heartbeat each second, and every five seconds four measures and a report of the program with
three values. The floor is the same master that records nothing while the job runs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict

from core_scale import WITHIN_S, Master
from measuring import cpu_s, figure, rss_kb
from simulated import Executors

EVERY = 5  # heartbeats
CORE_BAR = 0.02


def sample(tasks: int, seconds: float, without: str = "") -> Dict[str, float]:
    """One job: the master's share of a core while it runs, and what its history holds then."""
    with tempfile.TemporaryDirectory(prefix="history-cost-") as name:
        folder = Path(name)
        master = Master(folder, "jax", tasks, without)
        pid = master.process.pid
        executors = Executors(master.address, master.gone)
        try:
            end = time.monotonic() + WITHIN_S
            while len(executors.specs) < tasks:
                if time.monotonic() > end or master.process.poll() is not None:
                    sys.exit((folder / "stderr").read_text()[-3000:])
                for container_id in master.receive():
                    executors.start(container_id)
                executors.turn(beating=True)
            executors.measures_every = EVERY
            calm = time.monotonic() + 5.0
            executors.run_until(lambda: time.monotonic() > calm, WITHIN_S, beating=True)
            began, spent = time.monotonic(), cpu_s(pid)
            over = began + seconds
            executors.run_until(lambda: time.monotonic() > over, WITHIN_S + seconds, beating=True)
            took = time.monotonic() - began
            found = {"cores": (cpu_s(pid) - spent) / took, "rss_kb": rss_kb(pid)}
            history = folder / "history"
            found["bytes"] = sum(path.stat().st_size for path in history.glob("*"))
            found["points_bytes"] = sum(p.stat().st_size for p in history.glob("metrics-*"))
            ended = time.monotonic()
            executors.end_all()

            def is_over() -> bool:
                assert master.process.stdin is not None
                master.process.stdin.flush()
                return bool(master.finished)

            executors.run_until(is_over, WITHIN_S, why="the job's end")
            found["end_s"] = master.finished - ended
            summary = json.loads((history / "summary.json").read_text())
            assert summary["job"]["state"] == "SUCCEEDED", summary["job"]
            return found
        finally:
            executors.close()
            master.process.kill()
            master.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few seconds: does it work?")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=120.0)
    words = parser.parse_args()
    tasks, seconds = (50, 8.0) if words.quick else (words.tasks, words.seconds)
    floor = sample(tasks, seconds, "without-history")
    ours = sample(tasks, seconds)
    figure(
        f"history of {tasks} tasks: a master's share of a core", ours["cores"], "cores",
        floor=floor["cores"], floor_is="the same master that records nothing",
        bar=CORE_BAR, bar_is=f"{CORE_BAR} cores over the floor",
        held=ours["cores"] - floor["cores"] <= CORE_BAR,
        rss_kb=[ours["rss_kb"], floor["rss_kb"]], history_kb=ours["bytes"] / 1024,
        points_kb=ours["points_bytes"] / 1024, seconds=seconds, cores=os.cpu_count(),
    )  # fmt: skip
    figure(
        f"history of {tasks} tasks: from the last program's end to the job's", ours["end_s"], "s",
        floor=floor["end_s"], floor_is="the same master that records nothing before",
    )  # fmt: skip


if __name__ == "__main__":
    main()

"""From the client's start to the programs' first lines on YARN, against the least possible.

    HADOOP_CONF_DIR=... python benchmarks/yarn_start.py [--runs 5] [--counts 1,8,32]

Runs of ours and of the floor (yarn_floor.py) take turns; a JSON line for each figure, with
medians and means. The cluster's own settings decide much of both: quote the difference. Nodes
report once a second, and both wait for that twice; each run begins at another moment of that
second, or a few milliseconds would count as one or as nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List

from measuring import MISSED, judged

CHECKOUT = Path(__file__).resolve().parents[1]
HEARTBEAT_S = 1.0  # of a node, as YARN has it by default
OVER_FLOOR_S = {1: 0.5, 8: 1.0, 32: 1.0}  # the bars, by containers
ALL_32_S = 6.0
FLOOR = CHECKOUT / "benchmarks" / "yarn_floor.py"


def first_lines(command: List[str], folder: Path, count: int, env: Dict[str, str]) -> List[float]:
    """Seconds from the client's start to each container's first line, and to the client's end."""
    began = time.time()
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    took = time.time() - began
    times = [float(path.read_text()) for path in folder.iterdir()]
    if done.returncode or len(times) < count:
        sys.exit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}\n{len(times)} of {count} ran")
    return [max(times) - began, took]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--counts", default="1,8,32")
    args = parser.parse_args()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths()))}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    chance = random.Random(1)
    for count in map(int, args.counts.split(",")):
        taken: Dict[str, List[List[float]]] = {"ours": [], "floor": []}
        for run in range(args.runs + 1):
            for what, times in taken.items():
                with tempfile.TemporaryDirectory() as name:
                    folder = Path(name)
                    folder.chmod(0o777)
                    time.sleep(chance.uniform(0, HEARTBEAT_S))
                    command = ours(count, name) if what == "ours" else floor(count, name)
                    found = first_lines(command, folder, count, env)
                if run:  # the first warms the cluster up, and stages our code
                    times.append(found)
        for number, figure in enumerate(("start to first lines", "start to client's end")):
            means = {w: statistics.fmean(t[number] for t in ts) for w, ts in taken.items()}
            medians = {w: statistics.median(t[number] for t in ts) for w, ts in taken.items()}
            over = medians["ours"] - medians["floor"]
            verdict: Dict[str, Any] = {}
            if number == 0 and count in OVER_FLOOR_S:
                verdict = {"of": "over_floor_s", **judged(over, OVER_FLOOR_S[count])}
                if count == 32 and medians["ours"] > ALL_32_S:
                    verdict.update(of="ours_s", bar=ALL_32_S, verdict=MISSED)
            print(
                json.dumps(
                    {
                        "benchmark": "yarn_start",
                        "figure": figure,
                        "containers": count,
                        "runs": args.runs,
                        **{f"{what}_s": round(value, 3) for what, value in medians.items()},
                        "over_floor_s": round(over, 3),
                        "over_floor_mean_s": round(means["ours"] - means["floor"], 3),
                        "ratio": round(medians["ours"] / medians["floor"], 2),
                        **verdict,
                    }
                ),
                flush=True,
            )


def ours(count: int, folder: str) -> List[str]:
    settings = {
        "tony.application.framework": "mpi",
        "tony.worker.instances": count,
        "tony.worker.memory": 64,
        "tony.am.memory": 256,
        "tony.application.name": "start",
    }
    words = [sys.executable, "-m", "tony_core.cli.main", "submit", "--scheduler", "yarn"]
    for key, value in settings.items():
        words += ["--conf", f"{key}={value}"]
    line = f"date +%s.%N > {folder}/$TASK_INDEX"
    return [*words, "--executes", f"sh -c '{line}'"]


def floor(count: int, folder: str) -> List[str]:
    return [sys.executable, "-S", str(FLOOR), "client", str(count), folder]


def paths() -> List[Path]:
    return [CHECKOUT / part for part in (".", "executor", "program")]


if __name__ == "__main__":
    main()

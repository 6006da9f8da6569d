"""From a job's start in Azkaban to the program's first line, against the same by `tony submit`.

    python benchmarks/azkaban_server_start.py [--runs 10] [--hadoop-conf-dir FOLDER]

Brings up a real server of its own; runs by the server and by the command line take turns. A job's
start is what the server calls so (its ``startTime``), before it has made the job's process; a
submit's is that of the process. A JSON line with medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, Optional

CHECKOUT = Path(__file__).resolve().parents[1]
PATHS = [str(CHECKOUT / part) for part in (".", "executor", "plugins/azkaban", "program")]
sys.path[:0] = PATHS

from tests.cluster.azkaban.flows import Flows  # noqa: E402
from tests.cluster.azkaban.installing import installer  # noqa: E402
from tests.cluster.azkaban.server import Azkaban  # noqa: E402

SETTINGS: Dict[str, object] = {
    "tony.worker.instances": 1,
    "tony.worker.memory": "64m",
    "tony.am.memory": "256",
    "tony.application.name": "start",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--hadoop-conf-dir", type=Path)
    args = parser.parse_args()
    conf: Optional[Path] = args.hadoop_conf_dir
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with Azkaban.up(folder / "server", installer(conf)) as server:
            flows = Flows(server, folder / "flows")
            taken: Dict[str, List[float]] = {"azkaban": [], "submit": []}
            for run in range(args.runs + 1):
                mark = folder / f"mark-{run}"
                by_azkaban = from_azkaban(flows, mark.with_suffix(".a"))
                by_submit = from_submit(server, conf, mark.with_suffix(".s"))
                if run:  # the first warms things up, and stages our code
                    taken["azkaban"].append(by_azkaban)
                    taken["submit"].append(by_submit)
    medians = {what: statistics.median(times) for what, times in taken.items()}
    print(
        json.dumps(
            {
                "benchmark": "azkaban_server_start",
                "figure": "start to first line",
                "scheduler": "yarn" if conf else "local",
                "runs": args.runs,
                **{f"{what}_s": round(value, 3) for what, value in medians.items()},
                "over_submit_s": round(medians["azkaban"] - medians["submit"], 3),
            }
        )
    )


def program(mark: Path) -> str:
    return f"sh -c 'date +%s.%N > {mark}'"


def from_azkaban(flows: Flows, mark: Path) -> float:
    run = flows.one(program(mark), conf=SETTINGS).ends()
    (node,) = flows.client.execution(run.execid)["nodes"]
    return float(mark.read_text()) - float(node["startTime"]) / 1000


def from_submit(server: Azkaban, conf: Optional[Path], mark: Path) -> float:
    words = [sys.executable, "-m", "tony_core.cli.main", "submit"]
    words += ["--scheduler", "yarn" if conf else "local", "--executes", program(mark)]
    for key, value in SETTINGS.items():
        words += ["--conf", f"{key}={value}"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "TONY_HOME": str(server.tony_home)}
    if conf:
        env["HADOOP_CONF_DIR"] = str(conf)
    began = time.time()
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout}\n{done.stderr}")
    return float(mark.read_text()) - began


if __name__ == "__main__":
    main()

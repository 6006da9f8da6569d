"""What a DAG file with a TonyOperator costs to parse, over one with an empty DAG.

    python benchmarks/airflow_parse.py [--runs 15]

Each parse is the first of a fresh process that has loaded Airflow as its DAG processor has, so
that everything the operator imports counts in full; the files take turns. One JSON object a line,
with medians; on a machine that has other things to do, the processor time is the truer one.
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
from typing import Dict, List, Tuple

CHECKOUT = Path(__file__).resolve().parents[1]
BAR_S = 0.050

EMPTY = """
from airflow.providers.common.compat.sdk import DAG

with DAG("it", schedule=None):
    pass
"""

OPERATOR = """
from airflow.providers.common.compat.sdk import DAG
from tony_airflow.operators.tony import TonyOperator

with DAG("it", schedule=None):
    TonyOperator(
        task_id="train",
        executes="python train.py",
        roles={"worker": {"instances": 4, "memory": "4g", "gpus": 1}, "ps": {"instances": 1}},
        env={"GREETING": "hello"},
        deferrable=True,
    )
"""

PARSES = """
import sys, time
from airflow.providers.common.compat.sdk import DAG, BaseOperator
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # 2.11
    from airflow.models import DagBag
began = time.perf_counter(), time.process_time()
bag = DagBag(sys.argv[1])
took = time.perf_counter() - began[0], time.process_time() - began[1]
assert not bag.import_errors and list(bag.dags) == ["it"], bag.import_errors
print("took", *took)
"""


def parse(path: Path, home: Path) -> Tuple[float, float, float]:
    """Seconds for the file, its processor time, and seconds for the process."""
    paths = [str(CHECKOUT), *(str(CHECKOUT / part) for part in ("executor", "plugins/airflow"))]
    env = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "PYTHONPATH": os.pathsep.join(paths),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PARSES, str(path)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    process = time.perf_counter() - began
    found = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("took ")]
    if not found:
        sys.exit(f"{done.stdout}\n{done.stderr}")
    took, processor = map(float, found[0])
    return took, processor, process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    words = parser.parse_args()
    taken: Dict[str, List[Tuple[float, float, float]]] = {"empty": [], "operator": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {}
        for what, source in (("empty", EMPTY), ("operator", OPERATOR)):
            files[what] = folder / what / "it.py"
            files[what].parent.mkdir()
            files[what].write_text(source)
        for run in range(words.runs + 1):
            for what, path in files.items():
                found = parse(path, folder / "home")
                if run:  # the first writes bytecode, and Airflow's own files
                    taken[what].append(found)
    figures = ("parse of the file", "its processor time", "whole process")
    for number, figure in enumerate(figures):
        medians = {w: statistics.median(t[number] for t in ts) for w, ts in taken.items()}
        line = {
            "benchmark": "airflow_parse",
            "figure": figure,
            "empty_s": round(medians["empty"], 4),
            "operator_s": round(medians["operator"], 4),
            "over_it_s": round(medians["operator"] - medians["empty"], 4),
            "bar_s": BAR_S,
            "runs": words.runs,
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

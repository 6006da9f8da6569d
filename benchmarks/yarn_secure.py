"""What Kerberos costs a job on YARN: a secure cluster against an open one, by turns.

    python benchmarks/yarn_secure.py [--quick] [--runs 7]

It starts both clusters on this machine (bin/hadoop-sandbox, two nodes each, 2.5 GB together) and
ends them. A run is one job of one worker: the seconds from the client's start to the program's
first line, and what executor and master hold of the memory a moment later. A figure is the
difference of the medians. Nodes report once a second, so each run begins at another moment of
that second.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

from measuring import CHECKOUT, TONY, by_turns, environment, figure, median, options, until
from yarn_costs import kind_of, parent, processes, used

SUBMIT_S, EXECUTOR_MB, MASTER_MB = 0.3, 1.0, 6.0  # the bars, each over an open cluster
HEARTBEAT_S = 1.0  # of a node, as YARN has it by default
SETTLED_S = 3.0  # from a program's first line until the memory is read
UP_S = 300.0
RUN_S = 120.0
CLUSTERS = {"open": ["two_nodes"], "secure": ["--secure"]}
SANDBOX = [str(CHECKOUT / "bin" / "hadoop-sandbox")]
LINE = (
    "sh -c 'date +%s.%N > {0}/line.new; mv {0}/line.new {0}/line;"
    " until test -e {0}/over; do sleep 0.1; done'"
)


def main() -> None:
    args = options(__doc__, 7, 1)
    chance = random.Random(1)
    with contextlib.ExitStack() as stack:
        variables = {name: stack.enter_context(cluster(what)) for name, what in CLUSTERS.items()}

        def way(name: str) -> Any:
            def run() -> Dict[str, float]:
                time.sleep(chance.uniform(0, HEARTBEAT_S))
                return measure(variables[name])

            return run

        found = by_turns(args.runs, {name: way(name) for name in CLUSTERS})
    for title, key, unit, bar in (
        ("a submit to the program's first line", "first_line_s", "s", SUBMIT_S),
        ("an executor's memory", "executor_mb", "MB", EXECUTOR_MB),
        ("a master's memory", "master_mb", "MB", MASTER_MB),
    ):
        medians = {name: median([one[key] for one in runs]) for name, runs in found.items()}
        figure(
            f"{title}, over an open cluster's", medians["secure"] - medians["open"], unit,
            bar=bar, runs=args.runs, open=medians["open"], secure=medians["secure"],
            least_open=min(one[key] for one in found["open"]),
            least_secure=min(one[key] for one in found["secure"]),
        )  # fmt: skip


@contextlib.contextmanager
def cluster(words: Sequence[str]) -> Iterator[Dict[str, str]]:
    """A cluster of its own; the variables of its clients."""
    with tempfile.TemporaryDirectory() as parent_folder:
        sandbox = [*SANDBOX, "--folder", str(Path(parent_folder, "cluster"))]
        up = [*sandbox, "up", *words]
        done = subprocess.run(up, stdout=subprocess.PIPE, text=True, timeout=UP_S)
        if done.returncode:
            sys.exit(f"{' '.join(up)} ended with {done.returncode}")
        try:
            yield dict(re.findall(r"(?m)^export (\w+)='?([^'\n]*)'?$", done.stdout))
        finally:
            subprocess.run([*sandbox, "down"], check=True, timeout=UP_S)


def measure(variables: Dict[str, str]) -> Dict[str, float]:
    """One job."""
    settings = {
        "tony.application.framework": "mpi",
        "tony.application.name": "secure",
        "tony.worker.instances": 1,
        "tony.worker.memory": 64,
        "tony.am.memory": 256,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        command: List[str] = [*TONY, "submit", "--scheduler", "yarn"]
        command += ["--executes", LINE.format(name)]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        output = folder / "output"
        with output.open("w") as stream:
            began = time.time()
            client = subprocess.Popen(
                command, env=environment(**variables), stdout=stream, stderr=stream
            )
        try:
            line = folder / "line"
            until(lambda: line.exists() or client.poll() is not None, "first line", RUN_S)
            if client.poll() is not None:
                sys.exit(output.read_text())
            time.sleep(SETTLED_S)
            app_id = re.findall(r"application_\d+_\d+", output.read_text())[0]
            memory = memory_mb(app_id)
        finally:
            (folder / "over").touch()
            status = client.wait(RUN_S)
        if status:
            sys.exit(output.read_text())
        return {"first_line_s": float(line.read_text()) - began, **memory}


def memory_mb(app_id: str) -> Dict[str, float]:
    """Resident memory of the executor and the master of a job of one worker."""
    there = processes(app_id)
    found: Dict[str, List[float]] = {"executor": [], "master": []}
    for pid, words in there.items():
        kind = kind_of(words)
        is_guard = kind == "executor" and kind_of(there.get(parent(pid), [""])) != kind
        if kind in found and not is_guard:
            found[kind].append(used(pid)[0])
    if not all(found.values()):
        sys.exit(f"{app_id}: expected a master and an executor, found {there}")
    return {f"{kind}_mb": max(sizes) for kind, sizes in found.items()}


if __name__ == "__main__":
    os.environ.pop("HADOOP_CONF_DIR", None)
    main()

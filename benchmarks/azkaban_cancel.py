"""How long a cancelled job of Azkaban's takes to end its application, by the job type alone.

    python benchmarks/azkaban_cancel.py [--runs N]

The job type's own program, as a server starts it, on the embedded scheduler; once the job runs,
it gets SIGTERM, as from a server. The job's program minds no TERM and leaves a child in a
session of its own. Prints one JSON line a figure: the best, the middle and the worst of N runs in
seconds, from the signal to the application's end (``application``), to the job type's own
(``job``), and to when no process of the application is left (``processes``). A server of 2.5
kills after 5 s: the first two are wanted below. With ``--minds`` the program ends at TERM.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, Dict, List

from running import processes_of

CHECKOUT = Path(__file__).resolve().parents[1]
PATHS = [CHECKOUT / part for part in (".", "executor", "program", "plugins/azkaban")]
CLINGS = "sh -c 'trap \"\" TERM; touch up; setsid sleep 300 & sleep 301; sleep 302'"
MINDS = "sh -c 'touch up; exec sleep 300'"
WITHIN_S = 120.0


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--minds", action="store_true", help="the program ends at TERM")
    options = parser.parse_args()
    sys.path[:0] = [str(path) for path in PATHS]
    found: Dict[str, List[float]] = {"application": [], "job": [], "processes": []}
    with tempfile.TemporaryDirectory(prefix="azkaban-cancel-") as folder:
        command = _installed(Path(folder))
        executes = MINDS if options.minds else CLINGS
        for number in range(options.runs + 1):
            sample = _run(command, Path(folder), executes, number)
            if number:  # the first fills caches
                for what, seconds in sample.items():
                    found[what].append(seconds)
    for what, seconds in found.items():
        figure = {
            "figure": f"azkaban-cancel-{what}",
            "unit": "s",
            "runs": options.runs,
            "program": "minds TERM" if options.minds else "minds no TERM",
            "best": round(min(seconds), 3),
            "middle": round(statistics.median(seconds), 3),
            "worst": round(max(seconds), 3),
        }
        print(json.dumps(figure), flush=True)
    return 0


def _installed(folder: Path) -> List[str]:
    """The job type; the command by which a server starts its program."""
    from tony_azkaban.installation import install
    from tony_azkaban.java_properties import load

    (folder / "jobtypes").mkdir()
    done = install(folder / "jobtypes", None, {"server.name": "benchmark"})
    return load((done.folder / "plugin.properties").read_bytes())["command"].split()


def _run(command: List[str], folder: Path, executes: str, number: int) -> Dict[str, float]:
    """Seconds from the signal, by what ends."""
    from tony_azkaban.java_properties import dump

    props = {
        "executes": executes,
        "azkaban.flow.execid": str(number + 1),
        "tony.worker.instances": "1",
        "tony.worker.memory": "64m",
        "tony.application.framework": "standalone",
        "tony.task.kill-grace": "60",
        # Not by the lease: what does not end by the signal shows.
        "tony.client.lease": "600",
    }
    (folder / "job.properties").write_bytes(dump(props))
    home = folder / "home"
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, PATHS)),
        "TONY_HOME": str(home),
        "JOB_PROP_FILE": str(folder / "job.properties"),
        "JOB_NAME": "cancelled",
    }
    output = folder / "output"
    with output.open("w") as log:
        job = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
    try:
        app_id = ""

        def runs() -> bool:
            nonlocal app_id
            if job.poll() is not None:
                sys.exit(output.read_text())
            printed = re.search(r"application (local_\w+)$", output.read_text(), re.M)
            app_id = printed.group(1) if printed else ""
            return bool(app_id) and any((home / "apps" / app_id).rglob("up"))

        _await(runs, "the program runs")
        began = time.monotonic()
        job.send_signal(signal.SIGTERM)
        status = home / "apps" / app_id / "status.json"
        ends = {
            "application": lambda: json.loads(status.read_text())["state"] == "KILLED",
            "job": lambda: job.poll() is not None,
            "processes": lambda: not processes_of(app_id),
        }
        took: Dict[str, float] = {}

        def look() -> bool:
            for what, ended in ends.items():
                if what not in took and ended():
                    took[what] = time.monotonic() - began
            return len(took) == len(ends)

        _await(look, f"all of {app_id} has ended")
        return took
    finally:
        if job.poll() is None:
            job.kill()
        job.wait()


def _await(ready: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not ready():
        if time.monotonic() > deadline:
            sys.exit(f"not within {WITHIN_S:g} s: {what}")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())

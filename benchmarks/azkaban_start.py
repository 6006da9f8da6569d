"""How long a job of Azkaban's takes to its program's first line, beside ``tony submit``.

    python benchmarks/azkaban_start.py [--runs N]

The same job on the embedded scheduler, in turn by ``tony submit`` and by the job type's own
program as a server starts it. Prints one JSON line a figure: the best and the middle of N runs
in seconds, from the process's start to the application's id in its output, and to the first
line of the job's program; and the processor's time that the process took in all, which other
work on the machine disturbs least. ``extra`` is what the job type adds; at most 0.3 s is wanted.
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
PATHS = [CHECKOUT / part for part in (".", "executor", "program", "plugins/azkaban")]
PROGRAM = "import sys, time; open(sys.argv[1], 'w').write(repr(time.time()))"
JOB = {
    "tony.worker.instances": "1",
    "tony.worker.memory": "128m",
    "tony.application.framework": "standalone",
}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    sys.path[:0] = [str(path) for path in PATHS]
    found: Dict[str, List[Tuple[float, ...]]] = {"submit": [], "azkaban": []}
    with tempfile.TemporaryDirectory(prefix="azkaban-start-") as folder:
        ways = _ways(Path(folder))
        for number in range(runs + 1):
            for way, (words, env) in ways.items():
                sample = _run(words, env, Path(folder))
                if number:  # the first fills caches
                    found[way].append(sample)
    for index, what in enumerate(("application", "program", "processor")):
        best = {way: min(each[index] for each in samples) for way, samples in found.items()}
        middle = {
            way: statistics.median(each[index] for each in samples)
            for way, samples in found.items()
        }
        figure = {
            "figure": f"azkaban-start-{what}",
            "unit": "s",
            "runs": runs,
            **{f"{way}_best": round(best[way], 3) for way in found},
            **{f"{way}_middle": round(middle[way], 3) for way in found},
            "extra_best": round(best["azkaban"] - best["submit"], 3),
            "extra": round(middle["azkaban"] - middle["submit"], 3),
        }
        print(json.dumps(figure), flush=True)
    return 0


def _ways(folder: Path) -> Dict[str, Tuple[List[str], Dict[str, str]]]:
    from tony_azkaban.installation import install
    from tony_azkaban.java_properties import dump, load

    (folder / "src").mkdir()
    (folder / "src" / "first.py").write_text(PROGRAM)
    (folder / "jobtypes").mkdir()
    executes = f"python3 first.py {folder / 'first-line'}"
    done = install(folder / "jobtypes", None, {"server.name": "benchmark"})
    command = load((done.folder / "plugin.properties").read_bytes())["command"]
    props = {"executes": executes, "src_dir": "src", "azkaban.flow.execid": "1", **JOB}
    (folder / "job.properties").write_bytes(dump(props))
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, PATHS)),
        "TONY_HOME": str(folder / "home"),
    }
    conf = [word for key, text in JOB.items() for word in ("--conf", f"{key}={text}")]
    tony = [sys.executable, "-m", "tony_core.cli.main", "submit"]
    return {
        "submit": ([*tony, "--executes", executes, "--src_dir", "src", *conf], env),
        "azkaban": (
            command.split(),
            {**env, "JOB_PROP_FILE": str(folder / "job.properties"), "JOB_NAME": "first"},
        ),
    }


def _run(words: List[str], env: Dict[str, str], folder: Path) -> Tuple[float, ...]:
    """Seconds to the application's id, to the program's first line, and of processor time."""
    began = time.time()
    process = subprocess.Popen(
        words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    accepted = 0.0
    output = []
    assert process.stdout is not None
    for line in process.stdout:
        output.append(line)
        if not accepted and "application local_" in line:
            accepted = time.time() - began
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit("".join(output))
    first = float((folder / "first-line").read_text()) - began
    return accepted, first, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())

"""What a command costs: `--version`, `list` and `status`, each beside a bare Python.

    python benchmarks/core_commands.py [--quick] [--runs 15]

The commands and `python -c pass` take turns. `list` and `status` look into a home with twenty jobs
that have ended.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from typing import Callable, Dict, List, Tuple

from measuring import TONY, by_turns, figure, median, options
from running import Home, Submitted, program

BARS_S = {"--version": 0.15, "list": 0.40, "status": 0.40}
JOBS = 20


def main() -> None:
    args = options(__doc__, 15, 2)
    with Home() as home:
        app_id = some_jobs(home, 2 if args.quick else JOBS)
        commands = {
            "bare": [sys.executable, "-c", "pass"],
            "--version": [*TONY, "--version"],
            "list": [*TONY, "list"],
            "status": [*TONY, "status", app_id],
        }
        ways: Dict[str, Callable[[], Tuple[float, float]]] = {
            name: lambda command=command: timed(home, command) for name, command in commands.items()
        }
        found = by_turns(args.runs, ways)
    floor, floor_cpu = (median([sample[at] for sample in found["bare"]]) for at in (0, 1))
    for name, bar in BARS_S.items():
        figure(
            f"tony {name}", median([sample[0] for sample in found[name]]), "s",
            floor=floor, floor_is="python -c pass", bar=bar, runs=args.runs,
            cpu_s=median([sample[1] for sample in found[name]]), floor_cpu_s=floor_cpu,
        )  # fmt: skip


def some_jobs(home: Home, count: int) -> str:
    """One that was run, and copies of it."""
    with Submitted(home, 1, program("ends", home.folder())) as job:
        job.ends()
    apps, history = home.path / "home" / "apps", home.path / "home" / "history"
    (first,) = (app.name for app in apps.iterdir())
    for number in range(1, count):
        name = f"{first[:-4]}{number:04}"
        for root in (apps, history):
            shutil.copytree(root / first, root / name)
            for path in (root / name).rglob("*.json"):
                path.write_text(path.read_text().replace(first, name))
    return first


def timed(home: Home, command: List[str]) -> Tuple[float, float]:
    """Seconds on the clock, and of a processor."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, env=home.env, cwd=home.path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stderr is not None
    if process.returncode:
        sys.exit(f"{command}: {process.stderr.read().decode()}")
    process.stderr.close()
    return took, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()

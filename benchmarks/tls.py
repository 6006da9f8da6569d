"""What tony.task.tls costs: memory of an executor that is connected, and the key at submit.

    python benchmarks/tls.py [--runs N] [--quick]

One worker that sleeps, on the embedded scheduler, by turns without TLS (the floor) and with it; the
executor's RSS once its program runs. Making the key has the bare start of ``openssl`` as its floor.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List

from measuring import PATHS, figure, median, options

sys.path[:0] = PATHS


def main() -> int:
    """Measure and print."""
    wanted = options(__doc__, runs=5, quick=1)
    from tony_core.client.tls_key_pair import with_tls

    memory: Dict[bool, List[float]] = {False: [], True: []}
    making: List[float] = []
    bare: List[float] = []
    with tempfile.TemporaryDirectory(prefix="tony-tls-") as folder:
        os.environ["TONY_HOME"] = folder
        for _ in range(wanted.runs):
            for tls in (False, True):
                memory[tls].append(executor_mb(Path(folder), tls))
            began = time.monotonic()
            subprocess.run(["openssl", "version"], stdout=subprocess.DEVNULL, check=True)
            bare.append(time.monotonic() - began)
            began = time.monotonic()
            with_tls(bytes(32))
            making.append(time.monotonic() - began)
    figure(
        "tls-executor-rss", median(memory[True]), "MB", floor=median(memory[False]),
        floor_is="the same executor without TLS", runs=wanted.runs,
    )  # fmt: skip
    figure(
        "tls-key", median(making), "s", floor=median(bare),
        floor_is="openssl version", runs=wanted.runs,
    )  # fmt: skip
    return 0


def executor_mb(home: Path, tls: bool) -> float:
    """The RSS of a running job's one executor."""
    from tony_core.client import JobArguments, submit

    marks = home / "marks"
    marks.mkdir(exist_ok=True)
    up = marks / f"up-{time.monotonic_ns()}"
    arguments = JobArguments(
        executes=f"touch {up}; exec sleep 60",
        conf=[
            "tony.worker.instances=1",
            "tony.worker.memory=200m",
            "tony.application.framework=standalone",
            f"tony.task.tls={str(tls).lower()}",
            f"tony.runtime.python={sys.executable}",
        ],
    )
    with submit(arguments) as started:
        while not up.exists():
            time.sleep(0.05)
        time.sleep(1.0)
        found = [mb for pid, mb in executors() if started.app_id.encode() in pid]
        started.kill("measured")
    if len(found) != 1:
        raise RuntimeError(f"{len(found)} executors were found, not one")
    return found[0]


def executors() -> List[tuple[bytes, float]]:
    """(environment, RSS in MB) of every executor there is."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if b"\0executor\0--master\0" not in (entry / "cmdline").read_bytes():
                continue
            rss = next(
                line for line in (entry / "status").read_text().splitlines() if "VmRSS" in line
            )
            found.append(((entry / "environ").read_bytes(), int(rss.split()[1]) / 1024))
        except (OSError, StopIteration):
            continue
    return found


if __name__ == "__main__":
    sys.exit(main())

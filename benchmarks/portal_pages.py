"""Every page and API of the portal over HTTP, with first looks counted.

    python benchmarks/portal_pages.py --histories FOLDER [FOLDER...] [--index FOLDER] [--runs 30]
        [--hdfs hdfs:///FOLDER]

Runs ``tony portal`` over generated histories (benchmarks/generated_history.py). A *first look* is
the first request for a URL of a job not looked at before: each kind of page is asked of jobs
of its own, of 50 small ones and of two with many tasks (in turn, where there are few). Then the
same URLs are asked again. The time is the client's, on this machine. The index is made first,
unless ``--index`` has it. With ``--hdfs`` the portal reads the copy of the one FOLDER there.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, Iterator, List, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measuring import PATHS, TONY, environment, figure, median, rss_kb, until

MEDIAN_MS, P99_MS, MEMORY_MB = 100.0, 300.0, 200.0
SMALL = 50  # jobs of each kind of page
LARGE = 2
LARGE_BYTES = 500_000  # of a summary
LISTS = (
    "/jobs", "/jobs?sort=-gpu_hours", "/jobs?sort=-memory_gb_hours", "/jobs?q=train",
    "/jobs?q=rank+memory", "/jobs?state=FAILED", "/jobs?queue=gpu&state=KILLED", "/jobs?tag=team-3",
    "/jobs?user=uid-64301", "/api/jobs", "/api/jobs?q=speech&sort=name", "/users", "/queues",
    "/api/usage?by=user", "/trends", "/trends?pipeline=ranking-train/train",
    "/api/trends?pipeline=ranking-train/train", "/health", "/metrics",
)  # fmt: skip
OF_A_JOB = (
    "", "tasks", "metrics", "story", "config", "log/worker:0/stdout", "logs/worker:0/stdout",
    "api/job", "api/tasks", "api/metrics", "api/timeline", "api/events?since=0", "api/config",
)  # fmt: skip


class Client:
    """One connection, kept."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=120)
        self.refused: Dict[str, int] = {}

    def ask(self, path: str) -> float:
        """Milliseconds until the whole answer is there."""
        began = time.perf_counter()
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        answer.read()
        took = (time.perf_counter() - began) * 1000
        if answer.status != 200:
            self.refused[path] = answer.status
        return took


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--histories", type=Path, nargs="+", required=True)
    parser.add_argument("--index", type=Path)
    parser.add_argument("--hdfs", default="")
    parser.add_argument("--runs", type=int, default=30)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        index = args.index or Path(folder) / "index"
        measure_pages(args.histories, index, args.runs, args.hdfs)


def measure_pages(histories: Sequence[Path], index: Path, runs: int, hdfs: str = "") -> None:
    """Start a portal over the histories, or their copy on HDFS, and measure it."""
    small, large = choose_jobs(histories)
    with tempfile.TemporaryDirectory() as folder:
        process = start([hdfs] if hdfs else [str(root) for root in histories], index, Path(folder))
        try:
            printed = Path(folder) / "log"
            url = until(
                lambda: re.search(r"http://([\d.]+):(\d+)", printed.read_text()), "the portal"
            )
            client = Client(url[1], int(url[2]))
            await_index(client, sum(len(os.listdir(root)) for root in histories))
            figure("memory after the start", rss_kb(process.pid) / 1024, "MB", bar=MEMORY_MB)
            for path in LISTS:
                report(path, [client.ask(path)], [client.ask(path) for _ in range(runs)])
            measure_jobs(client, small, SMALL, "", runs)
            measure_jobs(client, large, LARGE, " of many tasks", runs)
            measure_comparisons(client, small, large, runs)
            figure("memory at the end", rss_kb(process.pid) / 1024, "MB", bar=MEMORY_MB)
            for path, status in sorted(client.refused.items())[:20]:
                print(f"{path}: {status}", file=sys.stderr)
        finally:
            process.terminate()
            process.wait(30)


def measure_jobs(client: Client, jobs: Iterator[str], count: int, what: str, runs: int) -> None:
    """Each kind of page, of jobs of its own."""
    for page in OF_A_JOB:
        paths = [f"/jobs/{next(jobs)}/{page}" for _ in range(count)]
        first = [client.ask(path) for path in paths]
        again = [client.ask(paths[number % len(paths)]) for number in range(runs)]
        report(f"/jobs/ID/{page}{what}", first, again)


def measure_comparisons(
    client: Client, small: Iterator[str], large: Iterator[str], runs: int
) -> None:
    """Two jobs side by side."""
    for jobs, count, what in ((small, 20, ""), (large, 1, ", one of many tasks")):
        for path in ("/compare", "/api/compare"):
            paths = [f"{path}?job={next(jobs)}&job={next(small)}" for _ in range(count)]
            first = [client.ask(one) for one in paths]
            again = [client.ask(paths[number % len(paths)]) for number in range(min(runs, 20))]
            report(f"{path} of two jobs{what}", first, again)


def report(name: str, first: List[float], again: List[float]) -> None:
    """A line for a kind of page."""
    times = sorted([*first, *again])
    p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
    held = median(times) <= MEDIAN_MS and p99 <= P99_MS
    figure(
        name, median(times), "ms", held=held, p99=p99, first=median(first), first_most=max(first),
        bar_is=f"{MEDIAN_MS:g} ms, {P99_MS:g} ms at the 99th percentile", requests=len(times),
    )  # fmt: skip


def choose_jobs(histories: Sequence[Path]) -> tuple[Iterator[str], Iterator[str]]:
    """Ids of small jobs, all over the history; and of the large ones, again and again."""
    names = [(root, name) for root in histories for name in sorted(os.listdir(root))]
    newest = [root / name for root in histories for name in sorted(os.listdir(root))[-40:]]
    large = [path.name for path in newest if (path / "summary.json").stat().st_size > LARGE_BYTES]
    known = set(large)
    stride = max(1, len(names) // (SMALL * len(OF_A_JOB) + 100))
    small = [name for _, name in names[::stride] if name not in known]

    def turns(found: List[str]) -> Iterator[str]:
        while True:
            yield from found

    return turns(small), turns(large or small)


def start(histories: Sequence[str], index: Path, home: Path) -> subprocess.Popen[bytes]:
    """A portal of this checkout."""
    named = [
        f"--history={'generated' if not n else f'more{n}'}={r}" for n, r in enumerate(histories)
    ]
    command = [*TONY, "portal", *named, "--scheduler=local", "--port=0", f"--index={index}"]
    env = environment(TONY_HOME=str(home), HOME=str(home), PYTHONPATH=os.pathsep.join(PATHS))
    with (home / "log").open("wb") as log:
        return subprocess.Popen(command, env=env, stdout=log, stderr=log)


def await_index(client: Client, jobs: int, within_s: float = 1800.0) -> None:
    """Wait until the index has all jobs, and the portal is at rest."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        client._connection.request("GET", "/metrics")
        text = client._connection.getresponse().read().decode()
        listed = re.search(r"^tony_portal_jobs ([\d.e+]+)$", text, re.MULTILINE)
        waiting = re.search(r"^tony_portal_histories_to_read ([\d.e+]+)$", text, re.MULTILINE)
        if listed and waiting and float(listed[1]) >= jobs and not float(waiting[1]):
            return
        time.sleep(1.0)
    sys.exit(f"the index was not read within {within_s:g} s")


if __name__ == "__main__":
    main()

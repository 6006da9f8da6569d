"""What Prometheus costs a master of 1,000 tasks: the time of an answer, and its share of a core.

    python benchmarks/exposition_cost.py [--tasks 1000] [--seconds 60] [--every 15]

The master is real, in a process of its own, with simulated executors as in ``history_cost.py``:
each measures and reports every five seconds. It is scraped each 15 seconds, from this process's
second thread; then the same without. What an answer takes of the processor is the difference,
which more scrapes (``--every 1.5``) make more exact on a busy machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import List, Tuple
from urllib.parse import urlsplit

from core_scale import WITHIN_S, Master
from measuring import cpu_s
from simulated import Executors

EVERY = 5  # heartbeats


class Scraper:
    """Asks for the figures, each time by a new connection."""

    def __init__(self, address: str, every_s: float) -> None:
        self.took: List[float] = []
        self.size = 0
        self._host = urlsplit(address).netloc
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            began = time.monotonic()
            connection = http.client.HTTPConnection(self._host, timeout=60)
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            self.size = len(answer.read())
            assert answer.status == 200, answer.status
            self.took.append(time.monotonic() - began)
            connection.close()


def sample(tasks: int, seconds: float, every_s: float) -> Tuple[float, List[float], int]:
    """The master's share of a core, what answers took, and the size of the last one."""
    with tempfile.TemporaryDirectory(prefix="exposition-cost-") as name:
        folder = Path(name)
        master = Master(folder, "jax", tasks)
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
            calm = time.monotonic() + 10.0
            executors.run_until(lambda: time.monotonic() > calm, WITHIN_S, beating=True)
            page = json.loads((folder / "state" / "master.json").read_text())["page_url"]
            scraper = Scraper(page, every_s)
            pid = master.process.pid
            began, spent = time.monotonic(), cpu_s(pid)
            over = began + seconds
            executors.run_until(lambda: time.monotonic() > over, WITHIN_S + seconds, beating=True)
            cores = (cpu_s(pid) - spent) / (time.monotonic() - began)
            scraper.close()
            return cores, scraper.took, scraper.size
        finally:
            executors.close()
            master.process.kill()
            master.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=15.0)
    words = parser.parse_args()
    with_scrapes, took, size = sample(words.tasks, words.seconds, words.every)
    without, _, _ = sample(words.tasks, words.seconds, 1e6)
    found = {
        "tasks": words.tasks,
        "answer_ms": round(statistics.median(took) * 1000, 1),
        "least_ms": round(min(took) * 1000, 1),
        "most_ms": round(max(took) * 1000, 1),
        "processor_ms": round((with_scrapes - without) * words.every * 1000, 1),
        "megabytes": round(size / 1e6, 2),
        "cores_scraped": round(with_scrapes, 4),
        "cores_without": round(without, 4),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()

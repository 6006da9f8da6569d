"""What figures for Prometheus cost a master of 1,000 tasks: time of an answer, share of a core.

    python -m benchmarks.exposition_cost [TASKS]

Every task has what executors measure and three metrics that its program reports. The view is made
of the session machine's records, as for a request to ``/metrics``.
"""

from __future__ import annotations

import statistics
import sys
import time

from tony_core.prometheus import write_job
from tony_core.schedulers.port import AppState
from tony_core.view import PAGE, JobView, TaskView

SCRAPE_S = 15.0
ROUNDS = 20


def a_view(tasks: int) -> JobView:
    """A job that runs."""
    measures = {
        "rss_mb": 2048.5, "cpu_percent": 99.5, "threads": 12.0, "processes": 3.0, "gpus": 1.0,
        "gpu_percent": 87.5, "gpu_memory_mb": 20_000.0, "gpu_memory_total_mb": 80_000.0,
        "steps_per_second": 3.25,
    }  # fmt: skip
    reported = {"loss": 0.123456789, "accuracy": 0.987654321, "learning_rate": 1e-5}
    made = tuple(
        TaskView(
            f"worker:{index}", "worker", index, state="running", session=0, started=1.7e9,
            duration_s=100.0, step=1000, progress=0.5, measures=measures, reported=reported,
        )
        for index in range(tasks)
    )  # fmt: skip
    roles = {"worker": {"instances": tasks, "memory_mb": 2048, "vcores": 1, "gpus": 1}}
    return JobView("app_1", AppState.RUNNING, PAGE, submitted=1.7e9, tasks=made, roles=roles)


def main() -> None:
    """Print what an answer takes."""
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    view = a_view(tasks)
    taken = []
    text = b""
    for _ in range(ROUNDS):
        began = time.process_time()
        text = write_job(view, 1.7e9 + 200, 1.0)
        taken.append(time.process_time() - began)
    median = statistics.median(taken)
    samples = sum(not line.startswith(b"#") for line in text.splitlines())
    print(f"{tasks} tasks: {samples} samples, {len(text) / 1e6:.2f} MB, {median * 1000:.1f} ms;")
    print(f"scraped each {SCRAPE_S:g} s: {median / SCRAPE_S:.2%} of a core for the text")


if __name__ == "__main__":
    main()

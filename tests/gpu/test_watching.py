"""What TonY tells of a real GPU at work."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from tests.failures.wreck import Wreck
from tests.gpu.conftest import RUN, GpuJob, environment, soon

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

HELD_MB = 6000


def test_its_use_and_memory_are_reported(submit: Callable[..., GpuJob], tony_home: Path) -> None:
    job = submit("grind.py", params=str(HELD_MB))
    job.until("work on the GPU", lambda: job.lines("grinding"))
    page = Wreck.of(tony_home, job.app_id)

    def busy() -> Dict[str, Any]:
        latest_metrics = (page.get("api/metrics") or {}).get("task", {}).get("worker:0", {})
        newest = {name: points[-1][1] for name, points in latest_metrics.items()}
        return newest if newest.get("gpu_percent", 0) > 50 else {}

    newest = soon(busy, "a GPU at work on the page", 60)
    assert newest["gpus"] == 1
    assert HELD_MB < newest["gpu_memory_mb"] < HELD_MB + 4000
    assert newest["gpu_memory_total_mb"] > newest["gpu_memory_mb"]

    argv = [*RUN, "status", job.app_id, "--json"]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
    (task,) = json.loads(done.stdout)["tasks"]
    assert task["measures"]["gpu_percent"] > 50
    assert task["measures"]["gpu_memory_mb"] > HELD_MB
    subprocess.run([*RUN, "kill", job.app_id], env=environment(), timeout=60, check=True)
    job.ends(137)
    argv = [*RUN, "history", "show", job.app_id, "--json"]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
    kept = json.loads(done.stdout)["metrics"]["task"]["worker:0"]
    assert max(point[1] for point in kept["gpu_memory_mb"]) > HELD_MB


def test_a_role_without_gpus_is_not_watched(submit: Callable[..., GpuJob], tony_home: Path) -> None:
    job = submit("-c 'import time; time.sleep(60)'", conf=["tony.worker.gpus=0"])
    job.until("an id", lambda: "local_" in job.output.read_text())
    page = Wreck.of(tony_home, job.app_id)

    def latest_metrics() -> Any:
        found = (page.get("api/metrics") or {}).get("task", {}).get("worker:0", {})
        return found if len(found.get("rss_mb", ())) > 3 else None

    assert not [name for name in soon(latest_metrics, "its metrics") if name.startswith("gpu")]

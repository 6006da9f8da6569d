"""Jobs that use a GPU well and badly, and what is advised of each: for tests and a benchmark.

*idle* asks for a GPU and computes on a core; *starved* prepares each batch on one core, and the GPU
waits; *launches* fills a core with the starting of tiny kernels; *small* keeps the GPU busy with
little of its memory; *right* fills memory and processor: no advice of any kind. *hangs* is a kernel
that never ends, at full load: the job fails as stalled, with the stacks of its process in its log.
What they run is ``programs/feeds.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping

from tony_core.advice.advice import Advice
from tony_core.advice.advise import advise
from tony_core.advice.thresholds import LeastEvidence
from tony_core.history.reader import JobHistory, read_config, read_job

PROGRAM = Path(__file__).parent / "programs" / "feeds.py"
SECONDS = 50.0
#: What is advised on the GPUs of each; of the last one, on anything.
ADVISED: Mapping[str, str] = {
    "idle": "gpu-idle",
    "starved": "gpu-input",
    "launches": "gpu-input",
    "small": "gpu-memory",
    "right": "",
}
HANGS = "hangs"
#: For runs of less than a minute.
SHORT = LeastEvidence(
    run_s=20.0, samples=8, steps=5, unfinished_s=20.0, wait_s=20.0, staging_s=20.0
)  # fmt: skip


def settings_of(name: str) -> Dict[str, str]:
    """The keys of a job, without ``tony.``."""
    found = {
        "worker.instances": "1",
        "worker.gpus": "1",
        "worker.memory": "8g",
        "worker.vcores": "4",
        "task.metrics-interval-ms": "1000",
    }
    if name == "right":
        found.update({"worker.memory": "2g", "worker.vcores": "1"})
    if name == HANGS:
        found.update({"task.stall-timeout": "10s", "task.stall-action": "fail"})
    return found


def advice_of(name: str, home: Path, app_id: str) -> List[Advice]:
    """The advice on such a job that is to be judged."""
    root = str(home / "history")
    found = advise(read_job(root, app_id), read_config(root, app_id) or b"", least=SHORT)
    return [each for each in found if name == "right" or each.rule.startswith("gpu")]


def is_expected(name: str, found: List[Advice]) -> bool:
    """Whether it is the advice that such a job should get."""
    return [each.rule for each in found] == ([ADVISED[name]] if ADVISED[name] else [])


def describe_hang(home: Path, app_id: str) -> Dict[str, Any]:
    """What is known of a job whose kernel never ends, and whether that is all that should be."""
    record: JobHistory = read_job(str(home / "history"), app_id)
    logs = "".join(
        path.read_text(errors="replace")
        for path in (home / "apps" / app_id / "logs").rglob("*")
        if path.is_file()
    )
    has_stack = "spin" in logs  # as faulthandler and py-spy name it
    return {
        "is_expected": "stalled" in json.dumps(record.job.get("root_cause")) and has_stack,
        "diagnostics": record.job.get("diagnostics"),
        "stack": has_stack,
    }

"""What TonY advises of jobs that use a GPU well and badly. Needs one, and PyTorch for CUDA.

    python benchmarks/gpu_advice.py [--seconds 50] [--only idle,starved,small,right,hangs]

*idle* asks for a GPU and computes on a core; *starved* prepares each batch on one core, and the GPU
waits; *small* keeps the GPU busy with little of its memory; *right* fills memory and processor: no
advice of any kind. *hangs* is a kernel that never ends, at full load: the job fails as stalled,
with the stacks of its process in its log. A line says what was advised, and whether it is what was
expected.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import List

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from running import Home, Submitted

from tony_core.advice.advise import advise
from tony_core.advice.thresholds import Thin
from tony_core.history.reader import read_config, read_job

SELF = str(Path(__file__).resolve())
#: For runs of less than a minute.
THIN = Thin(run_s=20.0, samples=8, steps=5, unfinished_s=20.0, wait_s=20.0, staging_s=20.0)
SETTINGS = {
    "worker.gpus": 1,
    "worker.memory": "8g",
    "worker.vcores": 4,
    "task.metrics-interval-ms": 1000,
}
EXPECTED = {
    "idle": "gpu-idle",
    "starved": "gpu-input",
    "small": "gpu-memory",
    "right": "",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=50.0, help="of each job")
    parser.add_argument("--only", default="idle,starved,small,right,hangs", help="some of them")
    args = parser.parse_args()
    chosen = args.only.split(",")
    wrong = 0
    with Home() as home:
        for name in EXPECTED:
            if name in chosen:
                wrong += not advised(home, name, args.seconds)
        if "hangs" in chosen:
            wrong += not hangs(home)
    sys.exit(1 if wrong else 0)


def advised(home: Home, name: str, seconds: float) -> bool:
    """Run one; whether the advice on GPUs is what was expected."""
    more = {"worker.memory": "2g", "worker.vcores": 1} if name == "right" else {}
    with Submitted(home, 1, itself(name, seconds), **{**SETTINGS, **more}) as job:
        job.process.wait(seconds + 120)
        app_id = job.app_id
    root = str(home.path / "home" / "history")
    record = read_job(root, app_id)
    found = advise(record, read_config(root, app_id) or b"", thin=THIN)
    rules = [each.rule for each in found if name == "right" or each.rule.startswith("gpu")]
    held = rules == ([EXPECTED[name]] if EXPECTED[name] else [])
    line = {
        "job": name, "state": record.job.get("state"), "verdict": "held" if held else "missed",
        "advised": [each.to_json() for each in found],
    }  # fmt: skip
    print(json.dumps(line), flush=True)
    return held


def hangs(home: Home) -> bool:
    """A kernel that never ends: found, named, with the stack of the line that waits for it."""
    settings = {**SETTINGS, "task.stall-timeout": "10s", "task.stall-action": "fail"}
    with Submitted(home, 1, itself("hangs", 0.0), **settings) as job:
        code = job.process.wait(180)
        app_id = job.app_id
    record = read_job(str(home.path / "home" / "history"), app_id)
    logs = "".join(
        path.read_text(errors="replace")
        for path in (home.path / "home" / "apps" / app_id / "logs").rglob("*")
        if path.is_file()
    )
    has_stack = "be_program" in logs
    held = bool(code) and "stall" in json.dumps(record.job) and has_stack
    line = {
        "job": "hangs", "verdict": "held" if held else "missed", "exit_code": code,
        "diagnostics": record.job.get("diagnostics"), "stack": has_stack,
    }  # fmt: skip
    print(json.dumps(line), flush=True)
    return held


def itself(verb: str, seconds: float) -> List[str]:
    """The command of a task: this file."""
    return [sys.executable, SELF, "--be", verb, str(seconds)]


# ------------------------------------------------------------------ what the task runs


def be_program(verb: str, seconds: float) -> None:
    """Steps for so long."""
    import torch

    import tony

    end, step = time.monotonic() + seconds, 0
    card = torch.cuda.get_device_properties(0).total_memory
    taken = {"right": 0.6, "starved": 0.35}.get(verb, 0.02)
    held = torch.zeros(int(card * taken) // 4, device="cuda") if verb != "idle" else None
    wide = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) if verb != "idle" else None
    while time.monotonic() < end or verb == "hangs":
        step += 1
        if verb in ("idle", "starved"):
            busy = time.monotonic() + (0.2 if verb == "idle" else 0.15)
            while time.monotonic() < busy:
                sum(range(1000))
        if wide is not None:
            for _ in range(30 if verb == "starved" else 100):
                wide @ wide
            torch.cuda.synchronize()
        tony.report(step=step, metrics={"held": 0.0 if held is None else float(held[0])})
        if verb == "hangs" and step == 20:
            while True:
                torch.cuda._sleep(10**12)  # some minutes each
                torch.cuda.synchronize()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--be"]:
        os.environ.setdefault("PYTHONUNBUFFERED", "1")
        be_program(sys.argv[2], float(sys.argv[3]))
    else:
        main()

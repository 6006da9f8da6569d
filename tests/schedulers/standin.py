"""A master for the scheduler tests: a real process that does little more than its instructions.

``python RUNTIME master ...`` in a runtime folder that :func:`make_runtime` made. The instructions
stand in the job folder (``instructions.json``), or beside this module::

    {"requests": [[role, count, memory_mb]], "gang": true, "argv": [...], "then": "finish" | "wait"}

It asks for the containers, launches ``argv`` in each, and finishes when all have ended:
succeeded if each ended with 0. SIGTERM ends the job as killed, unless the instructions have
``"deaf": true``. It writes its events to ``state_dir/events.jsonl``, or where the instructions set.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence

MAIN = """\
import importlib, os, sys
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
if sys.argv[1] == "yarn-start":
    from tony_core.schedulers.yarn.node import start
    start._VERBS = {**start._VERBS, "master": "tests.schedulers.standin"}
VERBS = {
    "master": "tests.schedulers.standin",
    "shim": "tony_core.schedulers.local.shim",
    "local-successor": "tony_core.schedulers.local.attempts",
    "local-finalize": "tony_core.schedulers.local.finalize",
    "yarn-start": "tony_core.schedulers.yarn.node.start",
}
sys.exit(importlib.import_module(VERBS[sys.argv[1]]).main(sys.argv[2:]))
"""


def make_runtime(folder: Path) -> Path:
    """A runtime folder with this master in it; the rest is the checkout's own code."""
    checkout = Path(__file__).resolve().parents[2]
    folder.mkdir(parents=True)
    (folder / "__main__.py").write_text(MAIN)
    (folder / "tony_core").symlink_to(checkout / "tony_core")
    tests = folder / "tests" / "schedulers"
    tests.mkdir(parents=True)
    for package in (tests, tests.parent):
        (package / "__init__.py").write_text("")
    (tests / "standin.py").symlink_to(Path(__file__).resolve())
    return folder


def main(argv: Sequence[str]) -> int:
    """The master."""
    from tony_core.files.artifact import Artifact
    from tony_core.job.spec import Resources
    from tony_core.schedulers import container_pool, open_master, port

    parser = argparse.ArgumentParser()
    for word in ("scheduler", "app-dir", "attempt", "lock-fd"):
        parser.add_argument(f"--{word}")
    context, pool = open_master(parser.parse_args(argv))
    folders = (Path(context.job_dir), Path(__file__).parent)
    found = next(
        one / "instructions.json" for one in folders if (one / "instructions.json").exists()
    )
    instructions: Dict[str, Any] = json.loads(found.read_text())
    listing = Path(context.job_dir, "artifacts.json")
    listed = json.loads(listing.read_text()) if listing.exists() else []
    artifacts = tuple(Artifact.from_json(item) for item in listed)
    if "die" in instructions:
        sys.exit(str(instructions["die"]))
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    events_file = Path(instructions.get("events_file") or Path(context.state_dir) / "events.jsonl")
    if instructions.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: inbox.put("TERM"))
    pool.start(inbox.put, "http://localhost:1/")
    requests: List[container_pool.ContainerRequest] = [
        container_pool.ContainerRequest(role, 0, count, Resources(memory_mb=memory))
        for role, count, memory in instructions["requests"]
    ]
    left = sum(request.count for request in requests)
    if context.attempt == 1:
        pool.request(requests, bool(instructions["gang"]))
    worst = 0
    while left or instructions["then"] == "wait":
        event = inbox.get()
        with events_file.open("a") as stream:
            stream.write(json.dumps([os.getpid(), context.attempt, repr(event)]) + "\n")
        if event == "TERM" and not context.kill_file:
            return 1  # the scheduler has ended it
        if event == "TERM":
            reason = json.loads(Path(context.kill_file).read_text())["reason"]
            pool.finish(port.AppState.KILLED, reason)
            pool.close()
            return 0
        if isinstance(event, container_pool.PreviousContainers):
            left = len(event.containers)
        if isinstance(event, container_pool.Allocated):
            for container in event.containers:
                launch = container_pool.Launch(
                    tuple(instructions["argv"]),
                    {},
                    artifacts,
                    context.secret,
                    f"{container.role}:0",
                )
                pool.launch(container, launch)
        if isinstance(event, container_pool.Completed):
            left -= 1
            worst = max(worst, event.exit_code)
    pool.finish(port.AppState.FAILED if worst else port.AppState.SUCCEEDED, f"worst code {worst}")
    pool.close()
    return 0

"""A master for the scheduler tests: a real process that does little more than its orders.

``python RUNTIME master ...`` in a runtime folder that :func:`make_runtime` made. The orders
stand in the job folder (``orders.json``), or beside this module::

    {"requests": [[role, count, memory_mb]], "gang": true, "argv": [...], "then": "finish" | "wait"}

It asks for the containers, launches ``argv`` in each, and finishes when all have ended:
succeeded if each ended with 0. SIGTERM ends the job as killed, unless the orders say
``"deaf": true``. What it is told it writes to ``state_dir/heard.jsonl``, or where the orders say.
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
    found = next(one / "orders.json" for one in folders if (one / "orders.json").exists())
    orders: Dict[str, Any] = json.loads(found.read_text())
    artifacts = Path(context.job_dir, "artifacts.json")
    listed = json.loads(artifacts.read_text()) if artifacts.exists() else []
    brought = tuple(Artifact.from_json(item) for item in listed)
    if "die" in orders:
        sys.exit(str(orders["die"]))
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    heard = Path(orders.get("heard") or Path(context.state_dir) / "heard.jsonl")
    if orders.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: inbox.put("TERM"))
    pool.start(inbox.put, "http://localhost:1/")
    requests: List[container_pool.ContainerRequest] = [
        container_pool.ContainerRequest(role, 0, count, Resources(memory_mb=memory))
        for role, count, memory in orders["requests"]
    ]
    left = sum(request.count for request in requests)
    if context.attempt == 1:
        pool.request(requests, bool(orders["gang"]))
    worst = 0
    while left or orders["then"] == "wait":
        event = inbox.get()
        with heard.open("a") as stream:
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
                    tuple(orders["argv"]), {}, brought, context.secret, f"{container.role}:0"
                )
                pool.launch(container, launch)
        if isinstance(event, container_pool.Completed):
            left -= 1
            worst = max(worst, event.exit_code)
    pool.finish(port.AppState.FAILED if worst else port.AppState.SUCCEEDED, f"worst code {worst}")
    pool.close()
    return 0

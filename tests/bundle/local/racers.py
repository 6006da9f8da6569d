"""Processes of the race tests, each started as a program of its own.

``python -m tests.bundle.local.racers VERB ROOT ...``; each prints what it found wrong, or nothing.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Callable, Dict

from tests.bundle.jobs import job, ref
from tony_core.bundle import archive, jobfolder, localization
from tony_core.bundle.client import planning, staging
from tony_core.bundle.local import garbage
from tony_core.bundle.local.store import Store


def submits(root: str, source: str, seconds: str, name: str) -> None:
    """Submit again and again; while "the job runs", all of it must stay as it is."""
    what = job(f"{source}/src", files=(ref(f"{source}/data.tar.gz", "data", True),))
    expected = len(os.listdir(f"{source}/src"))
    deadline = time.monotonic() + float(seconds)
    rounds = 0
    while time.monotonic() < deadline or _too_few(rounds, deadline):
        app_id = f"{name}-{rounds}"
        plan = planning.plan(what, root)
        artifacts = staging.stage(plan, root, app_id, what, b"s")
        for _ in range(3):
            for item in artifacts:
                path = localization.localize(item, root)
                names = os.listdir(path)
                if item.name in ("tony-src", "data"):
                    assert len(names) == expected, (item.name, names)
                    for inner in names:
                        with open(os.path.join(path, inner), "rb") as stream:
                            assert stream.read().startswith(b"line "), inner
            time.sleep(0.001)
        jobfolder.remove(root, app_id)
        rounds += 1
    print(rounds)


def collects(root: str, seconds: str) -> None:
    """Collect garbage as greedily as can be."""
    deadline = time.monotonic() + float(seconds)
    taken = 0
    while time.monotonic() < deadline or _too_few(taken, deadline):
        for line in garbage.collect(root, 0, settle_s=0.0):
            taken += line.startswith("object")
    print(taken)


def _too_few(rounds: int, deadline: float) -> bool:
    """On a machine that is busy: so that they do meet, within bounds."""
    return rounds <= 3 and time.monotonic() < deadline + 120


def stalls(root: str, source: str, where: str) -> None:
    """Stage, and stop for ever at one point of it, to be killed there."""

    def stop(*_: object, **__: object) -> None:
        print("stalled", flush=True)
        time.sleep(600)

    what = job(f"{source}/src", files=(ref(f"{source}/data.tar.gz", "data", True),))
    plan = planning.plan(what, root)
    if where == "lease":
        Store.put = stop  # type: ignore[method-assign, assignment]
    elif where == "content":
        first, second, *rest = plan.uploads
        whole = second.make

        def half(target: str) -> None:
            whole(target)
            stop()

        plan.uploads = (first, second._replace(make=half), *rest)
    artifacts = staging.stage(plan, root, "app-killed", what, b"s")
    if where == "unpacking":
        archive.extract = stop  # type: ignore[assignment]
        for item in artifacts:
            localization.localize(item, root)
    stop()


VERBS: Dict[str, Callable[..., None]] = {
    "submits": submits,
    "collects": collects,
    "stalls": stalls,
}

if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])

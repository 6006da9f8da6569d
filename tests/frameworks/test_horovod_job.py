"""Whole jobs whose ranks meet by Horovod's rendezvous, on the embedded scheduler.

The ranks are `gloo_rank.py`, which says over the line what Horovod's gloo says.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.frameworks.submitting import _PATHS

pytestmark = pytest.mark.timeout(240)

_RANK = Path(__file__).with_name("gloo_rank.py")


def _run(folder: Path, workers: int, words: str = "") -> subprocess.CompletedProcess[str]:
    found = folder / "found"
    found.mkdir()
    conf = {
        "tony.application.framework": "horovod",
        "tony.worker.instances": str(workers),
        "tony.worker.memory": "200m",
        "tony.am.memory": "200m",
        "tony.chief.instances": "1",
        "tony.chief.memory": "200m",
        "tony.horovod.mode.test": "true",  # as a job file of the JVM's may say
        "tony.driver.vcores": "1",
    }
    command = [sys.executable, "-m", "tony_core.cli.main", "submit"]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    executes = shlex.join([sys.executable, str(_RANK), str(found), *words.split()])
    return subprocess.run(
        [*command, "--executes", executes],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _PATHS))},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
    )


def _found(folder: Path, session: int) -> Dict[str, List[Dict[str, Any]]]:
    """Task -> what it found in each of its worlds."""
    return {
        path.stem.partition("-")[2]: json.loads(path.read_text())
        for path in (folder / "found").glob(f"{session}-*.json")
    }


def test_ranks_meet_twice_and_add_up(tmp_path: Path) -> None:
    done = _run(tmp_path, 2)
    assert done.returncode == 0, done.stdout + done.stderr
    found = _found(tmp_path, 0)
    assert {task: worlds[0]["rank"] for task, worlds in found.items()} == {
        "chief:0": 0,
        "worker:0": 1,
        "worker:1": 2,
    }
    for worlds in found.values():
        assert len(worlds) == 2
        for world in worlds:
            assert world["sums"] == [111, 111, 1]  # all are on one host
            assert world["stale"] == [False, False, False]


def test_the_next_session_finds_nothing_of_the_last(tmp_path: Path) -> None:
    """A rank dies while addresses of its session are in the store."""
    done = _run(tmp_path, 1, "worker:0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worker:0" in done.stdout and "signal 9" in done.stdout
    assert _found(tmp_path, 0) == {}
    found = _found(tmp_path, 1)
    assert sorted(found) == ["chief:0", "worker:0"]
    for worlds in found.values():
        for world in worlds:
            assert (world["sums"], world["session"]) == ([11, 11, 1], 1)
            assert not any(world["stale"])

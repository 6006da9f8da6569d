"""The processes below this one, read from /proc."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator, List

import pytest

from tests.executor.standin import alive
from tony_executor import processes


@pytest.fixture
def tree() -> Iterator[subprocess.Popen[str]]:
    """A shell, its two children, one of them in a session of its own with a child."""
    process = subprocess.Popen(
        ["bash", "-c", "sleep 60 & setsid bash -c 'sleep 60; true' & echo ready; wait"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 5
    while len(processes.descendants(process.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    yield process
    processes.kill_now(process.pid)
    process.kill()
    process.wait()
    process.stdout.close()


def test_both_ways_find_the_same(tree: subprocess.Popen[str]) -> None:
    quick = {process.pid for process in processes.descendants(tree.pid)}
    sure = {process.pid for process in processes.descendants(tree.pid, sure=True)}
    assert quick == sure and len(quick) == 3


def test_subtrees_can_be_left_out(tree: subprocess.Popen[str]) -> None:
    found = processes.descendants(tree.pid)
    inner = next(process for process in found if process.name == "bash")
    for sure in (False, True):
        left = processes.descendants(tree.pid, {inner.pid}, sure=sure)
        assert [process.name for process in left] == ["sleep"]


def test_children_of_threads_count(tmp_path: Path) -> None:
    code = (
        "import subprocess, threading, sys\n"
        "run = lambda: subprocess.run(['sleep', '60'])\n"
        "threading.Thread(target=run).start()\n"
        "print('ready', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + 5
        found: List[processes.Process] = []
        while not found and time.monotonic() < deadline:
            found = processes.descendants(process.pid)
        assert [each.parent for each in found] == [process.pid]
        processes.kill_now(process.pid)


def test_a_name_with_brackets_and_blanks(tmp_path: Path) -> None:
    program = tmp_path / "a) S 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "60"]) as process:
        try:
            deadline = time.monotonic() + 5
            found = processes.read_process(process.pid)
            while (found is None or found.state != "S") and time.monotonic() < deadline:
                time.sleep(0.01)
                found = processes.read_process(process.pid)
            assert found is not None
            assert (found.name, found.parent, found.state) == (program.name, os.getpid(), "S")
            assert found.rss_mb > 0 and found.threads == 1
        finally:
            process.kill()


def test_a_dead_process_is_not_counted() -> None:
    process = subprocess.Popen(["true"])
    deadline = time.monotonic() + 5
    while alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    found = processes.read_process(process.pid)
    assert found is not None and found.dead
    assert process.pid not in {each.pid for each in processes.descendants(os.getpid())}
    process.wait()
    assert processes.read_process(process.pid) is None

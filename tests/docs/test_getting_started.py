"""The first job of docs/getting-started.md, really run; a worker is killed in its midst."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.pages import blocks

PAGE = "docs/getting-started.md"


def tony(*words: str, cwd: Path) -> str:
    """A command's standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "tony_core.cli.main", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def program_of(app: str, index: str) -> int:
    """The pid of a worker's program, found sooner than a command would tell it."""
    wanted = {f"APP_ID={app}", f"TASK_INDEX={index}"}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = set((entry / "environ").read_text().split("\0"))
                words = (entry / "cmdline").read_text().split("\0")
            except OSError:
                continue
            if wanted <= environ and "train.py" in words:
                return int(entry.name)
    raise AssertionError(f"no program of worker:{index} runs")


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's folder, with what the page tells them to put there."""
    monkeypatch.setenv("HOME", str(tmp_path / "reader"))
    folder = tmp_path / "reader" / "first"
    (folder / "src").mkdir(parents=True)
    (program,) = (block.text for block in blocks("python") if block.page == PAGE)
    (job_file,) = (block.text for block in blocks("xml") if block.page == PAGE)
    assert "time.sleep(0.25)" in program
    (folder / "src" / "train.py").write_text(program.replace("sleep(0.25)", "sleep(0.05)"))
    (folder / "tony.xml").write_text(job_file)
    return folder


def test_the_program_runs_by_hand(first: Path) -> None:
    import tony as module

    printed = subprocess.run(
        [sys.executable, "src/train.py"],
        cwd=first,
        env={**os.environ, "PYTHONPATH": str(Path(module.__file__).parent)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert printed.splitlines()[-1] == "y = 2.72 x + 1.15"


def test_the_first_job_goes_on_after_a_worker_was_killed(first: Path) -> None:
    command = f"{sys.executable} train.py"
    app = tony("submit", "--executes", command, "--src_dir", "src", "--detach", cwd=first).strip()
    saved = first.parent / "tony-first" / app / "worker-1"
    end = time.monotonic() + 30
    while not saved.exists() or not list(saved.glob("step-*")):
        assert time.monotonic() < end, "no checkpoint came"
        time.sleep(0.05)
    os.kill(program_of(app, "1"), signal.SIGKILL)
    printed = tony("attach", app, cwd=first)
    assert "which TonY did not send" in printed
    assert "session 1 follows" in printed
    assert re.search(rf"^SUCCEEDED first \({app}\) after .* s, exit code 0$", printed, re.MULTILINE)
    log = tony("logs", "-t", "worker:1", cwd=first)
    assert re.search(r"^session 1 goes on after step \d+$", log, re.MULTILINE)
    assert log.splitlines()[-1] == "y = 2.79 x + 1.10"

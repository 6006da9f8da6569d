"""A whole job of a framework that another distribution brings, on the embedded scheduler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.bundle.client.test_runtime_plugins import FRAMEWORK, distribution
from tests.frameworks.submitting import _PATHS


def test_a_job_of_a_plugin_framework(tmp_path: Path) -> None:
    distribution(
        tmp_path / "site",
        {
            "minefw/__init__.py": "",
            "minefw/words.py": "WORD = 'brought along'\n",
            "minefw/code.py": FRAMEWORK.format(near="minefw.words"),
        },
        "[tony.frameworks]\nmine = minefw.code:Mine\n",
    )
    out = tmp_path / "out"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tony_core.cli.main", "submit"),
            *("--executes", f'echo "$MINE" > {out}'),
            *("--conf", "tony.application.framework=mine", "--conf", "tony.worker.instances=1"),
        ],
        env={
            **os.environ,
            "TONY_HOME": str(tmp_path / "home"),
            "PYTHONPATH": os.pathsep.join(map(str, [*_PATHS, tmp_path / "site"])),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert out.read_text() == "brought along\n"

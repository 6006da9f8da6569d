"""The server that a newcomer gets by one script."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.cluster.azkaban.installing import CHECKOUT, PATHS
from tests.cluster.hadoop import supervisor
from tests.cluster.hadoop.jars import cache_root

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

CACHE = cache_root().absolute()  # a test's environment is its own


def sandbox(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.cluster.azkaban.sandbox", "--folder", str(folder), *words],
        env={**os.environ, "PYTHONPATH": PATHS, "TONY_CACHE": str(CACHE)},
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_up_status_down(tmp_path: Path) -> None:
    folder = tmp_path / "sandbox"
    try:
        up = sandbox(folder, "up")
        assert up.returncode == 0, up.stdout + up.stderr
        assert "SUCCEEDED" in up.stdout
        pages = re.findall(r"http://\S+", up.stdout)
        assert len(pages) == 3
        for page in pages:
            with urllib.request.urlopen(page, timeout=60) as answer:
                assert b"login-form" in answer.read()
        again = sandbox(folder, "up")
        assert again.returncode == 1 and "`down` ends it" in again.stderr
        status = sandbox(folder, "status").stdout
        assert "job types: tony" in status and pages[0].rstrip("/") in status
    finally:
        down = sandbox(folder, "down")
    assert down.returncode == 0, down.stderr
    assert not folder.exists() and not supervisor.processes_in(folder)
    assert "there is no Azkaban server" in sandbox(folder, "status").stderr

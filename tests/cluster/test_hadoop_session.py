"""What goes around a cluster: the jars' cache, the fixture's report, the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.hadoop import supervisor
from tests.importgraph import CHECKOUT

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

FAILING = """
import pytest
from tests.cluster.test_hadoop_base import submit

@pytest.mark.cluster
def test_it(hadoop):
    cluster = hadoop()
    cluster.wait_for(submit(cluster, "echo printed by $CONTAINER_ID"))
    cluster.kill("dn0")
    assert False, "the reason"
"""


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CHECKOUT), **more}


def test_a_failure_shows_what_the_applications_wrote(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(FAILING)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = cluster\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.cluster.hadoop.fixture", "."],
        cwd=tmp_path,
        env=environment(PYTEST_DEBUG_TEMPROOT=str(tmp_path)),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 1, done.stdout
    assert "the reason" in done.stdout
    assert "printed by container_" in done.stdout
    assert "Hadoop: dn0, which is down" in done.stdout
    assert not supervisor.processes_in(tmp_path)


def test_two_who_want_the_same_jars_fetch_them_once(tmp_path: Path) -> None:
    """From Maven's own cache, where the stage before has put them."""
    fetch = [str(CHECKOUT / "bin" / "hadoop-sandbox"), "fetch", "3.4.2"]
    both = [
        subprocess.Popen(
            fetch,
            env=environment(TONY_CACHE=str(tmp_path)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    answers = [one.communicate() for one in both]
    assert [one.returncode for one in both] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    for what in ("3.4.2", "libhadoop.so"):
        assert sorted(err.count(f"fetching {what} ") for _, err in answers) == [0, 1]
    folder = Path(answers[0][0].strip())
    assert {path.name for path in folder.iterdir()} == {"lib", "name"}
    # Besides, the archive of their classes, of which either may have made one.
    kept = {path.name for path in folder.parent.iterdir() if path.suffix != ".jsa"}
    assert kept == {folder.name, f"{folder.name}.lock"}


def test_by_hand_it_stays_until_it_is_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "sandbox"

    def sandbox(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(CHECKOUT / "bin" / "hadoop-sandbox"), "--folder", str(folder), *arguments],
            env=environment(),
            capture_output=True,
            text=True,
        )

    up = sandbox("up", "two_nodes")
    try:
        assert up.stdout == f"export HADOOP_CONF_DIR={folder}/conf\n", up.stderr
        assert sandbox("up").returncode == 1
        sandbox("kill", "nm1")
        output = sandbox("status").stdout
        assert "features: two_nodes" in output
        assert "nm1  stopped" in output
        restarted = sandbox("restart", "nm1")
        assert restarted.returncode == 0, restarted.stderr
        assert "stopped" not in sandbox("status").stdout
    finally:
        down = sandbox("down")
    assert down.returncode == 0, down.stderr
    assert not folder.exists()
    assert not supervisor.processes_in(tmp_path)

"""The shim by itself: what it costs, and what it runs on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.schedulers.contract import ended, until
from tests.schedulers.local.fixtures import LocalHarness
from tests.schedulers.standin import make_runtime
from tony_core.job.spec import Runtime
from tony_core.schedulers.local import home, processes
from tony_core.schedulers.port import AppState

HEAVY = {"asyncio", "ctypes", "dataclasses", "hashlib", "inspect", "subprocess", "ssl", "threading"}


@pytest.fixture
def folder(tony_home: Path) -> home.ContainerFolder:
    """A container's folder, as the pool makes it."""
    found = home.Home(str(tony_home)).app("app_1").container("container_1")
    for path in (found.work, found.logs):
        home.make_folder(path)
    return found


def run(folder: home.ContainerFolder, tmp_path: Path, python: str, code: str) -> Dict[str, Any]:
    """Run a program under a shim of that Python; what the shim wrote."""
    spec = {
        "container": {},
        "argv": [sys.executable, "-c", code],
        "env": {"PATH": os.environ["PATH"], "TONY_CONTAINER_ID": "container_1"},
        "artifacts": [],
        "archives": [1024, 1000],
        "memory_mb": 200,
        "root": str(tmp_path),
    }
    home.write_json(folder.launch, spec)
    runtime = tmp_path / "runtime"
    if not runtime.exists():
        make_runtime(runtime)
    argv = [python, "-I", "-S", str(runtime), "shim", "--spec", folder.launch]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    story = home.read_json(folder.exit)
    assert story is not None
    return story


def old_pythons() -> List[str]:
    """Interpreters of this machine that the nodes may have."""
    found = [path for name in ("3.8", "3.9") if (path := shutil.which(f"python{name}"))]
    for root in (Path.home() / ".pyenv" / "versions",):
        for name in ("3.8", "3.9"):
            found += [str(path / "bin" / "python") for path in sorted(root.glob(f"{name}.*"))]
    return [path for path in found if _runs(path)]


def _runs(path: str) -> bool:
    return subprocess.run([path, "-c", ""], capture_output=True).returncode == 0


def test_it_reports_its_end_and_its_usage(folder: home.ContainerFolder, tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "waste = bytearray(60 << 20)\n"
        "end = time.process_time() + 0.1\n"
        "while time.process_time() < end: pass\n"
        "time.sleep(0.6); sys.exit(3)"
    )
    story = run(folder, tmp_path, sys.executable, code)
    assert (story["exit_code"], story["cause"]) == (3, "exited")
    assert story["usage"]["max_rss_mb"] >= 60
    assert story["usage"]["cpu_s"] >= 0.1
    assert story["usage"]["wall_s"] >= 0.7
    assert not list(Path(folder.path).glob(".*"))


@pytest.mark.parametrize("python", old_pythons())
def test_it_runs_on_an_old_python(
    folder: home.ContainerFolder, tmp_path: Path, python: str
) -> None:
    story = run(folder, tmp_path, python, "import os; os.kill(os.getpid(), 9)")
    assert (story["exit_code"], story["cause"]) == (137, "exited")


@pytest.mark.parametrize("python", [path for path in old_pythons() if "3.9" in path])
def test_a_master_runs_on_an_old_python(harness: LocalHarness, python: str) -> None:
    app_id = harness.submit(
        requests=[["worker", 2, 64]],
        gang=True,
        argv=["sh", "-c", "exit 0"],
        then="finish",
        job={"runtime": Runtime(python)},
    )
    assert ended(harness, app_id).state is AppState.SUCCEEDED
    assert (home.read_json(harness.home.app(app_id).app) or {})["python"] == python


def test_it_is_light(tmp_path: Path) -> None:
    runtime = make_runtime(tmp_path / "runtime")
    code = (
        f"import sys; sys.path.insert(0, {str(runtime)!r})\n"
        "from tony_core.schedulers.local import attempts, shim\n"
        "import json; print(json.dumps(sorted(sys.modules)))"
    )
    argv = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert loaded & HEAVY == set()
    assert "tony_core.schedulers.port" not in loaded


def test_descendants_are_found_with_and_without_the_kernels_help() -> None:
    code = "import os, time\nif os.fork() == 0:\n  os.setsid(); os.fork()\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code]) as child:
        until(lambda: len(processes.descendants(child.pid)) == 2, "child and grandchild")
        found = processes.descendants(child.pid)
        assert sorted(processes._descendants_by_parent([child.pid])) == sorted(found)
        for pid in [*found, child.pid]:
            os.kill(pid, 9)


def test_what_belongs_to_a_container_is_found_by_its_mark() -> None:
    name = f"container_{os.getpid()}_x"
    code = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "  os.execve(sys.executable, [sys.executable, '-c', 'import time; time.sleep(60)'], {})\n"
        "time.sleep(60)"
    )
    env = {"TONY_CONTAINER_ID": name}
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, env=env, start_new_session=True) as child:
        until(lambda: len(processes.list_container_pids(name)) == 2, "both")
        # No other container's name is a prefix of this one's mark.
        assert processes.list_container_pids(name[:-1]) == []
        assert processes.kill_container(name) == []
        assert child.wait(60) == -9
    assert processes.list_container_pids(name) == []

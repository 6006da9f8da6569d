"""A look at a job writes nothing, whatever became of the job; what acts on it writes its end."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from tests.cli.processes import PATHS, tony, until
from tests.leaks import belonging_to, processes
from tests.second_user import UID, needs_root, open_folder
from tony_core.cli.main import main
from tony_core.client import Client

__all__ = ["open_folder"]

LOOKS = [
    ("status",),
    ("status", "--json"),
    ("describe",),
    ("describe", "--json"),
    ("logs",),
    ("logs", "--follow"),
    ("list", "--json"),
]
#: Another user than root does not write where the mode says so; the modules are imported before.
AS_USER = f"""
import json, os, sys
sys.path[:0] = {PATHS!r}
from tests.cli.test_looking_real import look_everywhere, make_read_only
look_everywhere(sys.argv[1])
make_read_only(os.environ["TONY_HOME"])
os.setgroups([]); os.setgid({UID}); os.setuid({UID})
for place in ("history", "apps"):
    try:
        os.mkdir(os.path.join(os.environ["TONY_HOME"], place, "new"))
    except PermissionError:
        continue
    sys.exit(place + " can be written")
print(json.dumps(look_everywhere(sys.argv[1])))
"""


def look_everywhere(app_id: str) -> List[Any]:
    """What every way to look answers: exit code, output, errors."""
    found: List[Any] = []
    for verb, *options in LOOKS:
        out, err = io.StringIO(), io.StringIO()
        words = [verb, *options] if verb == "list" else [verb, app_id, *options]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
        found.append([code, out.getvalue(), err.getvalue()])
    with Client("local") as client:
        run = client.attach(app_id)
        found.append(run.view().to_json())
        found.append(run.status()._asdict())
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def tree(home: Path) -> Dict[str, Tuple[int, bytes]]:
    """Every file and folder: when it was changed, and what it holds."""
    found = {}
    for path in [home, *home.rglob("*")]:
        with contextlib.suppress(FileNotFoundError):  # a file that was just replaced
            data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path)] = (path.lstat().st_mtime_ns, data)
    return found


def make_read_only(home: str) -> None:
    """Give it to the other user, who may only read what is in it."""
    shutil.chown(home, UID, UID)
    for place in ("apps", "history", "ledger", "store"):
        for path in [Path(home, place), *Path(home, place).rglob("*")]:
            os.chown(path, UID, UID, follow_symlinks=False)
            if not path.is_symlink():
                path.chmod(0o500 if path.is_dir() else 0o400)


def submit(folder: Path, command: str) -> str:
    """Start a job with one worker and one attempt of its master."""
    words = ["submit", "--executes", command, "--detach"]
    for key, value in {
        "tony.worker.instances": "1",
        "tony.worker.memory": "256m",
        "tony.application.framework": "standalone",
        "tony.am.max-attempts": "1",
    }.items():
        words += ["--conf", f"{key}={value}"]
    done = tony(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


def killed_job(folder: Path, home: Path) -> str:
    """A job whose master, shims and executors all died by SIGKILL, so that none wrote its end."""
    app_id = submit(folder, "sh -c 'echo it runs; exec sleep 60'")
    log = home / "apps" / app_id / "logs"
    until(lambda: any("it runs" in one.read_text() for one in log.glob("*/stdout")), "program")
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in belonging_to(home, processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
    until(lambda: not belonging_to(home, processes()), "end of its processes")
    return app_id


@pytest.fixture
def home(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A TONY_HOME that a user who is not root can enter."""
    place = open_folder / "tony"
    monkeypatch.setenv("TONY_HOME", str(place))
    yield place
    for path in open_folder.rglob("*"):
        if path.is_dir():
            path.chmod(0o700)


def test_an_ended_job(home: Path, tmp_path: Path) -> None:
    app_id = submit(tmp_path, "echo done")
    assert tony("attach", app_id, cwd=tmp_path).returncode == 0
    before = tree(home)
    assert look_everywhere(app_id)[0][1].startswith(f"{app_id} ")
    assert tree(home) == before


def test_an_ended_job_without_its_history(home: Path, tmp_path: Path) -> None:
    assert tony("submit", "--executes", "true", cwd=tmp_path).returncode == 0
    shutil.rmtree(home / "history")
    shown = tony("status", cwd=tmp_path).stdout
    assert "SUCCEEDED, 100 %" in shown and "tasks: 1 ended\n" in shown
    assert "worker:0" in tony("describe", cwd=tmp_path).stdout


def test_a_running_job(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys.modules[__name__], "LOOKS", [one for one in LOOKS if "--follow" not in one]
    )
    app_id = submit(tmp_path, "sleep 60")
    until(lambda: '"state": "running"' in json.dumps(look_everywhere(app_id)[-2]), "worker")

    def looks_without_a_change() -> bool:
        """Its master writes now and then: a look that wrote would change something each time."""
        before = tree(home)
        look_everywhere(app_id)
        return tree(home) == before

    try:
        until(looks_without_a_change, "look that changes nothing")
    finally:
        assert tony("kill", app_id, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("act", ["gc", "kill", "attach", "history"])
def test_a_job_that_was_killed_with_all_its_processes(home: Path, tmp_path: Path, act: str) -> None:
    app_id = killed_job(tmp_path, home)
    before = tree(home)
    shown = look_everywhere(app_id)
    assert tree(home) == before
    assert shown[-1]["state"] == shown[-2]["state"] == "FAILED"
    assert "the master died (attempt 1 of 1)" in shown[0][1]
    written = max(path.stat().st_mtime for path in (home / "history" / app_id).iterdir())
    ended = {round(shown[at]["finished"], 2) for at in (-1, -2)}
    assert ended == {max(round(written, 2), *ended)}, "it was alive when its master wrote that"
    assert "the job has ended: FAILED" in shown[2][1], "the story's last line"
    assert shown[4][1] == "worker:0 | it runs\n" or "it runs" in shown[4][1]
    time.sleep(1.5)  # history is given as long for an end that a master writes late
    words = {"history": ["history", "show", app_id], "gc": ["gc"]}.get(act, [act, app_id])
    code = tony(*words, cwd=tmp_path).returncode
    assert code == (1 if act == "attach" else 0)
    summary = json.loads((home / "history" / app_id / "summary.json").read_text())
    status = json.loads((home / "apps" / app_id / "status.json").read_text())
    assert (summary["job"]["state"], status["state"]) == ("FAILED", "FAILED")
    assert not (home / "apps" / app_id / "job").exists()
    after = tree(home)
    assert look_everywhere(app_id) == shown, "as before it was written"
    assert tree(home) == after


@needs_root
def test_looking_needs_no_right_to_write(home: Path, tmp_path: Path) -> None:
    app_id = killed_job(tmp_path, home)
    expected = look_everywhere(app_id)
    before = tree(home)
    done = subprocess.run(
        [sys.executable, "-c", AS_USER, app_id],
        capture_output=True,
        text=True,
        timeout=60.0,
        cwd=home,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == expected
    assert tree(home) == before

"""Another user of the machine and the files of a real job: nothing is read, nothing is written."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.cli.conftest import Tony, scripted
from tests.cli.conftest import tony as tony_here
from tests.cli.processes import tony
from tests.client.scripted import Scripted, status
from tests.second_user import as_second_user, as_stranger, needs_root, open_folder
from tony_core.schedulers.port import AppState

__all__ = ["open_folder", "scripted", "tony_here"]

pytestmark = needs_root

PROGRAM = """
import os, time
print("a line of the log", flush=True)
open("left-behind", "w").write("x")
while not os.path.exists(os.environ["GO_ON"]):
    time.sleep(0.05)
"""

# Everything that can be found below a folder, and what may be done to it.
LOOK = """
result = {"seen": [], "read": [], "written": []}
todo = list(argument)
while todo:
    path = todo.pop()
    try:
        found = os.lstat(path)
    except OSError:
        continue
    result["seen"].append(path)
    if stat.S_ISDIR(found.st_mode):
        try:
            todo += [os.path.join(path, name) for name in os.listdir(path)]
        except OSError:
            pass
        for attempt in (
            lambda: os.mkdir(os.path.join(path, "planted")),
            lambda: os.rename(path, path + "-mine"),
            lambda: os.chmod(path, 0o777),
        ):
            try:
                attempt()
                result["written"].append(path)
            except OSError:
                pass
        continue
    for mode, kind in ((os.O_RDONLY, "read"), (os.O_WRONLY, "written")):
        try:
            os.close(os.open(path, mode | os.O_NONBLOCK))
            result[kind].append(path)
        except OSError:
            pass
"""


@pytest.fixture(params=[0o000, 0o022], ids=["umask 000", "umask 022"])
def home(
    request: pytest.FixtureRequest, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A TONY_HOME that was there before, and that everybody may write."""
    home = open_folder / "tony"
    home.mkdir()
    home.chmod(0o777)
    monkeypatch.setenv("TONY_HOME", str(home))
    before = os.umask(request.param)
    request.addfinalizer(lambda: os.umask(before))
    return home


def everything(home: Path) -> List[str]:
    return [str(home), *(os.path.join(where, name) for where, folders, names in os.walk(home)
                         for name in (*folders, *names))]  # fmt: skip


def test_another_user_finds_nothing_of_a_running_job_nor_of_one_that_has_ended(
    home: Path, open_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(PROGRAM)
    go_on = tmp_path / "go-on"
    words = ["--executes", "python3 train.py", "--src_dir", "src", "--detach"]
    for key, value in {
        "tony.worker.instances": "1",
        "tony.worker.memory": "256m",
        "tony.application.framework": "standalone",
        "tony.execution.env.GO_ON": str(go_on),
    }.items():
        words += ["--conf", f"{key}={value}"]
    submitted = tony("submit", *words, cwd=tmp_path)
    assert f"made private now: {home}" in submitted.stderr
    assert submitted.returncode == 0, submitted.stderr
    app_id = submitted.stdout.split()[-1]
    log = _until_logged(home, app_id)
    for _ in ("while it runs", "when it has ended"):
        known = everything(home)
        assert log in known and any("journal.json" in name for name in known)
        found: Dict[str, Any] = as_stranger(LOOK, known)
        assert found["read"] == [] and found["written"] == []
        inner = {"apps", "history", "ledger", "store"}
        beside = {str(home), *(str(home / name) for name in inner)}
        assert set(found["seen"]) <= beside, "names, and no more than these"
        go_on.touch()
        tony("attach", app_id, cwd=tmp_path)
    assert stat.S_IMODE(home.stat().st_mode) == 0o755
    summary = json.loads((home / "history" / app_id / "summary.json").read_text())
    assert summary["job"]["state"] == "SUCCEEDED"
    again = tony("submit", *words, cwd=tmp_path)
    assert "private" not in again.stderr, "warned once"
    tony("attach", again.stdout.split()[-1], cwd=tmp_path)


def test_a_folder_of_another_user_is_refused_to_who_is_not_root(open_folder: Path) -> None:
    from tony_core.schedulers.local import home as homes

    open_folder.chmod(0o1777)
    as_stranger("os.mkdir(argument + '/apps')", str(open_folder))
    (owner,) = [found.st_uid for _, found in homes._ours(str(open_folder))]
    assert owner != os.geteuid()


def test_ones_own_jobs_are_found_in_a_place_that_only_a_portal_may_list(
    scripted: Scripted, tony_here: Tony, open_folder: Path
) -> None:
    shared, own = open_folder / "shared", open_folder / "home" / "history"
    scripted.root = str(open_folder / "home")
    for at, (root, name) in enumerate(((shared, "in-shared"), (own, "in-private"))):
        folder = root / f"app_1_000{at}"
        folder.mkdir(parents=True)
        job = {"name": name, "user": "ann", "state": "SUCCEEDED", "submitted": 1.0, "finished": 2.0}
        (folder / "summary.json").write_text(json.dumps({"job": job, "tasks": []}))
        scripted.apps[folder.name] = status(
            folder.name, state=AppState.SUCCEEDED, submitted=9.0 - at, finished=10.0
        )
    shared.chmod(0o3773)
    with as_second_user():
        listed = tony_here("history", "list", "--history", str(shared))
        newest = tony_here("history", "show", "--history", str(shared))
    assert listed.code == 0 and "in-shared" in listed.out and "in-private" in listed.out
    assert f"you may not list {shared}" in listed.err and "local knows" in listed.err.replace(
        scripted.name, "local"
    )
    assert newest.code == 0 and "in-shared" in newest.out


def _until_logged(home: Path, app_id: str) -> str:
    from tests.cli.processes import until

    def found() -> bool:
        return any("a line of the log" in path.read_text() for path in _logs(home, app_id))

    until(found, "the program to begin")
    return str(_logs(home, app_id)[0])


def _logs(home: Path, app_id: str) -> List[Path]:
    return list((home / "apps" / app_id / "logs").glob("*/stdout"))

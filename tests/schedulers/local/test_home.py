"""Where everything stands: a place that cannot be used is reported before anything else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.second_user import as_stranger, needs_root, open_folder
from tony_core.schedulers import open_scheduler
from tony_core.schedulers.local import home
from tony_core.schedulers.local.home import Home
from tony_core.schedulers.port import SchedulerError

__all__ = ["open_folder"]

ROOT = Path(__file__).resolve().parents[3]


def test_a_place_that_is_good(tmp_path: Path) -> None:
    for good in (tmp_path, tmp_path / "not" / "yet"):
        assert home.why_unusable({"TONY_HOME": str(good)}) == ""
    assert list(tmp_path.iterdir()) == []  # only looked at


@pytest.mark.parametrize(
    ("place", "words", "code"),
    [
        ("{file}", "{file} cannot be TonY's folder: {file} is no folder; set TONY_HOME to", 3),
        (
            "{file}/below",
            "{file}/below cannot be TonY's folder (Not a directory); set",
            3,
        ),
        ("some/where", "TONY_HOME is 'some/where': it must be an absolute path", 2),
    ],
    ids=["file", "below a file", "relative"],
)
@pytest.mark.parametrize(
    "verb", ["submit --executes true", "list", "status local_1", "gc", "kill local_1", "logs"]
)
def test_every_verb_reports_it_in_one_line(
    place: str, words: str, code: int, verb: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    done = subprocess.run(
        [sys.executable, "-m", "tony_core.cli.main", *verb.split()],
        env={
            **os.environ,
            "TONY_HOME": place.format(file=file),
            "PYTHONPATH": os.pathsep.join(
                str(ROOT / part) for part in (".", "executor", "program")
            ),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("tony: " + words.format(file=file))
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_of_another_user(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o500)
    if os.geteuid() != 0:
        env = {"TONY_HOME": str(tmp_path / "x")}
        with pytest.raises(SchedulerError, match="cannot be written"):
            open_scheduler("local", env)
        return
    child = os.fork()  # root may write anywhere: as another user, then
    if child == 0:
        os.setuid(65534)
        reason = home.why_unusable({"TONY_HOME": "/etc/tony"})
        os._exit(0 if "/etc cannot be written; set TONY_HOME" in reason else 1)
    assert os.waitpid(child, 0)[1] == 0


@needs_root
@pytest.mark.parametrize(
    "made", ["os.mkdir(argument, 0o777)", "os.symlink('/usr', argument)"], ids=["folder", "link"]
)
@pytest.mark.parametrize("user", [0, 1234])
def test_a_home_that_another_user_made_first_is_refused(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch, made: str, user: int
) -> None:
    """To root as well: what its jobs run would lie in another user's hands."""
    open_folder.chmod(0o1777)
    path = str(open_folder / "tony")
    as_stranger(f"os.umask(0); {made}", path)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    why = home.why_unusable({"TONY_HOME": path})
    assert f"{path} belongs to another user" in why and "set TONY_HOME" in why


def test_a_link_of_ones_own_may_lead_to_a_larger_disk(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "tony").symlink_to("disk")
    assert home.why_unusable({"TONY_HOME": str(tmp_path / "tony")}) == ""


def test_an_application_folder_is_ones_own_unless_a_link_or_another_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Home(str(tmp_path)).app("app_1")
    assert not folder.is_own
    os.makedirs(folder.path)
    assert folder.is_own
    os.symlink(folder.path, folder.path + "2")
    assert not Home(str(tmp_path)).app("app_12").is_own
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert not folder.is_own

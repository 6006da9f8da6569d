"""Links of a server of 2.5 become files before they travel."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Callable, Tuple

import pytest

from tests.second_user import UID, needs_root
from tony_azkaban.folder import replace_links


@pytest.fixture
def folders(tmp_path: Path) -> Tuple[Path, Path]:
    """A project of the server's and an execution's folder, as a server of 2.5 makes it."""
    project, execution = tmp_path / "projects" / "1.1", tmp_path / "executions" / "7"
    for name, text in {"src/train.py": "print(1)", "src/sub/data.txt": "x", "run.sh": "#!"}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
        (execution / name).parent.mkdir(parents=True, exist_ok=True)
        (execution / name).symlink_to(project / name)
    (project / "run.sh").chmod(0o755)
    return project, execution


def test_what_was_linked_is_there_without_the_project(folders: Tuple[Path, Path]) -> None:
    project, execution = folders
    assert replace_links(str(execution), "7") == []
    for path in project.rglob("*"):
        if path.is_file():
            path.unlink()
    assert (execution / "src" / "train.py").read_text() == "print(1)"
    assert (execution / "src" / "sub" / "data.txt").read_text() == "x"
    assert not any(path.is_symlink() for path in execution.rglob("*"))
    assert os.stat(execution / "run.sh").st_mode & stat.S_IXUSR
    assert {path.name for path in execution.rglob("*")} == {
        *("src", "sub", "train.py", "data.txt", "run.sh")
    }


def test_it_is_copied_where_it_cannot_have_another_name(
    folders: Tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def another_disk(*words: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", another_disk)
    assert replace_links(str(folders[1]), "7") == []
    assert (folders[1] / "src" / "train.py").read_text() == "print(1)"
    assert os.stat(folders[1] / "run.sh").st_mode & stat.S_IXUSR


def test_links_inside_and_to_nothing_are_left(folders: Tuple[Path, Path]) -> None:
    project, execution = folders
    (execution / "same.py").symlink_to("src/train.py")
    (execution / "inside.txt").write_text("y")
    (execution / "inside.lnk").symlink_to("inside.txt")
    (execution / "gone").symlink_to("/nowhere/at/all")
    (execution / "large.bin").symlink_to(
        project / "src" / "sub" / "data.txt"
    )  # by a job of the flow
    assert replace_links(str(execution), "7") == []
    assert (execution / "inside.lnk").is_symlink()
    assert (execution / "gone").is_symlink()
    assert (execution / "large.bin").is_symlink()
    assert (execution / "same.py").read_text() == "print(1)"


def test_a_link_that_stays_is_warned_of(
    folders: Tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*words: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr("shutil.copy2", full)
    lines = replace_links(str(folders[1]), "7")
    assert len(lines) == 3
    assert all("No space left on device" in line for line in lines)
    assert (folders[1] / "run.sh").is_symlink()


@needs_root
def test_another_users_link_stays_one(tmp_path: Path) -> None:
    """It would bring a file that only we can read to where its maker can."""
    secret = tmp_path / "home" / ".ssh" / "id"
    secret.parent.mkdir(parents=True)
    secret.write_text("ours alone")
    execution = tmp_path / "executions" / "7"
    (execution / ".ssh").mkdir(parents=True)
    link = execution / ".ssh" / "id"
    link.symlink_to(secret)
    os.lchown(link, UID, UID)
    assert replace_links(str(execution), "7") == []
    assert link.is_symlink()


def test_a_folder_that_the_job_names_itself_is_left_as_it_is(tmp_path: Path) -> None:
    """``working.dir`` may be the author's own folder, or the root of a file system."""
    shared, own = tmp_path / "shared" / "src" / "data.txt", tmp_path / "own" / "src" / "data.txt"
    for path in (shared, own):
        path.parent.mkdir(parents=True)
    shared.write_text("x")
    own.symlink_to(shared)
    assert replace_links(str(tmp_path / "own"), "7") == []
    assert replace_links(str(tmp_path / "own"), "") == []
    assert own.is_symlink()


def test_a_job_in_a_folder_of_its_own_within_the_execution(folders: Tuple[Path, Path]) -> None:
    assert replace_links(str(folders[1] / "src"), "7") == []
    assert not (folders[1] / "src" / "train.py").is_symlink()


def test_a_link_that_another_job_takes_away_meanwhile_is_passed_over(
    folders: Tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = folders[1] / "src" / "sub" / "data.txt"

    def lstat(path: str, real: Callable[[str], os.stat_result] = os.lstat) -> os.stat_result:
        if path == str(gone):
            gone.unlink(missing_ok=True)
        return real(path)

    monkeypatch.setattr("tony_azkaban.folder.os.lstat", lstat)
    assert replace_links(str(folders[1]), "7") == []
    assert not (folders[1] / "src" / "train.py").is_symlink()

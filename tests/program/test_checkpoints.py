"""Checkpoints: whole or not there, the newest found, the last few kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tony


def test_bytes(tmp_path: Path) -> None:
    saved = tony.checkpoints(str(tmp_path / "new" / "folder"))
    assert saved.latest() is None
    path = saved.save(10, b"ten")
    assert saved.latest() == (10, path)
    assert Path(path).read_bytes() == b"ten"


def test_the_newest_is_by_step_and_the_last_few_are_kept(tmp_path: Path) -> None:
    saved = tony.checkpoints(str(tmp_path), keep=2)
    for step in (9, 10, 100, 1000):
        saved.save(step, b"x")
    assert saved.steps() == [100, 1000]
    assert saved.latest() == (1000, saved.path(1000))


def test_a_function_makes_a_file_or_a_folder(tmp_path: Path) -> None:
    saved = tony.checkpoints(str(tmp_path))

    def folder(path: str) -> None:
        os.makedirs(os.path.join(path, "sub"))
        Path(path, "sub", "weights").write_text("w")

    assert Path(saved.save(1, folder), "sub", "weights").read_text() == "w"
    assert Path(saved.save(2, lambda path: Path(path).write_text("f"))).read_text() == "f"
    # Saved again, in the other form too.
    assert Path(saved.save(2, folder)).is_dir()
    assert Path(saved.save(1, b"bytes")).read_bytes() == b"bytes"
    assert sorted(os.listdir(tmp_path)) == ["step-0000000001", "step-0000000002"]


def test_the_path_it_is_written_to_has_a_plain_name(tmp_path: Path) -> None:
    """A library may make names of it; of one that begins with a dot nothing is left."""
    seen = []

    def write(path: str) -> None:
        seen.append(os.path.basename(path))
        Path(path).write_text("x")

    tony.checkpoints(str(tmp_path)).save(7, write)
    (name,) = seen
    assert name.replace("-", "").isalnum() and not name.startswith("step")


def test_one_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    saved = tony.checkpoints(str(tmp_path))
    saved.save(1, b"good")

    def half(path: str) -> None:
        Path(path).write_text("half")
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        saved.save(2, half)
    with pytest.raises(ValueError, match="nothing was written"):
        saved.save(3, lambda path: None)
    assert saved.steps() == [1]
    assert os.listdir(tmp_path) == ["step-0000000001"]


def test_a_program_killed_while_it_saves_finds_the_one_before(tmp_path: Path) -> None:
    code = (
        "import sys, time, tony\n"
        "saved = tony.checkpoints(sys.argv[1])\n"
        "step = 0\n"
        "while True:\n"
        "    step += 1\n"
        "    saved.save(step, b'%d' % step * 200_000)\n"
        "    print(step, flush=True)\n"
    )
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.path.dirname(tony.__file__)},
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        found = tony.checkpoints(str(tmp_path)).latest()
        assert found is not None
        assert Path(found[1]).read_bytes() == b"%d" % found[0] * 200_000


def test_what_a_killed_one_left_goes_after_an_hour(tmp_path: Path) -> None:
    old, new = tmp_path / "making-1-99", tmp_path / "making-2-99"
    not_ours = tmp_path / "making-of-the-data.txt"
    for path in (old, new, not_ours):
        path.write_text("half")
    os.utime(old, (0, 0))
    os.utime(not_ours, (0, 0))
    tony.checkpoints(str(tmp_path)).save(3, b"x")
    assert not old.exists() and new.exists() and not_ours.exists()


def test_the_folder_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONY_CHECKPOINT_DIR", f"file://{tmp_path}")
    assert tony.checkpoints().folder == str(tmp_path)
    monkeypatch.setenv("TONY_CHECKPOINT_DIR", "ofs://bucket/x")
    with pytest.raises(ValueError, match="neither a local or mounted folder nor on HDFS"):
        tony.checkpoints()
    monkeypatch.delenv("TONY_CHECKPOINT_DIR")
    with pytest.raises(ValueError, match=r"tony\.application\.checkpoint-dir"):
        tony.checkpoints()


@pytest.mark.parametrize("wrong", [{"keep": 0}, {"step": -1}])
def test_what_makes_no_sense(tmp_path: Path, wrong: dict) -> None:
    with pytest.raises(ValueError):
        tony.checkpoints(str(tmp_path), wrong.get("keep", 1)).save(wrong.get("step", 1), b"")


def test_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "step-x").write_text("mine")
    saved = tony.checkpoints(str(tmp_path), keep=1)
    saved.save(1, b"")
    saved.save(2, b"")
    assert sorted(os.listdir(tmp_path)) == ["notes.txt", "step-0000000002", "step-x"]

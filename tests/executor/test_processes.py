"""What /proc tells of the processes below us."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator, List

import pytest

from tests.executor.standin import alive, free_span
from tony_executor import processes
from tony_executor.launch import venv, working_folder
from tony_executor.monitoring import diagnosis
from tony_executor.network.ports import NoPort, Ports


@pytest.fixture
def tree() -> Iterator[subprocess.Popen[str]]:
    """A shell, its two children, one of them in a session of its own with a child."""
    process = subprocess.Popen(
        ["bash", "-c", "sleep 60 & setsid bash -c 'sleep 60; true' & echo ready; wait"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 5
    while len(processes.descendants(process.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    yield process
    processes.kill_now(process.pid)
    process.kill()
    process.wait()
    process.stdout.close()


def test_both_ways_find_the_same(tree: subprocess.Popen[str]) -> None:
    quick = {process.pid for process in processes.descendants(tree.pid)}
    sure = {process.pid for process in processes.descendants(tree.pid, sure=True)}
    assert quick == sure and len(quick) == 3


def test_subtrees_can_be_left_out(tree: subprocess.Popen[str]) -> None:
    found = processes.descendants(tree.pid)
    inner = next(process for process in found if process.name == "bash")
    for sure in (False, True):
        left = processes.descendants(tree.pid, {inner.pid}, sure=sure)
        assert [process.name for process in left] == ["sleep"]


def test_children_of_threads_count(tmp_path: Path) -> None:
    code = (
        "import subprocess, threading, sys\n"
        "run = lambda: subprocess.run(['sleep', '60'])\n"
        "threading.Thread(target=run).start()\n"
        "print('ready', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + 5
        found: List[processes.Process] = []
        while not found and time.monotonic() < deadline:
            found = processes.descendants(process.pid)
        assert [each.parent for each in found] == [process.pid]
        processes.kill_now(process.pid)


def test_a_name_with_brackets_and_blanks(tmp_path: Path) -> None:
    program = tmp_path / "a) S 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "60"]) as process:
        try:
            deadline = time.monotonic() + 5
            found = processes.read_process(process.pid)
            while (found is None or found.state != "S") and time.monotonic() < deadline:
                time.sleep(0.01)
                found = processes.read_process(process.pid)
            assert found is not None
            assert (found.name, found.parent, found.state) == (program.name, os.getpid(), "S")
            assert found.rss_mb > 0 and found.threads == 1
        finally:
            process.kill()


def test_who_is_dead_is_not_counted() -> None:
    process = subprocess.Popen(["true"])
    deadline = time.monotonic() + 5
    while alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    found = processes.read_process(process.pid)
    assert found is not None and found.dead
    assert process.pid not in {each.pid for each in processes.descendants(os.getpid())}
    process.wait()
    assert processes.read_process(process.pid) is None


def test_ports_are_held_once_and_given_back() -> None:
    first, second = Ports(), Ports()
    span = free_span(2)
    try:
        assert set(first.hold(["a", "b"], span).values()) == set(span)
        with pytest.raises(
            NoPort, match=rf"tony\.task\.port-range \({span[0]}-{span[1]}\) is free"
        ):
            second.hold(["c"], span)
        assert first.list_taken() == []
        first.close()
        assert second.hold(["c"], span)["c"] in span
    finally:
        first.close()
        second.close()


def test_kept_ports_are_not_taken_again() -> None:
    ports = Ports()
    assert ports.hold(["tensorboard"], None, {"tensorboard": 6006}) == {"tensorboard": 6006}
    ports.close()


class TestTail:
    @pytest.mark.parametrize(
        ("data", "lines"),
        [
            (b"", []),
            (b"\n\n\n", []),
            (b"a\nb\nc", ["b", "c"]),
            (b"a\r\nb\r\n", ["a", "b"]),
            (b"\xe2\x82", ["\ufffd"]),
            (b"a\x00b\n", ["a\ufffdb"]),
        ],
    )
    def test_lines(self, tmp_path: Path, data: bytes, lines: List[str]) -> None:
        path = tmp_path / "log"
        path.write_bytes(data)
        assert diagnosis.last_lines(str(path), 0, 2) == lines

    def test_only_what_came_since(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        path.write_bytes(b"old\nnew\n")
        assert diagnosis.last_lines(str(path), 4, 5) == ["new"]
        assert diagnosis.last_lines(str(path), 99, 5) == []
        assert diagnosis.last_lines(str(path), 0, 0) == []
        assert diagnosis.last_lines(str(tmp_path / "none"), 0, 5) == []

    def test_no_half_line_at_the_beginning(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        path.write_bytes(b"x" * diagnosis.MAX_BYTES + b"\nlast\n")
        assert diagnosis.last_lines(str(path), 0, 5) == ["last"]

    def test_paths_are_shown_from_the_programs_folder(self, tmp_path: Path) -> None:
        folder = tmp_path / "disk" / "container_3" / "session-1"
        folder.mkdir(parents=True)
        (tmp_path / "link").symlink_to(tmp_path / "disk")
        linked = tmp_path / "link" / "container_3" / "session-1"
        assert diagnosis.relative_paths(
            str(linked),
            [
                f"python3: can't open file '{folder}/nope.py'",
                f'File "{linked}/train.py", line 3, in {linked.parent}/venv/lib',
                f"no file {folder}0/a, /private{folder}/a, {folder.parent}.tar; {folder}.",
                f"file://{folder}",
            ],
        ) == [
            "python3: can't open file './nope.py'",
            'File "./train.py", line 3, in ../venv/lib',
            f"no file ../session-10/a, /private{folder}/a, {folder.parent}.tar; ..",
            "file://.",
        ]
        assert diagnosis.relative_paths("/", ["/tmp/a"]) == ["/tmp/a"]


def test_a_big_file_is_copied_whole(tmp_path: Path) -> None:
    data = os.urandom(5_000_000)
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "a").chmod(0o444)
    working_folder.copy_file(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").read_bytes() == data
    assert os.access(tmp_path / "b", os.W_OK)


def test_an_overlay_that_was_not_finished_is_made_anew(tmp_path: Path) -> None:
    away = tmp_path / "venv"
    (away / "bin").mkdir(parents=True)
    (away / "lib").mkdir()
    (away / "bin" / "python").symlink_to("/opt/away/python3")
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    (away / "pyvenv.cfg").write_text(f"home = /opt/away\nversion_info = {minor}.1.final.0\n")
    overlay = tmp_path / ".tony-venv"
    (tmp_path / ".tony-venv.unfinished" / "bin").mkdir(parents=True)
    (tmp_path / ".tony-venv.unfinished" / "bin" / "half").write_text("")
    found = venv.find(str(tmp_path), str(overlay), os.environ["PATH"])
    assert found is not None and found.folder == str(overlay)
    assert sorted(os.listdir(overlay)) == ["bin", "lib", "pyvenv.cfg"]
    assert "half" not in os.listdir(overlay / "bin")
    assert os.access(overlay / "bin" / "python", os.X_OK)


def test_a_venv_without_a_bin_is_said(tmp_path: Path) -> None:
    (tmp_path / "venv" / "inner").mkdir(parents=True)
    found = venv.find(str(tmp_path), str(tmp_path / "o"), "")
    assert found is not None and "no folder bin" in found.note
    assert venv.find(str(tmp_path / "venv"), str(tmp_path / "o"), "") is None

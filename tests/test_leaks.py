"""The watch that fails a test for what it leaves behind does see it, and kills processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.leaks import Watch, processes

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "another-home"
    home.mkdir()
    return home


def test_nothing_left_prints_nothing(home: Path) -> None:
    assert Watch(home).left_behind(grace=0) == []


def test_a_thread_is_seen(home: Path) -> None:
    watch = Watch(home)
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="forgotten")
    thread.start()
    try:
        assert watch.left_behind(grace=0) == ["thread 'forgotten'"]
    finally:
        done.set()
        thread.join()
    assert watch.left_behind() == []


def test_what_ends_within_the_grace_is_no_leak(home: Path) -> None:
    watch = Watch(home)
    thread = threading.Thread(target=time.sleep, args=(0.2,))
    thread.start()
    assert watch.left_behind(grace=5) == []


def test_a_socket_is_seen(home: Path) -> None:
    watch = Watch(home)
    with socket.socket():
        (word,) = watch.left_behind(grace=0)
        assert word.startswith("open socket:")
    assert watch.left_behind() == []


def test_a_child_is_seen_and_killed(home: Path) -> None:
    watch = Watch(home)
    child = subprocess.Popen(SLEEP)
    (word,) = watch.left_behind(grace=0)
    assert f"process {child.pid} " in word
    assert child.pid not in processes()
    child.wait()


def _detached(argument: str, **options: object) -> int:
    """Starts a grandchild that no process waits for; gives its pid."""
    launch = (
        "import subprocess, sys; "
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]],"
        " start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL);"
        " print(p.pid)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", launch, argument],
        check=True,
        capture_output=True,
        **options,  # type: ignore[call-overload]
    )
    return int(done.stdout)


@pytest.mark.parametrize("carries", ["environment", "folder", "arguments"])
def test_a_detached_process_of_the_home_is_seen_and_killed(carries: str, home: Path) -> None:
    watch = Watch(home)
    if carries == "environment":
        pid = _detached("x", env={**os.environ, "TONY_HOME": str(home)})
    elif carries == "folder":
        pid = _detached("x", cwd=home)
    else:
        pid = _detached(str(home / "apps"))
    (word,) = watch.left_behind(grace=0)
    assert f"process {pid} " in word
    deadline = time.monotonic() + 5
    while pid in processes() and processes()[pid].state != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_process_that_was_there_before_is_not_counted(home: Path) -> None:
    child = subprocess.Popen(SLEEP)
    try:
        watch = Watch(home)
        assert watch.left_behind(grace=0) == []
    finally:
        child.kill()
        child.wait()


def test_every_test_has_a_home_of_its_own(tony_home: Path, tmp_path: Path) -> None:
    assert os.environ["TONY_HOME"] == str(tony_home)
    assert tmp_path in tony_home.parents
    assert "TONY_CONF_DIR" not in os.environ

"""A job on the embedded scheduler, and another user of the machine who tries to disturb it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, List, Set

import pytest

from tests.failures.wreck import Wreck, belonging_to, one_role, script, until
from tests.second_user import as_stranger, needs_root
from tony_core.schedulers.port import AppState

pytestmark = [needs_root, pytest.mark.timeout(120)]
PROGRAM = """
import json, os, socket, time
task = int(os.environ["TASK_INDEX"])
host, port = json.loads(os.environ["CLUSTER_SPEC"])["worker"][task].split(":")
own = socket.socket(socket.AF_INET6)
own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
own.bind(("::", int(port)))
own.listen()
print("listening", flush=True)
while not os.path.exists({done!r}):
    time.sleep(0.05)
"""
# Bytes of all kinds to every port, some connections left open, ports bound, signals sent.
DISTURB = """
ports, pids, signals = argument
words = [b"GET / HTTP/1.0\\r\\n\\r\\n", b"\\0" * 64, b"\\xff" * 70000, b"cmd=abort\\n", b""]
left = []
result = {"answered": [], "bound": [], "killed": []}
for port in ports:
    for word in words:
        sock = socket.socket()
        sock.settimeout(0.3)
        try:
            sock.connect(("127.0.0.1", port))
            sock.sendall(word)
            data = sock.recv(1000)
            if data and not data.startswith(b"HTTP/"):
                result["answered"].append([port, data.hex()])
        except OSError:
            pass
        left.append(sock)
    for option in (2, 15):
        sock = socket.socket()
        sock.setsockopt(1, option, 1)
        try:
            sock.bind(("", port))
            sock.listen()
            result["bound"].append(port)
        except OSError:
            pass
        left.append(sock)
for pid in pids:
    for number in signals:
        try:
            os.kill(pid, number)
            result["killed"].append(pid)
        except OSError:
            pass
"""


def listened_at(pids: List[int]) -> Set[int]:
    """The TCP ports at which these processes listen."""
    inodes = set()
    for pid in pids:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                inodes.add(os.readlink(f"/proc/{pid}/fd/{name}")[len("socket:[") : -1])
            except OSError:
                continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                found.add(int(words[1].rpartition(":")[2], 16))
    return found


def test_a_job_goes_on_whatever_another_user_does(tony_home: Path, tmp_path: Path) -> None:
    done = tmp_path / "done"
    program = script(tmp_path, PROGRAM.format(done=str(done)))
    wreck = Wreck(tony_home, one_role(f"{sys.executable} {program}", 2))

    def running() -> Any:
        tasks = (wreck.get("api/tasks") or {"tasks": []})["tasks"]
        found = [task["ports"]["main"] for task in tasks if task["state"] == "running"]
        pids = belonging_to(wreck.app_id)
        return (found, pids) if len(found) == 2 and set(found) <= listened_at(pids) else None

    held, pids = until(running, "two tasks that listen at their ports")
    ports = sorted({*held, *listened_at(pids)})
    assert len(ports) >= 4, "the tasks', the master's and the page's"
    numbers = [int(signal.SIGKILL), int(signal.SIGSTOP), int(signal.SIGTERM)]
    result = as_stranger(DISTURB, [ports, pids, numbers], timeout=60)
    assert result["bound"] == result["killed"] == []
    done.touch()
    wreck.ends(AppState.SUCCEEDED)
    assert wreck.status().state is AppState.SUCCEEDED

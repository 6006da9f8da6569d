"""A whole job on a machine that has one kind of loopback address only, or none at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import command, environment
from tests.second_user import needs_root

pytestmark = needs_root

NAMESPACE = """
import ctypes, fcntl, os, socket, struct, sys
if ctypes.CDLL(None, use_errno=True).unshare(0x40000000):  # CLONE_NEWNET
    sys.exit(77)
name, wanted = b"lo", sys.argv[1]
with socket.socket() as sock:
    if wanted != "none":
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", name, 0x49))  # up, loopback, running
    if wanted == "::1":  # takes the address of version 4 away
        fcntl.ioctl(sock, 0x8916, struct.pack("16sHH4s8x", name, socket.AF_INET, 0, bytes(4)))
if wanted == "127.0.0.1":
    with open("/proc/sys/net/ipv6/conf/all/disable_ipv6", "w") as switch:
        switch.write("1")
os.execvp(sys.argv[2], sys.argv[2:])
"""
PROGRAM = """
import glob, json, os, sys, urllib.request
workers = json.loads(os.environ["CLUSTER_SPEC"])["worker"]
print("worker", os.environ["TASK_INDEX"], "of", len(workers))
with open(glob.glob(sys.argv[1] + "/apps/*/master.json")[0]) as file:
    url = json.load(file)["page_url"]
with urllib.request.urlopen(url + "api/job") as answer:
    print("page", url, json.load(answer)["state"])
"""


def inside(wanted: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a network namespace that has only this loopback address."""
    done = subprocess.run(
        [sys.executable, "-c", NAMESPACE, wanted, *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=environment(),
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip("no network namespace can be made here")
    return done


@pytest.mark.parametrize(
    ("wanted", "page"), [("::1", "http://[::1]:"), ("127.0.0.1", "http://127.0.0.1:")]
)
def test_a_job_with_one_kind_of_loopback_address(
    tmp_path: Path, tony_home: Path, wanted: str, page: str
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    settings = ("tony.worker.instances=2", "tony.application.framework=tensorflow")
    program = f"{sys.executable} {tmp_path / 'train.py'} {tony_home}"
    words = [word for setting in settings for word in ("--conf", setting)]
    done = inside(wanted, *command("submit", "--executes", program, *words))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"page: {page}" in done.stderr + done.stdout
    (app,) = (tony_home / "apps").iterdir()
    logs = inside(wanted, *command("logs", app.name)).stdout
    assert "worker 0 of 2" in logs
    assert f"page {page}" in logs
    assert json.loads((app / "status.json").read_text())["state"] == "SUCCEEDED"


def test_a_machine_without_any_is_reported(tmp_path: Path, tony_home: Path) -> None:
    done = inside("none", *command("submit", "--executes", "true"))
    assert done.returncode != 0
    assert "this machine has no loopback address" in done.stdout + done.stderr
    assert "ip link set lo up" in done.stdout + done.stderr
    assert "tony's own" not in done.stdout + done.stderr


@pytest.mark.parametrize("wanted", ["::1", "127.0.0.1", "none"])
def test_the_doctor_looks_for_the_same_address(wanted: str) -> None:
    code = (
        "from tony_core.schedulers.local import host_checks as m;"
        " print(m.check_host_names('h', '127.0.0.1'))"
    )
    found = inside(wanted, sys.executable, "-c", code).stdout
    advice = {"::1": "put ::1 localhost", "127.0.0.1": "put 127.0.1.1 h", "none": "ip link set lo"}
    assert advice[wanted] in found

"""The cluster without any feature works: files, applications, logs; and it goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Set

import pytest

from tests.cluster.hadoop import supervisor
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.web import WebError, call

pytestmark = pytest.mark.cluster

SMALL = {"memory": 64, "vCores": 1}


def submit(cluster: Hadoop, command: str, **more: object) -> str:
    """An application whose master is a shell command; it ends as FAILED, as it does not
    register, and for a look at the cluster that is enough."""
    commands = {"command": f"({command}) 1><LOG_DIR>/stdout 2>&1"}
    context: Dict[str, Any] = {
        "application_name": "look",
        "am_container_spec": {"commands": commands},
        "max_app_attempts": 1,
        "resource": SMALL,
    }
    return cluster.submit(**{**context, **more})


def eventually(true: Callable[[], bool], limit: float = 10) -> bool:
    deadline = time.monotonic() + limit
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def listening(pids: Set[int]) -> List[str]:
    """The addresses, in the kernel's hexadecimal, on which some processes listen."""
    inodes = set()
    for pid in pids:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{name}")
            except FileNotFoundError:
                continue  # closed meanwhile
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.append(fields[1].split(":")[0])
    return found


class TestFiles:
    def test_what_is_put_can_be_got(self, hadoop: GetHadoop) -> None:
        files = hadoop().hdfs
        content = bytes(range(256)) * 4096
        files.put("/files/a b/ü.bin", content)
        assert files.get("/files/a b/ü.bin") == content
        assert files.list("/files/a b")["ü.bin"]["length"] == len(content)
        assert files.delete("/files")
        with pytest.raises(WebError) as caught:
            files.status("/files")
        assert caught.value.status == 404

    def test_safe_mode_refuses_writes(self, hadoop: GetHadoop) -> None:
        cluster = hadoop()
        cluster.safe_mode(True)
        with pytest.raises(WebError, match="SafeModeException"):
            cluster.hdfs.put("/no", b"")
        cluster.safe_mode(False)
        cluster.hdfs.put("/yes", b"")


class TestApplications:
    def test_one_runs_and_its_logs_can_be_read(self, hadoop: GetHadoop) -> None:
        cluster = hadoop()
        app = submit(cluster, "echo runs on $NM_HOST; exit 3")
        ended = cluster.wait_for(app)
        assert ended["state"] == "FAILED"
        assert "exitCode: 3" in ended["diagnostics"]
        assert "runs on localhost" in cluster.application_logs(app)

    def test_one_that_is_killed_leaves_nothing(self, hadoop: GetHadoop) -> None:
        cluster = hadoop()
        app = submit(cluster, "sleep 300")
        cluster.wait_for(app, ["ACCEPTED"])
        work = cluster.folder / "data" / "nm0"
        assert eventually(lambda: bool(supervisor.processes_in(work / "local")))
        cluster.kill_application(app)
        assert cluster.application(app)["state"] == "KILLED"
        # The NodeManager itself has the folder in its arguments, but not what is below it.
        assert eventually(lambda: not supervisor.processes_in(work / "local"))

    @pytest.mark.nightly
    @pytest.mark.parametrize("version", ["3.4.2", "3.3.6"])
    def test_mapreduce_runs(self, hadoop: GetHadoop, version: str) -> None:
        cluster = hadoop("mapreduce", version=version)
        info = call("GET", f"{cluster.rm_url}/ws/v1/cluster/info")["clusterInfo"]
        assert info["hadoopVersion"] == version
        output = cluster.run_jar(cluster.jar("hadoop-mapreduce-examples"), "pi", "1", "10")
        assert "Estimated value of Pi is 3." in output
        assert [app["finalStatus"] for app in cluster.applications()] == ["SUCCEEDED"]


@pytest.mark.nightly
class TestDaemons:
    def test_they_listen_on_loopback_only(self, hadoop: GetHadoop) -> None:
        cluster = hadoop("two_nodes")
        pids = {state["pid"] for state in cluster.daemons().values()}
        addresses = listening(pids)
        assert len(addresses) > 10
        # 127.0.0.x, and the same as an address of IPv6.
        assert [one for one in addresses if not one.endswith("00007F")] == [
            one for one in addresses if one.endswith("0000007F")
        ]

    def test_one_that_was_killed_comes_back(self, hadoop: GetHadoop) -> None:
        cluster = hadoop()
        before = cluster.daemons()
        cluster.kill_nm(0)
        cluster.stop_nn()
        stopped = cluster.daemons()
        assert [n for n, state in stopped.items() if state["pid"] is None] == ["nn0", "nm0"]
        assert hadoop() is cluster
        after = cluster.daemons()
        assert after["nm0"]["pid"] not in (None, before["nm0"]["pid"])
        assert after["rm0"] == before["rm0"]
        cluster.hdfs.put("/after", b"x")

    def test_one_that_hangs_answers_later(self, hadoop: GetHadoop) -> None:
        cluster = hadoop()
        with cluster.hanging("rm0"), pytest.raises(TimeoutError):
            call("GET", f"{cluster.rm_url}/ws/v1/cluster/info", timeout=0.5)
        assert call("GET", f"{cluster.rm_url}/ws/v1/cluster/info")


UP = """
import sys, time
from pathlib import Path
from tests.cluster.hadoop.cluster import Hadoop
cluster = Hadoop.up(Path(sys.argv[1]))
context = {"commands": {"command": "setsid sleep 300 & sleep 300"}}
app = cluster.submit(application_name="stays", am_container_spec=context,
                     resource={"memory": 64, "vCores": 1})
print("up", flush=True)
time.sleep(300)
"""


class TestTheEnd:
    def test_nothing_stays_when_its_maker_is_killed(self, tmp_path: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        with subprocess.Popen(
            [sys.executable, "-c", UP, str(tmp_path)],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        ) as maker:
            try:
                assert maker.stdout is not None
                assert maker.stdout.readline() == "up\n"
                local = tmp_path / "data" / "nm0" / "local"
                # The shell that YARN starts, the program's own, and two that sleep.
                assert eventually(lambda: len(supervisor.processes_in(local)) >= 4, 30)
            finally:
                maker.kill()
        assert eventually(lambda: not supervisor.processes_in(tmp_path))

    @pytest.mark.parametrize(
        "victim", [pytest.param("guardian", marks=pytest.mark.nightly), "supervisor"]
    )
    def test_nothing_stays_when_its_keeper_is_killed(self, tmp_path: Path, victim: str) -> None:
        folder = tmp_path / "cluster"
        cluster = Hadoop.up(folder)
        try:
            pid = int((folder / "pid").read_text())
            if victim == "supervisor":
                pid = int(cluster.call("status")["supervisor"])
            os.kill(pid, signal.SIGKILL)
            assert eventually(lambda: not supervisor.processes_in(folder))
        finally:
            cluster.down()

"""What a second attempt of an application finds when its first tokens have ended for good."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.security import TOKEN_LIFETIME_S
from tests.cluster.test_hadoop_base import SMALL
from tests.cluster.yarn.jobs import until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(600)]

PLAIN = ("secure", "short_tokens", "log_aggregation")
PRIVILEGED = (*PLAIN, "proxy_privileges")
LOGS = "/app-logs/ann/bucket-logs-tfile"


def resource(cluster: Hadoop, path: str, visibility: str) -> Dict[str, Any]:
    """A file of ann's as a local resource named input."""
    files = cluster.hdfs_of("ann")
    files.put(path, visibility.encode())
    status = files.status(path)
    value = {
        "resource": f"{cluster.default_fs}{path}",
        "type": "FILE",
        "visibility": visibility,
        "size": status["length"],
        "timestamp": status["modificationTime"],
    }
    return {"entry": [{"key": "input", "value": value}]}


def start(cluster: Hadoop, resources: Optional[Dict[str, Any]], has_token: bool = True) -> str:
    """An application of ann's whose master waits."""
    credentials: Dict[str, Any] = {"secrets": {"entry": [{"key": "none", "value": "bm9uZQ=="}]}}
    if has_token:
        # By the name that clients give it: new tokens of the ResourceManager replace it.
        service = f"127.0.0.1:{cluster.rpc('nn0').rpartition(':')[2]}"
        held = {"key": service, "value": cluster.hdfs_token("ann")}
        credentials = {"tokens": {"entry": [held]}}
    spec: Dict[str, Any] = {
        "commands": {"command": "(echo begun; exec sleep 900) 1><LOG_DIR>/stdout 2>&1"},
        "credentials": credentials,
    }
    if resources is not None:
        spec["local-resources"] = resources
    return cluster.submit(
        "ann",
        application_name="waits",
        am_container_spec=spec,
        max_app_attempts=2,
        resource=SMALL,
    )


def attempt_processes(app: str, attempt: int) -> List[int]:
    """The pids of an attempt's master."""
    wanted = f"CONTAINER_ID=container_{app.partition('_')[2]}_{attempt:02}_000001".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if wanted in environment and command.startswith(b"sleep"):
                found.append(int(entry.name))
    return found


def kill_master(app: str) -> None:
    for pid in attempt_processes(app, 1):
        os.kill(pid, signal.SIGKILL)


def empty_caches(cluster: Hadoop) -> None:
    """As on a node where the job has never run: nothing of ann's is localized there."""
    for folder in cluster.folder.glob("data/nm*/local/usercache/ann/filecache/*"):
        shutil.rmtree(folder)


@pytest.mark.parametrize("features", [PLAIN, PRIVILEGED], ids=["plain", "privileged"])
def test_who_localizes_by_ended_tokens(hadoop: GetHadoop, features: tuple[str, ...]) -> None:
    cluster = hadoop(*features)
    cluster.hdfs_of("ann").make_folder("/tmp/public", "755")
    apps = {
        "private": start(cluster, resource(cluster, "/user/ann/private", "PRIVATE")),
        "public": start(cluster, resource(cluster, "/tmp/public/file", "PUBLIC")),
        "none": start(cluster, None),
    }
    ended = time.monotonic() + TOKEN_LIFETIME_S + 5
    for app in apps.values():
        until(lambda app=app: attempt_processes(app, 1), "the first attempt runs")
    time.sleep(max(0.0, ended - time.monotonic()))
    empty_caches(cluster)
    for app in apps.values():
        kill_master(app)
    for name in ("public", "none"):
        app = apps[name]
        until(lambda app=app: attempt_processes(app, 2), f"the second attempt of {name} runs")
    if features == PRIVILEGED:
        until(lambda: attempt_processes(apps["private"], 2), "the second attempt of private runs")
    else:
        diagnostics = cluster.wait_for(apps["private"], ["FAILED"])["diagnostics"]
        assert "failed 2 times" in diagnostics and "exitCode: -1000" in diagnostics
        assert "SecretManager$InvalidToken" in diagnostics and "has expired" in diagnostics
    for app in apps.values():
        if cluster.application(app)["state"] != "FAILED":
            cluster.kill_application(app)

    def stored(app: str) -> List[str]:
        """The nodes whose logs of it are in HDFS."""
        number = app.rpartition("_")[2]
        return sorted(cluster.hdfs.list(f"{LOGS}/{number}/{app}"))

    gone = lambda app: not list(cluster.folder.glob(f"data/nm*/logs/{app}"))  # noqa: E731
    for name, app in apps.items():
        until(lambda app=app: gone(app), f"the nodes have removed the logs of {name}")
        # Without the ResourceManager's tokens they are lost: no node could write to HDFS.
        assert bool(stored(app)) == (features == PRIVILEGED), name


def test_tokens_that_the_resource_manager_obtains(hadoop: GetHadoop) -> None:
    """An application without any is given some by it, where it may act for users."""
    cluster = hadoop(*PRIVILEGED)
    app = start(cluster, resource(cluster, "/user/ann/unowned", "PRIVATE"), has_token=False)
    until(lambda: attempt_processes(app, 1), "its file is localized")
    cluster.kill_application(app)
    plain = hadoop(*PLAIN)
    app = start(plain, resource(plain, "/user/ann/unowned", "PRIVATE"), has_token=False)
    assert "exitCode: -1000" in plain.wait_for(app)["diagnostics"]

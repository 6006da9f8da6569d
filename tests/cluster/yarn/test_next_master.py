"""What a second attempt of an application finds when its first tokens have ended for good.

First an application that is no job of TonY's: what Hadoop does. Then jobs that ship their keytab.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.kerberos import REALM
from tests.cluster.hadoop.security import TOKEN_LIFETIME_S
from tests.cluster.test_hadoop_base import SMALL
from tests.cluster.yarn.jobs import WITHIN, Tony, until
from tests.cluster.yarn.training import Training, masters, running
from tony_core.schedulers.yarn.job_credentials import JOB_FILE

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(600)]

PLAIN = ("secure", "short_tokens", "node_kerberos", "log_aggregation")
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


def forget_file(cluster: Hadoop, content: bytes) -> None:
    """As on a node where it has never been localized."""
    found = 0
    for path in cluster.folder.glob("data/nm*/local/usercache/ann/filecache/*/*"):
        if path.is_file() and path.read_bytes() == content:
            shutil.rmtree(path.parent)
            found += 1
    assert found


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
    forget_file(cluster, b"PRIVATE")
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

    for name, app in apps.items():
        # Without the ResourceManager's tokens they are lost: no node could write to HDFS.
        assert logs_are_stored(cluster, app) == (features == PRIVILEGED), name


def logs_are_stored(cluster: Hadoop, app: str) -> bool:
    """Whether any of its logs are in HDFS, once its nodes have removed theirs."""
    until(lambda: not list(cluster.folder.glob(f"data/nm*/logs/{app}")), "logs have left the nodes")
    return bool(cluster.hdfs.list(f"{LOGS}/{app.rpartition('_')[2]}/{app}"))


def test_tokens_that_the_resource_manager_obtains(hadoop: GetHadoop) -> None:
    """An application without any is given some by it, where it may act for users."""
    cluster = hadoop(*PRIVILEGED)
    app = start(cluster, resource(cluster, "/user/ann/unowned", "PRIVATE"), has_token=False)
    until(lambda: attempt_processes(app, 1), "its file is localized")
    cluster.kill_application(app)
    plain = hadoop(*PLAIN)
    app = start(plain, resource(plain, "/user/ann/unowned", "PRIVATE"), has_token=False)
    assert "exitCode: -1000" in plain.wait_for(app)["diagnostics"]


class Long:
    """A job that ships ann's keytab, and outlives its first tokens."""

    def __init__(self, one: Tony, **conf: str) -> None:
        assert one.cluster is not None
        self.one = one
        self.training = Training(
            one,
            **{
                "tony.kerberos.principal": f"ann@{REALM}",
                "tony.kerberos.keytab": str(one.cluster.keytab_of("ann")),
                "tony.kerberos.ship-keytab": "true",
                **conf,
            },
        )
        self.job = self.training.job

    def is_running(self) -> None:
        self.job.until(self.training.known_as_running, "its programs run")

    def kill_master(self) -> int:
        (master,) = masters(self.job.app_id)
        os.kill(master, signal.SIGKILL)
        return master

    def is_taken_over(self, killed: int) -> None:
        """Another master leads the same programs to their end."""
        self.job.until(lambda: set(masters(self.job.app_id)) - {killed}, "there is a next master")
        self.job.until(lambda: running(self.one, self.job.app_id) == 2, "it has its executors")
        self.job.until(self.training.grows(), "its programs go on")
        self.training.over()
        self.job.ends(0)
        assert self.training.undisturbed()


WEIGHTS = b"a file of the master's own"


def write_weights(one: Tony) -> str:
    path = one.folder / "weights"
    path.write_bytes(WEIGHTS)
    return str(path)


def test_a_killed_master_after_the_first_tokens_end(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop(*PLAIN)
    place = f"{cluster.default_fs}/tmp/apps/runtime.tar"
    first, second, third = (tony_on(cluster) for _ in range(3))
    command = [*second.command, "runtime", "publish", place]
    subprocess.run(command, env=second.env, check=True, timeout=60, capture_output=True)
    carried = Long(first)
    public = Long(second, **{"tony.runtime.location": place})
    closed = Long(third, **{"tony.am.resources": write_weights(third)})
    for one in (carried, public, closed):
        one.is_running()
    time.sleep(TOKEN_LIFETIME_S + 5)
    for one in (carried, public, closed):
        assert one.training.undisturbed()
        assert "the cluster stores no logs of this job" in one.job.output_text
    forget_file(cluster, WEIGHTS)
    killed = [one.kill_master() for one in (carried, public, closed)]
    carried.is_taken_over(killed[0])
    public.is_taken_over(killed[1])
    for one in (carried, public):
        assert "cannot be replaced" not in one.job.output_text
        assert not logs_are_stored(cluster, one.job.app_id)
    # This one was warned of.
    after = f"after the first {TOKEN_LIFETIME_S / 60:g} min"
    assert f"a master that dies {after} cannot be replaced" in closed.job.output_text
    assert "localizes weights by" in closed.job.output_text
    assert closed.job.process.wait(WITHIN) != 0
    why = "the job's master could not be started, 2 times: the tokens of its submit have ended"
    assert why in closed.job.output_text
    assert "has expired" in cluster.application(closed.job.app_id)["diagnostics"]


def test_the_resource_manager_obtains_tokens_for_the_next_master(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop(*PRIVILEGED)
    one = tony_on(cluster)
    long = Long(one, **{"tony.am.resources": write_weights(one)})
    long.is_running()
    time.sleep(TOKEN_LIFETIME_S + 5)
    forget_file(cluster, WEIGHTS)
    long.is_taken_over(long.kill_master())
    for text in ("cannot be replaced", "stores no logs"):
        assert text not in long.job.output_text
    assert logs_are_stored(cluster, long.job.app_id)


def test_a_zookeeper_takes_the_code_and_a_large_job(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    """Nearly all that credentials carry: it is one node of the ResourceManagers' store."""
    cluster = hadoop("secure", "rm_ha", "node_kerberos")
    one = tony_on(cluster)
    # Random, so that it stays as large. The job has it twice: in its configuration, too.
    noise = {
        f"tony.execution.env.NOISE{index}": secrets.token_urlsafe(35_000) for index in range(4)
    }
    conf = {
        "tony.kerberos.principal": f"ann@{REALM}",
        "tony.kerberos.keytab": str(cluster.keytab_of("ann")),
        "tony.kerberos.ship-keytab": "true",
        "tony.application.framework": "mpi",
        "tony.worker.instances": "1",
        "tony.worker.memory": "64m",
        **noise,
    }
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    shown = one("submit", "--dry-run", "--executes", "true", *words).stdout
    sizes = re.search(r"tony\.job \((\d+) bytes\)", shown)
    assert sizes is not None and int(sizes[1]) > 270 << 10, shown[-3000:]
    assert JOB_FILE not in shown and "tony.runtime (TonY's own code)" in shown
    one.submit("--executes", "true", conf=conf).ends(0)

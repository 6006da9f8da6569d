"""Jobs of a real cluster as the portal shows them: page, logs, their move, and strangers."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest

from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Tony, until
from tests.portal.real_jobs import (
    RealPortal,
    look_when_ended,
    look_while_running,
    other_owner,
    write_program,
)
from tony_core.files.registry import filesystem
from tony_core.portal.event_files import NoEventFiles, copy_remote
from tony_core.portal.job_source import LogProblem
from tony_core.schedulers.port import LogRef, Scheduler

pytestmark = pytest.mark.cluster


def test_a_job_from_its_submit_to_its_aggregated_logs(
    hadoop: GetHadoop,
    tony_on: Callable[..., Tony],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = hadoop("log_aggregation")
    tony = tony_on(cluster)
    program = write_program(tmp_path)
    root = f"{cluster.default_fs}/user/{cluster.user}/.tony/history"
    env = {
        "HADOOP_CONF_DIR": str(cluster.conf_dir),
        "HADOOP_USER_NAME": cluster.user,
        "HOME": str(tmp_path),
    }
    for name, value in env.items():  # as which it reads histories on HDFS
        monkeypatch.setenv(name, value)
    portal = RealPortal("yarn", env, root)
    try:
        running = tony.submit(
            "--executes",
            f"{program} {tmp_path}/go 0",
            conf={
                "tony.worker.instances": 1,
                "tony.worker.memory": "256",
                "tony.application.framework": "standalone",
            },
        )
        look_while_running(portal, running, cluster.user)
        app_id = running.app_id
        other_owner(portal, app_id)
        (tmp_path / "go").touch()
        running.ends(0)
        look_when_ended(portal, app_id, cluster.user, "SUCCEEDED")
        link = portal.job(app_id, cluster.user).links()["yarn"]
        assert link.endswith(f"/cluster/app/{app_id}")

        # Its logs are in HDFS now: they are read where the ResourceManager knows it no more.
        def moved() -> bool:
            return cluster.application(app_id).get("logAggregationStatus") == "SUCCEEDED"

        until(moved, "its logs in HDFS", 120.0)

        def kept() -> bytes:
            job = portal.job(app_id, cluster.user)
            (container, _), *_ = job.streams("worker:0")

            def ask(scheduler: Scheduler) -> bytes:
                reader = scheduler.log_reader.of_forgotten(app_id, cluster.user)
                return reader.read_log(app_id, LogRef(container), "stdout", 0, 11)

            return portal.pool.call("yarn", ask, within_s=60.0)

        assert kept() == b"first line\n"

        # TensorBoard's event files: those of the owner, by the NameNode.
        events = f"{cluster.default_fs}/user/{cluster.user}/portal-events"
        target = tmp_path / "copied"

        def copy(owner: str) -> int:
            def ask(scheduler: Scheduler) -> int:
                files = filesystem(events)
                files.mkdir(f"{events}/train")
                files.put(f"{events}/train/events.out.tfevents.1", b"events")
                return copy_remote(files, events, owner, str(target)).files

            return portal.pool.call("yarn", ask, within_s=60.0)

        assert copy(cluster.user) == 1
        assert (target / "train" / "events.out.tfevents.1").read_bytes() == b"events"
        with pytest.raises(NoEventFiles, match="does not belong to eve"):
            copy("eve")
        with pytest.raises(LogProblem, match="no aggregated logs of"):
            portal.job(app_id, "eve").log("worker:0", "stdout", "", 0, 100)
    finally:
        portal.close()


@pytest.mark.timeout(300)
def test_for_many_users_each_look_is_the_viewers(
    hadoop: GetHadoop,
    tony_on: Callable[..., Tony],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a secure cluster. ann lets gateway look, the portal's user: nodes know no proxy user."""
    cluster = hadoop("secure", "log_aggregation")
    env = cluster.environment_of("gateway")
    monkeypatch.setenv("KRB5_CONFIG", env["KRB5_CONFIG"])
    tony = tony_on(cluster)
    tony.env.update(cluster.environment_of("ann"))
    running = tony.submit(
        "--executes",
        "sh -c 'echo first line; sleep 600'",
        conf={
            "tony.worker.instances": 1,
            "tony.worker.memory": "256",
            "tony.application.framework": "standalone",
            "tony.yarn.acl.view": "gateway",
        },
    )
    app_id = running.app_id
    portal = RealPortal("yarn", env, str(tmp_path / "no-history"), is_for_many=True)
    try:
        until(lambda: portal.live.job(app_id, "ann"), "on the list")

        def page() -> bool:
            record = portal.job(app_id, "ann").record(metrics=False)
            return bool(record.tasks) and not record.problems

        running.until(page, "its page, as ann")

        def log() -> bool:
            try:
                job = portal.job(app_id, "ann")
                return job.log("worker:0", "stdout", "", 0, 100).data == b"first line\n"
            except LogProblem as error:
                print(error)
                return False

        running.until(log, "its log")
        # A viewer whom the portal let through by mistake: the cluster itself refuses bob.
        bobs = portal.job(app_id, "ann", viewer="bob")
        record = bobs.record(metrics=False)
        assert record.tasks == () and "does not answer" in record.problems[0]
        with pytest.raises(LogProblem):
            bobs.log("am", "master-1.stderr", "", 0, 100)
    finally:
        portal.close()
        tony("kill", app_id)

"""YARN as the contract suite uses it, on the fake: pools in the test's process, real containers.

A pool in the test's process has an application of its own, whose master's container only shows
its credentials and sleeps. So the ResourceManager gives a next attempt when that is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tarfile
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.cluster.fakeyarn.cluster import FakeYarn
from tests.cluster.fakeyarn.manager import Limits
from tests.leaks import belonging_to, processes
from tests.schedulers.contract import Harness, Master, harness_job, until
from tests.schedulers.standin import make_runtime
from tony_core.files import registry
from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.hadoop.credentials import Credentials, am_rm_token
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId
from tony_core.hadoop.yarn.launch import Launch
from tony_core.hadoop.yarn.messages.client_calls import ApplicationSubmissionContext
from tony_core.hadoop.yarn.records import Capability
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.job.spec import Job, Resources, Runtime
from tony_core.schedulers.port import AppState
from tony_core.schedulers.yarn.client.scheduler import YarnScheduler
from tony_core.schedulers.yarn.master import heartbeat, launcher, pending_reasons, pool
from tony_core.schedulers.yarn.master.application import Application
from tony_core.schedulers.yarn.master.launch_context import LaunchContexts
from tony_core.schedulers.yarn.master.pool_factory import connect_pool

MOST_MB = 3000


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats of the masters in this process go with those of the fake's nodes."""
    monkeypatch.setattr(heartbeat, "SLOW_S", 0.1)
    monkeypatch.setattr(heartbeat, "FAST_S", 0.03)
    monkeypatch.setattr(pending_reasons, "FIRST_REASON_S", 0.1)
    monkeypatch.setattr(pool, "NODES_S", 0.1)
    monkeypatch.setattr(pool, "UNREPORTED_END_S", 1.0)
    monkeypatch.setattr(launcher, "STOP_S", 1.0)
    monkeypatch.setattr(launcher, "START_S", 2.0)


_MASTERS_MB = 128  # each
_MASTERS = 4
_ATTEMPTS = 3


class FakeHarness(Harness):
    """Applications on a fake YARN of the test's own; every pool and process of it ends with it."""

    sweeps = False
    at_once = False

    def __init__(self, folder: Path) -> None:
        self.yarn = FakeYarn(
            folder / "yarn",
            nodes=1,
            node=Capability(MOST_MB + _MASTERS * _MASTERS_MB, 64),
            real=True,
            limits=Limits(least_mb=1, maximum=Capability(MOST_MB, 32), attempts=_ATTEMPTS),
        )
        self.yarn.__enter__()
        self.scheduler = YarnScheduler({"HADOOP_CONF_DIR": str(self.yarn.conf_dir)})
        self.client = RmClient.open(
            self.yarn.configuration, identity=ClusterIdentity(self.yarn.user)
        )
        self._scratch = folder / "scratch"
        self._scratch.mkdir()
        self._runtime = make_runtime(folder / "runtime")
        self._masters: Dict[Master, AttemptId] = {}

    def job(self, **changes: Any) -> Job:
        """The job of every application here, of this or that difference."""
        job = harness_job().replace(runtime=Runtime(python=sys.executable), **changes)
        small = job.master._replace(resources=Resources(memory_mb=_MASTERS_MB))
        return job.replace(master=small)

    # ---------------------------------------------------------------- masters in this process

    def master(self, name: str = "first") -> Master:
        app = self.client.new_application().id
        show = (
            f"cp $HADOOP_TOKEN_FILE_LOCATION {self._scratch}/$CONTAINER_ID.part;"
            f" mv {self._scratch}/$CONTAINER_ID.part {self._scratch}/$CONTAINER_ID;"
            " exec sleep 600"
        )
        self.client.submit(
            ApplicationSubmissionContext(
                application_id=app.to_message(),
                application_name=name,
                am_container_spec=Launch((show,)).to_message(),
                application_type="TONY",
                resource=Capability(_MASTERS_MB, 1).to_message(),
                max_app_attempts=_ATTEMPTS,
                keep_containers_across_application_attempts=True,
            )
        )
        return self._open(AttemptId(app, 1))

    def next_master(self, master: Master) -> Master:
        before = self._masters[master]
        self._kill(str(before.application))
        return self._open(AttemptId(before.application, before.number + 1))

    def _open(self, attempt: AttemptId) -> Master:
        app = attempt.application
        prefix = f"container_{app.cluster}_{app.number:04d}_{attempt.number:02d}_"
        found = until(
            lambda: [one for one in self._scratch.glob(f"{prefix}*") if one.suffix != ".part"],
            f"the master's container of {attempt}",
        )
        token = am_rm_token(Credentials.decode(found[0].read_bytes()))
        assert token is not None
        application = Application(attempt, self.yarn.user, _ATTEMPTS, "127.0.0.1")
        contexts = LaunchContexts(python=sys.executable, runtime=str(self._runtime))
        identity = ClusterIdentity(self.yarn.user)
        master = Master(
            connect_pool(
                self.yarn.configuration, application, self.job(), contexts, token, identity
            )
        )
        self._masters[master] = attempt
        return master.start()

    def most_memory_mb(self) -> int:
        return MOST_MB

    # ---------------------------------------------------------------- submitted ones

    def artifacts(self) -> List[Artifact]:
        return [self._runtime_for("", "store")]

    def _runtime_for(self, instructions: str, place: str) -> Artifact:
        """The runtime as an archive on HDFS, with instructions beside the master's module."""
        packed = self._scratch / "tony-runtime.tar"
        (self._runtime / "tests" / "schedulers" / "instructions.json").write_text(instructions)
        with tarfile.open(packed, "w") as archive:
            for one in sorted(self._runtime.iterdir()):
                archive.add(one, one.name)
        folder = f"{self.scheduler.staging_root(self.job())}/{place}"
        location = f"{folder}/{packed.name}"
        files = registry.filesystem(location)
        files.mkdir(folder, 0o700)
        files.upload(str(packed), location)
        found = files.stat(location)
        return Artifact(
            "tony-runtime",
            Use.RUNTIME,
            Kind.ARCHIVE,
            str(packed),
            location,
            size=found.size,
            mtime_ms=found.mtime_ms,
        )

    def submit(self, **instructions: Any) -> str:
        job = self.job(**instructions.pop("job", {}))
        attempts = instructions.pop("attempts", job.master.max_attempts)
        job = job.replace(master=job.master._replace(max_attempts=attempts))
        app_id = self.scheduler.new_app_id(job)
        instructions["events_file"] = str(self.events_file(app_id))
        artifacts = [self._runtime_for(json.dumps(instructions), f"apps/{app_id}")]
        self.scheduler.submit(app_id, self.scheduler.dry_run(app_id, job, artifacts), b"x" * 32)
        return app_id

    def acknowledged(self) -> None:
        time.sleep(3 * heartbeat.SLOW_S)

    def events_file(self, app_id: str) -> Path:
        return self._scratch / f"events-{app_id}.jsonl"

    def kill_master(self, app_id: str) -> None:
        self._kill(app_id)

    def _kill(self, app_id: str) -> None:
        with self.yarn.reactor.lock:
            master = self.yarn.rm.applications[ApplicationId.parse(app_id)].attempt.master
            assert master is not None
            real = self.yarn.rm.managers[master.node].running[master.id].real
        assert real is not None
        os.kill(real.pid, signal.SIGKILL)

    # ---------------------------------------------------------------- the end

    def close(self) -> None:
        """End what the test left."""
        for master in self._masters:
            if not master.closed:
                master.pool.finish(AppState.KILLED, "the test is over")
                master.close()
        for status in self.scheduler.list():
            if not status.state.ended:
                self.scheduler.kill(status.app_id, "the test is over")
        self.scheduler.close()
        self.client.close()
        self.yarn.stop()
        for process in belonging_to(self.yarn.folder, processes()):
            os.kill(process.pid, signal.SIGKILL)  # it left its group: the executor's business
        assert not self.yarn.reactor.failures, self.yarn.reactor.failures

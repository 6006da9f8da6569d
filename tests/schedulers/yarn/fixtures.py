"""YARN as the contract suite uses it: masters in the test's own process.

The ResourceManager starts each master as it does for a job, but what runs in its container only
sleeps, and leaves its credentials where the test finds them: the pool that uses them lives here.
To end that sleep is to kill a master.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tarfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from tests.cluster.hadoop.cluster import Hadoop
from tests.schedulers.contract import SECRET, Harness, Master, harness_job, until
from tests.schedulers.standin import make_runtime
from tony_core.files import registry
from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.hadoop.credentials import Credentials, am_rm_token
from tony_core.hadoop.identity import cluster_identity, container_identity
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import AM_RM, attempt_of
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.hadoop.yarn.launch import Launch as Context
from tony_core.hadoop.yarn.messages.client_calls import ApplicationSubmissionContext
from tony_core.hadoop.yarn.messages.resource_requests import ResourceRequest
from tony_core.hadoop.yarn.messages.yarn import Priority
from tony_core.hadoop.yarn.records import Capability
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.job.spec import Job, MasterSpec, Resources, Runtime
from tony_core.schedulers import container_pool
from tony_core.schedulers.yarn.client.delegation_tokens import job_tokens
from tony_core.schedulers.yarn.client.scheduler import YarnScheduler
from tony_core.schedulers.yarn.master import heartbeat
from tony_core.schedulers.yarn.master.application import Application
from tony_core.schedulers.yarn.master.launch_context import RUNTIME, LaunchContexts
from tony_core.schedulers.yarn.master.pool_factory import connect_pool

SLEEP = "import time; time.sleep(3600)"
MOST_MB = 8192  # the largest container that the fixture's ResourceManager gives


class YarnMasters:
    """Masters on a cluster, in this process."""

    def __init__(self, cluster: Hadoop, scratch: Path, queue: str = "default") -> None:
        self.cluster = cluster
        self.queue = queue
        self.user = cluster.user
        self.conf = SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir))
        self.identity = cluster_identity(self.conf, cluster.environment_of(cluster.user))
        self.client = RmClient.open(self.conf, identity=self.identity)
        self.scratch = scratch
        scratch.mkdir(parents=True, exist_ok=True)
        scratch.chmod(0o777)
        self.runtime = make_runtime(scratch / "runtime")
        self.superseded: List[str] = []
        self._masters: Dict[Master, ApplicationId] = {}

    def application(self, name: str = "contract", attempts: int = 2, **more: Any) -> ApplicationId:
        """One whose master sleeps."""
        found = self.client.new_application().id
        here = f"{self.scratch}/$CONTAINER_ID"
        command = (
            f"cp $HADOOP_TOKEN_FILE_LOCATION {here}.new && echo $$ > {here}.pid"
            f" && mv {here}.new {here}.token && exec sleep 3600"
        )
        small = Capability(64, 1).to_message()
        context = ApplicationSubmissionContext(
            application_id=found.to_message(),
            application_name=name,
            queue=self.queue,
            application_type="TONY",
            am_container_spec=Context((command,), credentials=self._tokens()).to_message(),
            resource=small,
            am_container_resource_request=[
                ResourceRequest(
                    priority=Priority(priority=0),
                    resource_name="*",
                    capability=small,
                    num_containers=1,
                )
            ],
            max_app_attempts=attempts,
            keep_containers_across_application_attempts=True,
        )
        self.client.submit(context.replace(**more))
        return found

    def _tokens(self) -> Credentials:
        """What a submit gives an application; nothing on an open cluster."""
        if not self.identity.is_secure:
            return Credentials()
        services = [endpoints.name_service(self.conf)]
        return Credentials(job_tokens(self.conf, self.identity, self.client, services))

    def credentials(self, application: ApplicationId, attempt: int) -> Credentials:
        """What the master of an attempt was given, once there is one."""
        path = until(lambda: self._file(application, attempt, "token"), f"attempt {attempt}")
        return Credentials.decode(path.read_bytes())

    def open(
        self,
        application: ApplicationId,
        attempt: int = 1,
        job: Optional[Job] = None,
        host: str = "localhost",
        **more: Any,
    ) -> Master:
        """A started pool with an attempt's credentials."""
        held = self.credentials(application, attempt)
        token = am_rm_token(held)
        assert token is not None
        number = attempt_of(token)
        assert number is not None
        job = job or harness_job()
        pool = connect_pool(
            self.conf,
            Application(
                attempt=number,
                user=self.user,
                max_attempts=2,
                host=host,
                with_port=self.conf.boolean("yarn.scheduler.include-port-in-node-name", False),
                placement_spec=job.placement_spec,
            ),
            job,
            LaunchContexts(
                python=sys.executable,
                runtime=str(self.runtime),
                credentials=Credentials(held.without(AM_RM).tokens),
            ),
            token,
            container_identity(self.conf, self.user, held),
            superseded=self.superseded.append,
            **more,
        )
        master = Master(pool)
        self._masters[master] = application
        return master.start()

    def application_of(self, master: Master) -> ApplicationId:
        """Whose it is."""
        return self._masters[master]

    def kill_master(self, application: ApplicationId, attempt: int) -> None:
        """What runs in its container."""
        path = until(lambda: self._file(application, attempt, "pid"), f"attempt {attempt}")
        os.kill(int(path.read_text()), signal.SIGKILL)

    def _file(self, application: ApplicationId, attempt: int, kind: str) -> Optional[Path]:
        words = str(application).partition("_")[2]
        found = sorted(self.scratch.glob(f"container_*{words}_{attempt:02d}_*.{kind}"))
        return found[0] if found else None

    def close(self) -> None:
        """End what the test left to its fixture."""
        for master, application in self._masters.items():
            master.close()
            self.client.kill(application)
        self.client.close()


class YarnHarness(Harness):
    """Masters in this process (:class:`YarnMasters`), and applications as users submit them."""

    sweeps = False
    at_once = False

    def __init__(
        self, cluster: Hadoop, scratch: Path, queue: str = "default", most_mb: int = MOST_MB
    ) -> None:
        self.masters = YarnMasters(cluster, scratch, queue)
        self._most_mb = most_mb
        env = cluster.environment_of(cluster.user)
        self.scheduler = YarnScheduler({**env, "PATH": os.environ["PATH"]})
        self._submitted: List[str] = []

    def master(self, name: str = "first") -> Master:
        return self.masters.open(self.masters.application(name))

    def next_master(self, master: Master) -> Master:
        application = self.masters.application_of(master)
        self.masters.kill_master(application, 1)
        return self.masters.open(application, 2)

    def acknowledged(self) -> None:
        time.sleep(2 * heartbeat.SLOW_S + 0.5)

    def most_memory_mb(self) -> int:
        return self._most_mb

    def artifacts(self) -> List[Artifact]:
        return [self._stage("", "contract")]

    def events_file(self, app_id: str) -> Path:
        return self.masters.scratch / f"events-{app_id}.jsonl"

    def submit(self, **instructions: Any) -> str:
        attempts = instructions.pop("attempts", 2)
        job = harness_job().replace(
            scheduler="yarn",
            queue=self.masters.queue,
            master=MasterSpec(Resources(memory_mb=128), max_attempts=attempts),
            runtime=Runtime(python=sys.executable),
        )
        app_id = self.scheduler.new_app_id(job)
        instructions["events_file"] = str(self.events_file(app_id))
        artifacts = [self._stage(json.dumps(instructions), f"apps/{app_id}")]
        self.scheduler.submit(app_id, self.scheduler.dry_run(app_id, job, artifacts), SECRET)
        self._submitted.append(app_id)
        return app_id

    def _stage(self, instructions: str, place: str) -> Artifact:
        """Our code with the stand-in master in the real one's place, and its instructions."""
        beside = self.masters.runtime / "tests" / "schedulers" / "instructions.json"
        beside.write_text(instructions)
        packed = self.masters.scratch / "tony-runtime.tar"
        with tarfile.open(packed, "w", dereference=True) as tar:
            for one in sorted(self.masters.runtime.iterdir()):
                tar.add(one, one.name, filter=_no_bytecode)
        folder = f"{self.scheduler.staging_root(harness_job())}/{place}"
        location = f"{folder}/{packed.name}"
        files = registry.filesystem(location)
        files.mkdir(folder, 0o700)
        files.upload(str(packed), location)
        stat = files.stat(location)
        return Artifact(
            RUNTIME, Use.RUNTIME, Kind.ARCHIVE, str(packed), location, "", stat.size, stat.mtime_ms
        )

    def kill_master(self, app_id: str) -> None:
        os.kill(until(lambda: master_pid(app_id), "the master's process"), signal.SIGKILL)

    def close(self) -> None:
        for app_id in self._submitted:
            self.scheduler.kill(app_id, "the test is over")
        self.scheduler.close()
        self.masters.close()


def _no_bytecode(info: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
    return None if "__pycache__" in info.name else info


def master_pid(app_id: str) -> Optional[int]:
    """The process that is the master of an application, on this machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                folder = os.readlink(entry / "cwd")
            except OSError:
                continue
            if words[3:6] == [b"tony-runtime", b"yarn-start", b"master"] and app_id in folder:
                return int(entry.name)
    return None


def fill(masters: YarnMasters, memory_mb: int, code: str = SLEEP) -> Master:
    """An application that holds so much, so that what is left is what one may have."""
    master = masters.open(masters.application("filler"))
    (container,) = master.get(resources=Resources(memory_mb=memory_mb))
    master.launch(container, code)
    master.next(container_pool.Started)
    return master


@contextmanager
def busy_neighbours(cluster: Hadoop, scratch: Path) -> Iterator[None]:
    """Two applications with a third of a node each, that compute as fast as they can."""
    masters = YarnMasters(cluster, scratch)
    try:
        for _ in range(2):
            fill(masters, 5120, "import os; os.nice(10)\nwhile True: pass")
        yield
    finally:
        masters.close()

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
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional

from tests.cluster.hadoop.cluster import Hadoop
from tests.schedulers.contract import Harness, Master, harness_job, until
from tests.schedulers.standin import make_runtime
from tony_core.files.artifact import Artifact
from tony_core.hadoop.credentials import Credentials, am_rm_token
from tony_core.hadoop.ids import ApplicationId
from tony_core.hadoop.launch import Launch as Context
from tony_core.hadoop.messages.asks import ResourceRequest
from tony_core.hadoop.messages.client_calls import ApplicationSubmissionContext
from tony_core.hadoop.messages.yarn import Priority
from tony_core.hadoop.records import Capability
from tony_core.hadoop.rm_client import RmClient
from tony_core.hadoop.siteconf import SiteConfiguration
from tony_core.hadoop.tokens import attempt_of
from tony_core.hadoop.wire import User
from tony_core.job.spec import Job, Resources
from tony_core.schedulers import port
from tony_core.schedulers.yarn.context import Contexts
from tony_core.schedulers.yarn.opening import pool_of
from tony_core.schedulers.yarn.pool import Application, YarnPool

SUPERVISED = Path(__file__).with_name("supervised.py")
MOST_MB = 8192  # the largest container that the fixture's ResourceManager gives
START = '    "yarn-start": "tony_core.schedulers.yarn.start",\n'


class Supervised(YarnPool):
    """A pool whose launches are of programs that leave nothing, as our executor is one."""

    def launch(self, container: port.Container, launch: port.Launch) -> None:
        env = {**launch.env, "SUPERVISED": json.dumps(launch.argv)}
        argv = (sys.executable, "-I", "-S", str(SUPERVISED))
        super().launch(container, replace(launch, argv=argv, env=env))


class YarnMasters:
    """Masters on a cluster, in this process."""

    def __init__(self, cluster: Hadoop, scratch: Path) -> None:
        self.cluster = cluster
        self.user = cluster.user
        self.conf = SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir))
        self.client = RmClient.open(self.conf, user=User(cluster.user))
        self.scratch = scratch
        scratch.mkdir(parents=True, exist_ok=True)
        scratch.chmod(0o777)
        self.runtime = make_runtime(scratch / "runtime")
        main = self.runtime / "__main__.py"
        main.write_text(main.read_text().replace("VERBS = {\n", "VERBS = {\n" + START))
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
        small = Capability(64, 1).message()
        context = ApplicationSubmissionContext(
            application_id=found.message(),
            application_name=name,
            queue="default",
            application_type="TONY",
            am_container_spec=Context((command,)).message(),
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
        token = am_rm_token(self.credentials(application, attempt))
        assert token is not None
        number = attempt_of(token)
        assert number is not None
        job = job or harness_job()
        pool = pool_of(
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
            Contexts(python=sys.executable, runtime=str(self.runtime)),
            token,
            kind=Supervised,
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
    """See :class:`YarnMasters`."""

    def __init__(self, cluster: Hadoop, scratch: Path) -> None:
        self.masters = YarnMasters(cluster, scratch)

    def master(self, name: str = "first") -> Master:
        return self.masters.open(self.masters.application(name))

    def next_master(self, master: Master) -> Master:
        application = self.masters.application_of(master)
        self.masters.kill_master(application, 1)
        return self.masters.open(application, 2)

    def most_memory_mb(self) -> int:
        return MOST_MB

    def submit(self, **orders: Any) -> str:
        raise NotImplementedError

    def artifacts(self) -> List[Artifact]:
        raise NotImplementedError

    def kill_master(self, app_id: str) -> None:
        self.masters.kill_master(ApplicationId.parse(app_id), 1)

    def close(self) -> None:
        self.masters.close()


def fill(masters: YarnMasters, memory_mb: int) -> Master:
    """An application that holds so much, so that what is left is what one may have."""
    master = masters.open(masters.application("filler"))
    (container,) = master.get(resources=Resources(memory_mb=memory_mb))
    master.launch(container, "import time; time.sleep(3600)")
    master.next(port.Started)
    return master

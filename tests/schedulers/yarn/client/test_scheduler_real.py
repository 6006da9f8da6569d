"""The client's side on a real cluster: every refusal, every wait, other versions, failures."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.site import read_site, write_site
from tests.schedulers.yarn.clusters import RUNTIME, job, role
from tony_core.files import registry
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.hadoop.yarn.launch import Launch
from tony_core.hadoop.yarn.messages.client_calls import ApplicationSubmissionContext
from tony_core.hadoop.yarn.records import Capability
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.job.spec import Docker, Job, MasterSpec, Resources, Timeouts, Yarn
from tony_core.schedulers.port import AppState, NoSuchApplication, SchedulerError
from tony_core.schedulers.yarn.client.scheduler import YarnScheduler

pytestmark = pytest.mark.cluster

FEATURES = ("two_nodes", "gpu", "queues", "labels")
SECRET = b"s" * 32
SMALL = MasterSpec(resources=Resources(memory_mb=64))

Open = Callable[..., YarnScheduler]


@pytest.fixture
def open_on() -> Iterator[Open]:
    opened: List[YarnScheduler] = []

    def make(cluster: Hadoop, conf_dir: Path | None = None, **env: str) -> YarnScheduler:
        places = {"HADOOP_CONF_DIR": str(conf_dir or cluster.conf_dir)}
        one = YarnScheduler({**places, "HADOOP_USER_NAME": cluster.user, **env})
        opened.append(one)
        return one

    yield make
    for one in opened:
        one.close()
    registry.forget()


@pytest.fixture
def hold() -> Iterator[Callable[..., str]]:
    """Applications whose masters do nothing, so that others have to wait."""
    clients: List[RmClient] = []

    def submit(cluster: Hadoop, queue: str, memory: int, **more: Any) -> str:
        conf = SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir))
        client = RmClient.open(conf, identity=ClusterIdentity(more.pop("user", cluster.user)))
        clients.append(client)
        app = client.new_application().id
        client.submit(
            ApplicationSubmissionContext(
                application_id=app.to_message(),
                application_name="holds",
                queue=queue,
                am_container_spec=Launch(("sleep 300",)).to_message(),
                resource=Capability(memory, 1).to_message(),
                max_app_attempts=1,
                application_type=more.pop("type", "HOLDS"),
                **more,
            )
        )
        until(lambda: client.report(app).state == "ACCEPTED")
        return str(app)

    yield submit
    for client in clients:
        client.close()


def until(what: Callable[[], Any], limit: float = 60.0) -> Any:
    end = time.monotonic() + limit
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def submit(scheduler: YarnScheduler, wanted: Job) -> str:
    """Without a check, as in a race; the artifact is not there, so that no master ever runs."""
    app_id = scheduler.new_app_id(wanted)
    runtime = RUNTIME._replace(uri=f"{scheduler.staging_root(wanted)}/store/objects/no/no.tar")
    scheduler.submit(app_id, scheduler.dry_run(app_id, wanted, (runtime,)), SECRET)
    return app_id


@pytest.mark.parametrize("version", ["3.4.2", "3.3.6"])
class TestRefused:
    """Before anything is staged; and by the ResourceManager, where nothing was checked before."""

    def test_everything_that_is_known_before(
        self, hadoop: GetHadoop, open_on: Open, version: str
    ) -> None:
        opened = open_on(hadoop(*FEATURES, version=version))

        def problems(*roles: Any, **more: Any) -> str:
            # 3.3 says a queue's own name, 3.4 its path.
            return "; ".join(opened.check(job(*roles, **more))).replace("root.", "")

        assert problems(role(instances=2)) == ""
        assert problems(role(gpus=2, node_label="gpu"), role("ps", 2)) == ""
        assert problems(role(docker=Docker("image:1"))) == ""
        assert problems(role(instances=3, gpus=2, node_label="gpu")) == (
            "the job asks for 6 GPUs in all (worker 3 x 2); the nodes labelled gpu have 4 on 1 node"
        )
        # What is the most is not known to a ResourceManager that has just been started.
        assert re.search(r"5 GPUs in a container; .* 4 GPUs", problems(role(gpus=5)))
        assert "tony.worker.memory: worker asks for 9000 MB" in problems(role(memory=9000))
        assert "gives 8192 MB of memory at most" in problems(role(memory=9000))
        assert "tony.worker.vcores: worker asks for 99 vcores" in problems(role(vcores=99))
        assert "asks for fpga, which this cluster does not count" in (
            problems(role(other={"fpga": 1}))
        )
        assert "there is no queue tinny; did you mean tiny?" in problems(queue="tinny")
        assert "the queue closed is stopped and takes no applications" in problems(queue="closed")
        assert "may not submit to the queue private" in problems(queue="private")
        assert "submit to one of its children: " in problems(queue="ml")
        assert problems(queue="root.ml.train") == problems(queue="train") == ""
        assert "has no node label tpu; it has: gpu, reserved" in problems(node_label="tpu")
        assert "may not use the node label reserved" in problems(node_label="reserved")
        assert "may not use the node label gpu" in problems(queue="tiny", node_label="gpu")

    def test_the_resource_managers_own_refusals(
        self, hadoop: GetHadoop, open_on: Open, version: str
    ) -> None:
        opened = open_on(hadoop(*FEATURES, version=version))

        def reason(**more: Any) -> str:
            with pytest.raises(SchedulerError) as caught:
                submit(opened, job(**more))
            return str(caught.value).replace("root.", "")

        assert "there is no queue nowhere; name one by tony.yarn.queue" in reason(queue="nowhere")
        assert "ml is not a leaf queue" in reason(queue="ml")
        assert "the queue closed is stopped" in reason(queue="closed")
        assert "may not submit to the queue" in reason(queue="private")
        assert "the node label reserved" in reason(node_label="reserved")
        big = MasterSpec(resources=Resources(memory_mb=9000))
        assert "maximum allocation <memory:8192" in reason(master=big)

    def test_a_queue_that_takes_no_more(
        self, hadoop: GetHadoop, open_on: Open, hold: Callable[..., str], version: str
    ) -> None:
        cluster = hadoop(*FEATURES, version=version)
        opened = open_on(cluster)
        for _ in range(2):
            hold(cluster, "tiny", 64)
        with pytest.raises(SchedulerError) as caught:
            submit(opened, job(queue="tiny", master=SMALL))
        assert "tiny holds 2 applications already" in str(caught.value)


class TestWaiting:
    def test_the_queues_share_for_masters(
        self, hadoop: GetHadoop, open_on: Open, hold: Callable[..., str]
    ) -> None:
        cluster = hadoop(*FEATURES)
        opened = open_on(cluster)
        hold(cluster, "tiny", 256)
        app_id = submit(
            opened, job(queue="tiny", master=MasterSpec(resources=Resources(memory_mb=512)))
        )

        def waits() -> str:
            status = opened.status(app_id)
            assert status.state is AppState.ACCEPTED
            return status.diagnostics if "may hold" in status.diagnostics else ""

        reason = until(waits)
        assert reason.startswith("waits: ")
        assert "MB of memory" in reason
        assert "they hold 256 MB of memory, 1 vcore, and this one wants 512 MB" in reason
        # Both wait until the first one's master has its container: until the next heartbeat.
        waiting = "1 application already waits in the queue root.tiny (1 run)"
        assert until(lambda: waiting in "\n".join(opened.warnings(job(queue="tiny"))))
        opened.kill(app_id, "enough of it")
        assert "enough of it" in opened.status(app_id).diagnostics

    def test_a_full_label(self, hadoop: GetHadoop, open_on: Open, hold: Callable[..., str]) -> None:
        cluster = hadoop(*FEATURES)
        opened = open_on(cluster)
        hold(cluster, "default", 8192, node_label_expression="gpu")

        def reason() -> List[str]:
            wanted = role(instances=2, memory=6000, node_label="gpu")
            return opened.warnings(job(wanted))

        until(lambda: any("of 16384 are free" in line for line in reason()))
        assert reason()[0] == (
            "the job will wait: it asks for 12000 MB of memory, and 8192 of 16384 are free in the"
            " nodes labelled gpu now"
        )


@pytest.mark.parametrize("version", ["3.4.2", "3.3.6"])
def test_an_application_is_what_was_asked(hadoop: GetHadoop, open_on: Open, version: str) -> None:
    cluster = hadoop(*FEATURES, version=version)
    opened = open_on(cluster)
    wanted = job(
        queue="train",
        tags=("Nightly",),
        master=SMALL,
        timeouts=Timeouts(application_s=1000.0),
        yarn=Yarn(priority=3, view_acl="bob"),
    )
    assert opened.check(wanted) == []
    app_id = submit(opened, wanted)
    report = cluster.application(app_id)
    assert (report["name"], report["applicationType"], report["user"]) == (
        "mnist",
        "TONY",
        cluster.user,
    )
    assert report["queue"].rpartition(".")[2] == "train"
    assert report["applicationTags"] == "nightly"
    (timeout,) = report["timeouts"]["timeout"]
    assert 900 < timeout["remainingTimeInSeconds"] <= 1070
    status = opened.status(app_id)
    assert (status.name, status.tags, status.type) == ("mnist", ("nightly",), "TONY")
    assert app_id in [one.app_id for one in opened.list()]
    opened.kill(app_id, "that will do")
    opened.kill(app_id, "again")
    ended = opened.status(app_id)
    assert ended.state is AppState.KILLED
    assert "that will do" in ended.diagnostics
    assert ended.finished is not None


def test_a_job_of_another_type_is_listed_too(hadoop: GetHadoop, open_on: Open) -> None:
    cluster = hadoop(*FEATURES)
    opened = open_on(cluster)
    app_id = submit(opened, job(type="SPEECH", tags=("Nightly",), master=SMALL))
    report = cluster.application(app_id)
    assert report["applicationType"] == "SPEECH"
    assert set(report["applicationTags"].split(",")) == {"nightly", "tony"}
    assert [one.app_id for one in opened.list()].count(app_id) == 1
    opened.kill(app_id, "that will do")


def test_a_lifetime_that_yarn_ends(
    hadoop: GetHadoop, open_on: Open, hold: Callable[..., str]
) -> None:
    from tony_core.hadoop.yarn.messages.client_calls import ApplicationTimeoutMap

    cluster = hadoop(*FEATURES)
    opened = open_on(cluster)
    timeout = ApplicationTimeoutMap(application_timeout_type=1, timeout=1)
    app_id = hold(cluster, "default", 64, application_timeouts=[timeout])
    assert until(lambda: opened.status(app_id).state.ended)
    assert opened.status(app_id).state is AppState.TIMED_OUT


def test_another_users_application(
    hadoop: GetHadoop, open_on: Open, hold: Callable[..., str]
) -> None:
    cluster = hadoop(*FEATURES)
    app_id = hold(cluster, "default", 64)
    other = open_on(cluster, HADOOP_USER_NAME="mallory")
    with pytest.raises(SchedulerError, match=f"mallory may not end {app_id}, which belongs to"):
        other.kill(app_id, "for fun")


def test_an_unknown_application(hadoop: GetHadoop, open_on: Open) -> None:
    opened = open_on(hadoop(*FEATURES))
    for call in (opened.status, lambda one: opened.kill(one, "x")):
        with pytest.raises(NoSuchApplication, match="does not know it"):
            call("application_1_0001")


class TestByTheWeb:
    """The ResourceManager's RPC port is closed to us, its web server is not."""

    @pytest.fixture
    def by_web(self, hadoop: GetHadoop, open_on: Open, tmp_path: Path) -> YarnScheduler:
        cluster = hadoop(*FEATURES)
        for path in cluster.conf_dir.glob("*-site.xml"):
            values = read_site(path)
            if "yarn.resourcemanager.address" in values:
                values["yarn.resourcemanager.address"] = "localhost:1"
            write_site(tmp_path / path.name, values)
        return open_on(cluster, tmp_path)

    def test_from_the_check_to_the_kill(self, by_web: YarnScheduler) -> None:
        wanted = job(tags=("web",), timeouts=Timeouts(application_s=1000.0))
        assert by_web.check(wanted) == []
        (warning,) = by_web.warnings(wanted)
        assert "localhost:1: connection refused" in warning
        app_id = submit(by_web, wanted)
        status = by_web.status(app_id)
        assert (status.name, status.tags, status.type) == ("mnist", ("web",), "TONY")
        assert app_id in [one.app_id for one in by_web.list()]
        by_web.kill(app_id, "that will do")
        assert by_web.status(app_id).state is AppState.KILLED
        with pytest.raises(NoSuchApplication):
            by_web.status("application_1_0001")

    def test_what_it_cannot_carry(self, by_web: YarnScheduler) -> None:
        wanted = job(master=MasterSpec(resources=Resources(memory_mb=64, gpus=1)))
        (problem,) = by_web.check(wanted)
        assert "RPC port cannot be reached from here" in problem
        with pytest.raises(SchedulerError, match="a master cannot ask for yarn"):
            submit(by_web, wanted)

    def test_refusals_are_the_same(self, by_web: YarnScheduler) -> None:
        with pytest.raises(SchedulerError, match="there is no queue nowhere"):
            submit(by_web, job(queue="nowhere"))


def test_the_resource_manager_is_down(hadoop: GetHadoop, open_on: Open) -> None:
    cluster = hadoop(*FEATURES)
    cluster.kill("rm0")
    opened = open_on(cluster)
    with pytest.raises(SchedulerError) as caught:
        opened.check(job())
    assert "the ResourceManager cannot be reached (4 attempts): localhost:" in str(caught.value)
    assert "connection refused. yarn.resourcemanager.address says so in" in str(caught.value)


def test_a_pair_that_fails_over(hadoop: GetHadoop, open_on: Open, hold: Callable[..., str]) -> None:
    cluster = hadoop("rm_ha")
    opened = open_on(cluster)
    app_id = hold(cluster, "default", 64, type="TONY")
    assert opened.status(app_id).state is AppState.ACCEPTED
    active = cluster.active_rm()
    cluster.kill(active)
    assert opened.status(app_id).app_id == app_id  # the one who waits is the caller
    assert open_on(cluster).status(app_id).app_id == app_id
    assert app_id in [one.app_id for one in opened.list()]
    assert ApplicationId.parse(opened.new_app_id(job())).number > 0
    opened.kill(app_id, "enough")
    assert opened.status(app_id).state is AppState.KILLED

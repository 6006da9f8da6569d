"""The client's side without a cluster: what it refuses, keeps, undoes and asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest

from tests.schedulers.yarn import clusters
from tests.schedulers.yarn.clusters import RUNTIME, artifact, job
from tony_core.bundle import jobfolder
from tony_core.files import registry
from tony_core.files.port import Stat
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.errors import AccessDenied, Unreachable, remote_error
from tony_core.hadoop.tokens import HDFS_DELEGATION, RM_DELEGATION, Token
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId, NodeId
from tony_core.hadoop.yarn.messages.client_calls import ApplicationSubmissionContext
from tony_core.hadoop.yarn.messages.reports import ApplicationReport
from tony_core.hadoop.yarn.messages.reports import NodeReport as NodeReportMessage
from tony_core.hadoop.yarn.messages.yarn import YARNDelegationTokenIdentifier
from tony_core.hadoop.yarn.records import (
    AppReport,
    AttemptReport,
    Capability,
    ContainerReport,
    NewApplication,
    NodeReport,
    Queue,
    ResourceType,
)
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.job.spec import History, Yarn
from tony_core.schedulers.port import (
    AppState,
    AppStatus,
    LastingRefusal,
    LogRef,
    NoSuchApplication,
    SchedulerError,
)
from tony_core.schedulers.yarn import job_credentials
from tony_core.schedulers.yarn.client import kill, resource_manager
from tony_core.schedulers.yarn.client import submission as submitting
from tony_core.schedulers.yarn.client.resource_manager import RpcResourceManager
from tony_core.schedulers.yarn.client.scheduler import YarnScheduler


class NoFiles:
    def close(self) -> None:
        pass


CHECKOUT = Path(__file__).resolve().parents[4]
APP = ApplicationId(1700000000000, 42)
ATTEMPT = AttemptId(APP, 1)
MASTER = ContainerId(ATTEMPT, 1)


class Rm(RmClient):
    """A ResourceManager that says what a test wants, and records its calls."""

    def __init__(self) -> None:
        self.submitted: List[ApplicationSubmissionContext] = []
        self.killed: List[str] = []
        self.calls: List[str] = []
        self.states = ["SUBMITTED", "ACCEPTED"]
        self.diagnostics = ""
        self.refuse: Optional[Exception] = None
        self.attempt: Optional[AttemptId] = None
        self.ids = iter(range(42, 99))

    def new_application(self) -> NewApplication:
        self.calls.append("new")
        return NewApplication(ApplicationId(APP.cluster, next(self.ids)), Capability(8192, 8))

    def submit(self, context: ApplicationSubmissionContext) -> None:
        self.calls.append("submit")
        if self.refuse is not None:
            raise self.refuse
        self.submitted.append(context)

    def report(self, application: ApplicationId) -> AppReport:
        self.calls.append("report")
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        empty = AppReport.from_message(ApplicationReport(application_id=application.to_message()))
        return empty._replace(
            state=state,
            user="ada",
            diagnostics=self.diagnostics,
            final_status="FAILED",
            attempt=self.attempt,
        )

    def applications(self, **wanted: Any) -> List[AppReport]:
        self.calls.append(f"applications {wanted}")
        return [self.report(APP)]

    def kill(
        self, application: ApplicationId, diagnostics: str = "", *, within_s: float = 30.0
    ) -> None:
        self.killed.append(f"{application}: {diagnostics}")

    def attempts(self, application: ApplicationId) -> List[AttemptReport]:
        return [AttemptReport(ATTEMPT, "RUNNING", MASTER, "", "")]

    def containers(self, attempt: AttemptId) -> List[ContainerReport]:
        node = NodeId("one", 45454)
        return [ContainerReport(MASTER, node, "", Capability(), "RUNNING", 0, "", "http://one/l")]

    def queue(self, name: str, *, children: bool = False) -> Optional[Queue]:
        self.calls.append("queue")
        return clusters.queue()

    def queue_acls(self) -> Dict[str, set[str]]:
        return {"root.ml": {"SUBMIT_APPLICATIONS"}}

    def resource_types(self) -> List[ResourceType]:
        return []

    def nodes(self, states: Any = ()) -> List[NodeReport]:
        return []

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    write(tmp_path, "core-site", {"fs.defaultFS": "hdfs://lake:8020"})
    write(tmp_path, "yarn-site", {"yarn.resourcemanager.hostname": "rm"})
    return tmp_path


def write(folder: Path, name: str, values: Dict[str, str]) -> None:
    rows = "".join(
        f"<property><name>{key}</name><value>{value}</value></property>"
        for key, value in values.items()
    )
    (folder / f"{name}.xml").write_text(f"<configuration>{rows}</configuration>")


@pytest.fixture
def scheduler(conf: Path) -> Iterator[YarnScheduler]:
    opened = opened_in(conf)
    yield opened
    opened.close()
    registry.forget()


def opened_in(conf: Path) -> YarnScheduler:
    return YarnScheduler({"HADOOP_CONF_DIR": str(conf), "HADOOP_USER_NAME": "ada"})


@pytest.fixture
def rm(scheduler: YarnScheduler) -> Rm:
    made = Rm()
    scheduler._rm = RpcResourceManager(made, scheduler._conf, "ada")
    return made


class TestConfiguration:
    def test_none_at_all(self, tmp_path: Path) -> None:
        with pytest.raises(SchedulerError) as caught:
            opened_in(tmp_path / "nowhere")
        read = str(caught.value)
        assert f"HADOOP_CONF_DIR ({tmp_path}/nowhere, which does not exist)" in read
        assert "no file was found" in read
        assert read.endswith("Set HADOOP_CONF_DIR to the cluster's configuration")

    def test_kerberos(self, conf: Path) -> None:
        write(conf, "core-site", {"hadoop.security.authentication": "kerberos"})
        env = {"HADOOP_CONF_DIR": str(conf), "KRB5CCNAME": "FILE:/nowhere/cache"}
        with pytest.raises(LastingRefusal) as caught:
            YarnScheduler(env)
        assert str(caught.value) == (
            "there is no Kerberos ticket in the ticket cache FILE:/nowhere/cache: get one by kinit,"
            " or name a keytab (--principal, --keytab)"
        )

    def test_a_file_that_cannot_be_read(self, conf: Path) -> None:
        (conf / "core-site.xml").write_text("<configuration>")
        with pytest.raises(SchedulerError, match="is not well-formed"):
            opened_in(conf)

    def test_no_hdfs(self, conf: Path) -> None:
        write(conf, "core-site", {"fs.defaultFS": "s3a://bucket"})
        opened = opened_in(conf)
        opened._rm = RpcResourceManager(Rm(), opened._conf, "ada")
        (problem,) = opened.check(job(queue="ml"))
        assert problem.startswith("jobs for YARN are staged on HDFS: s3a://bucket is on no HDFS")
        assert opened.history_root() is None

    def test_viewfs_whose_home_is_on_no_hdfs(self, conf: Path) -> None:
        """A job that names one of its roots is staged there; any other is refused in one line."""
        root = "fs.viewfs.mounttable.all.link./data"
        write(conf, "core-site", {"fs.defaultFS": "viewfs://all", root: "hdfs://nn1:8020/d"})
        opened = opened_in(conf)
        opened._rm = RpcResourceManager(Rm(), opened._conf, "ada")
        (problem,) = opened.check(job(queue="ml"))
        assert "tony.yarn.staging-dir" in problem and "hdfs://nn1:8020/d" in problem
        assert "\n" not in problem
        for named in ("hdfs://nn1:8020/d/ada", "/data/ada", "viewfs://all/data/ada"):
            its = job(queue="ml", yarn=Yarn(staging_dir=named))
            assert opened.check(its) == []
            assert opened.staging_root(its) == "hdfs://nn1:8020/d/ada"
            assert opened.history_root(its) == "hdfs://nn1:8020/d/ada/history"
        assert opened.history_root() is None


class TestPlaces:
    def test_below_the_users_home(self, scheduler: YarnScheduler) -> None:
        assert scheduler.staging_root(job()) == "hdfs://lake:8020/user/ada/.tony"
        assert scheduler.history_root() == "hdfs://lake:8020/user/ada/.tony/history"

    def test_below_the_users_home_behind_a_mount_table(self, conf: Path) -> None:
        link = {"fs.viewfs.mounttable.all.link./user": "hdfs://nn1:8020/home"}
        write(conf, "core-site", {"fs.defaultFS": "viewfs://all", **link})
        assert opened_in(conf).staging_root(job()) == "hdfs://nn1:8020/home/ada/.tony"

    @pytest.mark.parametrize(
        ("named", "root"),
        [
            ("/data/ada", "hdfs://lake:8020/data/ada"),
            ("hdfs://other/ada/", "hdfs://other/ada"),
        ],
    )
    def test_where_the_job_sets_it(self, scheduler: YarnScheduler, named: str, root: str) -> None:
        named_job = job(yarn=Yarn(staging_dir=named))
        assert scheduler.staging_root(named_job) == root
        assert scheduler.history_root(named_job) == f"{root}/history"

    def test_hdfs_is_opened_with_this_sites_settings(self, scheduler: YarnScheduler) -> None:
        assert type(registry.filesystem("hdfs://lake:8020/x")).__name__ == "WebHdfsFileSystem"


OURS = RUNTIME._replace(uri="hdfs://lake:8020/user/ada/.tony/store/objects/a/runtime.tar")


def test_a_second_client_takes_no_files_from_the_first(conf: Path, tmp_path: Path) -> None:
    try:
        first, second = opened_in(conf), opened_in(conf)
        held = registry.filesystem("hdfs://lake:8020/x")
        opened_in(conf).close()
        assert registry.filesystem("hdfs://lake:8020/x") is held
        other = YarnScheduler({"HADOOP_CONF_DIR": str(conf), "HADOOP_USER_NAME": "bob"})
        assert registry.filesystem("hdfs://lake:8020/x") is not held
        for one in (first, second, other):
            one.close()
    finally:
        registry.forget()


def submit(scheduler: YarnScheduler, **more: Any) -> str:
    wanted = job(**more)
    app_id = scheduler.new_app_id(wanted)
    scheduler.submit(app_id, scheduler.dry_run(app_id, wanted, (OURS,)), b"s" * 32)
    return app_id


class TestCallersTokens:
    """A submit on a secure cluster by HADOOP_TOKEN_FILE_LOCATION alone."""

    @pytest.fixture
    def scheduler(self, conf: Path, tmp_path: Path) -> Iterator[YarnScheduler]:
        secure = {
            "fs.defaultFS": "hdfs://lake:8020",
            "hadoop.security.authentication": "kerberos",
            "hadoop.security.token.service.use_ip": "false",
        }
        write(conf, "core-site", secure)
        owner = YARNDelegationTokenIdentifier(owner="ada@REALM").encode()
        tokens = {
            "one": Token(b"\0\x09ada@REALM\0\0", b"the password", HDFS_DELEGATION, "lake:8020"),
            "two": Token(owner, b"the password", RM_DELEGATION, "rm:8032"),
            "three": Token(b"x", b"the password", "kms-dt", "kms:9600"),
        }
        Credentials(tokens, {"s": b"another"}).write(str(tmp_path / "tokens"))
        env = {"HADOOP_CONF_DIR": str(conf), "HADOOP_TOKEN_FILE_LOCATION": str(tmp_path / "tokens")}
        opened = YarnScheduler(env)
        yield opened
        opened.close()
        registry.forget()

    def test_they_are_sent_and_stay_the_callers(self, scheduler: YarnScheduler, rm: Rm) -> None:
        submit(scheduler)
        sent = rm.submitted[0]
        assert sent.cancel_tokens_when_complete is False
        held = Credentials.decode(sent.am_container_spec.tokens)
        assert set(held.tokens) == {"lake:8020", "rm:8032", "three"}
        assert set(held.secrets) == {job_credentials.SECRET, job_credentials.JOB}

    def test_from_a_file_that_every_user_can_write_they_are_refused(
        self, scheduler: YarnScheduler, conf: Path, tmp_path: Path
    ) -> None:
        path = tmp_path / "tokens"
        path.chmod(0o602)
        env = {"HADOOP_CONF_DIR": str(conf), "HADOOP_TOKEN_FILE_LOCATION": str(path)}
        with pytest.raises(LastingRefusal, match=r"every user can write .*/tokens \(mode 602\)"):
            YarnScheduler(env)
        path.chmod(0o640)
        YarnScheduler(env).close()

    def test_a_dry_run_names_them(self, scheduler: YarnScheduler, rm: Rm) -> None:
        shown = scheduler.dry_run(str(APP), job(), (OURS,)).details
        assert "HDFS_DELEGATION_TOKEN for lake:8020" in shown["master"]["credentials"]
        assert "RM_DELEGATION_TOKEN for rm:8032" in shown["master"]["credentials"]
        assert shown["cancel_tokens_when_complete"] is False
        assert "password" not in repr(shown)
        assert rm.calls == []

    def test_a_job_that_needs_another_is_not_submitted(
        self, scheduler: YarnScheduler, rm: Rm
    ) -> None:
        with pytest.raises(SchedulerError) as caught:
            submit(scheduler, history=History(location="hdfs://other/stories"))
        assert "there is no token for the NameNode (other:8020)" in str(caught.value)
        assert "HDFS_DELEGATION_TOKEN for lake:8020" in str(caught.value)
        assert rm.submitted == rm.killed == []


class TestSubmitting:
    def test_an_id_is_asked_for_with_the_facts(self, scheduler: YarnScheduler, rm: Rm) -> None:
        wanted = job(queue="ml")
        assert scheduler.check(wanted) == []
        assert scheduler.warnings(wanted) == ["the job will wait: no node of the cluster runs now"]
        assert scheduler.new_app_id(wanted) == "application_1700000000000_0042"
        assert rm.calls.count("new") == rm.calls.count("queue") == 1
        assert scheduler.new_app_id(wanted) == "application_1700000000000_0043"

    def test_until_it_is_accepted(self, scheduler: YarnScheduler, rm: Rm) -> None:
        rm.states = ["NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED"]
        submit(scheduler)
        assert rm.calls == ["new", "submit", "report", "report", "report", "report"]
        assert rm.killed == []

    def test_the_master_finds_everything_in_its_credentials(
        self, scheduler: YarnScheduler, rm: Rm
    ) -> None:
        submit(scheduler)
        secrets = Credentials.decode(rm.submitted[0].am_container_spec.tokens).secrets
        assert secrets[job_credentials.SECRET] == b"s" * 32
        read = job_credentials.read_master_credentials(secrets)
        assert read.user == "ada"
        assert read.root == "hdfs://lake:8020/user/ada/.tony"
        assert read.history_root == f"{read.root}/history"
        assert read.site["yarn.resourcemanager.hostname"] == "rm"
        assert [one["visibility"] for one in read.artifacts] == ["PRIVATE"]

    def test_history_goes_to_the_jobs_folder(self, scheduler: YarnScheduler, rm: Rm) -> None:
        submit(scheduler, history=History(location="hdfs://lake/stories"))
        secrets = Credentials.decode(rm.submitted[0].am_container_spec.tokens).secrets
        assert (
            job_credentials.read_master_credentials(secrets).history_root == "hdfs://lake/stories"
        )

    def test_a_dry_run_shows_no_secret(self, scheduler: YarnScheduler, rm: Rm) -> None:
        shown = scheduler.dry_run(str(APP), job(), (OURS,)).details
        names = [line.partition(" ")[0] for line in shown["master"]["credentials"]]
        assert names == ["tony.secret", "tony.job"]
        assert rm.calls == []

    def test_a_long_job_is_a_file(
        self, scheduler: YarnScheduler, rm: Rm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done: List[str] = []

        class Files(NoFiles):
            def mkdir(self, location: str, mode: int) -> None:
                done.append(f"mkdir {location} {mode:o}")

            def put(self, location: str, data: bytes, mode: int) -> None:
                done.append(f"put {location} {mode:o}")

            def stat(self, location: str) -> Stat:
                return Stat(location, False, 5, 7000)

        packed = job_credentials.master_secrets
        monkeypatch.setattr(
            job_credentials, "master_secrets", lambda *given: packed(*given[:2], largest=10)
        )
        registry.register("hdfs", Files)  # type: ignore[arg-type]
        submit(scheduler)
        folder = f"hdfs://lake:8020/user/ada/.tony/apps/{APP}"
        assert done == [f"mkdir {folder} 700", f"put {folder}/tony-job.parcel 600"]
        files = {one.key: one.value for one in rm.submitted[0].am_container_spec.local_resources}
        job_file = files["tony-job.parcel"]
        assert (job_file.size, job_file.timestamp, job_file.visibility) == (5, 7000, 3)

    def test_refused_at_once(self, scheduler: YarnScheduler, rm: Rm) -> None:
        rm.refuse = remote_error(
            "org.apache.hadoop.security.AccessControlException",
            "User ada does not have permission to submit application_1_1 to queue private",
        )
        assert isinstance(rm.refuse, AccessDenied)
        with pytest.raises(SchedulerError, match="ada may not submit to the queue private"):
            submit(scheduler)

    def test_refused_a_little_later(self, scheduler: YarnScheduler, rm: Rm) -> None:
        rm.states = ["SUBMITTED", "FAILED"]
        rm.attempt = AttemptId(APP, -1)
        rm.diagnostics = f"Application {APP} submitted by user ada to unknown queue: mll"
        with pytest.raises(SchedulerError) as caught:
            submit(scheduler)
        assert str(caught.value) == (
            f"the cluster refused {APP}: there is no queue mll; name one by tony.yarn.queue"
        )

    def test_one_that_began_and_failed_was_accepted(self, scheduler: YarnScheduler, rm: Rm) -> None:
        rm.states = ["FAILED"]
        rm.attempt = ATTEMPT
        submit(scheduler)

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), Unreachable("gone", sent=True)])
    def test_nothing_is_left(self, scheduler: YarnScheduler, rm: Rm, error: BaseException) -> None:
        rm.refuse = error  # type: ignore[assignment]
        with pytest.raises((KeyboardInterrupt, SchedulerError)):
            submit(scheduler)
        assert rm.killed == [f"{APP}: its submission failed"]

    def test_not_accepted_in_time(
        self, scheduler: YarnScheduler, rm: Rm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(submitting, "ACCEPT_S", 0.02)
        rm.states = ["NEW_SAVING"]
        with pytest.raises(SchedulerError, match=r"not accepted .* within 0.02 s \(it is NEW_SAV"):
            submit(scheduler)
        assert len(rm.killed) == 1


class TestLooking:
    @pytest.mark.parametrize("app_id", ["local_2023_abc", "", "application_1"])
    def test_an_id_of_another_scheduler(self, scheduler: YarnScheduler, app_id: str) -> None:
        with pytest.raises(NoSuchApplication, match="is not the id of an application of YARN"):
            scheduler.status(app_id)

    def test_only_our_own_are_listed(self, scheduler: YarnScheduler, rm: Rm) -> None:
        """By their type, or the tag of those to which the job gives another; none twice."""
        (found,) = scheduler.list()
        assert found.app_id == str(APP)
        calls = [call for call in rm.calls if call.startswith("applications")]
        assert calls == [
            "applications {'types': ['TONY'], 'tags': (), 'states': ()}",
            "applications {'types': (), 'tags': ['tony'], 'states': ()}",
        ]

    def test_a_kill_is_sent_once(self, scheduler: YarnScheduler, rm: Rm) -> None:
        rm.states = ["ACCEPTED", "KILLED"]
        scheduler.kill(str(APP), "enough")
        scheduler.kill(str(APP), "enough")
        assert rm.killed == [f"{APP}: enough"]
        assert scheduler.status(str(APP)).state is AppState.KILLED

    def test_one_that_runs_is_asked_to_end(
        self, scheduler: YarnScheduler, rm: Rm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: List[Any] = []
        monkeypatch.setattr(kill, "kill_application", lambda rm, *read: calls.append(read))
        rm.states = ["RUNNING"]
        scheduler.kill(str(APP), "enough")
        folder = f"hdfs://lake:8020/user/ada/.tony/apps/{APP}"
        assert calls.pop() == (APP, "enough", "ada", True, folder)
        scheduler.user = "bob"
        scheduler.kill(str(APP), "enough")
        assert calls.pop() == (APP, "enough", "bob", True, None), "nothing is left at another's"

    def test_who_clears_after_whom(
        self, scheduler: YarnScheduler, rm: Rm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        removed: List[str] = []

        def remove(root: str, app_id: str) -> None:
            removed.append(f"{root}: {app_id}")
            raise PermissionError(13, "no", root)

        monkeypatch.setattr(jobfolder, "remove", remove)
        rm.states = ["KILLED"]
        over = scheduler.status(str(APP))
        assert scheduler.cleaner.remove_leftovers(over)
        assert scheduler.cleaner.remove_leftovers(over, job(yarn=Yarn(staging_dir="/data/ada")))
        assert removed == [
            f"hdfs://lake:8020/user/ada/.tony: {APP}",
            f"hdfs://lake:8020/data/ada: {APP}",
        ]
        assert not scheduler.cleaner.remove_leftovers(over._replace(user="bob"))
        assert not scheduler.cleaner.remove_leftovers(over._replace(state=AppState.RUNNING))
        assert len(removed) == 2

    def test_both_folders_go_where_a_job_is_staged_elsewhere(
        self, scheduler: YarnScheduler, rm: Rm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        removed: List[str] = []
        monkeypatch.setattr(jobfolder, "remove", lambda root, app_id: removed.append(root))
        rm.states = ["KILLED"]
        over = scheduler.status(str(APP))
        home = "hdfs://lake:8020/user/ada/.tony"
        assert scheduler.cleaner.remove_leftovers(over, job(yarn=Yarn(staging_dir="/data/ada")))
        assert removed == ["hdfs://lake:8020/data/ada", home], "who kills it looks for it at home"
        removed.clear()
        assert scheduler.cleaner.remove_leftovers(over, job())
        assert removed == [home]

    def test_what_yarn_knows_of_containers(self, scheduler: YarnScheduler, rm: Rm) -> None:
        assert scheduler.log_reader.list_containers(str(APP)) == [
            ("am", LogRef(str(MASTER), "one:45454", "http://one/l"))
        ]

    @pytest.mark.parametrize(
        ("call", "what"),
        [
            (lambda opened: opened.status(str(APP)), "the ResourceManager cannot be reached"),
            (lambda opened: opened.list(), "the ResourceManager cannot be reached"),
            (lambda opened: opened.check(job()), "the ResourceManager cannot be reached"),
        ],
    )
    def test_no_server_at_the_address(
        self,
        scheduler: YarnScheduler,
        monkeypatch: pytest.MonkeyPatch,
        call: Callable[[YarnScheduler], Any],
        what: str,
    ) -> None:
        monkeypatch.setattr(resource_manager, "_try_connect", lambda address: "connection refused")
        monkeypatch.setattr(resource_manager.time, "sleep", lambda seconds: None)
        with pytest.raises(SchedulerError) as caught:
            call(scheduler)
        assert what in str(caught.value)
        assert "rm:8032: connection refused" in str(caught.value)


def test_a_look_loads_nothing_of_the_web() -> None:
    code = (
        "import sys, tony_core.schedulers.yarn.client.scheduler;"
        "names = 'client.capacity client.checks client.rest client.submission logs.reader'.split();"
        "OURS = ['tony_core.schedulers.yarn.' + m for m in names];"
        "print(*[m for m in ('requests', 'urllib3', 'http.client', 'ssl', 'asyncio', *OURS)"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_artifacts_of_others_are_looked_at_once(scheduler: YarnScheduler, rm: Rm) -> None:
    calls: List[str] = []

    class Files(NoFiles):
        def stat(self, location: str) -> Stat:
            calls.append(location)
            return Stat(location, False, 1, 1, 0o755)

    registry.register("hdfs", Files)  # type: ignore[arg-type]
    shared = artifact("data", uri="hdfs://lake:8020/shared/data", roles=("am",))
    for _ in range(2):
        details = scheduler.dry_run(str(APP), job(), (OURS, shared)).details
        assert details["master"]["files"]["data"]["visibility"] == "PUBLIC"
    assert len(calls) == 3


class TestForAService:
    """What the portal asks: pages and nodes are only those that the cluster names."""

    STATUS = AppStatus(str(APP), "mnist", "ada", "default", AppState.RUNNING)

    def test_only_what_has_not_ended_is_listed(self, scheduler: YarnScheduler, rm: Rm) -> None:
        rm.states = ["RUNNING"]
        (found,) = scheduler.list_running()
        assert (found.state, scheduler.owner_of(found)) == (AppState.RUNNING, "ada")
        assert "'states': ('NEW', 'NEW_SAVING', 'SUBMITTED', 'ACCEPTED', 'RUNNING')" in rm.calls[0]
        rm.states = ["FINISHED"]  # meanwhile
        assert scheduler.list_running() == []

    def test_one_that_this_user_may_not_see_is_listed_with_the_refusal(
        self, scheduler: YarnScheduler, rm: Rm
    ) -> None:
        report = rm.report(APP)._replace(state="RUNNING", may_view=False)
        rm.applications = lambda **wanted: [report]  # type: ignore[method-assign]
        assert scheduler.list() == []
        (found,) = scheduler.list_running()
        assert "may not" in found.view_refusal

    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("http://rm:8088/proxy/application_1700000000000_0042/", True),
            ("http://rm:8088/proxy/application_1700000000000_0042/api/job?user.name=ada", True),
            ("http://RM:8088/proxy/application_1700000000000_0042/", True),
            ("http://rm:8088/proxy/application_1700000000000_0043/", False),
            ("http://rm:8088/proxy/application_1700000000000_0042/../../cluster", False),
            ("http://rm:8088/proxy/application_1700000000000_0042/%2e%2e/cluster", False),
            ("http://rm:8088/cluster", False),
            ("http://rm:8032/proxy/application_1700000000000_0042/", False),
            ("http://node7:8042/proxy/application_1700000000000_0042/", False),
            ("http://rm@node7:8088/proxy/application_1700000000000_0042/", False),
            ("http://rm:x/proxy/application_1700000000000_0042/", False),
            ("file:///proxy/application_1700000000000_0042/", False),
            ("", False),
        ],
    )
    def test_pages(self, scheduler: YarnScheduler, url: str, expected: bool) -> None:
        problem = scheduler.page_problem(self.STATUS, url)
        assert (problem == "") is expected, problem

    def test_links(self, scheduler: YarnScheduler) -> None:
        assert scheduler.application_url(str(APP)) == f"http://rm:8088/cluster/app/{APP}"
        assert scheduler.application_url("local_1_abc") == ""

    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("http://one:8042/node/containerlogs/c/ada", "http://one:8042"),
            ("http://ONE:8042/", "http://one:8042"),
            ("one:8042", "http://one:8042"),
            ("http://one:80/", ""),
            ("http://169.254.169.254/latest/meta-data", ""),
            ("http://one:8042@evil:80/", ""),
            ("http://one:x/", ""),
            ("http://[", ""),
            ("file:///etc/passwd", ""),
            ("", ""),
        ],
    )
    def test_nodes(self, scheduler: YarnScheduler, rm: Rm, url: str, expected: str) -> None:
        node = NodeReport.from_message(NodeReportMessage())._replace(http="one:8042")
        rm.nodes = lambda states=(): [node]  # type: ignore[method-assign]
        found = scheduler.log_reader.verified(LogRef("c", "one:45454", url))
        assert found == LogRef("c", "one:45454", expected)

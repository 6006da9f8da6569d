"""The hook, on the embedded scheduler and on clusters that are not there."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator, List, cast

import pytest

from tests.tony_airflow.conftest import Connect
from tony_airflow.connection import Site, SiteError
from tony_airflow.errors import as_airflow
from tony_airflow.hooks.tony import TonyHook
from tony_core.client.errors import UsageError
from tony_core.job.load import JobArguments
from tony_core.job.problems import JobError
from tony_core.schedulers.port import (
    AppState,
    AppStatus,
    LastingRefusal,
    NoSuchApplication,
    NoSuchScheduler,
    Scheduler,
    SchedulerError,
)

PATIENCE_S = 100.0
pytestmark = pytest.mark.timeout(200)
PYTHON = {"tony.worker.instances": "1", "tony.am.retry-count": "0"}


@pytest.fixture
def hook() -> Iterator[TonyHook]:
    """The embedded scheduler's, in the test's own TONY_HOME."""
    made = TonyHook(scheduler="local")
    yield made
    for status in made.list():
        made.kill(status.app_id, "the test has ended")
    made.close()


def python(program: str, **options: Any) -> JobArguments:
    conf = {**PYTHON, **options.pop("conf", {})}
    return JobArguments(executes=f"{sys.executable} -c '{program}'", conf=conf, **options)


def until(question: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"{what} did not come within {PATIENCE_S:g} s"
        time.sleep(0.1)


class Opened:
    """A scheduler as far as a connection's login is compared with it."""

    def __init__(self, user: str, real_user: str = "") -> None:
        self.user, self.real_user = user, real_user


@pytest.mark.parametrize(
    ("site", "refused"),
    [
        (Site("yarn", "prod", user="ml"), True),
        (Site("yarn", "prod"), False),
        (Site("local", "prod", user="ml"), False),
    ],
)
def test_a_login_that_a_cluster_with_kerberos_does_not_take(
    site: Site, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = TonyHook()
    monkeypatch.setattr(TonyHook, "site", site)
    hook._check_user(cast(Scheduler, Opened("ml")))
    hook._check_user(cast(Scheduler, Opened("ann", real_user="ml")))
    if refused:
        with pytest.raises(SiteError, match=r"names the login ml, .* this process is airflow: "):
            hook._check_user(cast(Scheduler, Opened("airflow")))
    else:
        hook._check_user(cast(Scheduler, Opened("airflow")))


class TestAJob:
    def test_from_submit_to_history(self, hook: TonyHook) -> None:
        program = 'import tony; tony.report(metrics={"loss": 0.5}); print("hello")'
        app_id = hook.submit(python(program, conf={"tony.application.tags": "Nightly,mine"}))
        assert hook.find("nightly")[0].app_id == app_id
        assert hook.find("other") == []
        until(lambda: hook.status(app_id).state.ended, "the end")
        assert hook.status(app_id).state is AppState.SUCCEEDED
        assert hook.view(app_id).source == "history"
        assert [task.state for task in hook.tasks(app_id)] == ["succeeded"]
        assert hook.metrics(app_id) == {"loss": 0.5}
        lines = list(hook.logs(app_id, tasks=["worker"], stream="stdout", tail=5))
        assert [line.text for line in lines] == ["hello"]
        assert hook.history(app_id).job["state"] == "SUCCEEDED"
        assert hook.statuses([app_id])[app_id].state is AppState.SUCCEEDED
        assert "page" not in hook.links(app_id), "its page has gone"
        assert hook.kill(app_id).was_over

    def test_what_a_running_one_shows_and_its_kill(self, hook: TonyHook) -> None:
        app_id = hook.submit(python("import time; time.sleep(300)"))
        until(lambda: hook.links(app_id).get("page"), "its page")
        found = hook.statuses([app_id, "local_20260101000000_abcdef"])
        assert list(found) == [app_id]
        assert hook.statuses(["local_20260101000000_abcdef"]) == {}
        killed = hook.kill(app_id, "not wanted any more")
        assert killed.ended and not killed.was_over
        assert hook.status(app_id).state is AppState.KILLED
        assert "not wanted any more" in hook.status(app_id).diagnostics

    def test_a_kill_may_come_in_the_middle_of_another_call(self, hook: TonyHook) -> None:
        """As Airflow's on_kill does it: in a signal handler of the thread that is asking."""
        app_id = hook.submit(python("import time; time.sleep(300)"))
        done: List[object] = []

        def handler(*_: object) -> None:
            done.append(hook.kill(app_id, "ended by a test"))

        before = signal.signal(signal.SIGUSR1, handler)
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.3, signal.pthread_kill, [main, signal.SIGUSR1])
        timer.start()
        try:
            until(lambda: hook.view(app_id).state.ended, "the end")
            until(lambda: done, "the kill's own end")
        finally:
            timer.join()
            signal.signal(signal.SIGUSR1, before)
        assert hook.status(app_id).state is AppState.KILLED


class TestBeforeAnythingStarts:
    def test_all_problems_at_once(self, hook: TonyHook, tmp_path: Path) -> None:
        arguments = python("pass", src_dir=str(tmp_path / "src"), conf={"tony.worker.memroy": "1g"})
        with pytest.raises(JobError) as caught:
            hook.check(arguments)
        assert "did you mean tony.worker.memory?" in str(caught.value)
        (tmp_path / "src").mkdir()
        with pytest.raises(JobError, match="venv does not exist"):
            hook.submit(python("pass", src_dir=str(tmp_path / "src"), python_venv="/no/venv"))
        assert hook.list() == []

    def test_what_can_never_run_here(self, hook: TonyHook) -> None:
        with pytest.raises(JobError, match="memory"):
            hook.check(python("pass", conf={"tony.worker.memory": "900t"}))

    def test_a_dry_run_writes_nothing(self, hook: TonyHook, tony_home: Path) -> None:
        assert hook.dry_run(python("pass")).scheduler == "local"
        assert hook.check(python("pass")) == []
        assert not (tony_home / "apps").exists()

    def test_a_job_file_in_the_working_folder_is_not_read(
        self, hook: TonyHook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "tony.xml").write_text("this is no job file")
        monkeypatch.chdir(tmp_path)
        assert hook.load(python("pass")).job.name

    def test_the_connections_word_is_below_the_jobs(self, tmp_path: Path) -> None:
        site = Site(name="prod", queue="ml", portal_url="http://portal", conf=PYTHON)
        file = tmp_path / "job.xml"
        file.write_text(
            "<configuration><property><name>tony.yarn.queue</name><value>own</value></property>"
            "</configuration>"
        )
        hook = TonyHook.of(site)
        job = hook.load(JobArguments(executes="true", conf_file=str(file))).job
        assert (job.queue, job.history.portal_url) == ("own", "http://portal")
        message = {item.key: item.source for item in job.settings}
        assert message["tony.portal.url"] == "the connection prod"
        hook.close()

    def test_airflows_masker_gets_the_secrets(
        self, hook: TonyHook, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        masked: List[object] = []
        monkeypatch.setattr("tony_airflow.hooks.tony.mask_secret", masked.append)
        hook.load(
            python(
                "pass",
                shell_env={"API_TOKEN": "tok-en-1", "GREETING": "hello"},
                task_params="--password hunter2-hunter2",
                conf={"tony.secret.key": "key-key-key"},
            )
        )
        assert {"tok-en-1", "hunter2-hunter2", "key-key-key"} <= {
            one for one in masked if isinstance(one, str)
        }
        assert "hello" not in masked


def test_airflows_masker_hides_them(hook: TonyHook) -> None:
    from airflow.providers.common.compat.sdk import redact

    secret = "correct-horse-battery"
    assert secret in str(redact(f"it is {secret}"))
    hook.load(python("pass", conf={"tony.secret.key": secret}))
    assert secret not in str(redact(f"it is {secret}"))


class TestTheConnection:
    def test_it_is_looked_up_once_and_only_when_needed(self, connect: Connect) -> None:
        conn_id = connect(extra={"queue": "ml"})
        hook = TonyHook(conn_id)
        assert hook.site.queue == "ml"
        connect(extra={"queue": "other"})
        assert hook.site.queue == "ml"
        assert TonyHook.of(Site(name="nowhere")).site.name == "nowhere"

    def test_the_embedded_scheduler_needs_none(self) -> None:
        assert TonyHook(scheduler="local").site == Site()

    def test_a_scheduler_of_the_tasks_own(self, connect: Connect) -> None:
        connect("prod", extra={"hadoop_conf_dir": "/etc/hadoop"})
        assert TonyHook("prod", scheduler="local").site.scheduler == "local"

    def test_an_unknown_scheduler_is_reported_before_a_missing_connection(self) -> None:
        with pytest.raises(SiteError, match="no scheduler 'yran'"):
            _ = TonyHook(scheduler="yran").site

    def test_one_that_is_missing(self) -> None:
        with pytest.raises(SiteError, match=r"there is no connection tony_default: create one"):
            TonyHook().check(JobArguments(executes="true"))

    def test_a_wrong_one(self, connect: Connect) -> None:
        with pytest.raises(SiteError, match="unknown key qeue"):
            TonyHook(connect(extra={"qeue": "ml"})).list()

    def test_an_unknown_scheduler(self, connect: Connect) -> None:
        with pytest.raises(NoSuchScheduler, match="there is: local, yarn"):
            TonyHook(connect(extra={"scheduler": "slurm"})).list()


class TestAClusterThatIsNotThere:
    @pytest.fixture
    def closed_port(self) -> Iterator[int]:
        """A port without a listener."""
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            yield held.getsockname()[1]

    def test_the_error_names_the_server_that_does_not_answer(
        self, closed_port: int, connect: Connect
    ) -> None:
        web = {"yarn.resourcemanager.webapp.address": f"127.0.0.1:{closed_port}"}
        connect(host=f"127.0.0.1:{closed_port}", extra={"name_node": "nn", "hadoop": web})
        hook = TonyHook()
        with pytest.raises(SchedulerError) as caught:
            hook.list()
        assert not isinstance(caught.value, LastingRefusal), "it may come up again"
        message = str(caught.value)
        assert (
            f"the ResourceManager cannot be reached (2 attempts): 127.0.0.1:{closed_port}"
            in message
        )
        assert "connection refused" in message
        assert "yarn.resourcemanager.address says so in the connection tony_default" in message
        ok, options = hook.test_connection()
        assert not ok
        assert "the connection tony_default" in options and "start it, or correct" in options
        hook.close()

    def test_a_folder_that_is_not_there_is_lasting(self, connect: Connect) -> None:
        hook = TonyHook(connect(extra={"hadoop_conf_dir": "/no/such/folder"}))
        with pytest.raises(LastingRefusal, match="/no/such/folder, which does not exist"):
            hook.list()
        assert type(as_airflow(caught_of(hook.list))).__name__ == "AirflowFailException"


class TestTheTestButton:
    def test_of_the_embedded_scheduler(self, hook: TonyHook) -> None:
        ok, options = hook.test_connection()
        assert ok and "tony.runtime.python" in options

    def test_of_a_connection_that_is_wrong(self, connect: Connect) -> None:
        hook = TonyHook(connect(extra={"scheduler": "slurm"}))
        assert hook.test_connection() == (
            False,
            "there is no scheduler 'slurm'; there is: local, yarn",
        )
        # Under its name where that is known: the form's button tests a copy with one by chance.
        wrong = {"host": "rm", "extra": {}}
        message = "the connection hadoop02 cannot be used: it names a ResourceManager and"
        assert TonyHook(connect("hadoop02", **wrong)).test_connection()[1].startswith(message)
        message = "this connection cannot be used: it names a ResourceManager and"
        assert TonyHook(connect("aB3dE6gH", **wrong)).test_connection()[1].startswith(message)
        assert TonyHook("nowhere").test_connection()[1].startswith("there is no connection")


def caught_of(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_an_unknown_application(hook: TonyHook) -> None:
    with pytest.raises(NoSuchApplication):
        hook.status("local_20260101000000_abcdef")
    with pytest.raises(UsageError, match="no application"):
        hook.view("local_20260101000000_abcdef")


def test_the_newest_of_a_tag_comes_first(hook: TonyHook, monkeypatch: pytest.MonkeyPatch) -> None:
    def status(app_id: str, submitted: float) -> AppStatus:
        state = AppState.RUNNING
        return AppStatus(app_id, "n", "u", "q", state, tags=("t",), submitted=submitted)

    monkeypatch.setattr(hook, "list", lambda: [status("a", 1.0), status("b", 2.0)])
    assert [one.app_id for one in hook.find("T")] == ["b", "a"]
    monkeypatch.undo()


def test_files_on_hdfs_need_a_connection_that_names_it(hook: TonyHook) -> None:
    with pytest.raises(SiteError, match="names no WebHDFS connection"):
        hook.check_path("/data")

"""The operator on the embedded scheduler: real jobs, Airflow's side by hand."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, ContextManager, Dict, Iterator, List

import pytest
from airflow.providers.common.compat import sdk
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
    TaskDeferred,
)

from tests.advice.findings import MEMORY, stand_in
from tests.tony_airflow.conftest import Connect
from tests.tony_airflow.tasks import SLEEPS, Instance, end_all, jobs, operator, until
from tony_airflow.connection import Site
from tony_airflow.hooks.tony import TonyHook
from tony_airflow.operators import retries, submission, task_job
from tony_airflow.operators.task_job import TaskJob
from tony_airflow.operators.tony import TonyOperator
from tony_airflow.pages.history import RecordedJob, TaskInstanceKey
from tony_core.advice import report
from tony_core.job.problems import JobError
from tony_core.schedulers.port import AppState, LastingRefusal, SchedulerError
from tony_core.view import JobView

pytestmark = pytest.mark.timeout(300)
REPORTS = 'import tony; tony.report(progress=0.5, metrics={"loss": 0.25})'
FAILS = 'import sys; print("the disk is full", file=sys.stderr); sys.exit(7)'


@pytest.fixture(autouse=True)
def no_job_is_left() -> Iterator[None]:
    yield
    end_all()


@pytest.fixture
def log_lines(monkeypatch: pytest.MonkeyPatch) -> List[str]:
    """The lines of the tasks' logs that tell of their jobs."""
    lines: List[str] = []
    monkeypatch.setattr(TaskJob, "info", lambda self, text: lines.append(text))
    return lines


def running_in_a_thread(task: TonyOperator, ti: Instance) -> Dict[str, Any]:
    """``execute`` beside the test; what came of it."""
    came: Dict[str, Any] = {}

    def run() -> None:
        try:
            came["result"] = task.execute(ti.context())
        except BaseException as error:
            came["error"] = error

    came["thread"] = thread = threading.Thread(target=run, name="task")
    thread.start()
    return came


def body_of(url: str) -> str:
    """What a browser gets; nothing where there is nothing yet."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError:
        return ""


class TestATask:
    def test_what_it_returns_and_pushes(self) -> None:
        ti = Instance()
        result = operator(REPORTS, tags=["mine"]).execute(ti.context())
        (job,) = jobs()
        assert result["application_id"] == job.app_id == ti.pushed["application_id"]
        assert (result["outcome"], result["attempts"]) == ("SUCCEEDED", 1)
        assert result["duration_s"] > 0
        assert result["metrics"] == ti.pushed["metrics"] == {"loss": 0.25}
        assert ti.pushed["tony_link_page"] == "/tony/dags/dag/runs/run/tasks/train/-1/"
        assert ti.pushed["tony_link_logs"] == "/tony/dags/dag/runs/run/tasks/train/-1/logs"
        assert job.name == "train" or job.name.endswith(".train")
        assert {"mine", "airflow.dag:dag", "airflow.run:run", "airflow.try:1"} <= set(job.tags)
        hook = TonyHook.of(Site())
        view = hook.view(job.app_id)
        hook.close()
        assert view.links["airflow"] == ti.log_url and "airflow.task:train" in view.tags
        assert ti.state == {"tony_application_id_0": job.app_id}

    def test_where_the_site_has_a_portal_all_its_links_lead_there(self) -> None:
        ti = Instance()
        conf = {"tony.portal.url": "http://portal/"}
        result = operator(REPORTS, conf=conf).execute(ti.context())
        page = f"http://portal/jobs/{result['application_id']}"
        expected = {"page": page, "portal": page, "logs": f"{page}/tasks"}
        assert result["links"] == expected
        for name, url in {**expected, "log_worker_0": f"{page}/log/worker%3A0"}.items():
            assert ti.pushed[f"tony_link_{name}"] == url

    def test_each_try_leads_to_its_own_job(self) -> None:
        ti = Instance(retries=1)
        conf = {"tony.portal.url": "http://portal/"}
        with pytest.raises(AirflowException):
            ti.task(FAILS, conf=conf).execute(ti.context())
        first = ti.pushed["tony_link_portal"]
        ti.retry().task(REPORTS, conf=conf).execute(ti.context())
        assert ti.pushed["tony_link_portal"] == ti.pushed["tony_link_page"] != first
        assert {first, ti.pushed["tony_link_portal"]} == {
            f"http://portal/jobs/{job.app_id}" for job in jobs()
        }

    def test_the_log_of_a_task_can_be_read_while_it_runs(self, log_lines: List[str]) -> None:
        ti = Instance()
        task = ti.task(f'print("the first epoch", flush=True); {SLEEPS}')
        came = running_in_a_thread(task, ti)
        try:
            url = until(lambda: ti.pushed.get("tony_link_log_worker_0"), "the log's address")
            assert url.startswith("http://")
            until(lambda: "the first epoch" in body_of(url), "the line")
            until(lambda: "[worker:0] the first epoch" in log_lines, "the same in the task's log")
        finally:
            task.on_kill()
            came["thread"].join(60)

    def test_a_failure_names_its_cause_and_is_retried(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with pytest.raises(AirflowException) as failed:
            operator(FAILS).execute(Instance().context())
        assert not isinstance(failed.value, AirflowFailException)
        assert "exit code 7" in str(failed.value) and "the disk is full" in str(failed.value)

    def test_its_buttons_when_it_ends_are_what_it_pushed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Airflow asks for each; to look for what was never pushed is an error in its log."""
        monkeypatch.setattr(sdk, "XCom", None, raising=False)
        ti = Instance()
        task = ti.task()
        task.execute(ti.context())
        links: List[Any] = list(task.operator_extra_links)
        content = {link.xcom_key: link.get_link(task, ti_key=None) for link in links}
        assert {key: url for key, url in content.items() if url} == {
            key: url
            for key, url in ti.pushed.items()
            if key.startswith("tony_link_") and key != "tony_link_page"
        }
        assert len(content) == 5 and content["tony_link_logs"]

    def test_its_buttons_when_there_was_no_job(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sdk, "XCom", None, raising=False)
        task = operator(roles={"worker": {"memry": 1}})
        with pytest.raises(AirflowFailException):
            task.execute(Instance().context())
        assert {link.get_link(task, ti_key=None) for link in task.operator_extra_links} == {""}

    def test_not_waited_for(self) -> None:
        ti = Instance()
        result = operator(SLEEPS, wait_for_completion=False).execute(ti.context())
        (job,) = jobs(running=True)
        assert result["application_id"] == job.app_id
        assert result["outcome"] in ("SUBMITTED", "ACCEPTED", "RUNNING")

    def test_a_subclass_may_declare_its_outputs(self) -> None:
        class Chiefs(TonyOperator):
            def succeeded(self, context: Any, view: JobView, result: Dict[str, Any]) -> Any:
                return view.result

        options = {name: getattr(operator(), name) for name in ("scheduler", "framework", "roles")}
        program = operator("import tony; tony.result([1, 2])").executes
        task = Chiefs(task_id="train", executes=program, **options)
        assert task.execute(Instance().context()) == [1, 2]


class TestRefusals:
    def refused(self, **options: Any) -> str:
        with pytest.raises(AirflowFailException) as refused:
            operator(**options).execute(Instance(retries=3).context())
        assert jobs() == []
        return str(refused.value)

    def test_all_that_is_wrong_at_once_wherever_it_was_seen(self, tmp_path: Path) -> None:
        content = self.refused(
            roles={"worker": {"instances": 1, "memry": "1g"}},
            python_venv=str(tmp_path / "venv.zip"),
            conf={"tony.am.retry-cuont": 1},
        )
        assert "(did you mean memory?)" in content
        assert "(did you mean tony.am.retry-count?)" in content

    def test_a_venv_that_is_not_there(self, tmp_path: Path) -> None:
        path = tmp_path / "venv.zip"
        assert f"{path} does not exist" in self.refused(python_venv=str(path))

    def test_a_missing_connection(self) -> None:
        content = self.refused(scheduler=None, tony_conn_id="nowhere")
        assert "nowhere" in content

    def test_a_connection_of_another_type(self, connect: Connect) -> None:
        connect("other", conn_type="http")
        assert "http" in self.refused(scheduler=None, tony_conn_id="other")

    def test_a_job_larger_than_the_machine(self) -> None:
        content = self.refused(roles={"worker": {"instances": 1, "memory": "900t"}})
        assert "worker" in content

    def test_a_cluster_that_is_not_there_is_tried_again(self, connect: Connect) -> None:
        with socket.socket() as bound:  # bound and not listening: it refuses
            bound.bind(("127.0.0.1", 0))
            host = f"127.0.0.1:{bound.getsockname()[1]}"
            connect("gone", host=host, extra={"name_node": "hdfs://127.0.0.1:9"})
            task = operator(
                scheduler=None,
                tony_conn_id="gone",
                conf={"tony.application.num-client-rm-connect-retries": 0},
            )
            with pytest.raises(AirflowException, match=host) as unreachable:
                task.execute(Instance().context())
        assert not isinstance(unreachable.value, AirflowFailException)

    def test_unknown_arguments(self) -> None:
        with pytest.raises(TypeError, match=r"no argument exectues \(did you mean executes\?\)"):
            TonyOperator(task_id="t", exectues="true")
        for options in ({"poll_interval": 0}, {"lease": -1}, {"unreachable_timeout": "soon"}):
            with pytest.raises(ValueError, match=next(iter(options))):
                operator(**options)


class TestNeverTwo:
    def test_a_retry_takes_up_the_running_job(self) -> None:
        ti = Instance(retries=1)
        first = ti.task(SLEEPS, wait_for_completion=False)
        app_id = first.execute(ti.context())["application_id"]
        came = running_in_a_thread(task := ti.task("pass"), ti.retry())
        try:
            until(lambda: ti.pushed.get("application_id"), "the second try")
            assert ti.pushed["application_id"] == app_id
        finally:
            task.on_kill()
            came["thread"].join(60)
        assert "was stopped" in str(came["error"])
        (job,) = jobs()
        assert (job.app_id, job.state) == (app_id, AppState.KILLED)

    def test_outputs_that_a_previous_try_could_not_report(self) -> None:
        """By its tag, without any state of Airflow's."""
        ti = Instance(retries=1)
        app_id = ti.task(REPORTS).execute(ti.context(stateful=False))["application_id"]
        result = ti.task(REPORTS).execute(ti.retry().context(stateful=False))
        assert result["application_id"] == app_id and result["metrics"] == {"loss": 0.25}
        assert len(jobs()) == 1

    def test_and_by_airflows_own_state(self) -> None:
        ti = Instance(retries=1)
        app_id = ti.task("pass").execute(ti.context())["application_id"]
        assert ti.task("pass").execute(ti.retry().context())["application_id"] == app_id
        assert len(jobs()) == 1

    def test_a_cleared_task_begins_anew_and_ends_what_still_runs(self) -> None:
        ti = Instance(retries=1)
        old = ti.task(SLEEPS, wait_for_completion=False).execute(ti.context())["application_id"]
        result = ti.task("pass").execute(ti.clear().context())
        states = {job.app_id: job.state for job in jobs()}
        assert states == {
            old: AppState.KILLED,
            result["application_id"]: AppState.SUCCEEDED,
        }

    def test_a_succeeded_task_that_is_cleared_does_its_work_again(self) -> None:
        ti = Instance()
        ti.task("pass").execute(ti.context())
        ti.task("pass").execute(ti.clear().context())
        assert len(jobs()) == 2

    @pytest.mark.parametrize(
        ("retry_killed", "deferrable"), [(False, False), (False, True), (True, False)]
    )
    def test_one_that_was_killed_by_hand_is_not_submitted_again(
        self, retry_killed: bool, deferrable: bool
    ) -> None:
        ti = Instance(retries=1)
        options = {"retry_killed": retry_killed, "deferrable": deferrable}
        came = running_in_a_thread(ti.task(SLEEPS, **options), ti)
        if deferrable:
            came["thread"].join(60)
        until(lambda: ti.pushed.get("tony_link_page") or deferrable, "its page")
        (job,) = jobs(running=True)
        hook = TonyHook.of(Site())
        hook.kill(job.app_id, "killed by ann with tony kill")
        hook.close()
        came["thread"].join(60)
        error = came["error"]
        if deferrable:
            _, content = error.trigger.serialize()
            event = {name: content[name] for name in ("site", "app_id")}
            with pytest.raises(AirflowException) as failed:
                ti.task(**options).execute_complete(ti.context(), event)
            error = failed.value
        assert isinstance(error, AirflowFailException) is not retry_killed
        assert "killed by ann with tony kill" in str(error)
        assert ("retry_killed=True" in str(error)) is not retry_killed

    def test_one_that_its_lease_has_ended_is_submitted_again(self) -> None:
        ti = Instance(retries=1)
        with pytest.raises(TaskDeferred) as deferred:
            ti.task(SLEEPS, lease=1, deferrable=True).execute(ti.context())
        until(lambda: jobs(running=False), "the lease's end")
        _, content = deferred.value.trigger.serialize()
        event = {name: content[name] for name in ("site", "app_id")}
        with pytest.raises(AirflowException, match="lease") as failed:
            ti.task().execute_complete(ti.context(), event)
        assert not isinstance(failed.value, AirflowFailException)

    def test_a_failed_job_is_followed_by_another(self) -> None:
        ti = Instance(retries=1)
        with pytest.raises(AirflowException):
            ti.task(FAILS).execute(ti.context())
        assert ti.task("pass").execute(ti.retry().context())["outcome"] == "SUCCEEDED"

    def test_without_durability_each_try_has_its_own(self) -> None:
        ti = Instance(retries=1)
        old = ti.task(SLEEPS, wait_for_completion=False).execute(ti.context())["application_id"]
        result = ti.task("pass", durable=False).execute(ti.retry().context())
        assert result["application_id"] != old and jobs(running=True) == []

    def test_tasks_of_one_mapped_task_have_nothing_in_common(self) -> None:
        for map_index in (0, 1):
            ti = Instance(map_index=map_index)
            ti.task(SLEEPS, wait_for_completion=False).execute(ti.context())
        assert len(jobs(running=True)) == 2


class TestNeverOrphaned:
    def test_a_kill_ends_the_job_while_it_is_waited_for(self) -> None:
        ti = Instance()
        task = ti.task(SLEEPS)
        came = running_in_a_thread(task, ti)
        until(lambda: ti.pushed.get("tony_link_page"), "the page")
        task.on_kill()
        came["thread"].join(60)
        assert "was stopped" in str(came["error"])
        assert [job.state for job in jobs()] == [AppState.KILLED]

    def test_another_try_has_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Airflow took the task for orphaned, and has begun it again (:mod:`.ownership`)."""
        ti = Instance()
        task = ti.task(SLEEPS)
        came = running_in_a_thread(task, ti)
        app_id = until(lambda: ti.pushed.get("application_id"), "the job")
        monkeypatch.setattr(task_job, "SETTLED_S", 0.0)
        monkeypatch.setattr(task_job, "OWNER_LOOKUP_S", 60.0)
        states = {"run": {"train": "queued"}}
        ti.get_task_states = lambda **options: states  # type: ignore[attr-defined]
        task.on_kill()
        came["thread"].join(60)
        assert f"another try of this task has {app_id}" in str(came["error"])
        again = ti.retry().task(SLEEPS)
        came = running_in_a_thread(again, ti)
        assert until(lambda: ti.pushed.get("application_id"), "the next try") == app_id
        assert [job.app_id for job in jobs(running=True)] == [app_id]
        states["run"]["train"] = "failed"  # a person marks it
        again.on_kill()
        came["thread"].join(60)
        until(lambda: [job.state for job in jobs()] == [AppState.KILLED], "its end")

    def test_a_kill_before_anything_was_submitted(self) -> None:
        ti = Instance()
        task = ti.task(SLEEPS)
        task.on_kill()  # nothing is there yet
        with pytest.raises(AirflowException, match="was stopped"):
            task.execute(ti.context())
        assert jobs() == []

    def test_a_kill_while_it_is_submitted(self) -> None:
        ti = Instance()
        task = ti.task(SLEEPS)
        hooked: List[str] = []
        submit = TonyHook.submit

        def killed_meanwhile(hook: TonyHook, arguments: Any) -> str:
            app_id = submit(hook, arguments)
            hooked.append(app_id)
            task.on_kill()  # as a signal would come in the middle of it
            return app_id

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TonyHook, "submit", killed_meanwhile)
            with pytest.raises(AirflowException, match="was stopped"):
                task.execute(ti.context())
        assert [job.state for job in jobs()] == [AppState.KILLED]

    def test_a_submit_that_is_broken_off_by_the_time(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The job is accepted, and its id is lost."""
        submit = TonyHook.submit

        def too_slow(hook: TonyHook, arguments: Any) -> str:
            submit(hook, arguments)
            raise AirflowTaskTimeout("too long")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TonyHook, "submit", too_slow)
            with pytest.raises(AirflowTaskTimeout):
                operator(SLEEPS).execute(Instance(retries=1).context())
        (job,) = jobs()
        assert job.state is AppState.KILLED
        assert f"the job {job.app_id} has ended" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("broken", "deferrable"),  # of these a task that is deferred writes the id only
        [
            ("application_id", False),
            ("application_id", True),
            ("tony_link_", False),
            ("the store", False),
        ],
    )
    @pytest.mark.parametrize("retries", [0, 1])
    def test_a_task_that_fails_leaves_its_job_to_the_next_try_only(
        self, retries: int, broken: str, deferrable: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Wherever it fails after its submit, and however early."""
        ti = Instance(retries=retries)

        def push(key: str, value: Any) -> None:
            if key.startswith(broken):
                raise RuntimeError("Airflow's API server is gone")

        def write(*content: Any, **more: Any) -> None:
            raise RuntimeError("Airflow's API server is gone")

        monkeypatch.setattr(ti, "xcom_push", push)
        context = ti.context()
        if broken == "the store":
            context["task_state_store"].set = write
        with pytest.raises(RuntimeError, match="API server"):
            ti.task(SLEEPS, deferrable=deferrable).execute(context)
        assert len(jobs(running=True)) == retries

    def test_a_failure_for_good_ends_the_job(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(*content: Any, **more: Any) -> None:
            raise LastingRefusal("alice may not look at it")

        monkeypatch.setattr(TaskJob, "wait", refused)
        with pytest.raises(AirflowFailException, match="alice"):
            operator(SLEEPS).execute(Instance(retries=3).context())
        assert [job.state for job in jobs()] == [AppState.KILLED]

    @pytest.mark.parametrize("program", [FAILS, "pass"])
    def test_the_log_ends_with_the_advice_whatever_the_outcome(
        self, program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        stand_in(monkeypatch, MEMORY)
        expected: ContextManager[Any] = nullcontext()
        if program == FAILS:
            expected = pytest.raises(AirflowException)
        with expected:
            operator(program).execute(Instance(retries=0).context())
        log = capsys.readouterr().out
        (job,) = jobs()
        assert f"advice: 1 (1 severe): tony advise {job.app_id}" in log
        assert "tony.worker.memory: 8g -> 3g" in log

    def test_advice_that_fails_changes_no_outcome(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(report, "advise", lambda record, config: 1 / 0)
        operator("pass").execute(Instance(retries=0).context())
        assert "ZeroDivisionError" not in capsys.readouterr().out
        assert [job.state for job in jobs()] == [AppState.SUCCEEDED]

    def test_a_cluster_that_does_not_answer_costs_the_advice_only(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(hook: TonyHook) -> None:
            raise SchedulerError("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(TonyHook, "get_conn", fail)
            assert TonyHook.of(Site()).advice("application_1_0001") == []

    def test_a_job_that_has_ended_is_not_ended_again(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(AirflowException, match="exit code 7"):
            operator(FAILS).execute(Instance(retries=1).context())
        log = capsys.readouterr().out
        assert "submitted" in log and "takes it up again" not in log

    @pytest.mark.parametrize("resumed", [False, True])
    def test_its_time_is_over_while_it_waits(
        self, resumed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.times_out(monkeypatch)
        ti = Instance(retries=1)
        program = f'print("the third epoch", flush=True); {SLEEPS}'
        with pytest.raises(AirflowTaskTimeout):
            if resumed:
                with pytest.raises(TaskDeferred) as deferred:
                    ti.task(program, deferrable=True).execute(ti.context())
                _, content = deferred.value.trigger.serialize()
                event = {name: content[name] for name in ("site", "app_id")}
                limited = ti.task(execution_timeout=timedelta(hours=1))
                limited.execute_complete(ti.context(), event)
            else:
                ti.task(program, execution_timeout=timedelta(hours=1)).execute(ti.context())
        (job,) = jobs()
        assert job.state is AppState.KILLED
        assert "the execution_timeout (1:00:00) of its Airflow task is over" in job.diagnostics
        log = capsys.readouterr().out
        assert f"execution_timeout (1:00:00) is over: ending the job {job.app_id}" in log
        assert f"the job {job.app_id} has ended" in log
        assert ti.pushed["tony_link_logs"] == "/tony/dags/dag/runs/run/tasks/train/-1/logs"
        assert "last lines of worker:0 (stdout):" in log and "  | the third epoch" in log

    def times_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Airflow's alarm, once the job's program has written a line."""

        def too_long(job: TaskJob, *options: Any, **more: Any) -> None:
            until(lambda: written(job.app_id), "the program's first line")
            raise AirflowTaskTimeout("too long")

        def written(app_id: Any) -> List[str]:
            hook = TonyHook.of(Site())
            try:
                return hook.output(hook.view(app_id), {})[0]
            finally:
                hook.close()

        monkeypatch.setattr(TaskJob, "wait", too_long)

    @pytest.mark.parametrize("hangs", [False, True])
    def test_the_last_lines_cannot_be_read_after_its_time(
        self, hangs: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A task whose time is over waits for no cluster."""
        goes_on = threading.Event()

        def tails(*options: Any) -> None:
            goes_on.wait(60)
            raise SchedulerError("the node is gone")

        self.times_out(monkeypatch)
        monkeypatch.setattr(TonyHook, "tails", tails)
        monkeypatch.setattr(task_job, "LAST_LINES_S", 1.0 if hangs else 60.0)
        if not hangs:
            goes_on.set()
        try:
            with pytest.raises(AirflowTaskTimeout):
                operator(f'print("epoch", flush=True); {SLEEPS}').execute(Instance().context())
        finally:
            goes_on.set()
        why = "were not read in 1 s:" if hangs else "(the node is gone):"
        log = capsys.readouterr().out
        assert f"{why} tony logs {jobs()[0].app_id}" in log

    @pytest.mark.parametrize("asked", ["a job file", "the cluster"])
    def test_its_time_is_over_before_anything_was_submitted(
        self, asked: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def too_long(*options: Any) -> None:
            monkeypatch.undo()
            raise AirflowTaskTimeout("too long")

        monkeypatch.setattr(TonyHook, "load" if asked == "a job file" else "find", too_long)
        with pytest.raises(AirflowTaskTimeout):
            operator(SLEEPS, execution_timeout=timedelta(hours=1)).execute(Instance().context())
        log = capsys.readouterr().out
        assert "execution_timeout (1:00:00) is over: looking for a job of this task" in log
        assert "nothing was submitted yet" in log and "has ended" not in log

    def test_its_time_is_over_and_the_cluster_does_not_answer(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def too_long(*options: Any) -> None:
            monkeypatch.setattr(TonyHook, "find", refused)
            raise AirflowTaskTimeout("too long")

        def refused(*options: Any) -> None:
            raise SchedulerError("no ResourceManager answers")

        monkeypatch.setattr(TonyHook, "find", too_long)
        with pytest.raises(AirflowTaskTimeout):
            operator(SLEEPS).execute(Instance().context())
        assert "the cluster does not answer" in capsys.readouterr().out

    def test_the_lease_of_an_argument_and_by_default(self) -> None:
        task = operator(lease=timedelta(minutes=7))
        assert retries.lease_s(task) == 420
        assert retries.lease_s(operator()) == 600 + 900
        waits = operator(retries=2, retry_delay=timedelta(minutes=5), unreachable_timeout=60)
        assert retries.lease_s(waits) == 600 + 300 + 60
        more = {"retries": 2, "retry_delay": timedelta(minutes=5), "unreachable_timeout": 60}
        grows = operator(retry_exponential_backoff=True, **more)
        assert retries.lease_s(grows) == 600 + 4 * 300 + 60
        bounded = operator(
            retry_exponential_backoff=True, max_retry_delay=timedelta(minutes=6), **more
        )
        assert retries.lease_s(bounded) == 600 + 360 + 60

    def test_a_job_without_a_waiting_task_ends_by_its_lease(self) -> None:
        """A worker that vanished, with no retries left: the lease is all there is."""
        ti = Instance()
        with pytest.raises(TaskDeferred):
            ti.task(SLEEPS, lease=2, deferrable=True).execute(ti.context())
        ended = until(lambda: jobs(running=False), "the lease's end")
        assert "tony.client.lease" in ended[0].diagnostics

    def test_a_job_whose_trigger_never_starts_ends_by_its_first_lease(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Marked or deleted between its deferral and the trigger's first run: no code of ours is
        called for it."""
        monkeypatch.setattr(retries, "FIRST_READ_S", 0.5)
        with pytest.raises(TaskDeferred):
            Instance().task(SLEEPS, deferrable=True, poll_interval=0.5).execute(
                Instance().context()
            )
        ended = until(lambda: jobs(running=False), "the first lease's end")
        assert "tony.client.first-lease=1.5s" in ended[0].diagnostics

    @pytest.fixture
    def below(self, monkeypatch: pytest.MonkeyPatch) -> Dict[str, str]:
        """What a task submits its job with; nothing is submitted."""
        found: Dict[str, str] = {}

        def submit(*args: Any, below: Dict[str, str], **options: Any) -> Any:
            found.update(below)
            raise JobError([])

        monkeypatch.setattr(submission, "submit", submit)
        return found

    @pytest.mark.parametrize(
        ("options", "leases"),
        [
            ({"deferrable": True}, {"tony.client.lease": "1500s", retries.FIRST_LEASE: "50s"}),
            ({"deferrable": True, "lease": 600}, {retries.FIRST_LEASE: "50s"}),
            ({"deferrable": True, "lease": False}, {}),
            ({"deferrable": True, "wait_for_completion": False}, {}),
            ({"deferrable": False}, {"tony.client.lease": "1500s"}),
        ],
    )
    def test_who_has_a_first_lease(
        self, below: Dict[str, str], options: Dict[str, Any], leases: Dict[str, str]
    ) -> None:
        with pytest.raises(AirflowFailException):
            operator(**options).execute(Instance().context())
        assert {key: text for key, text in below.items() if "lease" in key} == leases

    def test_a_job_that_no_trigger_has_looked_at_in_time_is_submitted_once_more(
        self, below: Dict[str, str]
    ) -> None:
        ended = {
            "site": {"scheduler": "local"},
            "app_id": "local_20260101000000_abcdef",
            "outcome": "KILLED",
            "diagnostics": "no client contacted the master (tony.client.first-lease=50s)",
        }
        with pytest.raises(AirflowFailException):
            operator(deferrable=True).execute_complete(Instance().context(), ended)
        assert below["tony.client.lease"] == "1500s" and retries.FIRST_LEASE not in below


class TestDeferred:
    def deferred(self, ti: Instance, **options: Any) -> TaskDeferred:
        task = ti.task(deferrable=True, **options)
        with pytest.raises(TaskDeferred) as deferred:
            task.execute(ti.context())
        assert task.operator_extra_links == (), "the trigger pushes too"
        return deferred.value

    def test_all_that_the_trigger_needs_travels(self) -> None:
        ti = Instance()
        content = self.deferred(
            ti,
            program=SLEEPS,
            execution_timeout=timedelta(hours=1),
            poll_interval=2,
            conf={"tony.client.lease": "60s"},
        )
        path, arguments = content.trigger.serialize()
        assert path == "tony_airflow.triggers.tony.TonyTrigger"
        assert arguments["app_id"] == ti.pushed["application_id"]
        assert (arguments["poll_interval"], arguments["lease_s"]) == (2, 60)
        assert arguments["host"] == socket.gethostname()
        assert "log:worker:0" in arguments["links"]
        assert content.timeout == timedelta(hours=1)
        assert content.method_name == "execute_complete"
        site = Site.from_dict(arguments["site"])
        assert site.home, "the triggerer may have another TONY_HOME"

    def test_it_comes_back_with_the_result(self, log_lines: List[str]) -> None:
        ti = Instance()
        roles = {"worker": {"instances": 2, "memory": "256m"}}
        content = self.deferred(
            ti, program=f'{REPORTS}; print("trained")', roles=roles, framework="pytorch"
        )
        until(lambda: jobs(running=False), "the end")
        _, arguments = content.trigger.serialize()
        event = {"site": arguments["site"], "app_id": arguments["app_id"], "outcome": "SUCCEEDED"}
        reported_to = {**event, "links": {"page": "http://page/", "tensorboard": "http://board/"}}
        result = ti.task().execute_complete(ti.context(), reported_to)
        page = "/tony/dags/dag/runs/run/tasks/train/-1/"
        assert result["links"] == {
            "page": page, "logs": f"{page}logs", "tensorboard": f"{page}#metrics"
        }  # fmt: skip
        assert ti.pushed["tony_link_log_worker_0"] == f"{page}logs/worker%3A0"
        assert ti.pushed["tony_link_tensorboard"] == f"{page}#metrics"
        with_portal = {**arguments["site"], "portal_url": "http://portal"}
        ti.task().execute_complete(ti.context(), {**reported_to, "site": with_portal})
        portal = f"http://portal/jobs/{reported_to['app_id']}"
        assert ti.pushed["tony_link_tensorboard"] == f"{portal}/tensorboard"
        assert ti.pushed["tony_link_logs"] == f"{portal}/tasks"
        with RecordedJob(
            TaskInstanceKey("dag", "run", "train"), ti.pushed.get, lambda conn_id: None
        ) as kept:
            assert kept.view.app_id == reported_to["app_id"]
            assert [log.lines[-1:] for log in kept.logs("worker:0")] == [("trained",), ()]
        assert result["metrics"] == ti.pushed["metrics"] == {"loss": 0.25}
        assert "session 0 begins" not in log_lines, "the trigger has logged the story"
        assert (
            "[worker:0] trained" in log_lines
            and "last lines of worker:0 (stdout):" not in log_lines
        )
        assert log_lines[log_lines.index("last lines of worker:1 (stdout):") + 1] == "  | trained"

        # It ended before the trigger saw it; what the trigger has logged is not logged again.
        del log_lines[:]
        (read,) = [key for key in self.read_by(arguments) if key.endswith("/stdout")]
        ti.task().execute_complete(ti.context(), {**event, "seen": False, "output": {read: 8}})
        assert "session 0 begins" in log_lines and "[worker:0] trained" not in log_lines
        del log_lines[:]
        ti.task(get_logs=False).execute_complete(ti.context(), {**event, "seen": True})
        assert not any("trained" in line for line in log_lines)

    def read_by(self, arguments: Dict[str, Any]) -> Dict[str, int]:
        """How far the chief's output goes."""
        hook = TonyHook.of(Site.from_dict(arguments["site"]))
        try:
            return hook.output(hook.view(arguments["app_id"]), {}, last=True)[1]
        finally:
            hook.close()

    def test_a_scheduler_that_has_forgotten_it(self, tmp_path: Path) -> None:
        event = {
            "site": {"scheduler": "local", "home": str(tmp_path)},
            "app_id": "local_20260101000000_abcdef",
            "outcome": "SUCCEEDED",
            "diagnostics": "",
        }
        result = operator().execute_complete(Instance().context(), event)
        assert (result["application_id"], result["outcome"]) == (event["app_id"], "SUCCEEDED")
        event.update(outcome="FAILED", diagnostics="worker:0 failed")
        with pytest.raises(AirflowException, match="worker:0 failed"):
            operator().execute_complete(Instance().context(), event)

    @pytest.mark.parametrize("retries", [0, 1])
    def test_a_cluster_that_was_not_reached(self, retries: int) -> None:
        ti = Instance(retries=retries)
        _, arguments = self.deferred(ti, program=SLEEPS).trigger.serialize()
        event = {**arguments, "error": "the scheduler has not answered for 900 s"}
        with pytest.raises(AirflowException, match="not answered") as failed:
            ti.task().execute_complete(ti.context(), event)
        assert not isinstance(failed.value, AirflowFailException)
        assert len(jobs(running=True)) == retries, "left to the next try, or ended"

    def test_a_triggerer_that_cannot_see_it(self) -> None:
        ti = Instance(retries=1)
        _, arguments = self.deferred(ti, program=SLEEPS).trigger.serialize()
        with pytest.raises(AirflowFailException, match="another host"):
            ti.task().execute_complete(ti.context(), {**arguments, "refused": "another host"})
        assert jobs(running=True) == []

    @pytest.mark.parametrize(
        ("why", "retries", "left"),
        [("Trigger timeout", 1, 0), ("Trigger failure", 1, 1), ("Trigger failure", 0, 0)],
    )
    def test_a_deferral_that_ends_otherwise(self, why: str, retries: int, left: int) -> None:
        ti = Instance(retries=retries)
        self.deferred(ti, program=SLEEPS)
        task = ti.task(deferrable=True)
        with pytest.raises(AirflowException, match=why):
            task.resume_execution("__fail__", {"error": why}, ti.context())
        assert len(jobs(running=True)) == left

    def test_a_deferral_that_takes_too_long_when_its_job_has_ended(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ti = Instance()
        task = ti.task(deferrable=True, execution_timeout=timedelta(hours=1))
        with pytest.raises(AirflowException, match="Trigger timeout"):
            task.resume_execution("__fail__", {"error": "Trigger timeout"}, ti.context())
        log = capsys.readouterr().out
        assert "execution_timeout (1:00:00) is over: no job of this task is running" in log

    def test_a_retry_of_a_job_that_ended_well_returns_at_once(self) -> None:
        ti = Instance(retries=1)
        self.deferred(ti, program="pass")
        until(lambda: jobs(running=False), "the end")
        result = ti.task(deferrable=True).execute(ti.retry().context())
        assert result["outcome"] == "SUCCEEDED" and len(jobs()) == 1

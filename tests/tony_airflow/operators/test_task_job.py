"""A task that Airflow stops around the moment when its job is submitted."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Iterator, List, Optional

import pytest
from airflow.providers.common.compat.sdk import AirflowException

from tests.tony_airflow.tasks import SLEEPS, Instance, end_all, jobs, operator
from tony_airflow.connection import Site
from tony_airflow.hooks.tony import TonyHook
from tony_airflow.links.tony import TENSORBOARD
from tony_airflow.operators import task_job
from tony_airflow.operators.task_job import GONE, TaskJob
from tony_airflow.tags import TaskTags
from tony_core.client.errors import PageError
from tony_core.client.page import JobPage
from tony_core.schedulers.port import AppState, AppStatus, LastingRefusal, NotLoggedIn
from tony_core.view import PAGE, JobView

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def no_job_is_left() -> Iterator[None]:
    yield
    end_all()


def test_before_it_has_begun() -> None:
    task = operator(SLEEPS)
    task.on_kill()
    with pytest.raises(AirflowException, match="was stopped before its job was submitted"):
        task.execute(Instance().context())
    assert jobs() == []


@pytest.mark.parametrize("call", ["find", "load"])
def test_before_its_job_is_submitted(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = operator(SLEEPS)
    asked = getattr(TonyHook, call)

    def ask(hook: TonyHook, *options: Any) -> Any:
        if not task.is_stopped:
            task.on_kill()
        return asked(hook, *options)

    monkeypatch.setattr(TonyHook, call, ask)
    with pytest.raises(AirflowException, match="was stopped before its job was submitted"):
        task.execute(Instance().context())
    assert jobs() == []


def test_while_its_job_is_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a signal handler, which holds up the submit: a wait for its id would not end."""
    task = operator(SLEEPS)
    submit, looked = TonyHook.submit, []
    find = TonyHook.find

    def handled(hook: TonyHook, *options: Any) -> str:
        monkeypatch.setattr(TonyHook, "find", lambda *options: looked.append(options) or [])
        task.on_kill()
        monkeypatch.setattr(TonyHook, "find", find)
        return submit(hook, *options)

    monkeypatch.setattr(TonyHook, "submit", handled)
    with pytest.raises(AirflowException, match="was stopped"):
        task.execute(Instance().context())
    (job,) = jobs()
    assert job.state is AppState.KILLED
    assert looked == []


def test_the_link_to_tensorboard_of_a_job_that_was_ended() -> None:
    job = TaskJob(TonyHook.of(Site()), None)
    job.history_page = "/tony/page/"
    running = JobView("app_1", AppState.RUNNING, PAGE, links={TENSORBOARD: "http://board/"})
    job.push_links_of(running)
    job.push_links_of(running._replace(state=AppState.KILLED, links={}))
    assert job.links[TENSORBOARD] == "/tony/page/#metrics"


class Log:
    """A task's log, of a job that ends as soon as it warns of the lease."""

    def __init__(self) -> None:
        self.warnings: List[str] = []

    def info(self, options: str, *more: Any) -> None:
        pass

    def warning(self, options: str, *more: Any) -> None:
        message = options % more
        self.warnings.append(message)
        if "lease" in message:
            end_all()


def test_a_page_that_cannot_be_read_is_warned_of_on_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreachable(page: JobPage, *arguments: Any) -> Any:
        raise PageError("no route to host")

    found = operator(SLEEPS, wait_for_completion=False, lease=600).execute(Instance().context())
    monkeypatch.setattr(JobPage, "events", unreachable)
    log = Log()
    job = TaskJob(TonyHook.of(Site()), log)
    job.adopt(found["application_id"])
    try:
        view = job.wait(60, lease_s=0.3)
    finally:
        end_all()
        job.hook.close()
    assert view is not None and view.state.value == "KILLED"
    (message,) = [text for text in log.warnings if "lease" in text]
    assert "no route to host" in message


class WithoutTicket:
    """Connections that cannot log in for some tries."""

    def __init__(self, tries: int) -> None:
        self.tries = tries

    @contextmanager
    def client(self) -> Iterator[None]:
        if self.tries:
            self.tries -= 1
            raise NotLoggedIn("the ticket of ann@X has expired", has_expired=True)
        yield


@pytest.mark.parametrize(("tries", "limit_s", "waits"), [(0, 0.0, True), (3, 60.0, True),
                                                         (10**6, 0.05, False)])  # fmt: skip
def test_a_task_waits_for_a_ticket_to_see_its_jobs_end(
    tries: int, limit_s: float, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_job, "LOGIN_PAUSE_S", 0.02)
    hook = TonyHook.of(Site("yarn"))
    monkeypatch.setattr(hook, "get_conn", lambda pool=WithoutTicket(tries): pool)
    job = TaskJob(hook, SimpleNamespace())
    warnings: List[str] = []
    monkeypatch.setattr(job, "warn", warnings.append)
    if waits:
        job._wait_for_login(limit_s)
    else:
        with pytest.raises(NotLoggedIn, match="has expired"):
            job._wait_for_login(limit_s)
    assert len(warnings) == min(tries, 1), "once for an outage"
    assert all("this task cannot log in now, and tries again" in text for text in warnings)


def test_a_stopped_task_waits_for_no_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = TonyHook.of(Site("yarn"))
    monkeypatch.setattr(hook, "get_conn", lambda pool=WithoutTicket(2): pool)
    job = TaskJob(hook, SimpleNamespace(warning=print))
    job.is_killed = True
    with pytest.raises(NotLoggedIn):
        job._wait_for_login(900.0)


TAGS = TaskTags("dag", "run", "train", -1, generation=0, first=False)


class OpenCluster:
    """A cluster that lists every user's applications to ann, and lets her end them."""

    def __init__(self, *owners: str, user: str = "ann", ended: bool = False) -> None:
        self.user = user
        state = AppState.SUCCEEDED if ended else AppState.RUNNING
        self.apps = [
            AppStatus(f"app_{n}", "n", owner, "q", state, tags=TAGS.both, submitted=float(n))
            for n, owner in enumerate(owners)
        ]
        self.scheduler = self
        self.killed: List[str] = []

    @contextmanager
    def client(self) -> Iterator[Any]:
        yield self

    def list(self) -> List[AppStatus]:
        return self.apps

    def status(self, app_id: str) -> AppStatus:
        (status,) = [one for one in self.apps if one.app_id == app_id]
        return status


def job_on(cluster: OpenCluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    hook, log = TonyHook.of(Site("yarn")), Log()
    monkeypatch.setattr(hook, "get_conn", lambda: cluster)

    def kill(app_id: str, *options: Any) -> Any:
        cluster.killed.append(app_id)
        return SimpleNamespace(ended=True)

    monkeypatch.setattr(hook, "kill", kill)
    job = TaskJob(hook, log)
    return job, log.warnings


@pytest.mark.parametrize(
    ("owners", "user", "taken", "killed"),
    [
        (["bob"], "ann", None, []),
        (["ann", "bob"], "ann", "app_0", []),
        (["ann", "ann", "bob"], "ann", "app_1", ["app_0"]),
        (["bob"], "", "app_0", []),  # the embedded scheduler's are one user's
    ],
)
def test_another_users_application_with_the_tasks_tags_is_not_the_tasks(
    owners: List[str],
    user: str,
    taken: Optional[str],
    killed: List[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any user can compute the tags of a scheduled run, and give them to a job."""
    cluster = OpenCluster(*owners, user=user)
    job, warnings = job_on(cluster, monkeypatch)
    found = job.find_predecessor(TAGS)
    assert (found.app_id if found else None) == taken and cluster.killed == killed
    lines = [text for text in warnings if "bob" in text]
    assert len(lines) == (1 if user == "ann" else 0)
    assert all(f"app_{owners.index('bob')} of bob" in text for text in lines)
    assert job._running() == [one.app_id for one in cluster.apps[::-1] if one.user != "bob"] or (
        user == ""
    )


def test_a_result_of_another_user_is_not_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    job, warnings = job_on(OpenCluster("bob", ended=True), monkeypatch)
    assert job.find_predecessor(TAGS) is None
    assert warnings == [], "it runs no more: what it says is of no matter"


def test_after_a_deferral_that_failed_only_the_own_job_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = OpenCluster("bob", "ann")
    job, _ = job_on(cluster, monkeypatch)
    job.on_failed_deferral(TAGS, is_timeout=False, limit=None, retried=False)
    assert cluster.killed == ["app_1"]


@pytest.mark.parametrize("owner", ["ann", "bob"])
def test_a_kill_by_tags_ends_only_the_own_job(owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = OpenCluster(owner)
    job, _ = job_on(cluster, monkeypatch)
    job._tags = TAGS
    job.kill_now()
    assert cluster.killed == (["app_0"] if owner == "ann" else [])


@pytest.mark.parametrize("refusal", ["", "bob has not let ann look at it"])
def test_a_stored_id_of_another_user_is_not_taken_up(
    refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The login has changed since, or an older version has taken up what was not the task's."""
    cluster = OpenCluster("bob", "ann")
    cluster.apps = [one._replace(view_refusal=refusal) for one in cluster.apps]
    job, warnings = job_on(cluster, monkeypatch)
    assert job.state("app_0") == GONE
    assert len(warnings) == 1 and "app_0 of bob" in warnings[0]
    if refusal:
        with pytest.raises(LastingRefusal, match=refusal):
            job.state("app_1")
    else:
        assert job.state("app_1") == "RUNNING"

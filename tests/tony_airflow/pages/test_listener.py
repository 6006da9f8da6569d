"""A person's mark ends the job of a deferred task, by Airflow's own call of its listeners."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Callable, Iterator

import airflow.utils.session
import pytest
from airflow._shared.listeners.listener import ListenerManager
from airflow._shared.listeners.spec import taskinstance
from airflow.api_fastapi.core_api.services.public import task_instances
from airflow.models.dag import DagModel
from airflow.providers.common.compat.sdk import TaskDeferred

from tests.tony_airflow.pages.test_api_server import Session
from tests.tony_airflow.tasks import SLEEPS, Instance, end_all, jobs
from tony_airflow.pages import history, listener
from tony_airflow.pages.plugin import TonyPlugin
from tony_core.schedulers.local.client import LocalScheduler
from tony_core.schedulers.port import AppState

pytestmark = pytest.mark.timeout(300)

Mark = Callable[..., None]


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def mark(session: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mark]:
    """``mark(state, ti)``: as the API server does after it has set the state."""
    manager = ListenerManager()
    manager.add_hookspecs(taskinstance)
    (ours,) = TonyPlugin().listeners
    manager.add_listener(ours)
    monkeypatch.setattr(task_instances, "get_listener_manager", lambda: manager)
    own = nullcontext(session)
    monkeypatch.setattr(airflow.utils.session, "create_session", lambda scoped: own)
    monkeypatch.setattr(DagModel, "get_team_name", staticmethod(lambda dag_id: None))
    monkeypatch.setattr(listener, "GRACE_S", 0.0)

    def make(state: str, ti: Instance, trigger_id: Any = 1, **more: Any) -> None:
        place = {name: getattr(ti, name) for name in ("dag_id", "run_id", "task_id", "map_index")}
        one: Any = SimpleNamespace(**{**place, **more}, trigger_id=trigger_id)
        task_instances._emit_state_listener_hooks([one], state)
        for thread in threading.enumerate():
            if thread.name == "tony-mark":
                thread.join(60)

    yield make
    end_all()


def test_the_job_of_a_marked_task_ends(session: Session, mark: Mark) -> None:
    for state in ("failed", "success"):
        ti = Instance(run_id=state)
        with pytest.raises(TaskDeferred):
            ti.task(SLEEPS, deferrable=True).execute(ti.context())
        for key, value in ti.pushed.items():
            session.xcoms["dag", state, "train", key] = value
            session.xcoms["dag", "other", "train", key] = value
        mark(state, ti, trigger_id=None)  # not deferred: its worker ends it, or nothing does
        mark(state, ti, run_id="other")  # XComs of a task that has not submitted it
        mark(state, ti, run_id="none")
        mark("skipped", ti)
        (job,) = jobs(running=True)
        mark(state, ti)
        (ended,) = [one for one in jobs() if one.app_id == job.app_id]
        assert ended.state is AppState.KILLED
        assert "its Airflow task was marked" in ended.diagnostics


def test_the_job_of_another_user_goes_on(
    session: Session, mark: Mark, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ti = Instance()
    with pytest.raises(TaskDeferred):
        ti.task(SLEEPS, deferrable=True).execute(ti.context())
    for key, value in ti.pushed.items():
        session.xcoms["dag", "run", "train", key] = value
    monkeypatch.setattr(LocalScheduler, "user", "bob")
    mark("failed", ti)
    (job,) = jobs(running=True)
    assert f"{job.app_id}, whose task was marked, ends by its lease: it is {job.user}'s" in (
        caplog.text
    )


def test_a_cluster_that_cannot_be_asked(
    session: Session, mark: Mark, caplog: pytest.LogCaptureFixture
) -> None:
    ti = Instance()
    app_id = "application_1700000000000_0001"
    session.xcoms["dag", "run", "train", "application_id"] = app_id
    session.xcoms["dag", "run", "train", "tony_connection"] = {"connection": "nowhere"}
    mark("failed", ti)
    assert f"{app_id}, whose task was marked, ends by its lease" in caplog.text


def test_what_cannot_be_ended_is_logged_without_passwords(
    session: Session, mark: Mark, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: Any) -> None:
        raise RuntimeError("http://ann:hunter2@rm:8088 does not answer")

    monkeypatch.setattr(history, "site_for", refuse)
    session.xcoms["dag", "run", "train", "application_id"] = "application_1700000000000_0001"
    mark("failed", Instance())
    assert "@rm:8088 does not answer" in caplog.text and "hunter2" not in caplog.text


def test_any_number_of_tasks_is_marked_at_once(
    session: Session, mark: Mark, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A run has thousands of mapped tasks, and a cluster may hang."""
    app_id = "application_1700000000000_0001"
    session.xcoms["dag", "run", "train", "application_id"] = app_id
    slots = threading.BoundedSemaphore(1)
    monkeypatch.setattr(listener, "_threads", slots)
    for _ in range(2):
        mark("failed", Instance())  # without a connection: it gives up at once
    assert caplog.text.count("names no connection for its job") == 2
    assert slots.acquire(blocking=False)
    mark("failed", Instance())
    assert f"{app_id}, whose task was marked, ends by its lease: {listener.THREADS} others" in (
        caplog.text
    )


def test_a_task_that_ends_by_itself_is_none_of_its_business() -> None:
    for end in (listener.on_task_instance_failed, listener.on_task_instance_success):
        end("running", SimpleNamespace(trigger_id=1))

"""The sensor and its trigger, with real jobs of the embedded scheduler."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest
from airflow.providers.common.compat import sdk
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
)

from tests.tony_airflow.tasks import Instance, end_all, jobs, operator, until
from tony_airflow.hooks.tony import TonyHook
from tony_airflow.sensors import waiting
from tony_airflow.sensors.tony import TonySensor
from tony_airflow.sensors.waiting import SensorWait, read_condition
from tony_airflow.triggers.sensing import TonySensingTrigger
from tony_core.client.workflow.condition import REACHED, ConditionResult
from tony_core.client.workflow.poller import Subscription
from tony_core.schedulers.local.client import LocalScheduler
from tony_core.schedulers.port import LastingRefusal, NotLoggedIn, SchedulerError

pytestmark = pytest.mark.timeout(300)
PATIENCE_S = 120.0


@pytest.fixture(autouse=True)
def no_job_is_left() -> Iterator[None]:
    yield
    end_all()


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """A job's program goes on when this is there."""
    return tmp_path / "go"


def start(go: Path, end: str = "pass", lease: int = 120, **options: Any) -> str:
    """A job that reports a loss of 0.5, waits, reports 0.25 and ends."""
    program = go.with_suffix(".py")
    program.write_text(
        "import os, time, tony\n"
        'tony.report(metrics={"loss": 0.5})\n'
        f"while not os.path.exists({str(go)!r}): time.sleep(0.05)\n"
        'tony.report(metrics={"loss": 0.25})\n' + end
    )
    task = operator(wait_for_completion=False, lease=lease, files=[str(program)], **options)
    task.executes = f"python3 {program.name}"
    found = task.execute(Instance().context())
    return str(found["application_id"])


def sensor(**options: Any) -> TonySensor:
    return TonySensor(task_id="wait", scheduler="local", poke_interval=0.1, timeout=100, **options)


def look(**options: Any) -> Any:
    return sensor(**options).poke({})


def later(go: Path) -> threading.Thread:
    """The job goes on in a moment."""
    timer = threading.Timer(0.5, go.touch)
    timer.start()
    return timer


def test_it_waits_for_a_state(go: Path) -> None:
    app_id = start(go, tags=["of-a-sensor"], job_name="a-training")
    assert not look(application_id=app_id)
    until(lambda: look(application_id=app_id, state="RUNNING"), "its running")
    timer = later(go)
    found = sensor(tag="OF-a-sensor").execute({})
    assert found == {"application_id": app_id, "state": "SUCCEEDED"}
    timer.join()
    assert look(name="a-training", state="ended").xcom_value == found
    assert not look(name="another")
    assert not look(name="a-training", submitted_after=datetime.now(timezone.utc).isoformat())


def test_it_waits_for_a_metric(go: Path) -> None:
    app_id = start(go)
    until(lambda: look(application_id=app_id, metric="loss", below=0.6), "a first loss")
    assert not look(application_id=app_id, metric="loss", below="0.3")
    timer = later(go)
    found = sensor(application_id=app_id, metric="loss", below=0.3).execute({})
    assert found["value"] == 0.25
    timer.join()


def test_a_job_that_ends_otherwise_fails_it_for_good(go: Path) -> None:
    go.touch()
    app_id = start(go, end="1/0")
    with pytest.raises(AirflowFailException, match=r"has ended as FAILED \(.* to be SUCCEEDED"):
        sensor(application_id=app_id).execute({})
    with pytest.raises(AirflowSkipException):
        sensor(application_id=app_id, soft_fail=True).execute({})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "by one of application_id, tag and name"),
        ({"name": "x", "state": "DONE"}, "'DONE' is not a state"),
        ({"name": "x", "metric": "loss"}, "above= or below="),
        ({"name": "x", "metric": "loss", "below": "low"}, "below is 'low', which is not a number"),
        ({"name": "x", "submitted_after": "2026-01-01"}, "without a time zone"),
    ],
)
def test_what_is_wrong_is_not_retried(options: Dict[str, Any], message: str) -> None:
    with pytest.raises(AirflowFailException, match=message):
        sensor(**options).execute({})


def away(hook: Any, *arguments: Any) -> Any:
    raise SchedulerError("the ResourceManager is restarting")


def test_a_cluster_that_is_away_for_a_moment(go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go.touch()
    app_id = start(go)
    until(lambda: not jobs(running=True), "its end")
    waiting = sensor(application_id=app_id)
    with monkeypatch.context() as patch:
        patch.setattr(TonyHook, "status", away)
        assert not waiting.poke({}) and not waiting.poke({})
    assert waiting.poke({})


def test_a_cluster_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TonyHook, "list", away)
        with pytest.raises(AirflowException, match="is restarting") as caught:
            sensor(name="x", unreachable_timeout=0.2).execute({})
        assert not isinstance(caught.value, AirflowFailException)
        # A triggerer asks again, for as long.
        assert deferred(name="x", unreachable_timeout=7).unreachable_s == 7


def test_an_application_that_neither_scheduler_nor_history_knows() -> None:
    with pytest.raises(AirflowException, match="knows no application local_1_x"):
        look(application_id="local_1_x")


# ------------------------------------------------------------------ deferred


def deferred(**options: Any) -> TonySensingTrigger:
    """The trigger of a deferred sensor, as another process makes it."""
    with pytest.raises(TaskDeferred) as caught:
        sensor(deferrable=True, **options).execute({})
    trigger = caught.value.trigger
    assert caught.value.method_name == "execute_complete"
    path, arguments = trigger.serialize()
    assert path == f"{TonySensingTrigger.__module__}.TonySensingTrigger"
    arguments = json.loads(json.dumps(arguments))
    return TonySensingTrigger(**{**arguments, "poll_interval": 0.2})


async def first(trigger: TonySensingTrigger) -> Any:
    async for event in trigger.run():
        return event.payload
    return None


def fired(trigger: TonySensingTrigger) -> Any:
    return asyncio.run(asyncio.wait_for(first(trigger), PATIENCE_S))


def test_deferred_until_it_has_ended(go: Path) -> None:
    app_id = start(go, job_name="a-training")
    by_id, by_name = deferred(application_id=app_id), deferred(name="a-training")
    timer = later(go)

    async def both() -> Any:
        return await asyncio.wait_for(asyncio.gather(first(by_id), first(by_name)), PATIENCE_S)

    for content in asyncio.run(both()):
        found = sensor(application_id=app_id).execute_complete({}, content)
        assert found == {"application_id": app_id, "state": "SUCCEEDED"}
    timer.join()


def test_it_links_to_the_job_that_it_has_found(go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which names a portal itself; the connection has none."""
    app_id = start(go, tags=["linked"], conf={"tony.portal.url": "http://portal"})
    ti, page = Instance(), f"http://portal/jobs/{app_id}"
    waiting = sensor(tag="linked")
    assert not waiting.poke(ti.context())
    trigger = deferred(tag="linked")
    timer = later(go)
    waiting.execute(ti.context())
    timer.join()
    assert ti.pushed == {"tony_link_portal": page}
    links = {one.name: one.get_link(waiting, ti_key=None) for one in waiting.operator_extra_links}
    assert links == {"YARN application": "", "Portal": page}

    stored: Dict[str, str] = {}

    class Kept:
        @staticmethod
        async def aset(key: str, value: str, **where: Any) -> None:
            stored[key] = value

    monkeypatch.setattr(sdk, "XCom", Kept, raising=False)
    monkeypatch.setattr(TonySensingTrigger, "task_instance", ti, raising=False)
    trigger.site = {**trigger.site, "portal_url": "http://portal"}
    fired(trigger)
    assert stored == {"tony_link_portal": page}


def test_deferred_it_leaves_its_links_to_the_trigger(go: Path) -> None:
    waiting = sensor(tag="not-there", deferrable=True)
    with pytest.raises(TaskDeferred):
        waiting.execute({})
    assert waiting.operator_extra_links == ()


def test_deferred_before_the_job_is_there(go: Path) -> None:
    trigger = deferred(tag="comes-later", metric="loss", below=0.6)
    timer = threading.Timer(0.5, lambda: start(go, tags=["comes-later"]))
    timer.start()
    content = fired(trigger)
    timer.join()
    assert content["verdict"] == "reached" and content["found"]["value"] == 0.5


def test_by_default_only_a_job_of_its_own_user(go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user of a cluster can give a job any name and tag."""
    app_id = start(go, tags=["nightly"])
    (other,) = {one.user for one in jobs()}
    with monkeypatch.context() as patch:
        patch.setattr(LocalScheduler, "user", f"not-{other}")
        running: Dict[str, Any] = {"tag": "nightly", "state": "RUNNING"}
        until(lambda: look(**running, user=other), "the job")
        assert look(**running, user="*").xcom_value["application_id"] == app_id
        assert not look(**running)
        assert not look(**running, user="third")
        assert look(application_id=app_id, state="RUNNING"), "an id names one application"
        with pytest.raises(AirflowFailException, match="user is for a tag or a name"):
            look(application_id=app_id, user=other)
        answer = SensorWait(sensor(**running))._evaluate()
        assert f"{app_id} is {other}'s, and counts with user='{other}'" in answer.text
        trigger = deferred(**running)
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(asyncio.wait_for(first(trigger), 3.0))
    assert fired(trigger)["found"]["application_id"] == app_id


def test_deferred_it_keeps_no_other_tasks_job(go: Path) -> None:
    app_id = start(go, lease=8)
    content = fired(deferred(application_id=app_id, state="ended"))
    assert content["found"]["state"] == "KILLED"
    (job,) = jobs()
    assert "lease" in job.diagnostics


def test_deferred_and_missed(go: Path) -> None:
    app_id = start(go, end="1/0")
    trigger = deferred(application_id=app_id, metric="loss", below=0.1)
    timer = later(go)
    content = fired(trigger)
    timer.join()
    with pytest.raises(AirflowFailException, match=r"it reported 0\.25"):
        sensor(application_id=app_id).execute_complete({}, content)


@pytest.mark.parametrize("lenient", ["soft_fail", "never_fail"])
def test_what_has_missed_already_is_skipped_when_asked(go: Path, lenient: str) -> None:
    go.touch()
    app_id = start(go, end="1/0")
    until(lambda: not jobs(running=True), "its end")
    with pytest.raises(AirflowSkipException, match="has ended as FAILED"):
        sensor(application_id=app_id, deferrable=True, **{lenient: True}).execute({})


def test_nothing_is_deferred_for_what_is_there_already(go: Path) -> None:
    go.touch()
    app_id = start(go)
    until(lambda: not jobs(running=True), "its end")
    found = sensor(application_id=app_id, deferrable=True).execute({})
    assert found["state"] == "SUCCEEDED"


def test_of_another_machine_nothing_can_be_seen(go: Path) -> None:
    trigger = deferred(name="some-training")
    trigger.host = "elsewhere"
    content = fired(trigger)
    with pytest.raises(AirflowException, match="the embedded scheduler of elsewhere"):
        sensor(name="some-training").execute_complete({}, content)


@pytest.mark.parametrize("which", [{"name": "a"}, {"application_id": "application_1_0001"}])
def test_a_wrong_setup_of_a_triggerer_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: Dict[str, str]
) -> None:
    monkeypatch.setattr(waiting, "REFUSED_S", 0.2)
    monkeypatch.setattr(waiting, "REFUSAL_PAUSE_S", 0.05)
    monkeypatch.setattr(Subscription.__init__, "__defaults__", (None, False, None, 0.2, True))
    site = {"scheduler": "yarn", "hadoop_conf_dir": str(tmp_path / "nowhere")}
    condition = read_condition(sensor(**which)).to_dict()
    content = fired(TonySensingTrigger(site=site, condition=condition, poll_interval=0.2))
    with pytest.raises(AirflowFailException, match=f"this triggerer .*{tmp_path}/nowhere"):
        sensor(**which).execute_complete({}, content)


def test_a_refusal_is_borne_while_a_ticket_is_written_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And one that lasts ends the check with its sentence."""
    monkeypatch.setattr(waiting, "REFUSAL_PAUSE_S", 0.05)
    refusals = [LastingRefusal("the ticket has expired")]

    def answer(*_: Any) -> ConditionResult:
        if refusals:
            raise refusals.pop() if len(refusals) == 1 else refusals[0]
        return ConditionResult(REACHED, "it is there")

    monkeypatch.setattr(waiting.SensorWait, "_evaluate", answer)
    assert sensor(name="a").poke({}).is_done
    assert refusals == []
    refusals[:] = [LastingRefusal("the ticket has expired")] * 1000
    monkeypatch.setattr(waiting, "REFUSED_S", 0.2)
    with pytest.raises(AirflowFailException, match="the ticket has expired"):
        sensor(name="a").poke({})


def test_a_ticket_that_has_expired_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [NotLoggedIn("the ticket has expired", has_expired=True)] * 2

    def answer(*_: Any) -> ConditionResult:
        if answers:
            raise answers.pop()
        return ConditionResult(REACHED, "it is there")

    monkeypatch.setattr(waiting.SensorWait, "_evaluate", answer)
    monkeypatch.setattr(waiting, "REFUSED_S", 0.0)
    one = sensor(name="a")
    assert not one.poke({}).is_done and not one.poke({}).is_done
    assert one.poke({}).is_done
    answers[:] = [NotLoggedIn("the ticket has expired", has_expired=True)] * 2
    hasty = sensor(name="a", unreachable_timeout=0.001)
    assert not hasty.poke({}).is_done
    time.sleep(0.01)
    with pytest.raises(AirflowException, match="the ticket has expired") as caught:
        hasty.poke({})
    assert not isinstance(caught.value, AirflowFailException), "the next try may have a ticket"


def test_a_reached_wait_leaves_nothing_running(go: Path) -> None:
    app_id = start(go)
    trigger = deferred(application_id=app_id)

    async def given_up() -> None:
        task = asyncio.create_task(first(trigger))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(given_up())
    deadline = time.monotonic() + PATIENCE_S
    while any(thread.name.startswith("tony-hook") for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert jobs(running=True), "the job is not the sensor's to end"

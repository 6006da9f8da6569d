"""The trigger, with real jobs of the embedded scheduler."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Optional

import pytest
from airflow.triggers.base import TriggerEvent

from tests.tony_airflow.tasks import SLEEPS, end_all, jobs, operator
from tests.tony_airflow.tasks import Instance as TaskInstance
from tony_airflow.connection import Site
from tony_airflow.triggers import tony as trigger_module
from tony_airflow.triggers.tony import TonyTrigger
from tony_core.client.workflow.poller import JobEnded, LoginLost, Retrying, Subscription
from tony_core.schedulers.port import AppState, AppStatus

pytestmark = pytest.mark.timeout(300)
PATIENCE_S = 120.0


@pytest.fixture(autouse=True)
def no_job_is_left() -> Iterator[None]:
    yield
    end_all()


def submitted(program: str, home: Path, **options: Any) -> TonyTrigger:
    """A trigger as another process makes it, of a job that was submitted just now."""
    task = operator(program, wait_for_completion=False, lease=600)
    app_id = task.execute(TaskInstance().context())["application_id"]
    content = {"site": {"scheduler": "local", "home": str(home)}, "app_id": app_id, **options}
    path, arguments = TonyTrigger(**{"poll_interval": 0.2, **content}).serialize()
    assert path == f"{TonyTrigger.__module__}.TonyTrigger"
    return TonyTrigger(**json.loads(json.dumps(arguments)))


async def first(trigger: TonyTrigger) -> Optional[TriggerEvent]:
    async for event in trigger.run():
        return event
    return None


def payload(trigger: TonyTrigger) -> Dict[str, Any]:
    event = asyncio.run(asyncio.wait_for(first(trigger), PATIENCE_S))
    assert event is not None
    content: Dict[str, Any] = event.payload
    return content


@pytest.mark.parametrize(("program", "outcome"), [("pass", "SUCCEEDED"), ("1/0", "FAILED")])
def test_it_fires_at_the_end_with_all_that_the_task_needs(
    tony_home: Path, program: str, outcome: str
) -> None:
    trigger = submitted(program, tony_home)
    content = payload(trigger)
    assert (outcome == "FAILED") is ("ZeroDivisionError" in content.pop("diagnostics"))
    assert content.pop("links") == {}, "the task has no links"
    assert isinstance(content.pop("seen"), bool) and content.pop("output") == {}
    assert content == {"site": trigger.site, "app_id": trigger.app_id, "outcome": outcome}


def test_a_login_that_is_lost_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task's next try finds the job again; a refusal would end it."""
    warnings: List[str] = []
    trigger = TonyTrigger(site={"scheduler": "yarn"}, app_id="application_1_0001")
    monkeypatch.setattr(trigger, "warn", warnings.append)
    trigger.warn_of_retry(Retrying("the ticket has expired", is_login=True))
    trigger.warn_of_retry(Retrying("connection refused"))
    assert warnings == [
        "this triggerer cannot log in now, and asks again for 900 s: the ticket has expired",
        "the scheduler gives no answer now, and is asked again: connection refused",
    ]
    content = trigger.failure(LoginLost("the ticket has expired", 900.4), "the job")
    without = f"this triggerer ({socket.gethostname()}) has had no valid login for 900 s"
    assert content == {"error": f"{without}: the ticket has expired"}


def test_its_arguments_name_the_login_and_hold_no_secret() -> None:
    site = Site("yarn", "prod", principal="gateway@X", keytab="/etc/g.keytab", proxy_user="ann")
    _, arguments = TonyTrigger(site=site.for_trigger(), app_id="application_1_0001").serialize()
    assert arguments["site"] == {
        "scheduler": "yarn",
        "name": "prod",
        "principal": "gateway@X",
        "keytab": "/etc/g.keytab",
        "proxy_user": "ann",
    }
    assert Site.from_dict(json.loads(json.dumps(arguments))["site"]) == site


def test_what_is_kept_of_its_end_is_masked() -> None:
    """A scheduler's words come by no master that would have masked them."""
    diagnostics_text = "x" * 3990 + " --password=hunter2horse is wrong"
    ended = AppStatus("app", "n", "u", "q", AppState.FAILED, diagnostics=diagnostics_text)
    kept = trigger_module.end_of(JobEnded(ended))["diagnostics"]
    assert kept.endswith("is wrong") and len(kept) <= 4000
    assert "hunter2horse" not in kept


def test_links_and_the_chiefs_output_come_while_it_runs(
    tony_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed: List[Dict[str, str]] = []

    async def push(ti: Any, links: Dict[str, str]) -> None:
        pushed.append(dict(links))

    def record(text: str) -> None:
        if text == "[worker:0] the first epoch":
            end_all()  # on the loop's thread, and only here

    monkeypatch.setattr(trigger_module, "a_push", push)
    program = f'print("the first epoch", flush=True); {SLEEPS}'
    trigger = submitted(program, tony_home, links=["page", "tensorboard"], get_logs=True)
    monkeypatch.setattr(trigger, "info", record)
    content = payload(trigger)
    assert content["outcome"] == "KILLED" and content["links"] == pushed[0]
    assert content["seen"] is True, "the log has the story"
    assert [at for key, at in content["output"].items() if key.endswith("/stdout")] == [16]
    assert pushed[0]["page"].startswith("http://")
    assert all(set(links) <= {"page", "tensorboard"} for links in pushed)


def test_a_button_that_cannot_be_kept_is_no_failure(
    tony_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def push(ti: Any, links: Dict[str, str]) -> None:
        end_all()
        raise RuntimeError("Airflow's database is away")

    monkeypatch.setattr(trigger_module, "a_push", push)
    trigger = submitted(SLEEPS, tony_home, links=["page"])
    assert payload(trigger)["outcome"] == "KILLED"


def test_a_triggerer_of_another_host_names_the_remedy(tony_home: Path) -> None:
    site = {"scheduler": "local", "home": str(tony_home)}
    trigger = TonyTrigger(site=site, app_id="local_1", host="far.away")
    content = payload(trigger)["refused"]
    for word in ("embedded scheduler", "far.away", "deferrable=False", "cluster"):
        assert word in content
    of_a_cluster = TonyTrigger(site={"scheduler": "yarn"}, app_id="a", host="far.away")
    assert not of_a_cluster.foreign_host("the job a")


def test_a_wrong_setup_of_a_triggerer_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Subscription.__init__, "__defaults__", (None, False, None, 0.2, True))
    site = {"scheduler": "yarn", "hadoop_conf_dir": str(tmp_path / "nowhere")}
    refused = payload(TonyTrigger(site=site, app_id="application_1_0001"))["refused"]
    assert f"this triggerer ({socket.gethostname()})" in refused
    assert str(tmp_path / "nowhere") in refused


def test_a_job_that_there_is_not(tony_home: Path) -> None:
    site = {"scheduler": "local", "home": str(tony_home)}
    trigger = TonyTrigger(site=site, app_id="local_20260101000000_abcdef", poll_interval=0.1)
    assert "is gone" in payload(trigger)["error"]


def test_a_kill_ends_the_job(tony_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = submitted(SLEEPS, tony_home)
    trigger.links = ["logs", "log:worker:0"]
    pushed: Dict[str, str] = {}

    async def a_push(ti: Any, links: Dict[str, str]) -> None:
        pushed.update(links)

    monkeypatch.setattr("tony_airflow.triggers.tony.a_push", a_push)
    ti = SimpleNamespace(dag_id="dag", run_id="run", task_id="train", map_index=-1)
    monkeypatch.setattr(TonyTrigger, "task_instance", ti, raising=False)

    async def killed() -> None:
        waiting = asyncio.create_task(first(trigger))
        await asyncio.sleep(0.2)
        waiting.cancel()  # what Airflow does first
        await asyncio.gather(waiting, return_exceptions=True)
        await trigger.on_kill()

    asyncio.run(asyncio.wait_for(killed(), PATIENCE_S))
    (job,) = jobs()
    assert job.state is AppState.KILLED and "Airflow" in job.diagnostics
    kept = "/tony/dags/dag/runs/run/tasks/train/-1/logs"  # its own page is gone
    assert pushed == {"logs": kept, "log:worker:0": f"{kept}/worker%3A0"}


def test_a_restart_of_the_triggerer_ends_nothing(tony_home: Path) -> None:
    trigger = submitted(SLEEPS, tony_home)

    async def restarted() -> None:
        waiting = asyncio.create_task(first(trigger))
        await asyncio.sleep(0.2)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await trigger.cleanup()

    asyncio.run(asyncio.wait_for(restarted(), PATIENCE_S))
    assert len(jobs(running=True)) == 1


@pytest.mark.slow
@pytest.mark.nightly  # it waits; its parts: tests/client/test_page.py, tests/master/test_master.py
def test_waiting_keeps_the_lease(tony_home: Path) -> None:
    """Longer than the lease is, and only the trigger renews it."""
    task = operator("import time; time.sleep(25)", wait_for_completion=False, lease=15)
    app_id = task.execute(TaskInstance().context())["application_id"]
    site = {"scheduler": "local", "home": str(tony_home)}
    trigger = TonyTrigger(site=site, app_id=app_id, poll_interval=0.5, lease_s=15)
    assert payload(trigger)["outcome"] == "SUCCEEDED"

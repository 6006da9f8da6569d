"""The buttons: their names, their XComs, and the addresses that were pushed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import pytest
from airflow.providers.common.compat import sdk

from tony_airflow.connection import Site
from tony_airflow.links.addresses import (
    application_page,
    lasting_links,
    links_of,
    portal_page,
)
from tony_airflow.links.tony import LINKS, LOG, TaskLogLink, TaskLogsLink, a_push, key_of, push
from tony_core.schedulers.port import AppState
from tony_core.view import HISTORY, JobView, TaskView

APP = "application_1700000000000_0001"
APPLICATION = f"http://rm1:8088/cluster/app/{APP}"
VIEW = JobView(
    APP,
    AppState.RUNNING,
    "page",
    links={
        "page": f"http://rm2:8088/proxy/{APP}/",
        "tensorboard": f"http://rm2:8088/proxy/{APP}/tensorboard/",
        "portal": f"http://portal/jobs/{APP}",
    },
    tasks=(TaskView("worker:0", log_url="http://node/logs/1"), TaskView("worker:1")),
)


class TestTheButtons:
    def test_each_has_a_name_and_a_place_of_its_own(self) -> None:
        made: List[Any] = [*LINKS, TaskLogLink("worker:0"), TaskLogLink("worker:1")]
        assert [link.name for link in made] == [
            "TensorBoard",
            "Task logs",
            "YARN application",
            "Portal",
            "Log of worker:0",
            "Log of worker:1",
        ]
        assert len({link.xcom_key for link in made}) == len(made)

    def test_a_link_is_the_address_that_was_pushed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stored: Dict[str, str] = {}
        ti = SimpleNamespace(xcom_push=lambda key, value: stored.update({key: value}))
        links = {"logs": "http://page/logs", "tensorboard": "", LOG + "worker:0": "http://log/"}
        push(ti, {**links, LOG + "worker:1": "http://other/"}, wanted=links)
        assert stored == {
            key_of("logs"): "http://page/logs",
            "tony_link_log_worker_0": "http://log/",
        }
        kept = SimpleNamespace(get_value=lambda ti_key, key: stored.get(key))
        monkeypatch.setattr(sdk, "XCom", kept, raising=False)
        assert TaskLogsLink().get_link(None, ti_key=None) == "http://page/logs"
        assert TaskLogLink("worker:0").get_link(None, ti_key=None) == "http://log/"
        assert LINKS[0].get_link(None, ti_key=None) == ""  # type: ignore[arg-type]

    def test_an_operator_that_pushed_its_links_reads_no_xcom(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept = SimpleNamespace(get_value=lambda ti_key, key: f"http://stored/{key}")
        monkeypatch.setattr(sdk, "XCom", kept, raising=False)
        single = SimpleNamespace(links_pushed={"logs": "http://page/logs"})
        assert TaskLogsLink().get_link(single, ti_key=None) == "http://page/logs"
        assert TaskLogLink("worker:0").get_link(single, ti_key=None) == ""
        with_a_trigger = SimpleNamespace(links_pushed=None)
        assert TaskLogsLink().get_link(with_a_trigger, ti_key=None).startswith("http://stored/")

    def test_from_a_trigger(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stored: List[Tuple[str, str, str, int]] = []

        class Kept:
            @staticmethod
            async def aset(key: str, value: str, **where: Any) -> None:
                stored.append((key, value, where["task_id"], where["map_index"]))

        monkeypatch.setattr(sdk, "XCom", Kept, raising=False)
        ti = SimpleNamespace(dag_id="d", task_id="t", run_id="r", map_index=3)
        asyncio.run(a_push(ti, {"tensorboard": "http://tb/", "page": ""}))
        asyncio.run(a_push(None, {"page": "http://page/"}))
        assert stored == [(key_of("tensorboard"), "http://tb/", "t", 3)]


class TestWhereTheyLead:
    def test_while_it_runs(self) -> None:
        assert links_of(VIEW, APPLICATION) == {
            "yarn": f"http://rm2:8088/cluster/app/{APP}",
            "portal": f"http://portal/jobs/{APP}",
            "tensorboard": f"http://rm2:8088/proxy/{APP}/tensorboard/",
            "page": f"http://rm2:8088/proxy/{APP}/",
            "logs": f"http://rm2:8088/proxy/{APP}/logs",
            "log:worker:0": "http://node/logs/1",
        }

    def test_when_it_has_ended_to_what_stays(self) -> None:
        ended = VIEW._replace(state=AppState.FAILED, links={})
        bare = links_of(ended, APPLICATION)
        assert bare["page"] == bare["yarn"] == APPLICATION
        assert links_of(ended, APPLICATION, "/tony/x/")["logs"] == "/tony/x/logs"
        assert "page" not in links_of(ended)

    @pytest.mark.parametrize("kept", ["", "/tony/x/"])
    @pytest.mark.parametrize("application", ["", APPLICATION])
    @pytest.mark.parametrize("log_url", ["http://node/logs/1", "/var/tony/worker_0"])
    @pytest.mark.parametrize("is_in_view", [True, False])
    def test_when_it_has_ended_to_the_portal_on_every_scheduler(
        self, kept: str, application: str, log_url: str, is_in_view: bool
    ) -> None:
        page = "http://portal/jobs/x"
        ended = VIEW._replace(
            state=AppState.FAILED,
            links={"portal": page} if is_in_view else {},
            tasks=(TaskView("worker:0", log_url=log_url), TaskView("worker:1")),
        )
        # Where its history cannot be read, the connection has the portal all the same.
        found = links_of(ended, application, kept, "http://other/jobs/x" if is_in_view else page)
        assert found.pop("yarn", "") == application
        assert found == {
            "portal": page,
            "page": page,
            "logs": f"{page}/tasks",
            "log:worker:0": f"{page}/log/worker%3A0",
        }

    def test_the_connections_portal_while_it_runs_and_before_its_page_answers(self) -> None:
        waiting = JobView(APP, AppState.ACCEPTED, "scheduler")
        assert links_of(waiting, portal="http://portal/jobs/x") == {
            "portal": "http://portal/jobs/x"
        }
        site = Site(portal_url="http://portal/")
        assert portal_page(site, APP) == f"http://portal/jobs/{APP}"
        assert portal_page(Site(), APP) == ""

    def test_a_log_that_is_a_folder_of_a_machine(self) -> None:
        """The embedded scheduler's: a browser sees it by the job's page, while there is one."""
        here = VIEW._replace(
            links={"page": "http://127.0.0.1:4711/"},
            tasks=(TaskView("worker:0", log_url="/var/tony/worker_0"),),
        )
        assert links_of(here)["log:worker:0"] == "http://127.0.0.1:4711/logs/worker%3A0"
        for unseen in (here._replace(links={}), here._replace(state=AppState.FAILED)):
            assert links_of(unseen) == {}

    def test_no_button_runs_a_script(self) -> None:
        """A program that runs as its job's user can write what is read of the job."""
        evil = dict.fromkeys(("portal", "tensorboard", "page"), "javascript:alert(1)")
        assert links_of(VIEW._replace(links={}, tasks=()), portal="javascript:alert(1)") == {}
        tasks = (TaskView("worker:0", log_url="javascript://h/%0aalert(1)"),)
        for state in (AppState.RUNNING, AppState.FAILED):
            assert links_of(VIEW._replace(state=state, links=evil, tasks=tasks)) == {}

    def test_a_web_proxy_apart_is_no_resource_manager(self) -> None:
        apart = VIEW._replace(links={"page": f"http://proxy:9099/proxy/{APP}/"})
        assert links_of(apart, APPLICATION)["yarn"] == APPLICATION

    def test_the_page_of_the_application(self, tmp_path: Path) -> None:
        hadoop = {"fs.defaultFS": "hdfs://nn", "yarn.resourcemanager.webapp.address": "rm:9"}
        site = Site("yarn", resource_managers=("rm:8032",), hadoop=hadoop)
        assert application_page(site, APP) == f"http://rm:9/cluster/app/{APP}"
        assert application_page(Site(), APP) == ""
        missing = Site("yarn", hadoop_conf_dir=str(tmp_path))
        assert application_page(missing, APP) == ""


def test_a_result_has_the_addresses_of_now_and_those_that_were() -> None:
    ended = JobView("app_1", AppState.SUCCEEDED, HISTORY, links={"portal": "http://p/"})
    seen = {"page": "http://a/", "tensorboard": "http://b/"}
    assert lasting_links(ended, seen) == {
        "page": "http://p/",
        "logs": "http://p/tasks",
        "portal": "http://p/",
        "tensorboard": "http://b/",
    }

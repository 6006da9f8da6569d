"""The pages behind Airflow 3's own authorization."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Tuple
from urllib.parse import quote

import pytest
from airflow.api_fastapi.core_api import security
from airflow.models.dag import DagModel
from fastapi.testclient import TestClient

from tests.tony_airflow.pages.test_history import XCOMS
from tests.tony_airflow.pages.written import EVIL, TI_KEY, written
from tony_airflow.links.addresses import history_page
from tony_airflow.pages import api_server
from tony_airflow.pages.plugin import PREFIX, TonyPlugin

URL = f"/dags/dag/runs/{quote(TI_KEY.run_id, safe='')}/tasks/train/-1/"


class Manager:
    """An auth manager: ann may see the DAG with its logs, bob the DAG alone, eve another one."""

    def __init__(self) -> None:
        self.asked: List[Tuple[str, str, str, str]] = []

    async def get_user_from_token(self, token: str) -> str:
        if token not in ("ann", "bob", "eve"):
            raise security.InvalidTokenError("what is this?")
        return token

    def is_authorized_dag(self, method: str, access_entity: Any, details: Any, user: str) -> bool:
        self.asked.append((method, access_entity.name, details.id, user))
        allowed = {("ann", "dag", "TASK_LOGS"), ("bob", "dag", "RUN"), ("eve", "hers", "TASK_LOGS")}
        return (user, details.id, access_entity.name) in allowed


class Session:
    """The XComs of one task instance."""

    def __init__(self) -> None:
        self.xcoms: Dict[Tuple[str, ...], Any] = {}

    def scalars(self, query: Any) -> Any:
        values = {str(value) for value in query.compile().params.values()}
        for place, value in self.xcoms.items():
            if set(place) <= values:
                found = SimpleNamespace(value=value)  # as a task pushes it
                return SimpleNamespace(first=lambda found=found: found)
        return SimpleNamespace(first=lambda: None)


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    made = Manager()
    monkeypatch.setattr(security, "get_auth_manager", lambda: made)
    monkeypatch.setattr(DagModel, "get_team_name", staticmethod(lambda dag_id: None))
    return made


@pytest.fixture
def client(manager: Manager, tony_home: Path) -> Iterator[TestClient]:
    from airflow.api_fastapi.common.db.common import _get_session

    written(tony_home)
    session = Session()
    for key, value in XCOMS.items():
        session.xcoms["dag", TI_KEY.run_id, "train", key] = value
    api_server.app.dependency_overrides[_get_session] = lambda: session
    with TestClient(api_server.app, raise_server_exceptions=True) as made:
        yield made
    api_server.app.dependency_overrides.clear()


def get(client: TestClient, url: str, user: str = "ann") -> Any:
    return client.get(url, headers={"Authorization": f"Bearer {user}"} if user else {})


def test_who_may_see_the_logs_sees_the_job_and_its_logs(
    client: TestClient, manager: Manager
) -> None:
    answer = get(client, URL)
    assert answer.status_code == 200, answer.text
    assert "worker:0 failed with exit code 7" in answer.text and "session 0 begins" in answer.text
    assert "logs/worker%3A0" in answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert manager.asked == [("GET", "TASK_LOGS", "dag", "ann")]
    every = get(client, f"{URL}logs")
    assert every.status_code == 200 and "the last epoch" in every.text and EVIL not in every.text
    assert "logs/worker%3A0" in every.text
    logs = get(client, f"{URL}logs/worker%3A0")
    assert logs.status_code == 200 and "the last epoch" in logs.text and EVIL not in logs.text


def test_who_may_not_gets_nothing(client: TestClient) -> None:
    for url in (
        URL,
        f"{URL}logs",
        f"{URL}logs/worker%3A0",
        f"{URL}?dag_id=hers",
        URL.replace("/dag/", "/~/", 1),
    ):
        for user, status in (("", 401), ("mallory", 403), ("bob", 403), ("eve", 403)):
            answer = get(client, url, user)
            assert answer.status_code == status, (url, user, answer.text)
            assert "worker:0" not in answer.text


def test_who_may_see_another_dag_sees_no_job_of_this_one(client: TestClient) -> None:
    """An XCom of hers that names his job."""
    from airflow.api_fastapi.common.db.common import _get_session

    session = Session()
    for key, value in XCOMS.items():
        session.xcoms["hers", "run", "train", key] = value
    api_server.app.dependency_overrides[_get_session] = lambda: session
    for tail in ("", "logs/worker%3A0"):
        answer = get(client, f"/dags/hers/runs/run/tasks/train/-1/{tail}", "eve")
        assert answer.status_code == 404 and "with the tag of this task" in answer.text
        assert "exit code 7" not in answer.text


@pytest.mark.parametrize(
    "tail",
    ["logs/..%2F..%2Fapp.json", "logs/%2Fetc%2Fpasswd", "logs/worker%3A0/../../x", "logs/am", "x",
     "logs/%00"],
)  # fmt: skip
def test_there_is_nothing_but_tasks_below_it(client: TestClient, tail: str) -> None:
    assert get(client, URL + tail).status_code == 404


def test_no_such_task_instance(client: TestClient) -> None:
    assert get(client, URL.replace("/train/", "/other/")).status_code == 404
    assert get(client, URL.replace("/-1/", "/0/")).status_code in (200, 404)
    assert get(client, URL.replace("/-1/", "/x/")).status_code == 422


def test_nothing_can_be_changed(client: TestClient) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, URL).status_code == 405


def test_airflow_finds_it_by_its_entry_point() -> None:
    (one,) = TonyPlugin().fastapi_apps
    assert one["url_prefix"] == PREFIX and one["app"] is api_server.app
    assert TonyPlugin().flask_blueprints == []
    assert {route.path for route in api_server.app.routes} == {
        "/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/{map_index}/",
        "/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/{map_index}/logs",
        "/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/{map_index}/logs/{task}",
    }


def test_a_tasks_buttons_lead_there(monkeypatch: pytest.MonkeyPatch) -> None:
    ti = SimpleNamespace(dag_id="dag", run_id=TI_KEY.run_id, task_id="train", map_index=None)
    assert history_page(ti) == PREFIX + URL
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://air.example/flow/")
    assert history_page(ti) == "https://air.example/flow" + PREFIX + URL

"""The hook on a real YARN and HDFS, by addresses alone: no configuration folder is named."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator
from urllib.parse import urlsplit

import pytest
import requests

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.tony_airflow.conftest import Connect
from tests.tony_airflow.pages.written import TI_KEY
from tony_airflow.hooks.tony import TonyHook
from tony_airflow.hooks.tony_async import TonyAsyncHook
from tony_airflow.pages import history
from tony_core.job.load import JobArguments
from tony_core.job.problems import JobError
from tony_core.schedulers.port import AppState

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

WITHIN_S = 150.0
SMALL = {
    "tony.am.memory": "256m",
    "tony.worker.instances": "2",
    "tony.worker.memory": "64m",
    "tony.am.retry-count": "0",
    "tony.application.tags": "From_Airflow",
}


def properties(cluster: Hadoop) -> Dict[str, str]:
    """What a site on Hadoop's usual ports would not have to say."""
    return {
        "yarn.resourcemanager.scheduler.address": cluster.scheduler_address,
        "yarn.resourcemanager.webapp.address": urlsplit(cluster.rm_url).netloc,
        "dfs.namenode.http-address": urlsplit(cluster.webhdfs_url).netloc,
    }


@pytest.fixture
def cluster(hadoop: GetHadoop) -> Hadoop:
    return hadoop()


@pytest.fixture
def hook(cluster: Hadoop, connect: Connect) -> Iterator[TonyHook]:
    web = urlsplit(cluster.webhdfs_url)
    connect("files", conn_type="webhdfs", host=web.hostname, port=web.port, login=cluster.user)
    connect(
        host=cluster.rm_address,
        login=cluster.user,
        extra={
            "name_node": cluster.default_fs,
            "hadoop": properties(cluster),
            "webhdfs_conn_id": "files",
            "conf": SMALL,
        },
    )
    made = TonyHook()
    yield made
    for status in made.list():
        if not status.state.ended:
            made.kill(status.app_id, "the test has ended")
    made.close()


def until(question: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + WITHIN_S
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"{what} did not come within {WITHIN_S:g} s"
        time.sleep(0.2)


def answers(url: str) -> bool:
    return requests.get(url, timeout=60).status_code == 200


def test_a_job_by_addresses_without_a_configuration_folder(
    hook: TonyHook, cluster: Hadoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok, words = hook.test_connection()
    assert ok, words
    command = "bash -c 'echo hello; while [ ! -e /tmp/nowhere ]; do sleep 1; done'"
    tags = f"{SMALL['tony.application.tags']},{TI_KEY.tag}"
    app_id = hook.submit(JobArguments(executes=command, extra={"tony.application.tags": tags}))
    assert hook.find("from_airflow")[0].app_id == app_id
    until(lambda: hook.view(app_id).counts.get("running") == 2, "both tasks")
    links = hook.links(app_id)
    assert answers(links["page"]) and answers(links["yarn"])
    assert answers(links["log:worker:0"])
    lines = until(lambda: list(hook.logs(app_id, ["worker"], "stdout", 3)), "their lines")
    assert {line.text for line in lines} == {"hello"}

    async def from_a_trigger() -> None:
        made = TonyAsyncHook.from_dict(hook.site.to_dict())
        try:
            assert (await made.a_statuses([app_id, "application_1_0001"])).keys() == {app_id}
            assert (await made.a_view(app_id)).source == "page"
            killed = await made.a_kill(app_id, "ended by a test")
            assert killed.ended and not killed.was_over
        finally:
            made.close()

    asyncio.run(from_a_trigger())
    ended_so = hook.status(app_id)
    assert ended_so.state is AppState.KILLED
    assert "ended by a test" in ended_so.diagnostics, "the reason was left for its master"
    until(lambda: hook.view(app_id).source == "history", "its history")
    ended = hook.links(app_id)
    assert ended["page"] == ended["yarn"] and answers(ended["page"])

    # Its page in Airflow's web server; a slow machine may take longer than a person waits.
    monkeypatch.setattr(history, "PAGE_S", WITHIN_S)
    named = {"connection": hook.site.name, "scheduler": "yarn"}
    xcoms = {"application_id": app_id, "tony_connection": named}
    with history.RecordedJob(TI_KEY, xcoms.get, hook.get_connection) as page:
        assert page.view.state is AppState.KILLED
        assert [log.lines for log in page.logs("worker:0")] == [("hello",), ()]
        assert {task: logs[0].lines for task, logs in page.last_lines().items()} == {
            "worker:0": ("hello",),
            "worker:1": ("hello",),
        }


def test_a_wrong_queue_is_refused_before_anything_starts(hook: TonyHook) -> None:
    before = len(hook.list())
    with pytest.raises(JobError, match="nowhere"):
        hook.check(JobArguments(executes="true", conf={"tony.yarn.queue": "nowhere"}))
    assert len(hook.list()) == before


def test_files_go_to_hdfs_and_are_found_there(hook: TonyHook, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "part-0").write_text("1,2,3\n")
    remote = f"/user/{hook.site.user}/airflow-{time.time_ns()}"
    assert not hook.check_path(remote)
    assert hook.stage(str(tmp_path / "data"), remote) == remote
    assert hook.check_path(f"{remote}/part-0")
    assert hook.check_path(f"{hook.site.name_node}{remote}")

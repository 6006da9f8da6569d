"""The hook for triggers: the event loop never waits."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Iterator, List

import pytest

from tony_airflow.connection import Site
from tony_airflow.hooks.tony import TonyHook
from tony_airflow.hooks.tony_async import TonyAsyncHook
from tony_core.job.load import JobArguments
from tony_core.schedulers.port import AppState, AppStatus

pytestmark = pytest.mark.timeout(200)


@pytest.fixture
def hook() -> Iterator[TonyAsyncHook]:
    made = TonyAsyncHook(Site())
    yield made
    made.close()


def test_a_job_seen_and_ended_from_a_loop(hook: TonyAsyncHook) -> None:
    sync = TonyHook.of(Site())
    conf = {"tony.worker.instances": "1", "tony.application.tags": "mine"}
    program = f"{sys.executable} -c 'import time; time.sleep(300)'"
    app_id = sync.submit(JobArguments(executes=program, conf=conf))

    async def all_of_it() -> None:
        assert (await hook.a_status(app_id)).app_id == app_id
        assert list(await hook.a_statuses([app_id, "local_20260101000000_abcdef"])) == [app_id]
        assert [one.app_id for one in await hook.a_find("mine")] == [app_id]
        assert (await hook.a_view(app_id)).app_id == app_id
        assert await hook.a_metrics(app_id) == {}
        assert isinstance(await hook.a_links(app_id), dict)
        killed = await hook.a_kill(app_id, "enough")
        assert killed.status.state is AppState.KILLED

    try:
        asyncio.run(all_of_it())
    finally:
        sync.kill(app_id)
        sync.close()


def test_the_loop_goes_on_and_the_threads_are_few(
    hook: TonyAsyncHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    at_once: List[int] = []
    running: List[str] = []

    def slow(app_id: str) -> AppStatus:
        running.append(app_id)
        at_once.append(len(running))
        assert release.wait(30)
        running.remove(app_id)
        return AppStatus(app_id, "n", "u", "q", AppState.RUNNING)

    monkeypatch.setattr(hook._hook, "status", slow)

    async def many() -> None:
        calls = [asyncio.ensure_future(hook.a_status(str(number))) for number in range(20)]
        began = time.monotonic()
        while len(at_once) < 4 and time.monotonic() - began < 20:
            await asyncio.sleep(0.01)
        for _ in range(100):
            await asyncio.sleep(0)  # the loop turns while all threads wait
        release.set()
        assert len(await asyncio.gather(*calls)) == 20

    asyncio.run(many())
    assert max(at_once) == 4


def test_it_comes_from_what_a_trigger_carries() -> None:
    made = TonyAsyncHook.from_dict(Site(home="/data/tony", queue="ml").to_dict())
    assert made.site == Site(home="/data/tony", queue="ml")
    made.close()

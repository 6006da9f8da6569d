"""One watcher for all the jobs of a site: who asks how often, and what each hears."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from typing import Any, Callable, Coroutine, Dict, List, Sequence, Union

import pytest

from tony_airflow.connection import Site, SiteError
from tony_airflow.hooks.tony import TonyHook
from tony_airflow.triggers import watcher
from tony_airflow.triggers.watcher import (
    Ended,
    Lost,
    News,
    Refused,
    Seen,
    SiteWatcher,
    Trouble,
    Unreachable,
    Unseen,
    Waiter,
    Watching,
)
from tony_core.client.errors import PageError
from tony_core.client.view import JobView, from_status
from tony_core.schedulers.port import (
    AppState,
    AppStatus,
    LastingRefusal,
    NoSuchApplication,
    NoSuchScheduler,
    SchedulerError,
)

SITE = Site().to_dict()
PATIENCE_S = 60.0
pytestmark = pytest.mark.timeout(200)


def status(app_id: str, state: AppState = AppState.RUNNING, page: str = "") -> AppStatus:
    return AppStatus(app_id, "n", "u", "q", state, page_url=page or None)


class Cluster:
    """What a hook would ask: its answers, and how often it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs: Dict[str, AppStatus] = {}
        self.unlisted: set[str] = set()
        self.asked: List[List[str]] = []
        self.asked_alone: List[str] = []
        self.looks: List[str] = []
        self.down: Union[str, Exception] = ""
        self.broken: Dict[str, Exception] = {}  # questions for one job
        self.page_down = False
        self.threads: set[str] = set()
        monkeypatch.setattr(TonyHook, "statuses", lambda hook, ids: self.statuses(ids))
        monkeypatch.setattr(TonyHook, "status", lambda hook, app_id: self.status(app_id))
        monkeypatch.setattr(watcher, "look_at_page", self.look)
        monkeypatch.setattr(watcher, "GATHER_S", 0.05)

    def statuses(self, ids: Sequence[str]) -> Dict[str, AppStatus]:
        self.asked.append(list(ids))
        self.threads.add(threading.current_thread().name)
        if isinstance(self.down, Exception):
            raise self.down
        if self.down:
            raise SchedulerError(self.down)
        return {one: self.jobs[one] for one in ids if one in self.jobs and one not in self.unlisted}

    def status(self, app_id: str) -> AppStatus:
        self.asked_alone.append(app_id)
        if app_id in self.broken:
            raise self.broken[app_id]
        if app_id not in self.jobs:
            raise NoSuchApplication(f"no application {app_id}")
        return self.jobs[app_id]

    def look(self, status: AppStatus, user: str) -> JobView:
        self.looks.append(status.app_id)
        if self.page_down:
            raise PageError("the page does not answer")
        return from_status(status)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        await asyncio.wait_for(story(), PATIENCE_S)
        assert not watcher._watchers.get(asyncio.get_running_loop()), "the last has left"

    asyncio.run(within())


async def until(question: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not question():
        assert time.monotonic() < deadline, f"{what} did not come"
        await asyncio.sleep(0.01)


async def news_of(waiter: Waiter, *kinds: type) -> News:
    while True:
        news = await waiter.next()
        if isinstance(news, kinds):
            return news


def test_many_jobs_are_one_question(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.jobs = {f"app{n}": status(f"app{n}") for n in range(100)}
        ended: List[str] = []

        async def wait(app_id: str) -> None:
            async with Watching(SITE, Waiter(app_id, 0.1, 60)) as waiter:
                news = await news_of(waiter, Ended)
                assert isinstance(news, Ended)
                ended.append(news.status.app_id)

        waiting = [asyncio.create_task(wait(app_id)) for app_id in cluster.jobs]
        await until(lambda: len(cluster.asked) > 3, "the third question")
        assert len(cluster.asked[-1]) == 100 and cluster.asked_alone == []
        for app_id in cluster.jobs:
            cluster.jobs[app_id] = status(app_id, AppState.SUCCEEDED)
        await asyncio.gather(*waiting)
        assert sorted(ended) == sorted(cluster.jobs)
        assert not any("MainThread" in name for name in cluster.threads)

    run(story)


def test_each_site_has_its_own(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.jobs = {"a": status("a"), "b": status("b")}
        other = Site(name="other").to_dict()
        async with Watching(SITE, Waiter("a", 0.1, 60)), Watching(other, Waiter("b", 0.1, 60)):
            await until(lambda: ["a"] in cluster.asked and ["b"] in cluster.asked, "both")
            assert ["a", "b"] not in cluster.asked

    run(story)


def test_whoever_is_cancelled_leaves_and_the_last_ends_it(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.jobs = {"a": status("a"), "b": status("b")}

        async def wait(app_id: str) -> None:
            async with Watching(SITE, Waiter(app_id, 0.05, 60)) as waiter:
                await news_of(waiter, Ended)

        first, second = (asyncio.create_task(wait(app_id)) for app_id in "ab")
        await until(lambda: any(len(ids) == 2 for ids in cluster.asked), "a question for both")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        asked = len(cluster.asked)
        await until(lambda: ["b"] in cluster.asked[asked:], "a question for the other alone")
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        seen = len(cluster.asked)
        await asyncio.sleep(0.15)
        assert len(cluster.asked) <= seen + 1

    run(story)


def test_one_that_a_list_leaves_out_is_asked_for_by_its_id(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.jobs = {"a": status("a", AppState.FAILED), "b": status("b")}
        cluster.unlisted = {"a"}
        async with Watching(SITE, Waiter("a", 0.05, 60)) as waiter:
            news = await news_of(waiter, Ended)
            assert isinstance(news, Ended) and news.status.state is AppState.FAILED
        async with Watching(SITE, Waiter("nowhere", 0.05, 60)) as waiter:
            assert isinstance(await news_of(waiter, Lost, Ended), Lost)
        assert cluster.asked_alone.count("nowhere") == 2, "once may be a restart"

    run(story)


def test_a_cluster_that_is_away_for_a_while(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.jobs = {"a": status("a")}
        cluster.down = "the ResourceManager is restarting"
        async with Watching(SITE, Waiter("a", 0.05, 60)) as waiter:
            trouble = await waiter.next()
            assert trouble == Trouble("the ResourceManager is restarting")
            await until(lambda: len(cluster.asked) > 1, "another question")
            cluster.down = ""
            cluster.jobs["a"] = status("a", AppState.SUCCEEDED)
            assert isinstance(await waiter.next(), Ended), "trouble is told once"

    run(story)


def test_each_gives_up_by_its_own_patience(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.down = "no route to host"
        patient, hasty = Waiter("a", 0.05, 600), Waiter("b", 0.05, 0.2)
        async with Watching(SITE, patient), Watching(SITE, hasty):
            news = await news_of(hasty, Unreachable)
            assert isinstance(news, Unreachable) and news.silent_s >= 0.2
            assert not any(isinstance(one, Unreachable) for one in drained(patient))

    run(story)


@pytest.mark.parametrize("kind", [LastingRefusal, NoSuchScheduler, SiteError])
def test_what_asking_again_cannot_mend_is_told_at_once(
    cluster: Cluster, kind: Callable[[str], Exception]
) -> None:
    async def story() -> None:
        cluster.down = kind("there is no folder /etc/hadoop")
        async with Watching(SITE, Waiter("a", 0.05, 600)) as waiter:
            assert await waiter.next() == Refused("there is no folder /etc/hadoop")

    run(story)


def test_the_trouble_of_one_job_is_no_other_s(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.jobs = {"b": status("b")}
        cluster.broken = {"a": SchedulerError("not this one"), "c": LastingRefusal("not yours")}
        one, other, third = Waiter("a", 0.05, 0.2), Waiter("b", 0.05, 0.2), Waiter("c", 0.05, 600)
        async with Watching(SITE, one), Watching(SITE, other), Watching(SITE, third):
            assert await one.next() == Trouble("not this one")
            assert isinstance(await one.next(), Unreachable)
            assert await third.next() == Refused("not yours")
            assert drained(other) == []
            cluster.jobs["b"] = status("b", AppState.SUCCEEDED)
            assert isinstance(await other.next(), Ended)

    run(story)


def drained(waiter: Waiter) -> List[News]:
    found = []
    while not waiter.inbox.empty():
        found.append(waiter.inbox.get_nowait())
    return found


def test_looks_renew_the_lease_and_a_page_that_is_silent_holds_nothing_up(
    cluster: Cluster,
) -> None:
    async def story() -> None:
        cluster.jobs = {"a": status("a", page="http://page/")}
        cluster.page_down = True
        async with Watching(SITE, Waiter("a", 0.05, 60, lease_s=0.3)) as waiter:
            await until(lambda: len(cluster.looks) > 2, "looks for a lease of 0.3 s")
            unseen = await waiter.next()
            assert isinstance(unseen, Unseen), "said before the lease is over, and once"
            assert "the page does not answer" in unseen.why and "0.3 s" in unseen.why
            cluster.page_down = False
            assert isinstance(await waiter.next(), Seen)
            cluster.jobs["a"] = status("a", AppState.SUCCEEDED)
            await news_of(waiter, Ended)

    run(story)


def test_looks_are_more_seldom_the_more_jobs_there_are() -> None:
    async def story() -> None:
        watching = SiteWatcher(SITE)
        now = time.monotonic()
        one = Waiter("a", 5, 60)
        watching._waiters.append(one)
        assert watching._look_s(one, now) == watcher.FIRST_LOOKS_S
        one.wants_links = False
        assert watching._look_s(one, now) == watcher.LOOK_S
        watching._waiters += [Waiter(str(n), 5, 60) for n in range(999)]
        assert watching._look_s(one, now) == 1000 * watcher.EACH_S
        one.lease_s = 60
        assert watching._look_s(one, now) == 20
        watching._waiters.clear()
        watching.leave(one)

    asyncio.run(story())


def test_what_it_does_stands_in_nobodys_context(cluster: Cluster) -> None:
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody")
    seen: List[str] = []

    async def story() -> None:
        cluster.jobs = {"a": status("a")}
        whose.set("the first trigger")
        loop = asyncio.get_running_loop()
        started = loop.run_in_executor

        def spied(*arguments: Any) -> Any:
            seen.append(whose.get())
            return started(*arguments)

        loop.run_in_executor = spied  # type: ignore[method-assign, assignment]
        async with Watching(SITE, Waiter("a", 0.05, 60)):
            await until(lambda: seen, "a question")
        assert set(seen) == {"nobody"}

    run(story)

"""One poller for all the jobs of a scheduler: what it asks, and the updates of each job."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import (
    Any,
    AsyncContextManager,
    Callable,
    Coroutine,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import pytest

from tests.client.scripted import PageServer
from tony_core.client.errors import PageError, UsageError
from tony_core.client.merge import from_status
from tony_core.client.workflow import poller
from tony_core.client.workflow.poller import (
    AccessRefused,
    JobEnded,
    JobFound,
    JobLost,
    JobPoller,
    JobSeen,
    LoginLost,
    PageUnreadable,
    Retrying,
    SchedulerUnreachable,
    Subscription,
    Update,
    read_page,
)
from tony_core.hadoop.web import WebAccess
from tony_core.schedulers.port import (
    AppState,
    AppStatus,
    LastingRefusal,
    NoSuchApplication,
    NoSuchScheduler,
    NotLoggedIn,
    SchedulerError,
)
from tony_core.view import JobView

PATIENCE_S = 60.0
pytestmark = pytest.mark.timeout(200)


def status(app_id: str, state: AppState = AppState.RUNNING, page: str = "") -> AppStatus:
    return AppStatus(app_id, "n", "u", "q", state, page_url=page or None)


class Source:
    """Asks a cluster in a thread, as an adapter's hook does."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="source")

    async def a_status(self, app_id: str) -> AppStatus:
        found: AppStatus = await self._call(self._cluster.status, app_id)
        return found

    async def a_statuses(self, app_ids: Sequence[str]) -> Dict[str, AppStatus]:
        found: Dict[str, AppStatus] = await self._call(self._cluster.statuses, app_ids)
        return found

    async def a_list(self) -> List[AppStatus]:
        found: List[AppStatus] = await self._call(self._cluster.list)
        return found

    async def a_user(self) -> str:
        return "u"

    def web(self) -> Optional[WebAccess]:
        return None

    def read_output(
        self, view: JobView, position: Mapping[str, int]
    ) -> Tuple[List[str], Dict[str, int]]:
        return [], dict(position)

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)


class Cluster:
    """A cluster's answers, and how often it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs: Dict[str, AppStatus] = {}
        self.unlisted: set[str] = set()
        self.asked: List[List[str]] = []
        self.asked_once: List[str] = []
        self.lists = 0
        self.looks: List[str] = []
        self.down: Union[str, Exception] = ""
        self.broken: Dict[str, Exception] = {}  # questions for one job
        self.page_down = False
        self.threads: set[str] = set()
        monkeypatch.setattr(poller, "read_page", self.look)
        monkeypatch.setattr(poller, "GATHER_S", 0.05)

    def polled(self, subscription: Subscription, key: str = "site") -> AsyncContextManager[Any]:
        return poller.polled(key, lambda: Source(self), subscription)

    def list(self) -> List[AppStatus]:
        self.lists += 1
        return [job for app_id, job in self.jobs.items() if app_id not in self.unlisted]

    def statuses(self, ids: Sequence[str]) -> Dict[str, AppStatus]:
        self.asked.append(list(ids))
        self.threads.add(threading.current_thread().name)
        if isinstance(self.down, Exception):
            raise self.down
        if self.down:
            raise SchedulerError(self.down)
        return {one: self.jobs[one] for one in ids if one in self.jobs and one not in self.unlisted}

    def status(self, app_id: str) -> AppStatus:
        self.asked_once.append(app_id)
        if app_id in self.broken:
            raise self.broken[app_id]
        if app_id not in self.jobs:
            raise NoSuchApplication(f"no application {app_id}")
        return self.jobs[app_id]

    def look(self, status: AppStatus, access: Optional[WebAccess], renews_lease: bool) -> JobView:
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
        assert not poller._pollers.get(asyncio.get_running_loop()), "the last has left"

    asyncio.run(within())


async def until(question: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not question():
        assert time.monotonic() < deadline, f"{what} did not come"
        await asyncio.sleep(0.01)


async def news_of(subscription: Subscription, *kinds: type) -> Update:
    while True:
        news = await subscription.next()
        if isinstance(news, kinds):
            return news


def test_many_jobs_are_one_question(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.jobs = {f"app{n}": status(f"app{n}") for n in range(100)}
        ended: List[str] = []

        async def wait(app_id: str) -> None:
            async with cluster.polled(Subscription(app_id, 0.1, 60)) as subscription:
                news = await news_of(subscription, JobEnded)
                assert isinstance(news, JobEnded)
                ended.append(news.status.app_id)

        waiting = [asyncio.create_task(wait(app_id)) for app_id in cluster.jobs]
        await until(lambda: len(cluster.asked) > 3, "the third question")
        assert len(cluster.asked[-1]) == 100 and cluster.asked_once == []
        for app_id in cluster.jobs:
            cluster.jobs[app_id] = status(app_id, AppState.SUCCEEDED)
        await asyncio.gather(*waiting)
        assert sorted(ended) == sorted(cluster.jobs)
        assert not any("MainThread" in name for name in cluster.threads)

    run(story)


def test_each_site_has_its_own(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.jobs = {"a": status("a"), "b": status("b")}
        one, other = Subscription("a", 0.1, 60), Subscription("b", 0.1, 60)
        async with cluster.polled(one), cluster.polled(other, "another site"):
            await until(lambda: ["a"] in cluster.asked and ["b"] in cluster.asked, "both")
            assert ["a", "b"] not in cluster.asked

    run(story)


def test_a_cancelled_trigger_leaves_and_the_last_one_closes_the_poller(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.jobs = {"a": status("a"), "b": status("b")}

        async def wait(app_id: str) -> None:
            async with cluster.polled(Subscription(app_id, 0.05, 60)) as subscription:
                await news_of(subscription, JobEnded)

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
        async with cluster.polled(Subscription("a", 0.05, 60)) as subscription:
            news = await news_of(subscription, JobEnded)
            assert isinstance(news, JobEnded) and news.status.state is AppState.FAILED
        async with cluster.polled(Subscription("nowhere", 0.05, 60)) as subscription:
            assert isinstance(await news_of(subscription, JobLost, JobEnded), JobLost)
        assert cluster.asked_once.count("nowhere") == 2, "once may be a restart"

    run(story)


def test_a_cluster_that_is_away_for_a_while(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.jobs = {"a": status("a")}
        cluster.down = "the ResourceManager is restarting"
        async with cluster.polled(Subscription("a", 0.05, 60)) as subscription:
            trouble = await subscription.next()
            assert trouble == Retrying("the ResourceManager is restarting")
            await until(lambda: len(cluster.asked) > 1, "another question")
            cluster.down = ""
            cluster.jobs["a"] = status("a", AppState.SUCCEEDED)
            assert isinstance(await subscription.next(), JobEnded), "an outage is reported once"

    run(story)


def test_each_gives_up_by_its_own_patience(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.down = "no route to host"
        patient, hasty = Subscription("a", 0.05, 600), Subscription("b", 0.05, 0.2)
        async with cluster.polled(patient), cluster.polled(hasty):
            news = await news_of(hasty, SchedulerUnreachable)
            assert isinstance(news, SchedulerUnreachable) and news.silent_s >= 0.2
            assert not any(isinstance(one, SchedulerUnreachable) for one in drained(patient))

    run(story)


@pytest.mark.parametrize("kind", [NoSuchScheduler, UsageError])
def test_an_error_that_lasts_ends_the_wait_at_once(
    cluster: Cluster, kind: Callable[[str], Exception]
) -> None:
    async def story() -> None:
        cluster.down = kind("there is no folder /etc/hadoop")
        async with cluster.polled(Subscription("a", 0.05, 600)) as subscription:
            assert await subscription.next() == AccessRefused("there is no folder /etc/hadoop")

    run(story)


def test_a_refusal_is_borne_for_as_long_as_a_watch_bears_it(cluster: Cluster) -> None:
    """A ticket may just be written anew."""

    async def story() -> None:
        cluster.down = LastingRefusal("the ticket has expired")
        patient = Subscription("a", 0.05, 600)
        hasty = Subscription("a", 0.05, 600, refused_s=0.2)
        async with cluster.polled(patient), cluster.polled(hasty):
            assert await hasty.next() == Retrying("the ticket has expired")
            assert await hasty.next() == AccessRefused("the ticket has expired")
            cluster.jobs = {"a": status("a", AppState.SUCCEEDED)}
            cluster.down = ""
            assert await patient.next() == Retrying("the ticket has expired")
            assert isinstance(await patient.next(), JobEnded)

    run(story)


def test_a_ticket_that_has_expired_is_waited_for_as_an_outage_is(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.jobs = {"a": status("a")}
        patient = Subscription("a", 0.05, 600, refused_s=0.1)
        hasty = Subscription("a", 0.05, 1.0, refused_s=0.1)
        async with cluster.polled(patient), cluster.polled(hasty):
            cluster.down = NotLoggedIn("the ticket has expired", has_expired=True)
            for each in (patient, hasty):
                assert await each.next() == Retrying("the ticket has expired", is_login=True)
            lost = await hasty.next()
            assert isinstance(lost, LoginLost) and lost.seconds >= 1.0
            assert lost.why == "the ticket has expired"
            cluster.jobs = {"a": status("a", AppState.SUCCEEDED)}
            cluster.down = ""
            assert isinstance(await news_of(patient, JobEnded, LoginLost, AccessRefused), JobEnded)

    run(story)


def test_a_login_that_has_never_worked_is_a_refusal(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.down = NotLoggedIn("there is no ticket")
        subscription = Subscription("a", 0.05, 600, refused_s=0.2)
        async with cluster.polled(subscription):
            assert await subscription.next() == Retrying("there is no ticket")
            assert await subscription.next() == AccessRefused("there is no ticket")

    run(story)


def test_an_answer_ends_a_refusal(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.jobs = {"a": status("a")}
        subscription = Subscription("a", 0.05, 600, refused_s=30)
        async with cluster.polled(subscription):
            for why in ("once", "twice"):
                cluster.down = LastingRefusal(why)
                assert await subscription.next() == Retrying(why)
                seen, cluster.down = len(cluster.asked), ""
                await until(lambda: len(cluster.asked) > seen + 1, "an answer")  # noqa: B023
                assert drained(subscription) == []

    run(story)


def test_the_trouble_of_one_job_is_no_other_s(cluster: Cluster) -> None:
    async def story() -> None:
        cluster.jobs = {"b": status("b")}
        cluster.broken = {"a": SchedulerError("not this one"), "c": LastingRefusal("not yours")}
        one, other = Subscription("a", 0.05, 0.2), Subscription("b", 0.05, 0.2)
        third = Subscription("c", 0.05, 600, refused_s=0.0)
        async with cluster.polled(one), cluster.polled(other), cluster.polled(third):
            assert await one.next() == Retrying("not this one")
            assert isinstance(await one.next(), SchedulerUnreachable)
            assert await third.next() == Retrying("not yours")
            assert await third.next() == AccessRefused("not yours")
            assert drained(other) == []
            cluster.jobs["b"] = status("b", AppState.SUCCEEDED)
            assert isinstance(await other.next(), JobEnded)

    run(story)


def drained(subscription: Subscription) -> List[Update]:
    found = []
    while not subscription.updates.empty():
        found.append(subscription.updates.get_nowait())
    return found


def test_reads_renew_the_lease_and_a_page_that_does_not_answer_delays_nothing(
    cluster: Cluster,
) -> None:
    async def story() -> None:
        cluster.jobs = {"a": status("a", page="http://page/")}
        cluster.page_down = True
        async with cluster.polled(Subscription("a", 0.05, 60, lease_s=0.3)) as subscription:
            await until(lambda: len(cluster.looks) > 2, "looks for a lease of 0.3 s")
            unseen = await subscription.next()
            assert isinstance(unseen, PageUnreadable), "reported before the lease is over, and once"
            assert "the page does not answer" in unseen.warning and "0.3 s" in unseen.warning
            cluster.page_down = False
            assert isinstance(await subscription.next(), JobSeen)
            cluster.jobs["a"] = status("a", AppState.SUCCEEDED)
            await news_of(subscription, JobEnded)

    run(story)


@pytest.mark.parametrize("renews_lease", [True, False])
def test_a_wait_for_the_job_of_another_renews_no_lease(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, renews_lease: bool
) -> None:
    monkeypatch.setattr(poller, "read_page", read_page)

    async def story() -> None:
        subscription = Subscription("a", 0.05, 60, renews_lease=renews_lease)
        async with cluster.polled(subscription):
            await news_of(subscription, JobSeen)

    with PageServer() as server:
        cluster.jobs = {"a": status("a", page=server.url)}
        run(story)
        assert server.headers
        assert all(("X-Tony-Client" in each) == renews_lease for each in server.headers)


def test_pages_are_read_less_often_the_more_jobs_there_are() -> None:
    async def story() -> None:
        watching = JobPoller(Source(None))
        now = time.monotonic()
        one = Subscription("a", 5, 60)
        watching._subscriptions.append(one)
        assert watching._read_interval_s(one, now) == poller.FIRST_PAGE_S
        one.wants_links = False
        assert watching._read_interval_s(one, now) == poller.PAGE_S
        watching._subscriptions += [Subscription(str(n), 5, 60) for n in range(999)]
        assert watching._read_interval_s(one, now) == 1000 * poller.EACH_S
        one.lease_s = 60
        assert watching._read_interval_s(one, now) == 20
        watching._subscriptions.clear()
        watching.remove(one)

    asyncio.run(story())


def test_the_poller_runs_in_a_context_of_its_own(cluster: Cluster) -> None:
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="unset")
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
        async with cluster.polled(Subscription("a", 0.05, 60)):
            await until(lambda: seen, "a question")
        assert set(seen) == {"unset"}

    run(story)


def test_one_that_is_searched_is_found_in_the_list_and_then_polled_for(cluster: Cluster) -> None:
    def newest(statuses: Any, own: str) -> Any:
        assert own == "u"
        return next((one for one in statuses if one.name == "n"), None)

    async def story() -> None:
        searching = Subscription("", 0.05, 60, search=newest)
        async with cluster.polled(searching), cluster.polled(Subscription("x", 0.05, 60)):
            await until(lambda: cluster.lists > 1, "a second list")
            assert drained(searching) == []
            cluster.jobs["a"] = status("a")
            assert await searching.next() == JobFound(status("a")) and searching.app_id == "a"
            cluster.jobs["a"] = status("a", AppState.FAILED)
            ended = await searching.next()
            assert isinstance(ended, JobEnded) and ended.status.state is AppState.FAILED
            assert ["a", "x"] in map(sorted, cluster.asked)

    run(story)

"""One viewer's many requests keep no other viewer from his, and none of them waits for ever."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List

import httpx
import pytest

from tests.portal.fakes import FakePortal, a_row, a_source
from tests.portal.serving import served
from tony_core.portal import site
from tony_core.portal.viewer import Viewer
from tony_core.portal.viewer_places import MOST_WAITING, PLACES, NoPlace, ViewerPlaces

JOB = "/jobs/application_1_0001/"


def test_each_viewer_has_as_many_places_and_nothing_is_kept_of_him() -> None:
    places = ViewerPlaces()
    go = threading.Event()
    lock = threading.Lock()
    now: Dict[str, int] = {}
    most: Dict[str, int] = {}

    def work(viewer: str) -> str:
        with lock:
            now[viewer] = now.get(viewer, 0) + 1
            most[viewer] = max(most.get(viewer, 0), now[viewer])
        assert go.wait(30)
        with lock:
            now[viewer] -= 1
        return viewer

    async def ask() -> List[str]:
        asked = [
            asyncio.ensure_future(places.run(viewer, work, viewer))
            for viewer in ("ann",) * 30 + ("bob",) * 2
        ]
        while now.get("bob") != 2:
            await asyncio.sleep(0.01)
        go.set()
        return list(await asyncio.gather(*asked))

    assert asyncio.run(ask()) == ["ann"] * 30 + ["bob"] * 2
    assert most == {"ann": PLACES, "bob": 2}
    assert places._by_viewer == {}


def test_what_fails_gives_its_place_back() -> None:
    places = ViewerPlaces(1, 30.0)

    def fail() -> None:
        raise ValueError("no")

    async def ask() -> List[Any]:
        many = [places.run("ann", fail) for _ in range(5)]
        return list(await asyncio.gather(*many, return_exceptions=True))

    assert [type(found) for found in asyncio.run(ask())] == [ValueError] * 5
    assert places._by_viewer == {}


def test_more_than_may_wait_are_refused_at_once() -> None:
    places = ViewerPlaces(1, 30.0)
    go = threading.Event()

    async def ask() -> List[Any]:
        many = [asyncio.ensure_future(places.run("ann", go.wait, 30)) for _ in range(3)]
        while not any(each.done() for each in many) and len(many) < MOST_WAITING + 2:
            many.append(asyncio.ensure_future(places.run("ann", go.wait, 30)))
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        go.set()
        return list(await asyncio.gather(*many, return_exceptions=True))

    found = asyncio.run(ask())
    refused = [each for each in found if isinstance(each, NoPlace)]
    assert len(refused) == 1 and found.count(True) == MOST_WAITING + 1
    assert str(MOST_WAITING) in str(refused[0])


def test_a_viewer_with_fifty_tabs_of_a_slow_job_starves_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = a_source(a_row(1))
    portal = FakePortal(slow, a_source(a_row(2, owner="bob", readers=("user:bob",))))
    begun, go = threading.Semaphore(0), threading.Event()
    record = slow.record

    def wait(*args: Any, **kwargs: Any) -> Any:
        begun.release()
        assert go.wait(60)
        return record(*args, **kwargs)

    monkeypatch.setattr(slow, "record", wait)
    arrived = threading.Semaphore(0)

    async def count(scope: Any, receive: Any, send: Any) -> None:
        arrived.release()
        await portal.app(scope, receive, send)

    with (
        served(count) as url,
        httpx.Client(timeout=60) as client,
        ThreadPoolExecutor(50) as tabs,
    ):
        asked = [tabs.submit(client.get, url + JOB) for _ in range(50)]
        try:
            for _ in asked:
                assert arrived.acquire(timeout=30)
            for _ in range(PLACES):
                assert begun.acquire(timeout=30)
            portal.viewer = Viewer("bob")
            answer = httpx.get(f"{url}/jobs/application_1_0002/", timeout=30)
            assert answer.status_code == 200 and "train-2" in answer.text
            assert not begun.acquire(blocking=False), "of ann's no more are read at once"
        finally:
            portal.viewer = Viewer("ann")
            go.set()
        assert {each.result().status_code for each in asked} == {200}


def test_who_waited_too_long_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "ViewerPlaces", lambda: ViewerPlaces(1, 0.05))
    slow = a_source()
    portal = FakePortal(slow)
    begun, go = threading.Event(), threading.Event()
    record = slow.record

    def wait(*args: Any, **kwargs: Any) -> Any:
        begun.set()
        assert go.wait(60)
        return record(*args, **kwargs)

    monkeypatch.setattr(slow, "record", wait)
    with served(portal.app) as url, ThreadPoolExecutor(1) as tabs:
        first = tabs.submit(httpx.get, url + JOB, timeout=60)
        try:
            assert begun.wait(30)
            page = httpx.get(url + JOB, timeout=30)
            assert page.status_code == 503 and "Too many pages at once" in page.text
            program = httpx.get(f"{url}{JOB}api/events", timeout=30)
            assert program.status_code == 503 and "try again" in program.json()["error"]
        finally:
            go.set()
        assert first.result().status_code == 200

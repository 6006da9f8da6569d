"""The page's client against a real HTTP server."""

from __future__ import annotations

import threading
import time
from typing import Iterator

import pytest

from tests.client.scripted import PageServer, task
from tony_core.client.errors import PageError
from tony_core.client.page import Page


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer() as made:
        yield made


@pytest.fixture
def page(server: PageServer) -> Iterator[Page]:
    made = Page(server.url, timeout_s=2.0)
    yield made
    made.close()


def test_reads_job_tasks_and_events(server: PageServer, page: Page) -> None:
    server.tasks = [task("worker:0")]
    server.tell("one", "two", "three")
    assert page.job()["name"] == "mnist"
    assert page.tasks() == server.tasks
    events, following = page.events(1)
    assert [item["text"] for item in events] == ["two", "three"]
    assert following == 3


def test_every_request_renews_the_lease(server: PageServer, page: Page) -> None:
    page.job()
    page.events(0)
    assert [headers["X-Tony-Client"] for headers in server.headers] == ["1", "1"]


def test_a_long_poll_ends_with_the_event(server: PageServer, page: Page) -> None:
    timer = threading.Timer(0.2, server.tell, ["late"])
    timer.start()
    began = time.monotonic()
    events, _ = page.events(0, wait_s=10)
    timer.join()
    assert [item["text"] for item in events] == ["late"]
    assert 0.15 < time.monotonic() - began < 5


def test_a_silent_page_is_an_error_in_time(server: PageServer) -> None:
    server.silent.set()
    page = Page(server.url, timeout_s=0.2)
    began = time.monotonic()
    with pytest.raises(PageError, match="does not answer"):
        page.job()
    assert time.monotonic() - began < 2
    server.silent.clear()


def test_a_closed_connection_is_opened_again(server: PageServer, page: Page) -> None:
    page.job()
    assert page._connection is not None
    page._connection.sock.close()  # what an idle time-out of the server's does
    assert page.job()["name"] == "mnist"


def test_nobody_there(server: PageServer) -> None:
    page = Page(server.url, timeout_s=1.0)
    server.close()
    with pytest.raises(PageError, match="does not answer"):
        page.job()


def test_abort_from_another_thread_ends_a_wait(server: PageServer, page: Page) -> None:
    timer = threading.Timer(0.2, page.abort)
    timer.start()
    began = time.monotonic()
    with pytest.raises(PageError):
        page.events(0, wait_s=10)
    timer.join()
    assert time.monotonic() - began < 3
    with pytest.raises(PageError):
        page.job()


@pytest.mark.parametrize("raw", [b"", b"no json", b"[]", b'{"tasks": 1}', b'{"events": []}'])
def test_what_is_no_page_is_an_error(server: PageServer, page: Page, raw: bytes) -> None:
    server.raw = raw
    with pytest.raises(PageError):
        page.tasks()
    with pytest.raises(PageError):
        page.events(0)


def test_a_proxys_redirect_is_followed_and_a_circle_is_not(server: PageServer, page: Page) -> None:
    with PageServer() as proxy:
        proxy.redirect = server.url.rstrip("/")
        through = Page(proxy.url)
        assert through.job()["name"] == "mnist"
        through.close()
    server.redirect = server.url.rstrip("/")
    with pytest.raises(PageError, match="circle"):
        page.job()


@pytest.mark.parametrize("url", ["", "ftp://x/", "http://", "nonsense", "http://x:port/"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(PageError):
        Page(url).job()

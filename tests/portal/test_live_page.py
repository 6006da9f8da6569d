"""A job's page as the portal reads it: whatever answers there."""

from __future__ import annotations

import socket
import threading
import time
from typing import Callable, Iterator, List

import pytest

from tests.client.scripted import APP, PageServer, task
from tony_core.client.errors import PageError
from tony_core.client.page import JobPage
from tony_core.portal import live_page
from tony_core.portal.live_page import LivePage, LivePages


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer() as made:
        made.tasks = [task()]
        yield made


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[List[LivePage]]:
    monkeypatch.setattr(live_page, "FRESH_S", 0.0)
    monkeypatch.setattr(live_page, "FAILED_S", 0.0)
    pages: List[LivePage] = []
    yield pages
    for page in pages:
        page.close()


def live(
    made: List[LivePage], url: str, problem_of: Callable[[str], str] = lambda url: ""
) -> LivePage:
    made.append(
        LivePage(lambda: JobPage(url, 1.0, problem_of=problem_of, most_bytes=live_page.MOST_BYTES))
    )
    return made[-1]


def test_the_story_is_read_on_and_not_again(made: List[LivePage], server: PageServer) -> None:
    page = live(made, server.url)
    server.tell("one", "two")
    assert [event["text"] for event in page.read().events] == ["one", "two"]
    server.tell("three")
    assert [event["text"] for event in page.read().events] == ["one", "two", "three"]
    assert "/api/events?since=2&wait=0" in server.requests


def test_a_next_master_that_counts_anew(made: List[LivePage], server: PageServer) -> None:
    page = live(made, server.url)
    server.tell("one", "two", "three")
    page.read()

    def since(number: int, wait_s: float) -> object:
        found = [item for item in server.events if item["n"] > number]
        return {"events": found, "next": 1}

    server._since = since  # type: ignore[method-assign]
    server.events = server.events[:1]
    assert [event["text"] for event in page.read().events] == ["one"]


def test_readers_share_what_was_just_read(
    made: List[LivePage], server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_page, "FRESH_S", 60.0)
    page = live(made, server.url)
    readers = [threading.Thread(target=page.read) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    assert len(server.requests) == 3, "job, tasks and events, once"


def test_one_that_does_not_answer_fails_all_who_look_at_once(
    made: List[LivePage], server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_page, "FIRST_S", 0.1)
    monkeypatch.setattr(live_page, "FAILED_S", 60.0)
    page = live(made, server.url)
    server.silent.set()
    for _ in range(5):
        with pytest.raises(PageError, match=r"no answer within 0\.1 s"):
            page.read()
    assert len(server.requests) == 1


def test_it_is_read_again_when_it_answers_again(
    made: List[LivePage], server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = live(made, server.url)
    server.refusal = (403, "not you")
    with pytest.raises(PageError, match="answered 403: not you"):
        page.read()
    server.refusal = None
    assert page.read().job["name"] == "mnist"


def test_byte_by_byte_for_ever(made: List[LivePage], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and the whole never does."""
    monkeypatch.setattr(live_page, "FIRST_S", 0.3)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            sock, _ = listener.accept()
            with sock:
                try:
                    sock.recv(4096)
                    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n")
                    while not over.wait(0.02):
                        sock.sendall(b" ")
                except OSError:
                    over.set()

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(PageError, match=r"no answer within 0\.3 s"):
                live(made, f"http://127.0.0.1:{listener.getsockname()[1]}/").read()
            assert over.wait(60), "and the connection is shut"
        finally:
            over.set()
            thread.join(60)


def test_gigabytes_are_not_read(
    made: List[LivePage], server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_page, "MOST_BYTES", 1000)
    server.raw = b"[" * 5000
    with pytest.raises(PageError, match="answers more than 1000 bytes"):
        live(made, server.url).read()


def test_no_address_is_asked_that_the_scheduler_does_not_name(
    made: List[LivePage], server: PageServer
) -> None:
    with PageServer() as internal:
        server.redirect = internal.url.rstrip("/")

        def problem_of(url: str) -> str:
            return "" if url.startswith(server.url) else f"{url} is no page of this job"

        with pytest.raises(PageError, match="is no page of this job"):
            live(made, server.url + "proxy/application_1_0001/", problem_of).read()
        assert internal.requests == []


@pytest.mark.parametrize("raw", [b"[]", b"{}", b"nonsense", b'{"tasks": 1, "events": 2}', b"[" * 9])
def test_what_is_no_page_is_one_error(made: List[LivePage], server: PageServer, raw: bytes) -> None:
    server.raw = raw
    with pytest.raises(PageError):
        live(made, server.url).read()


def test_odd_tasks_and_events_are_left_out(made: List[LivePage], server: PageServer) -> None:
    server.tasks = [task(), 7]  # type: ignore[list-item]
    server._since = lambda number, wait_s: {"events": [1, {"n": "x"}], "next": 0}  # type: ignore
    read = live(made, server.url).read()
    assert len(read.tasks) == 1
    assert read.events == ()


def test_few_pages_are_kept_and_none_in_use_is_closed(
    monkeypatch: pytest.MonkeyPatch, server: PageServer
) -> None:
    monkeypatch.setattr(live_page, "MOST_PAGES", 2)
    now = 100.0
    pages = LivePages(lambda: now)

    def get(key: int) -> LivePage:
        return pages.get((str(key),), lambda: JobPage(server.url))

    opened = [get(key) for key in range(4)]
    assert [get(key) for key in range(4)] == opened, "all are in use"
    now += live_page.IN_USE_S
    assert get(3) is opened[3] and get(2) is opened[2], "the first two are closed"
    assert get(0) is not opened[0] and get(1) is not opened[1]
    pages.close()


def test_many_viewers_of_one_job_do_not_close_each_others_pages(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_page, "FRESH_S", 60.0)
    pages = LivePages()
    viewers = [(APP, f"viewer {number}") for number in range(3 * live_page.MOST_PAGES)]
    first = [pages.get(viewer, lambda: JobPage(server.url)) for viewer in viewers]
    assert all(page.read().job["name"] == "mnist" for page in first[:5])
    count = len(server.requests)
    assert [pages.get(viewer, lambda: JobPage(server.url)) for viewer in viewers] == first
    assert first[0].read() and len(server.requests) == count, "what was just read"
    pages.close()


def test_the_time_is_that_of_the_whole(made: List[LivePage], server: PageServer) -> None:
    server.silent.set()
    began = time.monotonic()
    with pytest.raises(PageError):
        live(made, server.url).read()
    assert time.monotonic() - began < 60

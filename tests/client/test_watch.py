"""Watching: the scheduler's word first, the page's second, through takeovers to the end."""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, Iterator, List, Optional

import pytest

from tests.client.scripted import APP, PageServer, Scripted, event, status, task
from tests.hadoop.kerberos.handshakes import ScriptedLogin
from tony_core.client.page import CALL_S
from tony_core.client.page_reader import FAILING_MOST_S, PollInterval
from tony_core.client.watch import Callbacks, Watch
from tony_core.hadoop.kerberos.gssapi import Target
from tony_core.hadoop.web import WebConnection
from tony_core.history.store import HistoryWriter, encode
from tony_core.schedulers.port import (
    AppState,
    AppStatus,
    LastingRefusal,
    NoSuchApplication,
    SchedulerError,
)
from tony_core.view import JobView


class Received:
    """What the callbacks got, in order."""

    def __init__(self) -> None:
        self.events: List[str] = []
        self.tasks: List[List[str]] = []
        self.links: List[Dict[str, str]] = []
        self.finished: List[JobView] = []
        self.problems: List[str] = []
        self.silences: List[str] = []
        self.threads: set[int] = set()
        self.ticks = 0
        self.ended_at = 0.0

    def callbacks(self) -> Callbacks:
        def noted(add: Any) -> Any:
            def call(value: Any) -> None:
                self.threads.add(threading.get_ident())
                add(value)

            return call

        def tick() -> None:
            self.ticks += 1

        return Callbacks(
            on_event=noted(lambda item: self.events.append(item["text"])),
            on_tasks=noted(lambda tasks: self.tasks.append([t.state for t in tasks])),
            on_links=noted(lambda links: self.links.append(dict(links))),
            on_finished=noted(self.finished.append),
            on_unreachable=noted(self.problems.append),
            on_silent_page=noted(self.silences.append),
            on_tick=tick,
        )


@pytest.fixture
def received() -> Received:
    return Received()


@pytest.fixture
def page() -> Iterator[PageServer]:
    with PageServer() as made:
        yield made


def later(seconds: float, *calls: Any) -> threading.Thread:
    """Do these things, with a pause before each."""

    def do() -> None:
        for call in calls:
            time.sleep(seconds)
            call()

    thread = threading.Thread(target=do)
    thread.start()
    return thread


def run(watch: Watch, *threads: threading.Thread, timeout_s: float = 60.0) -> Optional[JobView]:
    try:
        return watch.run(timeout_s)
    finally:
        for thread in threads:
            thread.join()


def test_the_whole_way_of_a_job(received: Received, page: PageServer) -> None:
    scheduler = Scripted("", status(state=AppState.SUBMITTED))

    def starts() -> None:
        page.tasks = [task(state="launched")]
        page.tell("session 0 begins")
        scheduler.set(state=AppState.RUNNING, page_url=page.url)

    def runs() -> None:
        page.tasks = [task(state="running")]
        page.job["links"] = {"page": page.url, "tensorboard": "http://tb/"}
        page.tell("worker:0 running")

    def ends() -> None:
        received.ended_at = time.monotonic()
        scheduler.set(state=AppState.SUCCEEDED, finished=1009.0, page_url=None)

    watch = Watch(scheduler, APP, received.callbacks())
    view = run(watch, later(0.3, starts, runs, ends))
    assert time.monotonic() - received.ended_at < CALL_S  # nothing was waited for
    assert view is not None
    assert view.state is AppState.SUCCEEDED
    assert received.events == ["session 0 begins", "worker:0 running"]
    assert received.tasks == [["launched"], ["running"], ["ended"]]
    assert received.links[-2] == {"page": page.url, "tensorboard": "http://tb/"}
    assert received.links[-1] == {"tensorboard": "http://tb/"}, "the page went with its master"
    assert [item.state for item in received.finished] == [AppState.SUCCEEDED]
    assert received.threads == {threading.get_ident()}
    assert received.ticks > 2


def test_callbacks_for_tasks_come_when_they_change_and_for_progress_by_the_percent(
    page: PageServer,
) -> None:
    stands: List[List[Any]] = []
    progress: List[Optional[float]] = []
    views: List[Any] = []
    scheduler = Scripted("", status(page_url=page.url))
    page.tasks = [task(node="n", container="c", measures={"rss_mb": 0.0})]

    def reports(done: float) -> Any:
        def call() -> None:
            page.tasks = [
                task(node="n", container="c", progress=done, measures={"rss_mb": 9 * done})
            ]
            page.tell("an event, and the tasks are read again")

        return call

    def ends() -> None:
        page.tasks = [task(state="succeeded", node="n", container="c", exit_code=0, progress=0.5)]
        page.tell("succeeded")

    callbacks = Callbacks(
        on_tasks=lambda tasks: stands.append([(t.state, t.exit_code) for t in tasks]),
        on_progress=lambda tasks: progress.append(tasks[0].progress),
        on_view=lambda view: views.append([dict(t.measures) for t in view.tasks]),
    )
    watch = Watch(scheduler, APP, callbacks)
    steps = [reports(0.500), reports(0.501), reports(0.502), reports(0.52), ends]
    over = [lambda: scheduler.set(state=AppState.SUCCEEDED)]
    run(watch, later(0.4, *steps, *over))
    assert stands == [[("running", None)], [("succeeded", 0)]]
    assert progress == [None, 0.5, 0.52, 0.5]
    assert [{"rss_mb": 9 * 0.502}] in views  # that much was seen, and not reported


def test_a_page_that_hangs_delays_nothing(received: Received, page: PageServer) -> None:
    page.silent.set()
    scheduler = Scripted("", status(page_url=page.url))

    def ends() -> None:
        received.ended_at = time.monotonic()
        scheduler.set(state=AppState.FAILED, diagnostics="the master died")

    view = run(Watch(scheduler, APP, received.callbacks()), later(0.4, ends))
    assert time.monotonic() - received.ended_at < CALL_S  # nothing was waited for
    assert view is not None
    assert view.diagnostics == "the master died"
    page.silent.clear()


def test_a_page_that_is_not_there_is_reported(received: Received, page: PageServer) -> None:
    scheduler = Scripted("", status(page_url=page.url))
    page.close()

    def silent(why: str) -> None:
        received.silences.append(why)
        if len(received.silences) == 2:
            scheduler.set(state=AppState.SUCCEEDED)

    assert run(Watch(scheduler, APP, Callbacks(on_silent_page=silent))) is not None
    assert len(received.silences) >= 2 and all(received.silences)


@pytest.mark.parametrize(
    ("code", "words"),
    [(403, "answered 403: bob may not read this page"), (401, "asks for a Kerberos ticket")],
)
def test_a_page_that_refuses_is_reported_once(page: PageServer, code: int, words: str) -> None:
    scheduler = Scripted("", status(page_url=page.url))
    page.refusal = (code, "bob may not read this page")
    silences: List[str] = []
    refusals: List[str] = []

    def silent(why: str) -> None:
        silences.append(why)
        if len(silences) == 2:
            scheduler.set(state=AppState.SUCCEEDED)

    callbacks = Callbacks(on_silent_page=silent, on_refused_page=refusals.append)
    assert run(Watch(scheduler, APP, callbacks)) is not None
    assert len(silences) >= 2 and len(refusals) == 1
    assert words in refusals[0]


def test_a_ticket_that_ends_is_reported_once_and_the_watch_goes_on(
    page: PageServer, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a kept connection to the ResourceManager does, the scheduler still answers."""
    login, read = ScriptedLogin(), WebConnection.request

    def request(self: WebConnection, *words: Any, **more: Any) -> Any:
        login.new_context(Target(service="HTTP@h"))
        return read(self, *words, **more)

    monkeypatch.setattr(WebConnection, "request", request)
    scheduler = Scripted("", status(page_url=page.url))
    login.broken = "the Kerberos ticket of ann has expired: get a new one by kinit"
    silences: List[str] = []
    refusals: List[str] = []

    def silent(why: str) -> None:
        silences.append(why)
        if len(silences) == 2:
            login.broken = ""
        elif len(silences) == 3:
            scheduler.set(state=AppState.SUCCEEDED)

    def shown(view: JobView) -> None:
        if view.source == "page":
            login.broken = "it has expired again"

    callbacks = Callbacks(on_silent_page=silent, on_refused_page=refusals.append, on_view=shown)
    assert run(Watch(scheduler, APP, callbacks)) is not None
    assert refusals == [
        "the Kerberos ticket of ann has expired: get a new one by kinit",
        "it has expired again",
    ]


def test_a_takeover_is_followed_and_no_line_is_lost_or_doubled(received: Received) -> None:
    first, second = PageServer(), PageServer()
    scheduler = Scripted("", status(page_url=first.url, attempt=1))
    first.tell("one", "two")

    def dies() -> None:
        first.close()

    def follows() -> None:
        second.events = [*first.events, event(1003, "attempt 2 took over")]
        scheduler.set(page_url=second.url, attempt=2)

    def goes_on() -> None:
        second.tell("three")

    def ends() -> None:
        scheduler.set(state=AppState.SUCCEEDED)

    view = run(
        Watch(scheduler, APP, received.callbacks()), later(0.5, dies, follows, goes_on, ends)
    )
    second.close()
    assert view is not None
    assert received.events == ["one", "two", "attempt 2 took over", "three"]


def test_events_that_the_page_did_not_show_come_from_history(
    received: Received, page: PageServer, tmp_path: Any
) -> None:
    scheduler = Scripted(str(tmp_path), status(page_url=page.url))
    page.tell("one")

    def ends() -> None:
        writer = HistoryWriter(f"{tmp_path}/history/{APP}")
        writer.begin([])
        for n, text in enumerate(("one", "two", "three"), 1):
            writer.add(encode(event(n, text)))
        root = {"task": "worker:0", "exit_code": 3}
        job = {"app_id": APP, "state": "FAILED", "finished": 1005.0, "root_cause": root}
        writer.summary({"job": job, "tasks": [task(state="failed", exit_code=3)], "metrics": {}})
        assert writer.close() == []
        scheduler.set(state=AppState.FAILED, finished=1005.0, diagnostics="worker:0 failed")

    view = run(Watch(scheduler, APP, received.callbacks()), later(0.5, ends))
    assert view is not None
    assert view.source == "history"
    assert view.root_cause["exit_code"] == 3
    assert view.tasks[0].exit_code == 3
    assert received.events == ["one", "two", "three"]


def test_an_end_that_the_page_showed_is_not_read_again(
    received: Received, page: PageServer
) -> None:
    scheduler = Scripted("", status(page_url=page.url))

    def unread(job: object) -> str:
        raise AssertionError("history was read")

    scheduler.history_root = unread  # type: ignore[assignment, method-assign]
    page.tell("one")

    def page_shows_end() -> None:
        page.job.update(state="FAILED", finished=1005.0, root_cause={"task": "worker:0"})
        page.tasks = [task(state="failed", exit_code=3)]
        page.tell("the job has ended: FAILED", kind="job-ended")

    def ends() -> None:
        scheduler.set(state=AppState.FAILED, finished=1005.5, diagnostics="worker:0 failed")

    view = run(Watch(scheduler, APP, received.callbacks()), later(0.4, page_shows_end, ends))
    assert view is not None
    assert (view.source, view.state) == ("history", AppState.FAILED)
    assert view.root_cause["task"] == "worker:0"
    assert view.tasks[0].exit_code == 3
    assert view.diagnostics == "worker:0 failed"
    assert received.events == ["one", "the job has ended: FAILED"]
    assert [item.tasks for item in received.finished] == [view.tasks]


def test_an_end_that_was_not_the_last_is_forgotten(
    received: Received, page: PageServer, tmp_path: Any
) -> None:
    scheduler = Scripted(str(tmp_path), status(page_url=page.url))

    def page_shows_end() -> None:
        page.job.update(state="FAILED", finished=1005.0)
        page.tasks = [task(state="failed", exit_code=3)]
        page.tell("the job has ended: FAILED", kind="job-ended")

    def goes_on() -> None:
        page.job.update(state="RUNNING", finished=None)
        page.tasks = [task(state="running")]
        page.tell("attempt 2 begins")

    def ends() -> None:
        writer = HistoryWriter(f"{tmp_path}/history/{APP}")
        writer.begin([])
        job = {"app_id": APP, "state": "SUCCEEDED", "finished": 1009.0}
        writer.summary({"job": job, "tasks": [task(state="succeeded")], "metrics": {}})
        assert writer.close() == []
        scheduler.set(state=AppState.SUCCEEDED, finished=1009.0)

    view = run(
        Watch(scheduler, APP, received.callbacks()), later(0.4, page_shows_end, goes_on, ends)
    )
    assert view is not None
    assert [item.state for item in view.tasks] == ["succeeded"]


def test_what_a_page_shows_before_its_last_line_is_not_the_end(
    received: Received, page: PageServer, tmp_path: Any
) -> None:
    scheduler = Scripted(str(tmp_path), status(page_url=page.url))
    page.job.update(state="FAILED", finished=1005.0)
    page.tasks = [task(state="running")]
    page.tell("one", "the programs are stopped")

    def ends() -> None:
        writer = HistoryWriter(f"{tmp_path}/history/{APP}")
        writer.begin([])
        job = {"app_id": APP, "state": "FAILED", "finished": 1006.0}
        writer.summary({"job": job, "tasks": [task(state="stopped")], "metrics": {}})
        assert writer.close() == []
        scheduler.set(state=AppState.FAILED, finished=1006.0)

    view = run(Watch(scheduler, APP, received.callbacks()), later(0.4, ends))
    assert view is not None
    assert [item.state for item in view.tasks] == ["stopped"]


def test_an_ended_job_finishes_at_once(received: Received) -> None:
    scheduler = Scripted("", status(state=AppState.KILLED, diagnostics="killed by ann"))
    view = Watch(scheduler, APP, received.callbacks()).run()
    assert view is not None
    assert view.diagnostics == "killed by ann"
    assert (scheduler.asked, received.ticks) == (1, 0)  # it has waited for nothing


def test_a_scheduler_that_is_away_for_a_while(received: Received) -> None:
    scheduler = Scripted("", status())
    scheduler.unreachable = "connection refused"

    def back() -> None:
        scheduler.unreachable = None
        scheduler.set(state=AppState.SUCCEEDED)

    assert run(Watch(scheduler, APP, received.callbacks()), later(0.4, back)) is not None
    assert received.problems == ["connection refused"]


def test_a_scheduler_that_stays_away_is_an_error(received: Received) -> None:
    scheduler = Scripted("", status())
    scheduler.unreachable = "connection refused"
    watch = Watch(scheduler, APP, received.callbacks(), unreachable_s=0.3)
    with pytest.raises(SchedulerError, match=f"connection refused.*tony attach {APP}"):
        watch.run(10)


class Refusing(Scripted):
    """It refuses this client, as a cluster does when a ticket has expired."""

    expired: Optional[str] = "the Kerberos ticket has expired: get a new one by kinit"

    def status(self, app_id: str) -> AppStatus:
        if self.expired:
            raise LastingRefusal(self.expired)
        return super().status(app_id)


def test_a_refusal_that_lasts_ends_the_watch_and_not_the_job(received: Received) -> None:
    watch = Watch(Refusing("", status()), APP, received.callbacks(), refused_s=0.3)
    with pytest.raises(LastingRefusal) as caught:
        watch.run(10)
    assert str(caught.value) == (
        "the Kerberos ticket has expired: get a new one by kinit. This concerns the watch and not"
        f" the job, which may still run. Resume with: tony attach {APP}"
    )
    assert len(received.problems) == 1


def test_a_ticket_that_is_just_being_renewed_is_waited_for(received: Received) -> None:
    scheduler = Refusing("", status())

    def renewed() -> None:
        scheduler.expired = None
        scheduler.set(state=AppState.SUCCEEDED)

    watch = Watch(scheduler, APP, received.callbacks(), refused_s=30)
    assert run(watch, later(0.4, renewed)) is not None


def test_no_such_application() -> None:
    with pytest.raises(NoSuchApplication):
        Watch(Scripted(), "nope").run(5)


def test_stop_and_time_out() -> None:
    scheduler = Scripted("", status())
    watch = Watch(scheduler, APP)
    assert run(watch, later(0.2, watch.stop), timeout_s=300.0) is None
    assert Watch(scheduler, APP).run(0.2) is None


def test_a_callback_that_raises_reaches_the_caller(page: PageServer) -> None:
    page.tell("boom")
    scheduler = Scripted("", status(page_url=page.url))

    def fails(_: Any) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        Watch(scheduler, APP, Callbacks(on_event=fails)).run(10)


class TestPollInterval:
    def test_what_is_cheap_is_asked_often(self) -> None:
        interval = PollInterval()
        interval.answered(0.0005)
        assert interval.pause_s == 0.1

    def test_what_is_dear_is_asked_seldom_but_asked(self) -> None:
        interval = PollInterval()
        interval.answered(0.02)
        assert interval.pause_s == pytest.approx(1.0)
        for _ in range(5):
            interval.answered(3.0)
        assert interval.pause_s == 2.0

    def test_failures_back_off_and_one_answer_forgives_them(self) -> None:
        interval = PollInterval()
        pauses = []
        for _ in range(8):
            interval.failed()
            pauses.append(interval.pause_s)
        assert pauses == sorted(pauses)
        assert pauses[0] == 0.25
        assert pauses[-1] == FAILING_MOST_S
        interval.answered(0.001)
        assert interval.pause_s == 0.1


def test_an_answer_that_cannot_be_read_ends_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    from queue import SimpleQueue

    from tony_core.client import page_reader

    broken = [RecursionError("too deep"), TypeError("odd")]
    events = page_reader.JobPage.events

    def odd(self: Any, *words: Any) -> Any:
        if broken:
            raise broken.pop()
        return events(self, *words)

    monkeypatch.setattr(page_reader.JobPage, "events", odd)
    inbox: SimpleQueue[Any] = SimpleQueue()
    with PageServer() as page:
        page.events = [event(1, "it began")]
        made = page_reader.PageReader(inbox, poll_s=0.05)
        made.set_url(page.url)
        messages = [inbox.get(timeout=60) for _ in range(3)]
        made.close()
    assert [type(one).__name__ for one in messages] == ["PageLost", "PageLost", "NewEvents"]
    assert "TypeError: odd" in messages[0].reason

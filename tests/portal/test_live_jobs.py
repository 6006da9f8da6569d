"""The schedulers' running jobs, merged with the index by id and owner."""

from __future__ import annotations

import threading
import time
from typing import Callable, Iterable, Iterator, List, Set, Tuple

import pytest

from tests.client.scripted import APP, status
from tests.portal.scripted import ROW, Listed, Opened, Portal
from tony_core.portal import live_jobs
from tony_core.portal.index.rows import Query
from tony_core.portal.live_jobs import LiveJob, matches
from tony_core.portal.viewer import Viewer
from tony_core.schedulers.port import AppState, AppStatus, SchedulerError

ANN, BOB, ADMIN = Viewer("ann"), Viewer("bob"), Viewer("root", is_admin=True)


@pytest.fixture
def portal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Portal]:
    made = Portal("yarn")
    Opened(monkeypatch, yarn=Listed())
    yield made
    made.close()


def never(jobs: Iterable[Tuple[str, str]]) -> Set[Tuple[str, str]]:
    return set()


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen within 60 s"
        time.sleep(0.01)


def test_a_job_that_no_history_has_is_shown_to_its_owner_and_administrators(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    Opened(monkeypatch, yarn=Listed(status(state=AppState.ACCEPTED, diagnostics="waits for room")))
    portal.list()
    for viewer, expected in ((ANN, [APP]), (BOB, []), (ADMIN, [APP])):
        assert [row.app_id for row in portal.live.unlisted(viewer, never)] == expected
    row = portal.live.unlisted(ANN, never)[0]
    assert (row.location, row.state, row.owner) == ("scheduler:yarn", "ACCEPTED", "ann")
    assert row.error == "waits for room"
    assert portal.live.unlisted(ANN, lambda jobs: {(APP, "ann")}) == []


def test_the_index_is_asked_once_for_all_of_a_list_and_for_one_id_only(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"application_1_{number:04}" for number in range(50)]
    Opened(monkeypatch, yarn=Listed(*(status(app_id=app_id) for app_id in ids)))
    portal.list()
    asked: List[List[str]] = []

    def known(jobs: Iterable[Tuple[str, str]]) -> Set[Tuple[str, str]]:
        found = list(jobs)
        asked.append([app_id for app_id, _ in found])
        return set(found[:20])

    assert len(portal.live.unlisted(ADMIN, known)) == 30
    assert [sorted(each) for each in asked] == [ids]
    asked.clear()
    (row,) = portal.live.unlisted(ADMIN, never, app_id=ids[-1])
    assert row.app_id == ids[-1]
    portal.live.unlisted(ADMIN, known)
    assert len(asked[0]) == 30, "what has a history is not asked for again"
    assert portal.live.unlisted(ADMIN, never, app_id="application_1_9999") == []


def test_one_that_the_portal_itself_may_not_look_at_is_still_its_owners(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = status(view_refusal="svc may not see it", diagnostics="secret")
    Opened(monkeypatch, yarn=Listed(refused))
    portal.list()
    row = portal.live.unlisted(ANN, never)[0]
    assert row.error == ""


class TestOneJobInBoth:
    def test_the_scheduler_knows_state_and_progress(
        self, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Opened(monkeypatch, yarn=Listed(status(progress=0.5, started=1001.0)))
        portal.list()
        (row,) = portal.live.overlay([ROW._replace(state="ACCEPTED")])
        assert (row.state, row.progress, row.started) == ("RUNNING", 0.5, 1001.0)

    def test_a_folder_of_another_user_with_its_id_is_another_job(
        self, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Opened(monkeypatch, yarn=Listed(status(progress=0.5)))
        portal.list()
        eves = ROW._replace(owner="eve")
        assert portal.live.overlay([eves]) == [eves]
        portal.list()  # which asks for eve's, and finds ann's
        assert portal.live.overlay([eves]) == [eves]
        assert portal.live.job(APP, "eve") is None

    def test_the_owner_is_the_schedulers_and_not_the_jobs(
        self, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        claims = Listed(status(progress=0.5))
        claims.owners[APP] = "eve"
        Opened(monkeypatch, yarn=claims)
        portal.list()
        assert portal.live.job(APP, "ann") is None
        assert portal.live.job(APP, "eve") is not None
        claims.owners[APP] = ""  # not known: not shown
        portal.list()
        assert portal.live.jobs() == []

    def test_history_that_has_the_end_is_believed(
        self, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Opened(monkeypatch, yarn=Listed(status()))
        portal.list()
        ended = ROW._replace(state="SUCCEEDED", finished=1100.0)
        assert portal.live.overlay([ended]) == [ended]


class TestAnEndThatNoMasterWrote:
    def test_the_scheduler_is_asked_for_one_that_it_does_not_list(
        self, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        killed = status(state=AppState.KILLED, finished=1100.0, diagnostics="killed by ann")
        Opened(monkeypatch, yarn=Listed(killed))
        portal.list()
        assert portal.live.overlay([ROW]) == [ROW], "the list is not held up by it"
        portal.list()
        (row,) = portal.live.overlay([ROW])
        assert (row.state, row.finished, row.error) == ("KILLED", 1100.0, "killed by ann")

    def test_it_is_asked_by_itself_when_a_job_leaves_the_list(
        self, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        yarn = Listed(status())
        Opened(monkeypatch, yarn=yarn)
        portal.list()
        yarn.set(state=AppState.FAILED)
        portal.list()
        assert portal.live.overlay([ROW])[0].state == "FAILED"

    def test_the_scanner_asks_for_it(self, portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
        yarn = Listed(status())
        Opened(monkeypatch, yarn=yarn)
        portal.list()
        assert not portal.live.ask_end(APP, "ann"), "it runs"
        assert not portal.live.ask_end("app_other", "ann"), "nothing has answered yet"
        portal.list()
        assert portal.live.ask_end("app_other", "ann")
        assert portal.live.ended_status("app_other", "ann") is None

    def test_one_that_no_scheduler_knows_stays_as_history_has_it(self, portal: Portal) -> None:
        portal.list()
        for _ in range(3):
            assert portal.live.overlay([ROW]) == [ROW]
            portal.list()


class TestTheThreads:
    def test_a_scheduler_that_does_not_answer_hides_nothing_of_the_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(live_jobs, "LIST_S", 0.1)
        go_on = threading.Event()

        class Hung(Listed):
            def list_running(self) -> list[AppStatus]:
                go_on.wait(60)
                raise SchedulerError("the ResourceManager went away")

        Opened(monkeypatch, yarn=Hung(), local=Listed(status()))
        portal = Portal("local", "yarn")
        portal.live.start()
        try:
            wait_for(portal.live.jobs)
            wait_for(portal.live.problems)
            (problem,) = portal.live.problems()
            assert "the scheduler yarn has not listed its jobs" in problem
            assert "no answer within 0.1 s" in problem
            go_on.set()
            wait_for(lambda: "went away" in portal.live.problems()[0])
            assert [job.scheduler for job in portal.live.jobs()] == ["local"]
        finally:
            portal.close()

    def test_a_new_job_is_there_within_moments(self, monkeypatch: pytest.MonkeyPatch) -> None:
        yarn = Listed()
        Opened(monkeypatch, yarn=yarn)
        portal = Portal("yarn")
        portal.live.start()
        try:
            wait_for(lambda: portal.live._listings["yarn"].at)
            yarn.apps[APP] = status()
            wait_for(portal.live.jobs)
        finally:
            portal.close()

    def test_an_unexpected_error_ends_no_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Broken(Listed):
            broken = True

            def list_running(self) -> list[AppStatus]:
                if self.broken:
                    raise KeyError("state")
                return super().list_running()

        yarn = Broken(status())
        Opened(monkeypatch, yarn=yarn)
        portal = Portal("yarn")
        portal.live.start()
        try:
            wait_for(portal.live.problems)
            assert "KeyError" in portal.live.problems()[0]
            yarn.broken = False
            wait_for(portal.live.jobs)
            assert portal.live.problems() == []
        finally:
            portal.close()

    def test_a_list_without_end_is_cut_and_that_is_named(
        self, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(live_jobs, "MOST_JOBS", 3)
        Opened(monkeypatch, yarn=Listed(*(status(f"app_1_{n:04d}") for n in range(5))))
        portal.list()
        assert len(portal.live.jobs()) == 3
        assert "2 are not shown" in portal.live.problems()[0]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (Query(), True),
        (Query(q="mni"), True),
        (Query(q="MNIST 0001"), True),
        (Query(q="nist"), False),  # only beginnings of words
        (Query(state=("RUNNING", "FAILED")), True),
        (Query(state=("FAILED",)), False),
        (Query(user="ann"), True),
        (Query(user="an"), False),
        (Query(queue="default"), True),
        (Query(queue="ml"), False),
        (Query(framework="jax"), False),
        (Query(tag="nightly"), True),
        (Query(tag="night"), False),
        (Query(pipeline="airflow:a.b"), False),
        (Query(since=999.0), True),
        (Query(since=1001.0), False),
    ],
)
def test_the_views_that_a_job_without_history_belongs_to(query: Query, expected: bool) -> None:
    row = LiveJob("yarn", "ann", status(tags=("nightly",))).row()
    assert matches(row, query) is expected


@pytest.mark.parametrize("query", [Query(after="x"), Query(location="main"), Query(until=2000.0)])
def test_later_pages_and_other_places_have_none(
    portal: Portal, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    Opened(monkeypatch, yarn=Listed(status()))
    portal.list()
    assert portal.live.unlisted(ANN, never)
    assert portal.live.unlisted(ANN, never, query) == []

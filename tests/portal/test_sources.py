"""One job from its page, its scheduler and its history; and what is in none of their power."""

from __future__ import annotations

from typing import Any, Iterator, Tuple

import pytest

from tests.client.scripted import APP, PageServer, status, task
from tests.portal.scripted import ROW, Folder, Listed, Opened, Portal
from tony_core.history.reader import JobHistory
from tony_core.portal import live_page
from tony_core.portal.job_folders import UnsafeHistory
from tony_core.portal.job_source import JobSource, LogProblem
from tony_core.portal.sources import PortalJob
from tony_core.portal.viewer import Viewer
from tony_core.schedulers.port import AppState, LogReader, LogRef, SchedulerError

ANN = Viewer("ann")
EVENT = {"n": 4, "kind": "note", "text": "from history", "time": 1.0}
HISTORY = JobHistory(
    APP,
    {"app_id": APP, "name": "from history", "state": "RUNNING", "framework": "jax"},
    (task(container="c1", log_url="http://elsewhere:8042/logs"),),
    {"loss": 1},
    (EVENT,),
)


@pytest.fixture
def portal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Portal]:
    monkeypatch.setattr(live_page, "FRESH_S", 0.0)
    made = Portal("yarn")
    Opened(monkeypatch, yarn=Listed())
    yield made
    made.close()


@pytest.fixture
def running(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Tuple[PageServer, PortalJob, Listed]]:
    with PageServer() as page:
        page.tasks = [task(container="c1")]
        yarn = Listed(status(page_url=page.url, progress=0.25))
        Opened(monkeypatch, yarn=yarn)
        portal.folders[APP] = Folder(HISTORY)
        portal.list()
        job: JobSource = portal.sources.open(ROW, ANN)
        assert isinstance(job, PortalJob)
        yield page, job, yarn


class TestRunning:
    def test_it_is_shown_from_its_page(self, running: Tuple[PageServer, PortalJob, Listed]) -> None:
        page, job, _ = running
        page.tell("from the page")
        found = job.record(metrics=False)
        assert job.is_running
        assert (found.job["name"], found.job["progress"]) == ("mnist", 0.25)
        assert [event["text"] for event in found.events] == ["from the page"]
        assert found.problems == ()

    def test_where_its_page_does_not_answer_it_is_shown_from_history_and_that_is_named(
        self, running: Tuple[PageServer, PortalJob, Listed]
    ) -> None:
        page, job, _ = running
        page.refusal = (500, "")
        found = job.record()
        assert (found.job["name"], found.job["state"]) == ("from history", "RUNNING")
        assert found.job["progress"] == 0.25, "the scheduler knows it"
        assert found.metrics == {"loss": 1}
        assert "page does not answer, this is its history" in found.problems[0]

    def test_a_pages_id_and_owner_are_not_believed(
        self, running: Tuple[PageServer, PortalJob, Listed]
    ) -> None:
        page, job, _ = running
        page.job.update(app_id="app_1_0002", user="root", links={"evil": "javascript:alert(1)"})
        found = job.record(metrics=False)
        assert (found.app_id, found.job["app_id"], found.job["user"]) == (APP, APP, "ann")
        assert "evil" not in job.links()

    def test_the_story_from_a_number_on(
        self, running: Tuple[PageServer, PortalJob, Listed]
    ) -> None:
        page, job, _ = running
        page.tell("one")
        assert [event["text"] for event in job.events(0)[0]] == ["one"]
        assert job.events(1) == ([], 1)
        assert job.events(900) == ([], 1), "a number that no line has yet"

    def test_another_users_job_of_that_id_is_shown_from_his_own_files_only(
        self, running: Tuple[PageServer, PortalJob, Listed], portal: Portal
    ) -> None:
        page, _, yarn = running
        yarn.logs["c1", "stdout"] = b"ann's secret"
        eves = portal.sources.open(ROW._replace(owner="eve"), Viewer("eve"))
        asked = len(page.requests)
        assert not eves.is_running
        assert eves.record().job["name"] == "from history"
        with pytest.raises(LogProblem, match="knows app_1_0001 no more"):
            eves.log("worker:0", "stdout", "", 0, 100)
        assert len(page.requests) == asked
        assert yarn.read == []


class TestEnded:
    def test_history_is_newer_than_a_list_of_running_jobs(
        self, running: Tuple[PageServer, PortalJob, Listed], portal: Portal
    ) -> None:
        job = portal.sources.open(ROW._replace(state="SUCCEEDED"), ANN)
        assert not job.is_running
        _, _, yarn = running
        yarn.logs["c1", "stdout"] = b"x"
        assert job.log("worker:0", "stdout", "", 0, 10).over

    def test_from_history(self, portal: Portal) -> None:
        record = HISTORY._replace(job={**HISTORY.job, "state": "FAILED", "finished": 2.0})
        portal.folders[APP] = Folder(record)
        job = portal.sources.open(ROW._replace(state="FAILED"), ANN)
        found = job.record()
        assert (found.job["state"], found.job["finished"]) == ("FAILED", 2.0)
        assert job.events(0) == ([EVENT], 4)

    def test_an_end_that_no_master_wrote(
        self, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        portal.folders[APP] = Folder(HISTORY)
        ended = status(state=AppState.KILLED, finished=9.0, diagnostics="killed")
        Opened(monkeypatch, yarn=Listed(ended))
        portal.list()
        portal.live.overlay([ROW])
        portal.list()
        found = portal.sources.open(ROW, ANN).record()
        assert (found.job["state"], found.job["diagnostics"]) == ("KILLED", "killed")
        assert found.tasks[0]["state"] == "killed"
        assert found.events[-1]["kind"] == "job-ended"

    def test_an_end_that_only_the_index_still_knows(self, portal: Portal) -> None:
        """The portal was started again, and the scheduler has forgotten the job."""
        running = {"state": "RUNNING", "submitted": 1000.0}
        portal.folders[APP] = Folder(
            JobHistory(APP, running, ({"task": "w:0", "state": "running"},))
        )
        row = ROW._replace(state="FAILED", finished=1100.0, error="the master died")
        job = portal.sources.open(row, Viewer("ann"))
        for events in (True, False):
            record = job.record(events=events).job
            assert (record["state"], record["finished"]) == ("FAILED", 1100.0)
            assert record["diagnostics"] == "the master died"

    def test_without_files_the_row_is_shown_and_the_reason(self, portal: Portal) -> None:
        found = portal.sources.open(ROW._replace(state="FAILED"), ANN).record()
        assert (found.job["name"], found.job["state"]) == ("mnist", "FAILED")
        assert "no history of" in found.problems[0]

    def test_hostile_files_keep_the_shapes(self, portal: Portal) -> None:
        job = {"state": ["x"], "links": "x", "tags": 1, "progress": "x", "elastic": {"a": 1}}
        tasks: Any = ({"task": 7, "runs": 3, "usage": [1], "container": {}},)
        portal.folders[APP] = Folder(JobHistory(APP, job, tasks))
        opened = portal.sources.open(ROW, ANN)
        found = opened.record()
        assert found.job["links"] == {}
        assert found.tasks[0]["runs"] == []
        assert opened.links() == {}

    def test_the_configuration(self, portal: Portal) -> None:
        xml = b"<configuration><property><name>a</name><value>b</value></property></configuration>"
        portal.folders[APP] = Folder(HISTORY, xml)
        assert portal.sources.open(ROW, ANN).config() == (("a", "b", ""),)
        evil = b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><configuration>&e;'
        portal.folders[APP] = Folder(HISTORY, evil)
        with pytest.raises(ValueError, match="tony-final"):
            portal.sources.open(ROW, ANN).config()

    def test_a_configuration_that_may_not_be_read_is_not_one_that_was_not_kept(
        self, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(folder: Folder) -> bytes:
            raise UnsafeHistory("/h/tony-final.xml", "is a symbolic link, which is not followed")

        portal.folders[APP] = Folder(HISTORY)
        assert portal.sources.open(ROW, ANN).config() == ()
        monkeypatch.setattr(Folder, "config", refuse)
        with pytest.raises(OSError, match="symbolic link"):
            portal.sources.open(ROW, ANN).config()


class TestLogs:
    def test_parts(self, running: Tuple[PageServer, PortalJob, Listed]) -> None:
        _, job, yarn = running
        yarn.logs["c1", "stdout"] = b"0123456789"
        assert job.log("worker:0", "stdout", "", 0, 4) == (b"0123", 0, 10, False)
        assert job.log("worker:0", "stdout", "c1", 4, 100) == (b"456789", 4, 10, False)
        assert job.log("worker:0", "stdout", "c1", -3, 100) == (b"789", 7, 10, False)
        assert job.log("worker:0", "stdout", "c1", -300, 100) == (b"0123456789", 0, 10, False)
        assert job.log("worker:0", "stdout", "c1", 10, 100) == (b"", 10, 10, False)
        assert job.log("worker:0", "stdout", "c1", 99, 100) == (b"", 99, 10, False)

    def test_a_huge_log_comes_in_bounded_parts(
        self, running: Tuple[PageServer, PortalJob, Listed]
    ) -> None:
        _, job, yarn = running
        yarn.logs["c1", "stdout"] = b"x" * (3 << 20)
        assert len(job.log("worker:0", "stdout", "c1", 0, 1 << 30).data) == 1 << 20

    def test_the_last_part_of_an_ended_job_is_marked(
        self, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        yarn = Listed(status(state=AppState.SUCCEEDED))
        yarn.logs["c1", "stdout"] = b"0123456789"
        Opened(monkeypatch, yarn=yarn)
        portal.folders[APP] = Folder(HISTORY)
        job = portal.sources.open(ROW._replace(state="SUCCEEDED"), ANN)
        assert job.log("worker:0", "stdout", "", 0, 5) == (b"01234", 0, 10, False)
        assert job.log("worker:0", "stdout", "", 5, 5) == (b"56789", 5, 10, True)

    def test_only_of_containers_that_the_tasks_name(
        self, running: Tuple[PageServer, PortalJob, Listed]
    ) -> None:
        _, job, yarn = running
        for container in ("c2", "../c1", "container_1_0001_01_000001"):
            with pytest.raises(LogProblem, match="is no container of the task worker:0"):
                job.log("worker:0", "stdout", container, 0, 100)
        with pytest.raises(LogProblem, match="has no task 'ps:7'"):
            job.log("ps:7", "stdout", "", 0, 100)
        assert yarn.read == []

    def test_no_address_of_a_history_reaches_the_reader(
        self, running: Tuple[PageServer, PortalJob, Listed]
    ) -> None:
        page, job, yarn = running
        page.tasks = [task(container="c1", log_url="http://169.254.169.254/latest", node="n1")]
        yarn.logs["c1", "stdout"] = b"x"
        job.log("worker:0", "stdout", "", 0, 100)
        assert yarn.read == [LogRef("c1", "n1", "")]

    def test_one_that_the_viewer_may_not_see(
        self, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Opened(monkeypatch, yarn=Listed(status(view_refusal="bob may not see it: ask ann")))
        portal.folders[APP] = Folder(HISTORY)
        with pytest.raises(LogProblem, match="ask ann"):
            portal.sources.open(ROW, Viewer("bob")).log("worker:0", "stdout", "", 0, 100)

    def test_a_scheduler_that_fails_is_the_reason(
        self, running: Tuple[PageServer, PortalJob, Listed]
    ) -> None:
        _, job, yarn = running

        def fail(*_: object) -> bytes:
            raise SchedulerError("the node n1 does not answer")

        yarn.read_log = fail  # type: ignore[method-assign,assignment]
        with pytest.raises(LogProblem, match="the node n1 does not answer"):
            job.log("worker:0", "stdout", "", 0, 100)

    def test_of_a_job_that_is_forgotten_what_its_owner_has_left(
        self, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Kept(LogReader):
            def read_log(self, *_: object) -> bytes:  # type: ignore[override]
                return b"aggregated"

            def log_size(self, *_: object) -> int:
                return 10

        yarn = Listed()
        yarn.forgotten = Kept()
        Opened(monkeypatch, yarn=yarn)
        portal.folders[APP] = Folder(HISTORY)
        job = portal.sources.open(ROW._replace(state="FAILED"), ANN)
        assert job.log("worker:0", "stdout", "", 0, 100).data == b"aggregated"

    def test_streams(self, running: Tuple[PageServer, PortalJob, Listed]) -> None:
        page, job, yarn = running
        runs = [{"session": 0, "container": "c0"}, {"session": 1, "container": "c1"}]
        page.tasks = [task(container="c1", runs=runs)]
        yarn.logs["c1", "stdout"] = yarn.logs["c1", "executor.log"] = b"x"
        assert job.streams("worker:0") == (
            ("c1", "executor.log"),
            ("c1", "stdout"),
            ("c0", "stdout"),
            ("c0", "stderr"),
        )

    def test_the_masters(self, running: Tuple[PageServer, PortalJob, Listed]) -> None:
        _, job, yarn = running
        yarn.logs["", "master-1.stderr"] = b"trouble"
        assert job.streams("am") == (("", "master-1.stderr"),)
        assert job.log("am", "master-1.stderr", "", 0, 100).data == b"trouble"

    def test_without_schedulers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        portal = Portal()
        portal.folders[APP] = Folder(HISTORY)
        with pytest.raises(LogProblem, match="its owner, ann, reads them by: tony logs"):
            portal.sources.open(ROW, ANN).log("worker:0", "stdout", "", 0, 100)
        portal.close()

    def test_where_each_session_begins_in_a_log(self, portal: Portal) -> None:
        """Sessions of the embedded scheduler share a container, and so a log."""
        runs = [
            {"session": 0, "container": "c1", "offsets": {"stdout": 0, "stderr": 0}},
            {"session": 1, "container": "c1", "offsets": {"stdout": 40, "stderr": 9}},
            {"session": 2, "container": "c1", "offsets": {}},
        ]
        found = task(container="c1", session=2, runs=runs)
        portal.folders[APP] = Folder(HISTORY._replace(tasks=(found,)))
        job = portal.sources.open(ROW._replace(state="FAILED"), ANN)
        assert job.sessions("worker:0", "stdout", "c1") == {0: 0, 1: 40}
        assert job.sessions("worker:0", "stderr", "") == {0: 0, 1: 9}
        assert job.sessions("worker:0", "other.log", "c1") == {}, "not known"
        assert job.sessions("am", "stderr", "") == {}

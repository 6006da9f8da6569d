"""One view from every source; the scheduler's report overrides the others."""

from __future__ import annotations

from tests.client.scripted import APP, status, task
from tony_core.client.merge import (
    end_tasks,
    from_page,
    from_status,
    lasting_links,
    under_status,
    with_containers,
    with_end,
)
from tony_core.history.reader import JobHistory
from tony_core.schedulers.port import AppState, LogRef
from tony_core.view import read_task


def test_the_schedulers_end_wins() -> None:
    page = {"app_id": APP, "state": "RUNNING", "name": "mnist", "progress": 0.5, "waiting": "x"}
    died = status(state=AppState.FAILED, diagnostics="the master died", finished=1010.0)
    view = from_page(page, [], died)
    assert (view.state, view.diagnostics, view.waiting) == (AppState.FAILED, "the master died", "")
    assert view.finished == 1010.0
    assert view.duration_s(9999.0) == 10.0


def test_a_job_has_taken_as_long_as_its_tasks_whatever_the_clock_shows() -> None:
    ran = {**task(), "started": 1020.0, "duration_s": 50.0}
    view = from_page({"app_id": APP, "state": "RUNNING"}, [ran], status(submitted=1000.0))
    assert view.duration_s(2000.0) == 1000.0
    assert view.duration_s(500.0) == 70.0  # it was set back
    assert from_page({"app_id": APP}, [], status(submitted=1000.0)).duration_s(500.0) == 0.0


def test_a_page_that_shows_an_end_before_the_scheduler() -> None:
    view = from_page({"app_id": APP, "state": "SUCCEEDED"}, [], status())
    assert view.state is AppState.SUCCEEDED
    assert view.progress == 1.0


def test_only_the_scheduler_knows_it() -> None:
    view = from_status(status(tracking_url="http://rm/proxy"))
    assert view.links == {"page": "http://rm/proxy"}
    assert view.source == "scheduler"


def test_links_to_the_page_are_as_they_are_reached_from_here() -> None:
    links = {
        "page": "http://node7:4711/",
        "tensorboard": "http://node7:4711/tensorboard/",
        "portal": "http://portal/jobs/1",
    }
    view = from_page({"links": links}, [], status(page_url="http://rm/proxy/application_1_0001/"))
    assert view.links == {
        "page": "http://rm/proxy/application_1_0001/",
        "tensorboard": "http://rm/proxy/application_1_0001/tensorboard/",
        "portal": "http://portal/jobs/1",
    }
    assert from_page({"links": links}, []).links == links


def test_the_scheduler_knows_best_when_it_was_submitted() -> None:
    assert from_page({"submitted": 2000.0}, [], status(submitted=1000.0)).submitted == 1000.0
    assert from_page({"submitted": 2000.0}, [], status(submitted=0.0)).submitted == 2000.0


def test_a_later_end_is_put_over_a_view() -> None:
    view = from_page({"app_id": APP, "state": "RUNNING"}, [task()], status())
    assert under_status(view, status()) is view
    assert under_status(view, status(state=AppState.KILLED)).state is AppState.KILLED


def test_what_is_missing_or_odd_has_its_default() -> None:
    odd = read_task({"task": "ps:3", "exit_code": None, "runs": "?", "usage": {"x": "y", "z": 1}})
    assert (odd.role, odd.index, odd.runs, odd.usage) == ("ps", 3, (), {"z": 1})
    assert from_page({"state": "NEW-STATE", "root_cause": None}, [{}]).state is AppState.RUNNING


def test_every_container_of_a_task_in_order_and_once() -> None:
    runs = [
        {"session": 0, "container": "c1", "node": "a"},
        {"session": 1, "container": "c1"},
        {"session": 2, "container": "c2"},
    ]
    view = read_task(task(session=3, container="c3", runs=runs))
    assert [ref.container_id for ref in view.log_refs()] == ["c1", "c2", "c3"]
    assert view.sessions_in("c1") == (0, 1)
    assert view.sessions_in("c3") == (3,)


def test_nothing_goes_on_in_a_job_that_died() -> None:
    page = {"app_id": APP, "state": "RUNNING"}
    runs = [{"session": 0, "container": "c1", "state": "running"}]
    open_ones = [
        task("w:0", state="running", container="c1", runs=runs),
        task("w:1", state="ready"),
    ]
    done = [task("w:2", state="succeeded"), task("w:3", state="pending")]
    died = end_tasks(from_page(page, [*open_ones, *done], status(state=AppState.FAILED)))
    assert [one.state for one in died.tasks] == ["lost", "lost", "succeeded", "pending"]
    assert died.tasks[0].runs[0].state == "lost"
    killed = end_tasks(from_page(page, open_ones, status(state=AppState.KILLED)))
    assert [one.state for one in killed.tasks] == ["killed", "killed"]
    done_well = end_tasks(from_page(page, [*open_ones, *done], status(state=AppState.SUCCEEDED)))
    assert [one.state for one in done_well.tasks] == ["ended", "ended", "succeeded", "pending"]
    assert done_well.counts == {"ended": 2, "succeeded": 1, "pending": 1}
    alive = from_page(page, open_ones, status())
    assert end_tasks(alive) is alive


def test_containers_that_only_the_scheduler_knows_of() -> None:
    runs = [{"session": 0, "container": "c1"}]
    view = from_page({"app_id": APP}, [task("w:0", container="c1", runs=runs), task("w:1")])
    found = with_containers(
        view,
        [
            ("w:0", LogRef("c1")),
            ("w:0", LogRef("c2")),
            ("w:1", LogRef("c3", "n")),
            ("x:0", LogRef("c4")),
        ],
    )
    assert {one.task: [ref.container_id for ref in one.log_refs()] for one in found.tasks} == {
        "w:0": ["c1", "c2"],
        "w:1": ["c3"],
        "x:0": ["c4"],
    }
    assert (found.tasks[1].container, found.tasks[1].node) == ("c3", "n")


def test_what_a_master_served_goes_with_it() -> None:
    page = "http://127.0.0.1:4711/"
    links = {"page": page, "portal": "http://127.0.0.1:80/jobs/1", "mlflow": "http://127.0.0.1:1/"}
    beside = {**links, "tensorboard": "http://127.0.0.1:4712/"}
    below = {**links, "tensorboard": f"{page}tensorboard/"}
    lasts = {name: url for name, url in links.items() if name != "page"}
    assert lasting_links(beside) == lasting_links(below) == lasts
    assert lasting_links({"page": page, "tensorboard": "http://tb.example/"}) == {
        "tensorboard": "http://tb.example/"
    }
    assert lasting_links({"page": page, "tensorboard": "http://["}) == {"tensorboard": "http://["}


def test_history_may_have_got_further_than_the_page_as_it_was_last_watched() -> None:
    """A master that was killed: history is as new as its last second, a watch asks now and then."""
    died = status(state=AppState.FAILED, finished=1010.0)
    page = [
        {**task("w:0", "running"), "progress": 0.5},
        {**task("w:1", "running"), "progress": 0.5},
        {**task("w:2", "failed", session=1), "exit_code": 3},
        {**task("w:3", "running", session=1)},
    ]
    recorded = [
        {**task("w:0", "failed"), "exit_code": 7},
        {**task("w:1", "running"), "progress": 0.25},
        {**task("w:2", "launched", session=2)},
        {**task("w:3", "succeeded", session=0)},
    ]
    last = from_page({"app_id": APP, "state": "RUNNING"}, page)
    ended = with_end(JobHistory(APP, {"state": "RUNNING"}, tuple(recorded)), died, last)
    first, second, third, fourth = ended.tasks
    assert (first["state"], first["exit_code"]) == ("failed", 7)
    assert (second["state"], second["progress"]) == ("lost", 0.5)
    assert (third["state"], third["session"]) == ("lost", 2)
    assert (fourth["state"], fourth["session"]) == ("lost", 1)

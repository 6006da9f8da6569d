"""What a task says of its job."""

from __future__ import annotations

from typing import Any, List, Tuple

import pytest

from tony_core.client.workflow.report import MANY, Reporter
from tony_core.client.workflow.results import (
    count_sessions,
    failed_task,
    failure_text,
    result_of,
    summary_line,
)
from tony_core.schedulers.port import AppState
from tony_core.view import PAGE, JobView, TaskView

WHERE = "http://node/log"


def task(name: str = "worker:0", state: str = "running", **job_view: Any) -> TaskView:
    role, _, index = name.partition(":")
    job_view = {"node": "n1", "session": 0, "log_url": WHERE, **job_view}
    return TaskView(name, role=role, index=int(index), state=state, **job_view)


def view(*tasks: TaskView, state: AppState = AppState.RUNNING, **job_view: Any) -> JobView:
    return JobView("app_1", state, PAGE, tasks=tasks, **{"session": 0, **job_view})


@pytest.fixture
def log() -> Tuple[Reporter, List[str], List[str]]:
    written: List[str] = []
    warned: List[str] = []
    return Reporter(written.append, warned.append), written, warned


Reported = Tuple[Reporter, List[str], List[str]]


class TestLines:
    def test_each_change_once_and_the_log_when_it_is_new(self, log: Reported) -> None:
        reporter, written, warned = log
        for state in ("pending", "launched", "running", "running", "succeeded"):
            reporter.view(view(task(state=state)))
        assert written == [
            f"worker:0 launched on n1, log {WHERE}",
            "worker:0 running on n1",
            "worker:0 succeeded on n1",
        ]
        assert warned == []

    def test_the_end_comes_last(self, log: Reported) -> None:
        reporter, written, warned = log
        reporter.event({"kind": "ending", "text": "SUCCEEDED: all tracked tasks have ended"})
        reporter.event({"kind": "note", "text": "worker:1: bye"})
        reporter.tasks([task(state="succeeded")])
        reporter.event({"kind": "job-ended", "text": "the job has ended", "weight": "warning"})
        assert written == ["worker:1: bye", f"worker:0 succeeded on n1, log {WHERE}"]
        reporter.end()
        reporter.end()
        assert written[2:] == ["SUCCEEDED: all tracked tasks have ended"]
        assert warned == ["the job has ended"]

    def test_a_failure_is_reported_whole(self, log: Reported) -> None:
        reporter, _, warned = log
        reporter.tasks([task(state="running")])
        reporter.tasks([task(state="failed", exit_code=137, cause="memory")])
        assert warned == [f"worker:0 failed on n1 with exit code 137 (memory), log {WHERE}"]

    def test_many_that_change_alike_are_one_line(self, log: Reported) -> None:
        reporter, written, warned = log
        reporter.tasks([task(f"worker:{n}") for n in range(1000)])
        assert written == ["1000 tasks of worker: running"]
        reporter.tasks([task(f"worker:{n}", "lost") for n in range(1000)])
        assert len(warned) == 9 and warned[-1] == "and 992 more tasks of worker: lost"

    def test_a_restart_and_what_it_waits_for(self, log: Reported) -> None:
        reporter, written, _ = log
        reporter.view(view(waiting="2 containers"))
        reporter.view(view(waiting="2 containers"))
        reporter.view(view(session=1))
        reporter.view(view(session=1))
        assert written == ["waiting: 2 containers", "session 1: the job's tasks start again"]

    def test_progress_by_tens_with_what_the_chief_reports(self, log: Reported) -> None:
        reporter, written, _ = log
        for progress in (0.0, 0.05, 0.1, 0.12, 0.35, 0.3):
            reporter.view(view(task(state="pending", reported={"loss": 0.5}), progress=progress))
        assert written == ["progress 10 %: loss=0.5", "progress 30 %: loss=0.5"]

    def test_links_as_they_come(self, log: Reported) -> None:
        reporter, written, _ = log
        reporter.links({"page": "http://a/", "tensorboard": ""})
        reporter.links({"page": "http://a/", "tensorboard": "http://u:geheim@b/"})
        assert written == ["page: http://a/", "tensorboard: http://********@b/"]

    def test_the_story_without_what_tasks_tell_themselves(self, log: Reported) -> None:
        reporter, written, warned = log
        reporter.event({"kind": "session-started", "text": "session 0 begins", "session": 0})
        reporter.event({"kind": "task-state", "text": "worker:0 running"})
        reporter.event({"kind": "root-cause", "text": "it broke", "weight": "error"})
        reporter.event({"kind": "odd"})
        assert (written, warned) == (["session 0 begins"], ["it broke"])

    def test_why_tasks_failed_which_later_lines_refer_to(self, log: Reported) -> None:
        reporter, written, warned = log
        for number in range(20):
            text = f"worker:{number} failed on n: not found: /no/such/python"
            reporter.event({"kind": "task-state", "text": text, "weight": "warning"})
        assert len(warned) == MANY and "/no/such/python" in warned[0] and not written
        reporter.view(view(session=1))
        reporter.event({"kind": "task-state", "text": "worker:0 failed", "weight": "warning"})
        assert warned[-1] == "worker:0 failed"


class TestTheEnd:
    def test_the_cause_with_its_tail_once(self) -> None:
        job_view = view(
            task(state="failed", stderr_tail=("ValueError: no",), ended=1.0),
            state=AppState.FAILED,
            diagnostics="worker:0 failed\nlast lines of its stderr:\n  ValueError: no",
            root_cause={"task": "worker:0", "stderr_tail": ["ValueError: no"]},
        )
        assert failure_text(job_view).count("ValueError: no") == 1

    def test_a_tail_that_the_master_did_not_report(self) -> None:
        job_view = view(
            task("worker:1", "failed", ended=2.0),
            task("worker:0", "lost", ended=1.0),
            state=AppState.FAILED,
            diagnostics="AM died",
        )
        assert failed_task(job_view) == "worker:0"
        text = failure_text(job_view, ["one", "token=geheim"])
        assert text.endswith("of the stderr of worker:0:\n  one\n  token=********")

    @pytest.mark.parametrize(
        ("state", "written"),
        [
            (AppState.KILLED, "was killed: by me"),
            (AppState.TIMED_OUT, "ran longer than it may: by me"),
            (AppState.FAILED, "failed: by me"),
        ],
    )
    def test_how_it_ended(self, state: AppState, written: str) -> None:
        assert failure_text(view(state=state, diagnostics="by me")) == f"the job app_1 {written}"

    def test_one_of_which_nothing_is_known(self) -> None:
        bare = JobView("app_1", AppState.FAILED, "scheduler")
        assert "no reason given" in failure_text(bare)
        assert count_sessions(bare) == 0 and failed_task(bare) == ""

    def test_what_is_returned_is_plain_and_whole(self) -> None:
        job_view = view(
            task(state="succeeded", session=2, reported={"loss": 0.5, "odd": float("nan")}),
            state=AppState.SUCCEEDED,
            session=2,
            submitted=10.0,
            finished=13.5,
            links={"portal": "http://p/"},
        )
        assert result_of(job_view, {"page": "http://p/"}) == {
            "application_id": "app_1",
            "outcome": "SUCCEEDED",
            "attempts": 3,
            "duration_s": 3.5,
            "metrics": {"loss": 0.5},
            "links": {"page": "http://p/"},
        }
        assert summary_line(job_view) == "app_1 SUCCEEDED after 3.5 s and 3 sessions"

    def test_the_chiefs_own_result_is_in_it(self) -> None:
        assert result_of(view(state=AppState.SUCCEEDED, result={"auc": 1}), {})["result"] == {
            "auc": 1
        }

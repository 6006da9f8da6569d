"""Each verb by the real command line, over a scripted scheduler and a real page."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest

from tests.bundle.fakecluster import ROOT as STAGED
from tests.bundle.fakecluster import fresh
from tests.cli.conftest import Tony, lines
from tests.cli.schema import documented, wrong_with
from tests.client.scripted import APP, PageServer, Scripted, event, status, task
from tests.files.webhdfs.server import FakeHdfs, hang
from tony_core.bundle.remote.store import RemoteStore
from tony_core.cli import describe, kill, main, outcome
from tony_core.cli.describe import tasks
from tony_core.cli.list import origin_of
from tony_core.cli.status import head, show
from tony_core.client.merge import from_page, with_containers
from tony_core.files import registry
from tony_core.files.webhdfs import namenodes
from tony_core.history.store import HistoryWriter, encode
from tony_core.schedulers.port import AppState, AppStatus, LogRef
from tony_core.view import JobView

STALLED = "worker:0 has stalled: no\x1b step"
ROOT = {
    "task": "worker:1",
    "role": "worker",
    "node": "node7",
    "exit_code": 3,
    "signal": 0,
    "cause": "exited",
    "fault": "user",
    "message": "",
    "stderr_tail": ["Traceback", "ValueError: no such data set"],
    "ran_s": 4.25,
}


@pytest.fixture
def running(scripted: Scripted, page: PageServer) -> Scripted:
    """One job that runs."""
    scripted.apps[APP] = status(page_url=page.url)
    runs = [{"session": 0, "container": "c1", "node": "n", "log_url": "/l/c1", "exit_code": 1}]
    page.tasks = [
        task(container="c1", node="node7", log_url="/logs/c1", reported={"loss": 0.25}),
        task("worker:1", "running", container="c2", session=1, runs=runs, progress=0.5),
    ]
    page.job.update(progress=0.5, links={"tensorboard": "http://tb/"}, session=1, waiting="gpus")
    page.tell("session 0 begins", "worker:0 running on node7")
    for container in ("c1", "c2"):
        scripted.logs[container, "stdout"] = f"hello from {container}\n".encode()
    return scripted


@pytest.fixture
def failed(scripted: Scripted) -> Scripted:
    """One job that failed, with its history."""
    folder = f"{scripted.root}/history/{APP}"
    writer = HistoryWriter(folder)
    writer.begin([])
    for n, text in enumerate(("session 0 begins", "worker:1 failed"), 1):
        writer.add(encode(event(n, text)))
    job = {
        "app_id": APP,
        "name": "mnist",
        "user": "ann",
        "state": "FAILED",
        "submitted": 1000.0,
        "finished": 1010.0,
        "root_cause": ROOT,
        "diagnostics": "worker:1 on node7 failed with exit code 3\nended with it: worker:0",
        "links": {"page": "http://gone/", "tensorboard": "/tb/logs"},
    }
    tasks = [
        task("worker:0", "killed", container="c1", log_url="/logs/c1"),
        task("worker:1", "failed", container="c2", log_url="/logs/c2", exit_code=3),
    ]
    metrics = {"task": {}, "latest": {"worker:0": {"loss": 0.5}}}
    writer.summary({"job": job, "tasks": tasks, "metrics": metrics})
    writer.config(b"<configuration/>")
    assert writer.close() == []
    scripted.apps[APP] = status(state=AppState.FAILED, finished=1010.0)
    return scripted


def data(done: Any, name: str) -> Any:
    """The one JSON document on standard output, as documented."""
    found = json.loads(done.out)
    assert wrong_with(found, name) == []
    return found


class TestList:
    def test_plain(self, tony: Tony, running: Scripted) -> None:
        head, row = lines(tony("list").out)
        assert head.split()[:3] == ["ID", "NAME", "STATE"]
        assert row.split()[:3] == [APP, "mnist", "RUNNING"]

    def test_which_workflow_it_is_of(self, tony: Tony, running: Scripted) -> None:
        tags = ("airflow_1f", "tony", "airflow.run:r__2026-01-01t00:00", "airflow.dag:d")
        running.apps["old"] = status("old", AppState.FAILED, submitted=1.0)._replace(tags=tags)
        head, row, old = lines(tony("list").out)
        assert head.split()[-1] == "FROM" and row.split()[-1] != "FROM"
        assert old.endswith("  run=r__2026-01-01t00:00 dag=d")
        assert origin_of(["azkaban.flow.execid:12", "nightly", "a.b:c"]) == "execid=12"

    def test_a_job_in_trouble(self, tony: Tony, running: Scripted) -> None:
        running.apps["old"] = status("old", AppState.RUNNING, submitted=1.0)
        running.set(trouble=STALLED)
        head, row, old = lines(tony("list").out)
        assert head.split()[-1] == "TROUBLE" and row.endswith(
            "  worker:0 has stalled: no\\x1b step"
        )
        assert "stalled" not in old
        found = data(tony("list", "--json"), "list")["applications"]
        assert [app["trouble"] for app in found] == [STALLED, ""]

    def test_choosing(self, tony: Tony, running: Scripted) -> None:
        running.apps["old"] = status("old", AppState.FAILED, submitted=1.0)
        assert lines(tony("list", "-q").out) == [APP, "old"]
        assert lines(tony("list", "-q", "--running").out) == [APP]
        assert lines(tony("list", "-q", "--state", "failed").out) == ["old"]
        limited = tony("list", "-q", "--limit", "1")
        assert lines(limited.out) == [APP]

    def test_json(self, tony: Tony, running: Scripted) -> None:
        found = data(tony("list", "--json"), "list")
        assert [app["app_id"] for app in found["applications"]] == [APP]

    @pytest.mark.parametrize("verb", [("list",), ("history", "list")])
    @pytest.mark.parametrize("limit", ["-1", "all"])
    def test_a_limit_that_is_none(
        self, tony: Tony, running: Scripted, verb: Tuple[str, ...], limit: str
    ) -> None:
        done = tony(*verb, f"--limit={limit}")
        assert (done.code, done.out) == (2, "")
        assert "--limit" in done.err
        assert limit in done.err

    def test_none(self, tony: Tony, scripted: Scripted) -> None:
        done = tony("list")
        assert (done.code, done.out) == (0, "")
        assert data(tony("list", "--json"), "list") == {"applications": []}


@pytest.mark.parametrize("text", ["", " "])
@pytest.mark.parametrize(
    "verb",
    [
        *("status", "describe", "logs", "kill", "attach", "shell", "advise"),
        *("history show", "history export"),
    ],
)
def test_an_empty_id_is_never_the_newest(
    tony: Tony, failed: Scripted, verb: str, text: str
) -> None:
    done = tony(*verb.split(), text)
    assert (done.code, done.out) == (2, "")
    assert "the application's id is empty" in done.err


class TestTheClusterThatIsConfigured:
    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (("list",), 0),
            (("status",), 2),
            (("status", "local_1"), 2),
            (("logs",), 2),
            (("kill",), 2),
            (("kill", "local_1"), 2),
            (("kill", "--all"), 0),
        ],
    )
    def test_is_named_where_nothing_was_found_here(
        self,
        tony: Tony,
        scripted: Scripted,
        monkeypatch: pytest.MonkeyPatch,
        words: Tuple[str, ...],
        code: int,
    ) -> None:
        monkeypatch.setattr(Scripted, "name", "local")
        assert "scheduler yarn" not in tony(*words).err
        monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop/conf")
        done = tony(*words)
        assert done.code == code
        assert "HADOOP_CONF_DIR is set" in done.err
        assert "--scheduler yarn" in done.err
        assert "scheduler yarn" not in tony(*words, "--scheduler", "local").err


class TestStatus:
    def test_running(self, tony: Tony, running: Scripted) -> None:
        out = tony("status", APP).out
        for text in (f"{APP} mnist: RUNNING, 50 %", "2 running", "http://tb/", "waiting: gpus"):
            assert text in out

    @pytest.mark.parametrize(
        ("session", "words"), [(1, "once"), (2, "twice"), (3, "3 times"), (11, "11 times")]
    )
    def test_how_often_it_was_started_again(
        self, capsys: pytest.CaptureFixture[str], session: int, words: str
    ) -> None:
        head(JobView(APP, AppState.RUNNING, "page", session=session))
        assert f"session {session} (restarted {words})" in capsys.readouterr().out

    def test_which_tasks_were_restarted(self, capsys: pytest.CaptureFixture[str]) -> None:
        tasks = [task("ps:0", restarts=1), task("worker:0"), task("worker:1", restarts=3)]
        view = from_page({"state": "RUNNING"}, tasks, app_id=APP)
        head(view)
        out = capsys.readouterr().out
        assert "tasks restarted: ps:0 once, worker:1 3 times\n" in out
        assert view.to_json()["tasks"][2]["restarts"] == 3

    def test_trouble(self, tony: Tony, running: Scripted, page: PageServer) -> None:
        page.job.update(trouble=STALLED, stalled=1)
        for verb in ("status", "describe"):
            assert "\n  trouble: worker:0 has stalled: no\\x1b step\n" in tony(verb, APP).out
        found = data(tony("status", APP, "--json"), "status")
        assert (found["trouble"], found["stalled"]) == (STALLED, 1)
        found = data(tony("describe", APP, "--json"), "describe")["job"]
        assert (found["trouble"], found["stalled"]) == (STALLED, 1)
        running.set(state=AppState.FAILED)
        found = data(tony("status", APP, "--json"), "status")
        assert (found["trouble"], found["stalled"]) == ("", 0)

    def test_trouble_without_a_page(self, tony: Tony, running: Scripted) -> None:
        running.set(page_url=None, trouble="worker:0 has stalled")
        assert "\n  trouble: worker:0 has stalled\n" in tony("status", APP).out

    def test_how_many_of_an_elastic_role_are_there(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        served = {"state": "RUNNING", "elastic": {"worker": {"there": 3, "least": 2, "most": 4}}}
        show(from_page(served, [], app_id=APP))
        assert "\n  elastic: worker 3 of 2..4\n" in capsys.readouterr().out
        show(from_page({**served, "state": "FAILED"}, [], app_id=APP))
        assert "elastic" not in capsys.readouterr().out

    def test_which_gpus_a_task_has(self, capsys: pytest.CaptureFixture[str]) -> None:
        names = ["0", "GPU-8f2d6a1c-93b0-4d6e"]
        view = from_page({"state": "RUNNING"}, [task("worker:0", gpus=names)], app_id=APP)
        describe.tasks(view)
        assert "(GPU 0, GPU-8f2d6a1c)" in capsys.readouterr().out
        assert view.to_json()["tasks"][0]["gpus"] == tuple(names)

    def test_what_was_overcome_is_no_cause(self, tony: Tony, failed: Scripted) -> None:
        failed.set(state=AppState.SUCCEEDED)
        out = tony("status", APP).out
        assert "SUCCEEDED" in out
        assert "cause" not in out
        assert "worker:1 on node7: exit code" not in out

    def test_failed(self, tony: Tony, failed: Scripted) -> None:
        out = tony("status", "0001").out
        assert "root cause: worker:1 on node7: exit code 3 after 4.2 s" in out

    def test_a_root_cause_of_several_lines(self, capsys: pytest.CaptureFixture[str]) -> None:
        root = {**ROOT, "message": "its last output:\nfirst\n\x1b[2Jsecond"}
        view = JobView(APP, AppState.FAILED, "history", root_cause=root)
        show(view)
        expected = "after 4.2 s: its last output:\n    first\n    \\x1b[2Jsecond\n"
        assert expected in capsys.readouterr().out
        assert expected in "\n".join(outcome.lines(view, 1))

    @pytest.mark.parametrize(
        ("fields", "how"),
        [
            ({"exit_code": 143, "signal": 15, "cause": "stalled"}, "stalled after"),
            ({"exit_code": 137, "signal": 9, "cause": "memory"}, "memory after"),
            ({"exit_code": 139, "signal": 11}, "ended by signal 11 (exit code 139) after"),
            ({"exit_code": 127, "cause": "not-found"}, "not-found, exit code 127 after"),
        ],
    )
    def test_a_root_cause_comes_before_the_signal_that_followed(
        self, fields: Dict[str, Any], how: str
    ) -> None:
        assert outcome.root_lines({**ROOT, **fields})[0].startswith(f"worker:1 on node7: {how} 4.2")

    @pytest.mark.parametrize("fixture", ["running", "failed"])
    def test_json(self, tony: Tony, fixture: str, request: pytest.FixtureRequest) -> None:
        request.getfixturevalue(fixture)
        found = data(tony("status", "--json"), "status")
        assert found["app_id"] == APP
        assert len(found["tasks"]) == 2

    def test_of_a_job_that_only_history_knows(self, tony: Tony, failed: Scripted) -> None:
        failed.apps.clear()
        assert data(tony("status", APP, "--json"), "status")["state"] == "FAILED"
        assert "worker:1 failed" in tony("describe", APP).out


class TestDescribe:
    def test_running(self, tony: Tony, running: Scripted) -> None:
        out = tony("describe").out
        for text in ("worker:0", "node7", "loss 0.25", "/l/c1", "session 0 begins"):
            assert text in out

    def test_what_an_ended_task_reported_comes_first(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        usage = {"peak_rss_mb": 13.3, "cpu_s": 0.1, "wall_s": 1.9, "peak_threads": 1.0}
        ended = task(state="succeeded", usage=usage, reported={"loss": 0.25, "acc": 0.5})
        tasks(from_page({"app_id": APP, "state": "SUCCEEDED"}, [ended]))
        assert "loss 0.25, acc 0.5, peak_rss_mb 13.3" in capsys.readouterr().out

    def test_masters_have_names_and_no_session(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Of a job of which only the scheduler knows anything."""
        masters = [("am", LogRef("c01", "n1")), ("am", LogRef("c02", "n2"))]
        tasks(with_containers(from_page({"app_id": APP, "state": "FAILED"}, []), masters))
        _, first, second = capsys.readouterr().out.splitlines()
        assert first.split()[:1] == ["am"]
        assert second.split()[:5] == ["am", "(2)", "-", "-", "n2"]
        assert "-1" not in first + second

    def test_a_nodes_page_that_ends_with_the_job_is_no_place_of_logs(
        self,
        tony: Tony,
        running: Scripted,
        page: PageServer,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(Scripted, "urls_outlive_job", False)
        url = "http://node7:8042/node/containerlogs/c1/ada"
        run = {"session": 0, "container": "c0", "log_url": url}
        page.tasks = [task(container="c1", log_url=url, session=1, runs=[run])]
        assert tony("describe").out.count(url) == 2  # while it runs

        ended = from_page({"app_id": APP, "state": "SUCCEEDED"}, page.tasks)
        tasks(ended, pages_last=False)
        shown = capsys.readouterr().out
        assert "http" not in shown
        assert "c0" in shown
        printed = "\n".join(outcome.lines(ended, 0, pages_last=False))
        assert "http" not in printed
        assert f"tony logs {APP} -t worker:0" in printed
        assert printed.endswith(f"  all logs: tony logs {APP}")
        assert ended.to_json()["tasks"][0]["log_url"] == url
        assert url in "\n".join(outcome.lines(ended, 0))  # a site with a log server

    @pytest.mark.parametrize("fixture", ["running", "failed"])
    def test_json(self, tony: Tony, fixture: str, request: pytest.FixtureRequest) -> None:
        request.getfixturevalue(fixture)
        found = data(tony("describe", "--json"), "describe")
        assert [item["n"] for item in found["events"]] == [1, 2]


class TestLogs:
    def test_every_line_with_its_task(self, tony: Tony, running: Scripted) -> None:
        # worker:1 worked in c1 before; each line comes once.
        found = sorted(lines(tony("logs", APP).out))
        assert [line.partition(" | ")[2] for line in found] == ["hello from c1", "hello from c2"]

    def test_of_one_task_without_its_name(self, tony: Tony, running: Scripted) -> None:
        running.logs["c1", "stdout"] = b"a\nb\nc\n"
        done = tony("logs", APP, "--task", "worker:0", "--tail", "2")
        assert done.out == "b\nc\n"

    def test_json(self, tony: Tony, running: Scripted) -> None:
        for text in lines(tony("logs", "--json").out):
            assert wrong_with(json.loads(text), "logs") == []

    @pytest.mark.parametrize(
        ("words", "why"),
        [
            (
                ("--stream", "foo"),
                "no stream or file 'foo'; expected stdout, stderr, both, exec",
            ),
            (("--stream", "foo"), "one of these files: stdout"),
            (("--session", "7"), "no session 7: the job has had sessions 0 to 1 so far"),
            (("--session=-1",), "-1 is negative; expected 0 or more"),
            (("-n", "-5"), "--tail"),
            (("-n", "x"), "'x' is not a whole number"),
        ],
    )
    def test_what_there_is_not(
        self, tony: Tony, running: Scripted, words: Tuple[str, ...], why: str
    ) -> None:
        done = tony("logs", APP, *words)
        assert (done.code, done.out) == (2, "")
        assert why in done.err

    def test_a_followed_session_may_come_still(self, tony: Tony, running: Scripted) -> None:
        def ends(asked: int) -> None:
            if asked == 8:
                running.set(state=AppState.SUCCEEDED, page_url=None)

        running.on_status = ends
        done = tony("logs", APP, "-f", "--session", "2")
        assert running.asked >= 8  # it was waited for
        assert (done.code, done.out) == (0, "")

    def test_a_file_that_is_empty_is_there(self, tony: Tony, running: Scripted) -> None:
        running.logs["c1", "extra.txt"] = b""
        done = tony("logs", APP, "--stream", "extra.txt")
        assert (done.code, done.out) == (0, "")

    def test_no_such_task(self, tony: Tony, running: Scripted) -> None:
        done = tony("logs", APP, "--task", "ps:0")
        assert done.code == 2
        assert "there is no task 'ps:0'" in done.err


class TestKill:
    def test_by_id(self, tony: Tony, running: Scripted) -> None:
        done = tony("kill", "app_1", "--reason", "too slow")
        assert (done.code, done.out) == (0, f"{APP} has ended: KILLED\n")
        assert running.killed == [(APP, "too slow")]
        assert "had ended already" in tony("kill", APP).out

    def test_the_only_one_that_runs(self, tony: Tony, running: Scripted) -> None:
        running.apps["old"] = status("old", AppState.FAILED)
        assert tony("kill").code == 0
        assert [app for app, _ in running.killed] == [APP]

    def test_never_a_guess(self, tony: Tony, running: Scripted) -> None:
        running.apps["other"] = status("other")
        done = tony("kill")
        assert done.code == 2
        assert "name the one to kill" in done.err
        assert running.killed == []

    def test_by_tag_name_user_and_state(self, tony: Tony, running: Scripted) -> None:
        for wrong in (("--tag", "other"), ("--name", "x*"), ("--user", "other")):
            done = tony("kill", *wrong, "--yes")
            assert (done.code, "no such job is running" in done.err) == (0, True)
        assert running.killed == []
        assert tony("kill", "--user", "me", APP).code == 2
        assert tony("kill", "--name", "*", "--state", "RUNNING", "--yes").code == 0
        assert [app for app, _ in running.killed] == [APP]

    def test_others_jobs_are_not_meant(
        self, tony: Tony, running: Scripted, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On a cluster everybody's are listed, and the cluster may let one end them."""
        monkeypatch.setattr(Scripted, "user", "ann")
        running.apps["bobs"] = status("bobs", submitted=5000.0)._replace(user="bob")
        assert APP in tony("status").out
        done = tony("kill", "--all", "--yes")
        assert [app for app, _ in running.killed] == [APP]
        assert (done.code, "another user" in done.err) == (0, True)
        for words in ((), ("--all", "--yes"), ("--name", "*", "--yes")):
            tony("kill", *words)
        assert [app for app, _ in running.killed] == [APP]
        assert tony("kill", "--user", "b*", "--yes").code == 0
        assert [app for app, _ in running.killed] == [APP, "bobs"]
        assert lines(tony("list", "-q").out) == ["bobs", APP]

    def test_all_needs_a_yes(
        self, tony: Tony, running: Scripted, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import io

        monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))  # no terminal
        assert tony("kill", "--all").code == 2
        assert running.killed == []
        found = data(tony("kill", "--all", "--yes", "--json"), "kill")
        assert found == {"killed": [{"app_id": APP, "state": "KILLED", "was_over": False}]}
        assert tony("kill", "--all", APP).code == 2


class TestHistory:
    def test_list_and_show(self, tony: Tony, failed: Scripted) -> None:
        assert APP in tony("history", "list").out
        out = tony("history", "show", "--metrics").out
        for text in ("FAILED", "worker:1", "session 0 begins", "loss = 0.5"):
            assert text in out
        assert tony("history", "show", APP, "--config").out == "<configuration/>"

    def test_json(self, tony: Tony, failed: Scripted) -> None:
        assert data(tony("history", "list", "--json"), "history-list")["jobs"][0]["app_id"] == APP
        shown = data(tony("history", "show", "--json"), "history-show")
        assert shown["job"]["root_cause"] == ROOT

    @pytest.mark.parametrize("ours", [True, False])
    @pytest.mark.parametrize("place", [None, "elsewhere"])
    def test_of_a_master_that_died(
        self,
        tony: Tony,
        scripted: Scripted,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        place: Optional[str],
        ours: bool,
    ) -> None:
        """A reader of history alone hears the scheduler's word at once, and for good."""
        cleared: List[str] = []

        def clear(self: Scripted, status: AppStatus, job: object = None) -> bool:
            cleared.append(status.app_id)
            return ours

        monkeypatch.setattr(Scripted, "remove_leftovers", clear)
        root = tmp_path / place if place else Path(scripted.root, "history")
        where = ("--history", str(root)) if place else ()
        (root / APP).mkdir(parents=True)
        page = {"page": "http://gone/"}
        fields = {"app_id": APP, "name": "mnist", "state": "RUNNING", "submitted": 1000.0}
        tasks = [task("worker:0", "running", started=1001.0)]
        summary = {"job": {**fields, "links": page, "finished": None}, "tasks": tasks}
        (root / APP / "summary.json").write_text(json.dumps(summary))
        (root / APP / "events-0001.jsonl").write_text(json.dumps(event(1, "worker:0 runs")) + "\n")
        why = "the master died (attempt 1 of 1)"
        # It has only just ended: a later command writes that down.
        scripted.apps[APP] = status(state=AppState.FAILED, finished=time.time(), diagnostics=why)
        assert (
            data(tony("history", "list", "--json", *where), "history-list")["jobs"][0]["state"]
            == "FAILED"
        )
        assert not cleared
        scripted.set(finished=1010.0)
        if ours:  # written down by whichever is first
            assert "FAILED" in tony("history", "list", *where).out
            scripted.unreachable = "gone"
        shown = data(tony("history", "show", APP, "--json", *where), "history-show")
        job = shown["job"]
        assert (job["state"], job["finished"], job["links"]) == ("FAILED", 1010.0, {})
        assert job["diagnostics"] == why
        assert job["tasks"][0]["state"] == "lost"
        assert [one["text"] for one in shown["events"]][1:] == [
            f"the job has ended: FAILED: {why}"  # of another's job too, where it is not written
        ]
        assert "10.0 s" in tony("history", "list", *where).out
        assert "http://gone/" not in tony("history", "show", *where).out

    def test_of_a_scheduler_that_does_not_answer(self, tony: Tony, failed: Scripted) -> None:
        folder = Path(failed.root, "history", "app_2_0002")
        folder.mkdir()
        fields = {"job": {"app_id": folder.name, "state": "RUNNING", "submitted": 5.0}}
        (folder / "summary.json").write_text(json.dumps(fields))
        failed.unreachable = "no route to it"
        assert "RUNNING" in tony("history", "list").out
        assert "RUNNING" in tony("history", "show", folder.name).out

    @pytest.mark.parametrize("other", ["--json", "--metrics"])
    def test_a_configuration_is_printed_without_anything_else(
        self, tony: Tony, failed: Scripted, other: str
    ) -> None:
        done = tony("history", "show", APP, "--config", other)
        assert (done.code, done.out) == (2, "")
        assert f"cannot be used with {other}" in done.err

    def test_elsewhere(self, tony: Tony, failed: Scripted, tmp_path: Path) -> None:
        done = tony("history", "show", "x", "--history", str(tmp_path / "nowhere"))
        assert done.code == 2
        assert "no job 'x' in the history" in done.err

    def test_where_the_site_keeps_it(
        self, tony: Tony, failed: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        Path(failed.root, "history").rename(tmp_path / "elsewhere" / "history")
        assert tony("history", "show", APP).code == 2
        (tmp_path / "tony-site.xml").write_text(
            "<configuration><property><name>tony.history.location</name>"
            f"<value>{tmp_path}/elsewhere/history</value></property></configuration>"
        )
        monkeypatch.setenv("TONY_CONF_DIR", str(tmp_path))
        assert "worker:1 failed" in tony("history", "show", APP).out
        assert data(tony("status", APP, "--json"), "status")["root_cause"] == ROOT


class TestAttach:
    def test_a_job_that_has_ended(self, tony: Tony, failed: Scripted) -> None:
        done = tony("attach", APP)
        assert done.code == 1
        for text in (
            f"FAILED mnist ({APP}) after 10.0 s, exit code 1",
            "root cause: worker:1 on node7: exit code 3",
            "| ValueError: no such data set",
            "ended with it: worker:0",
            "tensorboard: /tb/logs",
            "/logs/c2",
            f"tony logs {APP} --task worker:1",
        ):
            assert text in done.out
        assert "http://gone/" not in done.out
        assert done.out.count("ValueError") == 1

    def test_json(self, tony: Tony, failed: Scripted) -> None:
        done = tony("attach", APP, "--json")
        assert done.code == 1
        found = [json.loads(text) for text in lines(done.out)]
        for item in found:
            assert wrong_with(item, "submit") == []
        assert found[0]["type"] == "application"
        assert found[-1]["exit_code"] == 1
        assert [item["text"] for item in found if item["type"] == "event"] == [
            "session 0 begins",
            "worker:1 failed",
        ]

    @pytest.mark.parametrize(
        ("state", "code"),
        [("SUCCEEDED", 0), ("FAILED", 1), ("TIMED_OUT", 4), ("KILLED", 137)],
    )
    def test_the_exit_code_is_the_jobs(
        self, tony: Tony, scripted: Scripted, state: str, code: int
    ) -> None:
        scripted.apps[APP] = status(state=AppState(state), finished=1001.0)
        assert tony("attach", APP).code == code


def test_gc(tony: Tony, scripted: Scripted) -> None:
    scripted.garbage = ["application old"]
    done = tony("gc", "--older-than", "1h", "--dry-run")
    assert done.out == "would remove application old\n"
    found = data(tony("gc", "--json"), "gc")
    assert found == {"dry_run": False, "removed": ["application old"]}


@pytest.mark.parametrize(
    ("settings", "removed"),
    [
        ({}, ["history of " + APP]),
        ({"sec": "off"}, []),  # for ever
        ({"sec": "-1"}, []),
        ({"sec": "off", "size": "1m"}, []),
        ({"sec": "off", "size": "1"}, []),
        ({"sec": "60"}, ["history of " + APP]),
    ],
)
def test_gc_removes_history_by_age_and_size(
    tony: Tony,
    failed: Scripted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Dict[str, str],
    removed: List[str],
) -> None:
    entries = "".join(
        f"<property><name>tony.history.retention-{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    (tmp_path / "tony-site.xml").write_text(f"<configuration>{entries}</configuration>")
    monkeypatch.setenv("TONY_CONF_DIR", str(tmp_path))
    assert data(tony("gc", "--json", "--dry-run"), "gc")["removed"] == removed
    assert data(tony("gc", "--json"), "gc")["removed"] == removed
    assert Path(f"{failed.root}/history/{APP}").exists() is not bool(removed)


def test_gc_of_more_than_the_site_keeps(
    tony: Tony, failed: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tony-site.xml").write_text(
        "<configuration><property><name>tony.history.retention-sec</name><value>off</value>"
        "</property><property><name>tony.history.retention-size</name><value>1m</value>"
        "</property></configuration>"
    )
    monkeypatch.setenv("TONY_CONF_DIR", str(tmp_path))
    Path(f"{failed.root}/history/{APP}/metrics.jsonl").write_text("{}" + " " * (1 << 20))
    assert data(tony("gc", "--json"), "gc")["removed"] == ["history of " + APP]


def test_gc_where_the_place_is_a_portals(
    tony: Tony, failed: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tony_core.files.local import LocalFileSystem

    def refused(self: Any, location: str) -> None:
        raise PermissionError(13, "Permission denied", location)

    monkeypatch.setattr(LocalFileSystem, "list", refused)
    done = tony("gc", "--dry-run")
    assert done.code == 0 and "its owner removes what is old there" in done.err


def test_what_is_staged_elsewhere_is_verified(
    tony: Tony, scripted: Scripted, tmp_path: Path
) -> None:
    here = tony("gc", "--verify")
    assert here.code == 2
    assert "this machine's own disk" in here.err
    cluster = fresh(tmp_path / "hdfs")
    scripted.root = STAGED
    store = RemoteStore(STAGED)
    store.prepare()
    digest = hashlib.sha256(b"whole").hexdigest()
    store.put(digest, "content", lambda stream: stream.write(b"whole"))
    assert data(tony("gc", "--verify", "--json"), "verify") == {"root": STAGED, "damaged": []}
    assert "all is whole" in tony("gc", "--verify").err
    (found,) = Path(cluster.path(STAGED)).rglob("content")
    before = found.stat()
    found.write_bytes(b"other")
    os.utime(found, ns=(before.st_mtime_ns, before.st_mtime_ns))
    done = tony("gc", "--verify")
    assert done.code == 1
    location = store.content(digest, "content")
    words = f"{location} has another checksum than when it was staged"
    assert done.out == words + "\n"
    assert "tony gc --verify --remove" in done.err
    store.take_lease(APP, [digest])
    scripted.apps[APP] = status(state=AppState.RUNNING)
    left = data(tony("gc", "--verify", "--remove", "--json"), "verify")
    assert left == {"root": STAGED, "damaged": [f"{words}; {APP} uses it"], "removed": []}
    done = tony("gc", "--verify", "--remove")
    assert (done.code, done.out) == (1, f"left {words}; {APP} uses it\n")
    scripted.apps[APP] = status(state=AppState.FAILED)
    scripted.root = "fake://cluster/user/me/elsewhere"
    done = tony("gc", "--verify", "--remove", "--staging-dir", STAGED)
    assert (done.code, done.out) == (0, f"removed {words}\n")
    assert store.names(store.objects) == []


@pytest.mark.parametrize("verb", ["status", "describe"])
def test_a_file_system_that_never_answers_is_waited_for_briefly_and_named(
    tony: Tony, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    hdfs = FakeHdfs()
    hdfs.nn[0].always = hang
    monkeypatch.setattr(main, "LOOK_S", 0.4)
    monkeypatch.setattr(namenodes, "REMEMBERED_S", 60.0)
    registry.register("hdfs", lambda: hdfs.client(patience_s=30))
    scripted.apps[APP] = status(state=AppState.FAILED, page_url=None)
    scripted.root = "hdfs://sandbox/history"
    try:
        done = tony(verb, APP)  # 60 s otherwise, which a test does not have
    finally:
        hdfs.close()
    assert done.code == 0 and "FAILED" in done.out
    assert "did not serve us for" in done.err and hdfs.nn[0].address in done.err
    assert len(hdfs.seen) == 1


def test_what_goes_with_what(
    tony: Tony, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = tony("gc", "--remove")
    assert done.code == 2 and "--verify" in done.err
    done = tony("gc", "--verify", "--remove", "--dry-run")
    assert done.code == 2 and "--dry-run" in done.err
    monkeypatch.setattr(scripted, "staging_root", lambda job: "fake://cluster/its/own")
    done = tony("gc", "--staging-dir", "fake://cluster/another")
    assert done.code == 2 and "--scheduler" in done.err


def test_our_code_is_published_for_all(
    tony: Tony, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TONY_CONF_DIR", raising=False)
    nowhere = tony("runtime", "publish")
    assert nowhere.code == 2
    assert "tony.runtime.location" in nowhere.err
    assert "must end in .tar" in tony("runtime", "publish", str(tmp_path / "runtime.zip")).err
    cluster = fresh(tmp_path / "hdfs")
    os.chmod(cluster.folder, 0o755)
    place = "fake://cluster/tony/runtime.tar"
    found = data(tony("runtime", "publish", place, "--json"), "runtime")
    assert found == {"location": place, "size": cluster.stat(place).size}
    with tarfile.open(cluster.path(place)) as packed:
        assert "tony_core/loopback.py" in [name.lstrip("./") for name in packed.getnames()]
    assert "best in the site's file" in tony("runtime", "publish", place).out


def test_version(tony: Tony) -> None:
    assert "local" in data(tony("version", "--json"), "version")["schedulers"]
    assert tony("version").out.startswith("tony ")


def test_config(tony: Tony, tmp_path: Path) -> None:
    file = tmp_path / "tony.xml"
    file.write_text("<configuration/>")
    assert data(tony("config", "check", str(file), "--json"), "config-check")["ok"]
    assert data(tony("config", "keys", "--json"), "config-keys")["keys"]
    none = tony("config", "keys", "wroker")
    assert (none.code, none.out) == (0, "")
    assert none.err == "tony: no key has 'wroker' in its name; tony config keys shows all\n"
    assert data(tony("config", "show", "--conf_file", str(file), "--json"), "config-show")


def test_text_of_others_cannot_drive_the_terminal(tony: Tony, scripted: Scripted) -> None:
    scripted.apps[APP] = status(state=AppState.FAILED, diagnostics="\x1b[2Jboo\x07")
    out = tony("status", APP).out
    assert "\x1b" not in out
    assert "\\x1b[2Jboo" in out


def test_every_schema_of_the_page_is_used_here() -> None:
    names = ("submit", "doctor", "history_files", "compare", "advise")
    others = [f"test_{name}.py" for name in names]
    text = "".join(Path(__file__).with_name(name).read_text() for name in others)
    text += Path(__file__).read_text()
    text += (Path(__file__).parents[1] / "portal" / "pages" / "test_compare.py").read_text()
    parts = {"job", "state", "root_cause", "task", "event", "compare-row", "span"}
    parts |= {"advice", "advice-change"}
    unused = [name for name in documented() if name not in parts and f'"{name}"' not in text]
    assert unused == []


def test_the_checker_finds_what_is_wrong() -> None:
    assert wrong_with({"killed": [{"app_id": 1, "state": "GONE"}], "x": 1}, "kill") == [
        "$.killed[0]: was_over is missing",
        "$.killed[0].app_id: 1 is no string",
        "$.killed[0].state: 'GONE' is none of them: [[\"$.killed[0].state: 'GONE' is not one of "
        "['SUBMITTED', 'ACCEPTED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'KILLED', 'TIMED_OUT',"
        " 'UNKNOWN']\"], "
        "[\"$.killed[0].state: 'GONE' is no null\"]]",
        "$: x is not documented",
    ]


def test_a_kill_that_takes_long_prints_why(
    tony: Tony, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.apps[APP] = status()
    assert tony("kill", APP).err == "", "an end that comes soon needs no words"
    scripted.apps[APP] = status()
    monkeypatch.setattr(kill, "NOTE_S", 0.01)
    scripted.kill_takes = threading.Event()
    letting = threading.Timer(0.5, scripted.kill_takes.set)
    letting.start()
    printed = tony("kill", APP)
    letting.join()
    assert (printed.code, printed.err.count("\n")) == (0, 1)
    assert "its programs have tony.task.kill-grace to exit" in printed.err

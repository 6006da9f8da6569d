"""``tony submit`` up to the scheduler: dry run, warnings, detaching, presenting."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from typing import List

import pytest

from tests.cli.conftest import Tony, lines
from tests.cli.schema import wrong_with
from tests.client.scripted import PageServer, Scripted, status, task
from tony_core.cli.outcome import progress_line
from tony_core.cli.presenters import QUIET_S, WAITS_S, PlainPresenter
from tony_core.client.merge import from_page, from_status
from tony_core.schedulers.port import AppState, LifetimeLimit, SchedulerError


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> List[str]:
    """A good job's."""
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "src"
    source.mkdir()
    (source / "train.py").write_text("print('hello')\n")
    conf = "tony.application.framework=standalone"
    return ["submit", "--executes", "python train.py", "--src_dir", "src", "--conf", conf]


def test_a_dry_run_prints_what_would_be_sent(
    tony: Tony, scripted: Scripted, words: List[str]
) -> None:
    done = tony(*words, "--shell_env", "PASSWORD=hunter2", "--dry-run")
    assert done.code == 0
    for text in ("scheduler: scripted", '"python3"', "tony-src", "python train.py"):
        assert text in done.out
    assert "hunter2" not in done.out + done.err
    assert "never shown" not in done.out  # a secret in the scheduler's own request
    assert scripted.submitted == []
    assert not Path(scripted.root).exists()


def test_a_dry_run_as_json(tony: Tony, scripted: Scripted, words: List[str]) -> None:
    done = tony(*words, "--container_env", "TOKEN=hunter2", "--dry-run", "--json")
    found = json.loads(done.out)
    assert wrong_with(found, "dry-run") == []
    assert "hunter2" not in done.out
    assert found["request"]["argv"] == ["python3", "master"]


def test_a_job_of_the_jvms_names_the_defaults_that_differ_once(
    tony: Tony, scripted: Scripted, words: List[str]
) -> None:
    as_there = [word.replace("--", "-") for word in words]
    done = tony(*as_there, "-dry-run")
    assert done.code == 0
    assert done.err.count("tony.am.retry-count (0 there, 2 here)") == 1
    assert "defaults that differ" not in tony(*words, "--dry-run").err


def test_detached(tony: Tony, scripted: Scripted, words: List[str]) -> None:
    done = tony(*words, "--detach")
    assert (done.code, done.out) == (0, "app_1_0001\n")
    assert "tony attach app_1_0001" in done.err
    found = json.loads(tony(*words, "--detach", "--json").out)
    assert wrong_with(found, "submit") == []
    assert found == {"type": "application", "app_id": "app_1_0002"}


def test_how_long_it_can_live(tony: Tony, scripted: Scripted, words: List[str]) -> None:
    scripted.limit = LifetimeLimit(1_800_000_000.5, "can run until Friday")
    done = tony(*words, "--detach")
    assert (done.code, done.out) == (0, "app_1_0001\n")
    assert done.err.splitlines()[0] == "tony: app_1_0001 can run until Friday"
    done = tony(*words, "--detach", "--json")
    found = json.loads(done.out)
    assert wrong_with(found, "submit") == []
    assert found["tokens_end"] == 1_800_000_000.5


def test_refused_by_the_scheduler(tony: Tony, scripted: Scripted, words: List[str]) -> None:
    scripted.refusal = SchedulerError("the queue ml is closed")
    done = tony(*words)
    assert (done.code, done.err) == (3, "tony: the queue ml is closed\n")
    assert not (Path(scripted.root) / "apps" / "app_1_0001").exists()


def test_too_large_is_a_bad_job(tony: Tony, scripted: Scripted, words: List[str]) -> None:
    scripted.problems = ["worker wants 9 GPUs, this machine has none"]
    done = tony(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err == "tony: worker wants 9 GPUs, this machine has none\n"
    assert not Path(scripted.root).exists()


def test_watched_to_its_end_in_plain_lines(
    tony: Tony, scripted: Scripted, page: PageServer, words: List[str]
) -> None:
    def run_job() -> None:
        end = time.monotonic() + 60
        while not scripted.apps and time.monotonic() < end:
            time.sleep(0.01)
        page.tasks = [task(log_url="/logs/c1", container="c1")]
        page.job["links"] = {"page": page.url}
        page.tell("session 0 begins")
        scripted.set("app_1_0001", page_url=page.url)
        time.sleep(0.4)
        page.job["progress"] = 0.55
        page.tell("worker:0 running on here")
        time.sleep(0.4)
        scripted.set("app_1_0001", state=AppState.SUCCEEDED, finished=time.time())

    thread = threading.Thread(target=run_job)
    thread.start()
    done = tony(*words)
    thread.join()
    assert done.code == 0
    texts = [line.partition(" ")[2] for line in lines(done.out)]
    assert texts[0] == "application app_1_0001"
    assert "session 0 begins" in texts
    assert f"page: {page.url}" in texts
    assert any(text.startswith("RUNNING; 55 %") for text in texts)
    assert "SUCCEEDED" in done.out
    assert "/logs/c1" in done.out
    assert "\x1b" not in done.out


def test_a_scheduler_that_has_forgotten_the_job(
    tony: Tony, scripted: Scripted, words: List[str]
) -> None:
    def forget(asked: int) -> None:
        if asked > 2:
            scripted.apps.clear()

    scripted.on_status = forget
    done = tony(*words)
    assert done.code == 1
    assert "does not know app_1_0001 any more" in done.err and "tony history show" in done.err
    assert "still running" not in done.err


def test_no_progress_is_printed_after_the_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    presenter = PlainPresenter()
    calls = presenter.callbacks()
    assert calls.on_view is not None
    assert calls.on_event is not None
    assert calls.on_tick is not None
    job = {"state": "RUNNING", "name": "mnist", "progress": 0.5, "app_id": "app_1_0001"}
    calls.on_view(from_page(job, [task()]))
    calls.on_event({"text": "SUCCEEDED: all have ended", "time": 1.0, "kind": "ending"})
    calls.on_view(from_page({**job, "progress": 1.0}, [task(state="succeeded")]))
    presenter._last -= 2 * QUIET_S
    calls.on_tick()
    calls.on_event({"text": "the job has ended", "time": 2.0, "kind": "job-ended"})
    ended = from_page({**job, "state": "SUCCEEDED", "progress": 1.0}, [task(state="succeeded")])
    calls.on_view(ended)
    presenter.finished(ended, 0)
    texts = [text.partition(" ")[2] for text in lines(capsys.readouterr().out)]
    assert texts[:4] == [
        "RUNNING; 50 %; 1 running",
        "SUCCEEDED: all have ended",
        "ending; 100 %; 1 succeeded",  # for the log's sake, a minute later
        "the job has ended",
    ]
    assert texts[4].startswith("mnist (app_1_0001)")


def test_the_older_story_comes_before_the_newest_progress(
    capsys: pytest.CaptureFixture[str],
) -> None:
    presenter = PlainPresenter()
    calls = presenter.callbacks()
    assert calls.on_view is not None
    assert calls.on_event is not None
    calls.on_view(from_status(status(progress=0.4)))
    calls.on_event({"text": "session 0 begins", "time": 1.0})
    job = {"state": "RUNNING", "name": "mnist", "progress": 0.5, "app_id": "app_1_0001"}
    calls.on_view(from_page(job, [task()]))
    texts = [text.partition(" ")[2] for text in lines(capsys.readouterr().out)]
    assert texts == ["session 0 begins", "RUNNING; 50 %; 1 running"]


def test_why_there_is_no_master_yet_is_printed_after_a_moment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    presenter = PlainPresenter()
    calls = presenter.callbacks()
    assert calls.on_view is not None and calls.on_tick is not None
    why = "waits: the masters of the queue tiny may hold 384 MB together, they hold 256 MB"
    calls.on_view(from_status(status(state=AppState.ACCEPTED, diagnostics=why)))
    calls.on_tick()
    assert capsys.readouterr().out == ""
    presenter._why_at -= WAITS_S
    for _ in range(3):
        calls.on_tick()
    presenter._last -= 2 * QUIET_S
    calls.on_tick()
    texts = [text.partition(" ")[2] for text in lines(capsys.readouterr().out)]
    assert texts == [why, f"ACCEPTED; {why}"]


def test_tensorboards_address_in_the_story_is_not_repeated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    presenter = PlainPresenter()
    calls = presenter.callbacks()
    assert calls.on_links is not None
    assert calls.on_event is not None
    page = "http://rm/proxy/app_1_0001/"
    calls.on_links({"page": page})
    calls.on_event({"text": f"TensorBoard answers at {page}tensorboard/", "kind": "serving"})
    calls.on_links({"page": page, "tensorboard": f"{page}tensorboard/"})
    calls.on_links({"page": page, "tensorboard": "http://rm:4711/"})
    calls.on_links({"page": page, "tensorboard": "http://elsewhere/", "portal": "http://p/"})
    texts = [text.partition(" ")[2] for text in lines(capsys.readouterr().out)]
    assert texts == [
        f"page: {page}",
        f"TensorBoard answers at {page}tensorboard/",
        "tensorboard: http://elsewhere/",
        "portal: http://p/",
    ]


def test_the_live_view_draws(page: PageServer) -> None:
    import io

    from rich.console import Console

    from tony_core.cli.live import LivePresenter

    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, height=14, highlight=False)
    presenter = LivePresenter(console)
    calls = presenter.callbacks()
    presenter.started("app_1_0001")
    assert calls.on_view is not None
    assert calls.on_event is not None
    tasks = [task(f"worker:{n}", "running", node="node7") for n in range(40)]
    tasks[39]["state"] = "failed"
    job = {"state": "RUNNING", "name": "mnist", "progress": 0.5, "links": {"page": "http://p/"}}
    job["elastic"] = {"worker": {"there": 40, "least": 2, "most": 50}}
    job["trouble"] = "worker:3 has stalled"
    calls.on_view(from_page(job, tasks))
    calls.on_event({"text": "[red]no markup[/red]", "time": 1.0, "kind": "note"})
    presenter.close()
    drawn = stream.getvalue()
    assert "trouble: worker:3 has stalled" in drawn
    for text in ("mnist", "50 %", "http://p/", "[red]no markup[/red]", "worker:39", "39 running"):
        assert text in drawn
    assert "worker 40 of 2..50" in drawn
    assert "worker:30" not in drawn  # the screen has no room for all


def test_the_line_of_progress_has_the_trouble() -> None:
    job = {"state": "RUNNING", "progress": 0.5, "trouble": "worker:3 has \x1b stalled"}
    text = progress_line(from_page(job, [task("worker:3", "running")]))
    assert text == "RUNNING; 50 %; 1 running; trouble: worker:3 has \\x1b stalled"


@pytest.mark.parametrize("width", [40, 100, 120])
def test_the_live_view_leaves_nothing_when_the_terminal_changes(width: int) -> None:
    import io

    from rich.console import Console

    from tony_core.cli.live import LivePresenter

    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, height=30, highlight=False)
    presenter = LivePresenter(console)
    calls = presenter.callbacks()
    presenter.started("app_1_0001")
    assert calls.on_view is not None
    assert calls.on_tick is not None
    tasks = [task(f"worker:{n}", "running", node="a-node-of-a-long-name") for n in range(3)]
    links = {"page": "http://" + "x" * 60 + "/"}
    begun = len(stream.getvalue())
    calls.on_view(from_page({"state": "RUNNING", "name": "mnist", "links": links}, tasks))
    drawn = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]|\r", "", stream.getvalue()[begun:]).split("\n")[-7:]
    assert drawn[-1].startswith("page: http://xxx")
    rows = sum(-(-max(1, len(text)) // width) for text in drawn)  # as terminals wrap them
    assert (rows > len(drawn)) == (width == 40)
    begun = len(stream.getvalue())
    console.width = width
    calls.on_tick()
    redrawn = stream.getvalue()[begun:]
    assert redrawn.count("\x1b[1A") == rows - 1
    assert redrawn.count("\x1b[2K") >= rows
    presenter.close()


@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
def test_no_colour_where_it_is_not_wanted(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tony_core.cli import output

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.paint("x", "red", Terminal()) == "\x1b[31mx\x1b[0m"  # type: ignore[arg-type]
    monkeypatch.setenv(variable, "dumb")
    assert output.paint("x", "red", Terminal()) == "x"  # type: ignore[arg-type]

"""What other users and programs write drives no terminal, whichever verb shows it."""

from __future__ import annotations

import io
import re
import sys
import unicodedata
from pathlib import Path
from typing import Any, List

import pytest
from hypothesis import strategies as st
from rich.console import Console

from tests.cli.conftest import Tony
from tests.client.scripted import APP, PageServer, Scripted, event, status, task
from tests.fuzzing import fuzz
from tony_core.cli import errors, live, output
from tony_core.client.merge import from_page
from tony_core.history.store import HistoryWriter, encode
from tony_core.schedulers.port import AppState, SchedulerError

EVIL = "ev\x1b]0;pwned\x07il\x1b[2J\x9b31m\x08\r\x7f\u202e[link=http://x]y[/link]\x1b[8m"
OURS = re.compile(r"\x1b\[[0-9;]*m")
VERBS = [
    ("list",), ("list", "-q"), ("status", APP), ("describe", APP), ("history", "list"),
    ("history", "show", APP, "--metrics"), ("kill", APP), ("status", "no" + EVIL),
    ("history", "show", "no" + EVIL), ("list", "--state", EVIL), (EVIL,), ("list", EVIL),
    ("config", "check", EVIL), ("config", "show", "--conf", f"{EVIL}={EVIL}"),
    ("submit", "--executes", EVIL, "--conf", f"tony.yarn.queue={EVIL}", "--dry-run"),
]  # fmt: skip


def assert_tame(text: str) -> None:
    """Nothing of it moves, clears or renames; colours are our own."""
    bare = OURS.sub("", text)
    odd = {mark for mark in bare if mark != "\n" and unicodedata.category(mark)[0] == "C"}
    assert not odd, f"{sorted(odd)!r} in {bare!r}"
    assert "\x1b[8m" not in text


@pytest.fixture
def evil(scripted: Scripted) -> Scripted:
    """A job each of whose texts was chosen by an attacker."""
    job = {
        "app_id": APP, "name": EVIL, "user": EVIL, "queue": EVIL, "state": "FAILED",
        "submitted": 1000.0, "finished": 1010.0, "diagnostics": f"{EVIL}\n{EVIL}",
        "tags": [EVIL], "description": EVIL, "framework": EVIL, "waiting": EVIL, "sizes": EVIL,
        "links": {EVIL: f"http://{EVIL}/"}, "budgets": {EVIL: 1}, "counts": {EVIL: 1},
        "root_cause": {"task": EVIL, "node": EVIL, "message": EVIL, "stderr_tail": [EVIL]},
    }  # fmt: skip
    runs = [{"session": 0, "container": EVIL, "node": EVIL, "log_url": EVIL, "exit_code": 1}]
    one = task("worker:0", "failed", node=EVIL, container=EVIL, log_url=EVIL, runs=runs, restarts=1)
    one.update(task=EVIL, role=EVIL, reported={EVIL: 1.0})
    writer = HistoryWriter(f"{scripted.root}/history/{APP}")
    writer.begin([])
    writer.add(encode(event(1, f"{EVIL}\n{EVIL}")))
    metrics = {"task": {}, "latest": {EVIL: {EVIL: EVIL}}}
    writer.summary({"job": job, "tasks": [one], "metrics": metrics})
    writer.config(f"<configuration>{EVIL}</configuration>\n".encode())
    assert writer.close() == []
    scripted.apps[APP] = status(state=AppState.FAILED, finished=1010.0)._replace(
        name=EVIL, user=EVIL, queue=EVIL, diagnostics=EVIL, tracking_url=EVIL, tags=(EVIL,),
    )  # fmt: skip
    return scripted


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0][:7])
def test_every_verb_shows_it_tame(
    tony: Tony, evil: Scripted, words: Any, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda stream: terminal)
    done = tony(*words)
    assert_tame(done.out)
    assert_tame(done.err)
    assert "ev" in done.out + done.err or words[0] in ("kill", "list", "submit")


def test_json_is_exact(tony: Tony, evil: Scripted) -> None:
    import json

    found = json.loads(tony("list", "--json").out)
    assert found["applications"][0]["name"] == EVIL


def test_errors_and_their_tracebacks(capsys: pytest.CaptureFixture[str]) -> None:
    for debug in (False, True):
        for error in (SchedulerError(EVIL), ValueError(EVIL), FileNotFoundError(2, EVIL, EVIL)):
            assert errors.report_error(error, debug)
            shown = capsys.readouterr().err
            assert_tame(shown)
            assert "evil" not in shown and "ev\\x1b]0;pwned\\x07il" in shown


def test_the_live_view(evil: Scripted, page: PageServer) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=400, height=60, highlight=False, force_terminal=False)
    made = live.LivePresenter(console)
    listeners = made.callbacks()
    job = {"app_id": APP, "name": EVIL, "state": "RUNNING", "waiting": EVIL, "sizes": EVIL}
    job["trouble"] = EVIL
    job["links"] = {EVIL: EVIL}
    one = task("worker:0", "running", node=EVIL)
    one.update(task=EVIL, role=EVIL, reported={EVIL: 1.0})
    assert listeners.on_event is not None and listeners.on_view is not None
    listeners.on_event(event(1, EVIL))
    listeners.on_view(from_page(job, [one], None))
    made.show_note(EVIL)
    console.print(made.render())
    shown = stream.getvalue()
    assert_tame(shown)
    assert "[link=http://x]y[/link]" in shown, "no markup is read"


@pytest.mark.parametrize(
    ("text", "colours", "shown"),
    [
        ("plain ☃", True, "plain ☃"),
        ("a\tb", True, "a\tb"),
        ("\x1b[31mred\x1b[0m", True, "\x1b[31mred\x1b[0m\x1b[0m"),
        ("\x1b[31mred\x1b[0m", False, "red"),
        (" 10 %\r 90 %\r100 %\r", True, "100 %"),
        ("\x1b[1A\x1b[2K up", True, "\\x1b[1A\\x1b[2K up"),
        ("\x1b]52;c;AAAA\x07", True, "\\x1b]52;c;AAAA\\x07"),
        ("\u202eabc\udc80", True, "\\u202eabc\\udc80"),
        ("a\nb", True, "a\\x0ab"),
    ],
)
def test_a_log_line_on_a_terminal(text: str, colours: bool, shown: str) -> None:
    assert output.log_line(text, colours).replace("\n", "\\x0a") == shown


def test_logs_are_exact_in_a_pipe_and_tame_on_a_terminal(
    tony: Tony, evil: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil.logs[EVIL, "stdout"] = b"\x1b[32mgreen\x1b[0m \x1b[2J\x1b]0;title\x07\n"
    exact = "\x1b[32mgreen\x1b[0m \x1b[2J\x1b]0;title\x07"
    words = ("logs", APP, "--stream", "stdout", "--no-prefix")
    assert exact in tony(*words).out
    monkeypatch.setattr(sys.stdout.__class__, "isatty", lambda self: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    shown = tony(*words).out
    assert "\x1b[32mgreen\x1b[0m \\x1b[2J\\x1b]0;title\\x07\x1b[0m\n" in shown
    assert exact in tony(*words, "--raw").out


def test_nothing_but_the_one_place_writes_to_a_terminal() -> None:
    folder = Path(output.__file__).parent
    writers: List[str] = []
    for path in folder.glob("*.py"):
        text = path.read_text()
        if path.name not in ("output.py", "main.py"):  # main.py: fixed words, before any import
            found = re.findall(r"(?<![\w.])print\(|sys\.(?:stdout|stderr)\.write", text)
            writers += [f"{path.name}: {one}" for one in found]
    assert writers == []


@fuzz(text=st.text(st.characters(), max_size=200), colours=st.booleans())
def test_no_text_drives_a_terminal(text: str, colours: bool) -> None:
    assert_tame(output.safe(text).replace("\t", ""))
    assert_tame(output.log_line(text, colours).replace("\t", ""))
    assert_tame(output._keeping(output._PAINTED, text).replace("\t", ""))

"""The job's page, and TensorBoard through it, in a real browser: a real job, a real TensorBoard."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

from tests.cli.processes import application_of, tony, until

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = """
--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run
--disable-background-networking --disable-component-update --disable-sync
--no-default-browser-check --disable-breakpad --remote-debugging-pipe
""".split()
ANSWER_S = 30.0  # of a browser that may only just have been started, on a busy machine

#: worker:1 ends when it is told to; worker:0 stays, with its TensorBoard beside it.
PROGRAM = """
import os, pathlib, sys, time
import tony
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

events, go = sys.argv[1:]
index = int(os.environ["TASK_INDEX"])
if index == 0:
    writer = EventFileWriter(events)
    for step in range(5):
        value = Summary.Value(tag="the_loss", simple_value=1.0 / (step + 1))
        writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))
    writer.close()
for step in range(600):
    tony.report(step=step, metrics={"error": 1.0 / (step + 1) + index})
    if index == 1 and pathlib.Path(go).exists():
        break
    time.sleep(0.2)
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """One that runs."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser on the PATH: {', '.join(BROWSERS)}")
    made = Browser(program, tmp_path / "browser")
    yield made
    made.close()


@pytest.fixture
def job(tmp_path: Path, environment: Callable[[str], Path]) -> Iterator[str]:
    """A job that runs, with its TensorBoard serving: its page's URL."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(PROGRAM)
    events = tmp_path / "events"
    python = environment("tensorboard") / "bin" / "python"
    words = ["--executes", f"train.py {events} {tmp_path / 'go'}", "--src_dir", "src"]
    words += ["--python_binary_path", str(python)]
    for key, value in {
        "tony.application.name": "in-a-browser",
        "tony.application.framework": "pytorch",
        "tony.worker.instances": "2",
        "tony.worker.memory": "1g",
        "tony.application.tensorboard-log-dir": str(events),
    }.items():
        words += ["--conf", f"{key}={value}"]
    done = tony("submit", *words, "--detach", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    app_id = application_of(done.stdout)
    links: Dict[str, str] = {}

    def serves() -> bool:
        found: Dict[str, Any] = json.loads(tony("status", app_id, "--json", cwd=tmp_path).stdout)
        assert found["state"] in ("SUBMITTED", "ACCEPTED", "RUNNING"), found["diagnostics"]
        links.update(found["links"])
        return "page" in links and "tensorboard" in links

    try:
        until(serves, "TensorBoard's link on the page")
        yield links["page"]
    finally:
        tony("kill", app_id, cwd=tmp_path, timeout=60)


class Browser:
    """One that is told what to do over two pipes, as its developers' tools do."""

    def __init__(self, program: str, folder: Path) -> None:
        self.complaints: List[str] = []  # what the pages' consoles say
        self._number = 0
        self._input = b""
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # It reads from 3 and writes to 4; whatever our own numbers are.
        low = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]
        words = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{low[0]} 4>&{low[1]}', "browser", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder)},
            start_new_session=True,
            pass_fds=low,
        )
        for fd in (theirs_in, theirs_out, *low):
            os.close(fd)

    def open(self, url: str) -> str:
        """A page in a tab of its own: the name of that tab."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        tab = str(attached["sessionId"])
        for domain in ("Log", "Runtime", "Page"):
            self.ask(f"{domain}.enable", tab)
        self.ask("Page.navigate", tab, url=url)
        return tab

    def shows(self, tab: str, *texts: str) -> str:
        """Wait until all of them stand in the page as it is by now; the page."""
        found = [""]

        def all_there() -> bool:
            expression = "document.documentElement ? document.documentElement.outerHTML : ''"
            answer = self.ask("Runtime.evaluate", tab, expression=expression)
            found[0] = str(answer["result"].get("value", ""))  # none on its way to a page
            return all(text in found[0] for text in texts)

        until(all_there, f"{texts} in the page", self.complaints)
        return found[0]

    def ask(self, method: str, tab: str = "", **params: Any) -> Dict[str, Any]:
        """Ask for something, and wait for the answer."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": params}
        if tab:
            request["sessionId"] = tab
        os.write(self._out, json.dumps(request).encode() + b"\0")
        end = time.monotonic() + ANSWER_S
        while True:
            message = self._next(end, method)
            if message.get("id") == self._number:
                assert "error" not in message, message
                found: Dict[str, Any] = message["result"]
                return found
            if message.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.complaints.append(json.dumps(message["params"]))

    def close(self) -> None:
        """End it, with all its helpers."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(10)
        os.close(self._in)
        os.close(self._out)

    def _next(self, end: float, what: str) -> Dict[str, Any]:
        while b"\0" not in self._input:
            left = end - time.monotonic()
            ready = select.select([self._in], [], [], max(0.0, left))[0]
            assert ready, f"no answer of the browser's to {what} within {ANSWER_S:g} s"
            data = os.read(self._in, 1 << 16)
            assert data, f"the browser ended at {what}"
            self._input += data
        text, _, self._input = self._input.partition(b"\0")
        found: Dict[str, Any] = json.loads(text)
        return found


def get(url: str) -> bytes:
    """One answer."""
    with urllib.request.urlopen(url, timeout=20) as answer:
        found: bytes = answer.read()
        return found


def test_the_page_goes_on_by_itself(browser: Browser, job: str, tmp_path: Path) -> None:
    tab = browser.open(job)
    dom = browser.shows(tab, "in-a-browser", ">worker:0<", ">worker:1<", "RUNNING", "<polyline")
    assert 'href="tensorboard/' in dom
    for index in (0, 1):
        assert f'href="logs/worker%3A{index}/stdout"' in dom
    assert "worker:1 succeeded" not in dom
    (tmp_path / "go").touch()
    browser.shows(tab, "worker:1 succeeded", "1 running, 1 succeeded")
    # The page's own policy refuses nothing of it; that it has no icon is known.
    assert [text for text in browser.complaints if "favicon.ico" not in text] == []


def test_tensorboard_through_the_page(browser: Browser, job: str) -> None:
    # The tag's card: its script has run, has asked for data and has got it.
    browser.shows(browser.open(f"{job}tensorboard/"), "<tb-webapp", "the_loss")
    plugins: Dict[str, Any] = json.loads(get(f"{job}tensorboard/data/plugins_listing"))
    assert plugins["scalars"]["enabled"]
    assert json.loads(get(f"{job}tensorboard/data/environment"))["data_location"]
    tags: Dict[str, Any] = json.loads(get(f"{job}tensorboard/data/plugin/scalars/tags"))
    (run,) = tags
    assert list(tags[run]) == ["the_loss"]
    query = f"run={run}&tag=the_loss"
    points: List[Any] = json.loads(get(f"{job}tensorboard/data/plugin/scalars/scalars?{query}"))
    assert [step for _, step, _ in points] == [0, 1, 2, 3, 4]

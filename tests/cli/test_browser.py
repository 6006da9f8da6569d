"""The job's page, and TensorBoard through it, in a real browser: a real job, a real TensorBoard."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

from tests.browser import Browser
from tests.cli.processes import application_of, tony, until

#: worker:1 ends on request; worker:0 stays, with its TensorBoard beside it.
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


def get(url: str) -> bytes:
    """One answer."""
    with urllib.request.urlopen(url, timeout=60) as answer:
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
    complaints = [text for text in browser.complaints if "favicon.ico" not in text]
    assert complaints == [], complaints[0]


def test_tensorboard_through_the_page(browser: Browser, job: str) -> None:
    # The tag's card: its script has run, has asked for data and has got it.
    tab = browser.open(f"{job}tensorboard/")
    browser.shows(tab, "<tb-webapp", "the_loss")
    assert origin_of(browser, tab) not in ("", job.rstrip("/"))
    plugins: Dict[str, Any] = json.loads(get(f"{job}tensorboard/data/plugins_listing"))
    assert plugins["scalars"]["enabled"]
    assert json.loads(get(f"{job}tensorboard/data/environment"))["data_location"]
    tags: Dict[str, Any] = json.loads(get(f"{job}tensorboard/data/plugin/scalars/tags"))
    (run,) = tags
    assert list(tags[run]) == ["the_loss"]
    query = f"run={run}&tag=the_loss"
    points: List[Any] = json.loads(get(f"{job}tensorboard/data/plugin/scalars/scalars?{query}"))
    assert [step for _, step, _ in points] == [0, 1, 2, 3, 4]


def test_a_script_in_tensorboard_cannot_read_the_page(browser: Browser, job: str) -> None:
    tab = browser.open(f"{job}tensorboard/")
    browser.shows(tab, "<tb-webapp")
    # As a script would that a training has put into what TensorBoard shows.
    assert read_by_script(browser, tab, f"{job}api/job").startswith("TypeError")
    assert read_by_script(browser, tab, "data/environment").startswith("{")
    frame = f"""
        new Promise(done => {{
            const frame = document.createElement('iframe')
            frame.onload = () => {{
                try {{ done(frame.contentDocument.body.innerText) }}
                catch (error) {{ done(String(error)) }}
            }}
            frame.src = {job!r}
            document.body.append(frame)
        }})"""
    found = browser.call("Runtime.evaluate", tab, expression=frame, awaitPromise=True)
    assert "in-a-browser" not in found["result"].get("value", "")
    tab = browser.open(job)
    browser.shows(tab, "in-a-browser")
    assert read_by_script(browser, tab, f"{job}api/job").startswith("{"), "the page's own may"


def origin_of(browser: Browser, tab: str) -> str:
    found = browser.call("Runtime.evaluate", tab, expression="location.origin")
    return str(found["result"]["value"])


def read_by_script(browser: Browser, tab: str, url: str) -> str:
    script = f"fetch({url!r}).then(answer => answer.text()).catch(error => String(error))"
    found = browser.call("Runtime.evaluate", tab, expression=script, awaitPromise=True)
    return str(found["result"]["value"])

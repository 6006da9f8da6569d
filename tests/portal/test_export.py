"""One job as one HTML file: what is in it, hostile texts, a real browser without a network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Dict, List, Tuple

from tests.browser import Browser, browser
from tests.portal.pages.test_browser import axe
from tony_core.history.reader import JobHistory
from tony_core.portal.export import export_page
from tony_core.view import read_job

__all__ = ["browser"]

APP = "application_1_0001"
EVIL = "</script></style></title><script>alert('owned')</script><img src=x onerror=alert(1)>"
LINES = [
    {"n": 1, "time": 1001.0, "kind": "session-started", "text": "session 0 begins", "session": 0},
    {"n": 2, "time": 1010.0, "kind": "task-state", "text": "worker:0 running on n1",
     "task": "worker:0", "session": 0, "fields": {"state": "running", "node": "n1"}},
    {"n": 3, "time": 1090.0, "kind": "root-cause", "text": "worker:0 failed", "task": "worker:0",
     "session": 0, "weight": "error"},
]  # fmt: skip


def record(text: str = "mnist") -> JobHistory:
    task: Dict[str, Any] = {
        "task": "worker:0", "role": "worker", "state": "failed", "node": text, "container": "c_2",
        "exit_code": 3, "message": text, "stderr_tail": [text], "started": 1010.0, "ended": 1090.0,
        "duration_s": 80.0, "usage": {"peak_rss_mb": 900.0}, "session": 0,
    }  # fmt: skip
    job: Dict[str, Any] = {
        "app_id": APP, "state": "FAILED", "name": text, "user": text, "queue": text,
        "framework": text, "submitted": 1000.0, "started": 1001.0, "finished": 1100.0,
        "diagnostics": f"it failed: {text}", "description": text, "tags": [text],
        "root_cause": {"task": "worker:0", "message": text, "stderr_tail": [text, text],
                       "exit_code": 3, "cause": text, "node": text},
        "links": {text: "javascript:alert(1)", "airflow": "https://airflow.example.org/" + text},
        "result": {text: [text]},
    }  # fmt: skip
    metrics = {"task": {"worker:0": {text: [[1011, 1.0], [1012, 2.0]]}}, "latest": {}}
    events = tuple({**line, "text": f"{line['text']} {text}"} for line in LINES)
    return JobHistory(APP, job, (task,), metrics, events, (f"a problem of {text}",))


def page(text: str = "mnist") -> str:
    found = record(text)
    view = read_job(found.job, found.tasks, "history", APP)
    return export_page(found, view, ((text, text, text),), (text,), now=2000.0)


class Elements(HTMLParser):
    """What a browser finds in the page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: List[Tuple[str, Dict[str, Any]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: List[Tuple[str, Any]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def parse(text: str) -> Elements:
    parser = Elements()
    parser.feed(text)
    return parser


def test_what_is_in_it() -> None:
    found = parse(page())
    for text in (
        "mnist", APP, "worker:0 failed", "session 0 begins", "a problem of mnist", "c_2", "900 MB",
        "1 min 20 s", "Where the time went", "running on n1",
    ):  # fmt: skip
        assert text in found.text, text


def test_it_asks_for_nothing() -> None:
    found = parse(page())
    fetching = (
        "src",
        "srcset",
        "data",
        "action",
        "formaction",
        "background",
        "poster",
        "xlink:href",
    )
    assert not [(tag, attrs) for tag, attrs in found.found for name in fetching if name in attrs]
    assert not [tag for tag, _ in found.found if tag in ("link", "base", "iframe", "object")]
    policy = next(attrs["content"] for tag, attrs in found.found if tag == "meta" and
                  attrs.get("http-equiv") == "Content-Security-Policy")  # fmt: skip
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy and "http" not in policy


def test_hostile_texts_stay_texts() -> None:
    plain, hostile = parse(page()), parse(page(EVIL))
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in plain.found]
    assert all(not name.startswith("on") for _, attrs in hostile.found for name in attrs)
    links = [attrs["href"] for tag, attrs in hostile.found if tag == "a"]
    assert [link.split(":")[0] for link in links] == ["https"]
    assert "alert('owned')" in hostile.text


def test_damaged_histories_are_written_all_the_same() -> None:
    broken = JobHistory(APP, {"state": 3, "tags": 1, "links": [1], "root_cause": 7}, ({},),
                        {"task": [1], "latest": 3}, ({"time": "x"}, {"fields": 3}))  # fmt: skip
    assert APP in export_page(broken, read_job(broken.job, broken.tasks, "history", APP))


def test_a_browser_shows_it(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "job.html"
    file.write_text(page(EVIL))
    tab = browser.open(file.as_uri())
    browser.shows(tab, "Where the time went", 'class="chart"')
    answer = browser.call(
        "Runtime.evaluate", tab, returnByValue=True,
        expression="[getComputedStyle(document.querySelector('.card')).borderTopStyle,"
        " document.scripts.length, performance.getEntriesByType('resource').length,"
        " document.querySelector('time').textContent]",
    )  # fmt: skip
    border, scripts, requests, moment = answer["result"]["value"]
    assert border == "solid", "the style is allowed"
    assert re.match(r"1970-01-01 ", moment), "the script is: times are the reader's"
    assert (scripts, requests) == (1, 0)
    file.write_text(page("a longer name of a thing"))
    for width, dark in ((1400, False), (360, True)):
        browser.shape(tab, width, dark=dark)
        browser.call("Page.navigate", tab, url=file.as_uri())
        browser.wait_for(
            tab, "document.readyState == 'complete' && document.querySelector('main') !== null"
        )
        browser.run(tab, f"{axe()};0")
        wrong = browser.run(
            tab,
            "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map("
            "one => one.id + ': ' + one.nodes.map(node => node.html.slice(0, 160)).join(' | ')))",
        )
        assert wrong == []
        assert browser.run(tab, "document.documentElement.scrollWidth") <= width
    assert browser.complaints == []

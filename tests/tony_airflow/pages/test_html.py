"""The pages as text."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any, Dict, List, Optional, Tuple

from tests.fuzzing import fuzz, mutations
from tests.tony_airflow.pages.written import EVIL, TI_KEY
from tony_airflow.pages.history import Log, TaskInstanceKey
from tony_airflow.pages.html import headers, job_page, logs_page, not_found_page, task_of
from tony_core.client.merge import from_page
from tony_core.jsontext import read_object
from tony_core.view import HISTORY

JOB: Dict[str, Any] = {
    "app_id": f"a{EVIL}", "name": EVIL, "state": "FAILED", "user": EVIL, "queue": EVIL,
    "framework": EVIL, "submitted": 1.0, "finished": 9.0,
    "diagnostics": f"{EVIL} password=hunter2x",
    "links": {EVIL: f"http://h/{EVIL}", "x": "javascript:alert(1)", "y": "data:text/html,x",
              "z": "https:/portal/", "Z": "HTTPS://portal/",
              "portal": "https://portal/'\"><b>"},
}  # fmt: skip
TASK: Dict[str, Any] = {
    "task": f"worker:0{EVIL}", "state": EVIL, "node": EVIL, "cause": EVIL, "exit_code": 7,
    "duration_s": 1.5, "reported": {EVIL: 0.5},
}  # fmt: skip
EVENT: Dict[str, Any] = {"time": 5.0, "text": EVIL}
ALLOWED = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "a", "pre", "span",
           "table", "tr", "td", "th"}  # fmt: skip


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: List[str] = []
        self.links: List[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: List[Tuple[str, Optional[str]]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), name
            if name == "href":
                self.links.append(value or "")


def checked(text: str) -> Tags:
    found = Tags(text)
    assert set(found.tags) <= ALLOWED
    for link in found.links:
        assert link.startswith(("../", "logs/", "http://", "https://")), link
    return found


def page(job: Any, tasks: List[Any], events: List[Any]) -> str:
    view = from_page(job, [task for task in tasks if isinstance(task, dict)], None, HISTORY)
    return job_page(TI_KEY, view, [one for one in events if isinstance(one, dict)], "nonce")


def test_nothing_of_a_job_is_html() -> None:
    text = page(JOB, [TASK], [EVENT])
    found = checked(text)
    assert "<script" not in text and "hunter2x" not in text
    assert text.count("&lt;script&gt;") >= 10
    assert not any("javascript" in link or "data:" in link for link in found.links)
    logs = logs_page(
        from_page(JOB, [TASK], None, HISTORY), EVIL, [Log(EVIL, EVIL, (EVIL,)), Log("c", "s")], "n"
    )
    checked(logs)
    assert "<script" not in logs and "nothing was written" in logs
    none = logs_page(from_page(JOB, [TASK], None, HISTORY), EVIL, [], "n")
    checked(none)
    assert "it has had no container" in none
    checked(not_found_page(EVIL, "n"))
    checked(page(JOB, [{**TASK, "task": "\ud800"}], [{"time": 1e99, "text": "\ud800"}]))


def test_the_way_back() -> None:
    assert task_of(TI_KEY) == (
        "../../../../../../../../dags/dag/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00/tasks/train"
    )
    assert task_of(TaskInstanceKey("d/../x", "r", "t", 3)).endswith(
        "/dags/d%2F..%2Fx/runs/r/tasks/t/mapped/3"
    )


def test_nothing_of_it_runs_or_is_kept() -> None:
    fields = headers("abc")
    assert "default-src 'none'" in fields["Content-Security-Policy"]
    assert "script-src" not in fields["Content-Security-Policy"]
    assert fields["Cache-Control"] == "no-store"


@fuzz(
    by_day=100,
    data=mutations(json.dumps({"job": JOB, "tasks": [TASK], "events": [EVENT]}).encode()),
)
def test_any_history(data: bytes) -> None:
    try:
        fields = read_object(data)
    except ValueError:
        return
    job, tasks, events = (fields.get(name) for name in ("job", "tasks", "events"))
    text = page(
        job if isinstance(job, dict) else {},
        tasks if isinstance(tasks, list) else [],
        events if isinstance(events, list) else [],
    )
    text.encode()
    checked(text)


def test_a_name_that_no_address_can_hold() -> None:
    text = page(JOB, [{**TASK, "task": "worker:\ud800"}], [])
    assert "logs/worker%3A%3F" in checked(text).links

"""The portal's pages over parts in memory: what they show, refuse, escape and allow."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from typing import Any, Callable, Dict, List, Tuple

import pytest

from tests.portal.fakes import NASTY, FakePortal, a_row, a_source, a_task, an_event
from tony_core.history.configuration import ConfigEntry
from tony_core.portal.index.database import IndexBusy
from tony_core.portal.index.rows import JobRow, Usage
from tony_core.portal.viewer import Viewer

JOB = "/jobs/application_1_0001/"
PAGES = ["", "tasks", "metrics", "story", "config", "log/worker:0/stdout"]


class Page(HTMLParser):
    """Every tag of a page: it closes what it opens, and nothing of it runs or styles inline."""

    VOID = frozenset({"meta", "link", "input", "br", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: List[str] = []
        self.links: List[str] = []
        self.tags: List[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        assert not [name for name in found if name.startswith("on") or name == "style"], found
        self.links += [found[name] for name in ("href", "src", "action") if found.get(name)]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_list() -> None:
    portal = FakePortal(a_source(), a_source(a_row(2, state="FAILED", error="out of memory")))
    with portal.client() as client:
        answer = client.get("/")
        page = Page(answer.text)
        assert answer.status_code == 200
        assert JOB in page.links
        assert "out of memory" in answer.text and "1 min 01 s" in answer.text
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy and "unsafe" not in policy
        assert page.tags.count("script") == 1
        found = client.get("/api/jobs?state=FAILED").json()
        assert [job["app_id"] for job in found["jobs"]] == ["application_1_0002"]
        assert found["total"] == 1 and "readers" not in found["jobs"][0]
        assert client.get("/jobs/?q=x").headers["location"] == "/jobs?q=x"


def test_every_view_of_the_list_is_an_address() -> None:
    portal = FakePortal(*(a_source(a_row(number)) for number in range(30)))
    with portal.client() as client:
        address = "/jobs?q=train&state=SUCCEEDED&user=ann&since=7d&sort=name&limit=10"
        text = client.get(address).text
        query = portal.index.asked[-1]
        assert (query.q, query.state, query.user, query.sort) == (
            "train", ("SUCCEEDED",), "ann", "name",
        )  # fmt: skip
        assert query.since is not None and query.limit == 10
        following = next(link for link in Page(text).links if "after=10" in link)
        for part in ("q=train", "state=SUCCEEDED", "user=ann", "since=7d", "sort=name"):
            assert part in following
        assert client.get(f"/jobs{following}").status_code == 200
        other = next(link for link in Page(text).links if "sort=-name" in link)
        assert "after" not in other


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("state=NAPPING", "NAPPING"),
        ("sort=colour", "colour"),
        ("limit=0", "limit"),
        ("limit=99999", "limit"),
        ("since=yesterday", "yesterday"),
        ("since=nan", "nan"),
        ("after=stale", "another list"),
    ],
)
def test_an_odd_address_is_explained(query: str, words: str) -> None:
    with FakePortal(a_source()).client() as client:
        answer = client.get(f"/jobs?{query}")
        assert answer.status_code == 400
        assert words in answer.text
        Page(answer.text)
        assert words in client.get(f"/api/jobs?{query}").json()["error"]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("running", [True, False])
def test_the_pages_of_a_job(path: str, running: bool) -> None:
    with FakePortal(a_source(running=running)).client() as client:
        answer = client.get(JOB + path)
        assert answer.status_code == 200, answer.text
        Page(answer.text)
        assert "train-1" in answer.text
        assert answer.headers["cache-control"] == "no-store"
        tag = answer.headers["etag"]
        assert client.get(JOB + path, headers={"If-None-Match": tag}).status_code in (200, 304)


def test_a_job_without_its_slash_is_sent_to_it() -> None:
    with FakePortal(a_source()).client() as client:
        answer = client.get("/jobs/application_1_0001?location=here")
        assert answer.status_code == 308
        assert answer.headers["location"] == "/jobs/application_1_0001/?location=here"


def test_what_is_not_there_is_named() -> None:
    with FakePortal(a_source()).client() as client:
        for path in ("/jobs/application_9_9/", "/nothing", "/jobs/application_9_9/config"):
            answer = client.get(path)
            assert answer.status_code == 404
            assert path.split("/")[2 if path.startswith("/jobs") else 1] in answer.text
            Page(answer.text)
        assert "application_9_9" in client.get("/jobs/application_9_9/api/job").json()["error"]
        assert client.post("/jobs").status_code == 405


def test_another_users_job_is_not_there() -> None:
    with FakePortal(a_source(), viewer=Viewer("eve")).client() as client:
        assert client.get(JOB).status_code == 404
        assert client.get(JOB + "api/job").status_code == 404
        assert client.get(JOB + "logs/worker:0/stdout").status_code == 404
        assert "train-1" not in client.get("/jobs").text


def test_without_a_viewer_nothing_is_shown() -> None:
    with FakePortal(a_source(), viewer=None).client() as client:
        for path in ("/", JOB, "/api/jobs", "/users", JOB + "logs/worker:0/stdout"):
            assert client.get(path).status_code == 403, path


def test_two_jobs_of_one_id() -> None:
    mine, other = a_row(), a_row(location="there", owner="bob", readers=("*",))
    portal = FakePortal(a_source(mine), a_source(other), locations=("here", "there"))
    with portal.client() as client:
        answer = client.get(JOB + "config")
        assert answer.status_code == 300
        links = Page(answer.text).links
        assert {f"{JOB}config?location=here", f"{JOB}config?location=there"} <= set(links)
        assert client.get(JOB + "?location=there").status_code == 200
        assert f"{JOB}?location=there" in Page(client.get("/").text).links
        assert len(client.get(JOB + "api/job").json()["jobs"]) == 2


def test_hostile_texts_are_texts() -> None:
    row = a_row(name=NASTY, queue=NASTY, framework=NASTY, error=NASTY, tags=(NASTY,),
                state="FAILED", pipeline=NASTY, problem=NASTY)  # fmt: skip
    line = [[1.0, 2.0], [2.0, 3.0], ["x", None], [float("nan"), 1], 7]
    source = a_source(
        row,
        job={
            "name": NASTY, "diagnostics": NASTY, "waiting": NASTY, "trouble": NASTY,
            "description": NASTY, "result": {NASTY: NASTY}, "tags": [NASTY, {}, None],
            "links": {NASTY: "javascript:alert(1)", "yarn": "http://rm:8088/", "x": 7},
            "root_cause": {"task": NASTY, "node": NASTY, "message": NASTY, "stderr_tail": [NASTY]},
            "budgets": [], "progress": "x", "state": "RUNNING",
        },
        tasks=(a_task("worker:0", node=NASTY, message=NASTY, stderr_tail=[NASTY], gpus=[NASTY]),
               {"task": NASTY}, {}),
        metrics={"task": {NASTY: {NASTY: line, "loss": "x"}, "worker:0": {NASTY: line}, "a": 3}},
        events=({"n": "x", "time": "y", "text": NASTY, "weight": NASTY}, {}),
        problems=(NASTY,),
    )  # fmt: skip
    source.logs = {("worker:0", "stdout"): NASTY.encode() + b"\x1b[31mred\x1b]0;t\x07\xff\n"}
    source.entries = (type(source.entries[0])(NASTY, NASTY, NASTY),)
    portal = FakePortal(source)
    portal.index.sums = [Usage(NASTY, 3, {NASTY: 3}, {"gpu_hours": 1e18})]
    with portal.client() as client:
        paths = [JOB + path for path in PAGES]
        paths += ["/", f"/?q={NASTY}", "/users", JOB + f"log/worker:0/stdout?q={NASTY}"]
        for path in paths:
            answer = client.get(path)
            assert answer.status_code == 200, (path, portal.log)
            assert "<script>alert" not in answer.text and "<img" not in answer.text, path
            assert "javascript:" not in "".join(Page(answer.text).links)
            assert "49" not in re.findall(r"amp;(\d+)", answer.text)
        assert "http://rm:8088/" in Page(client.get(JOB).text).links
        assert "\x1b" not in client.get(JOB + "log/worker:0/stdout").text


def test_a_failed_job_shows_its_cause_before_all_else() -> None:
    cause: Dict[str, Any] = {"task": "worker:1", "node": "node7", "exit_code": 1, "fault": "user"}
    cause["stderr_tail"] = ["Traceback", "KeyError: 'x'"]
    row = a_row(state="FAILED")
    with FakePortal(a_source(row, job={"root_cause": cause})).client() as client:
        text = client.get(JOB).text
        assert text.index("KeyError") < text.index("<h2>Story")
        assert f"{JOB}log/worker%3A1/stderr" in Page(text).links or "log/worker:1/stderr" in text


def test_a_runs_link_opens_its_log_where_its_session_begins() -> None:
    """The embedded scheduler's sessions share a container: its log holds all of them."""
    runs = [
        {"session": session, "container": "c-0", "state": "failed", "offsets": {"stdout": at}}
        for session, at in ((0, 0), (1, 12))
    ]
    source = a_source(tasks=(a_task("worker:0", session=1, runs=runs),))
    source.logs["worker:0", "stdout"] = b"first lines\nsecond lines\n"
    source.begins = {0: 0, 1: 12}
    with FakePortal(source).client() as client:
        links = Page(client.get(JOB + "tasks").text).links
        (link,) = (one for one in links if "session=0" in one and "stdout" in one)
        assert "container=c-0" in link
        text = client.get(link).text
        assert text.index("session 0 begins") < text.index("first lines")
        assert text.index("session 1 begins") < text.index("second lines")
        last = client.get(link.replace("session=0", "session=1")).text
        assert "first lines" not in last and "session 1 begins" in last
        assert "has not written" in client.get(link.replace("session=0", "session=7")).text
        assert "session 1 begins" in client.get(JOB + "log/worker:0/stdout").text, "the end, too"


def test_the_api_is_the_masters() -> None:
    with FakePortal(a_source(running=True)).client() as client:
        job = client.get(JOB + "api/job").json()
        assert job["state"] == "RUNNING" and job["counts"] == {"succeeded": 2}
        assert job["owner"] == "ann" and "source" not in job
        tasks = client.get(JOB + "api/tasks").json()["tasks"]
        assert [task["task"] for task in tasks] == ["worker:0", "worker:1"]
        assert client.get(JOB + "api/timeline").json()["is_over"] is False
        assert client.get(JOB + "api/metrics").json()["task"]["worker:0"]["loss"]
        events = client.get(JOB + "api/events?since=1").json()
        assert [event["n"] for event in events["events"]] == [2] and events["next"] == 2
        assert client.get(JOB + "api/events?since=2&wait=0.1").json()["events"] == []
        assert client.get(JOB + "api/events?since=x").status_code == 400
        (first, *_) = client.get(JOB + "api/config").json()["config"]
        assert first == {"key": "tony.worker.instances", "value": "2", "source": "tony.xml"}


def test_news_arrive_while_a_reader_waits() -> None:
    source = a_source(running=True)
    later = source.held._replace(events=(*source.held.events, an_event(3, "worker:1 failed")))
    calls = []

    def events(since: int) -> Any:
        calls.append(since)
        if len(calls) == 2:
            source.held = later
        return type(source).events(source, since)

    source.events = events  # type: ignore[method-assign]
    with FakePortal(source).client() as client:
        answer = client.get(JOB + "api/events?since=2&wait=20").json()
        assert [event["text"] for event in answer["events"]] == ["worker:1 failed"]
        assert len(calls) == 2


def test_a_fault_is_logged_and_shows_nothing() -> None:
    source = a_source()
    source.record = lambda **asked: 1 / 0  # type: ignore[assignment,return-value,method-assign]
    portal = FakePortal(source)
    with portal.client() as client:
        answer = client.get(JOB)
        assert answer.status_code == 500 and "ZeroDivisionError" in answer.text
        assert "Traceback" not in answer.text
        assert "Traceback" in portal.log[0]


@pytest.mark.parametrize("path", ["/", "/api/jobs", JOB])
def test_an_index_that_does_not_answer_in_time_is_no_fault(path: str) -> None:
    portal = FakePortal(a_source())

    def ask(*asked: Any, **more: Any) -> Any:
        raise IndexBusy("the portal answers too many requests at once; try again")

    portal.index.page = portal.index.rows = ask  # type: ignore[assignment,method-assign]
    with portal.client() as client:
        answer = client.get(path)
        assert answer.status_code == 503 and "too many requests at once" in answer.text
        assert "fault" not in answer.text and portal.log == []


def test_a_place_that_does_not_answer_is_named() -> None:
    source = a_source()

    def record(**asked: bool) -> Any:
        raise OSError("nn1:8020 does not answer within 10 s")

    source.record = record  # type: ignore[method-assign]
    with FakePortal(source).client() as client:
        answer = client.get(JOB)
        assert answer.status_code == 503 and "nn1:8020" in answer.text


def test_style_and_script_are_kept_by_browsers_and_named_by_content() -> None:
    with FakePortal(a_source()).client() as client:
        links = [link for link in Page(client.get("/").text).links if "/static/" in link]
        assert len(links) == 3
        for link in links:
            assert client.get(link).status_code == 200
        styles = [link for link in links if link.endswith(".css")]
        assert "immutable" in client.get(styles[0]).headers["cache-control"]
        assert client.get("/static/page.js").status_code == 404
        assert client.get("/static/..%2fapp.py").status_code == 404


def test_below_a_path_every_link_is_below_it() -> None:
    portal = FakePortal(a_source())
    client = portal.client()
    client.base_url = client.base_url.join("/")
    from starlette.testclient import TestClient

    with TestClient(portal.app, root_path="/tony") as client:
        for path in ("/tony/", f"/tony{JOB}", f"/tony{JOB}config", "/tony/users"):
            answer = client.get(path)
            assert answer.status_code == 200, path
            outside = [link for link in Page(answer.text).links if link.startswith("/")]
            assert [link for link in outside if not link.startswith("/tony/")] == []


def test_ending_a_job_asks_first_and_carries_the_token() -> None:
    portal = FakePortal(a_source(running=True))
    with portal.client() as client:
        assert f"{JOB}end" in Page(client.get(JOB).text).links
        text = client.get(JOB + "end").text
        assert 'name="csrf" value="the-token"' in text
        assert portal.endings.ended == []
        assert "is ending" in client.post(JOB + "end", data={"csrf": "the-token"}).text
        assert portal.endings.ended == ["application_1_0001"]
        portal.endings.problem = "the ResourceManager does not answer"
        answer = client.post(JOB + "end", data={"csrf": "the-token"})
        assert answer.status_code == 503 and "ResourceManager" in answer.text


def test_who_may_not_end_a_job_has_no_button() -> None:
    running = a_source(a_row(state="RUNNING", readers=("*",)), running=True)
    portal = FakePortal(running, viewer=Viewer("eve"))
    with portal.client() as client:
        assert f"{JOB}end" not in Page(client.get(JOB).text).links
        assert client.get(JOB + "end").status_code == 403
        assert client.post(JOB + "end").status_code == 403
        assert portal.endings.ended == []


def test_usage() -> None:
    portal = FakePortal(a_source())
    portal.index.sums = [
        Usage("ann", 3, {"FAILED": 1, "SUCCEEDED": 2}, {"gpu_hours": 2.5, "waiting_s": 90.0}),
        Usage("bob", 1, {"SUCCEEDED": 1}, {"gpu_hours": 40.0}),
    ]
    with portal.client() as client:
        for path in ("/users", "/queues", "/users?since=24h&sort=jobs"):
            Page(client.get(path).text)
        text = client.get("/users").text
        assert text.index(">bob</a>") < text.index(">ann</a>")
        text = client.get("/users?sort=jobs").text
        assert text.index(">ann</a>") < text.index(">bob</a>")
        assert client.get("/users?sort=x").status_code == 400
        assert client.get("/api/usage?by=queue&since=7d").json()["usage"][0]["key"] == "ann"
        assert client.get("/api/usage?by=x").status_code == 400


def test_a_history_that_could_not_be_read_is_read_again() -> None:
    source = a_source(problems=("summary.json: Permission denied",))
    whole = a_source().held
    with FakePortal(source).client() as client:
        assert "Permission denied" in client.get(JOB).text
        assert "Permission denied" in client.get(f"{JOB}api/job").text
        source.held = whole
        time.sleep(1)
        for path in ("", "story", "api/job"):
            assert "Permission denied" not in client.get(JOB + path).text, path


def test_a_running_job_is_kept_for_each_viewer_by_himself() -> None:
    row = a_row(state="RUNNING", readers=("user:ann", "user:bob"))
    portal = FakePortal(a_source(row, True))
    for name in ("ann", "bob"):
        portal.viewer = Viewer(name)
        text = f"as {name}"
        source = a_source(row, True, job={"diagnostics": text}, events=(an_event(1, text),))
        read = source.record

        def slowly(*asked: Any, read: Any = read, **more: Any) -> Any:
            time.sleep(0.2)
            return read(*asked, **more)

        source.record = slowly  # type: ignore[method-assign]
        portal.sources["here", row.app_id] = source
        with portal.client() as client:
            for path in ("", "story", "api/job"):
                assert text in client.get(JOB + path).text, (name, path)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/jobs?search=long", "there is no parameter 'search'"),
        ("/api/jobs?stat=FAILED", "did you mean state?"),
        ("/api/usage?form=user", "there is no parameter 'form'"),
        ("/api/trends?tags=x", "did you mean tag?"),
        (JOB + "api/events?sinse=3", "did you mean since?"),
    ],
)
def test_the_api_refuses_parameters_that_it_does_not_know(path: str, words: str) -> None:
    with FakePortal(a_source()).client() as client:
        answer = client.get(path)
        assert answer.status_code == 400 and words in answer.json()["error"]
        assert client.get("/jobs?search=long").status_code == 200, "a page's address may be old"


def test_what_is_refused_of_a_log_is_json() -> None:
    with FakePortal(a_source()).client() as client:
        for path, status in (("logs/worker:0/none", 404), ("logs/worker:0/stdout?offset=zz", 400)):
            answer = client.get(JOB + path)
            assert answer.status_code == status and answer.json()["error"]


def test_a_running_job_shown_from_history_is_named_as_such() -> None:
    with FakePortal(a_source(a_row(state="RUNNING"))).client() as client:
        text = client.get(JOB).text
        assert "This is from its history" in text and "Took" not in text
    with FakePortal(a_source(running=True)).client() as client:
        text = client.get(JOB).text
        assert "This is from its history" not in text and "data-ticks=" in text


def test_a_job_that_has_ended_has_nothing_to_end() -> None:
    with FakePortal(a_source()).client() as client:
        answer = client.get(JOB + "end")
        assert answer.status_code == 403 and "ended as SUCCEEDED" in answer.text
        assert "tony kill" not in answer.text


def test_the_list_of_who_may_end_a_job_is_that_of_its_kept_configuration() -> None:
    source = a_source(a_row(state="RUNNING", finished=None, readers=("*",)), running=True)
    lists: List[str] = []

    def may_end(viewer: Viewer, row: JobRow, find_modify_acl: Callable[[], str]) -> bool:
        lists.append(find_modify_acl())
        return lists[-1] == "bob"

    def unreadable() -> Tuple[ConfigEntry, ...]:
        raise OSError("damaged")

    def again() -> FakePortal:
        """Without what was kept of the job."""
        portal = FakePortal(source, viewer=Viewer("bob"))
        portal.endings.may_end = may_end  # type: ignore[method-assign]
        return portal

    with again().client() as client:
        assert "End this job" not in client.get(JOB).text
        assert client.get(f"{JOB}end").status_code == 403
    source.entries = (ConfigEntry("tony.yarn.acl.modify", "bob", "--conf"),)
    with again().client() as client:
        assert "End this job" in client.get(JOB).text
        assert client.get(f"{JOB}end").status_code == 200
    source.config = unreadable  # type: ignore[method-assign]
    with again().client() as client:
        assert "End this job" not in client.get(JOB).text
        assert client.get(f"{JOB}end").status_code == 403
    assert set(lists) == {"", "bob"}

"""The job's page over HTTP, of a real master."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fuzzing import fuzz, mutations
from tests.master.shell import ScriptedPool, Shell, a_job, until
from tony_core import prometheus
from tony_core.job.spec import MasterSpec, Program, Resources, Role
from tony_core.master.web.logs import PIECE, TAIL, read_ends, read_log
from tony_core.master.web.page_html import inside, page
from tony_core.protocol.messages import (
    Ended,
    Measured,
    Prepare,
    Ready,
    Reported,
    Running,
    Serving,
    Start,
    Stop,
    Stopped,
)

ONE = Role("worker", 1, Resources(), "true")
A_JOB: Dict[str, Any] = {
    "name": "big", "state": "RUNNING", "progress": 0.0, "description": "", "links": {},
    "waiting": "", "diagnostics": "", "budgets": {}, "app_id": "a", "user": "u", "queue": "q",
    "session": 0, "started": 1.0, "finished": None, "attempt": 1, "tags": [],
}  # fmt: skip
NASTY = "<script>alert('x')</script>&\"'"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path, a_job(ONE).replace(name=NASTY, tags=(NASTY,))) as made:
        made.launched(1)
        yield made


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted executors get no Shutdown."""
    monkeypatch.setattr("tony_core.master.master.STOP_EXTRA_S", 0.1)


class Wellformed(HTMLParser):
    """Every element that is opened is closed, in order."""

    VOID = {"meta", "br", "img", "input", "link"}
    LOOSE = {"td", "th", "tr"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: List[str] = []
        self.scripts = 0
        self.links: List[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.scripts += tag == "script"
        self.links += [value for name, value in attrs if name in ("href", "src")]
        if tag not in self.VOID | self.LOOSE:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.LOOSE:
            assert self.open.pop() == tag


def test_the_page_is_whole_escaped_and_relative(shell: Shell) -> None:
    (executor,) = shell.gang(1)
    executor.send_messages(Ended(0, 1, stderr_tail=[NASTY]))
    until(lambda: shell.story("root-cause"))
    status, body, headers = shell.get("/")
    text = body.decode()
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<script>alert" not in text
    parsed = Wellformed(text)
    assert parsed.scripts == 1
    assert parsed.links and not [x for x in parsed.links if x.startswith(("/", "http"))]
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    nonce = re.search(r"script-src 'nonce-(\w+)'", policy)
    assert nonce and f'<script nonce="{nonce[1]}">' in text
    assert " style=" not in text and " onclick" not in text, "the policy would refuse it"
    assert shell.get("/")[2]["Content-Security-Policy"] != policy, "a nonce is used once"


def test_without_a_script_it_refreshes_itself(shell: Shell) -> None:
    assert b'<noscript><meta http-equiv="refresh"' in shell.get("/")[1]


def test_what_the_script_fetches_is_the_inside_of_the_page(shell: Shell) -> None:
    inside = shell.get("/inside")
    assert inside[2]["X-Tony-Over"] == "0"
    Wellformed(inside[1].decode())
    assert b"<html" not in inside[1]


@pytest.mark.parametrize("path", ["/nothing", "/api", "/api/secret", "/logs/", "/logs/worker:0/x"])
def test_what_is_not_there(shell: Shell, path: str) -> None:
    assert shell.get(path)[0] == 404


@pytest.mark.parametrize("path", ["/", "/api/job", "/logs/worker:0/stdout"])
def test_nothing_can_be_posted(shell: Shell, path: str) -> None:
    status, _, headers = shell.get(path, "POST", b"x")
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"


def test_head(shell: Shell) -> None:
    status, body, headers = shell.get("/api/job", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 100


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:9", 200),
        ("10.2.3.4", 200),
        ("evil.example", 403),
        ("evil.example:80", 403),
    ],
)
def test_a_foreign_host_name_is_refused(shell: Shell, host: str, status: int) -> None:
    assert shell.get("/api/job", Host=host)[0] == status


def test_an_answer_that_has_not_changed_is_not_sent_again(shell: Shell) -> None:
    (executor,) = shell.gang(1)
    until(lambda: shell.json("/api/job")["counts"].get("running"))
    time.sleep(0.05)
    _, _, headers = shell.get("/api/tasks")
    again = shell.get("/api/tasks", If_None_Match=headers["ETag"])
    assert (again[0], again[1]) == (304, b"")
    executor.send_messages(Measured(0, {"rss_mb": 1.0}))
    until(lambda: shell.get("/api/tasks", If_None_Match=headers["ETag"])[0] == 200)


def test_events_since_a_number(shell: Shell) -> None:
    everything = shell.json("/api/events")
    numbers = [event["n"] for event in everything["events"]]
    assert everything["next"] == numbers[-1]
    assert set(everything["events"][0]) == {
        "n", "time", "kind", "text", "weight", "task", "session", "fields",
    }  # fmt: skip
    rest = shell.json(f"/api/events?since={numbers[0]}")
    assert [event["n"] for event in rest["events"]] == numbers[1:]
    assert shell.json(f"/api/events?since={numbers[-1]}") == {"events": [], "next": numbers[-1]}
    assert shell.get("/api/events?since=x")[0] == 400
    assert shell.json("/api/events?since=99999")["next"] == numbers[-1]


def test_a_long_poll_waits_for_the_next_line_and_not_longer(shell: Shell) -> None:
    (executor,) = shell.gang(1)
    until(lambda: shell.story("task-state")[-1:] == ["worker:0 running on node1"])
    last = shell.json("/api/events")["next"]
    began = time.monotonic()
    assert shell.json(f"/api/events?since={last}&wait=0.2")["events"] == []
    assert time.monotonic() - began > 0.15
    found: Dict[str, Any] = {}
    thread = threading.Thread(
        target=lambda: found.update(shell.json(f"/api/events?since={last}&wait=20"))
    )
    thread.start()
    time.sleep(0.1)
    executor.send_messages(Ended(0, 1))
    thread.join(60)
    assert found["events"][0]["n"] == last + 1


def test_a_waiting_reader_gets_the_end(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE)) as shell:
        (executor,) = shell.gang(1)
        kinds: List[str] = []

        def follow() -> None:
            last = 0
            while "job-ended" not in kinds:
                answer = shell.json(f"/api/events?since={last}&wait=20")
                last = answer["next"]
                kinds.extend(event["kind"] for event in answer["events"])

        thread = threading.Thread(target=follow)
        thread.start()
        shell.finish(executor)
        shell.go(executor)
        shell.join()
        thread.join(60)
        assert kinds[-1] == "job-ended"


def test_the_root_leads_to_tensorboard_first_when_the_job_asks(tmp_path: Path) -> None:
    job = a_job(ONE, program=Program(tensorboard_first=True))
    with Shell(tmp_path, job) as shell:
        (executor,) = shell.gang(1)
        mark = b'http-equiv="refresh" content="0; url=tensorboard/?tensorboardColab=true"'
        assert mark not in shell.get("/")[1], "not before it answers"
        executor.send_messages(Serving("tensorboard", 6006))
        until(lambda: mark in shell.get("/")[1])
        assert mark not in shell.get("/job")[1], "the page itself is still to be had"
        shell.finish(executor)
        shell.go(executor)


def test_metrics_are_drawn(shell: Shell) -> None:
    (executor,) = shell.gang(1)
    for step in range(5):
        executor.send_messages(Reported(0, None, {"loss": 5.0 - step}, step))
    text = until(lambda: (t := shell.get("/")[1].decode()).count("<polyline") and t)
    assert "loss" in text
    Wellformed(text)


def test_a_chart_breaks_where_a_further_session_began(shell: Shell) -> None:
    (executor,) = shell.gang(1)

    def report(session: int) -> None:
        for step in range(3):
            executor.send_messages(Reported(session, None, {"loss": 5.0 - step}, step))

    report(0)
    until(lambda: "<polyline" in shell.get("/")[1].decode())
    executor.send_messages(Ended(0, 1))
    executor.wait_for(Stop)
    executor.send_messages(Stopped(0, True))
    ports = executor.wait_for(Prepare, 2).ports
    executor.send_messages(Ready(1, "127.0.0.1", dict.fromkeys(ports, 5000)))
    executor.wait_for(Start, 2)
    executor.send_messages(Running(1, 1234))
    report(1)

    def loss_of(path: str) -> str:
        return shell.get(path)[1].decode().partition("<b>loss</b>")[2].partition("</svg>")[0]

    for path in ("/", "/inside"):
        chart = until(lambda p=path: (t := loss_of(p)).count("<polyline") == 2 and t)
        assert chart.count("<title>worker:0") == 1, "one line, in two parts"


def test_logs_of_a_task(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "stdout").write_bytes(b"0123456789")

    class Pool(ScriptedPool):
        def grant(self, role: str) -> Any:
            from tony_core.schedulers.container_pool import Allocated, Container

            made = Container("c1", "node1", role, Resources(), log_url=folder.as_uri())
            self.sink(Allocated((made,)))
            return made

    with Shell(tmp_path, a_job(ONE, master=MasterSpec(user_retries=0)), Pool()) as shell:
        shell.gang(1)
        status, body, headers = shell.get("/logs/worker:0/stdout?offset=4")
        assert (status, body, headers["X-Next-Offset"]) == (200, b"456789", "10")
        assert headers["Content-Type"].startswith("text/plain")
        assert shell.get("/logs/worker:0/stdout")[1] == b"0123456789"
        assert shell.get("/logs/worker:0/stdout?offset=-3")[1] == b"789"
        assert shell.get("/logs/worker:0/stdout?offset=x")[0] == 400
        assert shell.get("/logs/worker:0/stdout?container=c1")[0] == 200
        assert shell.get("/logs/worker:0/stdout?container=c2")[0] == 404
        assert shell.get("/logs/worker:1/stdout")[0] == 404
        assert shell.get("/logs/worker:0")[1] == b"===== stdout\n0123456789\n"
        (folder / "stderr").write_bytes(b"oh\n")
        for path in ("/logs/worker:0", "/logs/worker:0/"):
            status, body, headers = shell.get(path)
            assert (status, body) == (200, b"===== stdout\n0123456789\n===== stderr\noh\n\n")
            assert headers["Content-Type"].startswith("text/plain")
        assert shell.get("/logs/worker:1")[0] == 404
        for name in ("stdout", "stderr"):
            (folder / name).write_bytes(b"")
        assert shell.get("/logs/worker:0")[:2] == (200, b"nothing was written yet\n")
        (folder / "stdout").write_bytes(b"0123456789")
        (folder / "stderr").write_text(NASTY)
        status, body, headers = shell.get("/logs")
        assert status == 200 and headers["Content-Type"].startswith("text/html")
        found = Wellformed(body.decode())
        assert {"job", "logs/worker%3A0/stdout", "logs/worker%3A0/stderr"} <= set(found.links)
        assert found.scripts == 0 and "0123456789" in body.decode()


def test_logs_at_a_node_are_linked_there(tmp_path: Path) -> None:
    """The master cannot read them."""
    url = "http://node1:8042/node/containerlogs/c1/ann"

    class Pool(ScriptedPool):
        def grant(self, role: str) -> Any:
            from tony_core.schedulers.container_pool import Allocated, Container

            made = Container("c1", "node1", role, Resources(), log_url=url)
            self.sink(Allocated((made,)))
            return made

    with Shell(tmp_path, a_job(ONE, master=MasterSpec(user_retries=0)), Pool()) as shell:
        shell.gang(1)
        for path in ("/job", "/logs"):
            links = Wellformed(shell.get(path)[1].decode()).links
            assert {f"{url}/stdout", f"{url}/stderr"} <= set(links), path


ODD = ["", "-", "²", "%C2%B2", "1e9", "9" * 19, "9" * 5000, "-" + "9" * 5000, "%ed%a0%80", "x",
       "+1", "1.5", "nan"]  # fmt: skip


def test_odd_numbers_are_the_readers_fault(shell: Shell) -> None:
    for text in ODD:
        text = text.encode().decode("latin-1")
        for path in ("/logs/worker:0/stdout?offset=", "/logs/x/x?offset=", "/api/events?since="):
            status, body, _ = raw(shell, f"{path}{text}")
            assert status == 400, path
            assert b"is not a whole number" in body
    for text in ("nan", "-1", "1e999", "%C2%B2"):
        assert raw(shell, f"/api/events?wait={text}&since=99999")[0] == 400


def test_odd_names_are_not_there(shell: Shell) -> None:
    for odd in ("%ed%a0%80", "%ff", "\xff", "%00", "%2e%2e", "%0d%0aX:%20y", "\xc2\xb2"):
        for path in (f"/{odd}", f"/logs/{odd}/stdout", f"/logs/worker:0/{odd}",
                     f"/logs/worker:0/x?container={odd}", f"/{odd}?{odd}={odd}"):  # fmt: skip
            assert raw(shell, path)[0] == 404, path


def raw(shell: Shell, target: str) -> Tuple[int, bytes, str]:
    """The answer to a target as it stands here: a well-behaved client would not send it."""
    host, _, port = shell.pool.page_url[len("http://") : -1].rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=60) as caller:
        caller.sendall(f"GET {target} HTTP/1.1\r\nConnection: close\r\n\r\n".encode("latin-1"))
        answer = b"".join(iter(lambda: caller.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body, head.decode("latin-1")


def test_half_a_surrogate_names_no_log(tmp_path: Path) -> None:
    for name in ("\ud800", "\udcff", "x" * 5000):
        assert read_log(str(tmp_path), name, None, {}).status == 404


@fuzz(by_day=100, data=mutations(
    b"GET /logs/worker:0/stdout?offset=-3&container=c1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /api/events?since=3&wait=0 HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
    b"POST /job HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nOrigin: null\r\n\r\na",
    b"GET /tensorboard/data?x=1 HTTP/1.1\r\nHost: localhost\r\nCookie: a=b\r\n\r\n",
))  # fmt: skip
def test_damaged_requests_find_no_fault_of_the_pages_own(shell: Shell, data: bytes) -> None:
    host, _, port = shell.pool.page_url[len("http://") : -1].rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=60) as caller:
        caller.sendall(data)
        caller.shutdown(socket.SHUT_WR)
        try:
            answer = b"".join(iter(lambda: caller.recv(65536), b""))
        except ConnectionResetError:
            answer = b""  # refused before it took all of it
    for status in re.findall(rb"HTTP/1\.1 (\d+) ", answer):
        assert status != b"500"


def test_a_log_is_a_file_of_its_folder_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (tmp_path / "secret").write_text("no")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "sub").mkdir()
    for name in ("link", "sub", "../secret", "..", ".hidden", "a\0b", "missing"):
        assert read_log(str(folder), name, None, {}).status == 404, name
    assert read_log("", "stdout", None, {}).status == 404
    assert read_log("http://elsewhere/logs", "stdout", None, {}).status == 404


def test_a_task_that_has_written_nothing_yet(tmp_path: Path) -> None:
    """Its folder comes with its program, its files with their first bytes."""
    for folder in (tmp_path / "none", tmp_path):
        for name in ("", "stdout", "stderr"):
            answer = read_log(str(folder), name, None, {})
            assert (answer.status, answer.body) == (200, b"nothing was written yet\n"), name
        assert read_log(str(folder), "stdout", "0", {}).status == 404, "no bytes of the log"
        assert read_ends(str(folder)) == {}
    (tmp_path / "stdout").symlink_to(tmp_path / "x")
    (tmp_path / "stderr").mkdir()
    assert read_log(str(tmp_path), "", None, {}).status == 404


def test_a_long_log_comes_in_pieces(tmp_path: Path) -> None:
    data = b"x" * (PIECE + 5)
    (tmp_path / "stdout").write_bytes(data)
    first = read_log(str(tmp_path), "stdout", "0", {})
    assert len(first.body) == PIECE
    rest = read_log(str(tmp_path), "stdout", first.headers["X-Next-Offset"], {})
    assert len(rest.body) == 5
    assert len(read_log(str(tmp_path), "stdout", None, {}).body) == TAIL
    assert read_log(str(tmp_path), "stdout", "99999999", {}).body == b""


def charts_of(text: str) -> Dict[str, Dict[str, str]]:
    """Chart -> task -> its colour."""
    found = {}
    for part in text.split('<div class="chart">')[1:]:
        lines = re.findall(r'<polyline class="(c\d)"[^>]*><title>([^<]*): ', part)
        found[re.findall("<b>(.*?)</b>", part)[0]] = {task: colour for colour, task in lines}
    return found


def tasks_named(*names: str) -> List[Dict[str, Any]]:
    """As the page's data says them."""
    base: Dict[str, Any] = {
        "node": "n", "exit_code": None, "signal": 0, "progress": None, "message": "",
        "stderr_tail": [], "runs": [], "container": "", "measures": {}, "usage": {},
        "duration_s": 1.0, "state": "running", "gpus": [],
    }  # fmt: skip
    return [{**base, "task": name} for name in names]


def test_a_task_has_one_colour_in_all_charts_and_a_legend() -> None:
    line = [[1.0, 2.0], [2.0, 3.5]]
    metrics = {
        "task": {  # in the order of their first word
            "worker:1": {"loss": line, "rss_mb": line, "only_mine": [[1.0, 7.0], [2.0, 8.0]]},
            "worker:0": {"loss": line, "rss_mb": line},
            "ps:0": {"rss_mb": line},
        }
    }
    text = inside(A_JOB, tasks_named("ps:0", "worker:0", "worker:1"), metrics, [])
    colours = {"ps:0": "c0", "worker:0": "c1", "worker:1": "c2"}
    assert charts_of(text) == {
        "loss": {"worker:0": "c1", "worker:1": "c2"},
        "only_mine": {"worker:1": "c2"},
        "rss_mb": colours,
    }
    legend = text.partition('<ul class="legend')[2].partition("</ul>")[0]
    assert dict(re.findall(r'<i class="(c\d)"></i>([^<]*)', legend)) == {
        colour: task for task, colour in colours.items()
    }
    mine = text.partition("<b>only_mine</b>")[2].partition("<svg")[0]
    assert '<i class="c2"></i><span class="soft">worker:1</span> 8<' in mine
    Wellformed(text)


def test_of_many_tasks_those_that_report_are_drawn() -> None:
    line = [[1.0, 2.0], [2.0, 3.5]]
    names = [f"worker:{n}" for n in range(30)]
    metrics: Dict[str, Any] = {"task": {name: {"rss_mb": line} for name in names}}
    metrics["task"]["worker:20"]["loss"] = line
    text = inside(A_JOB, tasks_named(*names), metrics, [])
    found = charts_of(text)
    assert set(found["rss_mb"]) == {*names[:7], "worker:20"}
    assert found["loss"] == {"worker:20": found["rss_mb"]["worker:20"]}
    assert "and 22 more" in text.partition('<ul class="legend')[2].partition("</ul>")[0]
    metrics["task"]["worker:29"]["rare"] = line
    for name in names[:15]:
        metrics["task"][name]["loss"] = line
    found = charts_of(inside(A_JOB, tasks_named(*names), metrics, []))
    assert set(found["loss"]) == set(names[:8])
    assert found["rare"] == {"worker:29": "c8"}


def test_which_gpus_a_task_has() -> None:
    (task,) = tasks_named("worker:0")
    task["gpus"] = ["0", "GPU-8f2d6a1c-93b0-4d6e", "<b>"]
    text = page(A_JOB, [task], {"task": {}}, [], "n", 0)
    assert "GPU 0, GPU-8f2d6a1c, &lt;b&gt;</span>" in text


def test_a_page_of_thousands_of_tasks_shows_the_troubled_ones() -> None:
    tasks = tasks_named(*(f"worker:{n}" for n in range(3000)))
    tasks[2999]["state"] = "failed"
    text = page(A_JOB, tasks, {"task": {}}, [], "n", 0)
    assert "worker:2999" in text
    assert text.count("<tr>") < 250
    assert "and 2800 more" in text
    json.dumps(text)


def test_of_an_elastic_role_the_page_shows_how_many_are_there() -> None:
    job = {**A_JOB, "elastic": {"worker": {"there": 3, "least": 2, "most": 4}}}
    assert "3 running · worker 3 of 2..4<" in page(
        job, tasks_named("worker:0", "worker:1", "worker:2"), {"task": {}}, [], "n", 0
    )


def test_the_page_leads_to_the_advice() -> None:
    text = page(A_JOB, tasks_named("worker:0"), {"task": {}}, [], "n", 0)
    assert f"<code>tony advise {A_JOB['app_id']}</code></footer>" in text
    assert "/advice" not in text
    url = "https://portal.example/x/jobs/app_1"
    with_portal = {**A_JOB, "links": {"portal": url}}
    text = page(with_portal, tasks_named("worker:0"), {"task": {}}, [], "n", 0)
    assert f"{url}/advice" in Wellformed(text).links
    odd = {**A_JOB, "links": {"portal": "javascript:alert(1)"}, "app_id": NASTY}
    text = page(odd, tasks_named("worker:0"), {"task": {}}, [], "n", 0)
    assert "javascript" not in text and NASTY not in text


class TestPrometheus:
    def test_figures_of_the_job(self, shell: Shell) -> None:
        (executor,) = shell.gang(1)
        executor.send_messages(
            Measured(0, {"rss_mb": 2.0}), Reported(0, 0.5, {NASTY: 0.25}, step=10)
        )
        until(lambda: b"tony_task_reported{" in shell.get("/metrics")[1])
        status, body, headers = shell.get("/metrics")
        assert status == 200
        assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        found = {
            family.name: family.samples for family in text_string_to_metric_families(body.decode())
        }
        assert found["tony_job_info"][0].labels["name"] == NASTY
        (sample,) = found["tony_task_reported"]
        assert (sample.labels["name"], sample.value) == (NASTY, 0.25)
        assert found["tony_task_memory_rss_bytes"][0].value == 2 * 2**20
        assert "tony_job_waiting_seconds" not in found

    def test_is_made_at_most_once_a_second(
        self, shell: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: List[int] = []
        original = prometheus.write_job

        def write_job(*arguments: Any) -> bytes:
            made.append(1)
            return original(*arguments)

        monkeypatch.setattr(prometheus, "write_job", write_job)
        monkeypatch.setattr("tony_core.master.publish.EXPOSED_S", 1000.0)
        for _ in range(20):
            assert shell.get("/metrics")[0] == 200
        assert len(made) == 1

    def test_speed_of_steps(self, shell: Shell) -> None:
        (executor,) = shell.gang(1)
        executor.send_messages(Reported(0, None, {}, step=10))
        until(lambda: shell.json("/api/tasks")["tasks"][0]["step"] == 10)
        time.sleep(0.05)
        executor.send_messages(Reported(0, None, {}, step=20))
        until(lambda: shell.json("/api/tasks")["tasks"][0]["measures"].get("steps_per_second"))

    def test_has_the_rules_of_the_page(self, shell: Shell) -> None:
        assert shell.get("/metrics", Host="evil.example")[0] == 403
        assert shell.get("/metrics", "POST", b"x")[0] == 405

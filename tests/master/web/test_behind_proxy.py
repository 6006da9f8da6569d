"""The job's page and TensorBoard behind a real ResourceManager's proxy, in a real browser."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from tests.browser import Browser
from tests.cluster.hadoop.fixture import GetHadoop
from tests.master.shell import ScriptedExecutor, a_job
from tests.master.web.behind_proxy import BehindProxy
from tony_core.client.errors import PageError
from tony_core.client.page import JobPage
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.job.spec import Job, Program, Resources, Role, Timeouts
from tony_core.protocol.messages import Noted, Serving

pytestmark = pytest.mark.cluster

PATIENCE_S = 60.0
ONE = Role("worker", 1, Resources(), "true")

EVENTS = """
import struct, sys, time, zlib
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

def chunk(kind, data):
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check

rows = b"".join(
    b"\\0" + bytes(v for x in range(64) for v in (x * 4, y * 5, 128)) for y in range(48)
)
png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 48, 8, 2, 0, 0, 0))
png += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
writer = EventFileWriter(sys.argv[1])

def add(step, value):
    writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))

for step in range(20):
    add(step, Summary.Value(tag="the_loss", simple_value=1.0 / (step + 1)))
image = Summary.Image(height=48, width=64, colorspace=3, encoded_image_string=png)
add(1, Summary.Value(tag="the_picture", image=image))
nodes = [
    NodeDef(name="the_input", op="Placeholder"),
    NodeDef(name="weights", op="Const"),
    NodeDef(name="the_output", op="MatMul", input=["the_input", "weights"]),
]
graph = GraphDef(node=nodes).SerializeToString()
writer.add_event(Event(wall_time=time.time(), graph_def=graph))
writer.close()
"""

#: What is drawn, wherever the page hides it: [widths of images, nodes of graphs, curves].
DRAWN = """(function(){
var images=[],nodes=[],curves=0;
(function walk(root){root.querySelectorAll('*').forEach(function(e){
 if(e.tagName==='IMG')images.push(e.naturalWidth);
 if(e.matches('g.node'))nodes.push(e.getAttribute('data-name'));
 if(e.matches('line-chart canvas, line-chart svg path'))curves++;
 if(e.shadowRoot)walk(e.shadowRoot);
})})(document);
return JSON.stringify([images,nodes,curves]);
})()"""


def until(what: Callable[[], Any], why: str) -> Any:
    end = time.monotonic() + PATIENCE_S
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, f"timed out waiting for {why}"
        time.sleep(0.1)


def quiet_job(**changes: Any) -> Job:
    """Its scripted executor need not say that it lives."""
    return a_job(ONE, timeouts=Timeouts(heartbeat_s=60.0, kill_grace_s=0.2), **changes)


@pytest.fixture
def behind(hadoop: GetHadoop, tmp_path: Path) -> Iterator[Callable[..., BehindProxy]]:
    opened: List[BehindProxy] = []

    def make(job: Job, **proxy: str) -> BehindProxy:
        cluster = hadoop()
        identity = ClusterIdentity(cluster.user)
        made = BehindProxy(str(cluster.conf_dir), identity, tmp_path / "job", job, **proxy)
        opened.append(made.__enter__())
        return made

    (tmp_path / "job").mkdir()
    yield make
    for made in opened:
        made.__exit__(None, None, None)


@pytest.fixture
def tensorboard(tmp_path: Path, environment: Callable[[str], Path]) -> Iterator[int]:
    """One that serves a curve, a picture and a graph: its port."""
    programs = environment("tensorboard") / "bin"
    events = tmp_path / "events"
    subprocess.run([programs / "python", "-c", EVENTS, events], check=True, timeout=60)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    words = [programs / "tensorboard", "--logdir", events, "--host", "127.0.0.1"]
    with (tmp_path / "tensorboard.log").open("wb") as log:
        process = subprocess.Popen(
            [*words, "--port", str(port), "--load_fast", "false"], stdout=log, stderr=log
        )
    try:

        def answers() -> bool:
            assert process.poll() is None, (tmp_path / "tensorboard.log").read_text()
            try:
                url = f"http://127.0.0.1:{port}/data/plugin/graphs/info"
                with urllib.request.urlopen(url, timeout=60) as answer:
                    return bool(json.loads(answer.read()))
            except (urllib.error.URLError, ConnectionError):
                return False

        until(answers, "TensorBoard")
        yield port
    finally:
        process.kill()
        process.wait(60)


def get(url: str, **headers: str) -> Tuple[int, str, bytes]:
    """(status, where it came from in the end, body)."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=20
        ) as answer:
            return answer.status, answer.geturl(), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.geturl(), error.read()


def serving(made: BehindProxy, port: int) -> ScriptedExecutor:
    (executor,) = made.shell.gang(1)
    executor.send_messages(Serving("tensorboard", port))
    until(lambda: made.shell.master._page.tensorboard, "the chief's word")
    return executor


def test_the_client_reads_the_page_through_it(behind: Callable[..., BehindProxy]) -> None:
    made = behind(quiet_job())
    (executor,) = made.shell.gang(1)
    page = JobPage(made.url)
    seen: List[int] = []
    made.shell.master.client_seen = lambda: seen.append(1)
    try:
        assert page.job()["links"]["page"] == made.url
        assert seen, "the lease is renewed through the proxy too"
        assert [task["task"] for task in page.tasks()] == ["worker:0"]
        _, following = page.events(0)
        executor.send_messages(Noted("info", "something new"))

        def news() -> bool:
            nonlocal following
            events, following = page.events(following, 5.0)
            return any("something new" in event["text"] for event in events)

        until(news, "the event")
        status, _, body = get(made.url + "api/job?user.name=eve")
        assert status == 403 and b"eve may not read this page" in body
        made.finish()
        until(lambda: made.client.report(made.application).state == "FINISHED", "the end")
        with pytest.raises(PageError, match="not the job's page"):
            page.job()
    finally:
        page.close()
    assert "/cluster/app/" in get(made.url)[1], "the ResourceManager's own page has to do"


def test_where_an_ended_job_is_found(behind: Callable[..., BehindProxy]) -> None:
    made = behind(quiet_job())
    portal = f"http://localhost:{made.shell.master._server.port}/jobs/application_1_0001"
    made.finish(portal)
    until(lambda: made.client.report(made.application).state == "FINISHED", "the end")
    assert made.client.report(made.application).tracking_url == portal


def test_the_page_goes_on_by_itself(behind: Callable[..., BehindProxy], browser: Browser) -> None:
    made = behind(quiet_job())
    (executor,) = made.shell.gang(1)
    tab = browser.open(made.url)
    browser.shows(tab, ">worker:0<", "RUNNING")
    executor.send_messages(Noted("info", "something new"))
    browser.shows(tab, "something new")
    assert [text for text in browser.complaints if "favicon.ico" not in text] == []


def test_tensorboard_draws_curves_pictures_and_graphs(
    behind: Callable[..., BehindProxy], browser: Browser, tensorboard: int
) -> None:
    made = behind(quiet_job())
    serving(made, tensorboard)

    def drawn(tab: str) -> Tuple[List[int], List[str], int]:
        answer = browser.call("Runtime.evaluate", tab, expression=DRAWN)
        images, nodes, curves = json.loads(answer["result"].get("value", "[[],[],0]"))
        return images, nodes, curves

    def open_at(plugin: str) -> str:
        return browser.open(f"{made.url}tensorboard/?tensorboardColab=true#{plugin}")

    tab = open_at("timeseries")
    browser.shows(tab, "the_loss")
    until(lambda: drawn(tab)[2] > 0, f"a curve: {browser.complaints}")
    tab = open_at("images")
    until(lambda: 64 in drawn(tab)[0], f"the picture: {browser.complaints}")
    tab = open_at("graphs")
    until(lambda: {"the_input", "the_output"} <= set(drawn(tab)[1]), "the graph's nodes")


@pytest.mark.parametrize("path", ["", "tensorboard"])
def test_a_browser_is_sent_to_tensorboard(
    behind: Callable[..., BehindProxy], browser: Browser, tensorboard: int, path: str
) -> None:
    made = behind(quiet_job(program=Program(tensorboard_first=not path)))
    serving(made, tensorboard)
    tab = browser.open(made.url + path)
    browser.shows(tab, "<tb-webapp", "the_loss")
    where: Dict[str, Any] = browser.call("Runtime.evaluate", tab, expression="location.href")
    assert where["result"]["value"].startswith(f"{made.url}tensorboard/?")

"""TensorBoards on demand: their processes, places and ends; and the way to them."""

from __future__ import annotations

import contextlib
import getpass
import os
import resource
import socket
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import httpx
import pytest

from tests.client.scripted import APP
from tests.portal.scripted import ROW, Folder, Listed, Opened, Portal
from tony_core.history.reader import JobHistory
from tony_core.portal import connections, tensorboard
from tony_core.portal.index.rows import JobRow
from tony_core.portal.tensorboard import KEY, Instance, InstanceState, TensorBoards
from tony_core.portal.tensorboard_relay import TensorBoardRelay
from tony_core.portal.viewer import Viewer

ME = getpass.getuser()
ANN = Viewer("ann")
EVENTS = "events.out.tfevents.1.host"
#: What answers as TensorBoard does, without its ten seconds of imports.
SERVER = """
import http.server, json, os, socketserver, sys, threading, time
settings = json.loads(sys.stdin.readline())
log_dir = settings["log_dir"]
if os.path.exists(os.path.join(log_dir, "tfevents-crash")):
    sys.exit("the trouble in one line")

class Handler(http.server.BaseHTTPRequestHandler):
    def address_string(self):
        return "relay"
    def log_message(self, *words):
        pass
    def do_GET(self):
        found = {"path": self.path, "headers": dict(self.headers), "env": dict(os.environ)}
        found.update(argv=sys.argv, events=sorted(os.listdir(log_dir)))
        body = json.dumps(found).encode()
        if self.path == "/die":
            os._exit(3)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Set-Cookie", "evil=1")
        self.send_header("Location", "http://evil/")
        self.send_header("Clear-Site-Data", "*")
        self.send_header("ETag", '"7"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(data[::-1])

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

server = Server(settings["socket"], Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
os._exit(0)
"""


class World:
    """TensorBoardOpener over histories in memory; a clock that the test turns."""

    def __init__(self, folder: Path, portal: Portal) -> None:
        self.portal = portal
        self.events = folder / "events"
        self.events.mkdir()
        (self.events / EVENTS).write_bytes(b"x")
        self.now = 100.0
        self.instances = TensorBoards(portal.sources, idle_s=600.0, clock=lambda: self.now)

    def job(self, app_id: str = APP, log_dir: str = "") -> JobRow:
        """A job that names a folder of events."""
        self.portal.folders[app_id] = Folder(
            JobHistory(app_id, {"state": "SUCCEEDED"}), config(log_dir or str(self.events)), ME
        )
        return ROW._replace(app_id=app_id, owner=ME, state="SUCCEEDED")

    def opened(self, row: JobRow, viewer: Viewer = ANN) -> Instance:
        """The instance, as soon as it is ready or has failed."""
        end = time.monotonic() + 60
        found: Optional[Instance] = self.instances.open(row, viewer)
        while found is None or found.state in (InstanceState.COPYING, InstanceState.STARTING):
            assert time.monotonic() < end, "not within 60 s"
            time.sleep(0.02)
            found = self.instances.look(row, viewer)
        return found

    def processes(self) -> List[int]:
        return [one.process.pid for one in self.instances._instances.values() if one.process]


def config(log_dir: str) -> bytes:
    return (
        f"<configuration><property><name>{KEY}</name><value>{log_dir}</value></property>"
        "</configuration>"
    ).encode()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    monkeypatch.setattr(tensorboard, "_SERVER", str(server))
    monkeypatch.setattr(tensorboard, "RETRY_S", 0.0)
    monkeypatch.setenv("THE_PORTALS_SECRET", "x")
    portal = Portal("local")
    Opened(monkeypatch, local=Listed())
    made = World(tmp_path, portal)
    yield made
    made.instances.close()
    portal.close()


@pytest.fixture
def relay(world: World) -> Iterator[TensorBoardRelay]:
    made = TensorBoardRelay(world.instances, "127.0.0.1", 0)
    made.start()
    yield made
    made.close()


def url(relay: TensorBoardRelay, instance: Instance, path: str = "") -> str:
    return relay.url_of(instance.path, "127.0.0.1") + path


class TestOneInstance:
    def test_it_shows_a_copy_and_the_next_look_finds_it_again(
        self, world: World, relay: TensorBoardRelay
    ) -> None:
        row = world.job()
        assert world.instances.look(row, ANN) is None
        instance = world.opened(row)
        assert instance.state is InstanceState.READY, instance.message
        assert world.instances.look(row, ANN) == instance == world.opened(row)
        found = httpx.get(url(relay, instance, "data/x?run=a%2Fb&tag=%20")).json()
        assert found["path"] == "/data/x?run=a%2Fb&tag=%20"
        assert found["events"] == [EVENTS]
        assert len(world.processes()) == 1

    def test_its_process_knows_nothing_of_the_portal(
        self, world: World, relay: TensorBoardRelay
    ) -> None:
        instance = world.opened(world.job())
        found = httpx.get(url(relay, instance), headers={"Authorization": "x", "X-Y": "z"}).json()
        assert set(found["env"]) <= {"PATH", "LANG", "TZ", "HOME", "TMPDIR", "LC_CTYPE"}
        assert not any(instance.path.strip("/") in word for word in found["argv"])
        assert not {"Authorization", "X-Y", "Cookie"} & set(found["headers"])

    def test_each_viewer_has_his_own(self, world: World, relay: TensorBoardRelay) -> None:
        row = world.job()
        anns, bobs = world.opened(row), world.opened(row, Viewer("bob"))
        assert anns.path != bobs.path
        assert len(world.processes()) == 2

    @pytest.mark.parametrize(
        ("log_dir", "expected"),
        [
            ("/nowhere", "there is no folder /nowhere on the portal's machine"),
            ("/proc/1", "daemon|no event files|does not belong|cannot be read"),
            ("s3://bucket/logs", "does not say whose a file is"),
            ("relative/logs", "was removed with them: name a folder that stays"),
            ("file://host/x", "a file URL has three slashes"),
        ],
    )
    def test_why_there_is_none(self, world: World, log_dir: str, expected: str) -> None:
        instance = world.opened(world.job(log_dir=log_dir))
        assert instance.state is InstanceState.FAILED
        assert any(part in instance.message for part in expected.split("|")), instance.message

    def test_a_job_that_names_no_folder(self, world: World) -> None:
        row = world.job()
        world.portal.folders[APP] = Folder(JobHistory(APP), b"<configuration/>", ME)
        assert f"({KEY} is not in its configuration)" in world.opened(row).message

    def test_a_folder_of_another_user(self, world: World) -> None:
        row = world.job()._replace(owner="daemon")
        assert "does not belong to daemon" in world.opened(row).message

    def test_one_that_does_not_start_can_be_tried_again(self, world: World) -> None:
        (world.events / "tfevents-crash").write_bytes(b"")
        row = world.job()
        instance = world.opened(row)
        assert instance.message == "TensorBoard did not start: the trouble in one line"
        (world.events / "tfevents-crash").unlink()
        assert world.opened(row).state is InstanceState.READY

    def test_a_python_without_tensorboard(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.undo()
        instance = world.opened(world.job())
        assert "has no TensorBoard. Who runs the portal installs it" in instance.message
        assert sys.executable in instance.message


class TestEnds:
    def test_what_is_not_used_ends(self, world: World, relay: TensorBoardRelay) -> None:
        instance = world.opened(world.job())
        (process,) = world.processes()
        (folder,) = [made.folder for made in world.instances._instances.values()]
        world.now += 500
        assert httpx.get(url(relay, instance)).status_code == 200
        world.now += 500
        world.instances.end_idle()
        assert world.processes() == [process], "it was used"
        world.now += 101
        world.instances.end_idle()
        assert world.processes() == []
        assert not os.path.exists(f"/proc/{process}") and not os.path.exists(folder)
        answer = httpx.get(url(relay, instance))
        assert answer.status_code == 404 and "has ended" in answer.text

    def test_one_that_dies_is_named(self, world: World, relay: TensorBoardRelay) -> None:
        row = world.job()
        instance = world.opened(row)
        assert httpx.get(url(relay, instance, "die")).status_code == 502
        end = time.monotonic() + 60
        while world.instances.look(row, ANN) == instance and time.monotonic() < end:
            world.instances.end_idle()
        found = world.instances.look(row, ANN)
        assert found is not None and "ended by itself" in found.message
        assert world.opened(row).state is InstanceState.READY

    def test_one_that_is_wanted_no_more_while_it_starts(self, world: World) -> None:
        world.instances.open(world.job(), ANN)
        world.instances.close()
        assert world.processes() == []

    def test_a_viewers_third_takes_the_place_of_the_first(self, world: World) -> None:
        rows = [world.job(f"app_1_{n:04d}") for n in range(3)]
        for row in rows:
            world.now += 1
            world.opened(row)
        assert [world.instances.look(row, ANN) is None for row in rows] == [True, False, False]

    def test_all_places_are_taken(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tensorboard, "MOST_INSTANCES", 1)
        row = world.job()
        assert world.opened(row).state is InstanceState.READY
        instance = world.instances.open(row, Viewer("bob"))
        assert instance.state is InstanceState.FAILED and "which is the most" in instance.message

    def test_folders_that_a_dead_portal_left_are_removed(
        self, world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(tensorboard.tempfile, "gettempdir", lambda: str(tmp_path))
        names = ["tony-tensorboard-4194305-abc", f"tony-tensorboard-{os.getpid()}-abc", "other"]
        for name in names:
            (tmp_path / name).mkdir()
        tensorboard._remove_leftovers()
        assert [(tmp_path / name).exists() for name in names] == [False, True, True]


class TestTheRelay:
    @pytest.fixture
    def instance(self, world: World) -> Instance:
        return world.opened(world.job())

    def test_only_below_the_token(
        self, relay: TensorBoardRelay, instance: Instance, world: World
    ) -> None:
        base = relay.url_of("", "127.0.0.1")
        for path in (
            "/",
            "/x",
            "/x/",
            "/../",
            instance.path[:-2] + "/",
            "/" + "A" * 43 + "/data",
            "/%C3%A9/x",
        ):
            assert httpx.get(base + path).status_code == 404
        answer = httpx.get(base + instance.path.rstrip("/"), follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (307, instance.path)

    def test_headers(self, relay: TensorBoardRelay, instance: Instance) -> None:
        answer = httpx.get(url(relay, instance))
        assert answer.headers["etag"] == '"7"'
        for name in ("set-cookie", "location", "clear-site-data", "server"):
            assert name not in answer.headers, name
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-frame-options"] == "DENY"

    def test_bodies(
        self, relay: TensorBoardRelay, instance: Instance, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert httpx.post(url(relay, instance), content=b"abc").content == b"cba"
        monkeypatch.setattr("tony_core.portal.tensorboard_relay.MOST_BODY", 10)
        assert httpx.post(url(relay, instance), content=b"x" * 11).status_code == 413

    @pytest.mark.parametrize(("is_body", "expected"), [(False, b""), (True, b"HTTP/1.1 408")])
    def test_a_request_that_does_not_come(
        self,
        relay: TensorBoardRelay,
        instance: Instance,
        monkeypatch: pytest.MonkeyPatch,
        is_body: bool,
        expected: bytes,
    ) -> None:
        monkeypatch.setattr(connections, "HEAD_S", 0.3)
        monkeypatch.setattr(connections, "BODY_S", 0.3)
        head = f"POST {instance.path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        with socket.create_connection(("127.0.0.1", relay.port), timeout=20) as made:
            made.sendall((head + ("\r\nx" if is_body else "")).encode())
            found = b""
            while part := made.recv(65536):
                found += part
        assert found.startswith(expected) and bool(found) is is_body

    def test_many_that_are_silent_keep_no_other_out(
        self, relay: TensorBoardRelay, instance: Instance
    ) -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        connections.raise_file_limit()
        with contextlib.ExitStack() as stack:
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
            for _ in range(520):
                address = ("127.0.0.1", relay.port)
                stack.enter_context(socket.create_connection(address, timeout=20))
            assert httpx.get(url(relay, instance), timeout=60).status_code == 200
        assert httpx.put(url(relay, instance)).status_code == 405

    def test_no_service_worker(self, relay: TensorBoardRelay, instance: Instance) -> None:
        answer = httpx.get(url(relay, instance), headers={"Service-Worker": "script"})
        assert answer.status_code == 403

    def test_addresses(self, world: World) -> None:
        proxied = TensorBoardRelay(world.instances, "127.0.0.1", 0, "https://tb.example.com/")
        assert proxied.url_of("/t/", "x") == "https://tb.example.com/t/"
        proxied.close()
        direct = TensorBoardRelay(world.instances, "127.0.0.1", 0)
        assert direct.url_of("/t/", "::1") == f"http://[::1]:{direct.port}/t/"
        with pytest.raises(OSError):
            TensorBoardRelay(world.instances, "127.0.0.1", direct.port)
        direct.close()


REAL_EVENTS = """
import sys
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
writer = EventFileWriter(sys.argv[1])
for step in range(5):
    value = Summary.Value(tag="loss", simple_value=1.0 / (step + 1))
    writer.add_event(Event(step=step, wall_time=step, summary=Summary(value=[value])))
writer.close()
"""


@pytest.mark.frameworks
def test_the_real_one(
    tmp_path: Path, environment: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    python = str(environment("tensorboard") / "bin" / "python")
    portal = Portal("local")
    Opened(monkeypatch, local=Listed())
    world = World(tmp_path, portal)
    (world.events / EVENTS).unlink()
    subprocess.run([python, "-c", REAL_EVENTS, str(world.events / "train")], check=True)
    (world.events / "projector_config.pbtxt").write_text("x")
    world.instances.close()
    world.instances = TensorBoards(portal.sources, python=python)
    relay = TensorBoardRelay(world.instances, "127.0.0.1", 0)
    relay.start()
    try:
        end = time.monotonic() + 120
        row = world.job()
        instance = world.instances.open(row, ANN)
        while instance.state in (InstanceState.COPYING, InstanceState.STARTING):
            assert time.monotonic() < end
            time.sleep(0.1)
            instance = world.instances.open(row, ANN)
        assert instance.state is InstanceState.READY, instance.message
        page = httpx.get(url(relay, instance), timeout=60)
        assert page.status_code == 200 and "<tb-webapp" in page.text
        plugins: Dict[str, Any] = httpx.get(
            url(relay, instance, "data/plugins_listing"), timeout=60
        ).json()
        assert "projector" not in plugins and "profile" not in plugins
        tags: Dict[str, Any] = {}
        while not tags:
            assert time.monotonic() < end
            tags = httpx.get(url(relay, instance, "data/plugin/scalars/tags"), timeout=60).json()
        assert list(tags["train"]) == ["loss"]
        points: List[Tuple[float, int, float]] = httpx.get(
            url(relay, instance, "data/plugin/scalars/scalars?run=train&tag=loss"), timeout=60
        ).json()
        assert [point[1] for point in points] == [0, 1, 2, 3, 4]
    finally:
        relay.close()
        world.instances.close()
        portal.close()

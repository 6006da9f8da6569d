"""TensorBoard beside a program, and as a role of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from tests.executor.standin import Executor, Master, alive
from tests.second_user import needs_root, start_stranger
from tony_core.protocol.messages import (
    Ended,
    Noted,
    Serving,
    Start,
)
from tony_executor.monitoring.tensorboard import FIRST_BACKOFF_S

# What is asked of TensorBoard here is its command line and that it answers; the real one,
# of 130 MB, has a test of its own at the end.
TENSORBOARD = """
import argparse, http.server, os, signal, sys, time
parser = argparse.ArgumentParser()
for name in ("--logdir", "--host", "--port"):
    parser.add_argument(name, required=True)
given = parser.parse_args()
mark = os.path.join(os.path.dirname(__file__), "starts")
open(mark, "a").write("%s\\n" % given.logdir)
broken = os.path.join(os.path.dirname(__file__), "broken")
if os.path.exists(broken):
    open(broken, "a").write("%f\\n" % time.time())
    sys.exit(3)
if os.path.exists(os.path.join(os.path.dirname(__file__), "slow")):
    time.sleep(float(open(os.path.join(os.path.dirname(__file__), "slow")).read()))
def ended(number, frame):
    open(os.path.join(os.path.dirname(__file__), "ended"), "w").write("by TERM")
    os._exit(0)
deaf = os.path.exists(os.path.join(os.path.dirname(__file__), "deaf"))
signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else ended)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            os._exit(5)
        self.send_response(200); self.end_headers(); self.wfile.write(given.logdir.encode())
    def log_message(self, *args): pass
class Server(http.server.HTTPServer):
    def server_bind(self):
        import socketserver; socketserver.TCPServer.server_bind(self)
Server((given.host, int(given.port)), Page).serve_forever()
"""


# Takes a port as soon as that is possible, and answers there.
SERVE = """
sock = socket.socket()
sock.setsockopt(1, 2, 1)
until = time.monotonic() + 20
while True:
    try:
        sock.bind(("127.0.0.1", argument))
        sock.listen()
        break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(0.005)
print("serving")
while True:
    caller, _ = sock.accept()
    caller.recv(1000)
    caller.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\nstranger")
    caller.close()
"""


class TestTensorBoard:
    @pytest.fixture
    def python(self, tmp_path: Path) -> Path:
        """An interpreter whose environment has something called tensorboard."""
        venv = tmp_path / "site-env"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
        (lib,) = (venv / "lib").iterdir()
        package = lib / "site-packages" / "tensorboard"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "main.py").write_text(TENSORBOARD)
        self.package = package
        return venv / "bin" / "python"

    def wanted(self, *pythons: object) -> Dict[str, Any]:
        return {
            "log_dir": "/logs/of/the/job",
            "pythons": [str(each) for each in pythons],
            "port": "tensorboard",
        }

    def begin(self, master: Master, session: int = 0, **settings: Any) -> Any:
        ready = master.prepare(session, ports=["main", "tensorboard"])
        master.start("sleep 300", session, tensorboard=settings)
        return ready

    def page(self, port: int, path: str = "/", host: str = "127.0.0.1") -> str:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=60) as answer:
            text: str = answer.read().decode()
        return text

    def test_beside_the_program_from_the_first_that_has_it(
        self, master: Master, executor: Executor, python: Path
    ) -> None:
        ready = self.begin(
            master, **self.wanted("venv/bin/python", "/nowhere/python", sys.executable, python)
        )
        serving = master.expect(Serving)
        assert serving == Serving("tensorboard", ready.ports["tensorboard"])
        assert self.page(serving.port) == "/logs/of/the/job"
        assert master.shut_down(executor) == 0
        with pytest.raises(OSError):
            self.page(serving.port)

    @pytest.mark.parametrize("node", ["127.0.1.1", "localhost"])
    def test_it_listens_at_the_nodes_address(
        self, master: Master, launch: Callable[..., Executor], python: Path, node: str
    ) -> None:
        launch(env={"TONY_NODE": node})
        ready = self.begin(master, **self.wanted(python))
        assert ready.host == node
        assert self.page(master.expect(Serving).port, host=node) == "/logs/of/the/job"

    def test_what_we_end_is_no_failure_and_may_end_by_itself(
        self, master: Master, executor: Executor, python: Path
    ) -> None:
        self.begin(master, **self.wanted(python))
        master.expect(Serving)
        assert master.shut_down(executor, grace_s=5.0) == 0
        assert [message.message for message in master.received(Serving)] == ["", ""]
        assert master.received(Serving)[-1].port == 0
        assert not master.received(Noted)
        assert (self.package / "ended").read_text() == "by TERM"

    def test_one_that_ignores_term_is_killed(
        self, master: Master, executor: Executor, python: Path
    ) -> None:
        (self.package / "deaf").touch()
        self.begin(master, **self.wanted(python))
        serving = master.expect(Serving)
        assert master.shut_down(executor, grace_s=0.2) == 0
        with pytest.raises(OSError):
            self.page(serving.port)

    def test_one_for_another_folder_takes_its_place(
        self, master: Master, executor: Executor, python: Path
    ) -> None:
        first = self.begin(master, **self.wanted(python))
        master.expect(Serving)
        assert master.stop().clean
        self.begin(master, session=1, **{**self.wanted(python), "log_dir": "/other"})
        master.until(lambda: len(master.received(Serving)) == 3)
        assert [message.message for message in master.received(Serving)] == ["", "", ""]
        port = master.received(Serving)[-1].port
        assert port == first.ports["tensorboard"]
        assert self.page(port) == "/other"
        assert not master.received(Noted)

    def test_it_stays_over_a_warm_restart(
        self, master: Master, executor: Executor, python: Path
    ) -> None:
        self.begin(master, **self.wanted(python))
        port = master.expect(Serving).port
        assert master.stop().clean
        assert self.page(port)
        ready = self.begin(master, session=1, **self.wanted(python))
        assert ready.ports["tensorboard"] == port
        assert ready.ports["main"] != port
        master.until(lambda: len(master.received(Serving)) == 2)
        assert (self.package / "starts").read_text().count("\n") == 1

    def test_it_is_started_again_when_it_dies(
        self, master: Master, executor: Executor, python: Path
    ) -> None:
        ready = self.begin(master, **self.wanted(python))
        master.expect(Serving)
        with pytest.raises(OSError):
            self.page(ready.ports["tensorboard"], "/die")
        master.expect(Serving, port=0)
        master.until(lambda: len(master.received(Serving, port=ready.ports["tensorboard"])) == 2)
        assert not master.received(Ended)

    def test_one_that_always_fails_is_started_later_and_gates_nothing(
        self, master: Master, executor: Executor, python: Path
    ) -> None:
        broken = self.package / "broken"
        broken.touch()
        self.begin(master, **self.wanted(python))
        master.until(lambda: broken.read_text().count("\n") >= 2)
        first, second = map(float, broken.read_text().split()[:2])
        assert second - first > 0.9 * FIRST_BACKOFF_S
        assert not master.received(Ended)

    def test_no_interpreter_has_it(self, master: Master, executor: Executor) -> None:
        self.begin(master, **self.wanted("/nowhere/python", sys.executable + "-no"))
        noted = master.expect(Noted, level="warning")
        assert "put tensorboard into the job's environment" in noted.text
        assert not master.received(Ended)

    def test_as_a_role_of_its_own(self, master: Master, executor: Executor, python: Path) -> None:
        ready = master.prepare(ports=["main", "tensorboard"])
        running = master.start("tony:tensorboard", tensorboard=self.wanted(python))
        serving = master.expect(Serving)
        assert serving.port == ready.ports["tensorboard"]
        assert alive(running.pid)
        with pytest.raises(OSError):
            self.page(serving.port, "/die")
        assert master.expect(Ended).exit_code == 5

    def test_as_a_role_where_no_interpreter_has_it(
        self, master: Master, executor: Executor
    ) -> None:
        master.prepare(ports=["main", "tensorboard"])
        master.send(Start(0, "tony:tensorboard", {}, tensorboard=self.wanted("/nowhere")))
        ended = master.expect(Ended)
        assert (ended.exit_code, ended.cause) == (127, "environment")
        assert "no TensorBoard was found" in ended.message

    def test_a_role_without_a_log_dir(self, master: Master, executor: Executor) -> None:
        master.prepare(ports=["main", "tensorboard"])
        master.send(Start(0, "tony:tensorboard", {}))
        assert "tensorboard-log-dir" in master.expect(Ended).message

    @needs_root
    def test_another_user_at_its_port_is_never_shown(
        self, master: Master, executor: Executor, python: Path
    ) -> None:
        (self.package / "slow").write_text("3")
        ready = master.prepare(ports=["main", "tensorboard"])
        with start_stranger(SERVE, ready.ports["tensorboard"]) as stranger:
            master.start("sleep 300", tensorboard=self.wanted(python))
            assert stranger.stdout is not None and stranger.stdout.readline() == "serving\n"
            (self.package / "slow").unlink()
            serving = master.expect(Serving)
            stranger.kill()
        assert serving.port not in (0, ready.ports["tensorboard"])
        assert self.page(serving.port) == "/logs/of/the/job"
        assert f"TensorBoard is started at port {serving.port}" in executor.log("executor.log")
        assert not master.received(Ended), "its port is not one that peers use"

    @needs_root
    def test_another_user_at_the_port_of_a_role_that_is_tensorboard(
        self, master: Master, executor: Executor, python: Path
    ) -> None:
        (self.package / "slow").write_text("30")
        ready = master.prepare(ports=["main", "tensorboard"])
        with start_stranger(SERVE, ready.ports["tensorboard"]) as stranger:
            master.start("tony:tensorboard", tensorboard=self.wanted(python))
            ended = master.expect(Ended)
            stranger.kill()
        assert ended.cause == "address-in-use"
        assert not master.received(Serving)

    def test_one_that_the_program_opens_itself(self, master: Master, executor: Executor) -> None:
        """By a process below it, at TB_PORT; it goes with the program."""
        ready = master.prepare(ports=["main", "tensorboard"])
        port = ready.ports["tensorboard"]
        (executor.work / "own.py").write_text(
            "import http.server, sys\n"
            "class Server(http.server.HTTPServer):\n"
            "    def server_bind(self):\n"
            "        import socketserver; socketserver.TCPServer.server_bind(self)\n"
            "Server(('', int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()\n"
        )
        gate = executor.work / "gate"
        os.mkfifo(gate)
        serves = f"{sys.executable} {executor.work}/own.py {port} &"
        master.start(f"{serves} read line < {gate}; kill $!; exit 3")
        assert master.expect(Serving) == Serving("tensorboard", port)
        gate.write_text("end\n")
        assert master.expect(Ended).exit_code == 3
        assert master.received(Serving)[-1] == Serving("tensorboard", 0)

    @pytest.mark.frameworks
    def test_the_real_one(
        self, master: Master, executor: Executor, environment: Callable[[str], Path]
    ) -> None:
        python = environment("tensorboard") / "bin" / "python"
        self.begin(master, **self.wanted(python))
        serving = master.expect(Serving, within=60)
        assert "/logs/of/the/job" in self.page(serving.port, "/data/logdir")
        assert master.shut_down(executor) == 0

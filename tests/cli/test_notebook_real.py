"""``tony notebook`` as a process of its own: with a stand-in for Jupyter, and with a real one."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Callable, Dict, List, Tuple
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.cli.processes import Running, environment, tony, until
from tests.second_user import as_stranger, needs_root
from tony_core.schedulers.local.home import AppFolder

pytestmark = pytest.mark.timeout(300)

# What tony_notebook starts as Jupyter: it answers at the socket, with the token, for some time.
STANDIN = """
import datetime, http.server, os, socketserver, sys, threading, types
options = dict(word[2:].split("=", 1) for word in sys.argv[1:])
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def address_string(self):
        return "a socket"
    def log_message(self, *words):
        pass  # Jupyter's own log has no token
    def do_GET(self):
        allowed = "token=" + options["IdentityProvider.token"] in self.path
        body = b"x" * 3_000_000 if "large" in self.path else repr(sorted(options)).encode()
        body = str(os.getpid()).encode() if "process" in self.path else body
        self.send_response(200 if allowed else 403)
        self.send_header("Content-Length", str(len(body) if allowed else 0))
        self.end_headers()
        if allowed:
            self.wfile.write(body)
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
os.umask(0o077)
server = Server(options["ServerApp.sock"], Handler)
idle = float(options.get("ServerApp.shutdown_no_activity_timeout", 0))
used = datetime.datetime.now(datetime.timezone.utc)
class ServerApp:  # its account of what was used when, as Jupyter has it
    web_app = types.SimpleNamespace(last_activity=lambda: used)
    instance = classmethod(lambda cls: cls)
sys.modules["jupyter_server.serverapp"] = types.SimpleNamespace(ServerApp=ServerApp)
if 0 < idle < 100:
    threading.Timer(idle, server.shutdown).start()
shut_down = float(os.environ.get("SHUT_DOWN_AFTER", 0))  # by its user
if shut_down:
    threading.Timer(shut_down, server.shutdown).start()
server.serve_forever()
"""


IDLE = "result: idle: no kernel computed and no page was used for {} s (--idle-timeout)"


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> List[str]:
    """A command line with the stand-in."""
    package = tmp_path / "packages" / "jupyterlab"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(STANDIN)
    monkeypatch.setenv("TONY_HOME", str(tmp_path / "home"))
    path = f"PYTHONPATH={package.parent}"
    return ["notebook", "--python_binary_path", sys.executable, "--memory", "512m",
            "--shell_env", path, "--conf", "tony.task.kill-grace=2s"]  # fmt: skip


def address(running: Running) -> Tuple[str, str]:
    """The address that was printed, and its token."""
    until(lambda: "token=" in running.out or running.process.poll() is not None, "URL", running)
    url = urlsplit(running.out.split()[0])
    assert url.hostname == "127.0.0.1" and url.path == "/lab", running
    return f"http://{url.netloc}", parse_qs(url.query)["token"][0]


def get(url: str) -> Tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""


def state_of(folder: Path, app_id: str) -> str:
    found: Dict[str, str] = json.loads(tony("status", app_id, "--json", cwd=folder).stdout)
    return found["state"]


def id_in(text: str) -> str:
    return next(word for word in text.replace(":", " ").split() if word.startswith("local_"))


def test_it_is_reached_and_ends_with_its_client(words: List[str], tmp_path: Path) -> None:
    with Running(tmp_path, *words) as running:
        base, token = address(running)
        status, body = get(f"{base}/?token={token}")
        assert status == 200 and b"ServerApp.sock_mode" in body
        assert get(f"{base}/")[0] == 403, "Jupyter's own token is asked for"
        assert get(f"{base}/large?token={token}") == (200, b"x" * 3_000_000)
        running.send(signal.SIGINT)
        assert running.end() == 130, running
        app_id = id_in(running.err)
    assert state_of(tmp_path, app_id) == "KILLED"
    folder = tmp_path / "home" / "apps" / app_id
    shown = b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.stat().st_size)
    assert token.encode() not in shown, "the token is nowhere in logs or the job's files"


def test_a_socket_that_came_with_the_source(words: List[str], tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "notebook.sock").write_text("left over")
    (source / "notebook.json").write_text("{}")
    with Running(tmp_path, *words, "--src_dir", str(source)) as running:
        base, token = address(running)
        assert get(f"{base}/?token={token}")[0] == 200
        running.send(signal.SIGINT)
        assert running.end() == 130, running


def test_many_connections_at_once(words: List[str], tmp_path: Path) -> None:
    with Running(tmp_path, *words) as running:
        base, token = address(running)
        host = base.partition("//")[2]
        callers = [http.client.HTTPConnection(host, timeout=30) for _ in range(30)]
        for _ in range(3):
            for caller in callers:
                caller.request("GET", f"/?token={token}")
            for caller in callers:
                answer = caller.getresponse()
                assert answer.status == 200 and answer.read()
        for caller in callers:
            caller.close()
        running.send(signal.SIGTERM)
        assert running.end() == 143


def test_it_ends_when_idle(words: List[str], tmp_path: Path) -> None:
    with Running(tmp_path, *words, "--idle-timeout", "3s") as running:
        address(running)
        assert running.end() == 0, running
        assert (
            f"has ended: SUCCEEDED: all tracked tasks have ended; {IDLE.format(3)}" in running.err
        )
        app_id = id_in(running.err)
    assert IDLE.format(3) in tony("status", app_id, cwd=tmp_path).stdout


def test_one_that_its_user_ended_was_not_idle(words: List[str], tmp_path: Path) -> None:
    with Running(tmp_path, *words, "--shell_env", "SHUT_DOWN_AFTER=3") as running:
        address(running)
        assert running.end() == 0, running
        assert "has ended: SUCCEEDED" in running.err and "idle" not in running.err


def test_left_running_and_opened_again(words: List[str], tmp_path: Path) -> None:
    done = tony(*words, "--detach", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    app_id = done.stdout.strip()
    seen = []
    for _ in range(2):
        with Running(tmp_path, "notebook", "--attach", app_id) as running:
            base, token = address(running)
            seen.append(token)
            assert get(f"{base}/?token={token}")[0] == 200
            running.send(signal.SIGINT)
            assert running.end() == 130
            assert "still running" in running.err
    assert seen[0] == seen[1] and state_of(tmp_path, app_id) == "RUNNING"
    tony("kill", app_id, cwd=tmp_path)


@pytest.mark.slow
def test_a_killed_client_leaves_no_job(words: List[str], tmp_path: Path) -> None:
    with Running(tmp_path, *words, "--conf", "tony.client.lease=16s") as running:
        address(running)
        time.sleep(20)
        app_id = id_in(running.err)
        assert state_of(tmp_path, app_id) == "RUNNING", "its client renews the lease"
        running.send(signal.SIGKILL)
        running.end()
    path = tmp_path / "home" / "apps" / app_id / "status.json"
    # Not by tony status, which renews the lease like any client.
    until(lambda: json.loads(path.read_text())["state"] != "RUNNING", "end of the job")
    assert state_of(tmp_path, app_id) == "KILLED"


def test_without_jupyter(words: List[str], tmp_path: Path) -> None:
    (tmp_path / "packages" / "jupyterlab" / "__init__.py").unlink()
    (tmp_path / "packages" / "jupyterlab" / "__main__.py").unlink()
    (tmp_path / "packages" / "jupyterlab").rmdir()
    done = tony(*words, cwd=tmp_path)
    assert done.returncode == 1
    assert f"this Python has no JupyterLab: {sys.executable}" in done.stderr
    assert "pip install jupyterlab" in done.stderr


def test_a_site_that_forbids_notebooks(
    words: List[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tony-site.xml").write_text(
        "<configuration><property><name>tony.notebook.enabled</name><value>false</value>"
        "<final>true</final></property></configuration>"
    )
    monkeypatch.setenv("TONY_CONF_DIR", str(tmp_path))
    done = tony(*words, cwd=tmp_path)
    assert done.returncode == 2 and "this site allows no notebooks" in done.stderr
    assert not list((tmp_path / "home").glob("apps/*"))


def test_a_port_that_is_taken(words: List[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = tony(*words, "--port", str(taken.getsockname()[1]), cwd=tmp_path)
    assert done.returncode == 2 and "--port" in done.stderr and "in use" in done.stderr
    assert not list((tmp_path / "home").glob("apps/*")), "nothing was submitted"


class TestAttachedToAJobWithoutANotebook:
    """One clear message, and no wait."""

    def attach(self, app_id: str, folder: Path) -> str:
        done = tony("notebook", "--attach", app_id, cwd=folder)
        assert done.returncode == 3 and not done.stdout, done.stderr
        return done.stderr

    def submitted(self, folder: Path, *words: str) -> str:
        done = tony("submit", "--detach", "--executes", "sleep 300", *words, cwd=folder)
        assert done.returncode == 0, done.stderr
        app_id = id_in(done.stdout)
        until(lambda: state_of(folder, app_id) == "RUNNING", "its start")
        return app_id

    def test_with_another_program(self, words: List[str], tmp_path: Path) -> None:
        app_id = self.submitted(tmp_path)
        until(lambda: "running" in tony("status", app_id, cwd=tmp_path).stdout, "its program")
        assert "opens no notebook: worker:0 runs no notebook\n" in self.attach(app_id, tmp_path)
        assert state_of(tmp_path, app_id) == "RUNNING", "it is not ended by who only looked"
        tony("kill", app_id, cwd=tmp_path)
        text = self.attach(app_id, tmp_path)
        assert f"{app_id} has ended (KILLED): it opens no notebook" in text

    def test_with_several_tasks(self, words: List[str], tmp_path: Path) -> None:
        app_id = self.submitted(tmp_path, "--conf", "tony.worker.instances=2")
        text = self.attach(app_id, tmp_path)
        assert "has one task, and this job has worker:0, worker:1" in text
        tony("kill", app_id, cwd=tmp_path)


# The command line, with a wait that is shorter than its users would like.
IMPATIENT = """
import sys
from tony_core.client import notebook, tunnel
notebook.READY_S = tunnel.RETRY_S = 3.0
from tony_core.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


# The same, with a key that is not the job's: each tunnel is lost in its handshake.
WRONG_KEY = """
from tony_core.client import tunnel
real = tunnel.read_client_key
tunnel.read_client_key = lambda *a: real(*a)._replace(key=bytes(32))
"""


def impatient(folder: Path, *words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", before + IMPATIENT, *words],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=folder,
        timeout=60,
    )
    assert done.returncode == 3 and not done.stdout, done.stderr
    return done


# A client that looks for the key where there is none, as if the master could not write it.
NO_KEY = """
from tony_core.client import tunnel
tunnel.KEY_FILE = "no-key.json"
"""


@pytest.mark.slow
def test_a_client_without_a_key_keeps_its_lease_and_names_the_file(
    words: List[str], tmp_path: Path
) -> None:
    lease = ["--conf", "tony.client.lease=5s"]
    before = IMPATIENT.replace("3.0", "15.0")
    done = subprocess.run(
        [sys.executable, "-c", NO_KEY + before, *words, *lease],
        capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=60,
    )  # fmt: skip
    assert done.returncode == 3 and not done.stdout, done.stderr
    assert "its master left no key for its owner within 15 s: " in done.stderr
    assert "no-key.json is not there: the master of local_" in done.stderr
    app_id = id_in(done.stderr)
    assert state_of(tmp_path, app_id) == "KILLED"
    shown = tony("status", app_id, cwd=tmp_path).stdout
    assert "its client could not open it" in shown and "lease" not in shown, shown


def test_a_tunnel_that_is_lost_again_and_again(words: List[str], tmp_path: Path) -> None:
    done = impatient(tmp_path, *words, before=WRONG_KEY)
    assert "its master did not answer within 3 s" in done.stderr
    assert "does not know this job's secret" in done.stderr
    assert state_of(tmp_path, id_in(done.stderr)) == "KILLED"


@pytest.mark.nightly
@pytest.mark.slow
def test_a_master_that_answers_no_more_does_not_cost_the_work(
    words: List[str], tmp_path: Path
) -> None:
    patient = ["--conf", "tony.client.lease=10m", "--conf", "tony.task.max-missed-heartbeats=1000"]
    with Running(tmp_path, *words, *patient, code=IMPATIENT) as running:
        base, token = address(running)
        app_id = id_in(running.err)
        app = AppFolder(str(tmp_path / "home" / "apps" / app_id))
        master = json.loads(Path(app.lock).read_text())["pid"]
        os.kill(master, signal.SIGSTOP)
        try:
            assert running.end(timeout=120) == 3, running
        finally:
            os.kill(master, signal.SIGCONT)
        assert "its master did not answer within 3 s" in running.err
        assert f"was not ended. Open it again with: tony notebook --attach {app_id}" in running.err
    assert state_of(tmp_path, app_id) == "RUNNING"
    with Running(tmp_path, "notebook", "--attach", app_id) as running:
        base, again = address(running)
        assert again == token and get(f"{base}/?token={token}")[0] == 200
    tony("kill", app_id, cwd=tmp_path)


@pytest.mark.slow
def test_the_address_of_a_notebook_that_was_started_anew(words: List[str], tmp_path: Path) -> None:
    """Its master and tunnel live on; a browser at the old address causes the new one's print."""
    with Running(tmp_path, *words, "--conf", "tony.am.retry-count=1") as running:
        base, token = address(running)
        os.kill(int(get(f"{base}/process?token={token}")[1]), signal.SIGKILL)

        def printed() -> List[str]:
            with contextlib.suppress(OSError):
                get(f"{base}/lab?token={token}")
            return running.out.split()[1:]

        until(printed, "new address", running)
        (again,) = printed()
        assert again.startswith(f"{base}/lab?token=") and not again.endswith(token)
        assert get(again)[0] == 200 and get(f"{base}/?token={token}")[0] == 403
        running.send(signal.SIGINT)
        assert running.end() == 130


# The same as WRONG_KEY, with a notebook that does not listen, and tunnels that are soon lost.
SHORT_TUNNELS = """
from tony_core.client import notebook, tunnel
real = tunnel.open_tunnel
def open_tunnel(scheduler, app_id, reactor, on_lost):
    made = real(scheduler, app_id, reactor, on_lost)
    reactor.call_later(1.5, made._lose, "it was cut")
    return made
notebook.open_tunnel = open_tunnel
"""


def test_tunnels_that_open_to_no_notebook_and_are_lost(words: List[str], tmp_path: Path) -> None:
    main = tmp_path / "packages" / "jupyterlab" / "__main__.py"
    main.write_text("import time\ntime.sleep(300)\n")
    done = impatient(tmp_path, *words, before=SHORT_TUNNELS)
    assert "within 3 s" in done.stderr and "it was cut" in done.stderr, done.stderr


def test_a_jupyter_that_never_listens(words: List[str], tmp_path: Path) -> None:
    main = tmp_path / "packages" / "jupyterlab" / "__main__.py"
    main.write_text("import time\ntime.sleep(300)\n")
    done = impatient(tmp_path, *words)
    assert "its notebook did not answer within 3 s" in done.stderr
    assert "does not listen (yet)" in done.stderr
    app_id = id_in(done.stderr)
    assert state_of(tmp_path, app_id) == "KILLED"
    shown = tony("status", app_id, cwd=tmp_path).stdout
    assert "its client could not open it" in shown


@needs_root
def test_another_user_of_the_machine_gets_nothing(words: List[str], tmp_path: Path) -> None:
    with Running(tmp_path, *words) as running:
        base, token = address(running)
        port = int(base.rpartition(":")[2])
        code = """
sock = socket.create_connection(("127.0.0.1", argument[0]), 20)
sock.sendall(("GET /?token=%s HTTP/1.0\\r\\n\\r\\n" % argument[1]).encode())
try:
    result = sock.recv(1000).decode()
except OSError:
    result = ""
"""
        assert as_stranger(code, [port, token]) == "", "not even with the token"
        assert get(f"{base}/?token={token}")[0] == 200
        running.send(signal.SIGINT)
        assert running.end() == 130


# Runs in Jupyter's own environment: a kernel, and a cell in it, by the web socket.
CELL = """
import json, sys, urllib.request, uuid, websocket
base, token = sys.argv[1:]
request = urllib.request.Request(f"{base}/api/kernels", b"{}", {"Authorization": "token " + token})
kernel = json.load(urllib.request.urlopen(request, timeout=60))["id"]
url = f"{base.replace('http', 'ws')}/api/kernels/{kernel}/channels?token={token}"
connection = websocket.create_connection(url, timeout=60)
header = {"msg_id": uuid.uuid4().hex, "username": "x", "session": uuid.uuid4().hex,
          "msg_type": "execute_request", "version": "5.3"}
content = {"code": "import os; print(6 * 7, os.environ['JOB_NAME'])", "silent": False}
connection.send(json.dumps({"header": header, "parent_header": {}, "metadata": {},
                            "content": content, "channel": "shell", "buffers": []}))
while True:
    message = json.loads(connection.recv())
    if message["msg_type"] == "stream":
        print(message["content"]["text"], end="")
    ours = message["parent_header"].get("msg_id") == header["msg_id"]
    if ours and message["content"].get("execution_state") == "idle":
        break
connection.close()
"""


@pytest.mark.frameworks
def test_a_cell_in_a_real_jupyter_and_its_idle_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Callable[[str], Path]
) -> None:
    monkeypatch.setenv("TONY_HOME", str(tmp_path / "home"))
    folder = environment("jupyter")
    python = str(folder / "bin" / "python")
    words = ["notebook", "--python_binary_path", python, "--memory", "1g", "--idle-timeout", "20s"]
    with Running(tmp_path, *words) as running:
        base, token = address(running)
        done = subprocess.run(
            [python, "-c", CELL, base, token], capture_output=True, text=True, timeout=120
        )
        assert done.stdout == "42 notebook\n", done.stderr
        assert get(f"{base}/api/status")[0] == 403
        assert running.end(timeout=200) == 0, running
        assert (
            f"has ended: SUCCEEDED: all tracked tasks have ended; {IDLE.format(20)}" in running.err
        )
    assert not [
        entry
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
        and os.path.exists(entry / "cmdline")
        and str(tmp_path / "home").encode() in (entry / "cmdline").read_bytes()
    ]


# Runs in Jupyter's own environment, on the same node: two kernels, with one that is interrupted and
# begun anew. Who listens at a port of them or of the server, and what a subscriber receives there.
KERNELS = """
import glob, json, os, signal, stat, sys, time, urllib.request, uuid, websocket, zmq
base, token = sys.argv[1:]
signal.alarm(150)  # Jupyter's pings keep each wait for an answer from its own end
def ask(path):
    head = {"Authorization": "token " + token}
    with urllib.request.urlopen(urllib.request.Request(base + path, b"{}", head), timeout=60) as it:
        return json.loads(it.read() or b"{}")
class Kernel:
    def __init__(self):
        self.id = ask("/api/kernels")["id"]
        self.connect()
    def connect(self):  # Jupyter answers when the kernel's messages arrive, also after a restart
        url = f"{base.replace('http', 'ws')}/api/kernels/{self.id}/channels?token={token}"
        self.connection = websocket.create_connection(url, timeout=60)
    def run(self, code, interrupted=False):
        header = {"msg_id": uuid.uuid4().hex, "username": "x", "session": uuid.uuid4().hex,
                  "msg_type": "execute_request", "version": "5.3"}
        content = {"code": code, "silent": False}
        self.connection.send(json.dumps({"header": header, "parent_header": {}, "metadata": {},
                                         "content": content, "channel": "shell", "buffers": []}))
        text = ""
        while True:
            message = json.loads(self.connection.recv())
            if message["parent_header"].get("msg_id") != header["msg_id"]:
                continue
            if message["msg_type"] == "error":
                text += message["content"]["ename"]
            if message["msg_type"] == "stream":
                text += message["content"]["text"]
                if interrupted:
                    interrupted = ask(f"/api/kernels/{self.id}/interrupt") and False
            if message["content"].get("execution_state") == "idle":
                return text
def ports(pid):
    found = []
    mine = set()
    for each in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            mine.add(os.readlink(each))
        except OSError:
            pass
    for name in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{name}") as rows:
            for row in list(rows)[1:]:
                words = row.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in mine:
                    found.append(int(words[1].rpartition(":")[2], 16))
    return found
one, two = Kernel(), Kernel()
answers = [each.run("print(6 * 7, end='')") for each in (one, two)]
answers.append(one.run("import time; print('begun', end=' '); time.sleep(300)", True))
ask(f"/api/kernels/{one.id}/restart")
one.connection.close()
one.connect()
answers.append(one.run("print('time' in globals(), end='')"))
facts = "import os; print(os.getpid(), os.getppid(), os.environ['JUPYTER_RUNTIME_DIR'], end='')"
known = [each.run(facts).split() for each in (one, two)]
runtime = known[0][2]
context = zmq.Context()
listeners = ports(known[0][1]) + ports(known[0][0]) + ports(known[1][0])
readers = []
for port in listeners:
    reader = context.socket(zmq.SUB)
    reader.linger = 0
    reader.subscribe(b"")
    reader.connect(f"tcp://127.0.0.1:{port}")
    readers.append(reader)
time.sleep(1)
for each in (one, two):
    each.run("print('of one user')")
received = [port for port, each in zip(listeners, readers) if each.poll(500)]
print(json.dumps({"answers": answers, "received": received, "of server": ports(known[0][1]),
                  "runtime": runtime, "mode": stat.S_IMODE(os.stat(runtime).st_mode) & 0o777,
                  "sockets": len(glob.glob(runtime + "/kernel-*-ipc-*"))}))
sys.stdout.flush()
os._exit(0)  # context and sockets end with it
"""


# A user's own configuration of Jupyter, at each class that a kernel's manager inherits from.
OWN_TRANSPORT = """
c.ConnectionFileMixin.transport = "tcp"
c.KernelManager.transport = "tcp"
c.AsyncKernelManager.transport = "tcp"
c.AsyncIOLoopKernelManager.transport = "tcp"
c.ServerKernelManager.transport = "tcp"
"""


@pytest.mark.frameworks
def test_no_other_user_of_the_node_receives_what_its_kernels_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Callable[[str], Path]
) -> None:
    monkeypatch.setenv("TONY_HOME", str(tmp_path / "home"))
    python = str(environment("jupyter") / "bin" / "python")
    long = tmp_path / ("long" * 30)  # no socket has room in it
    long.mkdir()
    own = tmp_path / "theirs" / ".jupyter"
    own.mkdir(parents=True)
    (own / "jupyter_server_config.py").write_text(OWN_TRANSPORT)
    words = ["notebook", "--python_binary_path", python, "--memory", "1g",
             "--shell_env", f"TMPDIR={long}", "--shell_env", f"HOME={own.parent}"]  # fmt: skip
    with Running(tmp_path, *words) as running:
        base, token = address(running)
        done = subprocess.run(
            [python, "-c", KERNELS, base, token], capture_output=True, text=True, timeout=200
        )
        assert done.returncode == 0, done.stderr
        seen = json.loads(done.stdout)
        assert seen["answers"] == ["42", "42", "begun KeyboardInterrupt", "False"]
        assert (seen["received"], seen["of server"]) == ([], [])
        assert seen["mode"] == 0o700 and seen["sockets"] >= 10, seen
        running.send(signal.SIGINT)
        assert running.end() == 130, running
    until(lambda: not os.path.exists(seen["runtime"]), "end of the kernels' folder")


# A user's own configuration of Jupyter, made for a server of his own.
OWN_CONFIGURATION = """
c.IdentityProvider.token = "theirs"
c.ServerApp.token = "older"
c.ServerApp.password = "argon2:theirs"
c.PasswordIdentityProvider.hashed_password = "argon2:theirs"
c.PasswordIdentityProvider.token = "theirs"
c.PasswordIdentityProvider.password_required = True
c.ServerApp.password_required = True
c.ServerApp.identity_provider_class = "jupyter_server.auth.identity.IdentityProvider"
c.ServerApp.ip = "0.0.0.0"
c.ServerApp.port = {port}
c.ServerApp.base_url = "/theirs/"
c.ServerApp.certfile = "/no/such/certificate"
c.ServerApp.keyfile = "/no/such/key"
c.ServerApp.allow_remote_access = True
c.ServerApp.log_level = "DEBUG"
c.LabApp.log_level = "DEBUG"
"""


def readable_words(token: str) -> List[str]:
    """Processes whose command line or first environment has the token."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                if token.encode() in words:
                    found.append(words.decode(errors="replace"))
    return found


@pytest.mark.frameworks
@pytest.mark.parametrize("form", ["server", "lab", "json"])
def test_the_printed_token_beats_the_users_own_configuration(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: Callable[[str], Path],
    form: str,
) -> None:
    monkeypatch.setenv("TONY_HOME", str(tmp_path / "home"))
    own = tmp_path / "theirs" / ".jupyter"
    own.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    if form == "json":
        app = {"token": "older", "ip": "0.0.0.0", "port": port, "base_url": "/theirs/"}
        provider = {"token": "theirs", "password_required": True}
        content = {
            "IdentityProvider": {"token": "theirs"},
            "PasswordIdentityProvider": provider,
            "ServerApp": app,
        }
        (own / "jupyter_server_config.json").write_text(json.dumps(content))
    else:
        text = OWN_CONFIGURATION.format(port=port)
        (own / f"jupyter_{form}_config.py").write_text(text)
    python = str(environment("jupyter") / "bin" / "python")
    words = ["notebook", "--python_binary_path", python, "--memory", "1g",
             "--shell_env", f"HOME={own.parent}"]  # fmt: skip
    with Running(tmp_path, *words) as running:
        base, token = address(running)
        assert get(f"{base}/api/status?token={token}")[0] == 200, running
        for theirs in ("theirs", "older"):
            assert get(f"{base}/api/status?token={theirs}")[0] == 403
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", port), 5)
        request = urllib.request.Request(
            f"{base}/api/status?token={token}", headers={"Host": "a.name.of.others"}
        )
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request, timeout=30)
        assert not readable_words(token)
        folder = tmp_path / "home" / "apps" / id_in(running.err)
        logs = [path for path in folder.rglob("std*") if path.is_file()]
        assert logs and token not in "".join(path.read_text() for path in logs)
        running.send(signal.SIGINT)
        assert running.end() == 130, running

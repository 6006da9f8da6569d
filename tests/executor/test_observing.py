"""What is measured, reported and served while a program runs; and what watching costs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from tests.executor.standin import CHECKOUT, Executor, Master, alive
from tests.second_user import needs_root, start_stranger
from tony_core.protocol.messages import (
    Ended,
    Heartbeat,
    Measured,
    Noted,
    Register,
    Reported,
    Serving,
    Start,
)
from tony_executor.monitoring.nvidia_smi import parse
from tony_executor.monitoring.telemetry import ReportFile
from tony_executor.monitoring.tensorboard import FIRST_BACKOFF_S


class TestMeasures:
    def test_of_the_whole_tree(self, master: Master, executor: Executor) -> None:
        master.prepare()
        master.start(
            "python3 -c 'import time, threading; x = bytearray(50 << 20);"
            "threading.Thread(target=time.sleep, args=(600,), daemon=True).start();"
            "t = time.time()\n"
            "while True: pass' & setsid python3 -c 'x = bytearray(50 << 20);"
            "import time; time.sleep(600)' & wait"
        )
        # It wants a whole core, of which it gets some percent on a busy machine.
        least = {"cpu_percent": 2.5, "rss_mb": 100, "threads": 4}

        def whole() -> List[Measured]:
            return [
                found
                for found in master.said(Measured)
                if all(found.values[name] >= value for name, value in least.items())
            ]

        assert master.until(whole)[0].values["processes"] == 3

    def test_nothing_is_measured_when_nothing_runs(
        self, master: Master, executor: Executor
    ) -> None:
        master.run_program("exit 0")
        master.heard.clear()
        master.until(lambda: len(master.said(Heartbeat)) > 4)
        assert not master.said(Measured)


class TestGpus:
    def fake(self, folder: Path, code: str) -> Path:
        """Stands for nvidia-smi, which machines without GPUs lack."""
        path = folder / "smi"
        path.write_text(f'#!/bin/bash\necho "$@" > {folder}/asked\n{code}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def test_their_values_are_among_the_measures(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        smi = self.fake(tmp_path, "echo '50, 1000, 16000'; echo '100, 3000, 16000'")
        master.welcome.update(gpu_metrics=True, gpu_exec_path=str(smi))
        launch(env={"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"})
        master.prepare()
        master.start("sleep 60")
        found = master.until(
            lambda: [m for m in master.said(Measured) if "gpu_percent" in m.values][:1]
        )[0]
        assert found.values["gpu_percent"] == 75
        assert found.values["gpu_memory_mb"] == 4000
        assert found.values["gpus"] == 2
        assert "-i GPU-a,GPU-b" in (tmp_path / "asked").read_text()

    @pytest.mark.parametrize(("enabled", "visible"), [(False, "0"), (True, ""), (True, "-1")])
    def test_never_started_where_there_are_none(
        self,
        master: Master,
        launch: Callable[..., Executor],
        tmp_path: Path,
        enabled: bool,
        visible: str,
    ) -> None:
        smi = self.fake(tmp_path, "echo 1, 2, 3")
        master.welcome.update(gpu_metrics=enabled, gpu_exec_path=str(smi))
        launch(env={"CUDA_VISIBLE_DEVICES": visible})
        master.prepare()
        master.start("sleep 60")
        master.until(lambda: len(master.said(Measured)) > 2)
        assert not (tmp_path / "asked").exists()

    def test_one_that_hangs_holds_nothing_up(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        smi = self.fake(tmp_path, "sleep 300")
        master.welcome.update(gpu_metrics=True, gpu_exec_path=str(smi))
        executor = launch(env={"CUDA_VISIBLE_DEVICES": "0"})
        master.prepare()
        master.start("sleep 60")
        master.until(lambda: len(master.said(Measured)) > 4)
        assert master.stop().clean
        assert master.shut_down(executor) == 0

    def test_what_it_says(self) -> None:
        assert parse("") == {}
        assert parse("No devices were found\n") == {}
        assert parse("[N/A], 5, 10\n")["gpu_memory_mb"] == 5
        assert "gpu_percent" not in parse("[N/A], 5, 10\n")


class TestReports:
    def test_through_a_real_program(self, master: Master, executor: Executor) -> None:
        code = (
            "import tony, time\n"
            "for step in range(20):\n"
            "    tony.report(progress=step / 20, step=step, metrics={'loss': 1 / (step + 1)})\n"
            "    time.sleep(0.05)\n"
            "tony.report(progress=1.0, metrics={'accuracy': 0.9})\n"
        )
        (executor.work / "train.py").write_text(code)
        ended = master.run_program("python3 train.py")
        assert ended.exit_code == 0, ended
        reported = master.said(Reported)
        assert len(reported) >= 2
        assert reported[-1].progress == 1.0
        assert reported[-1].metrics["accuracy"] == 0.9
        assert [m.step for m in reported if m.step is not None][-1] == 19
        # All of it is said before the end.
        assert master.heard.index(reported[-1]) < master.heard.index(ended)

    def write(self, path: Path, text: str) -> None:
        with path.open("a") as file:
            file.write(text)

    def test_what_stands_in_the_file_is_taken_for_what_it_is(self, tmp_path: Path) -> None:
        path = tmp_path / "r"
        reports = ReportFile(str(path), 3)
        assert reports.read_new() is None
        self.write(path, '{"progress": 0.5, "metrics": {"a": 1, "b": "x", "c": NaN, "d": true}}\n')
        self.write(path, 'nonsense\n[1]\n{"step": "x"}\n{"metrics": 5}\n{"step": 1e400}\n')
        self.write(
            path,
            '{"saved": "x"}\n{"saved": 1e400}\n{"saved": 4}\n'
            '{"step": 1e19}\n{"step": -9223372036854775808}\n',
        )
        self.write(path, "[" * 100_000 + "\n")
        self.write(path, '{"metrics": {"a": 2}, "step": 4}\n{"progress": 0.')
        assert reports.read_new() == Reported(3, 0.5, {"a": 2.0}, 4, "", 4)
        assert reports.read_new() is None
        self.write(path, "6}\n")
        assert reports.read_new() == Reported(3, 0.6, {}, None)

    def test_the_last_result_counts_and_one_too_large_is_passed_over(self, tmp_path: Path) -> None:
        path = tmp_path / "r"
        reports = ReportFile(str(path), 0)
        self.write(path, '{"result": {"a": 1}}\n{"result": [1, null]}\n{"result": NaN}\n')
        self.write(path, f'{{"result": "{"x" * 70_000}"}}\n')
        assert reports.read_new() == Reported(0, None, {}, None, "[1,null]")
        self.write(path, '{"result": null}\n')
        assert reports.read_new() == Reported(0, None, {}, None, "null")

    def test_too_many_names_are_not_passed_on(self, tmp_path: Path) -> None:
        path = tmp_path / "r"
        reports = ReportFile(str(path), 0)
        seen: Dict[str, float] = {}
        for start in range(0, 2000, 100):
            values = ", ".join(f'"m{n}": 1' for n in range(start, start + 100))
            self.write(path, f'{{"metrics": {{{values}}}}}\n')
            news = reports.read_new()
            seen.update(news.metrics if news is not None else {})
        assert len(seen) == 500

    def test_the_file_stays_small(self, tmp_path: Path) -> None:
        path = tmp_path / "r"
        reports = ReportFile(str(path), 0)
        newest = None
        for step in range(20_000):
            self.write(path, f'{{"step": {step}, "metrics": {{"a-rather-long-name": 1.5}}}}\n')
            if step % 500 == 499:
                newest = reports.read_new() or newest
        assert newest is not None and newest.step == 19_999
        assert path.stat().st_size < 400_000

    def test_a_link_or_a_fifo_in_its_place_is_not_followed(self, tmp_path: Path) -> None:
        path = tmp_path / "r"
        path.symlink_to("/etc/passwd")
        assert ReportFile(str(path), 0).read_new() is None
        path.unlink()
        os.mkfifo(path)
        assert ReportFile(str(path), 0).read_new() is None


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

    def begin(self, master: Master, session: int = 0, **said: Any) -> Any:
        ready = master.prepare(session, ports=["main", "tensorboard"])
        master.start("sleep 300", session, tensorboard=said)
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
    def test_it_answers_where_the_master_was_told_that_the_node_is(
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
        assert [message.message for message in master.said(Serving)] == ["", ""]
        assert master.said(Serving)[-1].port == 0
        assert not master.said(Noted)
        assert (self.package / "ended").read_text() == "by TERM"

    def test_one_that_does_not_hear_term_is_killed(
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
        master.until(lambda: len(master.said(Serving)) == 3)
        assert [message.message for message in master.said(Serving)] == ["", "", ""]
        port = master.said(Serving)[-1].port
        assert port == first.ports["tensorboard"]
        assert self.page(port) == "/other"
        assert not master.said(Noted)

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
        master.until(lambda: len(master.said(Serving)) == 2)
        assert (self.package / "starts").read_text().count("\n") == 1

    def test_it_is_started_again_when_it_dies(
        self, master: Master, executor: Executor, python: Path
    ) -> None:
        ready = self.begin(master, **self.wanted(python))
        master.expect(Serving)
        with pytest.raises(OSError):
            self.page(ready.ports["tensorboard"], "/die")
        master.expect(Serving, port=0)
        master.until(lambda: len(master.said(Serving, port=ready.ports["tensorboard"])) == 2)
        assert not master.said(Ended)

    def test_one_that_always_fails_is_started_later_and_gates_nothing(
        self, master: Master, executor: Executor, python: Path
    ) -> None:
        broken = self.package / "broken"
        broken.touch()
        self.begin(master, **self.wanted(python))
        master.until(lambda: broken.read_text().count("\n") >= 2)
        first, second = map(float, broken.read_text().split()[:2])
        assert second - first > 0.9 * FIRST_BACKOFF_S
        assert not master.said(Ended)

    def test_nobody_has_it(self, master: Master, executor: Executor) -> None:
        self.begin(master, **self.wanted("/nowhere/python", sys.executable + "-no"))
        noted = master.expect(Noted, level="warning")
        assert "put tensorboard into the job's environment" in noted.text
        assert not master.said(Ended)

    def test_as_a_role_of_its_own(self, master: Master, executor: Executor, python: Path) -> None:
        ready = master.prepare(ports=["main", "tensorboard"])
        running = master.start("tony:tensorboard", tensorboard=self.wanted(python))
        serving = master.expect(Serving)
        assert serving.port == ready.ports["tensorboard"]
        assert alive(running.pid)
        with pytest.raises(OSError):
            self.page(serving.port, "/die")
        assert master.expect(Ended).exit_code == 5

    def test_as_a_role_where_nobody_has_it(self, master: Master, executor: Executor) -> None:
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
        assert not master.said(Ended), "its port is not one that peers use"

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
        assert not master.said(Serving)

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
        assert master.said(Serving)[-1] == Serving("tensorboard", 0)

    @pytest.mark.frameworks
    def test_the_real_one(
        self, master: Master, executor: Executor, environment: Callable[[str], Path]
    ) -> None:
        python = environment("tensorboard") / "bin" / "python"
        self.begin(master, **self.wanted(python))
        serving = master.expect(Serving, within=60)
        assert "/logs/of/the/job" in self.page(serving.port, "/data/logdir")
        assert master.shut_down(executor) == 0


class TestCost:
    def statistics(self, pid: int) -> List[float]:
        """[RSS in MB, CPU seconds]"""
        status = Path(f"/proc/{pid}/status").read_text()
        rss = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return [int(rss.split()[1]) / 1024, (int(fields[11]) + int(fields[12])) / 100]

    def test_memory(self, master: Master, executor: Executor) -> None:
        master.prepare()
        master.start("sleep 300")
        master.until(lambda: len(master.said(Measured)) > 3)
        (register,) = master.said(Register)
        rss, _ = self.statistics(register.pid)
        assert rss < 16
        in_front, _ = self.statistics(executor.pid)
        assert in_front < rss

    def test_what_it_imports(self) -> None:
        code = (
            f"import sys; sys.path[:0] = [{str(CHECKOUT)!r}, {str(CHECKOUT / 'executor')!r}]\n"
            "import tony_executor.main, tony_executor.shell\nprint(' '.join(sys.modules))"
        )
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
        )
        loaded = set(done.stdout.split())
        heavy = {"dataclasses", "inspect", "asyncio", "hashlib", "_hashlib", "ssl", "hmac"}
        heavy |= {"logging", "argparse", "subprocess", "tempfile", "shutil"}
        assert loaded & heavy == set()

"""The README's first commands in a clean clone, and what a newcomer mistypes, as one story."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, List, Optional
from urllib.parse import urljoin

import pytest
import requests

from tests.cluster.airflow.rest import ANSWER_S, Place, Rest, wait_for
from tests.cluster.hadoop.plan import LOOPBACK, Ports
from tests.importgraph import CHECKOUT
from tests.leaks import belonging_to, processes

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(3600)]

SET_UP_S = 1800.0
"""An environment with Airflow is installed."""
UP_S = 600.0
COMMAND_S = 120.0
SCREEN = 24
"""Lines of a small terminal."""

BUTTONS = {"TensorBoard", "Task logs", "Log of worker:0", "Log of worker:1"}

FAILING = 'import sys\nprint("reading")\nsys.exit("points.csv has no column y")\n'
LONG = "import time\nwhile True:\n    time.sleep(0.1)\n"


class Shell:
    """A login without a history: a fresh HOME, nothing of the tests' own environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        home = folder / "home"
        home.mkdir()
        cache = os.environ.get("PIP_CACHE_DIR") or str(Path.home() / ".cache" / "pip")
        strange = ("TONY_", "AIRFLOW", "PYTEST_", "PYTHON", "VIRTUAL_ENV", "XDG_")
        own = {n: value for n, value in os.environ.items() if not n.startswith(strange)}
        self.environ = {**own, "HOME": str(home), "PIP_CACHE_DIR": cache, "NO_PROXY": LOOPBACK}
        self.settings: Optional[str] = None

    def start(self, line: str, cwd: Path, log: Path) -> subprocess.Popen[bytes]:
        """A command line; where there are settings it is typed after sourcing them."""
        before = f"source {self.settings} && " if self.settings else ""
        with log.open("wb") as out:
            return subprocess.Popen(
                ["bash", "-c", f"{before}exec {line}"],
                cwd=cwd,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                # What runs in a shell's background ignores Ctrl-C.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def run(self, line: str, cwd: Path, code: int = 0, limit: float = COMMAND_S) -> str:
        """The same to its end; what it showed."""
        log = self.folder / f"shown-{time.monotonic_ns()}"
        process = self.start(line, cwd, log)
        try:
            ended = process.wait(limit)
        finally:
            _end(process)
        shown = log.read_text()
        assert ended == code, f"{line}: exit code {ended}, not {code}\n{shown}"
        return shown


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait(COMMAND_S)


@contextmanager
def standalone(shell: Shell, clone: Path, home: Path) -> Iterator[str]:
    """``airflow standalone``, ended by Ctrl-C; its address."""
    ports = Ports()
    web = ports.take()
    address = f"http://{LOOPBACK}:{web}"
    shell.environ["AIRFLOW__API__PORT"] = str(web)
    shell.environ["AIRFLOW__API__HOST"] = LOOPBACK
    for name in ("WORKER", "TRIGGER"):  # two more servers, at ports of their own
        shell.environ[f"AIRFLOW__LOGGING__{name}_LOG_SERVER_PORT"] = str(ports.take())
    shell.environ["AIRFLOW__CORE__PARALLELISM"] = "4"  # of 32 processes none does more
    log = shell.folder / "standalone.log"
    process = shell.start("airflow standalone", clone, log)
    try:
        wait_for(
            lambda: "Airflow is ready" in log.read_text() and _answers(address),
            bool,
            lambda _: _tail(log),
            lambda _: process.poll() is not None,
            UP_S,
        )
        yield address
    finally:
        _interrupt(process, home)
        print(_tail(log))  # shown where the test fails
        ports.close()


def _interrupt(process: subprocess.Popen[bytes], home: Path) -> None:
    """Ctrl-C, and the end of all that it had started."""
    process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + COMMAND_S
    while belonging_to(home, processes()) and time.monotonic() < deadline:
        process.poll()
        time.sleep(0.2)
    _end(process)
    for one in belonging_to(home, processes()):
        try:
            os.kill(one.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-80:])


def _answers(address: str) -> bool:
    with requests.Session() as session:
        session.trust_env = False
        try:
            return session.get(f"{address}/api/v2/version", timeout=ANSWER_S).ok
        except requests.RequestException:
            return False


def log_in(address: str, log: Path) -> Rest:
    """As the user whose password the standalone server shows."""
    found = re.search(r"Password for user 'admin': (\S+)", log.read_text())
    assert found, _tail(log)
    return Rest(address, ("admin", found[1]))


def buttons(rest: Rest, place: Place) -> Dict[str, str]:
    """The task's, once all of them lead somewhere."""
    return wait_for(
        lambda: {name: url for name, url in rest.links(place).items() if url},
        lambda found: set(found) >= BUTTONS,
        lambda found: f"the buttons: {found}\n{rest.log(place)}",
    )


def press(rest: Rest, address: str, found: Dict[str, str]) -> None:
    """Each leads to a page, with the rights of who is logged in; a log once there is one."""
    for name, url in found.items():
        wait_for(
            lambda url=url: rest.open(urljoin(f"{address}/", url)),
            lambda answer: answer.status_code == 200,
            lambda answer, name=name: f"{name}: {answer.url} {answer.status_code} {answer.text}",
        )


def train(rest: Rest, address: str, hold: Path) -> None:
    """The first DAG, triggered; its task's buttons before and after the job's end."""
    dag_id = "tony_first_training"
    place = (dag_id, "first", "train")
    rest.call("PATCH", f"dags/{dag_id}", json={"is_paused": False})
    rest.trigger(dag_id, "first", {"python": str(hold / "python")})
    wait_for(
        lambda: rest.task(place)["state"],
        lambda state: state == "running",
        lambda state: f"train is {state}\n{rest.log(place)}",
        lambda state: state in ("failed", "success"),
    )
    press(rest, address, buttons(rest, place))
    assert rest.task(place)["state"] == "running", rest.log(place)
    (hold / "go").touch()
    rest.wait(place, "success")
    press(rest, address, buttons(rest, place))
    log = rest.log(place)
    assert "SUCCEEDED" in log and "[worker:0] step" in log
    rest.wait((dag_id, "first", "check"), "success")


def waiting_python(folder: Path, python: Path) -> None:
    """A Python whose programs end when a file is there: so long their job runs."""
    folder.mkdir()
    path = folder / "python"
    path.write_text(
        f'#!/bin/sh\nPATH={python.parent}:$PATH\n"{python}" "$@" || exit\n'
        f"until [ -e {folder}/go ]; do sleep 0.1; done\n"
    )
    path.chmod(0o755)


def mistypes(shell: Shell, here: Path) -> None:
    """The command line's answers to what cannot be right."""
    for line, answer in (
        ("tony", "tony submit --executes"),
        ("tony sumbit", "did you mean submit?"),
        ("tony submit --conf_file tony.xml", "tony.xml: cannot be read: No such file"),
        ("tony submit --executes 'python train.py' --src_dir src", "train.py is not in "),
    ):
        shown = shell.run(line, here, 2)
        assert answer in shown, f"{line}:\n{shown}"
        assert "Traceback" not in shown and len(shown.splitlines()) <= SCREEN + 1, shown


def sees_a_failure(shell: Shell, here: Path) -> None:
    """Its cause is among the last lines of what submit shows."""
    (here / "src" / "fails.py").write_text(FAILING)
    shown = shell.run("tony submit --executes 'python fails.py' --src_dir src", here, 1)
    screen = shown.splitlines()[-SCREEN:]
    assert any("root cause: worker:0" in line for line in screen), shown
    assert any("points.csv has no column y" in line for line in screen), shown
    assert any("tony logs" in line for line in screen), shown


def presses_ctrl_c(shell: Shell, here: Path) -> None:
    """While submit watches a job: both end."""
    (here / "src" / "long.py").write_text(LONG)
    log = here / "interrupted"
    process = shell.start("tony submit --executes 'python long.py' --src_dir src", here, log)
    try:
        wait_for(
            lambda: log.read_text(),
            lambda shown: "worker:0 running" in shown,
            lambda shown: shown,
            lambda _: process.poll() is not None,
            COMMAND_S,
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(COMMAND_S) == 130, log.read_text()
    finally:
        _end(process)
    assert "KILLED" in log.read_text()
    assert "KILLED" in shell.run("tony status", here)


def test_the_first_ten_minutes(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    clone, venv, here = tmp_path / "tony", tmp_path / "try", tmp_path / "here"
    shell.run(f"git clone -q {CHECKOUT} {clone}", tmp_path)
    shell.environ["TONY_TRY_VENV"] = str(venv)
    try:
        shown = shell.run("bin/try", clone, limit=SET_UP_S)
        assert "SUCCEEDED" in shown and "Next:" in shown
        lines: List[str] = re.findall(r"^  source (\S+)$", shown, re.M)
        (shell.settings,) = lines
        (here / "src").mkdir(parents=True)
        mistypes(shell, here)
        sees_a_failure(shell, here)
        presses_ctrl_c(shell, here)
        waiting_python(tmp_path / "hold", venv / "bin" / "python")
        with standalone(shell, clone, venv) as address:
            rest = log_in(address, tmp_path / "standalone.log")
            try:
                wait_for(
                    lambda: (
                        rest.get("importErrors")["import_errors"],
                        {one["dag_id"] for one in rest.get("dags")["dags"]},
                    ),
                    lambda seen: not seen[0] and len(seen[1]) >= 6,
                    lambda seen: f"import errors: {seen[0]}\nDAGs: {seen[1]}",
                    lambda seen: bool(seen[0]),
                    UP_S,
                )
                train(rest, address, tmp_path / "hold")
            finally:
                rest.close()
    finally:
        shutil.rmtree(venv, ignore_errors=True)

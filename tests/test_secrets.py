"""Marked secrets in every place a user can put one, searched for in every place they may not be.

Real jobs by the real command line. While they run, what every process of ours has on its command
line and in its environment is sampled, and what lies in the folder for temporary files; afterwards
all output, every file (of TonY's home, of the folder that tony was started in, temporary ones) and
the page's answers are searched. Only the program itself may have them, and files of TonY's home
that no other user can open. So with the job's own secret and its TLS key.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

import pytest

from tests.cli.processes import command, environment, tony
from tony_core.protocol.job_secret import unpack_secret
from tony_core.schedulers.local.home import Home

pytestmark = pytest.mark.slow

PLACES = ("execution", "containers", "proxy", "conf", "words", "foreign", "container-proxy")
MARKS = {place: f"marked-{place}-0a7Tq9" for place in PLACES}

TLS = shutil.which("openssl") is not None

PROGRAM = """
import os, sys, time
what = sys.argv[1]
while not os.path.exists(sys.argv[2]):
    time.sleep(0.05)
if what == "fail":
    print("environment:", os.environ["API_TOKEN"], os.environ["DB_PASSWORD"], file=sys.stderr)
    print("could not reach " + os.environ["PROXY"], file=sys.stderr)
    sys.exit(3)
"""


def until(what: Callable[[], Any], why: str, log: Path) -> Any:
    """Wait for a true value."""
    end = time.monotonic() + 120
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, f"timed out waiting for {why}: {log.read_text()}"
        time.sleep(0.05)


def job_file(folder: Path, what: str) -> Path:
    """Two tasks, and a secret in every place."""
    m = MARKS
    settings = {
        "tony.application.name": "secrets",
        "tony.application.framework": "standalone",
        "tony.worker.instances": "1",
        "tony.worker.memory": "200m",
        "tony.worker.command": f"{sys.executable} train.py {what} {folder / 'go'} "
        f"--password {m['words']}",
        "tony.am.retry-count": "0",
        "tony.execution.env.API_TOKEN": m["execution"],
        "tony.execution.env.PROXY": f"http://me:{m['proxy']}@proxy:3128/",
        "tony.containers.env.DB_PASSWORD": m["containers"],
        "tony.containers.env.OTHER_PROXY": f"http://me:{m['container-proxy']}@proxy:3128/",
        "tony.secret.key": m["conf"],
        "fs.s3a.secret.key": m["foreign"],
        "tony.runtime.python": sys.executable,
        "tony.task.metrics-interval-ms": "200",
        "tony.task.kill-grace": "1s",
        "tony.task.tls": str(TLS).lower(),
    }
    found = folder / "tony.xml"
    found.write_text(
        "<configuration>"
        + "".join(
            f"<property><name>{name}</name><value>{value}</value></property>"
            for name, value in settings.items()
        )
        + "</configuration>"
    )
    source = folder / "src"
    source.mkdir(exist_ok=True)
    (source / "train.py").write_text(PROGRAM)
    return found


class Sampler:
    """What stands in /proc of the processes of this test's home, but for the program's own.

    And in the folder for temporary files.
    """

    def __init__(self, home: Path, temporary: Path) -> None:
        self._home = str(home).encode()
        self._temporary = temporary
        self.marks = {name: mark.encode() for name, mark in MARKS.items()}
        self.found: Set[str] = set()
        self.seen: Set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(0.1):
            for name, path in holders(self._temporary, dict(self.marks)):
                self.found.add(f"{name} in {path}")
            for entry in os.scandir("/proc"):
                if entry.name.isdigit() and int(entry.name) != os.getpid():
                    with contextlib.suppress(OSError):
                        self._look(Path(entry.path))

    def _look(self, process: Path) -> None:
        words = (process / "cmdline").read_bytes()
        variables = (process / "environ").read_bytes()
        if self._home not in words + variables:
            return
        if b"\0JOB_NAME=" in b"\0" + variables:
            return  # the program, or the shell in front of it
        parts = words.split(b"\0")
        shown = b" ".join(parts[:8]).decode("utf-8", "replace")
        self.seen.add(next((p.decode() for p in parts if p in VERBS), "client"))
        for name, mark in list(self.marks.items()):
            for where, text in (("command line", words), ("environment", variables)):
                if mark in text:
                    self.found.add(f"{name} in the {where} of {shown}")


VERBS = (b"master", b"executor", b"shim")
EVERY_KIND = {"client", "master", "executor", "shim"}


@pytest.fixture
def sampler(tony_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sampler]:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with Sampler(tony_home, temporary) as made:
        yield made


def holders(root: Path, marks: Dict[str, bytes]) -> List[Tuple[str, Path]]:
    """(what, file) for every file that has a mark in it or in its name."""
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            try:
                data = path.read_bytes() if path.is_file() else b""
            except OSError:
                continue
            found += [(what, path) for what, mark in marks.items() if mark in data + name.encode()]
    return found


def closed_to_others(path: Path, root: Path) -> bool:
    """Whether only its owner can open it: its own mode, and a folder above."""
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            return False
        return any(
            not stat.S_IMODE(folder.stat().st_mode) & 0o077
            for folder in path.parents
            if folder == root or root in folder.parents
        )
    except FileNotFoundError:
        return True  # it was there a moment ago: no user can open it now


class Submitted:
    """A job by `tony submit --debug --json`, whose output is kept."""

    def __init__(self, folder: Path, home: Path, what: str) -> None:
        self.folder = folder
        self.home = Home(str(home))
        self.out, self.err = folder / "out", folder / "err"
        words = command(
            "submit", "--debug", "--json", "--conf_file", str(job_file(folder, what)),
            "--src_dir", str(folder / "src"),
        )  # fmt: skip
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                words,
                cwd=folder,
                env=environment(),
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
            )
        found: Any = until(lambda: list(home.glob("apps/*/app.json")), "an application", self.err)
        self.app_id = found[0].parent.name
        self.app = self.home.app(self.app_id)

    def page(self) -> str:
        """The address of the page, once the program runs."""
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError, ValueError, KeyError, http.client.HTTPException):
                url = str(json.loads(Path(self.app.path, "master.json").read_text())["page_url"])
                with urllib.request.urlopen(url + "api/job", timeout=60) as answer:
                    if json.load(answer)["counts"].get("running") == 1:
                        return url
            assert time.monotonic() < deadline, self.err.read_text()
            time.sleep(0.05)

    def end(self) -> str:
        self.process.wait(120)
        return self.out.read_text() + self.err.read_text()


def own_marks(secret_file: bytes) -> Dict[str, bytes]:
    """The job's secret, and its TLS key: as they are, and as they could be written."""
    key = unpack_secret(secret_file)
    found = {"the job's": key.secret, "the job's, in hex": key.secret.hex().encode()}
    found["the job's, in base64"] = base64.b64encode(key.secret).rstrip(b"=")
    if not TLS:
        return found
    private, _, _ = key.pem.partition(b"-----END PRIVATE KEY-----")
    lines = private.split()[3:]  # behind -----BEGIN PRIVATE KEY-----
    assert len(lines) == 3, "of an elliptic curve"
    for number, line in enumerate(lines):
        found[f"line {number} of the TLS key"] = line
    number = base64.b64decode(b"".join(lines))[36:68]
    assert number.hex() in openssl_text(key.pem), "the number that is the key"
    return {**found, "the TLS key": number, "the TLS key, in hex": number.hex().encode()}


def openssl_text(pem: bytes) -> str:
    """A key as digits, all in one."""
    words = ["openssl", "pkey", "-noout", "-text"]
    done = subprocess.run(words, input=pem, capture_output=True, check=True)
    return "".join(done.stdout.decode().replace(":", "").split())


def attempt_of(submitted: Submitted) -> int:
    """Of the master whose address is written down."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return int(json.loads(Path(submitted.app.path, "master.json").read_text())["attempt"])
    return 0


def collect_outputs(submitted: Submitted) -> str:
    """What the verbs print of a job that has ended, and of its file."""
    output = []
    conf = str(submitted.folder / "tony.xml")
    for words in (
        ("status", submitted.app_id, "--json"),
        ("describe", submitted.app_id, "--json"),
        ("history", submitted.app_id),
        ("list", "--json"),
        ("config", "--conf_file", conf),
        ("submit", "--dry-run", "--debug", "--conf_file", conf, "--src_dir", "src"),
    ):
        done = tony(*words, cwd=submitted.folder, timeout=120)
        output.append(f"--- {words}\n{done.stdout}{done.stderr}")
    return "\n".join(output)


@pytest.mark.parametrize(
    "how",
    [
        "failure",
        "takeover",
        pytest.param("success", marks=pytest.mark.nightly),
        pytest.param("kill", marks=pytest.mark.nightly),
    ],
)
def test_a_secret_is_where_it_must_be_and_nowhere_else(
    tony_home: Path, tmp_path: Path, sampler: Sampler, how: str
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    submitted = Submitted(folder, tony_home, "fail" if how == "failure" else "wait")
    sampler.marks.update(own_marks(Path(submitted.app.secret).read_bytes()))
    output = ""
    if how != "failure":
        url = submitted.page()
        if how == "takeover":
            pid = int(json.loads(Path(submitted.app.lock).read_text())["pid"])
            os.kill(pid, signal.SIGKILL)
            until(lambda: attempt_of(submitted) == 2, "the next master", submitted.err)
            url = submitted.page()
        for path in ("", "api/job", "api/tasks", "api/metrics", "api/events"):
            with urllib.request.urlopen(url + path, timeout=60) as answer:
                output += answer.read().decode()
        held = holders(tmp_path, sampler.marks)
        expected = {"the job's", "line 1 of the TLS key"} if TLS else {"the job's"}
        assert expected <= {what for what, _ in held}, "the search finds what is there"
        for what, path in held:
            ours = path == folder / "tony.xml" or closed_to_others(path, tony_home)
            assert ours, f"{what} in {path}"
    until(lambda: sampler.seen >= EVERY_KIND, "a look at each kind of process", submitted.err)
    if how == "kill":
        tony("kill", submitted.app_id, cwd=folder, timeout=120)
    else:
        (folder / "go").touch()
    output += submitted.end()
    output += collect_outputs(submitted)
    for name, mark in sampler.marks.items():
        at = output.find(mark.decode("latin-1"))
        assert at < 0, f"{name} was printed: {output[max(0, at - 300) : at + 100]}"
    written_by_the_program = "stderr" if how == "failure" else "none"
    left = [
        f"{what} in {path}"
        for what, path in holders(tmp_path, sampler.marks)
        if not ("logs" in path.parts and path.name == written_by_the_program)
        and path != folder / "tony.xml"
    ]
    assert left == []
    for path in tony_home.glob("apps/*/logs"):
        assert closed_to_others(path, tony_home) or closed_to_others(path.parent, tony_home)
    assert sampler.found == set()
    assert sampler.seen >= EVERY_KIND

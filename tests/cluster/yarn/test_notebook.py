"""``tony notebook`` on a real cluster, with a real Jupyter: its way in, its ends, what is left."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

from tests.cli.test_notebook_real import CELL, IDLE, IMPATIENT, NO_KEY, STANDIN
from tests.cluster.firewall import Firewall, addresses_of
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.web import WebError
from tests.cluster.yarn.jobs import Running, Tony, until
from tests.cluster.yarn.test_https import trust
from tests.cluster.yarn.test_shell import CLOSED
from tests.cluster.yarn.training import masters
from tests.second_user import as_stranger
from tony_core.protocol.tunnel import KEY_FILE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SMALL = ["--memory", "1g", "--conf", "tony.am.memory=256m", "--conf", "tony.task.kill-grace=2s"]
_URL = re.compile(r"http://(127\.0\.0\.1:(\d+))/lab\?token=([0-9a-f]+)")


class Notebook:
    """A ``tony notebook`` that runs."""

    def __init__(self, running: Running, app_id: str = "") -> None:
        self.running = running
        found = running.until(lambda: _URL.search(running.output_text), "its address")
        self.base, self.port, self.token = f"http://{found[1]}", int(found[2]), found[3]
        self.app_id = app_id or running.app_id  # one that was attached to does not print it

    def get(self, path: str, token: str = "") -> int:
        """The status of an answer."""
        url = f"{self.base}{path}?token={token}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def answers(self) -> bool:
        """Whether it can be used now."""
        try:
            return self.get("/api/status", self.token) == 200
        except OSError:
            return False

    def compute(self, python: Path) -> str:
        """What a cell prints, by the address that was printed."""
        done = subprocess.run(
            [python, "-c", CELL, self.base, self.token], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def interrupt(self) -> str:
        """Press Ctrl-C; returns the output."""
        self.running.process.send_signal(signal.SIGINT)
        return self.running.ends(130)

    def is_open(self) -> bool:
        """Whether anything listens at the port."""
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def python(environment: Callable[[str], Path]) -> Path:
    """The Python of an environment with Jupyter."""
    return environment("jupyter") / "bin" / "python"


def started(one: Tony, python: Path, *words: str, group: int = -1) -> Notebook:
    where = ["--python_binary_path", str(python), *SMALL]
    running = one.start("notebook", *where, *words, group=group if group >= 0 else None)
    return Notebook(running)


def nothing_is_left(one: Tony, notebook: Notebook) -> None:
    """No process on any node, nothing staged, and no port here."""
    assert one.cluster is not None
    until(one.nothing_runs, "no process of Jupyter, of a kernel or of the job is left")
    for folder in ("apps", "store/leases"):
        path = f"/user/{one.cluster.user}/.tony/{folder}"
        until(lambda path=path: notebook.app_id not in one.cluster.hdfs.list(path), path)
    assert not notebook.is_open()


def state_of(one: Tony, notebook: Notebook) -> str:
    return str(one.json("status", notebook.app_id)["state"])


# Another user's client, who would even have the address of the page and a key: not the job's.
FORGED = """
import sys
from tony_core.client import tunnel
from tony_core.protocol.tunnel import ClientKey
page = sys.argv.pop(1)
tunnel.read_client_key = lambda *a: ClientKey(b"k" * 32, page)
from tony_core.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def bobs(one: Tony, *words: str) -> subprocess.CompletedProcess[str]:
    """A command line of another user of the cluster."""
    env = {**one.env, **one.cluster.environment_of("bob")}  # type: ignore[union-attr]
    return subprocess.run(words, capture_output=True, text=True, env=env, timeout=60)


def others_get_nothing(one: Tony, notebook: Notebook) -> None:
    """Another user of the cluster, and another user of this machine."""
    cluster: Hadoop = one.cluster  # type: ignore[assignment]
    done = bobs(one, *one.command, "notebook", "--attach", notebook.app_id, *one.choice)
    assert done.returncode == 3 and "may enter its containers" in done.stderr, done.stderr
    key = f"/user/{cluster.user}/.tony/apps/{notebook.app_id}/{KEY_FILE}"
    page = json.loads(cluster.hdfs.get(key))["page_url"]
    with pytest.raises(WebError, match="403"):
        cluster.hdfs_of("bob").get(key)
    shell = ["shell", notebook.app_id, "-t", "notebook:0", *one.choice, "--", "id"]
    done = bobs(one, sys.executable, "-c", FORGED, page, *shell)
    assert done.returncode == 3 and not done.stdout, done.stderr
    assert "does not know this job's secret" in done.stderr, done.stderr
    if os.geteuid() == 0:
        code = """
sock = socket.create_connection(("127.0.0.1", argument[0]), 20)
sock.sendall(("GET /api/status?token=%s HTTP/1.0\\r\\n\\r\\n" % argument[1]).encode())
try:
    result = sock.recv(1000).decode()
except OSError:
    result = ""
"""
        assert as_stranger(code, [notebook.port, notebook.token]) == "", "not even with the token"


WALLS = [
    pytest.param("drop", (), id="drop"),
    pytest.param("reject with tcp reset", (), id="reject", marks=pytest.mark.nightly),
    pytest.param("drop", ("secure",), id="secure", marks=pytest.mark.nightly),
    pytest.param("drop", ("secure", "https"), id="https", marks=pytest.mark.nightly),
]


@pytest.mark.nightly
def test_a_cell_where_the_master_cannot_be_reached(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], python: Path
) -> None:
    """Also without root's rights: the client gets an address where nothing listens."""
    one = tony_on(hadoop())
    usual, one.command = one.command, [sys.executable, "-c", CLOSED]
    notebook = started(one, python)
    one.command = usual
    assert notebook.compute(python) == "42 notebook\n"
    notebook.interrupt()
    nothing_is_left(one, notebook)


@pytest.mark.parametrize(("verdict", "features"), WALLS)
def test_a_cell_through_a_closed_firewall(
    hadoop: GetHadoop,
    tony_on: Callable[..., Tony],
    python: Path,
    verdict: str,
    features: Tuple[str, ...],
) -> None:
    """The client reaches the ResourceManager and HDFS, and no node."""
    cluster = hadoop(*features)
    one = tony_on(cluster)
    if "https" in features:
        trust(one, cluster)
    with Firewall(addresses_of(cluster), verdict) as firewall:
        notebook = started(one, python, group=firewall.group)
        assert firewall.stopped > 0, "it has tried the master itself"
        assert notebook.compute(python) == "42 notebook\n"
        assert notebook.get("/api/status", notebook.token) == 200
        assert notebook.get("/api/status") == 403
        others_get_nothing(one, notebook)
        stopped = firewall.stopped
        assert notebook.compute(python) == "42 notebook\n"
        assert firewall.stopped == stopped, "the proxy's way is kept"
        assert f"{notebook.app_id} has ended" in notebook.interrupt()
    assert state_of(one, notebook) == "KILLED"
    nothing_is_left(one, notebook)


def test_left_running_and_opened_again(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], python: Path
) -> None:
    one = tony_on(hadoop())
    where = ["--python_binary_path", str(python), *SMALL]
    app_id = one("notebook", "--detach", *where).stdout.strip()
    first = Notebook(one.start("notebook", "--attach", app_id), app_id)
    assert first.compute(python) == "42 notebook\n"
    assert "is still running" in first.interrupt()
    assert not first.is_open()
    second = Notebook(one.start("notebook", "--attach", app_id), app_id)
    assert second.token == first.token and state_of(one, second) == "RUNNING"
    one("kill", app_id)
    assert f"{app_id} has ended: KILLED" in second.running.ends(137)
    nothing_is_left(one, second)
    done = one("notebook", "--attach", app_id, check=False)
    assert done.returncode == 3 and "has ended (KILLED)" in done.stderr


@pytest.mark.nightly
def test_an_idle_one_ends(hadoop: GetHadoop, tony_on: Callable[..., Tony], python: Path) -> None:
    one = tony_on(hadoop())
    notebook = started(one, python, "--idle-timeout", "15s")
    assert notebook.compute(python) == "42 notebook\n"
    assert f"{notebook.app_id} has ended: SUCCEEDED" in notebook.running.ends(0, 200)
    nothing_is_left(one, notebook)


@pytest.mark.nightly
def test_a_killed_client_leaves_no_job(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], python: Path
) -> None:
    one = tony_on(hadoop())
    notebook = started(one, python, "--conf", "tony.client.lease=16s")
    assert notebook.compute(python) == "42 notebook\n"
    notebook.running.process.kill()
    notebook.running.process.wait(60)
    # Not by tony status, which renews the lease like any client.
    until(lambda: application(one, notebook)["state"] == "FINISHED", "the end of the job")
    assert application(one, notebook)["finalStatus"] == "KILLED"
    until(one.nothing_runs, "no process is left")
    assert "lease" in one.json("status", notebook.app_id)["diagnostics"]
    nothing_is_left(one, notebook)


@pytest.mark.nightly
def test_a_client_without_a_key_keeps_its_lease_by_the_proxy(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], python: Path
) -> None:
    """As where the master could not write to HDFS."""
    one = tony_on(hadoop())
    words = ["--python_binary_path", str(python), *SMALL, "--conf", "tony.client.lease=10s"]
    usual, one.command = (
        one.command,
        [sys.executable, "-c", NO_KEY + IMPATIENT.replace("3.0", "40.0")],
    )
    with Firewall(addresses_of(one.cluster)) as firewall:  # type: ignore[arg-type]
        running = one.start("notebook", *words, group=firewall.group)
        text = running.ends(3, 200)
    one.command = usual
    assert "its master left no key for its owner within 40 s: " in text
    assert "no-key.json is not there" in text
    assert "its client could not open it" in one.json("status", running.app_id)["diagnostics"]


@pytest.mark.nightly
@pytest.mark.parametrize("lost", ["the ResourceManager", "the master"])
def test_it_is_found_again(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], python: Path, lost: str
) -> None:
    """Through the firewall, where the ResourceManager's proxy is the only way."""
    cluster = hadoop("rm_ha")
    one = tony_on(cluster)
    with Firewall(addresses_of(cluster)) as firewall:
        notebook = started(one, python, group=firewall.group)
        assert notebook.compute(python) == "42 notebook\n"
        (master,) = masters(notebook.app_id)
        if lost == "the master":
            os.kill(master, signal.SIGKILL)
        else:
            cluster.kill_active_rm()
        until(lambda: masters(notebook.app_id) != [], "a master")
        until(notebook.answers, "the same Jupyter, with the same token")
        assert notebook.compute(python) == "42 notebook\n"
        assert (masters(notebook.app_id) == [master]) == (lost != "the master")
        assert len(set(_URL.findall(notebook.running.output_text))) == 1
        notebook.interrupt()
    nothing_is_left(one, notebook)


def application(one: Tony, notebook: Notebook) -> Dict[str, Any]:
    """As the ResourceManager has it."""
    apps = one.cluster.applications()  # type: ignore[union-attr]
    return next(app for app in apps if app["id"] == notebook.app_id)


def archive_of_environment(folder: Path) -> Path:
    """An environment with the stand-in for Jupyter, as an archive."""
    venv = folder / "venv"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--symlinks", venv], check=True, timeout=60
    )
    package = next(venv.glob("lib/python3*/site-packages")) / "jupyterlab"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(STANDIN)
    path = folder / "venv.tar.gz"
    subprocess.run(["tar", "czf", path, "-C", venv, "."], check=True, timeout=60)
    return path


def test_an_environment_as_an_archive_a_container_of_any_size_and_its_idle_end(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], tmp_path: Path
) -> None:
    one = tony_on(hadoop())
    notebook = Notebook(
        one.start(
            "notebook",
            *("--python_venv", str(archive_of_environment(tmp_path)), "--memory", "1536m"),
            *("--vcores", "2", "--conf", "tony.am.memory=256m", "--conf", "tony.am.vcores=1"),
            *("--conf", "tony.application.tags=notebook,trial", "--idle-timeout", "20s"),
        )
    )
    assert notebook.get("/", notebook.token) == 200 and notebook.get("/") == 403
    found = application(one, notebook)
    assert found["allocatedMB"] == 1536 + 256 and found["allocatedVCores"] == 2 + 1
    assert "trial" in found["applicationTags"]
    text = notebook.running.ends(0)
    assert f"{notebook.app_id} has ended: SUCCEEDED" in text and IDLE.format(20) in text
    nothing_is_left(one, notebook)


def test_a_site_that_forbids_starts_nothing(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], tmp_path: Path
) -> None:
    one = tony_on(hadoop())
    before: List[str] = [app["id"] for app in one.cluster.applications()]  # type: ignore[union-attr]
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "tony-site.xml").write_text(
        "<configuration><property><name>tony.notebook.enabled</name><value>false</value>"
        "<final>true</final></property></configuration>"
    )
    one.env["TONY_CONF_DIR"] = str(tmp_path / "site")
    words = [*SMALL, "--conf", "tony.notebook.enabled=true"]
    for more in ([], ["--detach"]):
        done = one("notebook", *words, *more, check=False)
        assert done.returncode == 2, done.stderr
        assert "tony.notebook.enabled" in done.stderr and "site" in done.stderr, done.stderr
    assert [app["id"] for app in one.cluster.applications()] == before  # type: ignore[union-attr]

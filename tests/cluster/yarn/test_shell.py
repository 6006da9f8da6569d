"""``tony shell`` on a real cluster: to the master itself, and where only the proxy is reachable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Callable, List, Optional, Tuple

import pytest

from tests.cli.processes import Terminal
from tests.cluster.firewall import Firewall, addresses_of
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.jars import VERSIONS
from tests.cluster.yarn.jobs import Running, Tony, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# A firewall between the client and the nodes, as the client sees it.
CLOSED = """
import sys
from tony_core.client import tunnel
real = tunnel.read_client_key
tunnel.read_client_key = lambda *a: real(*a)._replace(page_url="http://127.0.0.1:1/")
from tony_core.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def shell(
    one: Tony, closed: bool, words: List[str], data: Optional[bytes] = b""
) -> Tuple[int, bytes, bytes]:
    argv = [sys.executable, "-c", CLOSED] if closed else one.command
    done = subprocess.run(
        [*argv, "shell", *words], input=data, capture_output=True, env=one.env, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def started(one: Tony) -> Running:
    job = one.submit(
        *("--executes", "sleep 600"),
        conf={"tony.worker.instances": 2, "tony.worker.memory": "64m"},
    )

    def running() -> bool:
        tasks = one.json("status", job.app_id).get("tasks", [])
        return [task["state"] for task in tasks] == ["running", "running"]

    job.until(running, "both programs run")
    return job


def a_terminal(one: Tony, app_id: str) -> None:
    """By the proxy: keys, Ctrl-C among them, and what is shown."""
    env = {name: value for name, value in one.env.items() if os.environ.get(name) != value}
    terminal = Terminal(one.folder, "shell", app_id, "-t", "worker:0", code=CLOSED, **env)
    terminal.type(b"stty size; echo I am $TASK_INDEX $CONTAINER_ID\n")
    terminal.until("I am 0 container_")
    terminal.type(b"sleep 300\n")
    terminal.until("sleep 300")
    terminal.type(b"\x03")
    terminal.type(b"echo $((40 + 2)) after; exit 5\n")
    terminal.until("42 after")
    assert terminal.end() == 5, terminal.shown


@pytest.mark.parametrize("closed", [False, True], ids=["direct", "proxy"])
@pytest.mark.parametrize(
    ("security", "version"),
    [
        pytest.param((), VERSIONS[0], id="open"),
        pytest.param(("secure",), VERSIONS[0], id="secure"),
        pytest.param((), VERSIONS[-1], id="older", marks=pytest.mark.nightly),
    ],
)
def test_a_command_in_a_container(
    hadoop: GetHadoop,
    tony_on: Callable[..., Tony],
    security: Tuple[str, ...],
    version: str,
    closed: bool,
) -> None:
    one = tony_on(hadoop(*security, version=version))
    job = started(one)
    text = 'echo "$TASK_INDEX $CONTAINER_ID"; cat; echo wrong >&2; exit 7'
    code, out, err = shell(
        one, closed, [job.app_id, "-t", "worker:1", "--", "sh", "-c", text], b"a line\n"
    )
    assert code == 7, err
    assert out.startswith(b"1 container_") and out.endswith(b"\na line\n")
    assert err == b"wrong\n"
    data = os.urandom(2_000_000)
    code, out, err = shell(one, closed, [job.app_id, "-t", "worker:0", "--", "cat"], data)
    assert code == 0 and out == data, err
    # Many requests: more than the page has places for connections.
    text = "i=0; while [ $i -lt 300 ]; do i=$((i + 1)); echo $i; sleep 0.03; done"
    code, out, err = shell(one, closed, [job.app_id, "-t", "worker:0", "--", "sh", "-c", text])
    assert code == 0 and out.split()[-1] == b"300", err
    if closed:
        a_terminal(one, job.app_id)
    one.json("kill", job.app_id)
    until(one.nothing_runs, "nothing is left")


@pytest.mark.parametrize(
    "verdict", ["drop", pytest.param("reject with tcp reset", marks=pytest.mark.nightly)]
)
def test_a_command_through_a_closed_firewall(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], verdict: str
) -> None:
    one = tony_on(hadoop())
    job = started(one)
    with Firewall(addresses_of(one.cluster), verdict) as firewall:  # type: ignore[arg-type]
        running = one.start(
            *("shell", job.app_id, "-t", "worker:1", "--"),
            *("sh", "-c", 'echo "task $TASK_INDEX"; exit 7'),
            group=firewall.group,
        )
        assert running.ends(7) == "task 1\n"
        assert firewall.stopped > 0, "it has tried the master itself"
    one.json("kill", job.app_id)
    until(one.nothing_runs, "nothing is left")


def test_another_user_of_the_cluster(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], tmp_path: Path
) -> None:
    one = tony_on(hadoop())
    job = started(one)
    other = subprocess.run(
        [*one.command, "shell", job.app_id, "-t", "worker:0", "--", "id"],
        capture_output=True,
        text=True,
        env={**one.env, "HADOOP_USER_NAME": "bob"},
        timeout=60,
    )
    assert other.returncode == 3 and "may enter its containers" in other.stderr, other.stderr
    one.json("kill", job.app_id)


def test_a_site_that_forbids_shells(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], tmp_path: Path
) -> None:
    one = tony_on(hadoop())
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "tony-site.xml").write_text(
        "<configuration><property><name>tony.shell.enabled</name><value>false</value>"
        "<final>true</final></property></configuration>"
    )
    one.env["TONY_CONF_DIR"] = str(tmp_path / "site")
    job = started(one)
    del one.env["TONY_CONF_DIR"]  # it is not the client that refuses
    code, out, err = shell(one, False, [job.app_id, "-t", "worker:0", "--", "true"])
    assert (code, out) == (3, b"") and b"tony.shell.enabled" in err, err
    one.json("kill", job.app_id)

"""What another user of the node can do to a task that runs there."""

from __future__ import annotations

import json
import os
import signal
import socket
import time

import pytest

from tests.executor.standin import Executor, Master, alive
from tests.second_user import as_stranger, needs_root, start_stranger
from tony_core.protocol.messages import Ended

pytestmark = needs_root
LISTEN = """
sock = socket.socket()
sock.setsockopt(1, 2, 1)
until = time.monotonic() + 20
while True:
    try:
        sock.bind(("", argument))
        sock.listen()
        break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(0.005)
print("listening")
time.sleep(60)
"""


def test_a_port_of_the_task_that_another_user_takes_ends_it(
    master: Master, executor: Executor
) -> None:
    """The peers would talk to that user: a new round has new ports."""
    port = master.prepare(ports=["main", "other"]).ports["main"]
    with start_stranger(LISTEN, port) as stranger:
        time.sleep(0.5)
        assert stranger.poll() is None, "it tries for as long as the port is held"
        master.start("sleep 300")
        ended = master.expect(Ended)
        stranger.kill()
    assert ended.cause == "address-in-use"
    assert ended.message == "another process listens at the task's port (main)"


@pytest.mark.parametrize("is_only_task", [True, False])
def test_a_port_at_which_no_task_calls_ends_nothing(
    master: Master, executor: Executor, is_only_task: bool
) -> None:
    """Else any user could end any task, whether or not its program needs the port."""
    port = master.prepare(ports=["main", "tensorboard"]).ports[
        "main" if is_only_task else "tensorboard"
    ]
    with start_stranger(LISTEN, port) as stranger:
        time.sleep(0.5)
        peers = ["a:1"] if is_only_task else ["a:1", "b:1"]
        master.start("sleep 300", shared={"CLUSTER_SPEC": json.dumps({"worker": peers})})
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "listening\n"
        master.wait(2.0)
        stranger.kill()
    assert not master.received(Ended)


def test_a_program_that_listens_at_its_port_goes_on(master: Master, executor: Executor) -> None:
    port = master.prepare().ports["main"]
    code = (
        "import socket, time; s = socket.socket(socket.AF_INET6); s.setsockopt(1, 2, 1);"
        f"s.bind(('::', {port})); s.listen(); print('listening', flush=True); time.sleep(300)"
    )
    master.start(f'exec python3 -c "{code}"')
    assert master.until(lambda: [executor.log("stdout")] if executor.log("stdout") else [])
    with start_stranger(LISTEN, port) as stranger:
        master.wait(2.0)
        assert stranger.poll() is None
        stranger.kill()
    assert not master.received(Ended)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP])
def test_no_signal_of_another_user_reaches_a_process(
    master: Master, executor: Executor, number: int
) -> None:
    master.prepare()
    running = master.start("sleep 300")
    code = """
    result = []
    for pid in argument[0]:
        try:
            os.kill(pid, argument[1])
            result.append(pid)
        except PermissionError:
            pass
    """
    pids = [executor.process.pid, running.pid]
    assert as_stranger(code, [pids, int(number)]) == []
    assert all(alive(pid) for pid in pids)


def test_no_other_user_reads_what_the_processes_hold(master: Master, executor: Executor) -> None:
    master.prepare()
    running = master.start("sleep 300", env={"API_TOKEN": "x"})
    code = """
    result = []
    for pid in argument:
        for name in ("environ", "fd", "mem", "cwd", "root"):
            path = f"/proc/{pid}/{name}"
            try:
                os.listdir(path) if name == "fd" else open(path, "rb").read(1)
                result.append(path)
            except OSError:
                pass
    """
    assert as_stranger(code, [executor.process.pid, running.pid]) == []
    assert os.stat(executor.work).st_uid == os.geteuid()


def test_no_other_user_speaks_to_the_pmi_relay(master: Master, executor: Executor) -> None:
    """Neither to be answered, nor to take one of its places."""
    code = """
    result = []
    for _ in range(40):
        sock = socket.socket()
        sock.settimeout(5)
        try:
            sock.connect(("127.0.0.1", argument))
            sock.sendall(b"cmd=barrier_in\\n")
            result.append(len(sock.recv(100)))
        except ConnectionError:
            result.append(0)
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        master.prepare()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        script = "echo $PMI_PORT; sleep 1.5; exec 3<>/dev/tcp/${PMI_PORT/:/\\/}; head -1 <&3"
        master.start(script, env={"PMI_PORT": address})
        (relay,) = master.until(lambda: executor.log("stdout").split())
        assert set(as_stranger(code, int(relay.rpartition(":")[2]))) == {0}
        rank, _ = server.accept()
        with rank:
            rank.sendall(b"cmd=answer\n")
            assert master.expect(Ended).exit_code == 0
    assert executor.log("stdout").split()[1:] == ["cmd=answer"]
    assert "not this user's" in executor.log("executor.log")

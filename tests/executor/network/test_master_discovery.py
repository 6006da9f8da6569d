"""Masters come and go: finding one, losing it, taking another, obeying only the newest."""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path
from typing import Callable, Iterator, List

import pytest

from tests.executor.standin import Executor, Master, alive
from tony_core.protocol.link import listen
from tony_core.protocol.messages import (
    Ended,
    Heartbeat,
    Noted,
    Prepare,
    Ready,
    Register,
    Reported,
    Shutdown,
    Stop,
    Stopped,
)


@pytest.fixture
def masters() -> Iterator[Callable[..., Master]]:
    """More masters than one."""
    made: List[Master] = []

    def make(**options: object) -> Master:
        made.append(Master(**options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for master in made:
        master.close()


def test_heartbeats(master: Master, executor: Executor) -> None:
    master.expect(Register)
    master.until(lambda: len(master.received(Heartbeat)) >= 5)
    beats = [
        at for at, m in zip(master.times, master.messages, strict=True) if isinstance(m, Heartbeat)
    ]
    assert 0.1 < (beats[-1] - beats[0]) / (len(beats) - 1) < 0.5


def test_the_master_may_come_later(
    master: Master, launch: Callable[..., Executor], masters: Callable[..., Master]
) -> None:
    port = master.listener.port
    master.listener.close()
    launch(master=f"127.0.0.1:{port}")
    time.sleep(0.7)
    master.listener = listen(
        master.reactor, "127.0.0.1", port, lambda sock: master._link(sock, False)
    )
    master.expect(Register)


def test_no_master_at_all(launch: Callable[..., Executor], master: Master) -> None:
    port = master.listener.port
    master.listener.close()
    executor = launch(master=f"127.0.0.1:{port}", options=["--register-timeout", "1"])
    assert executor.wait() == 65
    assert "no master was reached within 1 s" in executor.log("executor.log")
    assert "Connection refused" in executor.log("executor.log")


def test_a_master_with_another_secret_is_none(
    launch: Callable[..., Executor], masters: Callable[..., Master]
) -> None:
    false = masters(secret=b"guessed")
    executor = launch(master=false.address, options=["--register-timeout", "1"])
    false.until(executor.ended)
    assert executor.wait() == 65
    assert "does not know this job's secret" in executor.log("executor.log")
    assert not false.messages


def test_training_is_not_disturbed_by_a_new_master(
    master: Master, launch: Callable[..., Executor], masters: Callable[..., Master], tmp_path: Path
) -> None:
    master_file = tmp_path / "master.json"
    executor = launch(env={"TONY_MASTER_FILE": str(master_file)})
    master.prepare()
    running = master.start("sleep 1.5; exit 5")
    master.close()
    second = masters(attempt=2)
    host, port = second.address.split(":")
    master_file.write_text(json.dumps({"attempt": 2, "host": host, "port": int(port)}))
    register = second.expect(Register)
    assert (register.task, register.session, register.phase) == ("worker:0", 0, "running")
    assert alive(running.pid)
    assert second.expect(Ended).exit_code == 5
    assert second.shut_down(executor) == 0


def test_a_next_master_calls(
    master: Master, executor: Executor, masters: Callable[..., Master]
) -> None:
    ready = master.prepare()
    port = master.received(Register)[0].listen_port
    second = masters(attempt=2)
    second.call(port)
    register = second.expect(Register)
    assert (register.phase, register.ports) == ("ready", ready.ports)
    # The first is not obeyed any more.
    master.until(lambda: master.closed)
    second.start("exit 0")
    assert second.expect(Ended).exit_code == 0


def test_under_a_local_master_only_this_machine_reaches_the_executor(
    master: Master, launch: Callable[..., Executor], masters: Callable[..., Master]
) -> None:
    """Whatever the node's name is: peers need that, and a next master does not."""
    launch(env={"TONY_NODE": socket.gethostname()})
    register = master.expect(Register)
    assert (register.host, register.listen_host) == (socket.gethostname(), "127.0.0.1")
    # 127.0.0.2 is an address of this machine, too; who listens everywhere listens there.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", register.listen_port), timeout=60)
    second = masters(attempt=2)
    second.call(register.listen_port)
    assert second.expect(Register).listen_port == register.listen_port


def test_an_older_master_is_not_obeyed(
    master: Master, launch: Callable[..., Executor], masters: Callable[..., Master]
) -> None:
    second = masters(attempt=2)
    launch(master=second.address)
    second.prepare()
    second.start("sleep 300")
    port = second.received(Register)[0].listen_port
    old = masters(attempt=1)
    old.call(port)
    old.expect(Register)
    old.until(lambda: old.closed)
    second.wait(0.3)
    assert not second.received(Ended) and not second.closed


def test_messages_before_the_welcome_are_ignored(
    master: Master, executor: Executor, masters: Callable[..., Master]
) -> None:
    master.prepare()
    master.start("sleep 300")
    rude = masters()
    rude.welcomes = False
    rude.call(master.received(Register)[0].listen_port)
    rude.expect(Register)
    rude.send(Stop(0, 0.0))
    rude.send(Prepare("worker:1", 7, ["main"]))
    rude.send(Shutdown(0.0, "rude"))
    master.wait(0.5)
    assert not master.received(Ended) and not executor.ended()


def test_a_peer_without_the_secret_is_refused(master: Master, executor: Executor) -> None:
    register = master.expect(Register)
    with socket.create_connection(("127.0.0.1", register.listen_port)) as sock:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        sock.settimeout(5)
        assert sock.recv(100)[:4] == b"TonY"  # its hello, which says nothing
    assert master.run_program("exit 0").exit_code == 0


def test_many_peers_without_the_secret_are_refused(master: Master, executor: Executor) -> None:
    register = master.expect(Register)
    socks = [socket.create_connection(("127.0.0.1", register.listen_port)) for _ in range(50)]
    try:
        assert master.run_program("exit 0").exit_code == 0
    finally:
        for sock in socks:
            sock.close()


def test_a_job_that_does_not_know_the_container_shuts_it_down(
    master: Master, executor: Executor
) -> None:
    master.welcomes = False
    master.expect(Register)
    master.send(Shutdown(0.0, "this job has no such container"))
    assert master.until(executor.ended) == [0]


def test_a_lost_master_means_the_end_after_a_while(master: Master, executor: Executor) -> None:
    master.welcome["master_lost_s"] = 1.0
    master.prepare()
    running = master.start("trap '' TERM; sleep 300 & wait; sleep 300")
    before = time.monotonic()
    master.close()
    assert executor.wait() == 66
    assert time.monotonic() - before > 0.9
    assert not alive(running.pid)
    assert "tony.task.master-lost-timeout" in executor.log("executor.log")


def test_a_silent_master_is_a_lost_one(master: Master, executor: Executor) -> None:
    master.welcome["silence_s"] = 0.6
    master.prepare()
    master.until(lambda: len(master.received(Register)) == 2)  # called anew
    assert any("closed" in reason for reason in master.closed)


def test_an_unacknowledged_end_is_in_the_next_register(
    master: Master, executor: Executor, masters: Callable[..., Master]
) -> None:
    master.acknowledges = False
    master.run_program("echo why >&2; exit 9")
    second = masters(attempt=2)
    second.call(master.received(Register)[0].listen_port)
    register = second.expect(Register)
    assert register.phase == "ended"
    assert register.ended is not None
    assert register.ended["exit_code"] == 9
    assert register.ended["stderr_tail"] == ["why"]


def test_an_end_while_there_is_no_master(
    master: Master, launch: Callable[..., Executor], masters: Callable[..., Master], tmp_path: Path
) -> None:
    master_file = tmp_path / "master.json"
    launch(env={"TONY_MASTER_FILE": str(master_file)})
    master.prepare()
    master.start("sleep 0.5; exit 6")
    master.close()
    time.sleep(1.0)
    second = masters(attempt=2)
    host, port = second.address.split(":")
    master_file.write_text(json.dumps({"host": host, "port": int(port)}))
    register = second.expect(Register)
    assert register.ended is not None and register.ended["exit_code"] == 6
    assert register.ran_s == register.ended["duration_s"] > 0


def test_a_new_master_gets_the_newest_report(
    master: Master, executor: Executor, masters: Callable[..., Master]
) -> None:
    master.prepare()
    master.start(
        "python3 -c \"import tony; tony.report(progress=0.5, metrics={'a': 1})\"; sleep 300"
    )
    master.expect(Reported)
    second = masters(attempt=2)
    second.call(master.received(Register)[0].listen_port)
    assert second.expect(Reported) == Reported(0, 0.5, {"a": 1.0}, None)
    assert second.received(Register)[0].ran_s > 0


def test_no_registry_timeout_of_a_ready_task(master: Master, executor: Executor) -> None:
    master.welcome["registry_timeout_s"] = 0.6
    master.prepare()
    master.wait(1.5)
    assert not master.received(Ended)
    assert master.run_program("exit 0").exit_code == 0


def test_the_registry_timeout_of_an_executor_without_a_task(
    master: Master, executor: Executor
) -> None:
    master.welcome["registry_timeout_s"] = 0.5
    master.expect(Register)
    assert master.until(executor.ended) == [67]
    assert "assigned no task within 0.5 s" in master.received(Noted)[0].text
    assert master.received(Stopped)


def test_prepare_sent_again_is_answered_again(master: Master, executor: Executor) -> None:
    first = master.prepare()
    master.send(Prepare("worker:0", 0, ["main"]))
    master.until(lambda: len(master.received(Ready)) == 2)
    assert master.received(Ready) == [first, first]


def successor(folder: Path, code: str) -> str:
    """A command that notes each call, then does this."""
    script = folder / "successor.py"
    script.write_text(
        f"import sys, os\nopen({str(folder / 'calls')!r}, 'a').write('call\\n')\n{code}\n"
    )
    return json.dumps([sys.executable, str(script), "--app-dir", str(folder)])


class TestSuccessor:
    def test_it_is_run_until_a_master_is_there(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        command = successor(tmp_path, "sys.exit(3)")
        executor = launch(env={"TONY_SUCCESSOR": command})
        master.prepare()
        running = master.start("sleep 300")
        assert not (tmp_path / "calls").exists()
        port = master.received(Register)[0].listen_port
        master.listener.close()
        master.links[0].close()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            calls = tmp_path / "calls"
            if calls.exists() and len(calls.read_text().split()) == 2:
                break
            time.sleep(0.05)
        assert (tmp_path / "calls").read_text() == "call\ncall\n"
        assert alive(running.pid)
        master.call(port)
        master.until(lambda: len(master.received(Register)) == 2)
        assert master.shut_down(executor) == 0

    def test_when_no_master_will_come_it_ends(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        executor = launch(env={"TONY_SUCCESSOR": successor(tmp_path, "sys.exit(4)")})
        master.prepare()
        running = master.start("sleep 300")
        master.close()
        assert executor.wait() == 66
        assert not alive(running.pid)
        assert "no attempts" in executor.log("executor.log")

    def test_what_it_starts_in_the_container_ends_with_it(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        pid_file = tmp_path / "master.pid"
        code = (
            "import time\n"
            f"if os.path.exists({str(pid_file)!r}): sys.exit(3)\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            f"    open({str(pid_file)!r}, 'w').write(str(os.getpid()))\n"
            "    time.sleep(30)\n"
            "    os._exit(0)\n"
            f"while not os.path.exists({str(pid_file)!r}): time.sleep(0.01)\n"
            "sys.exit(0)\n"
        )
        executor = launch(env={"TONY_SUCCESSOR": successor(tmp_path, code)})
        master.welcome["master_lost_s"] = 2.5
        master.prepare()
        master.start("sleep 300")
        master.close()
        assert executor.wait() == 66
        pid = int(pid_file.read_text())
        assert not alive(pid)

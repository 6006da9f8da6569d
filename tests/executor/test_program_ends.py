"""How programs end, through a real executor: codes, signals, tails, causes, usage."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from tests.executor.standin import Executor, Master
from tony_core.protocol.messages import Acknowledge, Ended, Register, Running, Start, Stopped


def test_a_whole_run_of_an_executor(master: Master, executor: Executor) -> None:
    register = master.expect(Register)
    assert register.container_id == "container_1"
    assert register.host == "127.0.0.1"
    assert os.getpgid(register.pid) == executor.pid
    assert (register.task, register.session, register.phase) == ("", -1, "idle")
    ready = master.prepare()
    assert list(ready.ports) == ["main"]
    running = master.start("echo out; echo err >&2")
    assert running.pid > 0
    ended = master.expect(Ended)
    assert (ended.exit_code, ended.signal, ended.cause, ended.message) == (0, 0, "exited", "")
    assert ended.stderr_tail == ["err"]
    assert executor.log("stdout") == "out\n"
    assert executor.log("stderr") == "err\n"
    assert master.shut_down(executor) == 0
    assert master.received(Stopped, session=0, clean=True)
    assert "exits with 0: the test is over" in executor.log("executor.log")


@pytest.mark.parametrize("code", [1, 3, 255])
def test_its_own_exit_code(master: Master, executor: Executor, code: int) -> None:
    ended = master.run_program(f"exit {code}")
    assert (ended.exit_code, ended.signal, ended.cause) == (code, 0, "exited")


def test_the_command_is_the_child_itself(master: Master, executor: Executor) -> None:
    master.prepare()
    running = master.start("sleep 60")
    name = Path(f"/proc/{running.pid}/comm")  # bash's, until it has exec'd the command
    master.until(lambda: name.read_text().strip() == "sleep")


@pytest.mark.parametrize(("number", "word"), [(9, "SIGKILL"), (11, "SIGSEGV"), (6, "SIGABRT")])
def test_the_signal_that_ended_it(
    master: Master, executor: Executor, number: int, word: str
) -> None:
    ended = master.run_program(f"kill -{number} $$; sleep 5")
    assert (ended.exit_code, ended.signal) == (128 + number, number)
    assert ended.message.startswith(f"a {word}")
    assert str(number) not in ended.message  # the master says it before this
    assert ("TonY did not send" in ended.message) == (number == 9)


def test_a_command_that_does_not_exist(master: Master, executor: Executor) -> None:
    ended = master.run_program("no-such-program --at all")
    assert (ended.exit_code, ended.cause) == (127, "not-found")
    assert "no-such-program" in ended.message
    assert "PATH" in ended.message


def test_a_command_that_cannot_be_executed(master: Master, executor: Executor) -> None:
    (executor.work / "tony-src").mkdir()
    (executor.work / "tony-src" / "data.txt").write_text("no program")
    master.prepare(source="tony-src")
    master.send(Start(0, "./data.txt", {}))
    ended = master.expect(Ended)
    assert (ended.exit_code, ended.cause) == (126, "not-executable")
    assert "exec bit" in ended.message


def test_a_full_disk(master: Master, executor: Executor) -> None:
    ended = master.run_program("echo x > /dev/full || exit 1")
    assert ended.cause == "disk-full"
    assert "free some space" in ended.message


def test_the_same_failure_has_the_same_message_in_every_session(
    master: Master, executor: Executor
) -> None:
    command = "echo cannot open $PWD/nope.py >&2; exit 2"
    assert master.run_program(command).stderr_tail == ["cannot open ./nope.py"]
    assert master.run_program(command, session=1).stderr_tail == ["cannot open ./nope.py"]


def test_only_the_last_lines_of_stderr(master: Master, executor: Executor) -> None:
    script = (
        "for i in $(seq 1 5000); do echo line $i >&2; done;"
        "printf 'a%.0s' $(seq 1 2000) >&2; echo >&2;"
        r"printf '\xff\xfe bytes\n' >&2; printf '10%%\r50%%\r100%%\n\n' >&2; exit 1"
    )
    ended = master.run_program(script)
    assert len(ended.stderr_tail) == 5
    assert ended.stderr_tail[:2] == ["line 4999", "line 5000"]
    assert len(ended.stderr_tail[2]) == 500 and ended.stderr_tail[2].endswith("\u2026")
    assert ended.stderr_tail[3] == "\ufffd\ufffd bytes"
    assert ended.stderr_tail[4] == "100%"


def test_a_tail_is_of_its_own_session(master: Master, executor: Executor) -> None:
    assert master.run_program("echo first >&2; exit 1").stderr_tail == ["first"]
    assert master.run_program("exit 1", session=1).stderr_tail == []
    assert executor.log("stderr") == "first\n"


def test_megabytes_without_a_line_end(master: Master, executor: Executor) -> None:
    ended = master.run_program("head -c 20000000 /dev/zero >&2; exit 2")
    assert len(ended.stderr_tail) == 1
    assert len(ended.stderr_tail[0]) == 500


def test_the_usage_is_of_the_whole_tree(master: Master, executor: Executor) -> None:
    script = (
        "python3 -c 'x = bytearray(60 << 20); import time\n"
        "while time.process_time() < 1.2: pass' & "
        "python3 -c 'x = bytearray(60 << 20); import time; time.sleep(1.4)' & wait"
    )
    ended = master.run_program(script)
    assert ended.exit_code == 0
    assert ended.usage["peak_rss_mb"] > 120
    assert 1.0 < ended.usage["cpu_s"] < 3.0
    assert ended.duration_s > 1.3


def test_a_port_of_ours_that_is_taken(master: Master, executor: Executor) -> None:
    ready = master.prepare()
    script = (
        "import socket, os\n"
        "thief = socket.socket(); thief.setsockopt(1, 2, 1)\n"
        f"thief.bind(('', {ready.ports['main']})); thief.listen()\n"
        "second = socket.socket()\n"
        f"second.bind(('', {ready.ports['main']}))\n"
    )
    master.send(Start(0, f'python3 -c "{script}"', {}))
    ended = master.expect(Ended)
    assert "Address already in use" in ended.stderr_tail[-1]
    assert ended.cause == "address-in-use"


def test_a_port_that_an_older_process_took_ends_the_program(
    master: Master, executor: Executor
) -> None:
    """The program itself may never notice: its peers do, and fail of it."""
    port = master.prepare().ports["main"]
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as the same user may
        thief.bind(("", port))
        thief.listen()
        master.start("sleep 300")
        ended = master.expect(Ended)
    assert (ended.cause, ended.exit_code) == ("address-in-use", 143)
    assert ended.message == "another process listens at the task's port (main)"


def test_a_process_that_the_program_began_may_listen_for_it(
    master: Master, executor: Executor
) -> None:
    port = master.prepare().ports["main"]
    code = (
        "import socket, time; s = socket.socket(); s.setsockopt(1, 2, 1);"
        f"s.bind(('', {port})); s.listen(); print('listening', flush=True); time.sleep(300)"
    )
    master.start(f'setsid python3 -c "{code}" & sleep 300')
    assert master.until(lambda: executor.log("stdout").split())
    master.wait(1.5)
    assert not master.received(Ended)


def test_a_port_of_the_programs_own_choice_is_its_own_fault(
    master: Master, executor: Executor
) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        ended = master.run_program(f"echo 'bind to 127.0.0.1:{port}: Address in use' >&2; exit 1")
    assert ended.cause == "exited"
    assert str(port) in ended.message


def test_the_execution_timeout(master: Master, executor: Executor) -> None:
    ended = master.run_program("trap '' TERM; sleep 60 & wait; sleep 60", execution_timeout_s=0.5)
    assert ended.cause == "execution-timeout"
    assert "tony.task.executor.execution-timeout-ms" in ended.message
    assert ended.duration_s < 40


def test_an_environment_too_large_for_the_kernel(master: Master, executor: Executor) -> None:
    ended = master.run_program("true", env={"BIG": "x" * 200_000})
    assert ended.cause == "environment"
    assert "too large for the kernel (its variables have 20" in ended.message


def test_a_command_too_large_for_the_kernel(master: Master, executor: Executor) -> None:
    ended = master.run_program("true " + "x" * 200_000)
    assert "or the command, may have 128 KiB" in ended.message


def test_a_command_with_a_nul(master: Master, executor: Executor) -> None:
    ended = master.run_program("echo \x00")
    assert ended.cause == "environment"
    assert "NUL" in ended.message


def test_an_end_is_sent_until_it_is_acknowledged(master: Master, executor: Executor) -> None:
    master.acknowledges = False
    master.run_program("exit 4")
    master.until(lambda: len(master.received(Ended)) >= 2)
    master.send(Acknowledge(0))
    # A connection's end is an order on it: what is sent on the next one comes after.
    master.links[0].flush_then_close()
    master.until(lambda: len(master.received(Register)) == 2)
    count = len(master.received(Ended))
    master.wait(0.5)
    assert len(master.received(Ended)) == count


def test_a_start_sent_twice_starts_once(master: Master, executor: Executor) -> None:
    master.prepare()
    master.start("echo once; sleep 0.5")
    master.send(Start(0, "echo twice", {}))
    master.expect(Ended)
    assert executor.log("stdout") == "once\n"
    assert len(master.received(Running)) == 1


def test_no_text_of_ours_in_the_programs_logs(master: Master, executor: Executor) -> None:
    master.run_program("exit 1")
    assert executor.log("stdout") == "" == executor.log("stderr")
    assert re.search(r"executor .* of container_1", executor.log("executor.log"))


def test_an_mpi_rank_is_given_our_relay(master: Master, executor: Executor) -> None:
    """What it says reaches the PMI server, and the answer comes back."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        script = (
            "exec 3<>/dev/tcp/${PMI_PORT/:/\\/}; echo cmd=hello >&3; head -1 <&3; echo $PMI_PORT"
        )
        master.prepare()
        master.start(script, env={"PMI_PORT": address})
        rank, _ = server.accept()
        with rank:
            assert rank.recv(100) == b"cmd=hello\n"
            rank.sendall(b"cmd=answer\n")
            assert master.expect(Ended).exit_code == 0
    answer, port = executor.log("stdout").split()
    assert answer == "cmd=answer"
    assert port.startswith("127.0.0.1:") and port != address


def test_what_was_never_measured_is_not_reported_as_zero(
    master: Master, executor: Executor
) -> None:
    usage = master.run_program("true").usage
    assert "peak_threads" not in usage, "it ended before the first look"
    assert usage["peak_rss_mb"] > 0
    ended = master.run_program("sleep 1.5 & sleep 1.5; wait", session=1)
    assert ended.usage["peak_threads"] >= 2

"""Real programs that hang, wait, compute or sleep, and a real executor that watches them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional

import pytest

from tests.executor.standin import Executor, Master
from tony_core.protocol.messages import (
    DumpStacks,
    Ended,
    EndProgram,
    OpenStream,
    Register,
    StacksDumped,
    Stalled,
    StreamOpened,
)
from tony_core.protocol.reactor import Reactor
from tony_executor import processes
from tony_executor.launch.environment import STACK_SIGNAL
from tony_executor.monitoring import stacks
from tony_executor.monitoring.stall_watch import MOST_LOOKS, StackLook

TIMEOUT_S = 2.0
STEPS = "import time, tony\nfor n in range(3):\n    tony.report(step=n)\n    time.sleep(0.2)\n"


@pytest.fixture
def master() -> Iterator[Master]:
    made = Master(shell_enabled=True)
    yield made
    made.close()


@pytest.fixture
def run(tmp_path: Path, master: Master, executor: Executor) -> Callable[..., int]:
    """``run(program)``: the program's process id, once it runs."""

    def start(text: str, prefix: str = "exec ", **fields: Any) -> int:
        path = tmp_path / "train.py"
        path.write_text(text)
        master.prepare()
        command = f"{prefix}{sys.executable} {path}"
        pid: int = master.start(command, stall_timeout_s=TIMEOUT_S, **fields).pid
        return pid

    return start


def stderr(executor: Executor) -> str:
    return (executor.logs / "stderr").read_text()


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def expect_kind(master: Master, kind: str) -> Stalled:
    """The first report of this kind, now or later."""
    found: Stalled = master.until(lambda: [m for m in master.received(Stalled) if m.kind == kind])[
        0
    ]
    return found


def verdicts(master: Master) -> List[str]:
    """The kinds in their order, each report of a stall once."""
    out: List[str] = []
    for message in master.received(Stalled):
        kind = message.kind or "moves"
        if out[-1:] != [kind]:
            out.append(kind)
    return out


def test_an_endless_loop_after_some_steps_has_its_stacks_in_its_log(
    run: Callable[..., int], master: Master, executor: Executor
) -> None:
    pid = run(STEPS + "def spin():\n    while True:\n        pass\nspin()\n")
    found = master.expect(Stalled, looked=True)
    assert (found.kind, found.step) == ("steps", 2) and found.still_s >= TIMEOUT_S
    assert found.cpu_percent > 5 and "spin" in found.frame and found.in_collective is False
    text = stderr(executor)
    assert "tony: no step came for" in text and "in spin" in text
    assert is_alive(pid) and verdicts(master) == ["steps"]


def test_a_program_blocked_on_its_input_stalls_and_goes_on_when_it_comes(
    run: Callable[..., int], master: Master, executor: Executor, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    pid = run(STEPS + f"open({str(fifo)!r}).read()\ntony.report(step=9)\ntime.sleep(60)\n")
    found = master.expect(Stalled, looked=True)
    assert found.kind == "steps" and found.cpu_percent < 5 and "<module>" in found.frame
    with open(fifo, "w") as file:
        file.write("input")
    expect_kind(master, "")
    assert is_alive(pid) and verdicts(master)[:2] == ["steps", "moves"]
    assert "tony: moves again after" in stderr(executor)


def test_what_its_owner_does_in_a_shell_beside_it_counts_nothing(
    run: Callable[..., int], master: Master, executor: Executor
) -> None:
    run(STEPS + "time.sleep(600)\n")
    master.send(OpenStream(1, "worker:0", "shell", ["sh", "-c", "kill -STOP $$"]))
    master.expect(StreamOpened, stream=1)
    found = master.expect(Stalled, looked=True)
    assert verdicts(master) == ["steps"] and "line 5" in stderr(executor)
    assert found.still_s < 3 * TIMEOUT_S
    assert stderr(executor).count("by faulthandler") + stderr(executor).count("by py-spy") == 1


def test_a_slow_but_healthy_program_does_not_stall(run: Callable[..., int], master: Master) -> None:
    run("import time, tony\nfor n in range(5):\n    tony.report(step=n)\n    time.sleep(1.5)\n")
    assert master.expect(Ended).exit_code == 0
    assert verdicts(master) == []


@pytest.mark.parametrize(
    "work",
    [
        "print('line', flush=True); time.sleep(0.3)",
        "sum(range(300000)); time.sleep(0.01)",
    ],
)
def test_a_program_that_reports_nothing_and_works_does_not_stall(
    run: Callable[..., int], master: Master, work: str
) -> None:
    run(f"import time\nend = time.time() + 6\nwhile time.time() < end:\n    {work}\n")
    assert master.expect(Ended).exit_code == 0
    assert verdicts(master) == []


@pytest.mark.parametrize("wait", ["time.sleep(60)", "open(sys.argv[0] + '.fifo').read()"])
def test_a_program_that_reports_nothing_and_sleeps_or_waits_for_input_stalls_and_survives(
    run: Callable[..., int], master: Master, executor: Executor, tmp_path: Path, wait: str
) -> None:
    os.mkfifo(tmp_path / "train.py.fifo")
    pid = run(f"import sys, time\n{wait}\n")  # never imports tony
    found = master.expect(Stalled, looked=True)
    assert (found.kind, found.step, found.frame) == ("quiet", None, "")
    assert f"it has no handler for signal {STACK_SIGNAL}" in stderr(executor)
    master.wait(1.0)
    assert is_alive(pid) and verdicts(master) == ["quiet"]


def test_a_program_that_never_imports_tony_can_opt_in(
    run: Callable[..., int], master: Master, executor: Executor
) -> None:
    text = "import faulthandler, os, time\n"
    text += "faulthandler.register(int(os.environ['TONY_STACK_SIGNAL']))\n"
    pid = run(text + "def rest():\n    time.sleep(60)\nprint('here', flush=True)\nrest()\n")
    # On a busy machine it may have seemed to stand still before it registered anything.
    master.until(lambda: [m for m in master.received(Stalled) if "rest" in m.frame])
    assert is_alive(pid) and "in rest" in stderr(executor)


def test_handlers_of_the_program_for_the_signals_of_users_are_not_called(
    run: Callable[..., int], master: Master, executor: Executor
) -> None:
    text = "import os, signal\nfor n in (signal.SIGUSR1, signal.SIGUSR2):\n"
    text += "    signal.signal(n, lambda *a: os._exit(77))\n"
    pid = run(text + STEPS + "time.sleep(60)\n")
    assert "<module>" in master.expect(Stalled, looked=True).frame
    master.wait(0.5)
    assert is_alive(pid)


def test_a_handler_that_the_program_has_for_our_signal_stays(
    run: Callable[..., int], master: Master
) -> None:
    text = f"import signal\nsignal.signal({STACK_SIGNAL}, lambda *a: print('mine', flush=True))\n"
    text += f"import tony\nassert callable(signal.getsignal({STACK_SIGNAL}))\n"
    run(text + STEPS)
    assert master.expect(Ended).exit_code == 0


def test_a_suspended_program_is_no_stall(run: Callable[..., int], master: Master) -> None:
    pid = run(
        "import time, tony\nn = 0\nwhile True:\n    n += 1\n    tony.report(step=n)\n"
        "    time.sleep(0.2)\n"
    )
    master.wait(1.0)
    os.kill(pid, signal.SIGSTOP)
    expect_kind(master, "suspended")
    os.kill(pid, signal.SIGCONT)
    expect_kind(master, "")
    master.wait(TIMEOUT_S)
    assert verdicts(master) == ["suspended", "moves"]


def test_the_next_master_finds_it_in_the_register(
    run: Callable[..., int], master: Master, executor: Executor
) -> None:
    run(STEPS + "time.sleep(60)\n")
    first = master.expect(Stalled, looked=True)
    master.attempt = 2
    master.links[-1].close()
    again = master.until(lambda: [m for m in master.received(Register) if m.stalled])[0]
    assert again.stalled == dict(first._asdict())
    assert verdicts(master) == ["steps"]


def test_a_stalled_program_is_ended_for_this_cause(run: Callable[..., int], master: Master) -> None:
    pid = run(STEPS + "time.sleep(60)\n")
    master.expect(Stalled, looked=True)
    master.send(EndProgram(0, 0, 1.0, "stalled", "no step came"))
    ended = master.expect(Ended)
    assert (ended.cause, ended.message) == ("stalled", "no step came")
    assert any("time.sleep" in line or "<module>" in line for line in ended.stderr_tail)
    assert not is_alive(pid)


def test_children_are_looked_at_and_none_of_them_dies(
    run: Callable[..., int], master: Master, executor: Executor
) -> None:
    text = "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        time.sleep(60)\n"
    pid = run(STEPS + text + "time.sleep(60)\n", prefix="")
    master.expect(Stalled, looked=True)
    assert stderr(executor).count("by faulthandler") == 4
    time.sleep(0.3)
    assert is_alive(pid)


def test_without_the_key_nothing_is_watched_and_no_signal_is_named(
    master: Master, executor: Executor
) -> None:
    master.prepare()
    master.start("echo signal $TONY_STACK_SIGNAL; sleep 4")
    assert master.expect(Ended).exit_code == 0
    assert (executor.logs / "stdout").read_text() == "signal\n" and not master.received(Stalled)


LOOP = "def spin():\n    while True:\n        pass\nprint('here', flush=True)\nspin()\n"
SPIN = "import tony\n" + LOOP


def test_the_master_may_ask_a_program_that_moves_for_its_stacks(
    run: Callable[..., int], master: Master, executor: Executor
) -> None:
    pid = run(SPIN)
    master.until(lambda: executor.log("stdout"))
    master.wait(2 * TIMEOUT_S)
    master.send(DumpStacks(0, 0, "worker:1 has stalled"))
    found = master.expect(StacksDumped)
    assert "spin" in found.frame and found.in_collective is False and found.cpu_percent > 5
    text = stderr(executor)
    assert "tony: worker:1 has stalled: the stacks of its Python processes" in text
    assert verdicts(master) == [] and is_alive(pid)
    master.send(DumpStacks(0, 3, "of another attempt"))
    master.wait(1.0)
    assert len(master.received(StacksDumped)) == 1
    assert is_alive(pid) and verdicts(master) == []


def test_a_log_is_not_filled_with_stacks(
    run: Callable[..., int], master: Master, executor: Executor
) -> None:
    pid = run(LOOP)  # without a handler: there are none
    master.until(lambda: executor.log("stdout"))
    for count in range(1, MOST_LOOKS + 3):
        master.send(DumpStacks(0, 0, "worker:1 has stalled"))
        master.until(lambda count=count: len(master.received(StacksDumped)) == count)
    assert stderr(executor).count("the stacks of its Python processes") == MOST_LOOKS
    assert {each.frame for each in master.received(StacksDumped)} == {""} and is_alive(pid)


def test_a_stall_that_is_seen_while_the_stacks_are_written_has_them_too(
    run: Callable[..., int], master: Master, executor: Executor
) -> None:
    run("import time, tony\nprint('here', flush=True)\ntime.sleep(60)\n")
    master.until(lambda: executor.log("stdout"))
    for _ in range(3):
        master.send(DumpStacks(0, 0, "another has stalled"))
        master.wait(TIMEOUT_S / 2)
    found = master.expect(Stalled, looked=True)
    assert found.kind == "quiet" and "<module>" in found.frame
    assert len(master.received(StacksDumped)) == 3


STACK = 'Process 1: x\nPython v3.11.7 (/x)\n\nThread 1 (active): "MainThread"\n    {}\n'


@pytest.mark.parametrize(
    ("outputs", "frame"),
    [
        # The stack of a program that computes changes while it is read.
        (["exit 1", "exit 1", STACK.format("<module> (a.py:1)")], "<module> (a.py:1)"),
        ([STACK.format("leaf (a.py:9)"), STACK.format("<module> (a.py:1)")], "<module> (a.py:1)"),
        # That of one whose Python is embedded has no <module>.
        ([STACK.format("leaf (a.py:9)")], "leaf (a.py:9)"),
    ],
)
def test_py_spy_is_run_again_until_it_has_a_whole_stack(
    run: Callable[..., int],
    master: Master,
    executor: Executor,
    tmp_path: Path,
    outputs: List[str],
    frame: str,
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "py-spy"
    rows = [text if text.startswith("exit") else f"cat <<'E'\n{text}E\n" for text in outputs]
    cases = "".join(f"{at}) {row}\n;;\n" for at, row in enumerate(rows[:-1]))
    program.write_text(
        f"#!/bin/sh\ncount=$(wc -l < {folder}/runs)\necho >> {folder}/runs\n"
        f"case $count in\n{cases}*) {rows[-1]}\n;;\nesac\n"
    )
    program.chmod(0o755)
    (folder / "runs").touch()
    run(SPIN, env={"PATH": f"{folder}:{os.environ['PATH']}"})
    master.until(lambda: executor.log("stdout"))
    master.send(DumpStacks(0, 0, "worker:1 has stalled"))
    assert master.expect(StacksDumped).frame == frame
    assert stderr(executor).count("by py-spy") == 1


def test_no_signal_goes_to_a_later_process_with_the_pid_of_one_that_has_ended() -> None:
    reactor, lines, found = Reactor(), [], []
    # It would die of the signal if it had a handler when it was asked for, and none any more.
    text = f"import faulthandler as f, time; f.register({STACK_SIGNAL}); print(1, flush=True)"
    command = [sys.executable, "-c", f"{text}; time.sleep(60)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() and other.stderr is not None
        process = processes.read_process(other.pid)
        assert process is not None

        def done(summary: Optional[stacks.StackSummary]) -> None:
            found.append(summary)
            reactor.stop()

        gone = process._replace(started=process.started - 100)
        StackLook(reactor, [gone], {}, os.devnull, lines.append, lambda size: None, done)
        reactor.run()
        other.kill()
        assert other.stderr.read() == b""
    reactor.close()
    assert found == [None] and lines == [f"process {process.pid} has ended"]

"""Nothing of a program outlives it, whichever process is killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Callable, List

import pytest

from tests.executor.standin import Executor, Master, alive, pids_in
from tony_core.protocol.messages import Ended, Prepare, Register, Shutdown, Stop, Stopped

# Ignores TERM, and has a child in a session of its own that does so too and forks again.
STUBBORN = """
trap '' TERM HUP INT
echo $$
setsid bash -c 'trap "" TERM HUP; echo $$; setsid sleep 300 & echo $!; sleep 300' &
(trap '' TERM; sleep 300 & echo $!; sleep 300) &
sleep 300 &
echo $!
wait; sleep 300
"""


def started(master: Master, executor: Executor, command: str, count: int) -> List[int]:
    """Start it; the pids that it writes, once there are so many."""
    master.prepare()
    master.start(command)
    found: List[int] = master.until(
        lambda: (
            pids_in(executor.log("stdout"))
            if len(pids_in(executor.log("stdout"))) >= count
            else None
        )
    )
    return found


def gone(pids: List[int], within: float = 60.0) -> bool:
    deadline = time.monotonic() + within
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_stop_ends_a_stubborn_tree(master: Master, executor: Executor) -> None:
    pids = started(master, executor, STUBBORN, 5)
    before = time.monotonic()
    stopped = master.stop(grace_s=0.5)
    assert time.monotonic() - before > 0.4
    assert stopped.clean and not stopped.survivors
    assert gone(pids, 0)
    ended = master.expect(Ended)
    assert (ended.cause, ended.signal) == ("stopped", signal.SIGKILL)
    assert ended.message == "the test stops it"


def test_processes_that_end_by_term_are_not_waited_for(master: Master, executor: Executor) -> None:
    started(master, executor, "echo $$; sleep 300", 1)
    assert master.stop(grace_s=600).clean
    assert master.expect(Ended).signal == signal.SIGTERM


def test_a_program_may_save_within_the_grace(master: Master, executor: Executor) -> None:
    script = "trap 'sleep 0.3; echo saved; exit 7' TERM; echo $$; while :; do sleep 0.05; done"
    started(master, executor, script, 1)
    assert master.stop(grace_s=5).clean
    assert "saved" in executor.log("stdout")
    ended = master.expect(Ended)
    assert (ended.exit_code, ended.cause) == (7, "stopped")


@pytest.mark.parametrize(
    "handler",
    [
        "sleep 0.5; echo rc $?",
        # A handler whose first act is to take itself away, and one that leaves the work behind.
        "trap - TERM; sleep 0.5; echo rc $?",
        "(sleep 0.5; echo rc $?) & exit 0",
    ],
)
def test_what_a_handler_starts_has_the_grace_as_well(
    handler: str, master: Master, executor: Executor
) -> None:
    started(master, executor, f"trap '{handler}' TERM; echo $$; sleep 300", 1)
    assert master.stop(grace_s=600).clean
    assert "rc 0" in executor.log("stdout")


def test_the_grace_of_what_a_handler_starts_has_an_end(master: Master, executor: Executor) -> None:
    script = "trap 'setsid sleep 300 & echo $!; echo; sleep 300' TERM; echo $$; sleep 300"
    started(master, executor, script, 1)
    before = time.monotonic()
    assert master.stop(grace_s=0.5).clean
    assert time.monotonic() - before > 0.4
    pids = pids_in(executor.log("stdout"))
    assert len(pids) == 2 and gone(pids, 0)


def test_processes_started_during_the_sweep_get_term(master: Master, executor: Executor) -> None:
    """No process here handles TERM: one that comes later need not wait for the KILL."""
    loop = "import os, time\nwhile not os.fork(): time.sleep(0.002)\ntime.sleep(0.001)\n"
    (executor.work / "tony-src").mkdir()
    (executor.work / "tony-src" / "chain.py").write_text(loop)
    master.prepare(source="tony-src")
    master.start(f"{sys.executable} -S chain.py")
    master.wait(0.3)
    assert master.stop(grace_s=600).clean


def test_a_stopped_process_gets_term(master: Master, executor: Executor) -> None:
    (pid,) = started(master, executor, "echo $$; sleep 300", 1)
    os.kill(pid, signal.SIGSTOP)
    assert master.stop(grace_s=600).clean


def test_a_fork_bomb(master: Master, executor: Executor) -> None:
    bomb = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True)\n"
        "until = time.time() + 20\n"
        "for depth in range(4):\n"  # sixteen that go on forking
        "    os.fork()\n"
        "while time.time() < until:\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        time.sleep(0.02)\n"
        "        if os.fork():\n"
        "            os._exit(0)\n"
        "    else:\n"
        "        time.sleep(0.02)\n"
        "        os._exit(0)\n"
    )
    (executor.work / "tony-src").mkdir()
    (executor.work / "tony-src" / "bomb.py").write_text(bomb)
    master.prepare(source="tony-src")
    master.start(f"{sys.executable} -S bomb.py")
    master.wait(0.5)
    assert master.stop(grace_s=0.2).clean
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _runs(pid, "bomb.py")]


def _runs(pid: str, word: str) -> bool:
    try:
        return word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and alive(int(pid))
    except OSError:
        return False


def test_what_a_program_leaves_behind_goes_with_it(master: Master, executor: Executor) -> None:
    pids = started(master, executor, "setsid sleep 300 & echo $!; sleep 0.3; exit 3", 1)
    ended = master.expect(Ended)
    assert (ended.exit_code, ended.cause) == (3, "exited")
    assert gone(pids)


def test_the_next_session_waits_until_the_last_is_gone(master: Master, executor: Executor) -> None:
    script = "(trap '' TERM; exec 1>&-; sleep 300) & echo $!; exit 1"
    pids = started(master, executor, script, 1)
    master.expect(Ended)
    master.prepare(session=1)
    assert gone(pids, 0)


def test_prepare_over_a_running_program_ends_it_first(master: Master, executor: Executor) -> None:
    pids = started(master, executor, STUBBORN, 5)
    master.prepare(session=1)
    assert gone(pids, 0)
    assert master.expect(Ended, session=0).cause == "stopped"


def test_stop_before_the_start_is_answered(master: Master, executor: Executor) -> None:
    master.prepare()
    assert master.stop().clean
    assert not master.received(Ended)
    assert master.run_program("exit 0", session=1).exit_code == 0


def test_stop_when_all_is_over_is_answered_too(master: Master, executor: Executor) -> None:
    master.run_program("exit 0")
    assert master.stop().clean
    master.send(Stop(0, 1.0))
    master.until(lambda: len(master.received(Stopped)) == 2)


def test_a_shorter_grace_shortens(master: Master, executor: Executor) -> None:
    pids = started(master, executor, STUBBORN, 5)
    master.send(Stop(0, 600.0))
    master.wait(0.3)
    master.send(Stop(0, 0.0))
    assert master.expect(Stopped).clean
    assert gone(pids, 0)


def test_shutdown_ends_everything_and_exits(master: Master, executor: Executor) -> None:
    pids = started(master, executor, STUBBORN, 5)
    assert master.shut_down(executor, grace_s=0.2) == 0
    assert gone(pids, 0)
    assert master.received(Ended, cause="stopped")
    assert master.received(Stopped, clean=True)


def test_shutdown_while_stopping_and_again(master: Master, executor: Executor) -> None:
    started(master, executor, STUBBORN, 5)
    master.send(Stop(0, 600.0))
    master.send(Shutdown(600.0, "later"))
    master.send(Shutdown(0.1, "now"))
    assert master.until(executor.ended) == [0]
    assert master.received(Stopped)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_group_is_killed_as_a_nodemanager_does(
    master: Master, executor: Executor, number: int
) -> None:
    pids = started(master, executor, STUBBORN, 5)
    # It takes no grace: a NodeManager sends SIGKILL a quarter of a second later.
    os.killpg(executor.pid, number)
    assert executor.wait() == 143
    assert gone(pids)


def test_the_programs_end_by_that_kill_is_not_reported(master: Master, executor: Executor) -> None:
    started(master, executor, "echo $$; exec sleep 300", 1)
    os.killpg(executor.pid, signal.SIGTERM)
    executor.wait()
    master.wait(0.3)
    assert not master.received(Ended)


def test_the_program_is_in_the_executors_group(master: Master, executor: Executor) -> None:
    (pid,) = started(master, executor, "echo $$; exec sleep 300", 1)
    assert os.getpgid(pid) == executor.pid


def test_it_ends_with_its_shim(master: Master, launch: Callable[..., Executor]) -> None:
    shim = [
        sys.executable,
        "-c",
        "import subprocess, sys; print(subprocess.Popen(sys.argv[1:]).wait())",
    ]
    executor = launch(through=shim, env={"TONY_SHIM": "1"})
    pids = started(master, executor, STUBBORN, 5)
    (register,) = master.received(Register)
    assert register.pid != executor.pid
    executor.process.kill()
    executor.wait()
    assert gone([register.pid, *pids])


def in_a_session_of_their_own(pids: List[int], executor: Executor) -> List[int]:
    return [pid for pid in pids if os.getpgid(pid) != executor.pid]


def test_killing_the_executor_ends_all_processes(master: Master, executor: Executor) -> None:
    pids = started(master, executor, STUBBORN, 5)
    (register,) = master.received(Register)
    assert register.pid != executor.pid and os.getpgid(register.pid) == executor.pid
    assert in_a_session_of_their_own(pids, executor)
    os.kill(register.pid, signal.SIGKILL)
    assert executor.wait() == 137
    assert gone(pids)


def test_killing_the_guard_ends_all_processes(master: Master, executor: Executor) -> None:
    pids = started(master, executor, STUBBORN, 5)
    (register,) = master.received(Register)
    os.kill(executor.pid, signal.SIGKILL)
    assert gone([register.pid, *pids])


def test_a_program_goes_with_a_group_that_is_killed_without_a_warning(
    master: Master, executor: Executor
) -> None:
    """What is in sessions of its own then stays: no process is left that could end it."""
    pids = started(master, executor, STUBBORN, 5)
    others = in_a_session_of_their_own(pids, executor)
    try:
        os.killpg(executor.pid, signal.SIGKILL)
        assert gone([pid for pid in pids if pid not in others])
    finally:
        for pid in others:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    assert gone(pids)


def test_elsewhere_it_outlives_its_parent(master: Master, launch: Callable[..., Executor]) -> None:
    """A NodeManager is restarted under running containers."""
    shim = [sys.executable, "-c", "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()"]
    executor = launch(through=shim)
    started(master, executor, "echo $$; exec sleep 300", 1)
    (register,) = master.received(Register)
    executor.process.kill()
    executor.wait()
    master.wait(0.5)
    assert alive(register.pid)
    master.send(Shutdown(0.1, "enough"))
    assert gone([register.pid])


def test_an_older_sessions_prepare_is_not_obeyed(master: Master, executor: Executor) -> None:
    master.prepare(session=3)
    master.start("sleep 300", session=3)
    master.send(Prepare("worker:0", 2, ["main"]))
    master.send(Stop(2, 0.0))
    master.wait(0.5)
    assert not master.received(Ended) and not master.received(Stopped)

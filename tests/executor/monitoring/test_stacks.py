"""What the stacks of a process say about where it stands, and who may be asked for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from tony_executor import processes
from tony_executor.launch.environment import STACK_SIGNAL
from tony_executor.monitoring import stacks

PY_SPY = """Process 4242: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4242 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2050)
    wrapper (torch/distributed/c10d_logger.py:81)
    train (train.py:31)
    <module> (train.py:44)
Thread 4250 (idle): "Thread-1"
    wait (threading.py:324)
"""
FAULTHANDLER = """some output
Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f02 (most recent call first):
  File "/work/session-0/data.py", line 12 in load_batch
  File "/work/session-0/train.py", line 31 in train
  File "/work/session-0/train.py", line 44 in <module>
"""


def test_the_main_thread_of_py_spy_stands_in_a_collective() -> None:
    place = stacks.find_place(PY_SPY)
    assert place is not None and place.in_collective
    assert place.frame == "train (train.py:31)"


def test_the_main_thread_of_faulthandler_stands_in_the_program() -> None:
    place = stacks.find_place(FAULTHANDLER)
    assert place is not None and not place.in_collective
    assert place.frame == "load_batch (session-0/data.py:12)"


def test_py_spy_names_no_thread_of_a_program_without_threads() -> None:
    text = "Process 3680: python -c pass\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
    text += "Thread 3680 (idle)\n    rest (<string>:3)\n    <module> (<string>:4)\n"
    text += 'Thread 0x7F12 (active+gil): "pool"\n    other (pool.py:3)\n'
    place = stacks.find_place(text)
    assert place is not None and place.frame == "rest (<string>:3)"


def test_text_without_a_stack_has_no_place() -> None:
    assert stacks.find_place("") is None
    assert stacks.find_place("Error: Permission denied\n" * 50) is None
    assert stacks.find_place('Thread 1 (idle): "MainThread"\n') is None


def test_what_a_program_writes_between_its_stacks_costs_little() -> None:
    row = '  File "a", line 1 in a' + " " * 200_000 + "b\n"
    began = time.process_time()
    assert stacks.find_place("Thread 0x1\n" + row + "  a (" * 50_000) is not None
    assert time.process_time() - began < 5.0


def test_a_log_gets_so_much_and_no_command() -> None:
    assert len(stacks.shown("x" * 10**7)) < stacks.MOST_BYTES + 100
    assert stacks.shown("short") == "short"
    text = PY_SPY.replace("train.py\n", "train.py --password=abc\nmore\n", 1)
    assert stacks.shown(text) == PY_SPY[PY_SPY.index("Python v") :]


def test_only_a_process_with_a_handler_catches_the_signal() -> None:
    number = int(STACK_SIGNAL)
    register = f"import faulthandler; faulthandler.register({number}); "
    for code, caught in (("", False), (register, True)):
        run = f"{code}print('here', flush=True); import time; time.sleep(60)"
        with subprocess.Popen([sys.executable, "-c", run], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert processes.catches_signal(process.pid, number) is caught
            assert stacks.is_python(process.pid)
            process.kill()
    assert not processes.catches_signal(process.pid, number)
    assert not stacks.is_python(process.pid)


def test_an_ignored_signal_is_not_caught() -> None:
    code = "import signal, time; signal.signal(10, signal.SIG_IGN); print(1, flush=True)"
    code += "; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert not processes.catches_signal(process.pid, signal.SIGUSR1)
        process.kill()


def test_py_spy_is_found_in_the_venv_and_on_the_path(tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert stacks.find_py_spy(os.getpid(), {"PATH": "relative"}, {"PATH": ""}) is None
    program = tmp_path / "bin" / "py-spy"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    assert stacks.find_py_spy(os.getpid(), {"VIRTUAL_ENV": str(tmp_path)}, {}) is None
    program.chmod(0o755)
    assert stacks.find_py_spy(os.getpid(), {"VIRTUAL_ENV": str(tmp_path)}, {}) == str(program)
    on_path = {"PATH": f"/nowhere:{program.parent}"}
    assert stacks.find_py_spy(os.getpid(), {}, on_path) == str(program)

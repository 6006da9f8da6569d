"""What the stacks of a process say about where it stands, and who may be asked for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Optional

import pytest

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
    place = stacks.summarize(PY_SPY)
    assert place is not None and place.in_collective
    assert place.frame == "train (train.py:31)"


def test_the_main_thread_of_faulthandler_stands_in_the_program() -> None:
    place = stacks.summarize(FAULTHANDLER)
    assert place is not None and not place.in_collective
    assert place.frame == "load_batch (session-0/data.py:12)"


def test_py_spy_names_no_thread_of_a_program_without_threads() -> None:
    text = "Process 3680: python -c pass\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
    text += "Thread 3680 (idle)\n    rest (<string>:3)\n    <module> (<string>:4)\n"
    text += 'Thread 0x7F12 (active+gil): "pool"\n    other (pool.py:3)\n'
    place = stacks.summarize(text)
    assert place is not None and place.frame == "rest (<string>:3)"


def test_text_without_a_stack_has_no_place() -> None:
    assert stacks.summarize("") is None
    assert stacks.summarize("Error: Permission denied\n" * 50) is None
    assert stacks.summarize('Thread 1 (idle): "MainThread"\n') is None


def test_what_a_program_writes_between_its_stacks_costs_little() -> None:
    row = '  File "a", line 1 in a' + " " * 200_000 + "b\n"
    began = time.process_time()
    assert stacks.summarize("Thread 0x1\n" + row + "  a (" * 50_000) is not None
    assert time.process_time() - began < 5.0


def test_a_log_gets_so_much_and_no_command() -> None:
    assert len(stacks.redact("x" * 10**7)) < stacks.MOST_BYTES + 100
    assert stacks.redact("short") == "short"
    text = PY_SPY.replace("train.py\n", "train.py --password=abc\nmore\n", 1)
    assert stacks.redact(text) == PY_SPY[PY_SPY.index("Python v") :]


@pytest.mark.parametrize(
    "code",
    [
        "import x\nPython v = 'SECRET'",
        "Python v3.11.7 (/usr/bin/python3.11)\n\nSECRET",
        "Thread 1\nThread = 'SECRET'\nPython v3 = (1)",
        'Thread 7 (idle): "MainThread"\nSECRET',
    ],
)
def test_a_command_of_several_rows_reaches_no_log(code: str) -> None:
    whole = PY_SPY.replace("python train.py", f"python -c {code}", 1)
    assert stacks.redact(whole) == PY_SPY[PY_SPY.index("Python v") :]


def test_without_the_row_of_the_interpreter_the_stacks_are_kept_and_no_command() -> None:
    rows = PY_SPY.splitlines(keepends=True)
    threads = "".join(rows[3:])
    assert stacks.redact(rows[0] + "Python v = 'SECRET'\n" + threads) == threads
    assert stacks.redact("Process 1: python -c x\nSECRET") == (
        "Process 1:\n... (its command, and nothing after it)\n"
    )
    assert stacks.redact("Error: no such process\n") == "Error: no such process\n"


@pytest.mark.frameworks
def test_a_command_of_several_rows_in_a_real_dump(environment: Callable[[str], Path]) -> None:
    code = "import time\nx = '''\nPython v = SECRET\n'''\nprint(1, flush=True)\ntime.sleep(60)"
    program = [sys.executable, "-c", code]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            py_spy = str(environment("py-spy") / "bin" / "py-spy")
            dump = subprocess.run(
                stacks.py_spy_command(py_spy, process.pid),
                stdout=subprocess.PIPE, check=True, text=True, timeout=30,
            ).stdout  # fmt: skip
        finally:
            process.kill()
    shown = stacks.redact(dump)
    assert "SECRET" in dump and "SECRET" not in shown
    assert shown.startswith("Python v") and "<module> (<string>:" in shown


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


def _py_spy(*frames: str) -> str:
    rows = "".join(f"    {frame}\n" for frame in frames)
    return f'Process 1: x\nPython v3.11.7 (/x)\n\nThread 1 (active): "MainThread"\n{rows}'


def _faulthandler(*frames: str) -> str:
    rows = "".join(f"  File {frame}\n" for frame in frames)
    return f"Current thread 0x00007f02 (most recent call first):\n{rows}"


SITE = "/venv/lib/python3.11/site-packages"
TRAIN = ("train (train.py:31)", "<module> (train.py:44)")
FAULT_TRAIN = ('"/job/train.py", line 31 in train', '"/job/train.py", line 44 in <module>')
STACKS = {
    # text of a stack -> whether it is in a collective, and the frame that is shown
    _py_spy("synchronize (torch/cuda/__init__.py:1083)", *TRAIN): None,
    _py_spy("Event.synchronize (torch/cuda/streams.py:231)", *TRAIN): None,
    _py_spy("Stream.synchronize (torch/cuda/streams.py:107)", *TRAIN): None,
    _py_spy(
        "_engine_run_backward (torch/autograd/graph.py:865)",
        "backward (torch/autograd/__init__.py:364)",
        "Tensor.backward (torch/_tensor.py:647)",
        *TRAIN,
    ): None,
    _py_spy("block_until_ready (jax/_src/api.py:3014)", *TRAIN): None,
    _py_spy(
        "ArrayImpl._value (jax/_src/array.py:643)",
        "ArrayImpl.__float__ (jax/_src/array.py:316)",
        *TRAIN,
    ): None,
    _faulthandler(f'"{SITE}/torch/cuda/__init__.py", line 1083 in synchronize', *FAULT_TRAIN): None,
    _faulthandler(f'"{SITE}/jax/_src/array.py", line 643 in _value', *FAULT_TRAIN): None,
    # A wait for the device inside of a collective is one.
    _py_spy(
        "synchronize (torch/cuda/__init__.py:1083)",
        "barrier (torch/distributed/distributed_c10d.py:4817)",
        "wrapper (torch/distributed/c10d_logger.py:81)",
        *TRAIN,
    ): True,
    _faulthandler(
        f'"{SITE}/torch/distributed/distributed_c10d.py", line 3039 in all_reduce',
        f'"{SITE}/torch/distributed/c10d_logger.py", line 81 in wrapper',
        *FAULT_TRAIN,
    ): True,
    _py_spy("synchronize (horovod/torch/mpi_ops.py:1310)", *TRAIN): True,
    _py_spy("sync_global_devices (jax/experimental/multihost_utils.py:83)", *TRAIN): True,
    # Horovod's elastic wrapper is around all of the program, and no collective.
    _py_spy(
        "train (train.py:31)", "wrapper (horovod/common/elastic.py:151)", "<module> (train.py:44)"
    ): False,
    _py_spy("synchronize (train.py:31)", "<module> (train.py:44)"): False,
    _py_spy("train (/home/me/barrier/train.py:31)", "<module> (train.py:44)"): False,
    _py_spy("get (queue.py:171)", *TRAIN): False,
}


@pytest.mark.parametrize(("text", "in_collective"), STACKS.items())
def test_a_wait_for_the_device_is_neither_in_a_collective_nor_outside(
    text: str, in_collective: Optional[bool]
) -> None:
    summary = stacks.summarize(text)
    assert summary is not None and summary.in_collective is in_collective
    assert (
        summary.frame.split(" (")[0] in ("train", "synchronize") and "train.py:31" in summary.frame
    )


def test_of_several_processes_one_that_may_wait_for_a_collective_speaks_for_the_task() -> None:
    inside, unknown, outside = (stacks.StackSummary("f", each) for each in (True, None, False))
    assert stacks.choose_summary([outside, unknown, None, inside]) is inside
    assert stacks.choose_summary([outside, unknown]) is unknown
    assert stacks.choose_summary([None, outside]) is outside and not stacks.choose_summary([None])


def test_a_stack_that_was_cut_while_it_was_read_shows_that() -> None:
    cut = stacks.summarize(_py_spy("mid (train.py:5)", "spin.<locals>.<genexpr> (train.py:10)"))
    assert cut is not None and not cut.is_whole
    for text in (PY_SPY, FAULTHANDLER, _py_spy("leaf (train.py:5)", *TRAIN)):
        whole = stacks.summarize(text)
        assert whole is not None and whole.is_whole


def test_a_process_is_not_taken_for_a_later_one_with_its_pid() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = processes.read_process(process.pid)
        assert found is not None and found.started > 0
        assert processes.find_again(found) is not None
        assert processes.find_again(found._replace(started=found.started - 1)) is None
        process.kill()
    assert processes.find_again(found) is None

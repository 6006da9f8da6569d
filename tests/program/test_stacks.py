"""What ``import tony`` does so that the stacks of a program can be seen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "program"
NUMBER = int(signal.SIGRTMIN) + 10
CAUGHT = (
    "rows = dict(row.split(':', 1) for row in open('/proc/self/status') if ':' in row)\n"
    f"print(bool(int(rows['SigCgt'], 16) & (1 << {NUMBER - 1})))\n"
)


def run(text: str, number: object) -> str:
    env = {**os.environ, "PYTHONPATH": str(PROGRAM)}
    env.pop("TONY_STACK_SIGNAL", None)
    if number is not None:
        env["TONY_STACK_SIGNAL"] = str(number)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_is_set_up_only_where_the_job_asks_for_it() -> None:
    assert run("import tony\n" + CAUGHT, NUMBER) == "True"
    assert run("import tony\n" + CAUGHT, None) == "False"


@pytest.mark.parametrize("number", ["", "x", "9", "12", "-1", "4711", "44.5"])
def test_an_odd_number_is_passed_over(number: str) -> None:
    assert run("import tony\n" + CAUGHT, number) == "False"


def test_the_program_lives_on_after_the_signal_and_its_stacks_are_in_stderr() -> None:
    text = f"import os, tony\ndef here():\n    os.kill(os.getpid(), {NUMBER})\nhere()\nprint('on')"
    assert run(text, NUMBER) == "on"


def test_what_the_program_sets_itself_stays() -> None:
    before = f"import signal\nsignal.signal({NUMBER}, signal.SIG_IGN)\nimport tony\n"
    assert run(f"{before}print(signal.getsignal({NUMBER}).name)", NUMBER) == "SIG_IGN"
    after = f"import signal, tony\nsignal.signal({NUMBER}, lambda *a: print('mine'))\n"
    assert run(f"{after}signal.raise_signal({NUMBER})", NUMBER) == "mine"


def test_no_stack_is_written_where_stderr_is_closed() -> None:
    text = f"import os, tony\nos.close(2)\nos.kill(os.getpid(), {NUMBER})\nprint('on')"
    assert run(text, NUMBER) == "on"

"""How the processes of our own code on a node end."""

from __future__ import annotations

import subprocess
import sys

import pytest


def ended(lines: str) -> subprocess.CompletedProcess[str]:
    """A process that runs these lines."""
    return subprocess.run(
        [sys.executable, "-c", f"from tony_core.bundle.client.runtime_main import leave\n{lines}"],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("code", [0, 3, 143])
def test_it_ends_with_its_code_and_all_its_output(code: int) -> None:
    ran = ended(
        "import sys; print('out', end=''); print('err', end='', file=sys.stderr)\n"
        f"leave({code}); print('never')"
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "out", "err")


def test_no_object_is_finalized() -> None:
    kept = "class Kept:\n def __del__(self): print('apart')\nkept = Kept()\n"
    assert ended(f"{kept}import sys; sys.exit(1)").stdout == "apart\n"
    assert ended(f"{kept}leave(1)").stdout == ""


def test_a_thread_that_works_is_waited_for_and_one_that_serves_is_not() -> None:
    work = "import threading, time\ndef work(): time.sleep(0.3); print('done', flush=True)\n"
    waited = ended(f"{work}threading.Thread(target=work).start()\nleave(4)")
    assert (waited.returncode, waited.stdout) == (4, "done\n")
    left = ended(f"{work}threading.Thread(target=work, daemon=True).start()\nleave(4)")
    assert (left.returncode, left.stdout) == (4, "")


def test_a_closed_output_is_no_error() -> None:
    closed = ended("import os, sys; print('x'); os.close(1); leave(5)")
    assert (closed.returncode, closed.stderr) == (5, "")
    assert ended("import sys; sys.stdout = None; leave(6)").returncode == 6

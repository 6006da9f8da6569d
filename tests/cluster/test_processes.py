"""What the cluster's keeper sees of the processes below it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.cluster.hadoop.supervisor import descendants

LEADER_ENDS = """
import ctypes, subprocess, threading, time
subprocess.Popen(["sleep", "60"])
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).syscall(60, 0)  # exit of this thread alone, as in a JVM that is being killed
"""


def test_children_of_a_process_that_is_still_ending_are_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", LEADER_ENDS]) as process:
        try:
            deadline = time.monotonic() + 10
            while ") Z " not in Path(f"/proc/{process.pid}/stat").read_text():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            below = descendants(process.pid)
            assert len(below) == 1
            assert b"sleep" in Path(f"/proc/{below.pop()}/cmdline").read_bytes()
        finally:
            subprocess.run(["pkill", "-P", str(process.pid)], check=True)
            process.kill()

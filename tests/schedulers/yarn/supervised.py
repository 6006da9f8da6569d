"""Stands in for our executor in the contract suite: ends all that a program has started.

``python supervised.py``: the program is the JSON list in SUPERVISED. On YARN the executor and its
guard see to it that nothing outlives a container; the suite launches other programs. Three
processes: this one, which the node knows; one in a session of its own, which the node's kill does
not reach and whose descendants cannot get away; and the program, which gets TERM and a while.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import List, NoReturn

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "executor")]
sys.path[:0] = [str(Path(__file__).resolve().parents[3])]

from tony_executor import processes  # noqa: E402

GRACE_S = 0.2


def main() -> int:
    argv: List[str] = json.loads(os.environ.pop("SUPERVISED"))
    me = os.getpid()
    keeper = os.fork()
    if keeper == 0:
        os.setsid()
        if not processes.end_with_parent(me):
            os._exit(1)
        _keep(argv)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(keeper, signal.SIGTERM))
    _, status = os.waitpid(keeper, 0)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    os._exit(code)


def _keep(argv: List[str]) -> NoReturn:
    processes.be_subreaper(True)
    program = os.fork()
    if program == 0:
        os.setpgid(0, 0)
        try:
            os.execvp(argv[0], argv)
        except OSError as error:
            sys.stderr.write(f"cannot start {argv[0]}: {error.strerror}\n")
            sys.stderr.flush()
        os._exit(127)
    asked: List[float] = []

    def end(*_: object) -> None:
        if not asked:
            asked.append(time.monotonic())
            try:
                os.killpg(program, signal.SIGTERM)
            except OSError:
                pass

    signal.signal(signal.SIGTERM, end)
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == program or (asked and time.monotonic() - asked[0] > GRACE_S):
            break
        time.sleep(0.005)
    processes.kill_now(os.getpid())
    if pid != program:
        os._exit(143)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


if __name__ == "__main__":
    sys.exit(main())

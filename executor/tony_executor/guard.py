"""The guard: the process above the executor where no shim of ours is, on a cluster.

Theory of operation
===================

A NodeManager knows one process of a container, and kills its group: TERM, a quarter of a second,
KILL. That reaches neither what the program has put into a session of its own nor, when the executor
is the one that dies (out of memory, an administrator's ``kill -9``), anything that its program
started. So there are two processes of ours in one group, and each ends what the other leaves::

    guard (known to the node, subreaper)
      └─ executor (subreaper; TERM when the guard dies)
           └─ the program (KILL when the executor dies)

- The group gets TERM: both freeze and kill all that is below them, at once.
- The executor is killed: what it leaves becomes the guard's, which kills it.
- The guard is killed: the executor gets TERM and does the same.

Not covered: both of them killed in the same moment without a TERM before. The group's members go
with that KILL, and a program that is our own child; what the program has put into sessions of its
own stays. Only control groups catch that.

The guard is forked before the executor's modules are imported: it costs no more than Python.
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn

from tony_core.exit_causes import decode_status
from tony_executor import processes
from tony_executor.exit_codes import EXIT_MASTER_LOST, EXIT_TERMINATED

_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def fork_executor() -> None:
    """Fork into guard and executor; returns in the executor only."""
    processes.be_subreaper(True)
    guard = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    executor = os.fork()
    if executor != 0:
        os._exit(_watch(executor))
    # Nothing is below us yet: the default, to die of them, is right until the shell stands.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
    if not processes.end_with_parent(guard):
        os._exit(EXIT_MASTER_LOST)


def _watch(executor: int) -> int:
    """Wait for the executor and end what it left; returns its exit code."""
    for number in _ENDS:
        signal.signal(number, _terminated)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == executor:
            break
    processes.kill_now(os.getpid())
    return decode_status(status)[0]


def _terminated(number: int, frame: object) -> NoReturn:
    processes.kill_now(os.getpid())
    os._exit(EXIT_TERMINATED)

"""How the program learns that containers are taken back: numbered files, and a signal.

Theory of operation
===================

``import tony`` waits without looking again and again. The executor holds a lock (flock) on a file
``BASE.1``; a thread of the program that wants to know waits for the lock to be shared. To give
notice the executor writes into the file, makes and locks ``BASE.2``, and lets the lock of the first
go: every process that waits reads the notice and goes on to wait for the next. So none is missed,
however late a program begins to wait, and each of several processes gets it. The locks end with
the executor; a file without content is no notice. ``program/tony_preemption.py`` is the other end.

For programs that do not import tony there is a signal, if the job asks for one. It goes to the
processes that handle it (``SigCgt``); of those that inherited a handler by a fork (a data loader's
children) and their parent only to the parent.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from tony_core.protocol.messages import Preemption
from tony_executor import processes


class PreemptionNotice:
    """The notices for one program after another."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._base = ""
        self._number = 0
        self._file: Optional[int] = None
        self.was_signalled = False  # a process of this program got the signal

    def begin(self, base: str) -> str:
        """Make the first file of a program; returns the base of their names."""
        self.close()
        self._base, self._number, self.was_signalled = base, 0, False
        self._file = self._make_next()
        return base

    def give(self, message: Preemption, running: Iterable[processes.Process]) -> Tuple[str, str]:
        """Give notice; returns level and text of a line for the story, which may be empty."""
        until = None if message.seconds is None else time.monotonic() + message.seconds
        notice: Dict[str, Any] = {"until": until, "own": message.own}
        if message.withdrawn:
            notice = {"withdrawn": True}
        if self._file is not None:
            try:
                os.pwrite(self._file, json.dumps(notice).encode(), 0)
            except OSError as error:
                self._log(f"{self._base}.{self._number}: {error.strerror}")
            following = self._make_next()
            os.close(self._file)  # and its lock goes
            self._file = following
        if message.withdrawn or not message.signal:
            return "", ""
        return self._send(message, list(running))

    def close(self) -> None:
        """Let the lock go: no more notices follow."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _make_next(self) -> Optional[int]:
        self._number += 1
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            file = os.open(f"{self._base}.{self._number}", flags, 0o600)
        except OSError as error:  # a full disk: the program runs without
            self._log(f"{self._base}.{self._number}: {error.strerror}")
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # no locks here: the program looks once a second
            self._log(f"{self._base}.{self._number} cannot be locked: {error.strerror}")
        return file

    def _send(self, message: Preemption, running: List[processes.Process]) -> Tuple[str, str]:
        number = int(getattr(signal, message.signal, 0))
        if not number:
            return "warning", f"this node knows no signal {message.signal}: it was not sent"
        chosen = running if message.signal_all else topmost_catching(running, number)
        processes.send(chosen, number)
        if not chosen:
            return "info", f"no process of its program handles {message.signal}: it was not sent"
        self.was_signalled = True
        pids = ", ".join(str(each.pid) for each in chosen[:5])
        pids += ", ..." if len(chosen) > 5 else ""
        return "info", f"{message.signal} sent to its program ({pids})"


def topmost_catching(
    running: List[processes.Process],
    number: int,
    catches: Callable[[int, int], bool] = processes.catches_signal,
) -> List[processes.Process]:
    """The processes that handle the signal, without the descendants of such."""
    parents = {each.pid: each.parent for each in running}
    catching = {each.pid for each in running if catches(each.pid, number)}

    def is_below(pid: int) -> bool:
        seen = set()
        while parents.get(pid) in parents and pid not in seen:
            seen.add(pid)
            pid = parents[pid]
            if pid in catching:
                return True
        return False

    return [each for each in running if each.pid in catching and not is_below(each.pid)]

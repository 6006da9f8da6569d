"""Exceptions that a worker thread survives: the traceback of each kind once, and a count.

A thread that puts, sends or reads one thing after another must not end with the first that fails in
a way which its author did not expect: the others would wait for ever, without a word.
"""

from __future__ import annotations

import sys
import threading
from typing import Callable, Set

KINDS = 20  # of which the traceback is logged; more are only counted


def log_to_stderr(text: str) -> None:
    """The log of a process that has no other: a master's, an executor's."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        pass  # its disk is full


class Faults:
    """The unexpected exceptions of one worker."""

    def __init__(self, log: Callable[[str], None] = log_to_stderr) -> None:
        self.log = log
        self.count = 0
        self._kinds: Set[str] = set()
        self._lock = threading.Lock()

    def record(self, what: str) -> str:
        """Log the exception being handled; returns it as one line."""
        error = sys.exc_info()[1]
        text = f"{type(error).__name__}: {error}"
        kind = f"{what} {text}"
        with self._lock:
            self.count += 1
            is_new = kind not in self._kinds and len(self._kinds) < KINDS
            if is_new:
                self._kinds.add(kind)
        if is_new:
            import traceback  # much code, for few

            self.log(f"{what}: unexpected {text}\n{traceback.format_exc().rstrip()}")
        return text

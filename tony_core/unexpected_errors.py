"""Exceptions that a worker thread survives: the traceback of each kind once, and a count.

A thread that puts, sends or reads one thing after another must not end with the first that fails in
an unexpected way: the others would wait for ever, and no log would say why.
"""

from __future__ import annotations

import sys
import threading
from typing import Callable, Set

KINDS = 20  # of which the traceback is logged; more are only counted


def log_to_stderr(text: str) -> None:
    """Log to stderr, in a process that has no other log."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        pass  # its disk is full


class UnexpectedErrors:
    """The unexpected exceptions of one worker."""

    def __init__(self, log: Callable[[str], None] = log_to_stderr) -> None:
        self.log = log
        self.count = 0
        self._kinds: Set[str] = set()
        self._lock = threading.Lock()

    def record(self, what: str) -> str:
        """Log the exception that is being handled; returns it as one line."""
        error = sys.exc_info()[1]
        text = f"{type(error).__name__}: {error}"
        kind = f"{what} {text}"
        with self._lock:
            self.count += 1
            is_new = kind not in self._kinds and len(self._kinds) < KINDS
            if is_new:
                self._kinds.add(kind)
        if is_new:
            import traceback  # seldom needed

            self.log(f"{what}: unexpected {text}\n{traceback.format_exc().rstrip()}")
        return text

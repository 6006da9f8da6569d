"""The file by which a program reports to its executor: written seldom, and never an error.

A process forked off has nothing of what its parent has not written yet.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import threading
import time
from typing import Any, Dict, Optional

_INTERVAL_S = 0.1


class Reporter:
    """Writes at most ten lines a second, the newest of each value; the rest when due."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: Dict[str, Any] = {}
        self._written_at = -math.inf
        self._timer: Optional[threading.Timer] = None

    def add(
        self, progress: Optional[float], step: Optional[int], metrics: Dict[str, float]
    ) -> None:
        with self._lock:
            if progress is not None:
                self._pending["progress"] = progress
            if step is not None:
                self._pending["step"] = step
            if metrics:
                self._pending.setdefault("metrics", {}).update(metrics)
            if not self._pending:
                return
            wait = self._written_at + _INTERVAL_S - time.monotonic()
            if wait <= 0:
                self._write()
            elif self._timer is None:
                self._timer = threading.Timer(wait, self.flush)
                self._timer.daemon = True
                try:
                    self._timer.start()
                except RuntimeError:  # no more threads, or the interpreter is ending
                    self._timer = None
                    self._write()

    def write_now(self, name: str, value: Any) -> None:
        """Write the program's result, or the step of a saved checkpoint, at once."""
        with self._lock:
            self._pending[name] = value
            self._write()

    def flush(self) -> None:
        with self._lock:
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
            if self._pending:
                self._write()

    def _write(self) -> None:
        pending, self._pending = self._pending, {}
        self._written_at = time.monotonic()
        path = os.environ.get("TONY_REPORT_FILE")
        if not path:
            return
        pending["time"] = time.time()
        line = (json.dumps(pending) + "\n").encode()
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                _lock(file)
                os.write(file, line)
            finally:
                os.close(file)
        except OSError:
            pass  # losing a report is better than losing the training

    def forked(self) -> None:
        """Forget, in a child, what the parent has not written yet."""
        self._lock = threading.Lock()
        self._pending = {}
        self._timer = None


def _lock(file: int) -> None:
    """Keep the reader from shortening the file meanwhile, where the file system has locks."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
    except (ImportError, OSError):
        pass


reporter = Reporter()
atexit.register(reporter.flush)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reporter.forked)

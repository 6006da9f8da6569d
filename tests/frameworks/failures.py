"""What a framework's service in the master tells the session."""

from __future__ import annotations

import threading
from typing import List, Tuple


class Failures:
    """To be called as the session's listener."""

    def __init__(self) -> None:
        self.reported: List[Tuple[str, str, int]] = []
        self._one = threading.Event()

    def __call__(self, reason: str, task: str, exit_code: int) -> None:
        self.reported.append((reason, task, exit_code))
        self._one.set()

    def first(self) -> Tuple[str, str, int]:
        """Reason, task and exit code of the first."""
        assert self._one.wait(30), "nothing failed within 30 s"
        return self.reported[0]

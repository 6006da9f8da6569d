"""Answers of the index that cost much, used again for as long as they are worth."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, Tuple, TypeVar, cast

from tony_core.portal.index.database import QUERY_S, IndexBusy

REPEATED = 50.0
"""An answer that took a second is used again for so many, and at most for :data:`LONGEST_S`."""

LONGEST_S = 60.0
_MOST = 500

_T = TypeVar("_T")
_Key = Tuple[Any, ...]


class Answers:
    """By question; any thread may ask. One asks at a time, and the others take his answer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: Dict[_Key, Tuple[float, Any]] = {}  # until when, and what
        self._running: Dict[_Key, threading.Lock] = {}

    def get(self, key: _Key, ask: Callable[[], _T]) -> _T:
        """The answer to a question; raises what ``ask`` raises, and :class:`IndexBusy`."""
        with self._lock:
            until, found = self._known.get(key, (0.0, None))
            if self._clock() < until:
                return cast(_T, found)
            running = self._running.setdefault(key, threading.Lock())
        if not running.acquire(timeout=2 * QUERY_S):
            raise IndexBusy("the portal answers too many requests at once; try again")
        try:
            with self._lock:
                until, found = self._known.get(key, (0.0, None))
                if self._clock() < until:
                    return cast(_T, found)
            began = self._clock()
            answer = ask()
            lasts = min(LONGEST_S, (self._clock() - began) * REPEATED)
            with self._lock:
                if len(self._known) >= _MOST:
                    self._known.clear()
                self._known[key] = (began + lasts, answer)
            return answer
        finally:
            with self._lock:
                if self._running.get(key) is running:
                    del self._running[key]
            running.release()

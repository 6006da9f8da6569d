"""What pages of jobs are made from, kept for the next reader.

Of a job that has ended it is kept as long as the index has the same row of it, for some minutes.
Of one that runs, or could not be read whole, for ten times what it took to make, so that many looks
at a large job cost what one costs. What a running job's page or scheduler answers
depends on the viewer, so it is kept for that viewer alone.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Callable, NamedTuple, Tuple, TypeVar, cast

from tony_core.portal.index.rows import JobRow

MOST_BYTES = 24 << 20
LARGEST = 6 << 20  # of one entry
LONGEST_S = 30.0  # of a job that runs, or was not read whole
LONGEST_ENDED_S = 600.0
TIMES = 10.0

_T = TypeVar("_T")
_Key = Tuple[str, str, str, str]


class _Entry(NamedTuple):
    row: JobRow
    value: object
    size: int
    until: float  # by the monotonic clock


class PageCache:
    """By job and kind; any thread may ask. Whether a viewer may see the job is decided before."""

    def __init__(
        self, most_bytes: int = MOST_BYTES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most_bytes = most_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._size = 0

    def get(
        self,
        row: JobRow,
        kind: str,
        make: Callable[[], _T],
        size_of: Callable[[_T], int],
        viewer: str = "",
        is_whole: Callable[[_T], bool] = lambda value: True,
    ) -> _T:
        """The value that is kept, or a new one; ``size_of`` it is about how many bytes.

        ``viewer``: in whose name it is read. ``is_whole``: whether all of it could be.
        """
        key = (row.location, row.app_id, kind, "" if row.has_ended else viewer)
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and self._holds(entry, row):
                self._entries.move_to_end(key)
                return cast(_T, entry.value)
        began = self._clock()
        value = make()
        cost = self._clock() - began
        lasts = row.has_ended and is_whole(value)
        until = self._clock() + (LONGEST_ENDED_S if lasts else min(LONGEST_S, TIMES * cost))
        size = size_of(value)
        if size <= LARGEST:
            self._put(key, _Entry(row, value, size, until))
        return value

    def _holds(self, entry: _Entry, row: JobRow) -> bool:
        if self._clock() >= entry.until:
            return False
        if row.has_ended:
            return entry.row == row
        return entry.row.owner == row.owner

    def _put(self, key: _Key, entry: _Entry) -> None:
        with self._lock:
            old = self._entries.pop(key, None)
            self._size += entry.size - (old.size if old else 0)
            self._entries[key] = entry
            while self._size > self._most_bytes and self._entries:
                _, gone = self._entries.popitem(last=False)
                self._size -= gone.size

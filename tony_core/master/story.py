"""The job's story: every line that the session machine or the master adds, numbered, in order.

One list for three readers: the page's time line and its long polls, the history's segments,
and the client's live view. A line is encoded once, when it is added. Only the newest lines
stay in memory; history has them all.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Mapping, Tuple

from tony_core.history.layout import ATTEMPT_GAP, StoryKind
from tony_core.jsontext import is_number
from tony_core.master.session.commands import AddStoryLine, Level

KEPT = 20_000
SESSIONS = 1000
LARGEST = 1 << 53  # a larger number is damage

LOUD = (Level.DECISION, Level.ERROR)

Clean = Callable[[Any], Any]


class Story:
    """Numbered lines, and the readers that wait for the next one."""

    def __init__(self, clean: Clean, written: Callable[[bytes, bool], None]) -> None:
        self._clean = clean
        self._written = written
        self._lines: Deque[Tuple[int, bytes]] = deque(maxlen=KEPT)
        self._waiting: List[Callable[[], None]] = []
        self.last = 0
        #: When the newest sessions began, seconds since the epoch.
        self.session_begins: Deque[float] = deque(maxlen=SESSIONS)

    def inherit(self, events: List[Mapping[str, Any]]) -> None:
        """Take over the previous attempts' lines, from history."""
        for event in events:
            number, at = event.get("n"), event.get("time")
            if isinstance(number, int) and self.last < number < LARGEST:
                self.last = number
                self._lines.append((number, _encode(event)))
                if event.get("kind") == StoryKind.SESSION_STARTED.value and is_number(at):
                    self.session_begins.append(at)
        self.last += ATTEMPT_GAP

    def add(self, line: AddStoryLine, at: float) -> None:
        """Add a line; ``at`` is seconds since the epoch."""
        self.last += 1
        entry: Dict[str, Any] = {
            "n": self.last,
            "time": round(at, 3),
            "kind": line.kind.value,
            "text": self._clean(line.text),
            "weight": line.level.value,
            "task": line.task,
            "session": line.session,
            "fields": self._clean(dict(line.fields)),
        }
        data = _encode(entry)
        self._lines.append((self.last, data))
        if line.kind is StoryKind.SESSION_STARTED:
            self.session_begins.append(entry["time"])
        self._written(data, line.level in LOUD)
        self.release()

    def since(self, number: int, limit: int = 2000) -> Tuple[bytes, int]:
        """Return the lines after a number as a JSON list, and the number to ask with next."""
        found: List[bytes] = []
        reached = number
        if number < self.last:
            lines = self._lines if len(self._lines) <= limit else list(self._lines)
            if isinstance(lines, list):
                low, high = 0, len(lines)
                while low < high:  # the first line after the number
                    middle = (low + high) // 2
                    low, high = (middle + 1, high) if lines[middle][0] <= number else (low, middle)
                lines = lines[low : low + limit]
            for n, data in lines:
                if n > number:
                    found.append(data)
                    reached = n
        return b"[" + b",".join(found) + b"]", reached

    def newest(self, count: int) -> List[Mapping[str, Any]]:
        """Return the last lines, for the page."""
        lines = list(self._lines)[-count:]
        return [json.loads(data) for _, data in lines]

    def wait(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once when the next line is added."""
        self._waiting.append(wake)

    def release(self) -> None:
        """Wake all readers: no more lines follow."""
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def forget(self, wake: Callable[[], None]) -> None:
        """Remove a reader that went away."""
        if wake in self._waiting:
            self._waiting.remove(wake)


def _encode(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":"), default=str).encode()

"""Writes one job's history: events in segments, and a summary.

``events-0001.jsonl``, ``events-0002.jsonl``... hold the story, one event a line. Only whole
files are put (any file system can do that), so the newest segment is put again and again
until it is full, and then left as it is. It is put at once at every decision; everything else
within ten seconds. A master that follows another begins a segment of its own.

``summary.json`` is ``{"job", "tasks", "metrics"}`` in the very shapes of the job's page: at
the start, at decisions, and at the end, so readers of history need no master.

A place where the first write fails is given up for the fallback, and that is reported; one that
fails later is reported as well, and tried again. :mod:`tony_core.history.access` decides who may
read what is written.
"""

from __future__ import annotations

import json
import threading
from typing import Any, Callable, List, Mapping, Optional

from tony_core.files.location import join
from tony_core.files.registry import filesystem
from tony_core.history.access import prepare
from tony_core.history.background_writer import BackgroundWriter
from tony_core.history.layout import CONFIG, SUMMARY, segment_name, segment_number

FLUSH_S = 10.0
SEGMENT_BYTES = 64 * 1024
END_S = 10.0  # the most an ended job waits for its history


def encode(event: Mapping[str, Any]) -> bytes:
    """Encode an event as a line, without its end."""
    return json.dumps(event, separators=(",", ":"), default=str).encode()


class HistoryWriter:
    """Gathers events, and hands whole files to a :class:`BackgroundWriter`."""

    def __init__(
        self,
        folder: str,
        writer: Optional[BackgroundWriter] = None,
        fallback: str = "",
        location: str = "",
        on_trouble: Callable[[str], None] = lambda text: None,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._folder = folder
        self._fallback = fallback if fallback != folder else ""
        self._on_trouble = on_trouble  # called once for each kind, on the writer's thread
        self._troubled = False
        self._files = filesystem(folder)
        self._writer = writer or BackgroundWriter(self._put, log)
        self._segment = 0
        self._lines: List[bytes] = []
        self._size = 0
        self._unwritten = False
        self._oldest: Optional[float] = None  # when the first event that waits was added
        self._made = False
        self._location = location  # that the job names: it may be shared
        self._mode = 0o600
        self._prepared = ""  # the folder that was made
        self._preparing = threading.Lock()

    def begin(self, existing: List[str]) -> None:
        """Start a segment after those of previous attempts."""
        self._segment = max((segment_number(name) for name in existing), default=0) + 1

    def add(self, line: bytes, now: float) -> None:
        """Append an encoded event."""
        self._lines.append(line)
        self._size += len(line) + 1
        if not self._unwritten:
            self._unwritten = True
            self._oldest = now
        if self._size >= SEGMENT_BYTES:
            self.flush()
            self._lines, self._size = [], 0
            self._segment += 1

    def next_deadline(self) -> Optional[float]:
        """When what waits should go out at the latest."""
        return None if self._oldest is None else self._oldest + FLUSH_S

    def flush(self) -> None:
        """Hand over the newest segment."""
        if not self._unwritten:
            return
        self._unwritten, self._oldest = False, None
        self._writer.put(segment_name(max(1, self._segment)), b"\n".join(self._lines) + b"\n")

    def summary(self, data: Mapping[str, Any]) -> None:
        """Replace the summary."""
        self._writer.put(SUMMARY, json.dumps(data, separators=(",", ":"), default=str).encode())

    def config(self, text: bytes) -> None:
        """Keep the job's masked configuration beside its story."""
        self._writer.put(CONFIG, text)

    def close(self, timeout_s: float = END_S) -> List[str]:
        """Complete the history; returns what could not be written."""
        self.flush()
        return self._writer.close(timeout_s)

    def _put(self, name: str, data: bytes) -> None:
        try:
            self._write(name, data)
        except Exception as error:
            reason = getattr(error, "strerror", None) or error
            text = f"history cannot be written at {self._folder}: {reason}"
            if self._made or not self._fallback:
                self._trouble(f"{text}; events are shown while the job runs, then may be lost")
                raise
            self._trouble(f"{text}; it is kept at {self._fallback} instead")
            self._folder, self._fallback = self._fallback, ""
            self._files = filesystem(self._folder)
            self._write(name, data)

    def _write(self, name: str, data: bytes) -> None:
        with self._preparing:
            if self._prepared != self._folder:
                self._mode, changed = prepare(self._files, self._folder, self._location)
                self._prepared = self._folder
                if changed:
                    self._on_trouble(changed)
        self._files.put(join(self._folder, name), data, self._mode)
        self._made = True

    def _trouble(self, text: str) -> None:
        if not self._troubled:
            self._troubled = True
            self._on_trouble(text)

"""Writes one job's history while it runs, for readers who may come at any moment, or years later.

Lines go into numbered files (:mod:`tony_core.history.layout` names them): the story, the points of
the metric series, and what has changed since the last summary. On this machine the newest of them
grows, so little is lost with a master that is killed. Other file systems only put whole files
(:mod:`tony_core.files.port`): there the newest is put again and again, until it is full. A master
that follows another begins files of its own.

``summary.json`` is ``{"job", "tasks", "live"}`` in the very shapes of the job's page, and ``live``
the number of the file that has what changed since. At the end there is none, and
``metrics.jsonl`` stands for the points.

A place where the first write fails is given up for the fallback, and that is reported; one that
fails later is reported as well, and tried again. :mod:`tony_core.history.access` decides who may
read what is written.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Callable, Iterable, List, Mapping, Optional, Tuple

from tony_core.files.durable import write_at
from tony_core.files.location import is_remote, join, local_path
from tony_core.files.registry import filesystem
from tony_core.history.access import prepare
from tony_core.history.background_writer import BackgroundWriter, Change
from tony_core.history.layout import (
    CONFIG,
    EVENTS,
    LIVE,
    METRICS,
    POINTS,
    SUMMARY,
    segment_name,
    segment_number,
)
from tony_core.history.metric_file import encode_series
from tony_core.jsontext import write_value

SEGMENT_BYTES = 64 * 1024
POINTS_BYTES = 1024 * 1024  # of metrics, of which a large job has many
END_S = 10.0  # the most an ended job waits for its history


def encode(event: Mapping[str, Any]) -> bytes:
    """Encode an event as a line, without its end."""
    return write_value(event).encode()


class GrowingFiles:
    """Lines in files of one kind: the newest grows until it is full, then the next one does."""

    def __init__(self, kind: str, most_bytes: Optional[int] = None) -> None:
        self._kind = kind
        self._most = most_bytes  # None: the caller begins the next one
        self.number = 1
        self._data = bytearray()
        self._handed_over = 0

    @property
    def name(self) -> str:
        """The newest file's."""
        return segment_name(self.number, self._kind)

    @property
    def size(self) -> int:
        """Bytes in the newest file."""
        return len(self._data)

    @property
    def is_full(self) -> bool:
        return self._most is not None and len(self._data) >= self._most

    def begin(self, number: int) -> None:
        """Go on in a file of that number."""
        self.number = number
        self._data.clear()
        self._handed_over = 0

    def add(self, line: bytes) -> None:
        self._data += line + b"\n"

    def take(self, whole: bool, sync: bool) -> Optional[Tuple[str, Change]]:
        """The change that brings the newest file up to date; None where it is.

        ``whole`` is for a file system where files do not grow.
        """
        if self._handed_over == len(self._data):
            return None
        name, sync = self.name, sync or self.is_full
        begin = 0 if whole else self._handed_over
        change = Change(bytes(self._data[begin:]), None if whole else begin, sync)
        self._handed_over = len(self._data)
        if self.is_full:
            self.begin(self.number + 1)
        return name, change


class HistoryWriter:
    """Gathers lines and summaries, and hands them to a :class:`BackgroundWriter`."""

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
        self._story = GrowingFiles(EVENTS, SEGMENT_BYTES)
        self._points = GrowingFiles(POINTS, POINTS_BYTES)
        self._live = GrowingFiles(LIVE)
        self._old: List[str] = []  # files that the next summary replaces
        self._old_points: List[str] = []
        self._made = False
        self._location = location  # that the job names: it may be shared
        self._mode = 0o600
        self._prepared = ""  # the folder that was made
        self._preparing = threading.Lock()

    def begin(self, existing: Iterable[str]) -> None:
        """Begin files after those of previous attempts."""
        existing = list(existing)
        for files, kind in ((self._story, EVENTS), (self._points, POINTS), (self._live, LIVE)):
            files.begin(max((segment_number(name, kind) for name in existing), default=0) + 1)
        self._old = [name for name in existing if segment_number(name, LIVE)]
        self._old_points = [name for name in existing if segment_number(name, POINTS)]

    @property
    def is_remote(self) -> bool:
        """Whether files are put whole, over a network."""
        return is_remote(self._folder)

    @property
    def live_bytes(self) -> int:
        """How much has been written since the last summary."""
        return self._live.size

    def add(self, line: bytes) -> None:
        """Append an encoded event."""
        self._append(self._story, line)

    def points(self, line: bytes) -> None:
        """Append points of the metric series (:mod:`tony_core.history.metric_log`)."""
        name = self._points.name
        if name not in self._old_points[-1:]:
            self._old_points.append(name)
        self._append(self._points, line)

    def changes(self, line: bytes) -> None:
        """Append what has changed since the summary (:mod:`tony_core.history.live_changes`)."""
        self._append(self._live, line)

    def flush(self, sync: bool = False) -> None:
        """Hand over all lines; with ``sync`` the story's survive a power cut."""
        self._hand_over(self._story, sync)
        self._hand_over(self._points)
        self._hand_over(self._live)

    def summary(self, data: Mapping[str, Any], final: bool = False) -> int:
        """Replace the summary; what changes from now on goes into a new file. Its size."""
        if self._live.size:
            self._writer.discard(self._live.name)
            self._old.append(self._live.name)
        removes, self._old = tuple(self._old), []
        self._live.begin(self._live.number + 1)
        text = encode(data if final else {**data, "live": self._live.number})
        self._writer.put(SUMMARY, Change(text, removes=removes))
        return len(text)

    def metrics(self, data: Mapping[str, Any]) -> None:
        """Write the series at the end, in place of their points."""
        for name in self._old_points:
            self._writer.discard(name)
        self._points.begin(self._points.number + 1)
        self._writer.put(METRICS, Change(encode_series(data), removes=tuple(self._old_points)))

    def config(self, text: bytes) -> None:
        """Keep the job's masked configuration beside its story."""
        self._writer.put(CONFIG, Change(text))

    def close(self, timeout_s: float = END_S) -> List[str]:
        """Complete the history; returns what could not be written."""
        self.flush(sync=True)
        return self._writer.close(timeout_s)

    def _append(self, files: GrowingFiles, line: bytes) -> None:
        files.add(line)
        if files.is_full:
            self._hand_over(files)

    def _hand_over(self, files: GrowingFiles, sync: bool = False) -> None:
        taken = files.take(self.is_remote, sync)
        if taken is not None:
            self._writer.put(*taken)

    # ------------------------------------------------------------------ on the writer's thread

    def _put(self, name: str, change: Change) -> None:
        try:
            self._write(name, change)
        except Exception as error:
            reason = getattr(error, "strerror", None) or error
            text = f"history cannot be written at {self._folder}: {reason}"
            if self._made or not self._fallback:
                self._trouble(f"{text}; events are shown while the job runs, then may be lost")
                raise
            self._trouble(f"{text}; it is kept at {self._fallback} instead")
            self._folder, self._fallback = self._fallback, ""
            self._files = filesystem(self._folder)
            self._write(name, change)

    def _write(self, name: str, change: Change) -> None:
        with self._preparing:
            if self._prepared != self._folder:
                self._mode, changed = prepare(self._files, self._folder, self._location)
                self._prepared = self._folder
                if changed:
                    self._on_trouble(changed)
        where, data = join(self._folder, name), change.data
        if change.offset is not None and not is_remote(where):
            write_at(local_path(where), data, change.offset, self._mode, change.sync)
        else:
            if change.offset:  # from before the fallback
                data = self._files.get(where)[: change.offset] + data
            self._files.put(where, data, self._mode)
        self._made = True
        for old in change.removes:
            with suppress(OSError):  # it is read no more
                self._files.delete(join(self._folder, old))

    def _trouble(self, text: str) -> None:
        if not self._troubled:
            self._troubled = True
            self._on_trouble(text)

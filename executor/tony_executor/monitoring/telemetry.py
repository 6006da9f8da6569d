"""The resource usage of a program while it runs, and the reports that it writes itself.

:class:`ResourceUsage` adds up the program's process tree. :class:`ReportFile` reads what the
program wrote by ``tony.report()`` and ``result()``: lines of JSON in a file of its own. The
program appends under a lock; the executor reads under the same lock, and shortens a file that it
has read to its end and that has grown, so that a long training does not fill the disk. The file is
the program's to write: whatever does not fit is passed over.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from typing import AbstractSet, Any, Dict, Optional

from tony_core import measures
from tony_core.protocol.messages import Reported
from tony_executor import processes

_READ_SIZE = 256 * 1024
_SHORTEN_AT = 256 * 1024
MAX_NAMES = 500
_TOO_LARGE = 1 << 63  # a message with a larger number is refused, and its link ended
LONGEST_NAME = 200
LONGEST_RESULT = 64 * 1024  # as program/tony.py refuses it, and says so


def merge_reports(before: Optional[Reported], new: Reported) -> Reported:
    """The newest of each value."""
    if before is None:
        return new
    return Reported(
        new.session,
        before.progress if new.progress is None else new.progress,
        {**before.metrics, **new.metrics},
        before.step if new.step is None else new.step,
        new.result or before.result,
        before.saved if new.saved is None else new.saved,
    )


class ReportFile:
    """The report file of one session."""

    def __init__(self, path: str, session: int) -> None:
        self.path = path
        self.has_noticed = False  # the program knows that containers are taken back
        self._session = session
        self._offset = 0
        self._known: Dict[str, None] = {}

    def read_new(self) -> Optional[Reported]:
        """The newest of each value that was written since the last call; None for none."""
        try:
            if os.stat(self.path).st_size <= self._offset:
                return None
            file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            data = self._read(file)
        except OSError:
            return None  # being written: next time
        finally:
            os.close(file)
        return self._newest(data)

    def _read(self, file: int) -> bytes:
        data = os.pread(file, _READ_SIZE, self._offset)
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) == _READ_SIZE:
            whole = len(data)  # one endless line is not a report
        self._offset += whole
        if self._offset >= _SHORTEN_AT and self._offset == os.fstat(file).st_size:
            os.ftruncate(file, 0)
            self._offset = 0
        return data[:whole]

    def _newest(self, data: bytes) -> Optional[Reported]:
        progress: Optional[float] = None
        step: Optional[int] = None
        saved: Optional[int] = None
        metrics: Dict[str, float] = {}
        result = ""
        for line in data.splitlines():
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if not isinstance(found, dict):
                continue
            self.has_noticed = self.has_noticed or found.get("preemption") is True
            if _is_number(found.get("progress")):
                progress = float(found["progress"])
            step = _count(found.get("step"), step)
            saved = _count(found.get("saved"), saved)
            values = found.get("metrics")
            for name, value in values.items() if isinstance(values, dict) else ():
                if _is_number(value) and self._is_admitted(name):
                    metrics[name] = float(value)
            if "result" in found:
                result = _as_text(found["result"]) or result
        if progress is None and step is None and saved is None and not metrics and not result:
            return None
        return Reported(self._session, progress, metrics, step, result, saved)

    def _is_admitted(self, name: str) -> bool:
        """Bound the names: a program that makes them up must not fill the master's memory."""
        if name not in self._known:
            if len(self._known) >= MAX_NAMES or len(name) > LONGEST_NAME:
                return False
            self._known[name] = None
        return True


def _as_text(value: Any) -> str:
    """The result as JSON; empty when it is too large, or no JSON."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        return ""
    return text if len(text) <= LONGEST_RESULT else ""


def _count(value: Any, otherwise: Optional[int]) -> Optional[int]:
    """The value, if it is a whole number that a message may hold."""
    if not _is_number(value) or abs(int(value)) >= _TOO_LARGE:
        return otherwise
    return int(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


class ResourceUsage:
    """The resource usage of a program's process tree, from its start on."""

    def __init__(self, now: float) -> None:
        self._peak_rss_mb = 0.0
        self._peak_threads = 0
        self._reaped_before = _reaped_cpu_s()
        self._last_cpu_s = 0.0
        self._last_at = now
        self._started_at = now

    def sample(self, now: float, without: AbstractSet[int]) -> Dict[str, float]:
        """The present usage; ``cpu_percent`` is of one core, since the last sample."""
        tree = processes.descendants(os.getpid(), without)
        rss_mb = sum(process.rss_mb for process in tree)
        threads = sum(process.threads for process in tree)
        cpu_s = self._cpu_s(sum(process.cpu_s for process in tree))
        passed = max(1e-3, now - self._last_at)
        percent = max(0.0, 100.0 * (cpu_s - self._last_cpu_s) / passed)
        self._peak_rss_mb = max(self._peak_rss_mb, rss_mb)
        self._peak_threads = max(self._peak_threads, threads)
        self._last_cpu_s, self._last_at = cpu_s, now
        return {
            measures.RSS_MB: round(rss_mb, 1),
            measures.CPU_PERCENT: round(percent, 1),
            measures.THREADS: float(threads),
            measures.PROCESSES: float(len(tree)),
        }

    def total(
        self, now: float, largest_rss_mb: float, without: AbstractSet[int]
    ) -> Dict[str, float]:
        """The usage over the program's whole run; ``largest_rss_mb`` is the kernel's measure.

        Short programs end between two samples, and the kernel knows only single processes:
        the larger of the two is nearest the truth.
        """
        left = sum(process.cpu_s for process in processes.descendants(os.getpid(), without))
        cpu_s = self._cpu_s(left)
        used = {
            measures.PEAK_RSS_MB: round(max(self._peak_rss_mb, largest_rss_mb), 1),
            measures.CPU_S: round(cpu_s, 3),
            measures.WALL_S: round(now - self._started_at, 3),
        }
        if self._peak_threads:  # the kernel does not keep it, and a short program has no sample
            used[measures.PEAK_THREADS] = float(self._peak_threads)
        return used

    def _cpu_s(self, living: float) -> float:
        return living + _reaped_cpu_s() - self._reaped_before


def _reaped_cpu_s() -> float:
    times = os.times()
    return times.children_user + times.children_system

"""What the program's process tree uses: now, and at most."""

from __future__ import annotations

import os
from typing import AbstractSet, Dict

from tony_executor import processes


class Sampling:
    """One session's program; begun when it starts."""

    def __init__(self, now: float) -> None:
        self._peak_rss_mb = 0.0
        self._peak_threads = 0
        self._reaped_before = _reaped_cpu_s()
        self._last_cpu_s = 0.0
        self._last_at = now
        self._started_at = now

    def sample(self, now: float, without: AbstractSet[int]) -> Dict[str, float]:
        """What it uses now; ``cpu_percent`` is of one core, since the sample before."""
        tree = processes.below(os.getpid(), without)
        rss_mb = sum(process.rss_mb for process in tree)
        threads = sum(process.threads for process in tree)
        cpu_s = self._cpu_s(sum(process.cpu_s for process in tree))
        passed = max(1e-3, now - self._last_at)
        percent = max(0.0, 100.0 * (cpu_s - self._last_cpu_s) / passed)
        self._peak_rss_mb = max(self._peak_rss_mb, rss_mb)
        self._peak_threads = max(self._peak_threads, threads)
        self._last_cpu_s, self._last_at = cpu_s, now
        return {
            "rss_mb": round(rss_mb, 1),
            "cpu_percent": round(percent, 1),
            "threads": float(threads),
            "processes": float(len(tree)),
        }

    def total(
        self, now: float, largest_rss_mb: float, without: AbstractSet[int]
    ) -> Dict[str, float]:
        """What it used, once it has ended; ``largest_rss_mb`` is the kernel's own word.

        Short programs end between two samples, and the kernel knows only single processes:
        the larger of the two is nearest the truth.
        """
        left = sum(process.cpu_s for process in processes.below(os.getpid(), without))
        cpu_s = self._cpu_s(left)
        used = {
            "peak_rss_mb": round(max(self._peak_rss_mb, largest_rss_mb), 1),
            "cpu_s": round(cpu_s, 3),
            "wall_s": round(now - self._started_at, 3),
        }
        if self._peak_threads:  # the kernel does not keep it: none was seen, none is told
            used["peak_threads"] = float(self._peak_threads)
        return used

    def _cpu_s(self, living: float) -> float:
        return living + _reaped_cpu_s() - self._reaped_before


def _reaped_cpu_s() -> float:
    times = os.times()
    return times.children_user + times.children_system

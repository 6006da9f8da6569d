"""What the portal measures of itself, for ``/health`` and Prometheus (``/metrics``).

No name of a job is in it; users and queues are labels of the jobs that run, for an administrator or
the addresses that the settings name. Labels have few values, whatever a request or a job contains.
"""

from __future__ import annotations

from collections import Counter as Counted
from typing import Callable, Dict, Iterable, Mapping, Tuple

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

LiveKey = Tuple[str, str, str]

PAGES = frozenset(
    "jobs api users queues compare trends static login logout health metrics prometheus".split()
)
MOST_SERIES = 500  # of running jobs; the rest are counted together
OTHER = "(other)"
_METHODS = frozenset(("GET", "HEAD", "POST"))
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Monitoring:
    """Counts requests; asks the index how it is when it is asked itself."""

    def __init__(self) -> None:
        self._find_problem: Callable[[], str] = lambda: ""
        self._numbers: Callable[[], Mapping[str, float]] = dict
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._requests = Counter(
            "tony_portal_requests", "Answered requests.", ("page", "method", "status"),
            registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "tony_portal_request_seconds", "Time to the end of the answer.", ("page",),
            buckets=_BUCKETS, registry=self._registry,
        )  # fmt: skip
        self._refused = Counter(
            "tony_portal_refused_logins", "Requests without a login that counts.", ("login",),
            registry=self._registry,
        )  # fmt: skip
        self._ended = Counter(
            "tony_portal_ended_jobs", "Jobs that viewers have ended here.", ("result",),
            registry=self._registry,
        )  # fmt: skip
        self._sessions = Gauge(
            "tony_portal_sessions", "Logins that are valid now.", registry=self._registry
        )
        self._live = Gauge(
            "tony_jobs", "Jobs that wait or run now, as the schedulers list them.",
            ("state", "queue", "user"), registry=self._registry,
        )  # fmt: skip
        self._list_live: Callable[[], Iterable[LiveKey]] = tuple
        self._gauges: Dict[str, Gauge] = {}

    def watch(
        self,
        find_problem: Callable[[], str],
        numbers: Callable[[], Mapping[str, float]],
        list_live: Callable[[], Iterable[LiveKey]] = tuple,
    ) -> None:
        """``find_problem`` says why the portal is not well; ``numbers`` are gauges by name.

        ``list_live``: state, queue and user of each job that waits or runs.
        """
        self._list_live = list_live
        self._find_problem = find_problem
        self._numbers = numbers

    def count(self, method: str, path: str, status: int, took_s: float) -> None:
        """Count an answered request."""
        page = page_of(path)
        method = method if method in _METHODS else "other"
        self._requests.labels(page, method, f"{status // 100}xx").inc()
        self._seconds.labels(page).observe(took_s)

    def refused(self, login: str) -> None:
        """Count a request that was refused for its login."""
        self._refused.labels(login).inc()

    def ended(self, result: str) -> None:
        """Count an attempt to end a job: ``ended``, ``refused`` or ``failed``."""
        self._ended.labels(result).inc()

    def health(self) -> Tuple[int, str]:
        """The status and text of ``/health``."""
        problem = self._find_problem()
        return (503, f"{problem}\n") if problem else (200, "ok\n")

    def exposition(self, sessions: int) -> Tuple[bytes, str]:
        """Everything in Prometheus' form, and the content type of that."""
        self._sessions.set(sessions)
        for name, value in self._numbers().items():
            if name not in self._gauges:
                text = name.replace("_", " ").capitalize() + "."
                self._gauges[name] = Gauge(f"tony_portal_{name}", text, registry=self._registry)
            self._gauges[name].set(value)
        self._live.clear()
        for labels, count in count_live(self._list_live()).items():
            self._live.labels(*labels).set(count)
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


def count_live(jobs: Iterable[LiveKey], most: int = MOST_SERIES) -> Dict[LiveKey, int]:
    """How many jobs there are by state, queue and user; the smallest together as others'."""
    counts = Counted(jobs)
    found: Dict[LiveKey, int] = {}
    for at, (key, count) in enumerate(counts.most_common()):
        key = key if at < most else (key[0], OTHER, OTHER)
        found[key] = found.get(key, 0) + count
    return found


def page_of(path: str) -> str:
    """Which page a path is, as one of a few words."""
    first = path.strip("/").partition("/")[0]
    if not first:
        return "list"
    return first if first in PAGES else "other"

"""What the portal measures of itself, for ``/health`` and Prometheus (``/metrics``).

No name of a user or a job is in it. Labels have few values, whatever a request contains.
"""

from __future__ import annotations

from typing import Callable, Dict, Mapping, Tuple

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

PAGES = frozenset("jobs api users queues compare trends static login logout health metrics".split())
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
        self._gauges: Dict[str, Gauge] = {}

    def watch(
        self, find_problem: Callable[[], str], numbers: Callable[[], Mapping[str, float]]
    ) -> None:
        """``find_problem`` says why the portal is not well; ``numbers`` are gauges by name."""
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
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


def page_of(path: str) -> str:
    """Which page a path is, as one of a few words."""
    first = path.strip("/").partition("/")[0]
    if not first:
        return "list"
    return first if first in PAGES else "other"

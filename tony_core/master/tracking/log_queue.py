"""What waits to be logged at MLflow, and the batches in which it leaves. Pure; bounded.

Points wait a moment for others, so that a request has many; parameters and tags do not. A batch
that the server refused comes back in halves until the wrong entry is alone. Of points that the
server does not take as fast as they come the oldest are dropped.
"""

from __future__ import annotations

from collections import deque
from typing import Callable, Deque, Dict, Iterable, Mapping, Optional, Tuple, TypeVar

from tony_core.master.tracking import mlflow_api as api
from tony_core.master.tracking.mlflow_api import Batch, Metric

_T = TypeVar("_T")

QUEUED = 20_000  # points that wait
MOST_NAMES = 1000  # of metrics
FLUSH_S = 2.0  # that points wait for others


class LogQueue:
    """The queue of one run; ``note`` takes a subject and a line about what is left out."""

    def __init__(self, params: Iterable[Tuple[str, str]], note: Callable[[str, str], None]) -> None:
        self._note = note
        self._names = api.Names(MOST_NAMES)
        self._metrics: Deque[Metric] = deque()
        self._params: Deque[Tuple[str, str]] = deque(params)
        self._tags: Dict[str, str] = {}
        self._returned: Deque[Batch] = deque()  # batches, or parts of them, that were not taken
        self._flush_at: Optional[float] = None
        self.dropped = 0

    def add_metrics(self, values: Mapping[str, float], step: int, at: float, now: float) -> None:
        """Add a point for each value; ``at`` is its time for the server."""
        for name, value in values.items():
            key = self._names.find(name)
            if key is None:
                self._note(
                    "names",
                    f"more than {MOST_NAMES} names of metrics: MLflow gets the first of them",
                )
                continue
            self._metrics.append(Metric(key, value, int(at * 1000), step))
        if self._metrics and self._flush_at is None:
            self._flush_at = now + FLUSH_S
        while len(self._metrics) > QUEUED:
            self._metrics.popleft()
            self.dropped += 1
            self._note(
                "dropped",
                f"MLflow does not take the job's metrics as fast as they come: of more than"
                f" {QUEUED} that wait the oldest are left out there",
            )

    def add_tags(self, tags: Mapping[str, str]) -> None:
        """Add tags; a newer one replaces one of its name that waits."""
        for name, value in tags.items():
            self._tags[api.name_of(name)] = api.plain(value, api.LONGEST_TAG)

    def __bool__(self) -> bool:
        return bool(self._metrics or self._params or self._tags or self._returned)

    @property
    def points(self) -> int:
        """How many points wait, with those of batches that did not arrive."""
        return len(self._metrics) + sum(len(batch.metrics) for batch in self._returned)

    def due(self) -> float:
        """When the next batch leaves, if there is one; it may be past."""
        full = len(self._metrics) >= api.BATCH_METRICS
        if full or self._params or self._tags or self._returned or self._flush_at is None:
            return 0.0
        return self._flush_at

    def take(self, now: float) -> Optional[Batch]:
        """The next batch; None when nothing waits."""
        if self._returned:
            return self._returned.popleft()
        metrics = _take(self._metrics, api.BATCH_METRICS)
        self._flush_at = now + FLUSH_S if self._metrics else None
        params = _take(self._params, api.BATCH_PARAMS)
        tags = list(self._tags.items())[: api.BATCH_TAGS]
        for name, _ in tags:
            del self._tags[name]
        batch = Batch(metrics, params, tuple(tags))
        return batch if batch.entries else None

    def put_back(self, batch: Batch) -> None:
        """Take a batch back that did not arrive: it is the next one."""
        self._returned.appendleft(batch)

    def split(self, batch: Batch, why: str) -> None:
        """Take a batch back that was refused, in halves; a single entry is dropped."""
        parts = batch.halves()
        if not parts:
            self._note(
                "refused",
                f"MLflow refuses an entry ({why}): it is left out there, {_name_of(batch)}",
            )
            self.dropped += len(batch.metrics)
        self._returned.extendleft(reversed(parts))

    def clear(self) -> None:
        """Let nothing wait."""
        for queue in (self._metrics, self._params, self._returned):
            queue.clear()
        self._tags.clear()

    def validate(self) -> None:
        """Check what must hold after every event; for tests."""
        assert len(self._metrics) <= QUEUED
        assert not self._metrics or self._flush_at is not None


def _take(queue: Deque[_T], most: int) -> Tuple[_T, ...]:
    return tuple(queue.popleft() for _ in range(min(most, len(queue))))


def _name_of(batch: Batch) -> str:
    names = [item.key for item in batch.metrics]
    names += [name for name, _ in (*batch.params, *batch.tags)]
    return repr(names[0][:100])

"""Deadlines: every wait has one, with a reason and a length.

Where a setting owns the length, the deadline names it. The other lengths are the constants below,
with these exceptions: the scheduler gives that of SETTLE (``PoolInfo.settle_s``), from which
``elastic.elastic_pause()`` derives those of ELASTIC_BARRIER and GROWTH;
``budgets.restart_delay()`` gives those of BACKOFF and TASK_RESTART, which grow with each restart;
and STALL has ``stalls.EVIDENCE_S``, ``REVIEW_S`` or ``BATCH_S``, STALL_REPEAT the time of a stall
in addition to the first.

Of several that expire at one moment the one whose value comes first in the alphabet is handled
first.
"""

from __future__ import annotations

import heapq
from enum import Enum
from typing import Dict, List, NamedTuple, Optional, Tuple

ADOPTION_S = 20.0  # ADOPTION

#: ALLOCATION_RETRY: the first delay, which doubles each time, and the longest.
ALLOCATION_BACKOFF_S = 5.0
ALLOCATION_BACKOFF_CAP_S = 300.0

#: REGROW: the delay after the second loss, which doubles each time, and the longest.
REGROW_FIRST_S = 5.0
REGROW_CAP_S = 300.0

#: CHIEF_GRACE: the least that evaluators have to evaluate the last checkpoint.
EVALUATOR_GRACE_S = 600.0

#: CLEANUP: how long after its grace an executor must have ended its program.
CLEANUP_ALLOWANCE_S = 5.0
#: STOP: how long after its grace a container must have ended; then it is given up.
STOP_ALLOWANCE_S = 20.0
#: END: the same, for all containers of a job that ends.
END_ALLOWANCE_S = STOP_ALLOWANCE_S + 10.0

HEALTHY_S = 600.0  # HEALTHY
AVOIDED_S = HEALTHY_S  # AVOIDED: since something of ours failed on the node

_REGISTRATION = "tony.container.registration.timeout"


class Deadline(str, Enum):
    """What is waited for: the reason, as diagnostics name it, and the setting that says how long.

    What is to be done when one expires stands in the table of :mod:`.machine`.
    """

    reason: str
    setting: str
    outlives_job: bool  # whether it still counts while the job ends

    def __new__(
        cls, value: str, reason: str, setting: str = "", outlives_job: bool = False
    ) -> Deadline:
        made = str.__new__(cls, value)
        made._value_ = value
        made.reason = reason
        made.setting = setting
        made.outlives_job = outlives_job
        return made

    APPLICATION = "application", "the job to end", "tony.application.timeout"
    ADOPTION = "adoption", "the executors of the previous attempt to register"
    ALLOCATION = (
        "allocation", "the rest of the gang's containers", "tony.container.allocation.timeout"
    )  # fmt: skip
    ALLOCATION_RETRY = "allocation-retry", "the next request for the gang"
    REGISTRATION = (
        "registration", "the executor of {name} on {node} to register", _REGISTRATION
    )  # fmt: skip
    READY = "ready", "{name} to lay out its working folder and hold its ports", _REGISTRATION
    ELASTIC_BARRIER = "gather", "the rest of the elastic roles"
    START = "start", "the executors to start their programs", _REGISTRATION
    GROWTH = "growth", "more tasks to come before a new round"
    REGROW = "regrow", "the time to ask for more {name}"
    GROUP = (
        "group", "{role} to end after group {group}",
        "tony.application.dependency.{role}.timeout.after.{group}",
    )  # fmt: skip
    CHIEF_GRACE = (
        "chief-grace", "the other tasks to end after the chief", "tony.application.chief-grace"
    )  # fmt: skip
    TASK_RESTART = "again", "{name}'s next attempt"
    SETTLE = "settle", "the cause to become clear"
    CLEANUP = "clear", "the program in container {name} to be ended"
    BACKOFF = "backoff", "the next session's time"
    STOP = "stop", "container {name} on {node} to end ({why})", "", True
    END = "end", "every container to end", "", True
    STALL = "stall", "the stacks of the programs that stand still, or may lag"
    STALL_REPEAT = "stall-repeat", "the programs to move once that of {task} has ended"
    STALLED_PROGRAM = "stalled-program", "the stalled program of {name} to end"
    AVOIDED = "avoided", "node {name} to be no longer avoided"
    HEALTHY = "healthy", "ten healthy minutes"


#: What the end of the job makes meaningless.
CANCELLED_AT_END = tuple(kind for kind in Deadline if not kind.outlives_job)


class PendingDeadline(NamedTuple):
    """A deadline that is set: what the job waits for, and until when."""

    key: Tuple[str, ...]  # its kind, and what it is about: (Deadline.REGISTRATION, "worker:0")
    until: float
    reason: str  # appears in the diagnostic when it expires
    setting: str = ""  # "tony.container.registration.timeout=300s"

    @property
    def name(self) -> str:
        """The task, container, role, node or number that it is about, if there are several."""
        return self.key[1] if len(self.key) > 1 else ""


class DeadlineQueue:
    """The pending deadlines, by key; a heap with lazy deletion, so that thousands are cheap."""

    def __init__(self) -> None:
        self._open: Dict[Tuple[str, ...], PendingDeadline] = {}
        self._heap: List[Tuple[float, Tuple[str, ...]]] = []

    def set(self, pending: PendingDeadline) -> None:
        """Add a deadline; it replaces one under the same key."""
        self._open[pending.key] = pending
        heapq.heappush(self._heap, (pending.until, pending.key))

    def cancel(self, *key: str) -> None:
        """Drop the deadline under this key: it is met, or does not matter any more."""
        self._open.pop(key, None)

    def cancel_kinds(self, *kinds: Deadline) -> None:
        """Drop every deadline of these kinds."""
        for key in [key for key in self._open if key[0] in kinds]:
            del self._open[key]

    def __contains__(self, key: Tuple[str, ...]) -> bool:
        return key in self._open

    def get(self, *key: str) -> Optional[PendingDeadline]:
        """The deadline under a key."""
        return self._open.get(key)

    def next(self) -> Optional[float]:
        """When the earliest deadline expires."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def take_expired(self, now: float) -> Optional[PendingDeadline]:
        """Take out the earliest deadline that has expired.

        One at a time: what follows from it may cancel the others.
        """
        self._drop_stale()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, key = heapq.heappop(self._heap)
        return self._open.pop(key)

    def _drop_stale(self) -> None:
        while self._heap:
            until, key = self._heap[0]
            pending = self._open.get(key)
            if pending is not None and pending.until == until:
                return
            heapq.heappop(self._heap)

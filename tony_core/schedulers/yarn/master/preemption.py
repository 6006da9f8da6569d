"""Containers that YARN asks back: when it ends them, and when it has let them be after all. Pure.

Theory of operation
===================

The answer to *allocate* names the containers that a queue takes back (its *strict contract*), or
takes back unless others are offered (the *negotiable* one; no scheduler of Hadoop waits for an
offer, so both mean the same here). It has no time. The site's configuration has it, if the client
that submitted has it: the Capacity Scheduler ends a container ``max_wait_before_kill`` after it
was selected, the Fair Scheduler after ``waitTimeBeforeKill``.

That a later answer lacks the container means nothing. The Capacity Scheduler names a container in
one answer only, and again when it selects it anew; the Fair Scheduler in each answer. A container
that is not needed any more is dropped without a word: the Capacity Scheduler forgets it after twice
the wait. So one that lives longer than that, and was not named again, counts as withdrawn. Where
the wait is not known, ten minutes.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional

from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.ids import ContainerId
from tony_core.hadoop.yarn.rm_master import Preempted
from tony_core.schedulers.container_pool import (
    PoolEvent,
    PreemptionRequested,
    PreemptionWithdrawn,
)

_CAPACITY = "yarn.resourcemanager.monitor.capacity.preemption"
_FAIR = "yarn.scheduler.fair.waitTimeBeforeKill"
_FAIR_DEFAULT_MS = 15_000
_HEARTBEAT_S = 1.0  # from a container's selection, or its end, to our next answer
UNKNOWN_WAIT_S = 600.0


class PreemptionTimes(NamedTuple):
    """How long containers have on this site; ``wait_s`` None: not known."""

    wait_s: Optional[float] = None
    interval_s: float = 3.0  # between two looks of the scheduler

    @property
    def left_s(self) -> Optional[float]:
        """What is left of the wait, at least, when a message arrives."""
        return None if self.wait_s is None else max(0.0, self.wait_s - _HEARTBEAT_S)

    @property
    def forgotten_s(self) -> float:
        """After so long without another message the container is not taken back any more."""
        if self.wait_s is None:
            return UNKNOWN_WAIT_S
        return 2 * self.wait_s + self.interval_s + 2 * _HEARTBEAT_S


def preemption_times(conf: SiteConfiguration) -> PreemptionTimes:
    """The times of a site, as far as the submitter's configuration has them."""
    if conf.text("yarn.resourcemanager.scheduler.class").endswith("FairScheduler"):
        return PreemptionTimes(conf.integer(_FAIR, _FAIR_DEFAULT_MS) / 1000)
    interval_s = conf.integer(f"{_CAPACITY}.monitoring_interval", 3000) / 1000
    wait = conf.text(f"{_CAPACITY}.max_wait_before_kill")
    if not wait:
        return PreemptionTimes(None, interval_s)
    return PreemptionTimes(conf.integer(f"{_CAPACITY}.max_wait_before_kill", 0) / 1000, interval_s)


class Preemptions:
    """The containers of one master that YARN asks back."""

    def __init__(self, times: PreemptionTimes) -> None:
        self._times = times
        self._asked: Dict[ContainerId, float] = {}  # when each was asked for
        self._named: Dict[ContainerId, float] = {}  # when each was named last

    def update(
        self, message: Preempted, is_held: Callable[[ContainerId], bool], now: float
    ) -> List[PoolEvent]:
        """The events that follow from an answer with this message."""
        if not (self._asked or message.certain or message.negotiable):
            return []  # nearly always
        wait_s = self._times.wait_s
        fresh = []
        for one in sorted({*message.certain, *message.negotiable}):
            if not is_held(one):
                continue
            self._named[one] = now
            since = self._asked.get(one)
            # Named once more after its time: selected anew, so its time begins again.
            if since is None or (wait_s is not None and now - since > wait_s):
                self._asked[one] = now
                fresh.append(str(one))
        withdrawn = []
        for one in sorted(self._asked):
            gone = not is_held(one)
            if gone or now - self._named[one] > self._times.forgotten_s:
                del self._asked[one], self._named[one]
                if not gone:
                    withdrawn.append(str(one))
        events: List[PoolEvent] = []
        if fresh:
            events.append(PreemptionRequested(tuple(fresh), self._times.left_s))
        if withdrawn:
            events.append(PreemptionWithdrawn(tuple(withdrawn)))
        return events

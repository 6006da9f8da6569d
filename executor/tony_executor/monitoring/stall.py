"""Whether a program stands still, pure: observations and reports with their times in, verdicts out.

Theory of operation
===================

Two rules, of which one counts at a time:

*steps*: a program that has reported a step moves when it reports another one, another progress, or
a saved checkpoint. What processors, GPUs and logs do does not matter: a deadlocked collective spins
at full load, and a loop without an end logs.

*quiet*: one that has reported no step (yet), or has reported all its progress (1.0), moves when
its logs change, or its processes use a hundredth of a core, or its GPUs are busy.

Time is what was *observed*: of a pause between two looks that is longer than planned (a frozen
container, a suspended machine) only the planned part counts, and a clock that is set back counts
nothing. While a process of the program is stopped by a signal the time stands; once that alone has
lasted too long it is reported as *suspended*, so that the master can name it to those who wait.

A verdict is given when it changes: :class:`Stall` once, then :class:`StallOver` once.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Union

from tony_core.protocol.messages import Reported, StallKind

IDLE_SHARE = 0.01  # of a core: below it processors do not move
LEAST_CPU_S = 0.05  # so much at once is a move, however short the time
BUSY_GPU_PERCENT = 1.0
LOOKS = 8  # in a timeout
SHORTEST_LOOK_S, LONGEST_LOOK_S = 0.25, 15.0


class Observation(NamedTuple):
    """What one look at the program's processes and logs found."""

    at: float  # monotonic
    cpu_s: float  # of all its processes since its start
    log_bytes: int
    is_stopped: bool = False  # some process of it, by SIGSTOP or a debugger
    gpu_percent: float = 0.0


class Stall(NamedTuple):
    """The program stands still."""

    kind: StallKind
    still_s: float
    step: Optional[int]
    cpu_percent: float  # of one core, since it stands still


class StallOver(NamedTuple):
    """The program moves again."""

    after_s: float


Verdict = Union[Stall, StallOver, None]


def look_interval(timeout_s: float) -> float:
    """How long to wait from one look to the next."""
    return min(LONGEST_LOOK_S, max(SHORTEST_LOOK_S, timeout_s / LOOKS))


class StallJudge:
    """Judges one program from its start on."""

    def __init__(self, timeout_s: float, now: float) -> None:
        self._timeout_s = timeout_s
        self._longest_pause = 2.0 * look_interval(timeout_s)
        self._last_at = now
        self._still_s = 0.0
        self._suspended_s = 0.0
        self._step: Optional[int] = None
        self._progress: Optional[float] = None
        self._saved: Optional[int] = None
        self._first: Optional[Observation] = None  # since it stands still
        self._last: Optional[Observation] = None
        self._logs: Optional[int] = None
        self.recent_percent = 0.0  # of one core, between the last two looks
        self.stall: Optional[Stall] = None
        self.moved_at = now

    @property
    def rule(self) -> StallKind:
        """Which rule counts now."""
        if self._step is not None and self._progress != 1.0:
            return StallKind.STEPS
        return StallKind.QUIET

    @property
    def log_bytes(self) -> int:
        """The size of the logs as it was judged last, with what we wrote since."""
        return self._logs or 0

    def report(self, reported: Reported, now: float) -> Verdict:
        """Take what the program reported."""
        new = (
            self._step if reported.step is None else reported.step,
            self._progress if reported.progress is None else reported.progress,
            self._saved if reported.saved is None else reported.saved,
        )
        if new == (self._step, self._progress, self._saved):
            return None
        self._step, self._progress, self._saved = new
        return self._move(now)

    def observe(self, seen: Observation) -> Verdict:
        """Take a look's result."""
        passed = min(max(0.0, seen.at - self._last_at), self._longest_pause)
        self._last_at = max(seen.at, self._last_at)
        if self._first is None:
            self._first = seen
        if self._last is not None:
            self.recent_percent = _cpu_percent(self._last, seen)
        self._last = seen
        logs, self._logs = self._logs, seen.log_bytes
        if seen.is_stopped:
            self._suspended_s += passed
        elif self._suspended_s:
            self._suspended_s = 0.0  # continued: it has its whole time again
            if self.stall is None or self.stall.kind is StallKind.SUSPENDED:
                return self._move(seen.at)
        else:
            self._still_s += passed
        has_new_logs = logs is not None and logs != seen.log_bytes
        if self.rule is StallKind.QUIET and (has_new_logs or self._computes(seen)):
            return self._move(seen.at)
        if self.stall is not None or self._still_s + self._suspended_s < self._timeout_s:
            return None
        kind = StallKind.SUSPENDED if seen.is_stopped else self.rule
        still_s = self._still_s + self._suspended_s
        self.stall = Stall(kind, still_s, self._step, _cpu_percent(self._first, seen))
        return self.stall

    def note_own_output(self, added: int) -> None:
        """Take how much we, or by our signal the program, wrote into the logs: that is no move."""
        if self._logs is not None:
            self._logs += added

    def still_for(self, now: float) -> float:
        """For how long it has stood still."""
        passed = min(max(0.0, now - self._last_at), self._longest_pause)
        return self._still_s + self._suspended_s + passed

    def _computes(self, seen: Observation) -> bool:
        assert self._first is not None
        used = seen.cpu_s - self._first.cpu_s
        # One that has ended takes its share with it; that is a move, too.
        if used < 0.0 or seen.gpu_percent >= BUSY_GPU_PERCENT:
            return True
        return used >= max(LEAST_CPU_S, IDLE_SHARE * (seen.at - self._first.at))

    def _move(self, now: float) -> Verdict:
        after = self._still_s + self._suspended_s
        self.moved_at = self._last_at = max(now, self._last_at)
        self._still_s = self._suspended_s = 0.0
        self._first = None
        before, self.stall = self.stall, None
        return StallOver(after) if before is not None else None


def _cpu_percent(first: Observation, last: Observation) -> float:
    passed, used = last.at - first.at, max(0.0, last.cpu_s - first.cpu_s)
    return round(100.0 * used / passed, 1) if passed > 0.0 else 0.0

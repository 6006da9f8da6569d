"""Observes one program while it runs: its usage, its reports and, where asked for, its stalls."""

from __future__ import annotations

import os
from typing import (
    TYPE_CHECKING,
    AbstractSet,
    Callable,
    Dict,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Union,
)

from tony_core.measures import GPU_PERCENT
from tony_core.protocol.messages import Measured, Reported, StacksDumped, Stalled, Start
from tony_core.protocol.reactor import Reactor
from tony_executor.events import Event, Observed
from tony_executor.monitoring.nvidia_smi import GpuMetrics, look_interval
from tony_executor.monitoring.telemetry import ReportFile, ResourceUsage, merge_reports

if TYPE_CHECKING:
    from tony_executor.monitoring.stall_watch import StallWatch

REPORTS_EVERY_S = 0.5
QUIET_REPORTS_EVERY_S = 1.5  # at most, while the program says nothing
QUIET_EARLY_S = 1.0  # ...or sooner, with the next heartbeat: there is one in any second
FIRST_SAMPLE_S = 1.0


class Surroundings(NamedTuple):
    """What an observer needs of the executor."""

    reactor: Reactor
    emit: Callable[[Event], None]
    spared: Callable[[], AbstractSet[int]]  # processes below us that are not the program's
    strange: Callable[[], AbstractSet[int]]  # these, and what its owner runs in a shell beside it
    gpus: GpuMetrics
    interval_s: Callable[[], float]
    log: Callable[[str], None]


class ProgramObserver:
    """The observer of one program, from its start until :meth:`close`."""

    def __init__(
        self,
        around: Surroundings,
        session: int,
        report_file: str,
        sending_interval_s: float = 0.0,
    ) -> None:
        self._around = around
        self._session = session
        self._measures_due = Due(sending_interval_s)
        self._reports_due = Due(sending_interval_s)
        self._unsent: Optional[Reported] = None
        self._began = around.reactor.now()
        self._usage = ResourceUsage(self._began)
        self._reports = ReportFile(report_file, session)
        self._stall_watch: Optional[StallWatch] = None
        self._sample_timer = around.reactor.call_later(FIRST_SAMPLE_S, self._sample)
        self._report_timer = around.reactor.call_later(REPORTS_EVERY_S, self._read_later)

    def watch_stalls(self, start: Start, logs: Mapping[str, str], env: Mapping[str, str]) -> None:
        """Watch for stalls as well, if the Start says so."""
        if start.stall_timeout_s is None:
            return
        from tony_executor.monitoring.stall_watch import StallWatch, WatchedProgram  # few jobs do

        around = self._around
        program = WatchedProgram(
            start.session, start.restart, start.stall_timeout_s, logs["stdout"], logs["stderr"], env
        )
        self._stall_watch = StallWatch(
            around.reactor, program, around.strange, self._read_reports,
            lambda: self._look_at_gpus(program.timeout_s).get(GPU_PERCENT, 0.0),
            self._stalled, around.log,
        )  # fmt: skip

    def dump_stacks(self, reason: str) -> None:
        """Look at its stacks, if it is watched for stalls."""
        if self._stall_watch is not None:
            self._stall_watch.dump_stacks(reason)

    @property
    def pids(self) -> Set[int]:
        """Processes of ours that look at the program."""
        return self._stall_watch.pids if self._stall_watch is not None else set()

    def reaped(self, pid: int, exit_code: int) -> bool:
        """Note the end of a child; returns whether it was one of those."""
        return self._stall_watch is not None and self._stall_watch.reaped(pid, exit_code)

    def end_stall_watch(self) -> None:
        """Watch for stalls no more: the program has ended, or is being ended."""
        if self._stall_watch is not None:
            self._stall_watch.close()
            self._stall_watch = None

    def read_rest(self) -> None:
        """Read the reports to their end: the file may hold more than is read at once."""
        while self._read_reports():
            pass
        self._send_reports(at_once=True)

    @property
    def has_noticed(self) -> bool:
        """Whether the program knows that containers are taken back."""
        return self._reports.has_noticed

    def total(self, now: float, largest_rss_mb: float) -> Dict[str, float]:
        """The usage over the program's whole run."""
        return self._usage.total(now, largest_rss_mb, self._around.spared())

    def close(self) -> None:
        """Stop: the program has ended."""
        self._sample_timer.cancel()
        self._report_timer.cancel()
        self.end_stall_watch()

    def _sample(self) -> None:
        around = self._around
        now, interval_s = around.reactor.now(), around.interval_s()
        values = self._usage.sample(now, around.spared())
        values.update(self._look_at_gpus())
        if self._measures_due.take(now):
            around.emit(Observed(now, Measured(self._session, values)))
        self._sample_timer = around.reactor.call_with_slack(
            interval_s, interval_s / 4, self._sample
        )

    def _look_at_gpus(self, stall_timeout_s: Optional[float] = None) -> Dict[str, float]:
        gpus, now = self._around.gpus, self._around.reactor.now()
        return gpus.sample(now, look_interval(now - self._began, stall_timeout_s))

    def _read_later(self) -> None:
        every, early = REPORTS_EVERY_S, 0.0
        if not self._read_reports():
            every, early = QUIET_REPORTS_EVERY_S, QUIET_EARLY_S
        self._report_timer = self._around.reactor.call_with_slack(every, early, self._read_later)

    def _read_reports(self) -> bool:
        """Take what the program has reported; returns whether there was anything."""
        report = self._reports.read_new()
        if report is not None:
            if self._stall_watch is not None:
                self._stall_watch.reported(report)
            self._unsent = merge_reports(self._unsent, report)
        self._send_reports()
        return report is not None

    def _send_reports(self, at_once: bool = False) -> None:
        """Pass on what is due; at once what a restart goes by, and the program's result."""
        unsent, now = self._unsent, self._around.reactor.now()
        if unsent is None:
            return
        at_once = at_once or unsent.saved is not None or bool(unsent.result)
        if self._reports_due.take(now) or at_once:
            self._unsent = None
            self._around.emit(Observed(now, unsent))

    def _stalled(self, message: Union[Stalled, StacksDumped]) -> None:
        self._send_reports(at_once=True)  # the last step comes before the stall
        self._around.emit(Observed(self._around.reactor.now(), message))


class Due:
    """Something that is sent once in an interval: at once the first time.

    The tasks of a gang start together, so the second time comes after a part of the interval that
    differs from task to task.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._at: Optional[float] = None

    def take(self, now: float) -> bool:
        """Whether it is due; if so, it has been sent."""
        if self._at is not None and now < self._at:
            return False
        part = os.getpid() % 1000 / 1000 if self._at is None else 1.0
        self._at = now + part * self._interval_s
        return True

"""Watches one program for a stall: looks, asks its processes for their stacks, reports.

The judgement is :class:`~tony_executor.monitoring.stall.StallJudge`'s. While steps come, a look
costs the reading of two file sizes; only when none has come since the last look are the processes
read. The stacks are asked for once in each stall, and when the master wants them for the stall of
another task; each time within :data:`LOOKING_S`.
"""

from __future__ import annotations

import os
from typing import AbstractSet, Callable, List, Mapping, NamedTuple, Optional, Set, Union

from tony_core.protocol.messages import Reported, StacksDumped, Stalled, StallKind
from tony_core.protocol.reactor import Reactor, Timer
from tony_executor import processes
from tony_executor.launch.environment import STACK_SIGNAL
from tony_executor.launch.spawn import CommandResult, CommandRun
from tony_executor.monitoring import stacks
from tony_executor.monitoring.diagnosis import size_of
from tony_executor.monitoring.stall import (
    Observation,
    StallJudge,
    StallOver,
    Verdict,
    look_interval,
)

LOOKING_S = 15.0  # for all stacks of a stall
PY_SPY_S = 5.0  # for one process
#: A program that computes changes its stack while py-spy reads it: one read in ten fails or is cut.
PY_SPY_TRIES = 4
SIGNAL_S = 0.75  # for faulthandler to have written
LONGEST_SIGNAL_S = 4.0  # ...on a busy machine
MOST_LOOKS = 20  # of one program: its log must not fill with stacks


class WatchedProgram(NamedTuple):
    """What the watch knows of the program."""

    session: int
    restart: int
    timeout_s: float
    stdout: str
    stderr: str
    environment: Mapping[str, str]


class StallWatch:
    """The watch over one program, until :meth:`close`.

    ``report`` gets a Stalled when the program stands still, another one when its stacks are known,
    and one without a kind when it moves again; and a StacksDumped for each :meth:`dump_stacks`.
    """

    def __init__(
        self,
        reactor: Reactor,
        program: WatchedProgram,
        spared: Callable[[], AbstractSet[int]],
        read_reports: Callable[[], object],
        gpu_percent: Callable[[], float],
        report: Callable[[Union[Stalled, StacksDumped]], None],
        log: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._program = program
        self._spared = spared
        self._read_reports = read_reports
        self._gpu_percent = gpu_percent
        self._report = report
        self._log = log
        self._judge = StallJudge(program.timeout_s, reactor.now())
        self._looked_at = reactor.now()
        self._looks = 0
        self._looking: Optional[StackLook] = None
        self._stalled: Optional[Stalled] = None  # as it was reported
        self._is_asked = False  # the master waits for the stacks
        self._timer = self._look_later()

    @property
    def pids(self) -> Set[int]:
        """The process of py-spy, if it runs."""
        return self._looking.pids if self._looking is not None else set()

    def reported(self, message: Reported) -> None:
        """Take what the program reported."""
        self._take(self._judge.report(message, self._reactor.now()))

    def reaped(self, pid: int, exit_code: int) -> bool:
        """Note the end of a child; returns whether it was py-spy."""
        return self._looking is not None and self._looking.reaped(pid, exit_code)

    def close(self) -> None:
        """Stop: the program has ended, or is being ended."""
        self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def dump_stacks(self, reason: str) -> None:
        """Look at the stacks now, and report what they show, whatever the judgement."""
        self._is_asked = True
        if self._looking is None:
            self._look_at_stacks(reason)

    def _look_later(self) -> Timer:
        pause = look_interval(self._program.timeout_s)
        return self._reactor.call_with_slack(pause, pause / 8, self._look)

    def _look(self) -> None:
        self._timer = self._look_later()
        self._read_reports()  # a step that is written is no stall
        now = self._reactor.now()
        before, self._looked_at = self._looked_at, now
        if self._judge.rule is StallKind.STEPS and self._judge.moved_at > before:
            return  # its time began anew with the step
        tree = processes.descendants(os.getpid(), self._spared())
        cpu_s = sum(each.cpu_s for each in tree)  # not what we reaped: nvidia-smi is among that
        is_stopped = any(each.state in "Tt" for each in tree)
        # While stacks are written, the logs do not count: whose output it is shows after that.
        logs = self._log_bytes() if self._looking is None else self._judge.log_bytes
        seen = Observation(now, cpu_s, logs, is_stopped, self._gpu_percent())
        self._take(self._judge.observe(seen))

    def _take(self, verdict: Verdict) -> None:
        if verdict is None:
            return
        program = self._program
        if isinstance(verdict, StallOver):
            self._stalled = None
            if self._looking is not None and not self._is_asked:
                self._looking.cancel()
                self._looking = None
            self._write(f"moves again after {verdict.after_s:.0f} s")
            self._report(Stalled(program.session, program.restart))
            return
        self._stalled = Stalled(
            program.session, program.restart, verdict.kind.value, round(verdict.still_s, 1),
            verdict.step, verdict.cpu_percent,
        )  # fmt: skip
        self._report(self._stalled)
        if verdict.kind is StallKind.SUSPENDED:
            self._write(f"suspended by a signal (SIGSTOP) for {verdict.still_s:.0f} s")
            return
        by_steps = verdict.kind is StallKind.STEPS
        what = "no step came" if by_steps else "it stands still"
        at = f" (the last was {verdict.step})" if by_steps else ""
        reason = f"{what} for {verdict.still_s:.0f} s{at}"
        if self._looking is None:
            self._look_at_stacks(reason)
        else:
            self._write(f"{reason}; its stacks are being written")

    def _look_at_stacks(self, reason: str) -> None:
        self._looks += 1
        if self._looks > MOST_LOOKS:
            self._looked(None)
            return
        self._write(f"{reason}: the stacks of its Python processes")
        tree = processes.descendants(os.getpid(), self._spared())
        self._looking = StackLook(
            self._reactor,
            [each for each in tree if each.state not in "Tt" and stacks.is_python(each.pid)],
            self._program.environment, self._program.stderr, self._write,
            self._judge.note_own_output, self._looked,
        )  # fmt: skip

    def _looked(self, summary: Optional[stacks.StackSummary]) -> None:
        self._looking = None
        frame = summary.frame if summary is not None else ""
        in_collective = summary.in_collective if summary is not None else None
        is_asked, self._is_asked = self._is_asked, False
        stalled = self._stalled
        if stalled is not None and stalled.kind != StallKind.SUSPENDED:
            still_s = round(self._judge.still_for(self._reactor.now()), 1)
            self._stalled = stalled._replace(
                looked=True, still_s=still_s, frame=frame, in_collective=in_collective
            )
            self._report(self._stalled)
        if is_asked:
            program, percent = self._program, self._judge.recent_percent
            self._report(
                StacksDumped(program.session, program.restart, percent, frame, in_collective)
            )

    def _log_bytes(self) -> int:
        return size_of(self._program.stdout) + size_of(self._program.stderr)

    def _write(self, text: str) -> None:
        """A line where users look: in the task's stderr; the rest of its lines as they are."""
        first, newline, rest = text.partition("\n")
        self._log(first)
        line = f"tony: {first}{newline}{rest}\n".encode("utf-8", "replace")
        try:
            with open(self._program.stderr, "ab", 0) as file:
                self._judge.note_own_output(file.write(line) or 0)
        except OSError:
            pass  # a full disk


class StackLook:
    """Asks processes for their stacks, one after the other; ``done`` is called once."""

    def __init__(
        self,
        reactor: Reactor,
        found: List[processes.Process],
        environment: Mapping[str, str],
        stderr: str,
        write: Callable[[str], None],
        note_output: Callable[[int], None],
        done: Callable[[Optional[stacks.StackSummary]], None],
    ) -> None:
        self._reactor = reactor
        self._left = found[: stacks.MOST_PROCESSES]
        self._environment = dict(environment)
        self._stderr = stderr
        self._write = write
        self._note_output = note_output
        self._done: Optional[Callable[[Optional[stacks.StackSummary]], None]] = done
        self._found: List[Optional[stacks.StackSummary]] = []
        self._run: Optional[CommandRun] = None
        self._until = reactor.now() + LOOKING_S
        if len(found) > len(self._left):
            write(f"{len(found)} Python processes; the stacks of {len(self._left)} follow")
        elif not found:
            write("none of its processes is a Python that runs")
        self._timer = reactor.call_later(0, self._next)

    @property
    def pids(self) -> Set[int]:
        """The process of py-spy, if it runs."""
        pid = self._run.pid if self._run is not None else None
        return {pid} if pid is not None else set()

    def reaped(self, pid: int, exit_code: int) -> bool:
        """Note the end of a child; returns whether it was py-spy."""
        return self._run is not None and self._run.reaped(pid, exit_code)

    def cancel(self) -> None:
        """Stop; ``done`` is not called any more."""
        self._done = None
        self._timer.cancel()
        if self._run is not None:
            self._run.cancel()

    def _next(self) -> None:
        if not self._left or self._reactor.now() >= self._until:
            done, self._done = self._done, None
            if done is not None:
                done(stacks.choose_summary(self._found))
            return
        process = self._left.pop(0)
        program = stacks.find_py_spy(process.pid, self._environment, os.environ)
        if program is None:
            self._signal(process, "there is no py-spy in the job's environment or on the PATH")
        else:
            self._run_py_spy(process, program, PY_SPY_TRIES, self._reactor.now() + PY_SPY_S)

    def _run_py_spy(
        self, process: processes.Process, program: str, tries: int, until: float
    ) -> None:
        if not self._is_there(process):
            return

        def answered(result: CommandResult) -> None:
            if not self._is_there(process):
                return  # another one may have got its pid meanwhile
            summary = None if result.error else stacks.summarize(result.output)
            is_whole = summary is not None and summary.is_whole
            if not is_whole and tries > 1 and self._reactor.now() < until:
                self._run_py_spy(process, program, tries - 1, until)
            elif summary is None:
                # Its output begins with the program's command line, which may hold secrets.
                self._signal(process, result.error.split(": ", 1)[0] or "py-spy gave no stack")
            else:
                self._found.append(summary)
                text = stacks.redact(result.output)
                self._write(f"process {process.pid}, by py-spy\n{text}")
                self._next()

        self._run = CommandRun(
            self._reactor,
            stacks.py_spy_command(program, process.pid),
            self._environment,
            max(0.1, until - self._reactor.now()),
            answered,
            os.devnull,
        )

    def _is_there(self, process: processes.Process) -> bool:
        """Whether the process still runs; goes on to the next one otherwise."""
        if processes.find_again(process) is not None:
            return True
        self._write(f"process {process.pid} has ended")
        self._next()
        return False

    def _signal(self, process: processes.Process, refusal: str) -> None:
        """Have the process write its stacks itself, if it has a handler for that."""
        number = STACK_SIGNAL
        if not self._is_there(process):
            return
        if not processes.catches_signal(process.pid, number):
            self._write(
                f"process {process.pid}: no stacks: {refusal}, and it has no handler for signal"
                f" {number} (import tony sets one; docs/hangs.md)"
            )
            self._next()
            return
        self._write(f"process {process.pid}, by faulthandler")
        since = size_of(self._stderr)
        processes.send([process], number)
        until = self._reactor.now() + LONGEST_SIGNAL_S
        self._timer = self._reactor.call_later(SIGNAL_S, self._read_written, since, until)

    def _read_written(self, since: int, until: float) -> None:
        try:
            with open(self._stderr, "rb") as file:
                file.seek(since)
                text = file.read(stacks.MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            text = ""
        if not text and self._reactor.now() < until:
            self._timer = self._reactor.call_later(SIGNAL_S, self._read_written, since, until)
            return
        self._note_output(max(0, size_of(self._stderr) - since))
        self._found.append(stacks.summarize(text))
        self._next()

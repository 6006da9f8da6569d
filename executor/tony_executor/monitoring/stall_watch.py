"""Watches one program for a stall: looks, asks its processes for their stacks, reports.

The judgement is :class:`~tony_executor.monitoring.stall.StallJudge`'s. While steps come, a look
costs the reading of two file sizes; only when none has come since the last look are the processes
read. The stacks are asked for once in each stall, and within :data:`LOOKING_S`.
"""

from __future__ import annotations

import os
from typing import AbstractSet, Callable, List, Mapping, NamedTuple, Optional, Set

from tony_core.protocol.messages import Reported, Stalled
from tony_core.protocol.reactor import Reactor, Timer
from tony_executor import processes
from tony_executor.launch.environment import STACK_SIGNAL
from tony_executor.launch.spawn import CommandResult, CommandRun
from tony_executor.monitoring import stacks
from tony_executor.monitoring.diagnosis import size_of
from tony_executor.monitoring.stall import (
    STEPS,
    SUSPENDED,
    Moves,
    Observation,
    StallJudge,
    Verdict,
    look_interval,
)

LOOKING_S = 15.0  # for all stacks of a stall
PY_SPY_S = 5.0  # for one process
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
    and one without a kind when it moves again.
    """

    def __init__(
        self,
        reactor: Reactor,
        program: WatchedProgram,
        spared: Callable[[], AbstractSet[int]],
        read_reports: Callable[[], object],
        gpu_percent: Callable[[], float],
        report: Callable[[Stalled], None],
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
        self._stop_looking()

    def _look_later(self) -> Timer:
        pause = look_interval(self._program.timeout_s)
        return self._reactor.call_with_slack(pause, pause / 8, self._look)

    def _look(self) -> None:
        self._timer = self._look_later()
        self._read_reports()  # a step that is written is no stall
        now = self._reactor.now()
        before, self._looked_at = self._looked_at, now
        if self._judge.rule == STEPS and self._judge.moved_at > before:
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
        session, restart = self._program.session, self._program.restart
        if isinstance(verdict, Moves):
            self._stop_looking()
            self._write(f"moves again after {verdict.after_s:.0f} s")
            self._report(Stalled(session, restart))
            return
        found = Stalled(
            session, restart, verdict.kind, round(verdict.still_s, 1), verdict.step,
            verdict.cpu_percent,
        )  # fmt: skip
        self._report(found)
        if verdict.kind == SUSPENDED:
            self._write(f"suspended by a signal (SIGSTOP) for {verdict.still_s:.0f} s")
            return
        self._looks += 1
        if self._looks > MOST_LOOKS:
            self._report(found._replace(looked=True))
            return
        what = "no step came" if verdict.kind == STEPS else "it stands still"
        at = f" (the last was {verdict.step})" if verdict.kind == STEPS else ""
        self._write(f"{what} for {verdict.still_s:.0f} s{at}: the stacks of its Python processes")

        def looked(place: Optional[stacks.Place]) -> None:
            self._looking = None
            if self._judge.still is None:
                return
            still_s = round(self._judge.still_for(self._reactor.now()), 1)
            known = found._replace(looked=True, still_s=still_s)
            if place is not None:
                known = known._replace(frame=place.frame, in_collective=place.in_collective)
            self._report(known)

        tree = processes.descendants(os.getpid(), self._spared())
        pids = [each.pid for each in tree if each.state not in "Tt" and stacks.is_python(each.pid)]
        self._looking = StackLook(
            self._reactor, pids, self._program.environment, self._program.stderr, self._write,
            self._judge.note_own_output, looked,
        )  # fmt: skip

    def _stop_looking(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

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
        pids: List[int],
        environment: Mapping[str, str],
        stderr: str,
        write: Callable[[str], None],
        note_output: Callable[[int], None],
        done: Callable[[Optional[stacks.Place]], None],
    ) -> None:
        self._reactor = reactor
        self._left = pids[: stacks.MOST_PROCESSES]
        self._environment = dict(environment)
        self._stderr = stderr
        self._write = write
        self._note_output = note_output
        self._done: Optional[Callable[[Optional[stacks.Place]], None]] = done
        self._places: List[Optional[stacks.Place]] = []
        self._run: Optional[CommandRun] = None
        self._until = reactor.now() + LOOKING_S
        if len(pids) > len(self._left):
            write(f"{len(pids)} Python processes; the stacks of {len(self._left)} follow")
        elif not pids:
            write("none of its processes is Python")
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
                done(stacks.choose_place(self._places))
            return
        pid = self._left.pop(0)
        program = stacks.find_py_spy(pid, self._environment, os.environ)
        if program is None:
            self._signal(pid, "there is no py-spy in the job's environment or on the PATH")
            return

        def answered(result: CommandResult) -> None:
            place = stacks.find_place(result.output)
            if result.error or place is None:
                # Its output begins with the program's command line, which may hold secrets.
                self._signal(pid, result.error.split(": ", 1)[0] or "py-spy gave no stack")
                return
            self._places.append(place)
            self._write(f"process {pid}, by py-spy\n{stacks.shown(result.output)}")
            self._next()

        self._run = CommandRun(
            self._reactor,
            stacks.py_spy_command(program, pid),
            self._environment,
            PY_SPY_S,
            answered,
            os.devnull,
        )

    def _signal(self, pid: int, refusal: str) -> None:
        """Have the process write its stacks itself, if it has a handler for that."""
        number = STACK_SIGNAL
        process = processes.read_process(pid)
        if process is None or process.dead or not processes.catches_signal(pid, number):
            self._write(
                f"process {pid}: no stacks: {refusal}, and it has no handler for signal {number}"
                " (import tony sets one; docs/hangs.md)"
            )
            self._next()
            return
        self._write(f"process {pid}, by faulthandler")
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
        self._places.append(stacks.find_place(text))
        self._next()

"""Whose fault it was: the root cause among the failures of a session, and its words.

One death drags its peers down within milliseconds, and the infrastructure's word comes
last. So the session settles first, and then the causes are ranked: what the
infrastructure or the memory watch said, then a SIGKILL that TonY did not send and a port that was
taken (peers that cannot connect may fail before), then the earliest. An abort that follows another
task's death (gloo, JAX) is never the cause.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from tony_core.master.session.budgets import Fault, Quick
from tony_core.master.session.records import Failure
from tony_core.schedulers.port import Cause

SIGABRT, SIGKILL = 6, 9
#: Hangup, interrupt, kill, terminate: sent by another process, and no crash of the program.
_SENT = (1, 2, SIGKILL, 15)
_LAST_SIGNAL = 64
QUICK_S = 30.0
PORT_TAKEN = "address-in-use"

#: What the scheduler said of a container's end: whose fault, and a word for a person.
CONTAINER_CAUSES: Mapping[Cause, Tuple[Fault, str]] = {
    Cause.EXITED: (Fault.SYSTEM, "its executor ended without a result"),
    Cause.RELEASED: (Fault.SYSTEM, "its container was released"),
    Cause.MEMORY: (Fault.USER, "it went over its memory limit"),
    Cause.PREEMPTED: (Fault.SYSTEM, "its container was preempted"),
    Cause.LOST: (Fault.SYSTEM, "its node was lost"),
    Cause.DISKS: (Fault.SYSTEM, "its node's disks failed"),
    Cause.KILLED: (Fault.SYSTEM, "its container was killed from outside"),
    Cause.LAUNCH: (Fault.SYSTEM, "its container could not be started"),
    Cause.FILES: (Fault.SYSTEM, "its container could not be started"),
    Cause.UNKNOWN: (Fault.SYSTEM, "its container ended for an unknown cause"),
}

#: What an executor said of its program's end.
PROGRAM_CAUSES: Mapping[str, Fault] = {
    "exited": Fault.USER,
    "stopped": Fault.SYSTEM,
    "execution-timeout": Fault.USER,
    "registry-timeout": Fault.SYSTEM,
    "not-found": Fault.USER,
    "not-executable": Fault.USER,
    "environment": Fault.USER,
    "localisation": Fault.SYSTEM,
    PORT_TAKEN: Fault.SYSTEM,
    "port-range-full": Fault.SYSTEM,  # others may give ports back; too small is refused before
    "disk-full": Fault.SYSTEM,
    "gpus": Fault.SYSTEM,  # fewer than the scheduler said, or none that works
    "aborted": Fault.USER,  # the program asked its framework to end all ranks
    "dependency-timeout": Fault.USER,
    # what the master itself says
    "silent": Fault.SYSTEM,
    "registration-timeout": Fault.SYSTEM,
    "start-timeout": Fault.SYSTEM,
    "not-taken-over": Fault.SYSTEM,
    "not-clean": Fault.SYSTEM,
}

#: Another program in the same container would fare no better.
NODE_CAUSES = frozenset(("gpus",))

#: No container anywhere would fare better.
HOPELESS = (Cause.FILES,)

_FIRST = (Cause.LOST, Cause.PREEMPTED, Cause.MEMORY, Cause.DISKS, Cause.FILES)


def fault_of(failure: Failure) -> Fault:
    """Which budget pays."""
    if failure.container_cause is not None:
        return CONTAINER_CAUSES[failure.container_cause][0]
    return PROGRAM_CAUSES.get(failure.cause, Fault.USER)


def _rank(failure: Failure) -> int:
    if failure.container_cause in _FIRST:
        return 0
    if failure.signal == SIGKILL or failure.exit_code == 128 + SIGKILL:
        return 1
    if failure.cause == PORT_TAKEN:
        return 1
    if failure.signal == SIGABRT:
        return 3
    return 2


def root_cause(failures: Sequence[Failure]) -> Failure:
    """The one that caused the others; the earliest of the best rank."""
    return min(failures, key=lambda failure: (_rank(failure), failure.at))


def is_telling(failure: Failure) -> bool:
    """Whether the same failure once more means that a third time would be no different.

    A signal from outside says nothing about the program, and so does a crash without a last line.
    """
    if failure.container_cause is not None or failure.cause != "exited":
        return True
    number = failure.signal or failure.exit_code - 128  # as a shell passes it on
    if not 0 < number <= _LAST_SIGNAL:
        return True
    return number not in _SENT and bool(failure.stderr_tail)


def quick(failure: Failure) -> Optional[Quick]:
    """A failure so soon after its start that it may be compared with the next."""
    if failure.ran_s is None or failure.ran_s > QUICK_S or not is_telling(failure):
        return None
    last = failure.stderr_tail[-1] if failure.stderr_tail else ""
    return (failure.role, failure.exit_code, last)


def how_it_ended(failure: Failure) -> str:
    """Half a line for a person: exit code or signal or cause, and after how long."""
    after = f" after {failure.ran_s:.1f} s" if failure.ran_s is not None else ""
    if failure.container_cause is not None:
        how = CONTAINER_CAUSES[failure.container_cause][1]
    elif failure.signal:
        how = f"signal {failure.signal} (exit code {failure.exit_code})"
    elif failure.cause in ("exited", "aborted"):
        how = f"exit code {failure.exit_code}"
    else:
        how = failure.cause
    return f"{how}{after}: {failure.message}" if failure.message else f"{how}{after}"


def describe(failure: Failure) -> str:
    """One line for a person: which task, where, how it ended."""
    where = f" on {failure.node}" if failure.node else ""
    plain = failure.container_cause is None and failure.cause in ("exited", "aborted")
    joint = " failed with " if plain else " failed: "
    return f"{failure.task}{where}{joint}{how_it_ended(failure)}"


def diagnostics(cause: Failure, others: Sequence[str], why_end: str) -> str:
    """What the job's end says: the cause, its last stderr lines, the peers, why no more tries."""
    lines: List[str] = [describe(cause)]
    if cause.stderr_tail:
        lines.append("last lines of its stderr:")
        lines.extend(f"  {line}" for line in cause.stderr_tail)
    if others:
        lines.append("ended with it: " + ", ".join(others))
    if why_end:
        lines.append(why_end)
    return "\n".join(lines)


def as_fields(cause: Failure) -> Dict[str, object]:
    """The root cause as data, for the page, history and ``--json``."""
    return {
        "task": cause.task,
        "role": cause.role,
        "node": cause.node,
        "exit_code": cause.exit_code,
        "signal": cause.signal,
        "cause": cause.container_cause.value if cause.container_cause else cause.cause,
        "fault": fault_of(cause).value,
        "message": cause.message,
        "stderr_tail": list(cause.stderr_tail),
        "ran_s": cause.ran_s,
    }

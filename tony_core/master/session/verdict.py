"""Whose fault it was: the root cause among the failures of a session, and its words.

One death drags its peers down within milliseconds, and the infrastructure's word comes
last. So the session settles first, and then the causes are ranked: what the
infrastructure or the memory watch said, then a SIGKILL that TonY did not send, a port that was
taken and a stall (peers that cannot connect may fail before), then the earliest. An abort that
follows another task's death (gloo, JAX) is never the cause.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Sequence

from tony_core.exit_causes import (
    MEANINGS,
    NO_RESULT,
    ExitCause,
    Fault,
    Meaning,
    exit_code_of,
    parse_cause,
    signal_in,
)
from tony_core.job.spec import StallAction
from tony_core.master.session.budgets import FailureSignature
from tony_core.master.session.records import Failure

SIGABRT, SIGKILL = 6, 9
#: Hangup, interrupt, kill, terminate: sent by another process, and no crash of the program.
_SENT = (1, 2, SIGKILL, 15)
EARLY_FAILURE_S = 30.0
#: Ends that the exit code describes.
_WITH_EXIT_CODE = (ExitCause.EXITED, ExitCause.ABORTED)
PORT_TAKEN = ExitCause.ADDRESS_IN_USE

#: Ends of programs after which another in the same container would fare no better.
UNUSABLE_CONTAINER_CAUSES = frozenset((ExitCause.GPUS,))

#: After these no container anywhere would fare better: why there is no restart.
NO_RETRY_CAUSES: Mapping[Optional[ExitCause], str] = {
    ExitCause.FILES: "no node can localize its files",
}

_FIRST = (ExitCause.LOST, ExitCause.PREEMPTED, ExitCause.MEMORY, ExitCause.DISKS, ExitCause.FILES)


def fault_of(failure: Failure) -> Fault:
    """Return the party at fault, whose budget pays."""
    return _meaning(failure).fault


def why_no_retry(failure: Failure, stall_action: StallAction) -> str:
    """Why another container would fail in the same way, or must not try; empty otherwise."""
    if failure.cause == ExitCause.STALLED and stall_action is StallAction.FAIL:
        return "tony.task.stall-action=fail"
    return NO_RETRY_CAUSES.get(failure.container_cause, "")


def _meaning(failure: Failure) -> Meaning:
    if failure.container_cause is ExitCause.EXITED:
        return NO_RESULT
    return MEANINGS[failure.container_cause or parse_cause(failure.cause)]


def _rank(failure: Failure) -> int:
    if failure.container_cause in _FIRST:
        return 0
    if failure.signal == SIGKILL or failure.exit_code == exit_code_of(SIGKILL):
        return 1
    if failure.cause in (PORT_TAKEN, ExitCause.STALLED):
        return 1
    if failure.signal == SIGABRT:
        return 3
    return 2


def root_cause(failures: Sequence[Failure]) -> Failure:
    """Return the failure that caused the others: the earliest of the best rank."""
    return min(failures, key=lambda failure: (_rank(failure), failure.at))


def is_comparable(failure: Failure) -> bool:
    """Whether the same failure once more means that a third time would be no different.

    A signal from outside says nothing about the program, and so does a crash without a last line.
    """
    if failure.container_cause is not None or failure.cause != ExitCause.EXITED:
        return True
    number = failure.signal or signal_in(failure.exit_code)
    if not number:
        return True
    return number not in _SENT and bool(failure.stderr_tail)


def signature_of(failure: Failure) -> Optional[FailureSignature]:
    """A failure so soon after its start that it may be compared with the next."""
    if failure.ran_s is None or failure.ran_s > EARLY_FAILURE_S or not is_comparable(failure):
        return None
    last = failure.stderr_tail[-1] if failure.stderr_tail else ""
    return (failure.role, failure.exit_code, last)


def describe_end(failure: Failure) -> str:
    """Half a line for a person: exit code or signal or cause, and after how long."""
    after = f" after {failure.ran_s:.1f} s" if failure.ran_s is not None else ""
    if failure.container_cause is not None:
        how = _meaning(failure).words
    elif failure.cause not in _WITH_EXIT_CODE:
        how = failure.cause
    elif failure.signal:
        how = f"signal {failure.signal} (exit code {failure.exit_code})"
    else:
        how = f"exit code {failure.exit_code}"
    return f"{how}{after}: {failure.message}" if failure.message else f"{how}{after}"


def describe(failure: Failure) -> str:
    """One line for a person: which task, where, how it ended."""
    where = f" on {failure.node}" if failure.node else ""
    plain = failure.container_cause is None and failure.cause in _WITH_EXIT_CODE
    joint = " failed with " if plain else " failed: "
    return f"{failure.task}{where}{joint}{describe_end(failure)}"


def diagnostics(cause: Failure, others: Sequence[str], why_end: str) -> str:
    """Return the diagnostics of the end: cause, last lines of stderr, peers, why no restart."""
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

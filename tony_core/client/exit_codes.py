"""How a command ends, as a number: the one table.

An application killed by this very command says so by the signal that made it do so (130,
143, 129); one that somebody else killed says 137.
"""

from __future__ import annotations

from enum import IntEnum

from tony_core.exit_causes import exit_code_of
from tony_core.schedulers.port import AppState


class ExitCode(IntEnum):
    """What the caller of ``tony`` may rely on."""

    SUCCEEDED = 0
    FAILED = 1
    BAD_JOB = 2  # a bad job, or a bad command line
    REFUSED = 3  # the scheduler could not be reached, or refused
    TIMED_OUT = 4
    INTERNAL = 70  # our own fault
    HANGUP = 129  # the terminal was closed
    INTERRUPTED = 130  # Ctrl-C
    KILLED = 137  # by somebody else
    BROKEN_PIPE = 141  # whoever read our output went away
    TERMINATED = 143


_OF_STATE = {
    AppState.SUCCEEDED: ExitCode.SUCCEEDED,
    AppState.FAILED: ExitCode.FAILED,
    AppState.TIMED_OUT: ExitCode.TIMED_OUT,
    AppState.KILLED: ExitCode.KILLED,
}


def of_state(state: AppState) -> int:
    """The exit code of an ended application; KeyError when it has not ended."""
    return int(_OF_STATE[state])


def of_signal(number: int) -> int:
    """The exit code of a command that a signal ended, as a shell says it."""
    return exit_code_of(number)

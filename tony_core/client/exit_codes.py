"""The exit codes of ``tony``."""

from __future__ import annotations

from enum import IntEnum

from tony_core.schedulers.port import AppState


class ExitCode(IntEnum):
    """The exit codes that callers of ``tony`` may rely on.

    A command that killed its application because of a signal ends with that signal's code (130, 143
    or 129); where another client killed it, the code is 137.
    """

    SUCCEEDED = 0
    FAILED = 1
    BAD_JOB = 2  # a bad job, or a bad command line
    REFUSED = 3  # the scheduler could not be reached, or refused
    TIMED_OUT = 4
    INTERNAL = 70  # a fault in tony itself
    HANGUP = 129  # the terminal was closed
    INTERRUPTED = 130  # Ctrl-C
    KILLED = 137  # by another client
    BROKEN_PIPE = 141  # the reader of the output went away
    TERMINATED = 143


_OF_STATE = {
    AppState.SUCCEEDED: ExitCode.SUCCEEDED,
    AppState.FAILED: ExitCode.FAILED,
    AppState.TIMED_OUT: ExitCode.TIMED_OUT,
    AppState.KILLED: ExitCode.KILLED,
}


def exit_code_of_state(state: AppState) -> int:
    """The exit code of an ended application; KeyError when it has not ended."""
    return int(_OF_STATE[state])

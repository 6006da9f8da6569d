"""Why a program or a container ended: every cause, whose fault it is, and its words.

An executor reports the end of its program, a scheduler the end of a container, and the master
judges some ends itself. All of them name the cause by an :class:`ExitCause`, whose value is what
stands in messages, journals, histories and ``--json``. A cause that this version does not know is
:attr:`ExitCause.UNKNOWN`: it stays unknown, and its reader warns.

Exit codes follow the shell: a process that a signal ended has 128 + the signal's number. Only
this module computes that.

Python 3.8.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import Mapping, NamedTuple, Tuple

#: How the kernel names the process that keeps an owner's shell: what is below it was typed, and
#: no message about the end of a container repeats its words.
SHELL_KEEPER = "tony-shell"

_LAST_SIGNAL = 64


class Fault(str, Enum):
    """Whose failure it was, and so which retry budget pays for it."""

    USER = "user"
    SYSTEM = "system"


class ExitCause(str, Enum):
    """Why a program or its container ended."""

    # either of them
    EXITED = "exited"  # by itself, with an exit code

    # a program, by its executor
    STOPPED = "stopped"  # by us
    EXECUTION_TIMEOUT = "execution-timeout"
    REGISTRY_TIMEOUT = "registry-timeout"
    NOT_FOUND = "not-found"
    NOT_EXECUTABLE = "not-executable"
    ADDRESS_IN_USE = "address-in-use"
    PORT_RANGE_FULL = "port-range-full"
    ENVIRONMENT = "environment"
    DISK_FULL = "disk-full"
    LOCALISATION = "localisation"
    GPUS = "gpus"  # fewer than asked for, or none that works: the node is to be avoided

    # a program, by the master
    ABORTED = "aborted"  # the program asked its framework to end all ranks
    DEPENDENCY_TIMEOUT = "dependency-timeout"
    SILENT = "silent"
    REGISTRATION_TIMEOUT = "registration-timeout"
    START_TIMEOUT = "start-timeout"
    NOT_TAKEN_OVER = "not-taken-over"
    NOT_CLEAN = "not-clean"
    STALLED = "stalled"  # no step came any more (tony.task.stall-timeout)

    # the job, by the master
    TOKENS_EXPIRING = "tokens-expiring"  # its delegation tokens end for good

    # a container, by its scheduler
    RELEASED = "released"  # the master stopped or released it
    MEMORY = "memory"  # over its memory limit
    PREEMPTED = "preempted"  # or by the master, of a program that was warned and exited
    LOST = "lost"  # its node went away
    DISKS = "disks"  # the node's disks failed
    KILLED = "killed"  # by the scheduler or an administrator
    LAUNCH = "launch"  # it never started: localisation, image, token
    FILES = "files"  # no other would start: what was staged is gone, changed, or not readable

    UNKNOWN = "unknown"

    @property
    def fault(self) -> Fault:
        """Whose failure it is."""
        return MEANINGS[self].fault

    @property
    def words(self) -> str:
        """The cause in a sentence about the task."""
        return MEANINGS[self].words or str(self.value)

    def __str__(self) -> str:
        return str(self.value)


class Meaning(NamedTuple):
    """What follows from a cause; without words its value says enough."""

    fault: Fault
    words: str = ""


MEANINGS: Mapping[ExitCause, Meaning] = {
    ExitCause.EXITED: Meaning(Fault.USER),
    ExitCause.STOPPED: Meaning(Fault.SYSTEM),
    ExitCause.EXECUTION_TIMEOUT: Meaning(Fault.USER),
    ExitCause.REGISTRY_TIMEOUT: Meaning(Fault.SYSTEM),
    ExitCause.NOT_FOUND: Meaning(Fault.USER),
    ExitCause.NOT_EXECUTABLE: Meaning(Fault.USER),
    ExitCause.ADDRESS_IN_USE: Meaning(Fault.SYSTEM),
    # Others may give ports back; a range that is too small is refused before.
    ExitCause.PORT_RANGE_FULL: Meaning(Fault.SYSTEM),
    ExitCause.ENVIRONMENT: Meaning(Fault.USER),
    ExitCause.DISK_FULL: Meaning(Fault.SYSTEM),
    ExitCause.LOCALISATION: Meaning(Fault.SYSTEM),
    ExitCause.GPUS: Meaning(Fault.SYSTEM),
    ExitCause.ABORTED: Meaning(Fault.USER),
    ExitCause.DEPENDENCY_TIMEOUT: Meaning(Fault.USER),
    ExitCause.SILENT: Meaning(Fault.SYSTEM),
    ExitCause.REGISTRATION_TIMEOUT: Meaning(Fault.SYSTEM),
    ExitCause.START_TIMEOUT: Meaning(Fault.SYSTEM),
    ExitCause.NOT_TAKEN_OVER: Meaning(Fault.SYSTEM),
    ExitCause.NOT_CLEAN: Meaning(Fault.SYSTEM),
    ExitCause.STALLED: Meaning(Fault.USER),
    ExitCause.TOKENS_EXPIRING: Meaning(Fault.USER),
    ExitCause.RELEASED: Meaning(Fault.SYSTEM, "its container was released"),
    ExitCause.MEMORY: Meaning(Fault.USER, "it went over its memory limit"),
    ExitCause.PREEMPTED: Meaning(Fault.SYSTEM, "its container was preempted"),
    ExitCause.LOST: Meaning(Fault.SYSTEM, "its node was lost"),
    ExitCause.DISKS: Meaning(Fault.SYSTEM, "its node's disks failed"),
    ExitCause.KILLED: Meaning(Fault.SYSTEM, "its container was killed from outside"),
    ExitCause.LAUNCH: Meaning(Fault.SYSTEM, "its container could not be started"),
    ExitCause.FILES: Meaning(Fault.SYSTEM, "its container could not be started"),
    ExitCause.UNKNOWN: Meaning(Fault.SYSTEM, "it ended for an unknown cause"),
}

#: The causes that a scheduler reports.
CONTAINER_CAUSES = (
    ExitCause.EXITED,
    ExitCause.RELEASED,
    ExitCause.MEMORY,
    ExitCause.PREEMPTED,
    ExitCause.LOST,
    ExitCause.DISKS,
    ExitCause.KILLED,
    ExitCause.LAUNCH,
    ExitCause.FILES,
    ExitCause.UNKNOWN,
)

#: Of a container that exited by itself, before its executor reported the end of its program.
NO_RESULT = Meaning(Fault.SYSTEM, "its executor ended without a result")


def parse_cause(text: str) -> ExitCause:
    """The cause of that value; UNKNOWN for a value that this version does not know."""
    try:
        return ExitCause(text)
    except ValueError:
        return ExitCause.UNKNOWN


def exit_code_of(signal: int) -> int:
    """The exit code of a process that this signal ended."""
    return 128 + signal


def signal_in(exit_code: int) -> int:
    """The signal that an exit code stands for; 0 if for none."""
    number = exit_code - 128
    return number if 0 < number <= _LAST_SIGNAL else 0


def decode_status(status: int) -> Tuple[int, int]:
    """(exit code, signal or 0) of a wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return exit_code_of(number), number
    return os.WEXITSTATUS(status), 0

"""How a container ended: YARN's exit statuses mapped once to the port's causes. Pure."""

from __future__ import annotations

import re
import signal
from typing import List, Mapping, Tuple

from tony_core.exit_causes import ExitCause, exit_code_of
from tony_core.schedulers.yarn.diagnostics import (
    NEVER_STARTED,
    explain_localization_error,
    is_stack_trace,
)

_CAUSES: Mapping[int, Tuple[ExitCause, str]] = {
    NEVER_STARTED: (ExitCause.LAUNCH, "the node could not localize its files"),
    -1: (ExitCause.LAUNCH, "the node could not start it"),
    -100: (ExitCause.LOST, "it was lost with its node, or never started in time"),
    -101: (ExitCause.DISKS, "the node's disks failed"),
    -102: (ExitCause.PREEMPTED, "the scheduler took it back for another application"),
    -103: (ExitCause.MEMORY, "over its limit of virtual memory"),
    -104: (ExitCause.MEMORY, "over its memory limit"),
    -105: (ExitCause.RELEASED, "stopped by the master"),
    -106: (ExitCause.KILLED, "killed by the ResourceManager"),
    -107: (ExitCause.KILLED, "ended after its application"),
    -108: (ExitCause.PREEMPTED, "the node made room for containers with a guarantee"),
    -109: (ExitCause.KILLED, "it wrote more logs than the site allows"),
}

_NOT_FOUND, _KILLED = 127, exit_code_of(signal.SIGKILL)
"""The exit codes of such ends, as on every scheduler."""


def cause_of(status: int, end_requested: bool) -> Tuple[ExitCause, str]:
    """The cause of an end, and its words; ``end_requested`` if it was stopped or released."""
    if end_requested and status not in (-101, -102, -103, -104):
        return ExitCause.RELEASED, "stopped by the master"
    if status >= 0:
        return ExitCause.EXITED, ""
    return _CAUSES.get(status, (ExitCause.UNKNOWN, f"YARN's exit status {status}"))


def describe_exit(status: int, end_requested: bool, diagnostics: str) -> Tuple[int, ExitCause, str]:
    """Exit code, cause and explanation of a container's end."""
    cause, word = cause_of(status, end_requested)
    localization = explain_localization_error(diagnostics) if status == NEVER_STARTED else None
    if localization and cause is ExitCause.LAUNCH:
        cause = ExitCause.FILES
    words = localization or clean_diagnostics(diagnostics)
    if word and word not in words:
        words = f"{word}: {words}" if words else word
    if status >= 0 or cause is ExitCause.UNKNOWN:
        return status, cause, words
    return _NOT_FOUND if cause in (ExitCause.LAUNCH, ExitCause.FILES) else _KILLED, cause, words


_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d [\d:.,]+\]", re.M)
_LAST = re.compile(r"^Last \d+ bytes of (\S+) :$")
_FRAME = re.compile(
    r"Exception from container-launch\.|Container id: |Exit code: |Shell (error )?output: "
    r"|Container exited with a non-zero exit code |Container killed on request\. "
    r"|Killed by external"
)
_DUMP = "Dump of the process-tree"


def clean_diagnostics(text: str) -> str:
    """A node's diagnostics without YARN's frame, stack traces and repetitions."""
    reasons: List[str] = []
    output: List[str] = []
    into = reasons
    for line in text.splitlines():
        stamped = _STAMP.match(line)
        line = _STAMP.sub("", line).rstrip()
        if stamped:
            into = reasons
        if _LAST.match(line):
            # A node reports all output twice.
            into = [] if output else output
        elif line.startswith(_DUMP):
            into = []
        elif into is output:
            output.append(line)
        elif line and not (_FRAME.match(line) or line in into or is_stack_trace(line, into)):
            into.append(line)
    while output and not output[-1]:
        output.pop()
    if output:
        reasons += ["its last output:", *output]
    return "\n".join(reasons)

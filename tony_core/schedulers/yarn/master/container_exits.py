"""How containers ended, from YARN's numbers to the port's causes: once, here. Pure."""

from __future__ import annotations

import re
import signal
from typing import List, Mapping, Tuple

from tony_core.exit_causes import exit_code_of
from tony_core.schedulers.port import Cause
from tony_core.schedulers.yarn.diagnostics import (
    NEVER_STARTED,
    explain_localization_error,
    is_stack_trace,
)

_CAUSES: Mapping[int, Tuple[Cause, str]] = {
    NEVER_STARTED: (Cause.LAUNCH, "the node could not localize its files"),
    -1: (Cause.LAUNCH, "the node could not start it"),
    -100: (Cause.LOST, "it was lost with its node, or never started in time"),
    -101: (Cause.DISKS, "the node's disks failed"),
    -102: (Cause.PREEMPTED, "the scheduler took it back for another application"),
    -103: (Cause.MEMORY, "over its limit of virtual memory"),
    -104: (Cause.MEMORY, "over its memory limit"),
    -105: (Cause.RELEASED, "stopped by the master"),
    -106: (Cause.KILLED, "killed by the ResourceManager"),
    -107: (Cause.KILLED, "ended after its application"),
    -108: (Cause.PREEMPTED, "the node made room for containers with a guarantee"),
    -109: (Cause.KILLED, "it wrote more logs than the site allows"),
}

_NOT_FOUND, _KILLED = 127, exit_code_of(signal.SIGKILL)
"""What programs and people know such ends by, as on every scheduler."""


def cause_of(status: int, asked: bool) -> Tuple[Cause, str]:
    """Why a container ended, and a word for it; ``asked``: we had it stopped or released."""
    if asked and status not in (-101, -102, -103, -104):
        return Cause.RELEASED, "stopped by the master"
    if status >= 0:
        return Cause.EXITED, ""
    return _CAUSES.get(status, (Cause.UNKNOWN, f"YARN's exit status {status}"))


def told(status: int, asked: bool, diagnostics: str) -> Tuple[int, Cause, str]:
    """Exit code, cause and words of a container's end."""
    cause, word = cause_of(status, asked)
    for_good = explain_localization_error(diagnostics) if status == NEVER_STARTED else None
    if for_good and cause is Cause.LAUNCH:
        cause = Cause.FILES
    words = for_good or plain(diagnostics)
    if word and word not in words:
        words = f"{word}: {words}" if words else word
    if status >= 0 or cause is Cause.UNKNOWN:
        return status, cause, words
    return _NOT_FOUND if cause in (Cause.LAUNCH, Cause.FILES) else _KILLED, cause, words


_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d [\d:.,]+\]", re.M)
_LAST = re.compile(r"^Last \d+ bytes of (\S+) :$")
_FRAME = re.compile(
    r"Exception from container-launch\.|Container id: |Exit code: |Shell (error )?output: "
    r"|Container exited with a non-zero exit code |Container killed on request\. "
    r"|Killed by external"
)
_DUMP = "Dump of the process-tree"


def plain(text: str) -> str:
    """What a node says of an end, without the frame around it, stack traces and repetitions."""
    reasons: List[str] = []
    said: List[str] = []
    into = reasons
    for line in text.splitlines():
        stamped = _STAMP.match(line)
        line = _STAMP.sub("", line).rstrip()
        if stamped:
            into = reasons
        if _LAST.match(line):
            # A node says all of it twice.
            into = [] if said else said
        elif line.startswith(_DUMP):
            into = []
        elif into is said:
            said.append(line)
        elif line and not (_FRAME.match(line) or line in into or is_stack_trace(line, into)):
            into.append(line)
    while said and not said[-1]:
        said.pop()
    if said:
        reasons += ["it last said:", *said]
    return "\n".join(reasons)

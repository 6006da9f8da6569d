"""How containers ended, from YARN's numbers to the port's causes: once, here. Pure."""

from __future__ import annotations

from typing import Mapping, Tuple

from tony_core.schedulers.port import Cause

NEVER_STARTED = -1000

_CAUSES: Mapping[int, Tuple[Cause, str]] = {
    NEVER_STARTED: (Cause.LAUNCH, "the node could not bring its files"),
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

_NOT_FOUND, _KILLED = 127, 128 + 9
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
    words = diagnostics.strip()
    if word and word not in words:
        words = f"{word}: {words}" if words else word
    if status >= 0 or cause is Cause.UNKNOWN:
        return status, cause, words
    return _NOT_FOUND if cause is Cause.LAUNCH else _KILLED, cause, words

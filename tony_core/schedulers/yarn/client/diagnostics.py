"""What YARN says of a master that died, without the frame that YARN puts around it.

    Application ID failed N times ... due to AM Container for ATTEMPT exited with exitCode: C
    Failing this attempt.Diagnostics: [time]Exception from container-launch. ...
    Last 4096 bytes of stderr :
    what the master itself said
    For more detailed output, check ...

What is not built like that stays as it is: better too many words than lost ones.
"""

from __future__ import annotations

import re
from typing import Dict, List

from tony_core.schedulers.yarn.client.traces import is_trace
from tony_core.schedulers.yarn.master import localization_errors
from tony_core.schedulers.yarn.master.container_exits import NEVER_STARTED

_DIED = re.compile(
    r"Application \S+ failed (?P<times>\d+) times.*?"
    r"AM Container for \S+ exited with\s+exitCode: (?P<code>-?\d+)",
    re.S,
)
_LAST = re.compile(r"^Last \d+ bytes of (?P<file>\S+) :$", re.M)
_AFTER = re.compile(r"^(For more detailed output|\. Failing the application|\[[-\d :.,]+\])", re.M)
_WHY = re.compile(r"Diagnostics: (\[[-\d :.,]+\])?(?P<why>.*)", re.S)
_NOTHING = (
    "Exception from container-launch.",
    "Exit code:",
    "Container id:",
    "Shell error output:",
)

_NO_PYTHON = {
    "126": "tony.runtime.python names a file that the nodes cannot execute",
    "127": "tony.runtime.python names an interpreter that the nodes do not have",
}
"""What a shell says of a command that is not there; a master's container runs that one only."""

MOST_LINES = 15


def plain(text: str) -> str:
    """The same for a person."""
    died = _DIED.search(text)
    if died is None:
        return text.strip()
    times, code = int(died["times"]), died["code"]
    often = "" if times == 1 else f", {times} times"
    if int(code) == NEVER_STARTED:
        why = localization_errors.why(text)
        words = [] if why else _reason(text)[:MOST_LINES]
        why = why or "its node could not bring its files"
        return "\n".join([f"the job's master could not be started{often}: {why}", *words])
    words = [f"the job's master died (exit code {code}{often})"]
    said = _said(text)
    if said and code in _NO_PYTHON:
        words[0] += f": {_NO_PYTHON[code]}"
    if said:
        words += ["it last said:", *said[-MOST_LINES:]]
    else:
        words += _reason(text)[:MOST_LINES]
    return "\n".join(words)


def _said(text: str) -> List[str]:
    """The master's own last words: standard error, or else what its shell said before it."""
    parts: Dict[str, List[str]] = {}
    found = list(_LAST.finditer(text))
    for number, match in enumerate(found):
        end = found[number + 1].start() if number + 1 < len(found) else len(text)
        part = text[match.end() : end]
        after = _AFTER.search(part)
        part = part[: after.start()] if after else part
        parts.setdefault(match["file"], [line for line in part.splitlines() if line.strip()])
    for name in ("stderr", "prelaunch.err"):
        if parts.get(name):
            return parts[name]
    return []


def _reason(text: str) -> List[str]:
    """Why the node could not run it at all."""
    found = _WHY.search(text)
    if found is None:
        return []
    why = found["why"]
    after = re.search(r"^(For more detailed output|\. Failing the application)", why, re.M)
    why = why[: after.start()] if after else why
    lines: List[str] = []
    for line in why.splitlines():
        line = re.sub(r"^\[[-\d :.,]+\]", "", line)
        words = line.strip()
        if words and not words.startswith(_NOTHING) and not is_trace(line, lines):
            lines.append(words)
    return lines

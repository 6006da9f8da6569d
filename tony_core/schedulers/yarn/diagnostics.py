"""YARN's diagnostics in plain words: why a master died, why a node could not localize a file.

YARN's text about a dead master looks like this::

    Application ID failed N times ... due to AM Container for ATTEMPT exited with exitCode: C
    Failing this attempt.Diagnostics: [time]Exception from container-launch. ...
    Last 4096 bytes of stderr :
    the master's own output
    For more detailed output, check ...

A text of another form is returned as it is, so that nothing gets lost. Pure.
"""

from __future__ import annotations

import re
from typing import Collection, Dict, List, Optional

from tony_core.files.location import remedy
from tony_core.files.webhdfs.responses import parse_access_denial

NEVER_STARTED = -1000
"""YARN's exit status of a container whose files could not be localized."""

_MASTER_DIED = re.compile(
    r"Application \S+ failed (?P<times>\d+) times.*?"
    r"AM Container for \S+ exited with\s+exitCode: (?P<code>-?\d+)",
    re.S,
)
_OUTPUT_HEADER = re.compile(r"^Last \d+ bytes of (?P<file>\S+) :$", re.M)
_OUTPUT_END = re.compile(
    r"^(For more detailed output|\. Failing the application|\[[-\d :.,]+\])", re.M
)
_DIAGNOSTICS = re.compile(r"Diagnostics: (\[[-\d :.,]+\])?(?P<why>.*)", re.S)
_FRAME_LINES = (
    "Exception from container-launch.",
    "Exit code:",
    "Container id:",
    "Shell error output:",
)

_NO_PYTHON = {
    "126": "tony.runtime.python names a file that the nodes cannot execute",
    "127": "tony.runtime.python names an interpreter that the nodes do not have",
}
"""Reasons by the shell's exit code: a master's container only runs the interpreter."""

MAX_LINES = 15


def explain_master_failure(text: str) -> str:
    """YARN's text about a master that died, without Java's and YARN's frame around it."""
    died = _MASTER_DIED.search(text)
    if died is None:
        return text.strip()
    times, code = int(died["times"]), died["code"]
    often = "" if times == 1 else f", {times} times"
    if int(code) == NEVER_STARTED:
        why = explain_localization_error(text)
        words = [] if why else _launch_error(text)[:MAX_LINES]
        why = why or "its node could not localize its files"
        return "\n".join([f"the job's master could not be started{often}: {why}", *words])
    words = [f"the job's master died (exit code {code}{often})"]
    output = _last_output(text)
    if output and code in _NO_PYTHON:
        words[0] += f": {_NO_PYTHON[code]}"
    if output:
        words += ["its last output:", *output[-MAX_LINES:]]
    else:
        words += _launch_error(text)[:MAX_LINES]
    return "\n".join(words)


def _last_output(text: str) -> List[str]:
    """The last lines of the master's standard error; else those of its shell."""
    parts: Dict[str, List[str]] = {}
    found = list(_OUTPUT_HEADER.finditer(text))
    for number, match in enumerate(found):
        end = found[number + 1].start() if number + 1 < len(found) else len(text)
        part = text[match.end() : end]
        after = _OUTPUT_END.search(part)
        part = part[: after.start()] if after else part
        parts.setdefault(match["file"], [line for line in part.splitlines() if line.strip()])
    for name in ("stderr", "prelaunch.err"):
        if parts.get(name):
            return parts[name]
    return []


def _launch_error(text: str) -> List[str]:
    """Why the node could not start the container."""
    found = _DIAGNOSTICS.search(text)
    if found is None:
        return []
    why = found["why"]
    after = re.search(r"^(For more detailed output|\. Failing the application)", why, re.M)
    why = why[: after.start()] if after else why
    lines: List[str] = []
    for line in why.splitlines():
        line = re.sub(r"^\[[-\d :.,]+\]", "", line)
        words = line.strip()
        if words and not words.startswith(_FRAME_LINES) and not is_stack_trace(line, lines):
            lines.append(words)
    return lines


_FRAME = re.compile(r"\s+at [\w$.]|\s+\.\.\. \d+ more")
_CLASS = re.compile(r"^(?:Caused by: )?(?:[a-z]\w*\.)+[A-Z][\w$]*: ")


def is_stack_trace(line: str, known: Collection[str]) -> bool:
    """Whether a line is a frame of a Java stack trace, or repeats a known line after its class."""
    return bool(_FRAME.match(line)) or bool(_CLASS.match(line) and _CLASS.sub("", line) in known)


_FILE_CHANGED = re.compile(r"Resource (\S+) changed on src filesystem")
_FILE_GONE = re.compile(r"File does not exist: (\S+)")
_TOKEN_ENDED = re.compile(r"SecretManager\$InvalidToken\b")
_OBJECTS = "/store/objects/"


def explain_localization_error(text: str) -> Optional[str]:
    """Why a node could not localize a container's files, and what to do; None if unknown.

    YARN localizes a file only as it was at the submit, and as the user who submitted it.
    """
    changed = _FILE_CHANGED.search(text)
    if changed:
        return _explain_changed_file(changed[1])
    gone = _FILE_GONE.search(text)
    if gone:
        return f"{gone[1]} was removed after the submit: submit again"
    if _TOKEN_ENDED.search(text):
        return (
            "the tokens of its submit have ended, by which a node localizes files that not all"
            " users can read: submit again"
        )
    denied = parse_access_denial(text)
    if denied:
        return (
            f"the nodes fetch files as {denied.user}, who has no permission to read"
            f" {denied.path}; its owner {denied.owner} can change its mode ({denied.mode})"
        )
    return None


def _explain_changed_file(location: str) -> str:
    root, ours, _ = location.partition(_OBJECTS)
    if not ours:
        return f"{location} was written to after the submit: submit again"
    return (
        f"the copy that was staged at {location} is damaged: it was written to after the submit;"
        f" {remedy(root)}"
    )

"""Why a program ended: the last lines of its stderr, and the cause that they point to.

A log may be huge, binary, or one line without an end: :func:`last_lines` reads a bounded part of
it. :func:`diagnose_end` is pure.
"""

from __future__ import annotations

import os
import re
import signal as signals
from typing import List, Optional, Sequence, Tuple

from tony_core.exit_causes import ExitCause, signal_in

FIRST_SECONDS = 60.0
"""How long after a start "address in use" can be our port: some programs import for that long."""

DISK_FULL_MB = 1.0

_IN_USE = (
    r"(?i)address (is )?already in use|EADDRINUSE|errno:? ?98\b|address in use|port \S* ?(is )?"
    r"(already |currently )?in use|it was already in use"
)
# Servers that cannot listen and give no reason: gRPC's, TensorFlow's, XLA's, LightGBM's, ps-lite's.
_NO_SERVER = (
    r"(?i)no address added out of total|(failed to|could not|cannot|unable to) (bind|listen)\b"
    r"|(failed to|could not) start (the )?g?rpc server|binding port \d+ failed|\bbind failed"
)
_OTHER_REASON = r"(?i)permission denied|not permitted|cannot assign|EACCES|EADDRNOTAVAIL"
_NO_SPACE = r"(?i)no space left on device|ENOSPC|errno:? ?28\b|disk quota exceeded|EDQUOT"
# As lines name a port: not the years, process numbers and lines of code that stand there, too.
_PORT_NUMBER = (
    r"(?i)(?:\bport[\s:=#'\"(]{1,4}(?:number )?|\d\.\d+\.\d+\.\d+['\"]?(?::|, ?)|::['\"], ?|[\]*]:"
    r"|(?:^|[\s'\"(]):|localhost['\"]?(?::|, ?)"
    r"|(?<![\w.-])[a-z][\w-]{0,60}\d(?:\.[\w.-]{1,60})?:(?=\d{4}))(\d{2,5})(?![\d.])"
)

_ENV_PYTHON = "'python': "  # as env quotes it
_PYTHON3 = " Many nodes have no python: say python3, or --python_binary_path"

_NAMED = {
    signals.SIGHUP, signals.SIGINT, signals.SIGQUIT, signals.SIGILL, signals.SIGABRT,
    signals.SIGBUS, signals.SIGFPE, signals.SIGKILL, signals.SIGSEGV, signals.SIGPIPE,
    signals.SIGTERM, signals.SIGXCPU, signals.SIGXFSZ,
}  # fmt: skip


def diagnose_end(
    exit_code: int,
    signal: int,
    stderr_tail: Sequence[str],
    ran_s: float,
    ports: Sequence[int],
    ports_taken: Sequence[str],
    disk_free_mb: float,
    stderr_before: Sequence[str] = (),
) -> Tuple[ExitCause, str]:
    """(cause, message) of an end that TonY did not bring about.

    Of ``stderr_before``, the lines before the tail, only what names a port of the task counts.
    """
    if exit_code == 0:
        return ExitCause.EXITED, ""
    if _is_disk_full(stderr_tail, disk_free_mb):
        return ExitCause.DISK_FULL, (
            f"a disk of the node is full ({disk_free_mb:.0f} MB are free where the task runs):"
            " free some space, or write less"
        )
    if ran_s <= FIRST_SECONDS:
        in_use = _judge_port(stderr_before, stderr_tail, ports, ports_taken)
        if in_use:
            return in_use
    if signal:
        # Who reads it has the signal's number and the exit code before this.
        text = f"a {signals.Signals(signal).name}{_sender(signal)}" if signal in _NAMED else ""
        return ExitCause.EXITED, text
    last = stderr_tail[-1] if stderr_tail else ""
    if exit_code == 127:
        return ExitCause.NOT_FOUND, (
            "the command, or something it runs, was not found"
            f"{_quoted(last)}: is it in the source folder, the venv or on the node's PATH?"
            f"{_PYTHON3 if ' python: ' in last or _ENV_PYTHON in last else ''}"
        )
    if exit_code == 126:
        return ExitCause.NOT_EXECUTABLE, (
            "the command was found but cannot be executed"
            f"{_quoted(last)}: does it have its exec bit, and is it made for this machine?"
        )
    number = signal_in(exit_code)
    if number in _NAMED:
        name = signals.Signals(number).name
        return ExitCause.EXITED, f"something it ran was ended by {name} ({number}){_sender(number)}"
    return ExitCause.EXITED, ""


def _is_disk_full(stderr_tail: Sequence[str], disk_free_mb: float) -> bool:
    if disk_free_mb < DISK_FULL_MB:
        return True
    return any(re.search(_NO_SPACE, line) for line in stderr_tail)


def _judge_port(
    before: Sequence[str], tail: Sequence[str], ports: Sequence[int], ports_taken: Sequence[str]
) -> Optional[Tuple[ExitCause, str]]:
    def numbers(line: str) -> List[int]:
        return [int(number) for number in re.findall(_PORT_NUMBER, line)]

    def names_ours(line: str) -> bool:
        return bool(set(numbers(line)) & set(ports))

    def is_no_server(line: str) -> bool:
        return bool(re.search(_NO_SERVER, line)) and not re.search(_OTHER_REASON, line)

    reported = [line for line in tail if re.search(_IN_USE, line)]
    reported += [each for each in before if names_ours(each) and re.search(_IN_USE, each)]
    vague = [line for line in tail if is_no_server(line)]
    if ports_taken and (reported or vague or not tail):
        names = ", ".join(ports_taken)
        return ExitCause.ADDRESS_IN_USE, f"another process listens at the task's port ({names})"
    if not reported:
        if any(map(names_ours, vague)):
            return (
                ExitCause.ADDRESS_IN_USE,
                "the program cannot listen at a port that the task was given",
            )
        return None
    named = [number for line in reported for number in numbers(line)]
    if named and not set(named) & set(ports):
        # New ports would not help: it is one that the program chose itself.
        return ExitCause.EXITED, (
            f"port {named[0]}, which TonY did not give it, is in use on the node:"
            " use one of the task's own ports (docs: what a task sees)"
        )
    return ExitCause.ADDRESS_IN_USE, "a port that the task was given is in use on the node"


def _sender(number: int) -> str:
    if number == 9:
        return ", which TonY did not send: the kernel out of memory, or another process"
    if number == 15:
        return ", which TonY did not send"
    return ""


def _quoted(last: str) -> str:
    return f" ({last})" if last else ""


MAX_BYTES = 64 * 1024
MAX_LINE = 500


def size_of(path: str) -> int:
    """Its size now; 0 when there is none."""
    try:
        with open(path, "rb") as file:
            return file.seek(0, 2)
    except OSError:
        return 0


def last_lines(path: str, since: int, count: int) -> List[str]:
    """At most ``count`` lines of what was written after ``since``.

    Empty ones are left out, long ones cut; of a line that was overwritten with carriage
    returns (a progress bar) the last state counts.
    """
    if count <= 0:
        return []
    try:
        with open(path, "rb") as file:
            end = file.seek(0, 2)
            start = max(min(since, end), end - MAX_BYTES)
            file.seek(start)
            data = file.read(MAX_BYTES)
    except OSError:
        return []
    if start > since and b"\n" in data:
        data = data.partition(b"\n")[2]  # the first line is not whole
    lines: List[str] = []
    for raw in reversed(data.split(b"\n")):
        line = raw.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace").rstrip()
        if line:
            lines.append(_cut(line.replace("\x00", "\ufffd")))
            if len(lines) == count:
                break
    return lines[::-1]


def relative_paths(folder: str, lines: Sequence[str]) -> List[str]:
    """The same lines with paths as the program in ``folder`` would give them: ``./train.py``.

    A container's path is long and another one every time: the same failure in the next session,
    or in another container, would not look the same.
    """
    if not lines:
        return []
    names = []
    for each in dict.fromkeys((folder, os.path.realpath(folder))):
        names += [(each, "."), (os.path.dirname(each), "..")]
    out = list(lines)
    for name, short in names:
        if name.strip("/"):
            whole = re.compile(r"(?<![\w.-])" + re.escape(name) + r"(?![\w-]|\.\w)")
            out = [whole.sub(short, line) for line in out]
    return out


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + "\u2026"

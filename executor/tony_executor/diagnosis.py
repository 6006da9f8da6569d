"""What a program's end means: a cause, and words for a person. Pure."""

from __future__ import annotations

import re
from typing import List, Sequence, Tuple

FIRST_SECONDS = 60.0
"""How long after its start "address in use" counts as ours: some import for half a minute."""

DISK_FULL_MB = 1.0

_IN_USE = (
    r"(?i)address (is )?already in use|EADDRINUSE|errno:? ?98\b|address in use|port \S* ?(is )?"
    r"(already |currently )?in use|it was already in use"
)
# Servers that cannot listen and do not say why: gRPC's, TensorFlow's, XLA's, LightGBM's, ps-lite's.
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

# Not signal.Signals: importing its names costs more than they are worth.
_SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
}


def judge(
    exit_code: int,
    signal: int,
    stderr_tail: Sequence[str],
    ran_s: float,
    ports: Sequence[int],
    ports_taken: Sequence[str],
    disk_free_mb: float,
    stderr_before: Sequence[str] = (),
) -> Tuple[str, str]:
    """(cause as in messages.Ended, message) of an end that TonY did not bring about.

    Of ``stderr_before``, the lines before the tail, only what names a port of the task counts.
    """
    if exit_code == 0:
        return "exited", ""
    if _full(stderr_tail, disk_free_mb):
        return "disk-full", (
            f"a disk of the node is full ({disk_free_mb:.0f} MB are free where the task runs):"
            " free some space, or write less"
        )
    if ran_s <= FIRST_SECONDS:
        in_use = _in_use(stderr_before, stderr_tail, ports, ports_taken)
        if in_use:
            return in_use
    if signal:
        # Who reads it has the signal's number and the exit code before this.
        name = _SIGNALS.get(signal, "")
        return "exited", f"a {name}{_who(signal)}" if name else ""
    last = stderr_tail[-1] if stderr_tail else ""
    if exit_code == 127:
        return "not-found", (
            "the command, or something it runs, was not found"
            f"{_quoted(last)}: is it in the source folder, the venv or on the node's PATH?"
            f"{_PYTHON3 if ' python: ' in last or _ENV_PYTHON in last else ''}"
        )
    if exit_code == 126:
        return "not-executable", (
            "the command was found but cannot be executed"
            f"{_quoted(last)}: does it have its exec bit, and is it made for this machine?"
        )
    if exit_code > 128 and exit_code - 128 in _SIGNALS:
        number = exit_code - 128
        return "exited", f"something it ran was ended by {_named(number)}{_who(number)}"
    return "exited", ""


def _full(stderr_tail: Sequence[str], disk_free_mb: float) -> bool:
    if disk_free_mb < DISK_FULL_MB:
        return True
    return any(re.search(_NO_SPACE, line) for line in stderr_tail)


def _in_use(
    before: Sequence[str], tail: Sequence[str], ports: Sequence[int], ports_taken: Sequence[str]
) -> Tuple[str, str] | None:
    def numbers(line: str) -> List[int]:
        return [int(number) for number in re.findall(_PORT_NUMBER, line)]

    def names_ours(line: str) -> bool:
        return bool(set(numbers(line)) & set(ports))

    def is_no_server(line: str) -> bool:
        return bool(re.search(_NO_SERVER, line)) and not re.search(_OTHER_REASON, line)

    said = [line for line in tail if re.search(_IN_USE, line)]
    said += [each for each in before if names_ours(each) and re.search(_IN_USE, each)]
    vague = [line for line in tail if is_no_server(line)]
    if ports_taken and (said or vague or not tail):
        names = ", ".join(ports_taken)
        return "address-in-use", f"another process listens at the task's port ({names})"
    if not said:
        if any(map(names_ours, vague)):
            return "address-in-use", "the program cannot listen at a port that the task was given"
        return None
    named = [number for line in said for number in numbers(line)]
    if named and not set(named) & set(ports):
        # New ports would not help: it is one that the program chose itself.
        return "exited", (
            f"port {named[0]}, which TonY did not give it, is in use on the node:"
            " use one of the task's own ports (docs: what a task sees)"
        )
    return "address-in-use", "a port that the task was given is in use on the node"


def _named(number: int) -> str:
    return f"{_SIGNALS[number]} ({number})" if number in _SIGNALS else f"signal {number}"


def _who(number: int) -> str:
    if number == 9:
        return ", which TonY did not send: the kernel out of memory, or another process"
    if number == 15:
        return ", which TonY did not send"
    return ""


def _quoted(last: str) -> str:
    return f" ({last})" if last else ""

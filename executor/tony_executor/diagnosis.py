"""What a program's end means: a cause, and words for a person. Pure."""

from __future__ import annotations

from tony_core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import List, Sequence, Tuple


FIRST_SECONDS = 60.0
"""How long after its start "address in use" counts as ours: some import for half a minute."""

DISK_FULL_MB = 1.0

_IN_USE = (
    r"(?i)address (is )?already in use|EADDRINUSE|errno:? ?98\b|address in use|port \S* ?(is )?"
    r"(already |currently )?in use"
)
_NO_SPACE = r"(?i)no space left on device|ENOSPC|errno:? ?28\b|disk quota exceeded|EDQUOT"
_PORT_NUMBER = r"(?<![\d.])(\d{4,5})(?![\d.])"

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
) -> Tuple[str, str]:
    """(cause as in messages.Ended, message) of an end that nobody of ours brought about."""
    if exit_code == 0:
        return "exited", ""
    if _full(stderr_tail, disk_free_mb):
        return "disk-full", (
            f"a disk of the node is full ({disk_free_mb:.0f} MB are free where the task runs):"
            " free some space, or write less"
        )
    if ran_s <= FIRST_SECONDS:
        in_use = _in_use(stderr_tail, ports, ports_taken)
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
    import re  # only where a program fails

    return any(re.search(_NO_SPACE, line) for line in stderr_tail)


def _in_use(
    stderr_tail: Sequence[str], ports: Sequence[int], ports_taken: Sequence[str]
) -> Tuple[str, str] | None:
    import re

    said = [line for line in stderr_tail if re.search(_IN_USE, line)]
    if ports_taken and (said or not stderr_tail):
        names = ", ".join(ports_taken)
        return "address-in-use", f"another process listens at the task's port ({names})"
    if not said:
        return None
    named: List[int] = [int(n) for line in said for n in re.findall(_PORT_NUMBER, line)]
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
        return ", which TonY did not send: the kernel out of memory, or somebody"
    if number == 15:
        return ", which TonY did not send"
    return ""


def _quoted(last: str) -> str:
    return f" ({last})" if last else ""

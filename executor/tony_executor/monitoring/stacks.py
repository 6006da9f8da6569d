"""Where a program's Python processes stand: who is asked how, and what the answer means. No I/O
but reading /proc.

Two ways to a stack, neither of which can end or hold up the program:

*py-spy*, where the job's environment or the node has it, reads the memory of the process
(``--nonblocking``: it is not stopped meanwhile). The kernel must allow it (ptrace).

*faulthandler*: Python writes its stacks to stderr by itself when it gets a signal that it has a
handler for. ``import tony`` sets that up; so can a program, for the number in TONY_STACK_SIGNAL.
Without a handler the signal would end the program, so /proc/PID/status is asked first (SigCgt).
The signal is a real-time one, which no program that we know of uses: of the two for users, SIGUSR1
and SIGUSR2, one starts a checkpoint in some trainers, and a JVM in the process uses the other.

A stack tells of three cases: the process is *in* a collective; it is *outside*; or that is *not
known*, since it waits for its device, on which the kernel of a collective may run (NCCL, and XLA
all the time). What torch has no Python function for (``.item()``, ``.cpu()``, ``print`` of a
tensor) is in no stack: such a wait looks like the line of the program that it is in.
"""

from __future__ import annotations

import os
import re
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional

PY_SPY = "py-spy"
MOST_PROCESSES = 8
MOST_BYTES = 64 * 1024  # of the stacks of one process
_LONGEST_FRAME = 120
_LONGEST_ROW = 1000

#: Functions of collective operations, as stacks name them, and files that hold nothing else.
_COLLECTIVE = re.compile(
    r"(?i)\b(i?all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|monitored_barrier|barrier"
    r"|broadcast|init_process_group|wait_for_everyone|sync_global_devices|process_allgather)\b"
)
_COLLECTIVE_FILE = re.compile(r"\bdistributed_c10d\.py$|\bhorovod/\w+/mpi_ops\.py$")
#: Waits for the device, and the backward pass, in which torch waits for the gradients of others.
_DEVICE_WAIT = re.compile(
    r"\b(block_until_ready|effects_barrier|_engine_run_backward)\b"
    r"|\bsynchronize\b.* \(.*\btorch/|\b(_value|__array__|item|tolist)\b.* \(.*\bjax/_src/array\.py"
)
_PY_SPY_PROCESS = re.compile(r"^Process (?P<pid>\d+): ")
_PY_SPY_THREAD = re.compile(
    r'^Thread (?P<id>\w+) \((?:idle|active)[^)]*\)(?:: "(?P<name>[^"]*)")?$'
)
_PY_SPY_COMMAND = re.compile(r"^Process \d+:", re.MULTILINE)
_PY_SPY_PYTHON = re.compile(r"^Python v\d\S* \(.*\)$", re.MULTILINE)
_PY_SPY_FIRST_THREAD = re.compile(r"^Thread \w+ \((?:idle|active)[^)\n]*\)", re.MULTILINE)
_PY_SPY_FRAME = re.compile(r"^\s+(?P<function>\S.*?) \((?P<file>[^()]+?)(?::(?P<line>\d+))?\)$")
_FAULT_THREAD = re.compile(r"^(?P<current>Current thread|Thread) 0x[0-9a-f]+")
_FAULT_FRAME = re.compile(
    r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+|\?\?\?) in (?P<function>\S.*)$'
)


_LIBRARY = re.compile(
    r"(^|/)((torch|jax|jaxlib|tensorflow|horovod)/|(threading|selectors|socket|queue)\.py$)"
)
_OUTERMOST = ("<module>", "_bootstrap", "_run_module_as_main")


class _Frame(NamedTuple):
    function: str
    file: str
    line: str

    def __str__(self) -> str:
        return f"{self.function} ({'/'.join(self.file.split('/')[-2:])}:{self.line})"


class StackSummary(NamedTuple):
    """Where the main thread of a process stands."""

    frame: str  # "wait (threading.py:320)"
    in_collective: Optional[bool]  # None: it may wait for one, or not
    is_whole: bool = True  # down to the program's first frame


def is_python(pid: int) -> bool:
    """Whether it is a Python interpreter."""
    try:
        return "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False


def find_py_spy(pid: int, environment: Mapping[str, str], more: Mapping[str, str]) -> Optional[str]:
    """The py-spy for a process: beside its Python, else on its PATH, else on the node's."""
    folders: List[str] = []
    try:
        with open(f"/proc/{pid}/cmdline", "rb", 0) as file:
            program = os.fsdecode(file.read(4096).split(b"\0")[0])
        folders += [os.path.dirname(program), os.path.dirname(os.readlink(f"/proc/{pid}/exe"))]
    except OSError:
        pass
    if environment.get("VIRTUAL_ENV"):
        folders.append(os.path.join(environment["VIRTUAL_ENV"], "bin"))
    for each in (environment, more):
        folders += each.get("PATH", "").split(os.pathsep)
    for folder in folders:
        candidate = os.path.join(folder, PY_SPY)
        if os.path.isabs(folder) and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def py_spy_command(program: str, pid: int) -> List[str]:
    """The command line that writes the stacks of a process, and does not stop it."""
    return [program, "dump", "--nonblocking", "--pid", str(pid)]


def redact(output: str) -> str:
    """What a log gets of py-spy's output: bounded, without the command, which may hold secrets."""
    # The command may have any rows in it; what py-spy writes of the interpreter comes after them.
    found = list(_PY_SPY_PYTHON.finditer(output))
    if found:
        output = output[found[-1].start() :]
    else:
        first = _PY_SPY_FIRST_THREAD.search(output)
        process = _PY_SPY_COMMAND.search(output)
        if first is not None:
            output = output[first.start() :]
        elif process is not None:
            output = output[: process.end()] + "\n... (its command, and nothing after it)\n"
    return output if len(output) <= MOST_BYTES else output[:MOST_BYTES] + "\n... (cut)\n"


def summarize(text: str) -> Optional[StackSummary]:
    """Where the main thread stands, from the output of py-spy or faulthandler."""
    threads: Dict[str, List[_Frame]] = {}
    frames: Optional[List[_Frame]] = None
    process = _PY_SPY_PROCESS.match(text)
    pid = process["pid"] if process is not None else ""
    for line in text[: 2 * MOST_BYTES].splitlines():
        row = line[:_LONGEST_ROW].rstrip()
        thread = _PY_SPY_THREAD.match(row) or _FAULT_THREAD.match(row)
        if thread is not None:
            found = thread.groupdict()
            is_main = found.get("current") == "Current thread"
            # A program without threads gives py-spy no names, but its first thread has its pid.
            is_main = is_main or found.get("name") == "MainThread" or found.get("id") == pid
            frames = threads.setdefault("main" if is_main else "last", [])
            frames.clear()  # faulthandler writes the main thread last
            continue
        frame = _PY_SPY_FRAME.match(row) or _FAULT_FRAME.match(row)
        if frame is not None and frames is not None:
            frames.append(_Frame(frame["function"], frame["file"], frame["line"] or "?"))
    stack = threads.get("main") or threads.get("last")
    if not stack:
        return None
    innermost = next((each for each in stack if not _LIBRARY.search(each.file)), stack[0])
    return StackSummary(
        str(innermost)[:_LONGEST_FRAME],
        _is_in_collective(stack),
        stack[-1].function.startswith(_OUTERMOST),
    )


def _is_in_collective(stack: Iterable[_Frame]) -> Optional[bool]:
    if any(_COLLECTIVE.search(f.function) or _COLLECTIVE_FILE.search(f.file) for f in stack):
        return True
    waits = any(_DEVICE_WAIT.search(f"{frame.function} ({frame.file}") for frame in stack)
    return None if waits else False


def choose_summary(found: Iterable[Optional[StackSummary]]) -> Optional[StackSummary]:
    """Of the processes of a task the one that tells most: first one in a collective."""
    known = [each for each in found if each is not None]
    for state in (True, None):
        for each in known:
            if each.in_collective is state:
                return each
    return known[0] if known else None

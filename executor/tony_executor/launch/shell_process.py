"""A shell or command beside the program, with everything that it starts.

Theory of operation
===================

Between the executor and the shell stands a *keeper*, a process of ours. It is the subreaper of
the shell, so whatever the shell leaves behind becomes the keeper's child, and not the executor's,
where nothing would distinguish it from what the program left. When the shell has ended, or the
executor has closed the control pipe (the client is gone, the program has ended) or died, the keeper
ends all that is below it and exits, with the shell's exit code.

The shell has a session of its own, since a terminal needs one; the keeper stays in the executor's
process group, and when it is killed, the shell is, too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import struct
import termios
import time
from typing import Dict, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Set, Tuple

from tony_core.exit_causes import SHELL_KEEPER, decode_status
from tony_executor import processes
from tony_executor.launch.spawn import Spawned, check_executed, default_signals

HANGUP_S = 0.5  # from the end of the control pipe to the KILL


class ShellProcess(NamedTuple):
    """A running shell, as the executor holds it."""

    pid: int  # the keeper's
    control: int  # closing it ends the shell
    input: int
    outputs: Tuple[Tuple[int, bool], ...]  # descriptor, whether it is standard error
    is_terminal: bool


def start_shell(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    size: Optional[Tuple[int, int]] = None,  # rows, columns; None: no terminal
) -> ShellProcess:
    """Start it; raises OSError, ValueError or NotExecuted where that cannot be."""
    if any("\x00" in text for text in (*argv, *env, *env.values())):
        raise ValueError("a variable or the command holds a NUL character")
    ours: List[int] = []
    theirs: List[int] = []

    def keep(pair: Tuple[int, int], mine: int) -> Tuple[int, int]:
        ours.append(pair[mine])
        theirs.append(pair[1 - mine])
        return pair[mine], pair[1 - mine]

    try:
        control, watched = keep(os.pipe(), 1)
        failures, errors = keep(os.pipe(), 0)
        if size is not None:
            terminal, slave = keep(os.openpty(), 0)
            resize(terminal, *size)
            streams = (slave, slave, slave)
            entry = terminal
            outputs: Tuple[Tuple[int, bool], ...] = ((terminal, False),)
        else:
            entry, stdin = keep(os.pipe(), 1)
            out, stdout = keep(os.pipe(), 0)
            err, stderr = keep(os.pipe(), 0)
            streams = (stdin, stdout, stderr)
            outputs = ((out, False), (err, True))
        parent = os.getpid()
        pid = os.fork()
    except OSError:
        for fd in (*ours, *theirs):
            os.close(fd)
        raise
    if pid == 0:
        _keep(argv, env, cwd, streams, size is not None, watched, errors, parent)
    for fd in theirs:
        os.close(fd)
    try:
        check_executed(Spawned(pid, failures))
    except Exception:
        for fd in ours:
            if fd != failures:
                os.close(fd)
        raise
    for fd in {entry, *(fd for fd, _ in outputs)}:
        os.set_blocking(fd, False)
    return ShellProcess(pid, control, entry, outputs, size is not None)


def resize(terminal: int, rows: int, columns: int) -> None:
    """Give a terminal its size; its foreground programs get SIGWINCH."""
    size = struct.pack("HHHH", _bounded(rows, 24), _bounded(columns, 80), 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


def _bounded(count: int, default: int) -> int:
    return count if 0 < count < 1 << 15 else default


def _keep(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    streams: Tuple[int, int, int],
    is_terminal: bool,
    control: int,
    errors: int,
    parent: int,
) -> NoReturn:
    """The keeper."""
    code = 127
    try:
        default_signals()
        name_process(SHELL_KEEPER)
        wake, waker = os.pipe()
        for fd in (wake, waker):
            os.set_blocking(fd, False)
        _close_all_but({0, 1, 2, control, errors, wake, waker, *streams})
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: None)
        processes.be_subreaper(True)
        alive = processes.end_with_parent(parent, signal.SIGTERM)
        shell = os.fork()
        if shell == 0:
            _become(argv, env, cwd, streams, is_terminal, errors)
        for fd in {*streams, errors}:
            os.close(fd)
        if alive:
            code = _wait(shell, control, wake)
        processes.kill_now(os.getpid())
    except BaseException as error:
        try:
            os.write(errors, f"{getattr(error, 'errno', None) or errno.EIO} shell".encode())
        except OSError:
            pass  # closed by now: the exit code must do
        processes.kill_now(os.getpid())
    finally:
        os._exit(code)


def _wait(shell: int, control: int, wake: int) -> int:
    """Wait until the shell has ended or is to end; return its exit code."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    hung_up: Optional[float] = None
    while True:
        wait_s = None if hung_up is None else hung_up + HANGUP_S - time.monotonic()
        if wait_s is not None and wait_s <= 0:
            return 128 + signal.SIGKILL
        for fd, _ in poll.poll(None if wait_s is None else wait_s * 1000):
            if fd == wake:
                numbers = os.read(wake, 4096)
                ended = any(number != signal.SIGCHLD for number in numbers)
            else:
                poll.unregister(control)
                ended = True
            if ended and hung_up is None:
                hung_up = time.monotonic()
                try:
                    os.killpg(shell, signal.SIGHUP)
                except (ProcessLookupError, PermissionError):
                    pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 128 + signal.SIGKILL
            if pid == shell:
                return decode_status(status)[0]
            if pid == 0:
                break


def _become(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    streams: Tuple[int, int, int],
    is_terminal: bool,
    errors: int,
) -> NoReturn:
    what = "fork"
    try:
        signal.set_wakeup_fd(-1)
        default_signals()
        processes.end_with_parent(os.getppid(), signal.SIGKILL)
        os.setsid()
        if is_terminal:
            what = "its terminal"
            fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        what = cwd
        os.chdir(cwd)
        what = argv[0]
        os.execve(argv[0], list(argv), dict(env))
    except OSError as error:
        os.write(errors, f"{error.errno or errno.EIO} {what}".encode("utf-8", "replace"))
    finally:
        os._exit(127)


def name_process(name: str) -> None:
    """Name this process for all who look at it; up to 15 characters."""
    try:
        with open("/proc/self/comm", "wb", 0) as file:
            file.write(name.encode())
    except OSError:
        pass  # a kernel or sandbox that keeps names: only a message loses something


def _close_all_but(kept: Set[int]) -> None:
    # The executor's connections would stay open as long as a copy of them does.
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                pass  # the listing's own


_OF_THE_JOB = ("TONY_REPORT_FILE", "MLFLOW_RUN_ID")


def shell_environment(env: Mapping[str, str], term: str) -> Dict[str, str]:
    """The program's environment as a shell beside it has it.

    Not its report file, nor its run at MLflow: what is tried in a shell is no metric of the job.
    """
    found = {name: value for name, value in env.items() if name not in _OF_THE_JOB}
    plain = term.replace("-", "").replace(".", "").replace("+", "").replace("_", "")
    found["TERM"] = term if plain.isalnum() and plain.isascii() and len(term) <= 40 else "dumb"
    return found

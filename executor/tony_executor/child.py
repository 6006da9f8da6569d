"""Starts a process: fork, then exec, with the errors of exec brought back.

Not subprocess: half a megabyte per executor, for what is thirty lines here. We have one
thread, so a fork is safe. The child stays in our process group: who kills the group kills it;
and it dies with us, whoever kills us.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple

from tony_core.exit_causes import ExitCause
from tony_executor import processes

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Spawned(NamedTuple):
    """A process that is about to exec; ``errors`` can be read when it has, or has not."""

    pid: int
    errors: int


class NotExecuted(Exception):
    """exec failed; ``code`` is the errno, ``what`` the step that failed."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: {os.strerror(code)}")
        self.code = code
        self.what = what


def spawn(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    stdout: Optional[str] = None,  # files, appended to; None is nowhere
    stderr: Optional[str] = None,
    stdout_fd: Optional[int] = None,
) -> Spawned:
    """Start it. Raises OSError when there can be no more processes, ValueError for a NUL."""
    for text in (*argv, *env, *env.values()):
        if "\x00" in text:
            raise ValueError("a variable or the command holds a NUL character")
    parent = os.getpid()
    reading, writing = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if pid == 0:
        _become(argv, env, cwd, stdout, stderr, stdout_fd, writing, parent)
    os.close(writing)
    return Spawned(pid, reading)


def check_executed(spawned: Spawned) -> None:
    """Wait for the exec, which is soon; raises :class:`NotExecuted`."""
    try:
        data = b""
        while True:
            more = os.read(spawned.errors, 256)
            if not more:
                break
            data += more
    finally:
        os.close(spawned.errors)
    if data:
        code, _, what = data.partition(b" ")
        raise NotExecuted(int(code), what.decode("utf-8", "replace"))


def _become(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    stdout: Optional[str],
    stderr: Optional[str],
    stdout_fd: Optional[int],
    errors: int,
    parent: int,
) -> NoReturn:
    what = "fork"
    try:
        default_signals()
        if not processes.end_with_parent(parent, signal.SIGKILL):
            os._exit(127)  # the executor died meanwhile
        what = "stdin"
        _redirect(os.open(os.devnull, os.O_RDONLY), 0)
        for path, fd in ((stdout, 1), (stderr, 2)):
            what = path or os.devnull
            if fd == 1 and stdout_fd is not None:
                _redirect(stdout_fd, 1)
            else:
                _redirect(os.open(path or os.devnull, _APPEND, 0o644), fd)
        what = cwd
        os.chdir(cwd)
        what = argv[0]
        os.execve(argv[0], list(argv), dict(env))
    except OSError as error:
        _give_up(errors, error.errno or errno.EIO, what)
    except BaseException:
        _give_up(errors, errno.EINVAL, what)


def default_signals() -> None:
    """What Python ignores a program must not inherit ignored; nor our handlers."""
    for number in (
        signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE,
        signal.SIGXFSZ,
    ):  # fmt: skip
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _redirect(source: int, target: int) -> None:
    if source == target:
        os.set_inheritable(target, True)
    else:
        os.dup2(source, target)
        os.close(source)


def _give_up(errors: int, code: int, what: str) -> NoReturn:
    try:
        os.write(errors, f"{code} {what}".encode("utf-8", "replace"))
    finally:
        os._exit(127)


def why_not(error: Exception, program: str, env: Mapping[str, str]) -> Tuple[ExitCause, str]:
    """(cause, message) of a program that could not be started."""
    if isinstance(error, NotExecuted):
        if error.code == errno.E2BIG:
            size = sum(len(k) + len(v) + 2 for k, v in env.items())
            return ExitCause.ENVIRONMENT, (
                "the program's command or environment is too large for the kernel (its variables"
                f" have {size} bytes; one variable, or the command, may have 128 KiB): shorten it,"
                " or put it into a file"
            )
        if error.code in (errno.ENOSPC, errno.EDQUOT):
            return ExitCause.DISK_FULL, f"{error.what}: no space is left on the node's disk"
        if error.what == program and error.code == errno.ENOENT:
            return ExitCause.ENVIRONMENT, f"the node (or its image) has no {program}"
        return ExitCause.LOCALISATION, f"the program could not be started: {error}"
    if isinstance(error, ValueError):
        return ExitCause.ENVIRONMENT, str(error)
    return ExitCause.LOCALISATION, f"the node has no room for another process: {error}"

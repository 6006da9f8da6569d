"""Start processes: fork, then exec, with the errors of exec reported back.

:func:`spawn` starts a process; :class:`CommandRun` starts one whose output is wanted, and does not
wait for it. Not ``subprocess``: it costs half a megabyte for each executor. The child stays in our
process group, so that a KILL to the group ends it, and it dies with us.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import Callable, Dict, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple

from tony_core.exit_causes import ExitCause
from tony_core.protocol.reactor import Reactor, Timer
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
    """Start a process; raises OSError when there can be no more, ValueError for a NUL."""
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
    """Reset what Python ignores, what a shell ignores for us, and our handlers.

    A program must not inherit them.
    """
    for number in (
        signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE,
        signal.SIGXFSZ, signal.SIGQUIT,
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


def explain_failure(
    error: Exception, program: str, env: Mapping[str, str]
) -> Tuple[ExitCause, str]:
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


LARGEST_OUTPUT = 1 << 20


class CommandResult(NamedTuple):
    """The output of a command; ``error`` says why its output cannot be used."""

    output: str
    error: str = ""
    was_started: bool = True


class CommandRun:
    """Run a command; ``done`` gets the result, within ``timeout_s`` and once at most."""

    def __init__(
        self,
        reactor: Reactor,
        argv: List[str],
        env: Dict[str, str],
        timeout_s: float,
        done: Callable[[CommandResult], None],
        stderr: Optional[str] = None,
    ) -> None:
        self.pid: Optional[int] = None
        self._reactor = reactor
        self._program = argv[0]
        self._done: Optional[Callable[[CommandResult], None]] = done
        self._pipe: Optional[int] = None
        self._output = b""
        self._exit_code: Optional[int] = None
        self._timer: Timer
        reading, writing = os.pipe()
        try:
            spawned = spawn(argv, env, "/", stdout_fd=writing, stderr=stderr)
            self.pid = spawned.pid
            check_executed(spawned)
        except (OSError, ValueError, NotExecuted) as error:
            os.close(reading)
            result = CommandResult("", f"{argv[0]} cannot be run: {error}", was_started=False)
            self._timer = reactor.call_later(0, self._finish, result)
            return
        finally:
            os.close(writing)
        self._pipe = reading
        late = CommandResult("", f"{argv[0]} did not answer within {timeout_s:g} s")
        self._timer = reactor.call_later(timeout_s, self._finish, late)
        reactor.watch(reading, self._read)

    @property
    def is_done(self) -> bool:
        """Whether the result was delivered, or cancelled."""
        return self._done is None

    def reaped(self, pid: int, exit_code: int) -> bool:
        """Note the end of a child; returns whether it was this command."""
        if pid != self.pid:
            return False
        self.pid = None
        self._exit_code = exit_code
        self._check_done()
        return True

    def cancel(self) -> None:
        """Kill it; ``done`` is not called any more."""
        self._done = None
        self._timer.cancel()
        self._close_pipe()
        if self.pid is not None:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def _read(self) -> None:
        assert self._pipe is not None
        data = os.read(self._pipe, 65536)
        self._output += data
        if not data or len(self._output) > LARGEST_OUTPUT:
            self._close_pipe()
            self._check_done()

    def _check_done(self) -> None:
        if self._exit_code is None or self._pipe is not None:
            return
        output = self._output.decode("utf-8", "replace")
        error = ""
        if self._exit_code:
            lines = output.strip().splitlines()
            error = f"{self._program} ended with exit code {self._exit_code}"
            error += f": {lines[0]}" if lines else ""
        self._finish(CommandResult(output, error))

    def _finish(self, result: CommandResult) -> None:
        done = self._done
        self.cancel()
        if done is not None:
            done(result)

    def _close_pipe(self) -> None:
        if self._pipe is not None:
            self._reactor.unwatch(self._pipe)
            os.close(self._pipe)
            self._pipe = None

"""What went wrong, as one message on standard error and an exit code. One table."""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import Optional

from tony_core.cli.interrupts import Interrupted
from tony_core.cli.output import tell as tell_text
from tony_core.client.errors import ClientError, UsageError
from tony_core.client.exit_codes import ExitCode, of_signal

_NOT_WRITABLE = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS)


def tell(error: BaseException, debug: bool) -> Optional[int]:
    """Say it and give the exit code; ``None`` for what is not an error at all (SystemExit)."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 0 if error.code is None else None
    if isinstance(error, BrokenPipeError):
        # Whoever read our output went away (head, less): nobody to tell.
        _silence_stdout()
        return int(ExitCode.BROKEN_PIPE)
    if debug:
        import traceback

        tell_text("".join(traceback.format_exception(error)))
    if isinstance(error, Interrupted):
        say(str(error))
        return of_signal(error.number)
    if isinstance(error, KeyboardInterrupt):
        say("interrupted")
        return of_signal(signal.SIGINT)
    text, code = _judged(error)
    say(text)
    return code


def say(text: str) -> None:
    """One message for a person."""
    first, _, rest = text.partition("\n")
    try:
        tell_text(f"tony: {first}\n" + (f"{rest}\n" if rest else ""))
    except OSError:
        pass  # the terminal is gone


def flush() -> None:
    """Have our output out before the exit code is, whatever became of its reader."""
    try:
        sys.stdout.flush()
    except OSError:
        _silence_stdout()


def _judged(error: BaseException) -> tuple[str, int]:
    from tony_core.job.problems import JobError
    from tony_core.schedulers.port import (
        BadEnvironment,
        NoSuchApplication,
        NoSuchScheduler,
        SchedulerError,
    )

    if isinstance(error, JobError):
        return bad_job(error), ExitCode.BAD_JOB
    if isinstance(error, (UsageError, BadEnvironment, NoSuchApplication, NoSuchScheduler)):
        return str(error), ExitCode.BAD_JOB
    if isinstance(error, SchedulerError):
        return str(error), ExitCode.REFUSED
    from tony_core.bundle import StagingError

    if isinstance(error, StagingError):
        return str(error), ExitCode.REFUSED
    if isinstance(error, ClientError):
        return str(error), ExitCode.FAILED
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}", ExitCode.REFUSED
    if isinstance(error, OSError) and error.errno in _NOT_WRITABLE:
        return f"cannot write: {error.strerror}", ExitCode.REFUSED
    if isinstance(error, FileNotFoundError) and "temporary directory" in str(error):
        text = f"{error.strerror}; make room there, or set TMPDIR to a folder that you can write"
        return text, ExitCode.REFUSED
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("tony_"):
        text = f"the Python module {error.name} is missing here; pip install tony-py brings it"
        return text, ExitCode.INTERNAL
    name = type(error).__name__
    return (
        f"internal error: {name}: {error}\nThis is a fault of tony's, not of the job's; the"
        " same command with --debug shows where it happened."
    ), ExitCode.INTERNAL


def bad_job(error: BaseException) -> str:
    """Every problem of a job, one a line, without what they may quote of secrets."""
    from tony_core.job.mask import mask_problems
    from tony_core.job.problems import JobError, errors

    assert isinstance(error, JobError)
    lines = mask_problems(errors(error.problems) or error.problems)
    if len(lines) == 1:
        return lines[0]
    return "\n  ".join([f"the job has {len(lines)} problems:", *lines])


def _silence_stdout() -> None:
    # Or the interpreter's own flush at its end complains.
    try:
        empty = os.open(os.devnull, os.O_WRONLY)
        os.dup2(empty, sys.stdout.fileno())
        os.close(empty)
    except (OSError, ValueError):
        pass

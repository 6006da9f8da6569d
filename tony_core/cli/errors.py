"""Turns an error into one message on standard error and an exit code, in one table."""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import Optional

from tony_core.cli.interrupts import Interrupted
from tony_core.cli.output import print_error
from tony_core.client.errors import ClientError, TunnelError, UsageError
from tony_core.client.exit_codes import ExitCode
from tony_core.exit_causes import exit_code_of
from tony_core.job.problems import JobError, errors
from tony_core.schedulers.port import (
    BadEnvironment,
    NoSuchApplication,
    NoSuchScheduler,
    SchedulerError,
)

_NOT_WRITABLE = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS)


def report_error(error: BaseException, debug: bool) -> Optional[int]:
    """Print an error and return its exit code; ``None`` for what is no error (SystemExit)."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 0 if error.code is None else None
    if isinstance(error, BrokenPipeError):
        # The reader of our output went away (head, less).
        _discard_stdout()
        return int(ExitCode.BROKEN_PIPE)
    if debug:
        import traceback

        print_error("".join(traceback.format_exception(error)))
    if isinstance(error, Interrupted):
        print_message(str(error))
        return exit_code_of(error.number)
    if isinstance(error, KeyboardInterrupt):
        print_message("interrupted")
        return exit_code_of(signal.SIGINT)
    text, code = _message_of(error)
    print_message(text)
    return code


def print_message(text: str) -> None:
    """Print one message for a person."""
    first, _, rest = text.partition("\n")
    try:
        print_error(f"tony: {first}\n" + (f"{rest}\n" if rest else ""))
    except OSError:
        pass  # the terminal is gone


def flush() -> None:
    """Flush our output before the exit, whether or not its reader is still there."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()


def _message_of(error: BaseException) -> tuple[str, int]:
    if isinstance(error, JobError):
        return bad_job(error), ExitCode.BAD_JOB
    if isinstance(error, (UsageError, BadEnvironment, NoSuchApplication, NoSuchScheduler)):
        return str(error), ExitCode.BAD_JOB
    if isinstance(error, SchedulerError):
        return str(error), ExitCode.REFUSED
    from tony_core.bundle.client.staging_errors import StagingError

    if isinstance(error, StagingError):
        return str(error), ExitCode.REFUSED
    if isinstance(error, TunnelError):
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
        text = (
            f"the Python module {error.name} is missing here; pip install {error.name}, or install"
            " TonY again with the extra that needs it (in a checkout: pip install '.[portal]')"
        )
        return text, ExitCode.INTERNAL
    name = type(error).__name__
    return (
        f"internal error: {name}: {error}\nThis is a fault in tony, not in the job. Run the same"
        " command with --debug to see where it happened."
    ), ExitCode.INTERNAL


def bad_job(error: BaseException) -> str:
    """Every problem of a job, one a line, with secrets masked."""
    from tony_core.job.mask import mask_problems

    assert isinstance(error, JobError)
    lines = mask_problems(errors(error.problems) or error.problems)
    if len(lines) == 1:
        return lines[0]
    return "\n  ".join([f"the job has {len(lines)} problems:", *lines])


def _discard_stdout() -> None:
    # Or the interpreter's own flush at its end complains.
    try:
        empty = os.open(os.devnull, os.O_WRONLY)
        os.dup2(empty, sys.stdout.fileno())
        os.close(empty)
    except (OSError, ValueError):
        pass

"""The verb ``master``: one attempt at being a job's master, in a process of its own.

``master --scheduler NAME ...``: the scheduler's own arguments follow, which its ``open_master``
reads (for schedulers of this package, in ``tony_core.schedulers.NAME``). Exit code 0: the job has
ended, whatever its end; anything else: this master crashed. A master that crashes leaves a
running job to the next attempt. It ends the job itself only when no attempt can follow, or when
no container runs yet that could wait for one.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from tony_core.files.artifact import Artifact
from tony_core.files.location import is_remote, join, local_path
from tony_core.files.registry import filesystem
from tony_core.frameworks import find_framework
from tony_core.frameworks.base import Framework
from tony_core.history.layout import StoryKind
from tony_core.job.jsonfile import job_from_json
from tony_core.job.spec import Job, Limits
from tony_core.jsontext import read_value
from tony_core.loopback import NoLoopback
from tony_core.master.master import Master
from tony_core.master.state.finalize import finish_application
from tony_core.schedulers import open_master
from tony_core.schedulers.container_pool import ContainerPool, MasterContext
from tony_core.schedulers.port import AppState, LastingRefusal, SchedulerError

CRASHED = 1
USAGE = 2
REASON_S = 2.0  # the longest wait for the reason of a kill in a remote file
MOST_BYTES = 1 << 16
SPARE_FILES = 200  # open besides one connection for each task: files, the scheduler
OTHER_CALLERS = 800  # 512 unauthenticated connections, 128 readers of pages (two files each)
SERVICE_FILES = (5, 512)  # for a framework's own service: for each task, and in all


class CannotStart(Exception):
    """The job can never run, for the reason in the text; another attempt would not help."""


def main(argv: Sequence[str]) -> int:
    """Run as the master until the job has ended; return the exit code."""
    try:
        args = arguments(argv)
    except ValueError as error:
        sys.stderr.write(f"master: {error}\n")
        return USAGE
    try:
        context, pool = open_master(args)
    except SchedulerError as error:
        _write(f"this master cannot start: {error}")
        return CRASHED
    except Exception:
        sys.stderr.write("this master cannot start:\n" + _traceback())
        return CRASHED
    return serve(context, pool)


def arguments(argv: Sequence[str]) -> SimpleNamespace:
    """Parse ``--app-dir X`` to ``app_dir="X"``; the scheduler knows which names it takes."""
    found: Dict[str, str] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or not words:
            raise ValueError(f"unexpected argument {word!r}; expected --name VALUE")
        found[word[2:].replace("-", "_")] = words.pop(0)
    if not found.get("scheduler", "").isidentifier():
        raise ValueError("the option --scheduler NAME is missing")
    return SimpleNamespace(**found)


def serve(context: MasterContext, pool: ContainerPool) -> int:
    """Run one attempt; when it crashes, report why and end the job if no attempt can follow."""
    master: Optional[Master] = None
    limit: Optional[threading.Timer] = None
    try:
        job, artifacts, config = read_job(context)
        has_begun = lambda: master is not None and master.info is not None  # noqa: E731
        limit = startup_limit(job.master.startup_timeout_s, has_begun)
        tasks = sum(role.instances for role in job.roles)
        serves = type(find_framework(job.framework)).serve is not Framework.serve
        callers = SERVICE_FILES[0] * tasks + SERVICE_FILES[1] if serves else 0
        short = open_enough_files(tasks, callers)
        warning = check_fetch(pool)
        master = Master(context, pool, job, artifacts, config)
        if master.ended_before():
            return 0
        if short:
            master.log(short)
        if warning:
            master.reactor.call_later(0, master.warn, StoryKind.TOKENS, warning)
        with Signals(master, context), WorkerThreads(master):
            gc.freeze()  # what is there now stays: the collector need not look at it again
            master.run()
        return 0
    except (CannotStart, NoLoopback) as error:
        try:
            _finish(context, pool, master, AppState.FAILED, str(error))
        except SchedulerError as refusal:
            _write(str(error))
            return _not_accepted(pool, refusal)
        return 0
    except BaseException as error:
        if isinstance(error, SchedulerError) and (master is None or master.info is None):
            return _not_accepted(pool, error)
        _crashed(context, pool, master, error)
        return CRASHED
    finally:
        if limit is not None:
            limit.cancel()
        if master is not None:
            master.close()


def check_fetch(pool: ContainerPool) -> str:
    """End a job now that can never get fresh tokens; a warning where that is not known yet."""
    problem = pool.check_fetch()
    if isinstance(problem, LastingRefusal):
        raise CannotStart(
            f"the job ships a keytab, by which no fresh tokens can be fetched. {problem}. That is"
            " the administrator's to mend; without tony.kerberos.ship-keytab the job runs until its"
            " tokens end"
        )
    return f"no login by the shipped keytab: {problem}" if problem else ""


def startup_limit(
    seconds: float, has_begun: Callable[[], bool], leave: Callable[[int], object] = os._exit
) -> threading.Timer:
    """Start a timer that ends this process unless the scheduler has registered it by then.

    Any call may block the master (a file system, a name server, the scheduler), so the timer does
    not wait for it to return. To the scheduler this is an attempt that failed.
    """

    def look() -> None:
        if not has_begun():
            _write(
                f"the master had not begun after {seconds:g} s (tony.am.startup-timeout); it was"
                f" waiting in {_position()}"
            )
            sys.stderr.flush()
            leave(CRASHED)

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), look)
    timer.name, timer.daemon = "startup-timeout", True
    timer.start()
    return timer


def _position() -> str:
    """Name the function of ours that the main thread is in."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        code = frame.f_code
        if "tony_core" in code.co_filename:
            path = code.co_filename[code.co_filename.rindex("tony_core") :]
            return f"{code.co_name} ({path}:{frame.f_lineno})"
        frame = frame.f_back
    return "no code of TonY's"


def _not_accepted(pool: ContainerPool, error: SchedulerError) -> int:
    """Write one line, which the scheduler shows with the attempt; a traceback would not help."""
    _write(f"the scheduler did not accept this master: {error}")
    pool.close()
    return CRASHED


def open_enough_files(tasks: int, callers: int = 0) -> str:
    """Raise the limit of open files to what the tasks need; return a warning if it stays too low.

    The limit includes other connections and those of a framework's service (``callers``) as far as
    the hard limit allows: callers wait where it does not.
    """
    needed = tasks + SPARE_FILES
    wanted = needed + OTHER_CALLERS + callers
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return ""
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most >= needed:
        return ""
    return (
        f"{tasks} tasks need {needed} open files in their master, but its hard limit is {hard}:"
        " some tasks will not be able to connect to it. Ask the node's administrator for a larger"
        " hard limit (ulimit -Hn)"
    )


def read_job(context: MasterContext) -> Tuple[Job, Tuple[Artifact, ...], Optional[bytes]]:
    """Read the job, its artifacts and its configuration as the client staged them."""
    files = filesystem(context.job_dir)
    try:
        job = job_from_json(files.get(join(context.job_dir, "job.json")).decode())
        listed = read_value(files.get(join(context.job_dir, "artifacts.json")))
        artifacts = tuple(Artifact.from_json(item) for item in listed)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CannotStart(
            f"the staged job cannot be read ({type(error).__name__}: {error}); was it staged by"
            " another version of tony?"
        ) from error
    try:
        config: Optional[bytes] = files.get(join(context.job_dir, "tony-final.xml"))
    except FileNotFoundError:
        config = None
    if job.limits != Limits():
        from tony_core.job.limits import check_limits  # brings decimal numbers and more

        problems = check_limits(job)
        if problems:
            raise CannotStart("\n".join(str(problem) for problem in problems))
    return job, artifacts, config


def _crashed(
    context: MasterContext, pool: ContainerPool, master: Optional[Master], error: BaseException
) -> None:
    """Write the traceback to stderr and to a file; end the job if no attempt follows."""
    text = f"the master crashed (a fault of tony's own): {type(error).__name__}: {error}"
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full:  # no fault of the code, and only a short text may still fit
        text = f"the disk on which the master keeps its state is full ({error}): free some space"
    report = f"{text}\n" if full else _traceback()
    sys.stderr.write(report if full else "the master crashed (a fault of tony's own):\n" + report)
    sys.stderr.flush()
    try:
        path = Path(local_path(context.work_dir)) / f"crash-{context.attempt}.txt"
        path.write_text(report, encoding="utf-8")
    except OSError:
        pass  # stderr has it
    info = master.info if master is not None else None
    another = info is not None and info.can_restart_master
    if another and master is not None and master.running():
        return  # its executors start the next attempt
    try:
        _finish(context, pool, master, AppState.FAILED, text)
    except Exception:
        sys.stderr.write(
            "and the scheduler did not take this outcome:\n" + (text if full else _traceback())
        )


def _traceback() -> str:
    import traceback

    return traceback.format_exc()


def _write(text: str) -> None:
    sys.stderr.write(text + "\n")


def _finish(
    context: MasterContext,
    pool: ContainerPool,
    master: Optional[Master],
    state: AppState,
    diagnostics: str,
) -> None:
    """End the job without a session machine."""
    if master is None or master.info is None:
        pool.start(lambda event: None, "")
    finish_application(context, pool, state, diagnostics, "", _write)
    pool.close()


class WorkerThreads:
    """Logs an exception that ended a worker thread with its traceback, and shows it in the story.

    The threads themselves handle what a single piece of work raises; this is for the rest.
    """

    def __init__(self, master: Master) -> None:
        self._master = master
        self._old: Any = None

    def __enter__(self) -> WorkerThreads:
        self._old = threading.excepthook
        threading.excepthook = self._ended
        return self

    def __exit__(self, *_error: object) -> None:
        threading.excepthook = self._old

    def _ended(self, args: Any) -> None:
        import traceback

        name = args.thread.name if args.thread is not None else "?"
        why = traceback.format_exception_only(args.exc_type, args.exc_value)[-1].strip()
        text = f"the thread {name} ended by a fault of tony's own: {why}"
        lines = traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback)
        self._master.log("".join(lines).rstrip())
        self._master.reactor.call_soon_threadsafe(self._master.warn, StoryKind.FAULT, text)


class Signals:
    """Ends the job at SIGTERM and SIGINT; ignores SIGHUP, which concerns terminals.

    The process that sends the signal leaves its reason in a file. A remote file (HDFS) is read by a
    thread, for at most :data:`REASON_S`; a second signal ends the job without that wait.
    """

    def __init__(self, master: Master, context: MasterContext) -> None:
        self._master = master
        self._kill_file = context.kill_file or join(context.state_dir, "kill.json")
        self._count = 0
        self._has_reason = False
        self._old: List[Tuple[int, Any]] = []

    def __enter__(self) -> Signals:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._old.append((number, signal.signal(number, self._arrived)))
        self._old.append((signal.SIGHUP, signal.signal(signal.SIGHUP, signal.SIG_IGN)))
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._old:
            signal.signal(number, handler)

    def _arrived(self, number: int, _frame: object) -> None:
        self._master.reactor.call_soon_threadsafe(self._kill, number)

    def _kill(self, number: int) -> None:
        self._count += 1
        if self._count == 1 and is_remote(self._kill_file):
            reactor = self._master.reactor
            reactor.call_later(REASON_S, self._kill_for, describe_kill(None, number))

            def read() -> None:
                reason = kill_reason(self._kill_file, number)
                reactor.call_soon_threadsafe(self._kill_for, reason)

            threading.Thread(target=read, name="kill-reason", daemon=True).start()
        elif is_remote(self._kill_file):
            self._kill_for(describe_kill(None, number))
            self._master.kill(describe_kill(None, number))  # the second kill has no grace
        else:
            self._kill_for(kill_reason(self._kill_file, number), again=True)

    def _kill_for(self, reason: str, again: bool = False) -> None:
        if self._has_reason and not again:
            return
        self._has_reason = True
        self._master.kill(reason)
        self._master.keep()  # history has the reason even if this process dies before the end


def kill_reason(kill_file: str, number: int) -> str:
    """Read the reason for the kill; the signal's name where there is none."""
    try:
        return describe_kill(read_value(filesystem(kill_file).get(kill_file, MOST_BYTES)), number)
    except (OSError, ValueError):
        return describe_kill(None, number)


def describe_kill(request: Any, number: int) -> str:
    """Put the content of a kill file into words; ``None`` is a signal without one."""
    reason = by = ""
    if isinstance(request, dict):
        reason, by = str(request.get("reason") or ""), str(request.get("by") or "")
    if not reason:
        reason = f"the master received {signal.Signals(number).name}"
    return f"{reason} (by {by})" if by and by not in reason else reason


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

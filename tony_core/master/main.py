"""The verb ``master``: one attempt at being a job's master, in a process of its own.

``master --scheduler NAME ...``: the scheduler's own words follow, and its ``open_master``
(ours: in ``tony_core.schedulers.NAME.pool``) reads them. Exit code 0: the job has
ended, whatever its end; anything else: this master crashed. A master that crashes leaves a
running job to the next attempt; it ends the job itself only when none can follow, or when
nothing runs yet that could start one.
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
from tony_core.job.jsonfile import job_from_json
from tony_core.job.spec import Job, Limits
from tony_core.jsontext import read_value
from tony_core.loopback import NoLoopback
from tony_core.master.master import Master
from tony_core.master.state.finalize import finish_application
from tony_core.schedulers import open_master
from tony_core.schedulers.port import AppState, ContainerPool, MasterContext, SchedulerError

CRASHED = 1
USAGE = 2
REASON_S = 2.0  # that the reason of a kill may take to be read elsewhere
MOST_BYTES = 1 << 16
SPARE_FILES = 200  # that are open besides one connection for each task: files, the scheduler
CROWD_FILES = 800  # for who may come besides: 512 strangers, 128 readers of pages (two each)
SERVICE_FILES = (5, 512)  # for a framework's own service: for each task, and in all


class CannotStart(Exception):
    """The job can never run: whose fault it is stands in the text. No attempt need follow."""


def main(argv: Sequence[str]) -> int:
    """Be the master until the job has ended."""
    try:
        args = arguments(argv)
    except ValueError as error:
        sys.stderr.write(f"master: {error}\n")
        return USAGE
    try:
        context, pool = open_master(args)
    except Exception:
        sys.stderr.write("the scheduler did not accept this master:\n" + _story())
        return CRASHED
    return serve(context, pool)


def arguments(argv: Sequence[str]) -> SimpleNamespace:
    """``--app-dir X`` as ``app_dir="X"``: every word is the scheduler's to understand."""
    found: Dict[str, str] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or not words:
            raise ValueError(f"{word!r} is not one of --name VALUE")
        found[word[2:].replace("-", "_")] = words.pop(0)
    if not found.get("scheduler", "").isidentifier():
        raise ValueError("--scheduler NAME is missing")
    return SimpleNamespace(**found)


def serve(context: MasterContext, pool: ContainerPool) -> int:
    """The attempt, and what is left to say when it crashes."""
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
        master = Master(context, pool, job, artifacts, config)
        if master.ended_before():
            return 0
        if short:
            master.log(short)
        with Signals(master, context), WorkerThreads(master):
            gc.freeze()  # what is there now stays: the collector need not look at it again
            master.run()
        return 0
    except (CannotStart, NoLoopback) as error:
        try:
            _finish(context, pool, master, AppState.FAILED, str(error))
        except SchedulerError as refusal:
            _say(str(error))
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


def startup_limit(
    seconds: float, has_begun: Callable[[], bool], leave: Callable[[int], object] = os._exit
) -> threading.Timer:
    """A started timer that ends this process if the scheduler has not taken its master by then.

    What holds the master up may be any call (a file system, a name, the scheduler), so it is not
    asked to return. To the scheduler this is an attempt that failed.
    """

    def look() -> None:
        if not has_begun():
            _say(
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
    """Where the main thread is in our code."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        code = frame.f_code
        if "tony_core" in code.co_filename:
            path = code.co_filename[code.co_filename.rindex("tony_core") :]
            return f"{code.co_name} ({path}:{frame.f_lineno})"
        frame = frame.f_back
    return "no code of TonY's"


def _not_accepted(pool: ContainerPool, error: SchedulerError) -> int:
    """Nobody's bug: one line has to do, in a log that the scheduler shows with the attempt."""
    _say(f"the scheduler did not accept this master: {error}")
    pool.close()
    return CRASHED


def open_enough_files(tasks: int, more: int = 0) -> str:
    """Raise our own limit to what that many tasks need; what is wrong where it cannot be.

    For the rest, a crowd of strangers and a service's callers (``more``), as far as it can be:
    where there is less of it they wait.
    """
    needed = tasks + SPARE_FILES
    wanted = needed + CROWD_FILES + more
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return ""
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most >= needed:
        return ""
    return (
        f"{tasks} tasks need {needed} open files in their master, and {hard} is what it may have:"
        " some of them will not be able to call it; ask who runs this node for a larger hard limit"
        " (ulimit -Hn)"
    )


def read_job(context: MasterContext) -> Tuple[Job, Tuple[Artifact, ...], Optional[bytes]]:
    """What was staged for the master."""
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
    """Say it where it can be found; end the job if no other master can."""
    text = f"the master crashed (a fault of tony's own): {type(error).__name__}: {error}"
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full:  # nobody's fault in the code, and few words may still find room
        text = f"the disk on which the master keeps its state is full ({error}): free some space"
    story = f"{text}\n" if full else _story()
    sys.stderr.write(story if full else "the master crashed (a fault of tony's own):\n" + story)
    sys.stderr.flush()
    try:
        path = Path(local_path(context.work_dir)) / f"crash-{context.attempt}.txt"
        path.write_text(story, encoding="utf-8")
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
            "and the scheduler did not take this outcome:\n" + (text if full else _story())
        )


def _story() -> str:
    """The exception that is being handled, in full."""
    import traceback

    return traceback.format_exc()


def _say(text: str) -> None:
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
    finish_application(context, pool, state, diagnostics, "", _say)
    pool.close()


class WorkerThreads:
    """A worker thread that an exception ends is logged with its traceback, and shown in the story.

    The threads survive what a single piece of work raises; this is for what gets past that.
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
        self._master.reactor.call_soon_threadsafe(self._master.warn, "fault", text)


class Signals:
    """TERM and INT ask for the job's end; HUP is a terminal's business, not ours.

    Why is told by a file that whoever asks leaves. One that stands elsewhere (HDFS) is read by
    a thread, and what it says is waited for, for so long; whoever asks again waits for nothing.
    """

    def __init__(self, master: Master, context: MasterContext) -> None:
        self._master = master
        self._kill_file = context.kill_file or join(context.state_dir, "kill.json")
        self._asked = 0
        self._told = False
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
        self._asked += 1
        if self._asked == 1 and is_remote(self._kill_file):
            reactor = self._master.reactor
            reactor.call_later(REASON_S, self._say, said_by(None, number))

            def read() -> None:
                reactor.call_soon_threadsafe(self._say, kill_reason(self._kill_file, number))

            threading.Thread(target=read, name="kill-reason", daemon=True).start()
        elif is_remote(self._kill_file):
            self._say(said_by(None, number))
            self._master.kill(said_by(None, number))  # once more: no grace
        else:
            self._say(kill_reason(self._kill_file, number), again=True)

    def _say(self, reason: str, again: bool = False) -> None:
        if self._told and not again:
            return
        self._told = True
        self._master.kill(reason)
        self._master.keep()  # should nobody of us live to tell the end, history has the reason


def kill_reason(kill_file: str, number: int) -> str:
    """What who asked for the end left as a reason; the signal's name otherwise."""
    try:
        return said_by(read_value(filesystem(kill_file).get(kill_file, MOST_BYTES)), number)
    except (OSError, ValueError):
        return said_by(None, number)


def said_by(told: Any, number: int) -> str:
    """The words of a reason that was left, or of none."""
    reason = by = ""
    if isinstance(told, dict):
        reason, by = str(told.get("reason") or ""), str(told.get("by") or "")
    if not reason:
        reason = f"the master received {signal.Signals(number).name}"
    return f"{reason} (by {by})" if by and by not in reason else reason


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

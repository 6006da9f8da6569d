"""``tony.on_preemption()`` and ``tony.preemption()``: the scheduler takes containers back.

Without dependencies, beside tony.py. The executor gives notice by files (``TONY_PREEMPTION_FILE``
and a number) that it holds locked until something stands in them: a thread of this process waits
for the lock. It is started by the first call, so a program that never calls has none. Where files
cannot be locked the thread looks once a second.

Callbacks run in that thread, not between two instructions of the main one: that may be inside of a
collective for longer than there is time, or hold a lock that the callback wants. A child that is
forked has no such thread and no callbacks, until it calls itself.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from tony_reports import reporter

_LOOK_S = 1.0  # where files cannot be locked


class Preemption(NamedTuple):
    """The scheduler takes back a container that this program needs."""

    seconds_left: Optional[float]  # at least; None: the scheduler gives no time
    is_own: bool  # this task's container; else that of a task without which it cannot go on


class _Callbacks(NamedTuple):
    warned: Callable[[Optional[float]], Any]
    withdrawn: Optional[Callable[[], Any]]


class _Watch:
    """The notices of the executor, read in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._callbacks: List[_Callbacks] = []
        self._number = 1  # of the next notice
        self._notice: Optional[Dict[str, Any]] = None  # the last; None: nothing is taken back
        self._is_noticed = False

    def register(
        self, warned: Callable[[Optional[float]], Any], withdrawn: Optional[Callable[[], Any]]
    ) -> None:
        """Call these from now on; at once if a container is being taken back already."""
        entry = _Callbacks(warned, withdrawn)
        self._start()
        with self._lock:
            if entry in self._callbacks:
                return
            self._callbacks.append(entry)
            notice = self._notice
        if notice is not None:
            self._run(lambda: self._call([entry], notice), "tony-preemption-late")

    def current(self) -> Optional[Preemption]:
        """What is being taken back now."""
        self._start()
        with self._lock:
            notice = self._notice
        if notice is None:
            return None
        self._report()
        return Preemption(_seconds_left(notice), notice.get("own") is not False)

    def _start(self) -> None:
        """Read what stands there already, and start the thread; once."""
        with self._lock:
            if self._thread is not None or not os.environ.get("TONY_PREEMPTION_FILE"):
                return
            while self._read() is not None:
                pass
            self._thread = self._run(self._watch, "tony-preemption")

    def _run(self, what: Callable[[], None], name: str) -> Optional[threading.Thread]:
        thread = threading.Thread(target=what, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter is ending
            return None
        return thread

    def _watch(self) -> None:
        while True:
            with self._lock:
                number = self._number
            path = _path(number)
            try:
                _wait_for_lock(path)
            except FileNotFoundError:
                return  # the program's task is over
            except OSError:
                time.sleep(_LOOK_S)
            with self._lock:
                before = self._notice
                notice = self._read()
                following = notice
                while following is not None:  # only the last one counts
                    notice, following = following, self._read()
                callbacks = list(self._callbacks)
            if notice is None:
                time.sleep(_LOOK_S)  # no locks here, or no executor any more
            elif not notice.get("withdrawn"):
                self._call(callbacks, notice)
            elif before is not None:
                for entry in callbacks:
                    if entry.withdrawn is not None:
                        _call_safely(entry.withdrawn)

    def _read(self) -> Optional[Dict[str, Any]]:
        """The next notice, if it stands there; taken as the last one. Needs the lock."""
        try:
            with open(_path(self._number), "rb") as file:
                notice = json.loads(file.read(4096))
        except (OSError, ValueError):
            return None
        if not isinstance(notice, dict):
            return None
        self._number += 1
        self._notice = None if notice.get("withdrawn") else notice
        self._is_noticed = False
        return notice

    def _call(self, callbacks: List[_Callbacks], notice: Dict[str, Any]) -> None:
        if callbacks:
            self._report()
        for entry in callbacks:
            _call_safely(functools.partial(entry.warned, _seconds_left(notice)))

    def _report(self) -> None:
        """Let the executor know that the program knows: it judges an exit that follows by it."""
        if not self._is_noticed and os.environ.get("TONY_REPORT_FILE"):
            self._is_noticed = True
            reporter.write_now("preemption", True)


def _path(number: int) -> str:
    return f"{os.environ.get('TONY_PREEMPTION_FILE', '')}.{number}"


def _wait_for_lock(path: str) -> None:
    import fcntl  # outside of a job there may be none

    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_SH)
    finally:
        os.close(file)


def _seconds_left(notice: Dict[str, Any]) -> Optional[float]:
    until = notice.get("until")
    if isinstance(until, bool) or not isinstance(until, (int, float)):
        return None
    return max(0.0, until - time.monotonic())


def _call_safely(callback: Callable[[], Any]) -> None:
    """A callback that raises ends neither the program nor the other callbacks."""
    try:
        callback()
    except Exception:
        sys.stderr.write("tony.on_preemption: a callback failed\n")
        traceback.print_exc()


_watch = _Watch()


def _forked() -> None:
    global _watch
    _watch = _Watch()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _check(name: str, function: Any, takes: str, *arguments: float) -> None:
    """Refuse now what could not be called in the seconds in which a container is lost."""
    import inspect  # 10 ms, for programs that register something

    wanted = f"on_preemption() expects for {name!r} a function of {takes}"
    if not callable(function):
        raise TypeError(f"{wanted}; {function!r:.80} cannot be called")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a builtin that does not say what it takes
    try:
        signature.bind(*arguments)
    except TypeError as error:
        shown = getattr(function, "__name__", type(function).__name__)
        raise TypeError(f"{wanted}; {shown}{signature} cannot be called so: {error}") from None


def on_preemption(
    callback: Callable[[Optional[float]], Any], withdrawn: Optional[Callable[[], Any]] = None
) -> Callable[[Optional[float]], Any]:
    """Call ``callback(seconds_left)`` when the scheduler takes back a container that is needed.

    In a thread of its own, with None where the scheduler gives no time; ``withdrawn()`` when the
    container stays after all. The same functions are registered once. Nothing outside of a job.
    Returns the callback, so it may be used as a decorator.
    """
    _check("callback", callback, "one argument, the seconds left", 0.0)
    if withdrawn is not None:
        _check("withdrawn", withdrawn, "no arguments")
    _watch.register(callback, withdrawn)
    return callback


def preemption() -> Optional[Preemption]:
    """What the scheduler takes back now, to be asked at each step: None nearly always."""
    return _watch.current()

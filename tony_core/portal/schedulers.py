"""The schedulers for the portal's many threads: each call with a deadline, each viewer as himself.

Theory of operation
===================

A scheduler's object is for one caller at a time, and a call to a sick ResourceManager may take
minutes. So each call runs in a thread of its own, on an object of its own, and the
caller waits no longer than its deadline. A call that is late keeps its object and its place until
it returns; then the object is closed. Places are limited, for each scheduler and for each user, so
that what does not answer takes a bounded number of threads, and one user's clicks take no other's
place.

*Who asks.* A portal for its own user asks as that user. A portal for many asks in the viewer's name
(a proxy user, :mod:`tony_core.hadoop.identity`): the cluster decides what he may see. The embedded
scheduler has one user, whom the portal runs as.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from typing import Callable, Dict, Generic, List, Mapping, Optional, Tuple, TypeVar

from tony_core.client.lookup import only_own
from tony_core.files.registry import SeparateRegistry
from tony_core.hadoop.identity import PROXY_USER, find_name_problem
from tony_core.schedulers import open_scheduler
from tony_core.schedulers.port import Scheduler, SchedulerError
from tony_core.unexpected_errors import UnexpectedErrors

CALL_S = 5.0
LIST_OWN_S = 20.0
CALLS = 24  # at a time, to one scheduler
CALLS_OF_USER = 6  # of them in one user's name
IDLE = 32  # objects that are kept open
EMBEDDED = "local"

T = TypeVar("T")
_Key = Tuple[str, str]  # scheduler, and the user in whose name


class TooLate(SchedulerError):
    """No answer within the deadline; the call may still be going on."""


class _Call(Generic[T]):
    """A call on its way, and what became of it."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.result: List[T] = []
        self.error: Optional[BaseException] = None


def call_within(ask: Callable[[], T], within_s: float, what: str) -> T:
    """The result of a call in a thread of its own; :class:`TooLate` after ``within_s``."""
    call: _Call[T] = _Call()

    def work() -> None:
        try:
            call.result.append(ask())
        except BaseException as error:
            call.error = error
        finally:
            call.done.set()

    threading.Thread(target=work, name=f"portal: {what}"[:60], daemon=True).start()
    if not call.done.wait(within_s):
        raise TooLate(f"{what}: no answer within {within_s:g} s")
    if call.error is not None:
        raise call.error
    return call.result[0]


class _Member:
    """A scheduler's object, and the file systems that it registered."""

    def __init__(self, name: str, env: Mapping[str, str]) -> None:
        self._files = SeparateRegistry()
        with self._files:
            self.scheduler = open_scheduler(name, env)

    def ask(self, ask: Callable[[Scheduler], T]) -> T:
        with self._files:
            return ask(self.scheduler)

    def close(self) -> None:
        try:
            with self._files:
                self.scheduler.close()
        finally:
            self._files.close()


class SchedulerPool:
    """The schedulers of the portal's settings, for any thread."""

    def __init__(
        self,
        names: Tuple[str, ...],
        *,
        is_for_many: bool = False,
        env: Optional[Mapping[str, str]] = None,
    ) -> None:
        self.names = names
        self._is_for_many = is_for_many
        self._env = dict(os.environ if env is None else env)
        self._changed = threading.Condition()
        self._idle: OrderedDict[_Key, List[_Member]] = OrderedDict()
        self._busy: Dict[_Key, int] = {}
        self._closed = False
        self.errors = UnexpectedErrors()

    def user_for(self, name: str, viewer: str) -> str:
        """In whose name a viewer's calls go to a scheduler; empty: in the portal's own."""
        return viewer if self._is_for_many and name != EMBEDDED else ""

    def call(
        self,
        name: str,
        ask: Callable[[Scheduler], T],
        *,
        user: str = "",
        within_s: float = CALL_S,
        what: str = "",
    ) -> T:
        """What ``ask`` gives for the scheduler, in a user's name.

        Raises what it raises, SchedulerError for what goes wrong before, TooLate.
        """
        what = f"the scheduler {name}" + (f", {what}" if what else "")
        if user:
            problem = find_name_problem(user)
            if problem:
                raise SchedulerError(f"{what}: the viewer's name {problem}")
        key = (name, user)
        self._take_place(key, time.monotonic() + within_s, what)
        late = threading.Event()

        def work() -> T:
            member: Optional[_Member] = None
            sound = False
            try:
                member = self._take(key)
                found = member.ask(ask)
                sound = True
                return found
            except SchedulerError:
                sound = True
                raise
            finally:
                self._put_back(key, member, sound and not late.is_set())

        try:
            return call_within(work, within_s, what)
        except TooLate:
            late.set()
            raise

    def list_own(self) -> List[str]:
        """The ids of all jobs, also ended ones, of the portal's own user.

        A scheduler that does not answer hides no other's.
        """
        found: List[str] = []
        for name in self.names:
            with suppress(SchedulerError):
                found += self.call(
                    name,
                    lambda scheduler: [
                        status.app_id for status in only_own(scheduler, scheduler.list())
                    ],
                    within_s=LIST_OWN_S,
                    what="the list of your jobs",
                )
        return found

    def close(self) -> None:
        """Close what is idle; what is in use closes when its call returns."""
        with self._changed:
            self._closed = True
            members = [member for kept in self._idle.values() for member in kept]
            self._idle.clear()
        for member in members:
            self._close(member)

    # ------------------------------------------------------------------ places and objects

    def _take_place(self, key: _Key, deadline: float, what: str) -> None:
        def is_free() -> bool:
            all_calls = sum(count for (name, _), count in self._busy.items() if name == key[0])
            return all_calls < CALLS and self._busy.get(key, 0) < CALLS_OF_USER

        with self._changed:
            if not self._changed.wait_for(is_free, max(0.0, deadline - time.monotonic())):
                raise TooLate(f"{what}: {self._busy.get(key, 0)} earlier calls have no answer yet")
            self._busy[key] = self._busy.get(key, 0) + 1

    def _take(self, key: _Key) -> _Member:
        with self._changed:
            kept = self._idle.get(key)
            if kept:
                member = kept.pop()
                if not kept:
                    del self._idle[key]
                return member
        name, user = key
        return _Member(name, {**self._env, PROXY_USER: user} if user else self._env)

    def _put_back(self, key: _Key, member: Optional[_Member], keep: bool) -> None:
        surplus: List[_Member] = []
        with self._changed:
            self._busy[key] -= 1
            if not self._busy[key]:
                del self._busy[key]
            if member is not None:
                if keep and not self._closed:
                    self._idle.setdefault(key, []).append(member)
                    self._idle.move_to_end(key)
                else:
                    surplus.append(member)
            while sum(map(len, self._idle.values())) > IDLE:
                oldest = next(iter(self._idle))
                surplus.append(self._idle[oldest].pop(0))
                if not self._idle[oldest]:
                    del self._idle[oldest]
            self._changed.notify_all()
        for one in surplus:
            self._close(one)

    def _close(self, member: _Member) -> None:
        try:
            member.close()
        except Exception:
            self.errors.record("closing a scheduler")

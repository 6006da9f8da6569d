"""Connections to one scheduler, kept open between calls.

A scheduler's connections serve one caller at a time. Several threads may call, and a kill comes in
a signal handler, in the middle of another call. So each caller takes an idle client or opens a new
one, and no caller holds a lock: a handler that waited for one would wait for itself.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import Callable, Deque, Iterator, Mapping

from tony_core.client.api import Client
from tony_core.files.registry import SeparateRegistry
from tony_core.schedulers.port import NoSuchApplication, Scheduler

Environment = Callable[[], Mapping[str, str]]


class PooledClient:
    """A client with file systems of its own, for one caller at a time.

    Call the client inside ``with pooled.files:``. A generator must leave that block before each
    yield, since the code that takes the value is not the client.
    """

    def __init__(self, scheduler: str, env: Mapping[str, str]) -> None:
        self.files = SeparateRegistry()
        with self.files:
            # Jobs are other people's than the machine's: its keytabs are no files of theirs.
            self.client = Client(scheduler, env, refuse_logins=True)

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler that the client calls."""
        return self.client.scheduler

    def close(self) -> None:
        """Close its connections."""
        with self.files:
            self.client.close()
        self.files.close()


class ClientPool:
    """The clients of one scheduler; ``env`` gives the environment for each new one."""

    def __init__(self, scheduler: str, env: Environment) -> None:
        self._scheduler = scheduler
        self._env = env
        self._idle: Deque[PooledClient] = deque()  # append and pop are atomic
        self._closed = False

    def open(self) -> PooledClient:
        """Open a client outside of the pool; the caller closes it."""
        return PooledClient(self._scheduler, self._env())

    @contextmanager
    def borrow(self) -> Iterator[PooledClient]:
        """Lend a client to this caller; the caller enters ``files`` around each call."""
        try:
            pooled = self._idle.pop()
        except IndexError:
            pooled = self.open()
        sound = False
        try:
            yield pooled
            sound = True
        except NoSuchApplication:
            sound = True  # the scheduler has answered
            raise
        finally:
            if sound and not self._closed:
                self._idle.append(pooled)
            else:
                pooled.close()
            if self._closed:
                self.close()

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Lend a client to this caller, with its own file systems in effect."""
        with self.borrow() as pooled, pooled.files:
            yield pooled.client

    def close(self) -> None:
        """Close all idle connections now, and those in use when they come back."""
        self._closed = True
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return

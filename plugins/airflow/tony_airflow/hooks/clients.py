"""Connections to one scheduler, kept while nobody uses them.

A scheduler's connections are for one caller at a time. A hook may be asked from several threads,
and a kill comes in a signal handler, in the middle of whatever the task was just asking: so each
caller takes an idle client or opens one, and no lock is held by anybody (a handler that waited for
one would wait for itself).
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import Deque, Iterator

from tony_airflow.connection import Site
from tony_core.client.api import Client
from tony_core.files.registry import Apart
from tony_core.schedulers.port import NoSuchApplication, Scheduler


class Opened:
    """A client and the file systems that it uses; nobody else's, and for one caller at a time.

    What the client does, it does inside ``with opened.files:``. A generator must leave that between
    two of its values: whoever takes them is not the client.
    """

    def __init__(self, site: Site) -> None:
        self.files = Apart()
        with self.files:
            self.client = Client(site.scheduler, site.env())

    @property
    def scheduler(self) -> Scheduler:
        """What it asks."""
        return self.client.scheduler

    def close(self) -> None:
        """Give back its connections."""
        with self.files:
            self.client.close()
        self.files.close()


class Clients:
    """Clients of one site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._idle: Deque[Opened] = deque()  # taking and giving are atomic
        self._closed = False

    def open(self) -> Opened:
        """A client of its own, for its caller to close."""
        return Opened(self._site)

    @contextmanager
    def taken(self) -> Iterator[Opened]:
        """A client that nobody else uses meanwhile; what it does is for its caller to wrap."""
        try:
            opened = self._idle.pop()
        except IndexError:
            opened = self.open()
        sound = False
        try:
            yield opened
            sound = True
        except NoSuchApplication:
            sound = True  # it was answered
            raise
        finally:
            if sound and not self._closed:
                self._idle.append(opened)
            else:
                opened.close()
            if self._closed:
                self.close()

    @contextmanager
    def one(self) -> Iterator[Client]:
        """A client that nobody else uses meanwhile, with its own file systems."""
        with self.taken() as opened, opened.files:
            yield opened.client

    def close(self) -> None:
        """Give all connections back; those in use as soon as they are idle."""
        self._closed = True
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return

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
from tony_core.schedulers.port import NoSuchApplication


class Clients:
    """Clients of one site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._idle: Deque[Client] = deque()  # taking and giving are atomic
        self._closed = False

    def open(self) -> Client:
        """A client of its own, for its caller to close."""
        return Client(self._site.scheduler, self._site.env())

    @contextmanager
    def one(self) -> Iterator[Client]:
        """A client that nobody else uses meanwhile."""
        try:
            client = self._idle.pop()
        except IndexError:
            client = self.open()
        sound = False
        try:
            yield client
            sound = True
        except NoSuchApplication:
            sound = True  # it was answered
            raise
        finally:
            if sound and not self._closed:
                self._idle.append(client)
            else:
                client.close()
            if self._closed:
                self.close()

    def close(self) -> None:
        """Give all connections back; those in use as soon as they are idle."""
        self._closed = True
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return

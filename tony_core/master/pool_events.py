"""Passes the pool's events to the session machine, on the reactor's thread and in order.

A container's end often overtakes the last messages of its executor, which come on another
way. While the executor is connected, the end waits a moment for the connection to close.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Tuple, Type

from tony_core.master.executors.server import ExecutorServer
from tony_core.protocol.reactor import Reactor, Timer
from tony_core.schedulers import container_pool
from tony_core.schedulers.container_pool import Container, PoolEvent

LAST_MESSAGES_S = 0.3


class PoolEvents:
    """Passes on what the pool reports; knows every container that it gave."""

    def __init__(
        self,
        reactor: Reactor,
        feed: Callable[[PoolEvent], None],
        ended: Callable[[str], None],
        executors: ExecutorServer,
        inherited: Callable[[Tuple[Container, ...]], None],
    ) -> None:
        self._reactor = reactor
        self._feed = feed
        self._ended = ended
        self._executors = executors
        self._inherited = inherited
        self.containers: Dict[str, Container] = {}  # those that have not ended
        self._waiting: Dict[str, Tuple[container_pool.Completed, Timer]] = {}
        self._closed = False
        self._handlers: Mapping[Type[PoolEvent], Callable[[Any], None]] = {
            container_pool.Allocated: self._allocated,
            container_pool.Completed: self._completed,
            container_pool.PreviousContainers: self._previous,
        }

    def sink(self, event: PoolEvent) -> None:
        """Take an event, from any thread."""
        self._reactor.call_soon_threadsafe(self._take, event)

    def close(self) -> None:
        self._closed = True
        for _, timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    def connection_ended(self, container_id: str) -> None:
        """Pass on the end of a container whose executor sends no more."""
        found = self._waiting.pop(container_id, None)
        if found is not None:
            found[1].cancel()
            self._pass_on(found[0])

    def _take(self, event: PoolEvent) -> None:
        if not self._closed:
            self._handlers.get(type(event), self._feed)(event)

    def _allocated(self, event: container_pool.Allocated) -> None:
        for container in event.containers:
            self.containers[container.id] = container
            self._executors.expect(container.id)
        self._feed(event)

    def _previous(self, event: container_pool.PreviousContainers) -> None:
        for container in event.containers:
            self.containers[container.id] = container
            self._executors.expect(container.id)
        self._inherited(event.containers)

    def _completed(self, event: container_pool.Completed) -> None:
        if not self._executors.is_connected(event.container_id):
            self._pass_on(event)
            return
        timer = self._reactor.call_later(LAST_MESSAGES_S, self.connection_ended, event.container_id)
        self._waiting[event.container_id] = (event, timer)

    def _pass_on(self, event: container_pool.Completed) -> None:
        self.containers.pop(event.container_id, None)
        self._ended(event.container_id)
        self._feed(event)

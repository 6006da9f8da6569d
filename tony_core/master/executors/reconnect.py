"""Calls the executors of the previous attempt after a takeover.

Executors may wait a long time for a next master, so this one calls each whose address the journal
has, and retries while it may still answer (a host that resets connections, a full queue). The
others find this master by ``master.json``. The session machine decides how long an executor may
take before it counts as lost; after that no more calls are made.
"""

from __future__ import annotations

from typing import Callable, Dict, Mapping

from tony_core.master.executors.server import ExecutorServer
from tony_core.protocol.reactor import Reactor

RETRY_S = 0.5
TRIES = 40  # the 20 s of a takeover


class Reconnector:
    """Calls each executor until it answers."""

    def __init__(
        self, reactor: Reactor, executors: ExecutorServer, log: Callable[[str], None]
    ) -> None:
        self._reactor = reactor
        self._executors = executors
        self._log = log
        self._tries: Dict[str, int] = {}

    def call_all(self, addresses: Mapping[str, str]) -> None:
        for container_id, address in addresses.items():
            self._tries[container_id] = 0
            self._call(container_id, address)

    def stop(self) -> None:
        self._tries.clear()

    def forget(self, container_id: str) -> None:
        """Call this one no more: it has ended or connected."""
        self._tries.pop(container_id, None)

    def _call(self, container_id: str, address: str) -> None:
        if container_id not in self._tries:
            return
        if self._executors.is_connected(container_id):
            self.forget(container_id)
            return

        def connected() -> None:
            self.forget(container_id)

        def failed(reason: str) -> None:
            tries = self._tries.get(container_id)
            if tries is None:
                return
            if tries == 0:
                self._log(f"{container_id}: called at {address}: {reason}; retrying")
            self._tries[container_id] = tries + 1
            if tries + 1 < TRIES:
                self._reactor.call_later(RETRY_S, self._call, container_id, address)
            else:
                self.forget(container_id)

        self._executors.call(address, connected, failed)

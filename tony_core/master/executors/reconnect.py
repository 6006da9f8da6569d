"""The next master: it calls the executors that the earlier one journalled.

The pool's first event names the containers that are still there. Each whose address is
known is called, again and again while it may still answer (a reset host, a full queue);
the others find this master by ``master.json``. How long an executor may take before it
counts as lost is the session machine's business (adoption); when that is over nobody is
called any more.
"""

from __future__ import annotations

from typing import Callable, Dict, Mapping

from tony_core.master.executors.server import ExecutorServer
from tony_core.protocol.reactor import Reactor

AGAIN_S = 0.5
TRIES = 40  # the adoption's 20 s


class Reconnector:
    """Calls executors until they answer."""

    def __init__(
        self, reactor: Reactor, executors: ExecutorServer, log: Callable[[str], None]
    ) -> None:
        self._reactor = reactor
        self._executors = executors
        self._log = log
        self._tries: Dict[str, int] = {}

    def call_all(self, addresses: Mapping[str, str]) -> None:
        """Call each container's executor."""
        for container_id, address in addresses.items():
            self._tries[container_id] = 0
            self._call(container_id, address)

    def stop(self) -> None:
        """Nobody is called any more."""
        self._tries.clear()

    def forget(self, container_id: str) -> None:
        """It ended, or spoke."""
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
                self._log(f"{container_id}: called at {address}: {reason}; called again")
            self._tries[container_id] = tries + 1
            if tries + 1 < TRIES:
                self._reactor.call_later(AGAIN_S, self._call, container_id, address)
            else:
                self.forget(container_id)

        self._executors.call(address, connected, failed)

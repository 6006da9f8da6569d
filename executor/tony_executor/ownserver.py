"""A web server that the program itself opens at TensorBoard's port (``TB_PORT``).

The kernel is asked now and then, at growing pauses, whether the program (or what is below it)
listens there; what another process opened is not the program's. One that answers where the master
will ask is reported, as one that the executor runs beside the program is. One that listens at
another address of the node gets a warning that says what to change.
"""

from __future__ import annotations

from typing import Callable, Optional

from tony_core.protocol.reactor import Reactor
from tony_executor.ports import serves
from tony_executor.tensorboard import Probe

FIRST_LOOK_S = 1.0
LONGEST_PAUSE_S = 10.0
ANSWERS_WITHIN_S = 5.0


class OwnServer:
    """Of one program, until :meth:`close`. ``serving(port, message)``; port 0 is no more."""

    def __init__(
        self,
        reactor: Reactor,
        pid: int,
        host: str,
        port: int,
        serving: Callable[[int, str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._pid = pid
        self._host = host
        self._port = port
        self._serving = serving
        self._warn = warn
        self._pause = FIRST_LOOK_S
        self._served = False
        self._warned = False
        self._probe: Optional[Probe] = None
        self._timer = reactor.call_later(FIRST_LOOK_S, self._look)

    def close(self) -> None:
        """The program has ended."""
        self._timer.cancel()
        if self._probe is not None:
            self._probe.cancel()
        self._set(False)

    def _look(self) -> None:
        listens = serves(self._pid, self._port)
        if not listens:
            self._set(False)
        elif not self._served:
            address = f"{self._host}:{self._port}"
            self._probe = Probe(self._reactor, address, ANSWERS_WITHIN_S, self._probed)
            return
        self._look_later()

    def _look_later(self) -> None:
        self._timer = self._reactor.call_later(self._pause, self._look)
        self._pause = min(LONGEST_PAUSE_S, self._pause * 1.5)

    def _probed(self, answers: bool) -> None:
        self._probe = None
        listens = serves(self._pid, self._port)  # another process may have answered
        self._set(answers and listens)
        if listens and not answers and not self._warned:
            self._warned = True
            self._warn(
                f"the program listens at TB_PORT ({self._port}), but does not answer HTTP at"
                f" {self._host}: TensorBoard needs --host {self._host}, or --bind_all"
            )
        self._look_later()

    def _set(self, served: bool) -> None:
        if self._served != served:
            self._served = served
            self._serving(self._port if served else 0, "")

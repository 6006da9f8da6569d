"""A reactor that turns in the test's own thread until something holds."""

from __future__ import annotations

import time
from typing import Callable, List

from tony_core.protocol.reactor import Reactor


def run_until(
    reactor: Reactor, condition: Callable[[], object], state: Callable[[], object]
) -> None:
    """Fail with the state when that takes too long."""
    deadline = time.monotonic() + 50
    late: List[bool] = []

    def look() -> None:
        late[:] = [time.monotonic() > deadline]
        if condition() or late[0]:
            reactor.stop()
        else:
            reactor.call_later(0.005, look)

    reactor.call_later(0, look)
    reactor.run()
    assert not late[0], state()

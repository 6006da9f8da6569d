"""A reactor on a thread of its own, for tests that talk to what runs on it."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any, Callable, TypeVar

from tony_core.protocol.reactor import Reactor

T = TypeVar("T")


class Running:
    """Runs a reactor until it is left; :meth:`do` runs something on its thread."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.error: Any = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.reactor.run()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def do(self, what: Callable[[], T], timeout: float = 60.0) -> T:
        """Its result, from the reactor's thread."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(what())
            except BaseException as error:
                done.set_exception(error)

        self.reactor.call_soon_threadsafe(run)
        return done.result(timeout)

    def __exit__(self, *_error: object) -> None:
        self.reactor.call_soon_threadsafe(self.reactor.stop)
        self._thread.join(60)
        self.reactor.close()
        if self.error is not None:
            raise self.error

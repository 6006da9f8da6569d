"""A few places for each viewer in the portal's threads, so that one viewer's many pages keep no
other from his.

Pages are made in a bounded number of threads, and a page of a large job takes one for a while. A
viewer's further requests wait here, in the order in which they came and holding no thread, until
one of his has been answered; after :data:`WAIT_S` they are refused, with the reason.

All of it happens in the server's event loop, so nothing is locked.
"""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Dict, TypeVar

from starlette.concurrency import run_in_threadpool

PLACES = 6  # of a viewer: as many requests as a browser sends at a time by HTTP/1.1
WAIT_S = 20.0
MOST_WAITING = 200  # of a viewer

T = TypeVar("T")


class NoPlace(Exception):
    """A viewer's other requests take all of his places; the message is for him."""


class _Places:
    """One viewer's."""

    def __init__(self, number: int) -> None:
        self.free = asyncio.Semaphore(number)
        self.requests = 0  # that are answered or wait


class ViewerPlaces:
    """Of all viewers who ask for something now."""

    def __init__(self, number: int = PLACES, wait_s: float = WAIT_S) -> None:
        self._number = number
        self._wait_s = wait_s
        self._by_viewer: Dict[str, _Places] = {}

    async def run(self, viewer: str, work: Callable[..., T], *args: Any) -> T:
        """What a function gives, called in a thread; raises :class:`NoPlace`."""
        places = self._by_viewer.setdefault(viewer, _Places(self._number))
        if places.requests >= self._number + MOST_WAITING:
            raise NoPlace(self._describe(f"{MOST_WAITING} more wait"))
        places.requests += 1
        try:
            try:
                await asyncio.wait_for(places.free.acquire(), self._wait_s)
            except asyncio.TimeoutError:
                raise NoPlace(self._describe(f"this one waited {self._wait_s:g} s")) from None
            try:
                return await run_in_threadpool(work, *args)
            finally:
                places.free.release()
        finally:
            places.requests -= 1
            if not places.requests:
                del self._by_viewer[viewer]

    def _describe(self, what: str) -> str:
        return (
            f"{self._number} of your requests are being answered, and {what}. Close some of your"
            " pages of large jobs, or wait until they are there, then try again"
        )

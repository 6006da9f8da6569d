"""The hook for triggers: the same calls on a few threads of its own, so the loop never waits.

A triggerer runs hundreds of triggers on one event loop. The threads are few and the hook's own:
a cluster that answers slowly holds up those who ask it, and nobody else's default executor.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple, TypeVar

from tony_airflow.connection import Site
from tony_airflow.hooks.tony import TonyHook
from tony_core.client.kill import Killed
from tony_core.client.view import JobView
from tony_core.schedulers.port import AppStatus

THREADS = 4

T = TypeVar("T")


class TonyAsyncHook:
    """One site, for one event loop or many."""

    def __init__(self, site: Site, threads: int = THREADS) -> None:
        self.site = site
        self._hook = TonyHook.of(site)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tony-hook")

    @classmethod
    def from_dict(cls, site: Mapping[str, Any]) -> TonyAsyncHook:
        """By what a trigger carries."""
        return cls(Site.from_dict(site))

    async def a_status(self, app_id: str) -> AppStatus:
        """The scheduler's word on one."""
        return await self._call(self._hook.status, app_id)

    async def a_statuses(self, app_ids: Sequence[str]) -> Dict[str, AppStatus]:
        """The scheduler's word on many by one call; those that it does not know are left out."""
        return await self._call(self._hook.statuses, app_ids)

    async def a_list(self) -> List[AppStatus]:
        """Every application that the scheduler knows, the newest first."""
        return await self._call(self._hook.list)

    async def a_view(self, app_id: str) -> JobView:
        """All that is known now."""
        return await self._call(self._hook.view, app_id)

    async def a_links(self, app_id: str) -> Dict[str, str]:
        """Where its buttons lead."""
        return await self._call(self._hook.links, app_id)

    async def a_metrics(self, app_id: str) -> Dict[str, float]:
        """What its program reported, by name the last value."""
        return await self._call(self._hook.metrics, app_id)

    def read_output(
        self, view: JobView, position: Mapping[str, int]
    ) -> Tuple[List[str], Dict[str, int]]:
        """What the chief has written since; for a thread of the caller's."""
        return self._hook.output(view, position)

    async def a_find(self, tag: str) -> List[AppStatus]:
        """Those with a tag, the newest first."""
        return await self._call(self._hook.find, tag)

    async def a_kill(self, app_id: str, reason: str = "") -> Killed:
        """End it, and wait until it has ended."""
        return await self._call(self._hook.kill, app_id, reason)

    def close(self) -> None:
        """Give back threads and connections; calls that wait are not begun any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._hook.close()

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *arguments))

"""The hook for triggers: the same calls in a few threads, so that the event loop never waits.

A triggerer runs hundreds of triggers on one event loop. The threads are the hook's own: a cluster
that answers slowly delays the calls to it, and not the loop's default executor.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple, TypeVar

from tony_airflow.connection import Site
from tony_airflow.hooks.tony import TonyHook
from tony_core.client.kill import Killed
from tony_core.schedulers.port import AppStatus
from tony_core.view import JobView

THREADS = 4

T = TypeVar("T")


class TonyAsyncHook:
    """Calls one site from any event loop."""

    def __init__(self, site: Site, threads: int = THREADS) -> None:
        self.site = site
        self._hook = TonyHook.of(site)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tony-hook")

    @classmethod
    def from_dict(cls, site: Mapping[str, Any]) -> TonyAsyncHook:
        """The hook for a trigger's argument ``site``."""
        return cls(Site.from_dict(site))

    @property
    def user(self) -> str:
        """The user who reads jobs' pages; empty for the process's own."""
        return self.site.user or ""

    async def a_status(self, app_id: str) -> AppStatus:
        """The scheduler's status of an application."""
        return await self._call(self._hook.status, app_id)

    async def a_statuses(self, app_ids: Sequence[str]) -> Dict[str, AppStatus]:
        """The status of each application that the scheduler knows, by one call."""
        return await self._call(self._hook.statuses, app_ids)

    async def a_list(self) -> List[AppStatus]:
        """All applications that the scheduler knows, the newest first."""
        return await self._call(self._hook.list)

    async def a_view(self, app_id: str) -> JobView:
        """The job's newest view."""
        return await self._call(self._hook.view, app_id)

    async def a_links(self, app_id: str) -> Dict[str, str]:
        """The addresses of its links, by name."""
        return await self._call(self._hook.links, app_id)

    async def a_metrics(self, app_id: str) -> Dict[str, float]:
        """The last value of each metric that its program reported."""
        return await self._call(self._hook.metrics, app_id)

    def read_output(
        self, view: JobView, position: Mapping[str, int]
    ) -> Tuple[List[str], Dict[str, int]]:
        """The chief's output after ``position``; blocks, for a thread of the caller's."""
        return self._hook.output(view, position)

    async def a_find(self, tag: str) -> List[AppStatus]:
        """The applications with a tag, the newest first."""
        return await self._call(self._hook.find, tag)

    async def a_kill(self, app_id: str, reason: str = "") -> Killed:
        """End an application, and wait until it has ended."""
        return await self._call(self._hook.kill, app_id, reason)

    def close(self) -> None:
        """Close threads and connections; calls that have not started yet never do."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._hook.close()

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *arguments))

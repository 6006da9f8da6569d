"""The hook for triggers: the same calls in a few threads, so that the event loop never waits.

A triggerer runs hundreds of triggers on one event loop. The threads are the hook's own: a cluster
that answers slowly delays the calls to it, and not the loop's default executor.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import (
    Any,
    Awaitable,
    Callable,
    Concatenate,
    Dict,
    List,
    Mapping,
    Optional,
    ParamSpec,
    Tuple,
    TypeVar,
)

from tony_airflow.connection import Site
from tony_airflow.hooks.tony import TonyHook
from tony_core.hadoop.web import WebAccess
from tony_core.view import JobView

THREADS = 4

P = ParamSpec("P")
T = TypeVar("T")


def _in_thread(
    method: Callable[Concatenate[TonyHook, P], T],
) -> Callable[Concatenate[TonyAsyncHook, P], Awaitable[T]]:
    """A method of :class:`TonyHook` that runs in one of the async hook's threads."""

    def call(self: TonyAsyncHook, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        function = partial(getattr(self._hook, method.__name__), *args, **kwargs)
        return asyncio.get_running_loop().run_in_executor(self._threads, function)

    call.__doc__ = method.__doc__
    return call


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

    def web(self) -> Optional[WebAccess]:
        """Who reads jobs' pages; blocks, for a thread of the caller's."""
        with self._hook.get_conn().client() as client:
            return client.scheduler.web

    a_status = _in_thread(TonyHook.status)
    a_statuses = _in_thread(TonyHook.statuses)
    a_list = _in_thread(TonyHook.list)
    a_find = _in_thread(TonyHook.find)
    a_user = _in_thread(TonyHook.user)
    a_view = _in_thread(TonyHook.view)
    a_links = _in_thread(TonyHook.links)
    a_metrics = _in_thread(TonyHook.metrics)
    a_kill = _in_thread(TonyHook.kill)

    def read_output(
        self, view: JobView, position: Mapping[str, int]
    ) -> Tuple[List[str], Dict[str, int]]:
        """The chief's output after ``position``; blocks, for a thread of the caller's."""
        return self._hook.output(view, position)

    def close(self) -> None:
        """Close threads and connections; calls that have not started yet never do."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._hook.close()

"""What waits for somebody else's job while a sensor is deferred.

As long as the application is not there, the scheduler's list is asked for, once in an interval for
all the sensors of a site; from then on the site's watcher (:mod:`tony_airflow.triggers.watcher`)
tells of it as of every job that is waited for. The job is not ours: nothing here ends it.
"""

from __future__ import annotations

import asyncio
import json
import time
import weakref
from contextlib import asynccontextmanager
from typing import Any, AsyncIterator, Dict, List, Mapping, MutableMapping, Optional, Tuple

from airflow.triggers.base import BaseTrigger, TriggerEvent

from tony_airflow.connection import Site
from tony_airflow.hooks.tony import metrics_of
from tony_airflow.hooks.tony_async import TonyAsyncHook
from tony_airflow.sensors.condition import WAITING, Answer, Condition
from tony_airflow.triggers.refusals import elsewhere, not_from_here, silent
from tony_airflow.triggers.watcher import (
    REFUSALS,
    Ended,
    Lost,
    Refused,
    Seen,
    Trouble,
    Unreachable,
    Waiter,
    Watching,
)
from tony_core.schedulers.port import AppStatus

WHAT = "the application"
FRESH_S = 2.0
"""A list that was asked for so lately is everybody's."""


class TonySensingTrigger(BaseTrigger):
    """Fires when the condition is reached or missed.

    :param site: where the application runs (:meth:`Site.to_dict`).
    :param condition: what is waited for (:meth:`Condition.to_dict`).
    :param poll_interval: seconds between two looks.
    :param unreachable_s: for how long a cluster that does not answer is asked again.
    :param host: who deferred; jobs of the embedded scheduler are seen from no other.
    """

    def __init__(
        self,
        *,
        site: Mapping[str, Any],
        condition: Mapping[str, Any],
        poll_interval: float = 10.0,
        unreachable_s: float = 900.0,
        host: str = "",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.site = dict(site)
        self.condition = dict(condition)
        self.poll_interval = poll_interval
        self.unreachable_s = unreachable_s
        self.host = host

    def serialize(self) -> Tuple[str, Dict[str, Any]]:
        """Airflow's call: how another process makes it again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "site": self.site,
                "condition": self.condition,
                "poll_interval": self.poll_interval,
                "unreachable_s": self.unreachable_s,
                "host": self.host,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait until it is there, or will never be."""
        refused = elsewhere(self.site, self.host, "jobs")
        if refused:
            yield TriggerEvent({"error": refused})
            return
        yield await self._wait(Condition.from_dict(self.condition))

    async def _wait(self, condition: Condition) -> TriggerEvent:
        app_id = condition.application_id
        if not app_id:
            status, gave_up = await self._until_there(condition)
            if status is None:
                return gave_up
            app_id = status.app_id
            self.log.info("waiting for %s %s", app_id, condition.what)
        waiter = Waiter(app_id, self.poll_interval, self.unreachable_s)
        async with Watching(self.site, waiter):
            while True:
                news = await waiter.next()
                answer: Optional[Answer] = None
                if isinstance(news, Seen):
                    answer = condition.judge(news.view, metrics_of(news.view))
                elif isinstance(news, Ended):
                    metrics = await self._last_metrics(app_id) if condition.metric else {}
                    answer = condition.judge(news.status, metrics)
                elif isinstance(news, Trouble):
                    self.log.warning("the scheduler does not answer: %s", news.why)
                elif isinstance(news, Lost):
                    return TriggerEvent({"error": f"{app_id} is gone: {news.why}"})
                elif isinstance(news, Refused):
                    return TriggerEvent({"refused": not_from_here(WHAT, news.why)})
                elif isinstance(news, Unreachable):
                    return TriggerEvent({"error": silent(news.silent_s, news.why)})
                if answer is not None and answer.verdict != WAITING:
                    return TriggerEvent(
                        {"verdict": answer.verdict, "said": answer.said, "found": answer.found}
                    )

    async def _last_metrics(self, app_id: str) -> Mapping[str, float]:
        hook = TonyAsyncHook.from_dict(self.site)
        try:
            return await hook.a_metrics(app_id)
        finally:
            hook.close()

    async def _until_there(self, condition: Condition) -> Tuple[Optional[AppStatus], TriggerEvent]:
        """The application once it is; or, without, what is fired instead."""
        silent_since: Optional[float] = None
        async with shared_list(self.site) as listing:
            while True:
                try:
                    found = condition.pick(await listing.newest())
                    silent_since = None
                except REFUSALS as error:
                    return None, TriggerEvent({"refused": not_from_here(WHAT, str(error))})
                except Exception as error:
                    now = time.monotonic()
                    if silent_since is None:
                        silent_since = now
                        self.log.warning("the scheduler does not answer: %s", error)
                    if now - silent_since >= self.unreachable_s:
                        said = silent(now - silent_since, str(error))
                        return None, TriggerEvent({"error": said})
                    found = None
                if found is not None:
                    return found, TriggerEvent({})
                await asyncio.sleep(self.poll_interval)


class SharedList:
    """The scheduler's list for all the sensors of one event loop and one site."""

    def __init__(self, site: Mapping[str, Any]) -> None:
        self.users = 0
        self._hook = TonyAsyncHook(Site.from_dict(site), threads=1)
        self._asked_at = 0.0
        self._answer: Optional[asyncio.Future[List[AppStatus]]] = None

    async def newest(self) -> List[AppStatus]:
        """Every application; asked for anew unless somebody has just done so."""
        now = time.monotonic()
        if self._answer is None or now - self._asked_at >= FRESH_S:
            self._asked_at = now
            self._answer = asyncio.ensure_future(self._hook.a_list())
        # One that leaves while it waits must not take the answer from the others.
        return await asyncio.shield(self._answer)

    def close(self) -> None:
        """Nobody asks any more."""
        if self._answer is not None:
            self._answer.cancel()
        self._hook.close()


_lists: MutableMapping[asyncio.AbstractEventLoop, Dict[str, SharedList]] = (
    weakref.WeakKeyDictionary()
)


@asynccontextmanager
async def shared_list(site: Mapping[str, Any]) -> AsyncIterator[SharedList]:
    """The list of this loop and site, for as long as anybody asks for it."""
    known = _lists.setdefault(asyncio.get_running_loop(), {})
    key = json.dumps(site, sort_keys=True, default=str)
    shared = known.get(key)
    if shared is None:
        shared = known[key] = SharedList(site)
    shared.users += 1
    try:
        yield shared
    finally:
        shared.users -= 1
        if not shared.users:
            del known[key]
            shared.close()

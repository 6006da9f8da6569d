"""Waits for the condition of a deferred sensor; the job is another task's, and stays."""

from __future__ import annotations

from typing import Any, AsyncIterator, Dict, Mapping, Optional

import attrs
from airflow.triggers.base import TriggerEvent

from tony_airflow.connection import Site
from tony_airflow.hooks.tony_async import TonyAsyncHook
from tony_airflow.links.addresses import found_links
from tony_airflow.links.tony import a_push
from tony_airflow.triggers.base import SiteTrigger
from tony_core.client.merge import from_status
from tony_core.client.workflow.condition import WAITING, Condition, ConditionResult
from tony_core.client.workflow.poller import (
    JobEnded,
    JobFound,
    JobSeen,
    PageUnreadable,
    Retrying,
    Subscription,
)
from tony_core.client.workflow.results import metrics_of
from tony_core.view import JobView


@attrs.define(kw_only=True, slots=False, eq=False, repr=False)
class TonySensingTrigger(SiteTrigger):
    """Fires when the condition is reached or missed."""

    #: The condition that the sensor waits for (:meth:`Condition.to_dict`).
    condition: Dict[str, Any] = attrs.field(converter=dict)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait until the condition is reached, or can no longer be."""
        foreign = self.foreign_host("jobs")
        if foreign:
            yield TriggerEvent({"error": foreign})
            return
        yield TriggerEvent(await self._wait(Condition.from_dict(self.condition)))

    async def _wait(self, condition: Condition) -> Mapping[str, Any]:
        """The event's content."""
        subscription = Subscription(
            condition.application_id or "",
            self.poll_interval,
            self.unreachable_s,
            search=condition.search,
            renews_lease=False,
        )
        pushed: Dict[str, str] = {}
        async with self.polled(subscription):
            while True:
                update = await subscription.next()
                answer: Optional[ConditionResult] = None
                if isinstance(update, JobFound):
                    self.info(f"waiting for {update.status.app_id} {condition.goal}")
                    await self._push(from_status(update.status), pushed)
                elif isinstance(update, JobSeen):
                    await self._push(update.view, pushed)
                    answer = condition.check(update.view, metrics_of(update.view))
                elif isinstance(update, JobEnded):
                    app_id = update.status.app_id
                    await self._push(from_status(update.status), pushed)
                    metrics = await self._last_metrics(app_id) if condition.metric else {}
                    answer = condition.check(update.status, metrics)
                elif isinstance(update, Retrying):
                    self.warn_of_retry(update)
                elif not isinstance(update, PageUnreadable):
                    return self.failure(update, subscription.app_id or "the application")
                if answer is not None and answer.verdict != WAITING:
                    return {"verdict": answer.verdict, "said": answer.text, "found": answer.found}

    async def _push(self, view: JobView, pushed: Dict[str, str]) -> None:
        """Push the links to the job that are new; a link is no reason to fail a wait."""
        try:
            found = found_links(view, Site.from_dict(self.site))
            fresh = {name: url for name, url in found.items() if pushed.get(name) != url}
            await a_push(self.task_instance, fresh)
            pushed.update(fresh)
        except Exception as error:
            self.warn(f"the links could not be kept: {error}")

    async def _last_metrics(self, app_id: str) -> Mapping[str, float]:
        hook = TonyAsyncHook.from_dict(self.site)
        try:
            return await hook.a_metrics(app_id)
        finally:
            hook.close()

"""Waits for the condition of a deferred sensor; the job is another task's, and stays."""

from __future__ import annotations

from typing import Any, AsyncIterator, Dict, Mapping, Optional

import attrs
from airflow.triggers.base import TriggerEvent

from tony_airflow.hooks.tony_async import TonyAsyncHook
from tony_airflow.triggers.base import SiteTrigger
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
        )
        async with self.polled(subscription):
            while True:
                update = await subscription.next()
                answer: Optional[ConditionResult] = None
                if isinstance(update, JobFound):
                    self.info(f"waiting for {update.status.app_id} {condition.goal}")
                elif isinstance(update, JobSeen):
                    answer = condition.check(update.view, metrics_of(update.view))
                elif isinstance(update, JobEnded):
                    app_id = update.status.app_id
                    metrics = await self._last_metrics(app_id) if condition.metric else {}
                    answer = condition.check(update.status, metrics)
                elif isinstance(update, Retrying):
                    self.warn_of_retry(update)
                elif not isinstance(update, PageUnreadable):
                    return self.failure(update, subscription.app_id or "the application")
                if answer is not None and answer.verdict != WAITING:
                    return {"verdict": answer.verdict, "said": answer.text, "found": answer.found}

    async def _last_metrics(self, app_id: str) -> Mapping[str, float]:
        hook = TonyAsyncHook.from_dict(self.site)
        try:
            return await hook.a_metrics(app_id)
        finally:
            hook.close()

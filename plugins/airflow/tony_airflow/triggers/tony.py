"""Waits for the job of a deferred task; the event has all that the task needs to go on."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional

import attrs
from airflow.triggers.base import TriggerEvent

from tony_airflow.connection import Site
from tony_airflow.hooks.tony_async import TonyAsyncHook
from tony_airflow.links.addresses import history_page, links_of, portal_page
from tony_airflow.links.tony import LOG, a_push
from tony_airflow.tags import LINK
from tony_airflow.triggers.base import SiteTrigger
from tony_core.client.workflow.poller import (
    JobEnded,
    JobSeen,
    PageUnreadable,
    Retrying,
    Subscription,
)
from tony_core.client.workflow.report import Reporter
from tony_core.job.mask import mask_text

MOST_DIAGNOSTICS = 4000  # characters; Airflow keeps events in its database
KILL_S = 25.0  # Airflow gives a trigger's on_kill 30
LAST_VIEW_S = 4.0


@attrs.define(kw_only=True, slots=False, eq=False, repr=False)
class TonyTrigger(SiteTrigger):
    """Fires when the job has ended."""

    app_id: str
    #: The job's lease, which reads of its page renew.
    lease_s: Optional[float] = None
    #: The names of the task's links, whose addresses are pushed when they are known.
    links: List[str] = attrs.field(factory=list)
    #: Whether the task's log follows the chief's output.
    get_logs: bool = False

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the end, and report the job's progress into the task's log."""
        foreign = self.foreign_host(f"the job {self.app_id}")
        if foreign:
            yield self._event(refused=foreign)
            return
        subscription = Subscription(
            self.app_id, self.poll_interval, self.unreachable_s, self.lease_s, self.get_logs
        )
        reporter = Reporter(self.info, self.warn, hidden=(LINK,))
        pushed: Dict[str, str] = {}
        seen = False
        async with self.polled(subscription):
            while True:
                update = await subscription.next()
                if isinstance(update, JobSeen):
                    seen = True
                    reporter.view(update.view)
                    for line in update.output:
                        self.info(line)
                    await self._push(links_of(update.view, portal=self._portal()), pushed)
                elif isinstance(update, Retrying):
                    self.warn_of_retry(update)
                elif isinstance(update, PageUnreadable):
                    self.warn(update.warning)
                else:
                    break
        if not isinstance(update, JobEnded):
            yield self._event(**self.failure(update, f"the job {self.app_id}"))
            return
        yield self._event(
            **end_of(update),
            links={name: url for name, url in pushed.items() if not name.startswith(LOG)},
            seen=seen,
            output=dict(subscription.position),
        )

    async def on_kill(self) -> None:
        """Airflow's call when a person marks or clears the deferred task; not on a restart."""
        if self.foreign_host("the job"):
            return  # its lease ends it
        hook = TonyAsyncHook.from_dict(self.site)
        try:
            killing = hook.a_kill(self.app_id, "its Airflow task was stopped")
            await asyncio.wait_for(killing, KILL_S)
        except asyncio.TimeoutError:
            self.warn(f"{self.app_id} was killed, and has not ended in {KILL_S:g} s")
        except Exception as error:
            self.warn(f"{self.app_id} could not be ended: {error}")
        else:
            await self._push_last(hook)
        finally:
            hook.close()

    def _event(self, **content: Any) -> TriggerEvent:
        return TriggerEvent({"site": self.site, "app_id": self.app_id, **content})

    async def _push_last(self, hook: TonyAsyncHook) -> None:
        """Push the links of a job that was ended: its own page is gone, history's is not."""
        if self.task_instance is None:
            return
        try:
            view = await asyncio.wait_for(hook.a_view(self.app_id), LAST_VIEW_S)
            kept = history_page(self.task_instance)
            await self._push(links_of(view, kept=kept, portal=self._portal()), {})
        except Exception as error:
            self.warn(f"the links could not be kept: {error!r}")

    def _portal(self) -> str:
        return portal_page(Site.from_dict(self.site), self.app_id)

    async def _push(self, links: Mapping[str, str], pushed: Dict[str, str]) -> None:
        fresh = {
            name: url
            for name, url in links.items()
            if name in self.links and pushed.get(name) != url
        }
        if not fresh:
            return
        pushed.update(fresh)
        try:
            await a_push(self.task_instance, fresh)
        except Exception as error:
            # A link is no reason to fail a training.
            self.warn(f"the links {', '.join(fresh)} could not be kept: {error}")


def end_of(ended: JobEnded) -> Dict[str, str]:
    """A job's end, for an event."""
    # Masked as a whole: the masker would not recognize a part of a secret.
    diagnostics = mask_text(ended.status.diagnostics)[-MOST_DIAGNOSTICS:]
    return {"outcome": ended.status.state.value, "diagnostics": diagnostics}

"""What waits for a job while its task is deferred.

The trigger holds no state that is not in its arguments: a triggerer that is restarted, or another
one, begins it again and goes on. All that the task needs to go on travels in the event.
"""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Sequence, Tuple

from airflow.triggers.base import BaseTrigger, TriggerEvent

from tony_airflow.connection import Site
from tony_airflow.hooks.tony_async import TonyAsyncHook
from tony_airflow.links.addresses import history_page, links_of
from tony_airflow.links.tony import LOG, a_push
from tony_airflow.reporting import Reporter
from tony_airflow.triggers.refusals import elsewhere, not_from_here, silent
from tony_airflow.triggers.watcher import (
    Ended,
    Lost,
    Refused,
    Seen,
    Trouble,
    Unreachable,
    Unseen,
    Waiter,
    Watching,
)
from tony_core.job.mask import mask_text

MOST_SAID = 4000  # characters of why it ended; events are kept in Airflow's database
KILL_S = 25.0  # Airflow leaves a trigger's on_kill 30
LAST_LOOK_S = 4.0


class TonyTrigger(BaseTrigger):
    """Fires when the job has ended.

    :param site: where it runs (:meth:`Site.to_dict`).
    :param app_id: the job.
    :param poll_interval: seconds between two questions to the scheduler; one for all jobs of a
        site.
    :param unreachable_s: for how long a cluster that does not answer is asked again.
    :param lease_s: the job's lease, which looks at its page renew.
    :param host: who submitted it; jobs of the embedded scheduler are seen from no other.
    :param links: the names of the task's buttons, whose addresses are pushed as they come.
    :param get_logs: whether the task's log follows the chief's output.
    """

    def __init__(
        self,
        *,
        site: Mapping[str, Any],
        app_id: str,
        poll_interval: float = 5.0,
        unreachable_s: float = 900.0,
        lease_s: Optional[float] = None,
        host: str = "",
        links: Sequence[str] = (),
        get_logs: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.site = dict(site)
        self.app_id = app_id
        self.poll_interval = poll_interval
        self.unreachable_s = unreachable_s
        self.lease_s = lease_s
        self.host = host
        self.links: List[str] = list(links)
        self.get_logs = get_logs

    def serialize(self) -> Tuple[str, Dict[str, Any]]:
        """Airflow's call: how another process makes it again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "site": self.site,
                "app_id": self.app_id,
                "poll_interval": self.poll_interval,
                "unreachable_s": self.unreachable_s,
                "lease_s": self.lease_s,
                "host": self.host,
                "links": self.links,
                "get_logs": self.get_logs,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the end, and tell the task's log of what happens meanwhile."""
        refused = self.refusal()
        if refused:
            yield self._event(refused=refused)
            return
        waiter = Waiter(
            self.app_id, self.poll_interval, self.unreachable_s, self.lease_s, self.get_logs
        )
        reporter = Reporter(self._say, self._warn)
        pushed: Dict[str, str] = {}
        seen = False
        async with Watching(self.site, waiter):
            while True:
                news = await waiter.next()
                if isinstance(news, Seen):
                    seen = True
                    reporter.view(news.view)
                    for line in news.output:
                        self._say(line)
                    await self._push(links_of(news.view), pushed)
                elif isinstance(news, Trouble):
                    self._warn(f"the scheduler does not answer, and is asked again: {news.why}")
                elif isinstance(news, Unseen):
                    self._warn(news.why)
                else:
                    break
        kept = {name: url for name, url in pushed.items() if not name.startswith(LOG)}
        yield self._told(news, kept, seen, waiter.position)

    def refusal(self) -> str:
        """Why nothing on this machine can wait for the job; empty if it can."""
        return elsewhere(self.site, self.host, f"the job {self.app_id}")

    async def on_kill(self) -> None:
        """Airflow's call when somebody marks or clears the deferred task; not on a restart."""
        if self.refusal():
            return  # its lease ends it
        hook = TonyAsyncHook(Site.from_dict(self.site))
        try:
            killing = hook.a_kill(self.app_id, "its Airflow task was stopped")
            await asyncio.wait_for(killing, KILL_S)
        except asyncio.TimeoutError:
            self._warn(f"{self.app_id} was killed, and has not ended in {KILL_S:g} s")
        except Exception as error:
            self._warn(f"{self.app_id} could not be ended: {error}")
        else:
            await self._push_last(hook)
        finally:
            hook.close()

    async def _push_last(self, hook: TonyAsyncHook) -> None:
        """The links of a job that was ended: its page is gone, and they lead to what stays."""
        if self.task_instance is None:
            return
        try:
            view = await asyncio.wait_for(hook.a_view(self.app_id), LAST_LOOK_S)
            await self._push(links_of(view, kept=history_page(self.task_instance)), {})
        except Exception as error:
            self._warn(f"the links could not be kept: {error!r}")

    # ------------------------------------------------------------------ small things

    def _told(
        self,
        news: Any,
        links: Mapping[str, str],
        seen: bool = False,
        output: Optional[Mapping[str, int]] = None,
    ) -> TriggerEvent:
        if isinstance(news, Ended):
            # Masked as a whole: a half of what is secret would not be known for it.
            said = mask_text(news.status.diagnostics)[-MOST_SAID:]
            outcome = news.status.state.value
            return self._event(
                outcome=outcome,
                diagnostics=said,
                links=dict(links),
                seen=seen,
                output=dict(output or {}),
            )
        if isinstance(news, Lost):
            return self._event(error=f"the job {self.app_id} is gone: {news.why}")
        if isinstance(news, Refused):
            return self._event(refused=not_from_here(f"the job {self.app_id}", news.why))
        assert isinstance(news, Unreachable)
        return self._event(error=silent(news.silent_s, news.why))

    def _event(self, **told: Any) -> TriggerEvent:
        return TriggerEvent({"site": self.site, "app_id": self.app_id, **told})

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
            # A button is no reason to fail a training.
            self._warn(f"the links {', '.join(fresh)} could not be kept: {error}")

    def _say(self, text: str) -> None:
        self.log.info("%s", text)

    def _warn(self, text: str) -> None:
        self.log.warning("%s", text)

"""What both triggers share: the poller of their site, and the errors that end a wait."""

from __future__ import annotations

import json
import socket
from functools import partial
from typing import Any, AsyncContextManager, Dict, Tuple

import attrs
from airflow.triggers.base import BaseTrigger

from tony_airflow.connection import LOCAL
from tony_airflow.hooks.tony_async import TonyAsyncHook
from tony_core.client.workflow.poller import (
    AccessRefused,
    JobLost,
    LoginLost,
    Retrying,
    SchedulerUnreachable,
    Subscription,
    polled,
)


@attrs.define(kw_only=True, slots=False, eq=False, repr=False)
class SiteTrigger(BaseTrigger):
    """A trigger that waits for a job of one site.

    It keeps no state besides its arguments: a triggerer that is restarted, or another one, starts
    it again.
    """

    #: Where the job runs (:meth:`Site.to_dict`).
    site: Dict[str, Any] = attrs.field(converter=dict)
    #: The host that deferred the task; no other sees its embedded scheduler's jobs.
    host: str = ""
    #: Seconds between two calls to the scheduler, each for all jobs of a site.
    poll_interval: float = 5.0
    #: For how long a cluster that does not answer is asked again.
    unreachable_s: float = 900.0

    def __attrs_pre_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]

    def serialize(self) -> Tuple[str, Dict[str, Any]]:
        """Airflow's call: the class and the arguments from which another process makes it again."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {each.name: getattr(self, each.name) for each in attrs.fields(type(self))}

    def polled(self, subscription: Subscription) -> AsyncContextManager[Subscription]:
        """Have a job polled inside the block, together with all others of the site."""
        key = json.dumps(self.site, sort_keys=True, default=str)
        return polled(key, partial(TonyAsyncHook.from_dict, self.site), subscription)

    def foreign_host(self, what: str) -> str:
        """The error that ``what`` is on another host's embedded scheduler; empty if it is not."""
        here = socket.gethostname()
        if self.site.get("scheduler", LOCAL) != LOCAL or self.host in ("", here):
            return ""
        return (
            f"{what} by the embedded scheduler of {self.host} cannot be seen from this triggerer,"
            f" which is on {here}: use deferrable=False, run a triggerer on {self.host}, or send"
            " jobs to a cluster"
        )

    def failure(self, update: object, what: str) -> Dict[str, str]:
        """The event of an update that ends the wait without an answer."""
        if isinstance(update, JobLost):
            return {"error": f"{what} is gone: {update.why}"}
        if isinstance(update, AccessRefused):
            here = socket.gethostname()
            return {"refused": f"this triggerer ({here}) cannot ask for {what}: {update.why}"}
        if isinstance(update, LoginLost):
            here = socket.gethostname()
            without = f"this triggerer ({here}) has had no valid login for {update.seconds:.0f} s"
            return {"error": f"{without}: {update.why}"}
        assert isinstance(update, SchedulerUnreachable)
        silent = f"the scheduler has not answered for {update.silent_s:.0f} s"
        return {"error": f"{silent}: {update.why}"}

    def warn_of_retry(self, update: Retrying) -> None:
        """Write into the task's log that the scheduler gives no answer, or there is no login."""
        what = "the scheduler gives no answer now, and is asked again"
        if update.is_login:
            what = f"this triggerer cannot log in now, and asks again for {self.unreachable_s:g} s"
        self.warn(f"{what}: {update.why}")

    def info(self, text: str) -> None:
        """Write a line into the task's log."""
        self.log.info("%s", text)

    def warn(self, text: str) -> None:
        """Write a warning into the task's log."""
        self.log.warning("%s", text)

"""Whose master a pool is, and how such a process ends when it is that no more."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Callable, NamedTuple, NoReturn, Optional, Sequence
from urllib.parse import urlsplit

from tony_core.hadoop.errors import ConfigurationError, HadoopError
from tony_core.hadoop.site import urls
from tony_core.hadoop.yarn.ids import AttemptId
from tony_core.hadoop.yarn.messages.resource_requests import PlacementConstraintMapEntry
from tony_core.hadoop.yarn.records import Container
from tony_core.hadoop.yarn.rm_master import Registered
from tony_core.schedulers import port
from tony_core.schedulers.port import LastingRefusal, SchedulerError
from tony_core.schedulers.yarn import placement_constraints, refusals
from tony_core.schedulers.yarn.resources import to_resources

MASTER_LOST_S = 1200.0


class Application(NamedTuple):
    """Whose master this is."""

    attempt: AttemptId
    user: str
    max_attempts: int
    host: str
    with_port: bool = False  # whether a node's name holds its port
    node_scheme: str = "http"
    placement_spec: Optional[str] = None  # the whole application's
    master_lost_s: float = MASTER_LOST_S  # how long executors wait for a next master

    def shown(self, given: Container, role: str) -> port.Container:
        """A container as the master knows it."""
        url = ""
        if given.node_url:
            page = given.node_url
            if "://" not in page:
                page = f"{self.node_scheme}://{page}"
            url = urls.container_logs(page, given.id, self.user)
        return port.Container(
            id=str(given.id),
            node=self.name(given.node.host, given.node.port),
            role=role,
            resources=to_resources(given.capability),
            log_url=url,
        )

    def name(self, host: str, number: int) -> str:
        """A node as asks and people name it."""
        return f"{host}:{number}" if self.with_port else host


def exit_superseded(words: str) -> NoReturn:
    """Another master has taken over: nothing may be touched any more."""
    sys.stderr.write(f"this master is no longer the application's: {words}\n")
    sys.stderr.flush()
    os._exit(1)


Call = Callable[[str, int, str, Sequence[PlacementConstraintMapEntry]], Registered]
End = Callable[[str], None]


def register(
    call: Call, application: Application, page_url: str, end: Optional[End] = None
) -> Registered:
    """Make this attempt the application's master; :class:`SchedulerError` in one line."""
    try:
        constrained = placement_constraints.application_constraints(application.placement_spec)
    except placement_constraints.ConstraintError as error:
        _fail_for_good(f"tony.application.placement-spec: {error}", error, end)
    number = urlsplit(page_url).port or 0
    try:
        return call(application.host, number, page_url, constrained)
    except ConfigurationError as error:
        _fail_for_good(f"the ResourceManager cannot take this master: {error}", error, end)
    except HadoopError as error:
        told = refusals.translate_error(error, "this master")
        if isinstance(told, LastingRefusal):
            _fail_for_good(str(told), error, end)
        text = f"the ResourceManager did not take this master: {error}"
        raise SchedulerError(" ".join(text.split())) from error


def _fail_for_good(text: str, error: Exception, end: Optional[End]) -> NoReturn:
    words = " ".join(text.split())
    if end is not None:
        with suppress(HadoopError):
            end(words)
    raise LastingRefusal(words) from error

"""The application of a master: its identity, its registration, and its exit when superseded.

What the configuration makes impossible, no later attempt can do either. Since an unregistered
master cannot report an end, it then ends the application by its user's right, in words by which
clients recognize a failure (:mod:`application_state`). A ResourceManager that has not proved its
identity may be any program, so its answers end nothing.
"""

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
from tony_core.schedulers import container_pool
from tony_core.schedulers.port import LastingRefusal, SchedulerError
from tony_core.schedulers.yarn import placement_constraints, refusals
from tony_core.schedulers.yarn.master.preemption import PreemptionTimes
from tony_core.schedulers.yarn.resources import to_resources

MASTER_LOST_S = 1200.0


class Application(NamedTuple):
    """The application and attempt that this process is the master of."""

    attempt: AttemptId
    user: str
    max_attempts: int
    host: str
    with_port: bool = False  # whether node names contain the port
    node_scheme: str = "http"
    placement_spec: Optional[str] = None  # of the whole application
    master_lost_s: float = MASTER_LOST_S  # how long executors wait for a next master
    preemption: PreemptionTimes = PreemptionTimes()  # of the site

    def to_port_container(self, given: Container, role: str) -> container_pool.Container:
        """An allocated container for the port."""
        url = ""
        if given.node_url:
            page = given.node_url
            if "://" not in page:
                page = f"{self.node_scheme}://{page}"
            url = urls.container_logs(page, given.id, self.user)
        return container_pool.Container(
            id=str(given.id),
            node=self.node_name(given.node.host, given.node.port),
            role=role,
            resources=to_resources(given.capability),
            log_url=url,
        )

    def node_name(self, host: str, port: int) -> str:
        """A node's name in asks and messages."""
        return f"{host}:{port}" if self.with_port else host


def exit_superseded(why: str) -> NoReturn:
    """Exit at once: another master has taken over containers and files."""
    sys.stderr.write(f"this master is no longer the application's: {why}\n")
    sys.stderr.flush()
    os._exit(1)


Call = Callable[[str, int, str, Sequence[PlacementConstraintMapEntry]], Registered]
End = Callable[[str], None]


def register(
    call: Call, application: Application, page_url: str, end: Optional[End] = None
) -> Registered:
    """Register this attempt as the master; raises :class:`SchedulerError` with one line."""
    try:
        constrained = placement_constraints.application_constraints(application.placement_spec)
    except placement_constraints.ConstraintError as error:
        _fail_for_good(f"tony.application.placement-spec: {error}", error, end)
    number = urlsplit(page_url).port or 0
    try:
        return call(application.host, number, page_url, constrained)
    except ConfigurationError as error:
        _fail_for_good(f"the ResourceManager cannot register this master: {error}", error, end)
    except HadoopError as error:
        refusal = refusals.translate_error(error, "this master")
        if isinstance(refusal, LastingRefusal):
            _fail_for_good(str(refusal), error, end)
        text = f"the ResourceManager did not register this master: {error}"
        raise SchedulerError(" ".join(text.split())) from error


def _fail_for_good(text: str, error: Exception, end: Optional[End]) -> NoReturn:
    line = " ".join(text.split())
    if end is not None:
        with suppress(HadoopError):
            end(line)
    raise LastingRefusal(line) from error

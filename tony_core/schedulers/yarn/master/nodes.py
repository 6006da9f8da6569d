"""The cluster's nodes, as the ResourceManager tells its clients: read again when too old.

A master has no right to this of its own; where clients are let in by their name, it is one. It
only makes things faster: without it, asks name no hosts.
"""

from __future__ import annotations

import time
from typing import Callable, List, Optional, Sequence

from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.rpc.service import Limits
from tony_core.hadoop.rpc.wire import User
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.hadoop.yarn.records import AppReport, NodeReport
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.schedulers.yarn import application_state
from tony_core.schedulers.yarn.master.placement import Place, places_of

LIMITS = Limits(connect_s=2.0, answer_s=3.0, total_s=3.0)
AGAIN_S = 30.0  # after it did not work
FAIL_S = 10.0


class ClusterNodes:
    """Used by one thread."""

    def __init__(
        self,
        read: Callable[[], Sequence[NodeReport]],
        with_port: bool,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._with_port = with_port
        self._say = say
        self._clock = clock
        self._places: List[Place] = []
        self._read_at: Optional[float] = None
        self._not_before = 0.0

    @property
    def read_at(self) -> float:
        """When the nodes were told that :meth:`places` gave last."""
        return self._read_at if self._read_at is not None else 0.0

    def places(self, max_age_s: float) -> Sequence[Place]:
        """The nodes that take containers; none when they are not known."""
        now = self._clock()
        if self._read_at is not None and now - self._read_at <= max_age_s:
            return self._places
        if now < self._not_before:
            return ()
        try:
            self._places = places_of(self._read(), self._with_port)
        except HadoopError as error:
            self._say(f"hosts are not named in asks: {error}")
            self._not_before = self._clock() + AGAIN_S
            self._read_at = None
            return ()
        self._read_at = self._clock()
        return self._places


class ClientSide:
    """What a master asks as its user: the nodes, what became of its application, or its end."""

    def __init__(self, conf: SiteConfiguration, user: str) -> None:
        self._conf = conf
        self._user = user
        self._client: Optional[RmClient] = None

    def nodes(self) -> Sequence[NodeReport]:
        """Those that run."""
        return self._opened().nodes()

    def report(self, application: ApplicationId) -> AppReport:
        """The ResourceManager's word on it."""
        return self._opened().report(application)

    def fail(self, application: ApplicationId, why: str) -> None:
        """End it by the user's right: no attempt of it can be a master."""
        self._opened().kill(application, application_state.CANNOT_START + why, within_s=FAIL_S)

    def close(self) -> None:
        """Give back the connection."""
        if self._client is not None:
            self._client.close()

    def _opened(self) -> RmClient:
        if self._client is None:
            self._client = RmClient.open(self._conf, user=User(self._user), limits=LIMITS)
        return self._client

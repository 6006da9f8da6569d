"""The cluster's node reports, read again when they are too old.

A master has no right of its own to read them; a cluster without authentication lets it read them
as its user. They only speed things up: without them, asks name no hosts.
"""

from __future__ import annotations

import time
from typing import Callable, List, Optional, Sequence

from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.rpc.service import CallTimeouts
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.hadoop.yarn.records import AppReport, NodeReport
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.schedulers.yarn import application_state
from tony_core.schedulers.yarn.master.placement import ClusterNode, cluster_nodes

LIMITS = CallTimeouts(connect_s=2.0, answer_s=3.0, total_s=3.0)
RETRY_S = 30.0  # after a failure
KILL_S = 10.0


class NodeReports:
    """The running nodes, cached; used by one thread."""

    def __init__(
        self,
        read: Callable[[], Sequence[NodeReport]],
        with_port: bool,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._with_port = with_port
        self._log = log
        self._clock = clock
        self._nodes_read: List[ClusterNode] = []
        self._read_at: Optional[float] = None
        self._not_before = 0.0

    @property
    def read_at(self) -> float:
        """When the result of the last :meth:`read` was read."""
        return self._read_at if self._read_at is not None else 0.0

    def read(self, max_age_s: float) -> Sequence[ClusterNode]:
        """The running nodes; empty if they cannot be read."""
        now = self._clock()
        if self._read_at is not None and now - self._read_at <= max_age_s:
            return self._nodes_read
        if now < self._not_before:
            return ()
        try:
            self._nodes_read = cluster_nodes(self._read(), self._with_port)
        except HadoopError as error:
            self._log(f"the node reports cannot be read, so asks name no hosts: {error}")
            self._not_before = self._clock() + RETRY_S
            self._read_at = None
            return ()
        self._read_at = self._clock()
        return self._nodes_read


class UserClient:
    """The ResourceManager by its user's right: node reports, application reports, kill."""

    def __init__(self, conf: SiteConfiguration, identity: ClusterIdentity) -> None:
        self._conf = conf
        self._identity = self._opened_as = identity
        self._client: Optional[RmClient] = None

    def nodes(self) -> Sequence[NodeReport]:
        """The running nodes."""
        return self._opened().nodes()

    def report(self, application: ApplicationId) -> AppReport:
        """The report of an application."""
        return self._opened().report(application)

    def fail(self, application: ApplicationId, why: str) -> None:
        """Kill an application that no attempt can be a master of."""
        self._opened().kill(application, application_state.CANNOT_START + why, within_s=KILL_S)

    def renew(self, identity: ClusterIdentity) -> None:
        """Use this identity from the next call on. Any thread."""
        self._identity = identity

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def _opened(self) -> RmClient:
        identity = self._identity
        if self._client is not None and self._opened_as is not identity:
            self._client.close()
            self._client = None
        if self._client is None:
            self._opened_as = identity
            self._client = RmClient.open(self._conf, identity=identity, limits=LIMITS)
        return self._client

"""Whose master a pool is, and how such a process ends when it is that no more."""

from __future__ import annotations

import os
import sys
from typing import NoReturn, Optional

from tony_core.dataclass import dataclass
from tony_core.hadoop.site import urls
from tony_core.hadoop.yarn.ids import AttemptId
from tony_core.hadoop.yarn.records import Container
from tony_core.schedulers import port
from tony_core.schedulers.yarn.amounts import resources_of

MASTER_LOST_S = 1200.0


@dataclass(frozen=True)
class Application:
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
            resources=resources_of(given.capability),
            log_url=url,
        )

    def name(self, host: str, number: int) -> str:
        """A node as asks and people name it."""
        return f"{host}:{number}" if self.with_port else host


def vanish(words: str) -> NoReturn:
    """Another master has taken over: nothing may be touched any more."""
    sys.stderr.write(f"this master is no longer the application's: {words}\n")
    sys.stderr.flush()
    os._exit(1)

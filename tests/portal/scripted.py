"""Schedulers that do what a test says, behind the portal's pool."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, Mapping, Optional

from tests.client.scripted import APP, Scripted
from tony_core.history.metric_file import Wanted
from tony_core.history.reader import JobHistory
from tony_core.portal.index.rows import JobRow
from tony_core.portal.live_jobs import LiveJobs
from tony_core.portal.schedulers import SchedulerPool
from tony_core.portal.sources import Sources
from tony_core.schedulers.port import AppStatus, LogReader, LogRef, Scheduler

ROW = JobRow("main", APP, "ann", name="mnist", state="RUNNING", submitted=1000.0)


class Listed(Scripted):
    """Holds another user than the job says for the owner, where a test wants it."""

    owners: Dict[str, str]
    forgotten: Optional[LogReader] = None

    def __init__(self, *apps: AppStatus) -> None:
        super().__init__("", *apps)
        self.owners = {}
        self.read: List[LogRef] = []

    def owner_of(self, status: AppStatus) -> str:
        return self.owners.get(status.app_id, status.user)

    def read_log(
        self, app_id: str, ref: LogRef, name: str, offset: int, limit: int = 1 << 20
    ) -> bytes:
        self.read.append(ref)
        return super().read_log(app_id, ref, name, offset, limit)

    def log_size(self, app_id: str, ref: LogRef, name: str) -> int:
        return len(self.logs.get((ref.container_id, name), b""))

    def of_forgotten(self, app_id: str, owner: str) -> LogReader:
        if self.forgotten is None:
            return super().of_forgotten(app_id, owner)
        return self.forgotten

    def forget(self, app_id: str = APP) -> None:
        """Know an application no more."""
        self.apps.pop(app_id, None)


class Opened:
    """Gives the pool the schedulers of a test, and notes for whom they were opened."""

    def __init__(self, monkeypatch: Any, **schedulers: Scheduler) -> None:
        self.schedulers = schedulers
        self.envs: List[Mapping[str, str]] = []
        monkeypatch.setattr("tony_core.portal.schedulers.open_scheduler", self._open)

    def _open(self, name: str, env: Mapping[str, str]) -> Scheduler:
        self.envs.append(env)
        return self.schedulers[name]


class Folder:
    """A history folder in memory."""

    def __init__(self, record: JobHistory, config: Optional[bytes] = None, owner: str = "ann"):
        self.owner = owner
        self._record, self._config = record, config

    def record(
        self,
        events: bool = True,
        metrics: Wanted | None = None,
        known: JobHistory | None = None,
    ) -> JobHistory:
        return self._record if events else self._record._replace(events=())

    def metrics_json(self) -> Optional[bytes]:
        return None

    def config(self) -> Optional[bytes]:
        return self._config


class Portal:
    """Pool, live jobs and sources, as a service puts them together."""

    def __init__(self, *names: str, is_for_many: bool = False) -> None:
        self.pool = SchedulerPool(names, is_for_many=is_for_many, env={})
        self.live = LiveJobs(self.pool)
        self.folders: Dict[str, Folder] = {}
        self.sources = Sources(self.pool, self.live, self._open_folder)

    def list(self) -> None:
        """Have every scheduler asked once, here and now."""
        for name in self.pool.names:
            self.live._list(name)
            self.live._ask_wanted(name)

    def close(self) -> None:
        self.live.close()
        self.sources.close()
        self.pool.close()

    @contextlib.contextmanager
    def _open_folder(self, row: JobRow) -> Iterator[Folder]:
        if row.app_id not in self.folders:
            raise LookupError(f"no history of {row.app_id}")
        yield self.folders[row.app_id]

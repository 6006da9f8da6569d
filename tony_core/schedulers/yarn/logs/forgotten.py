"""Logs of applications that the ResourceManager knows no more: what the nodes moved into files.

No server says whose such an application was. So only the files in one user's folder are read, and
the log server, which may show this client more than that user's, is not asked.
"""

from __future__ import annotations

from typing import Callable, List, Optional

from tony_core.files.port import FileSystem
from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.logs.datainput import FormatError
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.schedulers import port
from tony_core.schedulers.port import LogRef, SchedulerError
from tony_core.schedulers.yarn.logs.aggregated import LogsByName, StoredLogs
from tony_core.schedulers.yarn.logs.node_web import visible_names
from tony_core.schedulers.yarn.logs.reader import LARGEST, is_container_of


class ForgottenLogs(port.LogReader):
    """One user's aggregated logs."""

    def __init__(
        self, conf: SiteConfiguration, files: Callable[[str], FileSystem], owner: str
    ) -> None:
        if not owner or "/" in owner or owner in (".", ".."):
            raise SchedulerError(f"{owner!r} is not the name of a user")
        self.owner = owner
        self._store = StoredLogs(conf, files)

    def list_logs(self, app_id: str, ref: LogRef) -> List[str]:
        return visible_names(list(self._container(app_id, ref)))

    def read_log(
        self, app_id: str, ref: LogRef, name: str, offset: int, limit: int = 1 << 20
    ) -> bytes:
        log = self._container(app_id, ref).get(name)
        try:
            return b"" if log is None else log.read(max(0, offset), min(limit, LARGEST))
        except (FormatError, OSError) as error:
            raise SchedulerError(f"the logs of {ref.container_id}: {error}") from error

    def log_size(self, app_id: str, ref: LogRef, name: str) -> Optional[int]:
        log = self._container(app_id, ref).get(name)
        return 0 if log is None else log.size

    def close(self) -> None:
        """Give back connections."""
        self._store.close()

    def _container(self, app_id: str, ref: LogRef) -> LogsByName:
        if not is_container_of(ref.container_id, app_id):
            raise SchedulerError(f"{ref.container_id!r} is no container of {app_id}")
        try:
            found = self._store.known(app_id, ref.container_id)
            if found is None:
                found = self._store.container(app_id, self.owner, ref.container_id, ref.node)
        except (FormatError, HadoopError, OSError, ValueError) as error:
            raise SchedulerError(f"the logs of {ref.container_id}: {error}") from error
        if found is None:
            raise SchedulerError(
                f"the ResourceManager knows {app_id} no more, and there are no aggregated logs of"
                f" {ref.container_id} in {self.owner}'s folder"
            )
        return found

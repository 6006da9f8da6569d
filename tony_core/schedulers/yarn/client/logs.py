"""Container logs for the client: by the ResourceManager's report of where containers ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, List, Optional, Tuple, Union

from tony_core.files import registry
from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.schedulers import port
from tony_core.schedulers.port import AppStatus, LogRef, SchedulerError
from tony_core.schedulers.yarn.client import refusals

if TYPE_CHECKING:
    from tony_core.schedulers.yarn.client.rest import RestClient
    from tony_core.schedulers.yarn.logs.reader import YarnLogs


class YarnLogReader(port.LogReader):
    """Reads the logs of any application, for one user of one site."""

    def __init__(
        self,
        conf: SiteConfiguration,
        user: str,
        rm: Callable[[], Union[RmClient, RestClient]],
        status: Callable[[str], AppStatus],
    ) -> None:
        self._conf = conf
        self._user = user
        self._rm = rm
        self._status = status
        self._opened: Optional[YarnLogs] = None
        # Where a NodeManager redirects readers of logs that have moved.
        self.urls_outlive_job = bool(conf.text("yarn.log.server.url"))

    def list_containers(self, app_id: str) -> List[Tuple[str, LogRef]]:
        """The masters', by attempt: which task another container was for, YARN never knew.

        Where an attempt ran that has ended, the ResourceManager has forgotten.
        """
        application = refusals.parse_id(app_id)
        try:
            rm = self._rm()
            if isinstance(rm, RmClient):
                found = self._masters(rm, application)
            else:
                found = rm.masters(application)
        except HadoopError as error:
            raise refusals.told(error, app_id) from error
        return [("am", ref) for ref in found]

    def _masters(self, rm: RmClient, application: ApplicationId) -> List[LogRef]:
        found = []
        for attempt in rm.attempts(application):
            if attempt.master_container is None:
                continue
            held = {one.id: one for one in rm.containers(attempt.id)}.get(attempt.master_container)
            name = str(attempt.master_container)
            found.append(LogRef(name, str(held.node), held.log_url) if held else LogRef(name))
        return found

    def list_logs(self, app_id: str, ref: LogRef) -> List[str]:
        from tony_core.schedulers.yarn.logs.reader import master_names

        user = self._status(app_id).user
        if not ref.container_id:
            return master_names(self._logs(), app_id, self._attempts(app_id), user)
        return self._logs().names(app_id, ref.container_id, ref.node, ref.url, user)

    def read_log(
        self, app_id: str, ref: LogRef, name: str, offset: int, limit: int = 1 << 20
    ) -> bytes:
        ref, name = self._of_container(app_id, ref, name)
        found = self._status(app_id)
        return self._logs().read(
            app_id,
            ref.container_id,
            ref.node,
            ref.url,
            found.user,
            name,
            offset,
            limit,
            ended=found.state.ended,
        )

    def log_size(self, app_id: str, ref: LogRef, name: str) -> Optional[int]:
        ref, name = self._of_container(app_id, ref, name)
        user = self._status(app_id).user
        return self._logs().size(app_id, ref.container_id, ref.node, ref.url, user, name)

    def close(self) -> None:
        """Give back connections."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _of_container(self, app_id: str, ref: LogRef, name: str) -> Tuple[LogRef, str]:
        """Whose log and which; for a reference to no container, of one of the masters."""
        if ref.container_id:
            return ref, name
        from tony_core.schedulers.yarn.logs.reader import master_log

        return master_log(self._attempts(app_id), name)

    def _attempts(self, app_id: str) -> List[LogRef]:
        masters = [ref for _, ref in self.list_containers(app_id)]
        if not masters:
            raise SchedulerError(f"{app_id} has had no master yet")
        return masters

    def _logs(self) -> YarnLogs:
        if self._opened is None:
            from tony_core.schedulers.yarn.logs.reader import YarnLogs

            self._opened = YarnLogs(self._conf, self._user, registry.filesystem)
        return self._opened

"""The logs of containers for the client, found by the ResourceManager's reports of attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, List, Optional, Tuple
from urllib.parse import urlsplit

from tony_core.files import registry
from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.schedulers import port
from tony_core.schedulers.port import AppStatus, LogRef, SchedulerError
from tony_core.schedulers.yarn import refusals
from tony_core.schedulers.yarn.client.resource_manager import ResourceManager

if TYPE_CHECKING:
    from tony_core.schedulers.yarn.logs.forgotten import ForgottenLogs
    from tony_core.schedulers.yarn.logs.node_web import KnownNodes
    from tony_core.schedulers.yarn.logs.reader import YarnLogs


class YarnLogReader(port.LogReader):
    """Reads the logs of any application, for one user of one site."""

    def __init__(
        self,
        conf: SiteConfiguration,
        identity: ClusterIdentity,
        connect: Callable[[], ResourceManager],
        status: Callable[[str], AppStatus],
    ) -> None:
        self._conf = conf
        self._identity = identity
        self._connect = connect
        self._status = status
        self._opened: Optional[YarnLogs] = None
        self._known: Optional[KnownNodes] = None
        self._forgotten: Optional[ForgottenLogs] = None
        # Where a NodeManager redirects readers of logs that have moved.
        self.urls_outlive_job = bool(conf.text("yarn.log.server.url"))

    def list_containers(self, app_id: str) -> List[Tuple[str, LogRef]]:
        """The masters' containers, by attempt: YARN does not know the tasks of the others.

        The ResourceManager does not keep the node of an attempt that has ended.
        """
        application = refusals.parse_id(app_id)
        try:
            found = self._connect().masters(application)
        except HadoopError as error:
            raise refusals.translate_error(error, app_id) from error
        return [("am", ref) for ref in found]

    def list_logs(self, app_id: str, ref: LogRef) -> List[str]:
        from tony_core.schedulers.yarn.logs.reader import list_master_logs

        user = self._status(app_id).user
        if not ref.container_id:
            return list_master_logs(self._logs(), app_id, self._masters(app_id), user)
        return self._logs().names(app_id, ref.container_id, ref.node, ref.url, user)

    def read_log(
        self, app_id: str, ref: LogRef, name: str, offset: int, limit: int = 1 << 20
    ) -> bytes:
        ref, name = self._resolve(app_id, ref, name)
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
        ref, name = self._resolve(app_id, ref, name)
        user = self._status(app_id).user
        return self._logs().size(app_id, ref.container_id, ref.node, ref.url, user, name)

    def verified(self, ref: LogRef) -> LogRef:
        """With the address of its node where the ResourceManager reports such a node."""
        try:
            parts = urlsplit(ref.url if "://" in ref.url else f"//{ref.url}")
            host, number = parts.hostname or "", parts.port or 0
        except ValueError:
            host, number = "", 0
        url = ""
        try:
            if host and self._nodes().has(host, number):
                url = f"http://{f'[{host}]' if ':' in host else host}:{number}"
        except HadoopError as error:
            raise refusals.translate_error(error, "the list of nodes") from error
        return LogRef(ref.container_id, ref.node, url)

    def of_forgotten(self, app_id: str, owner: str) -> port.LogReader:
        refusals.parse_id(app_id)
        if self._forgotten is None or self._forgotten.owner != owner:
            from tony_core.schedulers.yarn.logs.forgotten import ForgottenLogs

            found = ForgottenLogs(self._conf, registry.filesystem, owner)
            if self._forgotten is not None:
                self._forgotten.close()
            self._forgotten = found
        return self._forgotten

    def _nodes(self) -> KnownNodes:
        if self._known is None:
            from tony_core.schedulers.yarn.logs.node_web import KnownNodes

            self._known = KnownNodes(self._list_nodes)
        return self._known

    def close(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        if self._forgotten is not None:
            self._forgotten.close()
            self._forgotten = None

    def _resolve(self, app_id: str, ref: LogRef, name: str) -> Tuple[LogRef, str]:
        """Container and name of a log; a reference without a container means one of the masters."""
        if ref.container_id:
            return ref, name
        from tony_core.schedulers.yarn.logs.reader import resolve_master_log

        return resolve_master_log(self._masters(app_id), name)

    def _masters(self, app_id: str) -> List[LogRef]:
        masters = [ref for _, ref in self.list_containers(app_id)]
        if not masters:
            raise SchedulerError(f"{app_id} has had no master yet")
        return masters

    def _list_nodes(self) -> List[str]:
        return self._connect().node_addresses()

    def _logs(self) -> YarnLogs:
        if self._opened is None:
            from tony_core.schedulers.yarn.logs.reader import YarnLogs

            self._opened = YarnLogs(
                self._conf, self._identity, registry.filesystem, nodes=self._list_nodes
            )
        return self._opened

"""The logs of containers, wherever they are just now.

Theory of operation
===================

A log begins on the node where its container runs and moves into HDFS when the application has
ended, if the site wants that (*log aggregation*). The node moves its files first and forgets
them afterwards, so a log is always in one place at least. The node is asked as long as it
has the container: there a log can grow. When the node says that it has not, or is gone, the
files are looked at; and when nothing is there either, the site's log server, if it has one. Where
a container's logs were found in the files they stay. Both places hold the same bytes, so
that a reader who goes by offsets misses nothing and gets nothing twice when they move.

Container, node and address come from the job's page or history, which its author can write. So
a container is read only if its id says that it is of this application: nodes and servers judge
who may see a container, and a service may see more than its user. And a login goes only to a node
that the ResourceManager reports (:mod:`tony_core.hadoop.web`).

A log that is not there is empty. A container whose logs cannot be had is an error that
says where they may be.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
)
from urllib.parse import quote, urlencode, urlsplit

from tony_core.files import registry
from tony_core.files.port import FileSystem
from tony_core.hadoop.credentials import LOCATION
from tony_core.hadoop.errors import ConfigurationError, HadoopError
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.logs.datainput import FormatError
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.web import TIMEOUT_S, WebClient, WebUnreachable
from tony_core.hadoop.yarn.ids import ApplicationId, ContainerId
from tony_core.schedulers.port import LogRef, SchedulerError
from tony_core.schedulers.yarn.logs.aggregated import LogsByName, StoredLogs, is_complete
from tony_core.schedulers.yarn.logs.log_server import LogServer
from tony_core.schedulers.yarn.logs.node_web import (
    KnownNodes,
    LogsDenied,
    LogsUnavailable,
    NodeLogs,
    NoSuchLog,
    visible_names,
)

LARGEST = 8 << 20  # bytes of one reading
END_WAIT_S = 5.0  # how long a container may take to end when its application has
POLL_S = 0.1
_AGGREGATION = "yarn.log-aggregation-enable"

T = TypeVar("T")


class _ContainerRef(NamedTuple):
    """A container, and what is known of where it ran."""

    app_id: str
    container_id: str
    node: str
    log_url: str
    owner: str

    @property
    def address(self) -> str:
        """The address of its node's web service."""
        return urlsplit(self.log_url if "://" in self.log_url else f"//{self.log_url}").netloc


class YarnLogs:
    """The logs of any application, for one user. Any thread may use it, one at a time."""

    def __init__(
        self,
        conf: SiteConfiguration,
        identity: ClusterIdentity,
        files: Callable[[str], FileSystem] = registry.filesystem,
        *,
        nodes: Callable[[], Iterable[str]] = tuple,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """``nodes`` gives the web addresses of all nodes that the ResourceManager knows."""
        self._conf = conf
        self._user = identity.user
        self._web = WebClient(identity.for_web(conf, KnownNodes(nodes).has), timeout_s)
        self._lacks_ticket = identity.tokens is not None and not self._web.access.user
        self._real_user = "" if self._web.access.user else identity.real_user
        self._nodes = NodeLogs(self._web, tls=endpoints.yarn_uses_tls(conf))
        self._store = StoredLogs(conf, files)
        self._server = LogServer(conf, self._web)
        self._masters = MasterNodes(conf, self._web)
        self._lock = threading.RLock()

    def names(
        self, app_id: str, container_id: str, node: str, log_url: str, owner: str
    ) -> List[str]:
        """The logs of a container, without the files that are YARN's own."""
        return self._somewhere(
            _ContainerRef(app_id, container_id, node, log_url, owner),
            lambda address: self._nodes.names(address, container_id),
            lambda found: visible_names(list(found)),
            lambda: self._server.names(container_id),
        )

    def read(
        self,
        app_id: str,
        container_id: str,
        node: str,
        log_url: str,
        owner: str,
        name: str,
        offset: int,
        limit: int,
        *,
        ended: bool = False,
    ) -> bytes:
        """Bytes of the log from an offset; empty if there are none yet.

        ``ended``: the application has. Then nothing means that nothing more will come: a
        container that is just being ended (the master's own, above all) is waited for.
        """
        if not name or "/" in name or name in (".", ".."):
            raise SchedulerError(f"{name!r} is not the name of a log")
        offset, limit = max(0, offset), min(limit, LARGEST)
        deadline = time.monotonic() + END_WAIT_S
        while True:
            self._nodes.running = False
            try:
                data = self._somewhere(
                    _ContainerRef(app_id, container_id, node, log_url, owner),
                    lambda address: self._nodes.read(address, container_id, name, offset, limit),
                    lambda found: found[name].read(offset, limit) if name in found else b"",
                    lambda: self._server.read(container_id, name, offset, limit),
                )
            except NoSuchLog:
                return b""
            if data or not (ended and self._nodes.running) or time.monotonic() > deadline:
                return data
            time.sleep(POLL_S)

    def size(
        self, app_id: str, container_id: str, node: str, log_url: str, owner: str, name: str
    ) -> int:
        """Return the length of a log now."""
        try:
            return self._somewhere(
                _ContainerRef(app_id, container_id, node, log_url, owner),
                lambda address: self._nodes.size(address, container_id, name),
                lambda found: found[name].size if name in found else 0,
                lambda: self._server.size(container_id, name),
            )
        except NoSuchLog:
            return 0

    def close(self) -> None:
        """Give back connections."""
        with self._lock:
            self._nodes.close()
            self._server.close()
            self._store.close()
            self._web.close()

    # ---------------------------------------------------------------- where they are

    def _somewhere(
        self,
        whose: _ContainerRef,
        on_node: Callable[[str], T],
        in_store: Callable[[LogsByName], T],
        on_server: Callable[[], T],
    ) -> T:
        if not is_container_of(whose.container_id, whose.app_id):
            raise SchedulerError(
                f"{whose.container_id} is no container of {whose.app_id}, though its page or"
                " history names it: no log of another application is read for this one"
            )
        with self._lock:
            try:
                return self._look(whose, on_node, in_store, on_server)
            except NoSuchLog:
                raise
            except (HadoopError, OSError, ValueError) as error:
                raise SchedulerError(f"the logs of {whose.container_id}: {error}") from error

    def _look(
        self,
        whose: _ContainerRef,
        on_node: Callable[[str], T],
        in_store: Callable[[LogsByName], T],
        on_server: Callable[[], T],
    ) -> T:
        found = self._store.known(whose.app_id, whose.container_id)
        if found is not None:
            return in_store(found)
        if not whose.address:
            place = self._masters.of(whose.app_id, whose.container_id)
            whose = whose._replace(node=whose.node or place.node, log_url=place.address)
        missing: Optional[NoSuchLog] = None
        why, denied = "", False
        try:
            if not whose.address:
                raise LogsUnavailable("the web address of its node is no longer known")
            return on_node(whose.address)
        except NoSuchLog as error:
            missing = error  # or it has just been moved
        except (LogsUnavailable, LogsDenied) as error:
            why, denied = str(error), isinstance(error, LogsDenied)
        try:
            found = self._store.container(whose.app_id, whose.owner, whose.container_id, whose.node)
            if found is not None:
                self._nodes.forget(whose.container_id)
                return in_store(found)
            text = self._denied(whose, why) if denied else self._not_there(whose, why)
        except (FormatError, OSError) as error:
            text = self._unreadable(whose, error, why)
        if missing is not None:
            raise missing
        return self._last_resort(on_server, text)

    def _last_resort(self, on_server: Callable[[], T], text: str) -> T:
        if not self._server.url:
            raise SchedulerError(text)
        try:
            return on_server()
        except (LogsUnavailable, FormatError) as error:
            raise SchedulerError(f"{text}; and {error}") from None

    # ---------------------------------------------------------------- why they are not

    def _unreadable(self, whose: _ContainerRef, error: Exception, why: str) -> str:
        node = f"; its node: {why}" if why else ""
        if isinstance(error, PermissionError):
            return (
                f"{self._user} may not read the logs of {whose.container_id}, which belong to"
                f" {whose.owner}: ask {whose.owner} or the cluster's administrators ({error}{node})"
            )
        return f"the logs of {whose.container_id} cannot be read: {error}{node}"

    def _denied(self, whose: _ContainerRef, why: str) -> str:
        if self._lacks_ticket:
            return (
                f"the logs of {whose.container_id} are still on their node, whose web server takes"
                f" no delegation token ({LOCATION}): unset that variable and use a ticket (kinit),"
                " or wait until the application has ended and its logs are in HDFS"
                f" ({_AGGREGATION}) ({why})"
            )
        if self._real_user:
            return (
                f"the logs of {whose.container_id} are still on their node, which knows no proxy"
                f" user and takes this client for {self._real_user}: name {self._real_user} in the"
                " job's tony.yarn.acl.view at the next submit, or wait until the application has"
                f" ended and its logs are in HDFS ({_AGGREGATION}) ({why})"
            )
        return (
            f"{self._user} may not see the logs of {whose.container_id}, which belong to"
            f" {whose.owner}: the job's owner can let others see them (view ACLs) ({why})"
        )

    def _not_there(self, whose: _ContainerRef, why: str) -> str:
        text = f"the logs of {whose.container_id} cannot be read: {why}"
        if not self._conf.boolean(_AGGREGATION, False):
            return (
                f"{text}. This cluster does not collect the logs of ended applications"
                f" ({_AGGREGATION} is not true): they stay on their node,"
                f" {whose.node or whose.address or '?'}, for some hours at most"
            )
        there = [one for one in self._store.files_of(whose.app_id, whose.owner) if is_complete(one)]
        return (
            f"{text}; and they are not among the logs that were moved into HDFS (those of"
            f" {len(there)} nodes are there). A node's logs arrive when the application has ended:"
            " if it has just ended, try again in a moment; if the node was lost, so are its logs"
        )


def is_container_of(container_id: str, app_id: str) -> bool:
    """Whether a container's id says that it is of that application."""
    try:
        application = ContainerId.parse(container_id).attempt.application
        return application == ApplicationId.parse(app_id)
    except ValueError:
        return False


def list_master_logs(
    logs: YarnLogs, app_id: str, masters: Sequence[LogRef], owner: str
) -> List[str]:
    """The logs of all of an application's masters, each after its attempt: ``master-1.stdout``."""
    found: List[str] = []
    problem: Optional[SchedulerError] = None
    for ref in masters:
        try:
            names = logs.names(app_id, ref.container_id, ref.node, ref.url, owner)
        except SchedulerError as error:
            problem = error  # of one that was lost with its node; the others' are there
            continue
        found += [f"{_prefix(ref)}{name}" for name in names]
    if problem is not None and not found:
        raise problem
    return found


def resolve_master_log(masters: Sequence[LogRef], name: str) -> Tuple[LogRef, str]:
    """Find the log of a name from :func:`list_master_logs`; any other is the last master's."""
    for ref in masters:
        if name.startswith(_prefix(ref)):
            return ref, name[len(_prefix(ref)) :]
    return masters[-1], name


def _prefix(ref: LogRef) -> str:
    return f"master-{ContainerId.parse(ref.container_id).attempt.number}."


_MAX_KNOWN = 256


class NodePlace(NamedTuple):
    """A node: its name, and the address of its web service."""

    node: str = ""
    address: str = ""


class MasterNodes:
    """The ResourceManager's web service, asked once for each master."""

    def __init__(self, conf: SiteConfiguration, web: WebClient) -> None:
        self._conf = conf
        self._web = web
        self._known: OrderedDict[str, NodePlace] = OrderedDict()

    def of(self, app_id: str, container_id: str) -> NodePlace:
        """The node of a master's container; empty for other containers, or if it is unknown."""
        if container_id not in self._known:
            answer = self._request(app_id)
            self._known.update(answer)
            if answer:
                self._known.setdefault(container_id, NodePlace())  # a task's, not a master's
            while len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
        return self._known.get(container_id, NodePlace())

    def _request(self, app_id: str) -> Dict[str, NodePlace]:
        try:
            service = endpoints.rm_web(self._conf)
        except ConfigurationError:
            return {}
        query = urlencode(self._web.access.query())
        target = f"/ws/v1/cluster/apps/{quote(app_id, safe='')}/appattempts?{query}"
        for address in service.addresses:
            try:
                with self._web.get(str(address), target, tls=service.tls) as response:
                    if response.status == 200:
                        return parse_master_nodes(response.json())
            except (WebUnreachable, HadoopError):
                continue  # or it is the other one of the pair
        return {}


def parse_master_nodes(answer: Any) -> Dict[str, NodePlace]:
    """The masters' nodes by container, from the ResourceManager's list of attempts."""
    found: Dict[str, NodePlace] = {}
    part = answer.get("appAttempts") if isinstance(answer, dict) else None
    attempts = part.get("appAttempt") if isinstance(part, dict) else None
    for attempt in attempts if isinstance(attempts, list) else [attempts]:
        if isinstance(attempt, dict) and attempt.get("containerId"):
            found[str(attempt["containerId"])] = NodePlace(
                str(attempt.get("nodeId") or ""), str(attempt.get("nodeHttpAddress") or "")
            )
    return found

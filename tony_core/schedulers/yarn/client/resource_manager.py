"""The ResourceManager as the client uses it, and the choice between its RPC and its web server.

:func:`connect` takes RPC wherever its port accepts a connection. Only where that port is closed
to clients it takes the web server (:mod:`rest`), which reports less and cannot ask for resources
other than memory and cores. Both are a :class:`ResourceManager`.

A connection is tried before the first call: a refused connection is known in a millisecond, while
the calls themselves wait half a minute for a ResourceManager that fails over.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Dict, Iterable, List, Optional, Protocol

from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.rpc.connection import Address, Endpoints
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import RM_DELEGATION, Token
from tony_core.hadoop.yarn.ids import ApplicationId, ContainerId
from tony_core.hadoop.yarn.records import AppReport, NewApplication
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.job.spec import Job
from tony_core.schedulers.port import LastingRefusal, LogRef, SchedulerError
from tony_core.schedulers.yarn import refusals

if TYPE_CHECKING:
    from tony_core.schedulers.yarn.client.cluster_limits import ClusterLimits
    from tony_core.schedulers.yarn.client.rest import RestResourceManager
    from tony_core.schedulers.yarn.client.submission import AppRequest

CONNECT_S = 3.0
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 2.0
FAILOVER_TRIES = 10  # about 15 s
KILL_S = 30.0

_PROTECTION = "hadoop.rpc.protection"
_SHIPS_KEYTAB = "the job ships a keytab (tony.kerberos.ship-keytab)"


class ResourceManager(Protocol):
    """The calls of submit, status, kill and logs; they raise :class:`HadoopError`."""

    def new_application(self) -> NewApplication:
        """A fresh application id, and the largest container that the cluster grants."""

    def read_limits(self, job: Job) -> ClusterLimits:
        """Read the limits that decide whether the job can run there."""

    def delegation_token(self, renewer: str) -> Token:
        """A new token of the caller for this ResourceManager; its service is empty."""

    def submit(self, request: AppRequest, credentials: Credentials) -> None:
        """Submit an application. It may still be refused afterwards: see its report."""

    def report(self, application: ApplicationId) -> AppReport:
        """An application's report; raises :class:`ApplicationNotFound`."""

    def applications(
        self, *, types: Iterable[str] = (), tags: Iterable[str] = (), states: Iterable[str] = ()
    ) -> List[AppReport]:
        """The applications with one of these types, tags and states, the newest first."""

    def masters(self, application: ApplicationId) -> List[LogRef]:
        """The master's container of each attempt that has one, by attempt."""

    def node_addresses(self) -> List[str]:
        """``HOST:PORT`` of the web servers of all nodes that it knows, lost ones too."""

    def master_container(self, application: ApplicationId) -> Optional[ContainerId]:
        """The master's container of the last attempt, if it has one."""

    def signal(self, container: ContainerId, signal: str) -> None:
        """Send a container one of YARN's signals, by name."""

    def kill(
        self, application: ApplicationId, diagnostics: str = "", *, within_s: float = KILL_S
    ) -> None:
        """Kill an application; returns when the ResourceManager has done it."""

    def close(self) -> None:
        """Close the connections."""


class RpcResourceManager:
    """The ResourceManager by RPC."""

    def __init__(self, client: RmClient, conf: SiteConfiguration, user: str) -> None:
        self._client = client
        self._conf = conf
        self._user = user

    def new_application(self) -> NewApplication:
        return self._client.new_application()

    def read_limits(self, job: Job) -> ClusterLimits:
        from tony_core.schedulers.yarn.client.cluster_limits import read_limits

        return read_limits(self._client, self._conf, job, self._user)

    def delegation_token(self, renewer: str) -> Token:
        return self._client.delegation_token(renewer)

    def submit(self, request: AppRequest, credentials: Credentials) -> None:
        self._client.submit(request.to_message(credentials))

    def report(self, application: ApplicationId) -> AppReport:
        return self._client.report(application)

    def applications(
        self, *, types: Iterable[str] = (), tags: Iterable[str] = (), states: Iterable[str] = ()
    ) -> List[AppReport]:
        return self._client.applications(types=types, tags=tags, states=states)

    def masters(self, application: ApplicationId) -> List[LogRef]:
        found = []
        for attempt in self._client.attempts(application):
            if attempt.master_container is None:
                continue
            running = {one.id: one for one in self._client.containers(attempt.id)}
            master = running.get(attempt.master_container)
            name = str(attempt.master_container)
            found.append(LogRef(name, str(master.node), master.log_url) if master else LogRef(name))
        return found

    def node_addresses(self) -> List[str]:
        return [node.http for node in self._client.nodes(()) if node.http]

    def master_container(self, application: ApplicationId) -> Optional[ContainerId]:
        attempts = self._client.attempts(application)
        return attempts[-1].master_container if attempts else None

    def signal(self, container: ContainerId, signal: str) -> None:
        self._client.signal(container, signal)

    def kill(
        self, application: ApplicationId, diagnostics: str = "", *, within_s: float = KILL_S
    ) -> None:
        self._client.kill(application, diagnostics, within_s=within_s)

    def close(self) -> None:
        self._client.close()


def connect(
    conf: SiteConfiguration, identity: ClusterIdentity, retries: int = 0, encrypted: bool = False
) -> ResourceManager:
    """The ResourceManager of a site; :class:`SchedulerError` if none of its ports is open.

    ``encrypted``: nothing may go there in clear, whatever the site's configuration allows.
    """
    rpc, web = endpoints.rm_client(conf), endpoints.rm_web(conf)
    is_pair = len(rpc.addresses) > 1
    # During a failover neither of a pair may listen for some seconds.
    problem = connection_problem(rpc, FAILOVER_TRIES if is_pair else 1)
    by_web = bool(problem) and not connection_problem(web)
    if problem and not by_web and not is_pair and retries > 1:
        problem = connection_problem(rpc, retries)
    if not problem:
        client = RmClient.open(conf, identity=identity, encrypted=encrypted)
        return RpcResourceManager(client, conf, identity.user)
    if not by_web:
        raise SchedulerError(problem)
    # Imported here: most sites never need it.
    from tony_core.schedulers.yarn.client.rest import RestResourceManager

    access = identity.for_web(conf)
    if identity.is_secure and not access.is_secure:
        raise SchedulerError(f"{problem}; and its web server is no way around: {_why_not(conf)}")
    unsafe = ""
    if identity.is_secure and not web.tls:
        unsafe = _SHIPS_KEYTAB if encrypted else _why_unsafe(conf, identity)
    rest = RestResourceManager(web, identity.user, access, problem, unsafe)
    if identity.real_user and access.is_secure:
        _check_proxy_user(rest, identity, problem)
    return rest


def _check_proxy_user(rest: RestResourceManager, identity: ClusterIdentity, problem: str) -> None:
    """Have the web server say whom it takes us for: one without Hadoop's own filter ignores
    ``doAs=``, and would run a user's job as the service."""
    try:
        found = rest.requested_user()
    except HadoopError as error:
        rest.close()
        raise refusals.translate_error(error, f"acting for {identity.user}") from None
    if found != identity.user:
        rest.close()
        raise LastingRefusal(
            f"{problem}; and its web server is no way around: it takes this client for"
            f" {found or 'an unknown user'}, and not for {identity.user}, for whom"
            f" {identity.real_user} acts: let clients reach the RPC port, or set"
            " yarn.resourcemanager.webapp.delegation-token-auth-filter.enabled"
        )


def _why_not(conf: SiteConfiguration) -> str:
    if endpoints.web_authentication(conf) == "simple":
        return "it proves nothing (hadoop.http.authentication.type is simple)"
    return f"there is no {RM_DELEGATION} for it"


def _why_unsafe(conf: SiteConfiguration, identity: ClusterIdentity) -> str:
    """Why a secure site's web server may not get secrets without TLS; empty if it may."""
    if identity.login is None:
        return "it proves nothing to a client with tokens"
    named = conf.text(_PROTECTION)
    if any(name.lower() != "authentication" for name in conf.names(_PROTECTION)):
        return f"{_PROTECTION} is {named}"
    return ""


def connection_problem(service: Endpoints, retries: int = 0) -> str:
    """Why none of a service's servers accepts a connection; empty if one does."""
    pause = FIRST_PAUSE_S
    for attempt in range(retries + 1):
        if attempt:
            time.sleep(pause)
            pause = min(LONGEST_PAUSE_S, pause * 2)
        problems: Dict[str, None] = {}
        for address in service.addresses:
            problem = _try_connect(address)
            if not problem:
                return ""
            problems[f"{address}: {problem}"] = None
    note = f". {service.note}" if service.note else ""
    tries = f" ({retries + 1} attempts)" if retries else ""
    return f"{service.service} cannot be reached{tries}: {'; '.join(problems)}{note}"


def _try_connect(address: Address) -> str:
    try:
        socket.create_connection((address.host, address.port), timeout=CONNECT_S).close()
    except socket.timeout:
        return f"no answer within {CONNECT_S:g} s"
    except socket.gaierror as error:
        return f"this name is not known ({error.strerror})"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""

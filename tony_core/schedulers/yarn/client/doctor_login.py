"""``tony doctor`` on a cluster with Kerberos: who we are there, and whether the servers take it.

That a ticket is missing or has expired, a keytab does not fit, or no rule makes a short name is
known before, when the cluster is opened. Here a ticket is asked of the KDC for each kind of server,
and a server with TLS shows its certificate; no server is sent anything else.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Iterator, List, Optional

from tony_core.hadoop.credentials import LOCATION
from tony_core.hadoop.errors import AccessDenied, HadoopError
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.rpc.connection import Endpoints
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.schedulers.port import CheckResult, Finding

if TYPE_CHECKING:
    from tony_core.hadoop.kerberos.login import Login

WHAT = "Kerberos"
_PROXY_USER = "proxy user"
_LONG_JOBS = "jobs that outlive their tokens"
_NOT_ALLOWED = ("not allowed to impersonate", "Unauthorized connection for super-user")
SOON_S = 1800.0
TLS_S = 5.0


def examine_login(conf: SiteConfiguration, identity: ClusterIdentity) -> Iterator[Finding]:
    """The findings about the client's login; none on an open cluster."""
    login = identity.login
    if login is None:
        if identity.tokens is not None:
            yield Finding(WHAT, CheckResult.OK, _describe_tokens(identity))
        return
    try:
        yield _examine_ticket(login, identity.real_user or identity.user)
    except HadoopError as error:
        yield Finding(WHAT, CheckResult.WRONG, str(error))
        return
    yield _examine_services(conf, login)


def examine_proxy_user(
    conf: SiteConfiguration, identity: ClusterIdentity, *, by_rpc: bool
) -> Iterator[Finding]:
    """Whether the servers let the login act for the user that it names; none where it names none.

    ``by_rpc``: the ResourceManager can be asked. What else a server answers, other checks report.
    """
    from tony_core.hadoop.hdfs.namenode_client import ask_name_node
    from tony_core.hadoop.yarn.rm_client import RmClient

    real_user = identity.real_user
    if not real_user:
        return

    def ask_resource_manager() -> None:
        rm = RmClient.open(conf, identity=identity)
        try:
            rm.metrics()
        finally:
            rm.close()

    def ask_hdfs() -> None:
        ask_name_node(conf, identity, endpoints.name_service(conf))

    had: List[str] = []
    asked = [("the ResourceManager", ask_resource_manager)] if by_rpc else []
    asked += [("the NameNode", ask_hdfs)] if conf.text("fs.defaultFS") else []
    for server, ask in asked:
        try:
            ask()
        except AccessDenied as error:
            if not any(words in error.text for words in _NOT_ALLOWED):
                continue
            remedy = (
                f"hadoop.proxyuser.{real_user}.hosts, and .groups or .users, in the core-site.xml"
                f" of {server}, have to name this machine and {identity.user}"
            )
            yield Finding(_PROXY_USER, CheckResult.WRONG, f"{server} answers: {error.text}", remedy)
            return
        except HadoopError:
            continue
        had.append(server)
    if had:
        text = f"{real_user} may act for {identity.user}, say {' and '.join(had)}"
        yield Finding(_PROXY_USER, CheckResult.OK, text)


def examine_long_jobs(conf: SiteConfiguration, identity: ClusterIdentity) -> Iterator[Finding]:
    """What a job with ``tony.kerberos.ship-keytab`` can rely on; nothing on an open cluster."""
    if identity.login is None:
        return
    from tony_core.schedulers.yarn.client.next_master import PRIVILEGES, describe_site

    complete, text = describe_site(conf)
    if complete:
        yield Finding(_LONG_JOBS, CheckResult.OK, text)
        return
    advice = f"an administrator sets {PRIVILEGES}=true, and hadoop.proxyuser.* for that service"
    yield Finding(_LONG_JOBS, CheckResult.NOTE, text, advice)


def _describe_tokens(identity: ClusterIdentity) -> str:
    held = identity.tokens.tokens.values() if identity.tokens is not None else ()
    return f"{identity.user}, by the tokens of {LOCATION}: {', '.join(sorted(map(str, held)))}"


def _examine_ticket(login: Login, user: str) -> Finding:
    """Who we are, until when, and until when that may be renewed."""
    left = login.check()
    now = time.time()
    text = f"{login.principal} by {login.where}, {user} on the cluster"
    if left is not None:
        text += f", until {_moment(now + left)}"
    if login.is_keytab:
        return Finding(WHAT, CheckResult.OK, f"{text}; the keytab gives a new ticket then")
    renewable = _renewable_until(login)
    if renewable is None:  # the library does not say
        return Finding(WHAT, CheckResult.OK, text)
    if renewable <= now:
        advice = "kinit -r 7d gets a ticket that kinit -R renews; running jobs need none"
        return Finding(WHAT, CheckResult.NOTE, f"{text}; it cannot be renewed", advice)
    text += f", renewable until {_moment(renewable)}"
    if left is not None and left < SOON_S:
        return Finding(WHAT, CheckResult.NOTE, text, "kinit -R renews it")
    return Finding(WHAT, CheckResult.OK, text)


def _renewable_until(login: Login) -> Optional[float]:
    """The end of renewals; 0 if there are none, None where only the library can read the cache."""
    from tony_core.hadoop.kerberos.ticket_cache import NoCache, read_cache

    try:
        found = read_cache(login.cache)
    except (OSError, NoCache):
        return None
    ticket = found.initial if found is not None else None
    return float(ticket.renewable_until) if ticket is not None else None


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _examine_services(conf: SiteConfiguration, login: Login) -> Finding:
    """Whether the KDC gives tickets for the servers that a client calls."""
    from tony_core.hadoop.kerberos.gssapi import SPNEGO, Target

    what = "tickets for servers"
    had: List[str] = []
    host = ""
    try:
        rm = endpoints.rm_client(conf)
        hdfs = endpoints.name_service(conf) if conf.text("fs.defaultFS") else None
        for principal in (*rm.principals, *(hdfs.rpc.principals if hdfs is not None else ())):
            login.authenticate(principal).step()
            had.append(principal)
        for web in (endpoints.rm_web(conf), *((hdfs.web,) if hdfs is not None else ())):
            for host in dict.fromkeys(address.host for address in web.addresses):
                login.new_context(Target(service=f"HTTP@{host}"), SPNEGO).step()
                had.append(f"HTTP/{host}")
    except HadoopError as error:
        return Finding(what, CheckResult.WRONG, str(error), _explain_names(host))
    return Finding(what, CheckResult.OK, ", ".join(dict.fromkeys(had)))


def _explain_names(host: str) -> str:
    """What DNS calls a web server, whose principal may have that name."""
    if not host:
        return ""
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        return f"this machine does not know the name {host} ({error.strerror})"
    try:
        name = socket.gethostbyaddr(address)[0]
    except OSError:
        return f"{host} is {address}, and that address has no name in reverse DNS"
    if name == host:
        return ""
    return (
        f"{host} is {address}, and in reverse DNS that address is {name}: if the KDC has"
        f" HTTP/{name}, write {name} in place of {host} in the site's configuration"
    )


def examine_certificate(web: Endpoints, tls: object) -> Iterator[Finding]:
    """Whether this machine trusts the certificate of a web server; none without TLS."""
    import ssl

    if not web.tls or not isinstance(tls, ssl.SSLContext):
        return
    what = "certificates"
    for address in web.addresses:
        try:
            with socket.create_connection((address.host, address.port), TLS_S) as plain:
                tls.wrap_socket(plain, server_hostname=address.host).close()
        except ssl.SSLCertVerificationError as error:
            yield Finding(
                what,
                CheckResult.WRONG,
                f"{address}: its certificate is not trusted here ({error.verify_message})",
                "name a file with the authority's certificate (PEM) by tony.https.ca-file in"
                " core-site.xml, or by SSL_CERT_FILE",
            )
        except OSError as error:
            yield Finding(what, CheckResult.WRONG, f"{address}: {error.strerror or error}")
        else:
            yield Finding(what, CheckResult.OK, f"{address} is trusted")
            return

"""Who this process is to a cluster: a name, a login to Kerberos, or the tokens that it was given.

=====================  ==================================  ==========================
the cluster            RPC                                 web servers
=====================  ==================================  ==========================
open                   the user's name                     ``user.name=``
Kerberos, a client     the login (``kerberos.login``)      SPNEGO
Kerberos, with tokens  the token of the service            ``delegation=``
=====================  ==================================  ==========================

A service may act for another user (:data:`PROXY_USER`), where ``hadoop.proxyuser.*`` of the servers
allows it: it logs in as itself and names the user, by RPC in the context of each connection, to
WebHDFS and the ResourceManager's web server as ``doas=``. Files, jobs and tokens are that user's.
NodeManagers know no ``doas=``: they see the service.

A client's login is that of a principal and a keytab, where they are named (:data:`PRINCIPAL`,
:data:`KEYTAB`), else of the user's ticket cache. Containers have tokens only: they need neither a
ticket nor Kerberos' library. A client has tokens only where its caller obtained them
(HADOOP_TOKEN_FILE_LOCATION): those belong to the caller.

A token is found by its *service*: the address of the server, or the name of a pair of NameNodes.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from typing import TYPE_CHECKING, Callable, Mapping, NamedTuple, Optional

from tony_core.hadoop.credentials import (
    LOCATION,
    Credentials,
    CredentialsError,
    read_vint,
    url_string,
)
from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.rpc.connection import Address
from tony_core.hadoop.rpc.wire import Identity, ProxyUser, User
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.certificates import read_authorities
from tony_core.hadoop.site.configuration import SiteConfiguration, user_name
from tony_core.hadoop.tokens import AM_RM, HDFS_DELEGATION, RM_DELEGATION, Token
from tony_core.hadoop.yarn.messages.yarn import YARNDelegationTokenIdentifier

if TYPE_CHECKING:
    from tony_core.hadoop.kerberos.login import Login
    from tony_core.hadoop.web import WebAccess


PRINCIPAL, KEYTAB = "TONY_KERBEROS_PRINCIPAL", "TONY_KERBEROS_KEYTAB"
"""The variables that name a login by a keytab (a file's path; never its content)."""

PROXY_USER = "HADOOP_PROXY_USER"
"""The variable that names the user for whom this process acts, as for Hadoop's own clients."""

_SHORT_NAME = re.compile(r"\w[\w.+-]*\$?")


class ClusterIdentity(NamedTuple):
    """Who this process is to the servers of one cluster."""

    user: str
    """The short name: the owner of files and jobs."""
    login: Optional[Login] = None
    tokens: Optional[Credentials] = None
    real_user: str = ""
    """Who acts for :attr:`user`: the short name of the login; empty where that is the user."""

    @property
    def is_secure(self) -> bool:
        """Whether servers ask for more than a name."""
        return self.login is not None or self.tokens is not None

    def for_rpc(self, service: Callable[[], str], server: str) -> Identity:
        """The identity for calls; ``service`` is a token's, ``server`` stands in the error."""
        if self.login is not None:
            return ProxyUser(self.user, self.login) if self.real_user else self.login
        if self.tokens is None:
            return User(self.user, self.real_user)
        return self.token(service(), server).to_message()

    def for_web(
        self,
        conf: SiteConfiguration,
        is_node: Callable[[str, int], bool] = lambda host, port: False,
    ) -> WebAccess:
        """The access to YARN's web servers; ``is_node`` knows those of the cluster's nodes.

        They authenticate where ``hadoop.http.authentication.type`` is ``kerberos``. A secure site
        has to say that they do not (``simple``): what a server says of itself is not believed.
        """
        from tony_core.hadoop.web import WebAccess

        authorities = read_authorities(conf) if endpoints.yarn_uses_tls(conf) else ""
        if not self.is_secure or endpoints.web_authentication(conf) == "simple":
            return WebAccess(self.user, authorities=authorities)
        if self.login is not None:
            return WebAccess(
                login=self.login,
                login_for=endpoints.web_servers(conf),
                is_node=is_node,
                proxy_user=self.user if self.real_user else "",
                proxy_user_for=endpoints.rm_web(conf).addresses,
                authorities=authorities,
            )
        try:
            token = self.token(rm_token_service(conf), "the ResourceManager")
        except ConfigurationError:
            return WebAccess(authorities=authorities)
        return WebAccess(
            token=url_string(token),
            token_for=endpoints.rm_web(conf).addresses,
            authorities=authorities,
        )

    def token(self, service: str, server: str) -> Token:
        """The token for a service; raises :class:`ConfigurationError` if there is none."""
        held = (self.tokens or Credentials()).tokens.values()
        for token in held:
            if token.service == service:
                return token
        have = ", ".join(sorted(map(str, held)))
        raise ConfigurationError(
            f"there is no token for {server} ({service}) among those that this process was given"
            f" ({LOCATION}): it has {have or 'none'}. Obtain this one, too, or unset"
            f" {LOCATION} and use a ticket (kinit). A job gets one for each file system in"
            " tony.other.namenodes"
        )


def cluster_identity(
    conf: SiteConfiguration, env: Optional[Mapping[str, str]] = None
) -> ClusterIdentity:
    """The identity of a client; raises :class:`HadoopError` in one sentence."""
    env = os.environ if env is None else env
    proxy_user = read_proxy_user(env)
    found = _own_identity(conf, env)
    return act_for(found, proxy_user) if proxy_user else found


def read_proxy_user(env: Mapping[str, str]) -> str:
    """The user to act for, by :data:`PROXY_USER`; empty if the variable is not set.

    An empty variable is refused: a template that gave nothing must not turn a user's job into one
    of the service.
    """
    name = env.get(PROXY_USER)
    problem = "" if name is None else find_name_problem(name)
    if problem:
        raise ConfigurationError(f"{PROXY_USER} {problem}, or unset it")
    return name or ""


def find_name_problem(name: str) -> str:
    """Why a text cannot be the name of a user to act for; empty if it can."""
    if not name:
        return "is empty: name the user to act for"
    if not _SHORT_NAME.fullmatch(name):
        return (
            f"is {name!r}, which is no user's short name: name the user as the cluster does (ann,"
            " not ann@EXAMPLE.COM)"
        )
    return ""


def act_for(identity: ClusterIdentity, user: str) -> ClusterIdentity:
    """The identity of a service that acts for a user; the servers decide whether it may."""
    if user == identity.user:
        return identity  # to the servers that would be an impersonation, too
    if identity.tokens is not None:
        raise ConfigurationError(
            f"the tokens of {LOCATION} are {identity.user}'s, and {PROXY_USER} is {user}: a token"
            f" cannot act for another user than its own. Obtain the tokens in {user}'s name, or"
            " unset one of the two variables"
        )
    return identity._replace(user=user, real_user=identity.user)


def _own_identity(conf: SiteConfiguration, env: Mapping[str, str]) -> ClusterIdentity:
    """The identity of a client without a user to act for."""
    if not endpoints.is_secure(conf):
        return ClusterIdentity(user_name(env))
    principal, keytab = env.get(PRINCIPAL, ""), env.get(KEYTAB, "")
    if bool(principal) != bool(keytab):
        named, missing = (PRINCIPAL, KEYTAB) if principal else (KEYTAB, PRINCIPAL)
        raise ConfigurationError(
            f"{named} is set and {missing} is not (a keytab is named by both, as are"
            " tony.kerberos.principal and tony.kerberos.keytab): set both, or neither"
        )
    if keytab:
        from tony_core.hadoop.kerberos.login import Login

        return identity_by_login(conf, Login.from_keytab(principal, keytab))
    if env.get(LOCATION):
        return identity_by_tokens(conf, env)
    from tony_core.hadoop.kerberos.login import Login

    return identity_by_login(conf, Login.from_ticket_cache(env=env))


def container_identity(
    conf: SiteConfiguration, user: str, credentials: Credentials
) -> ClusterIdentity:
    """The identity of a process in a container: on a secure cluster, its tokens alone."""
    if not endpoints.is_secure(conf):
        return ClusterIdentity(user)
    return ClusterIdentity(user, tokens=Credentials(credentials.without(AM_RM).tokens))


def identity_by_login(conf: SiteConfiguration, login: Login) -> ClusterIdentity:
    """The identity of a ticket's or keytab's principal."""
    from tony_core.hadoop.kerberos import gssapi, principals

    principal = principals.parse_principal(login.principal)
    rules = principals.parse_rules(conf.text("hadoop.security.auth_to_local"))
    realm = gssapi.default_realm() or principal.realm
    return ClusterIdentity(principals.short_name(principal, rules, realm), login)


def identity_by_tokens(conf: SiteConfiguration, env: Mapping[str, str]) -> ClusterIdentity:
    """The identity of the tokens in HADOOP_TOKEN_FILE_LOCATION."""
    path = env.get(LOCATION, "")
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        tokens = Credentials.of_container(env)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigurationError(
            f"{LOCATION}: {path} cannot be read ({reason}): correct the path, or unset {LOCATION}"
            " and use a ticket (kinit)"
        ) from None
    except CredentialsError as error:
        raise ConfigurationError(f"{LOCATION}: {path}: {error}") from None
    if mode & stat.S_IWOTH:
        raise ConfigurationError(
            f"{LOCATION}: every user can write {path} (mode {mode:o}), and a job by another user's"
            f" tokens would be theirs: obtain the tokens anew, and chmod 600 {path}"
        )
    owners = [owner for owner in map(owner_of, tokens.tokens.values()) if owner]
    if not owners:
        raise ConfigurationError(
            f"{LOCATION}: {path} has no token of a user ({HDFS_DELEGATION}, {RM_DELEGATION})."
            f" Obtain them, or unset {LOCATION} and use a ticket (kinit)"
        )
    from tony_core.hadoop.kerberos import principals

    owner = principals.parse_principal(owners[0])
    rules = principals.parse_rules(conf.text("hadoop.security.auth_to_local"))
    return ClusterIdentity(principals.short_name(owner, rules, owner.realm), tokens=tokens)


def owner_of(token: Token) -> str:
    """The principal that a delegation token stands for; empty for tokens of other kinds."""
    try:
        if token.kind == RM_DELEGATION:
            return YARNDelegationTokenIdentifier.decode(token.identifier).owner
        if token.kind == HDFS_DELEGATION:
            # A version of one byte, then texts with their lengths: owner, renewer, real user.
            size, at = read_vint(token.identifier, 1)
            return token.identifier[at : at + size].decode()
    except ValueError:
        pass  # of another version
    return ""


def token_service(conf: SiteConfiguration, address: Address) -> str:
    """The service of tokens for a server: its IP address and port, or its name where the site
    wants it so (``hadoop.security.token.service.use_ip``)."""
    host = address.host.lower()
    if conf.boolean("hadoop.security.token.service.use_ip", True):
        try:
            host = socket.gethostbyname(host)
        except OSError as error:
            raise ConfigurationError(f"the host {host} is not known: {error.strerror}") from None
    return f"{host}:{address.port}"


def rm_token_service(conf: SiteConfiguration) -> str:
    """The service of tokens for the ResourceManager; of a pair, both addresses."""
    found = endpoints.rm_client(conf).addresses
    return ",".join(token_service(conf, address) for address in found)


def hdfs_token_service(conf: SiteConfiguration, service: endpoints.NameService) -> str:
    """The service of tokens for a file system; of a pair of NameNodes, its name."""
    if service.highly_available:
        return f"ha-hdfs:{service.name}"
    check_name_node(service)
    return token_service(conf, service.rpc.addresses[0])


def check_name_node(service: endpoints.NameService) -> None:
    """Refuse a web server of which the site says nothing: who it has to be is not known."""
    if not service.rpc.addresses:
        raise ConfigurationError(
            f"the web server {service.name} belongs to none of the site's own NameNodes, and on a"
            " cluster with Kerberos logins and tokens are for a NameNode: write hdfs://HOST:PORT,"
            f" with the port for calls (as a rule {endpoints.NAME_NODE_PORT})"
        )

"""The NameNode by RPC: delegation tokens. Files go by WebHDFS (``files.webhdfs``)."""

from __future__ import annotations

from tony_core.hadoop.identity import ClusterIdentity, hdfs_token_service
from tony_core.hadoop.rpc.messages import (
    CancelDelegationTokenRequest,
    CancelDelegationTokenResponse,
    GetDelegationTokenRequest,
    GetDelegationTokenResponse,
    GetServerDefaultsRequest,
    GetServerDefaultsResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tony_core.hadoop.rpc.service import Method, Request, Response, Service
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import Token

PROTOCOL = "org.apache.hadoop.hdfs.protocol.ClientProtocol"

# A second token, where the answer to the first request was lost, expires unused.
DELEGATION_TOKEN = Method(
    "getDelegationToken", GetDelegationTokenRequest, GetDelegationTokenResponse
)
RENEW_TOKEN = Method(
    "renewDelegationToken", RenewDelegationTokenRequest, RenewDelegationTokenResponse
)
# A second cancellation would be refused, for there is no such token any more.
CANCEL_TOKEN = Method(
    "cancelDelegationToken",
    CancelDelegationTokenRequest,
    CancelDelegationTokenResponse,
    repeatable=False,
)
SERVER_DEFAULTS = Method("getServerDefaults", GetServerDefaultsRequest, GetServerDefaultsResponse)


def obtain_token(
    conf: SiteConfiguration,
    identity: ClusterIdentity,
    found: endpoints.NameService,
    renewer: str,
) -> Token:
    """A new token for a file system, which ``renewer`` may renew and cancel as well.

    Raises :class:`HadoopError`.
    """
    request = GetDelegationTokenRequest(renewer=renewer)
    answer = _call(conf, identity, found, DELEGATION_TOKEN, request)
    # A NameNode knows neither the address that its clients use nor the name of its pair.
    return Token.from_message(answer.token)._replace(service=hdfs_token_service(conf, found))


def renew_token(
    conf: SiteConfiguration, identity: ClusterIdentity, found: endpoints.NameService, token: Token
) -> float:
    """Renew a token, as its renewer; returns when it then expires (seconds since the epoch).

    Needs a login: a token renews none. Raises :class:`HadoopError`.
    """
    request = RenewDelegationTokenRequest(token=token.to_message())
    return _call(conf, identity, found, RENEW_TOKEN, request).new_expiry_time / 1000


def cancel_token(
    conf: SiteConfiguration, identity: ClusterIdentity, found: endpoints.NameService, token: Token
) -> None:
    """Cancel a token, as its owner or renewer; raises :class:`HadoopError`."""
    request = CancelDelegationTokenRequest(token=token.to_message())
    _call(conf, identity, found, CANCEL_TOKEN, request)


def ask_name_node(
    conf: SiteConfiguration, identity: ClusterIdentity, found: endpoints.NameService
) -> None:
    """Have a NameNode answer to this caller; raises :class:`HadoopError` if it does not."""
    _call(conf, identity, found, SERVER_DEFAULTS, GetServerDefaultsRequest())


def _call(
    conf: SiteConfiguration,
    identity: ClusterIdentity,
    found: endpoints.NameService,
    method: Method[Request, Response],
    request: Request,
) -> Response:
    """The answer of the active NameNode, on a connection of its own."""
    namenodes = Service(
        found.rpc,
        PROTOCOL,
        identity.for_rpc(lambda: hdfs_token_service(conf, found), found.rpc.service),
        allowed=endpoints.allowed_protections(conf),
    )
    try:
        return namenodes.call(method, request)
    finally:
        namenodes.close()

"""The NameNode by RPC: delegation tokens. Files go by WebHDFS (``files.webhdfs``)."""

from __future__ import annotations

from tony_core.hadoop.identity import ClusterIdentity, hdfs_token_service
from tony_core.hadoop.rpc.messages import (
    GetDelegationTokenRequest,
    GetDelegationTokenResponse,
    GetServerDefaultsRequest,
    GetServerDefaultsResponse,
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

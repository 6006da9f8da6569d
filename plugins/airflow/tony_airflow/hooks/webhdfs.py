"""Airflow's WebHDFSHook with the login and the user of a connection of the type ``tony``.

By itself that hook has one login for the whole process, the ticket of KRB5CCNAME, and acts for no
other user on a cluster with Kerberos. Here each client negotiates by the login that it was made
with, which is where TonY's own client takes it from: a triggerer may have many.
"""

from __future__ import annotations

from typing import Any, Optional
from urllib.parse import urlsplit

import requests
from airflow.providers.apache.hdfs.hooks.webhdfs import WebHDFSHook
from hdfs import Client  # type: ignore[import-untyped]

from tony_airflow.connection import Site
from tony_core.hadoop.identity import ClusterIdentity, cluster_identity
from tony_core.hadoop.kerberos.login import Login
from tony_core.hadoop.kerberos.spnego import Negotiation
from tony_core.hadoop.site.configuration import SiteConfiguration


def webhdfs_hook(webhdfs_conn_id: str, site: Site) -> WebHDFSHook:
    """The hook for a WebHDFS connection, as the site's user."""
    env = site.env()
    identity = cluster_identity(SiteConfiguration.load(env), env)
    if identity.login is None:
        # An open cluster takes the name; with tokens only, the hook is as it always is.
        return WebHDFSHook(webhdfs_conn_id, proxy_user=site.proxy_user)
    return _LoginHook(webhdfs_conn_id, identity)


class _LoginHook(WebHDFSHook):  # type: ignore[misc, unused-ignore]
    """Gives clients that log in by one login."""

    def __init__(self, webhdfs_conn_id: str, identity: ClusterIdentity) -> None:
        super().__init__(webhdfs_conn_id)
        self._identity = identity

    def _get_client(self, *args: Any, **kwargs: Any) -> Any:
        made = super()._get_client(*args, **kwargs)
        session, login = made._session, self._identity.login
        assert login is not None
        session.params = {}  # no name: the login proves one
        session.auth = NegotiateAuth(login, made.url)
        proxy_user: Optional[str] = self._identity.user if self._identity.real_user else None
        return Client(made.url, proxy=proxy_user, session=session)


class NegotiateAuth(requests.auth.AuthBase):
    """SPNEGO with the NameNode, in each request. DataNodes get the token that it gives."""

    def __init__(self, login: Login, url: str) -> None:
        self._login = login
        self._server = urlsplit(url).netloc

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Prove the login, and have the server prove who it is."""
        parts = urlsplit(str(request.url))
        if parts.netloc == self._server:
            negotiation = Negotiation(self._login, parts.hostname or "")
            request.headers.pop("Cookie", None)  # with the server's own it would prove nothing
            request.headers.update(negotiation.fields())

            def check(answer: requests.Response, **_: Any) -> None:
                headers = {name.lower(): text for name, text in answer.headers.items()}
                negotiation.check(answer.status_code, headers)

            request.register_hook("response", check)  # type: ignore[no-untyped-call]
        return request

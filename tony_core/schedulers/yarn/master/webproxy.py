"""The settings of the web proxy in front of a master's page, from the site's properties.

The proxy is a part of each ResourceManager's web server, unless the site runs its own
(``yarn.web-proxy.address``). Access follows YARN: with ``yarn.acl.enable`` the owner, the job's
view list and the cluster's administrators have it; without, every user of the web pages, unless
the job has a view list. Where the web pages do not authenticate users, every user is the static
user; :mod:`tony_core.master.web.proxy_gate` says what that means for a page. On a cluster with
Kerberos a page is for authenticated users only.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

from typing import Tuple

from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.urls import proxied
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.job.access_list import AccessList
from tony_core.schedulers.container_pool import WebProxy

STATIC_USER = "dr.who"
_AUTHENTICATES = "AuthenticationFilterInitializer"


def web_proxy(conf: SiteConfiguration, application: ApplicationId, view_acl: str) -> WebProxy:
    """The cluster's proxy as an application's page has to know it."""
    own = conf.text("yarn.web-proxy.address")
    if own:
        host, _, _ = own.rpartition(":")
        hosts = [host or own]
        tls = endpoints.yarn_uses_tls(conf)
        root = f"{'https' if tls else 'http'}://{own}"
    else:
        web = endpoints.rm_web(conf)
        hosts = [address.host for address in web.addresses]
        first = web.addresses[0]
        name = f"[{first.host}]" if ":" in first.host else first.host
        root = f"{'https' if web.tls else 'http'}://{name}:{first.port}"
    is_secure = endpoints.is_secure(conf)
    return WebProxy(
        hosts=tuple(host.strip("[]") for host in hosts),
        public_url=proxied(root, application),
        static_user="" if is_secure else static_user(conf),
        view_acl=view_list(conf, view_acl),
        unauthenticated=unauthenticated_users(conf) if is_secure else (),
    )


def static_user(conf: SiteConfiguration) -> str:
    """The user that all requests come from; empty if the web pages authenticate users."""
    named = not _believes_names(conf) or (
        not conf.boolean("hadoop.http.authentication.simple.anonymous.allowed", True)
    )
    if _has_filter(conf) and named:
        return ""
    return conf.text("hadoop.http.staticuser.user", STATIC_USER)


def unauthenticated_users(conf: SiteConfiguration) -> Tuple[str, ...]:
    """The names that a proxy gives without having authenticated the user; ``*``: any.

    Those of a filter that the site wrote itself count as authenticated.
    """
    if _has_filter(conf) and _believes_names(conf):
        return ("*",)  # the type simple takes the request's user.name
    return tuple(sorted({STATIC_USER, conf.text("hadoop.http.staticuser.user", STATIC_USER)}))


def _has_filter(conf: SiteConfiguration) -> bool:
    return _AUTHENTICATES in conf.text("hadoop.http.filter.initializers")


def _believes_names(conf: SiteConfiguration) -> bool:
    return endpoints.web_authentication(conf) in ("", "simple")


def view_list(conf: SiteConfiguration, view_acl: str) -> str:
    """The users and groups that may view the page beside the owner, as YARN decides it.

    With one difference: to YARN, a site with ACLs that names no administrators makes every user
    one, and a site whose list is blank has none. Both look the same here, and count as none.
    """
    if not conf.boolean("yarn.acl.enable", False):
        return view_acl if view_acl.strip() else "*"
    administrators = AccessList.parse(conf.text("yarn.admin.acl"))
    return str(AccessList.parse(view_acl) | administrators)

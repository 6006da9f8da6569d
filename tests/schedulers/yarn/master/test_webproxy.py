"""Where the proxy is and whom the page may be shown to, out of a site's configuration."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

import pytest

from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.schedulers.container_pool import WebProxy
from tony_core.schedulers.yarn import job_credentials
from tony_core.schedulers.yarn.master.webproxy import static_user, view_list, web_proxy

APP = ApplicationId(7, 12)
ONE = {"yarn.resourcemanager.hostname": "rm"}


def proxy(values: Dict[str, str], view_acl: str = "") -> WebProxy:
    """As the master reads it: of what travels to the nodes."""
    travelled = job_credentials.select_master_properties(SiteConfiguration.of({**ONE, **values}))
    return web_proxy(SiteConfiguration.of(travelled), APP, view_acl)


def test_a_plain_site() -> None:
    assert proxy({}) == WebProxy(
        hosts=("rm",),
        public_url="http://rm:8088/proxy/application_7_0012/",
        static_user="dr.who",
        view_acl="*",
    )


def test_a_pair_of_resource_managers() -> None:
    pair = {
        "yarn.resourcemanager.ha.enabled": "true",
        "yarn.resourcemanager.ha.rm-ids": "a,b",
        "yarn.resourcemanager.hostname.a": "rm1",
        "yarn.resourcemanager.hostname.b": "rm2",
        "yarn.http.policy": "HTTPS_ONLY",
    }
    found = proxy(pair)
    assert found.hosts == ("rm1", "rm2")
    assert found.public_url == "https://rm1:8090/proxy/application_7_0012/"


def test_a_proxy_of_its_own() -> None:
    found = proxy({"yarn.web-proxy.address": "web:9099"})
    assert found.hosts == ("web",)
    assert found.public_url == "http://web:9099/proxy/application_7_0012/"


FILTER = {
    "hadoop.http.filter.initializers": (
        "org.apache.hadoop.security.HttpCrossOriginFilterInitializer,"
        "org.apache.hadoop.security.AuthenticationFilterInitializer"
    )
}
NAMED = "hadoop.http.authentication.simple.anonymous.allowed"


@pytest.mark.parametrize(
    ("values", "user"),
    [
        ({}, "dr.who"),
        ({"hadoop.http.staticuser.user": "web"}, "web"),
        (FILTER, "dr.who"),
        ({**FILTER, NAMED: "false"}, ""),
        ({**FILTER, "hadoop.http.authentication.type": "kerberos"}, ""),
        ({"hadoop.http.authentication.type": "kerberos"}, "dr.who"),
    ],
)
def test_who_everybody_is(values: Dict[str, str], user: str) -> None:
    assert static_user(SiteConfiguration.of(values)) == user
    assert proxy(values).static_user == user


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({}, ("dr.who",)),
        ({"hadoop.http.staticuser.user": "web"}, ("dr.who", "web")),
        ({**FILTER, "hadoop.http.authentication.type": "kerberos"}, ("dr.who",)),
        (FILTER, ("*",)),
        ({**FILTER, NAMED: "false"}, ("*",)),
    ],
)
def test_names_that_prove_nothing_on_a_secure_cluster(
    values: Dict[str, str], names: Tuple[str, ...]
) -> None:
    found = proxy({"hadoop.security.authentication": "kerberos", **values})
    assert found.unauthenticated == names
    assert found.static_user == ""
    assert proxy(values).unauthenticated == (), "an open cluster"


@pytest.mark.parametrize(
    ("admins", "job", "found"),
    [
        (None, "", ""),
        ("*", "bob", "*"),
        ("yarn-admin", "*", "*"),
        (" ", "", ""),
        ("yarn-admin", "", "yarn-admin"),
        ("yarn-admin ops", "bob,eve staff", "bob,eve,yarn-admin ops,staff"),
        ("ann ops", "", "ann ops"),
        ("*,", "", "*,"),  # a user of that name
    ],
)
def test_lists_where_the_cluster_keeps_some(admins: Optional[str], job: str, found: str) -> None:
    values = {"yarn.acl.enable": "true"}
    if admins is not None:
        values["yarn.admin.acl"] = admins
    assert view_list(SiteConfiguration.of(values), job) == found


def test_a_jobs_own_list_counts_where_the_cluster_keeps_none() -> None:
    assert view_list(SiteConfiguration.of({}), "bob staff") == "bob staff"
    assert view_list(SiteConfiguration.of({}), " staff") == " staff", "a group, and no user"

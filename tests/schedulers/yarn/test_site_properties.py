"""What of a site's configuration travels to its nodes."""

from __future__ import annotations

from typing import Dict

import pytest

from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.schedulers.yarn import job_credentials
from tony_core.schedulers.yarn.master import pool_factory

AM = "yarn.am.liveness-monitor.expiry-interval-ms"

PAIR = {
    "fs.defaultFS": "hdfs://lake",
    "dfs.nameservices": "lake",
    "dfs.ha.namenodes.lake": "a,b",
    "dfs.namenode.rpc-address.lake.a": "nn1:8020",
    "dfs.namenode.rpc-address.lake.b": "nn2:8020",
    "dfs.namenode.http-address.lake.a": "nn1:9870",
    "dfs.namenode.http-address.lake.b": "nn2:9870",
    "yarn.resourcemanager.ha.enabled": "true",
    "yarn.resourcemanager.ha.rm-ids": "one,two",
    "yarn.resourcemanager.hostname.one": "rm1",
    "yarn.resourcemanager.hostname.two": "rm2",
    "yarn.resourcemanager.scheduler.address.two": "${yarn.resourcemanager.hostname.two}:18030",
    "hadoop.rpc.protection": "privacy",
}


def test_the_master_finds_the_same_servers_as_the_client() -> None:
    here = SiteConfiguration.of(PAIR)
    there = SiteConfiguration.of(job_credentials.select_master_properties(here))
    assert endpoints.rm_scheduler(there).addresses == endpoints.rm_scheduler(here).addresses
    assert endpoints.rm_web(there).addresses == endpoints.rm_web(here).addresses
    assert endpoints.name_service(there).web.addresses == endpoints.name_service(here).web.addresses
    assert endpoints.allowed_protections(there) == endpoints.allowed_protections(here)


def test_executors_get_the_file_systems_and_no_more() -> None:
    picked = job_credentials.select_executor_properties(
        job_credentials.select_master_properties(SiteConfiguration.of(PAIR))
    )
    there = SiteConfiguration.of(picked)
    assert len(endpoints.name_service(there).web.addresses) == 2
    assert not [name for name in picked if name.startswith(("yarn.", "hadoop."))]


@pytest.mark.parametrize(
    "name",
    [
        "dfs.namenode.kerberos.principal",
        "fs.s3a.secret.key",
        "hadoop.proxyuser.root.hosts",
        "ssl.server.keystore.password",
        "yarn.resourcemanager.zk-auth",
        "yarn.resourcemanager.addressbook",
    ],
)
def test_what_nodes_do_not_need_stays(name: str) -> None:
    assert (
        job_credentials.select_master_properties(SiteConfiguration.of({name: "x", **PAIR}))
        .keys()
        .isdisjoint({name})
    )


def test_substitutions_are_resolved_here() -> None:
    picked = job_credentials.select_master_properties(SiteConfiguration.of(PAIR))
    assert picked["yarn.resourcemanager.scheduler.address.two"] == "rm2:18030"


def test_a_property_without_a_value_is_as_if_not_set() -> None:
    assert "dfs.nameservices" not in job_credentials.select_master_properties(
        SiteConfiguration.of({"dfs.nameservices": ""})
    )


@pytest.mark.parametrize(
    ("site", "waits"), [({}, 1200.0), ({AM: "900000"}, 1200.0), ({AM: "3600000"}, 4800.0)]
)
def test_executors_wait_longer_than_the_cluster_does_for_a_silent_master(
    site: Dict[str, str], waits: float
) -> None:
    conf = SiteConfiguration.of(
        job_credentials.select_master_properties(SiteConfiguration.of(site))
    )
    assert pool_factory.master_lost_s(conf) == waits


def test_only_a_master_that_logs_in_gets_the_names_of_services() -> None:
    kerberos = {
        "dfs.namenode.kerberos.principal": "nn/_HOST@LAKE",
        "yarn.resourcemanager.principal": "rm/_HOST@LAKE",
        "hadoop.security.auth_to_local": "DEFAULT",
    }
    conf = SiteConfiguration.of({**PAIR, **kerberos})
    without = job_credentials.select_master_properties(conf)
    picked = job_credentials.select_master_properties(conf, logs_in=True)
    assert picked == {**without, **kerberos}
    there, here = SiteConfiguration.of(picked), conf
    assert endpoints.rm_client(there).principals == endpoints.rm_client(here).principals
    assert endpoints.rm_client(there).addresses == endpoints.rm_client(here).addresses
    names = endpoints.name_service(here, "hdfs://lake").rpc.principals
    assert endpoints.name_service(there, "hdfs://lake").rpc.principals == names != ()
    assert kerberos.keys().isdisjoint(job_credentials.select_executor_properties(picked))

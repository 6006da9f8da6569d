"""Which tokens a job gets on a secure cluster, and whose they are."""

from __future__ import annotations

import json
import time
from typing import Any, Dict, List, Optional, cast

import pytest

from tests.schedulers.yarn.clusters import artifact, job
from tony_core.hadoop.credentials import Credentials, vint
from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import (
    AM_RM,
    CONTAINER,
    HDFS_DELEGATION,
    LOCALIZER,
    NM,
    RM_DELEGATION,
    Token,
)
from tony_core.job.spec import Hadoop, Job, Timeouts
from tony_core.schedulers.port import LifetimeLimit
from tony_core.schedulers.yarn.client.delegation_tokens import (
    find_lifetime_limit,
    job_name_services,
    job_tokens,
    planned_tokens,
    renewer_of,
)

SITE = {
    "fs.defaultFS": "hdfs://lake",
    "dfs.nameservices": "lake",
    "dfs.ha.namenodes.lake": "a,b",
    "dfs.namenode.rpc-address.lake.a": "nn1:8020",
    "dfs.namenode.rpc-address.lake.b": "nn2:8020",
    "yarn.resourcemanager.hostname": "rm",
    "yarn.resourcemanager.principal": "rm/_HOST@REALM",
    "hadoop.security.authentication": "kerberos",
    "hadoop.security.token.service.use_ip": "false",
}
ROOT = "hdfs://lake/user/ada/.tony"


def services_of(*places: str, site: Dict[str, str] = SITE, **more: Any) -> List[str]:
    conf = SiteConfiguration.of(site)
    found = job_name_services(conf, job(**more), places or (ROOT,), ())
    return planned_tokens(conf, found)


LAKE = f"{HDFS_DELEGATION} for ha-hdfs:lake"
RM = f"{RM_DELEGATION} for rm:8032"


class TestNameServices:
    def test_one_token_for_all_places_on_one_file_system(self) -> None:
        assert services_of(ROOT, f"{ROOT}/history", "hdfs://lake/elsewhere") == [LAKE, RM]

    def test_other_places(self) -> None:
        other = f"{HDFS_DELEGATION} for nn7:8020"
        assert services_of(ROOT, "hdfs://nn7/history", "hdfs://nn7:8020/x") == [LAKE, other, RM]

    def test_nodes_store_logs_on_the_default_one(self) -> None:
        other = f"{HDFS_DELEGATION} for nn7:8020"
        assert services_of("hdfs://nn7/root") == [other, LAKE, RM]

    def test_those_that_the_job_names(self) -> None:
        named = Hadoop(namenodes=("hdfs://nn8:9000", "nn9"))
        more = [f"{HDFS_DELEGATION} for {one}" for one in ("nn8:9000", "nn9:8020")]
        assert services_of(hadoop=named) == [LAKE, *more, RM]

    def test_what_no_job_can_name(self) -> None:
        with pytest.raises(ConfigurationError, match=r"tony\.other\.namenodes: s3a://b is on no"):
            services_of(hadoop=Hadoop(namenodes=("s3a://b",)))

    def test_artifacts_that_stay_where_they_are(self) -> None:
        conf = SiteConfiguration.of(SITE)
        used = (artifact("a", uri="hdfs://nn7:8020/data"), artifact("b", uri="s3a://bucket/b"))
        found = job_name_services(conf, job(), (ROOT,), used)
        assert [one.name for one in found] == ["lake", "nn7:8020"]

    def test_a_web_server_of_the_sites_own(self) -> None:
        web = {"dfs.namenode.http-address.lake.a": "nn1:9999"}
        found = services_of("webhdfs://nn1:9999/root", "webhdfs://NN2/x", site={**SITE, **web})
        assert found == [LAKE, RM]

    def test_a_web_server_of_another(self) -> None:
        with pytest.raises(ConfigurationError, match=r"the web server nn7:9870 belongs to none of"):
            services_of("webhdfs://nn7:9870/root")

    def test_all_that_a_mount_table_leads_to(self) -> None:
        table = {"fs.defaultFS": "viewfs://all"}
        for name, target in (("/user", "hdfs://nn1:8020/home"), ("/logs", "hdfs://nn2/logs")):
            table[f"fs.viewfs.mounttable.all.link.{name}"] = target
        found = services_of("hdfs://nn1:8020/home/ada", site={**SITE, **table})
        assert found == [*(f"{HDFS_DELEGATION} for {one}:8020" for one in ("nn1", "nn2")), RM]


class TestRenewer:
    def test_the_resource_manager_by_its_host(self) -> None:
        assert renewer_of(SiteConfiguration.of(SITE)) == "rm/rm@REALM"

    def test_of_a_pair_the_first(self) -> None:
        pair = {
            **SITE,
            "yarn.resourcemanager.ha.enabled": "true",
            "yarn.resourcemanager.ha.rm-ids": "one,two",
            "yarn.resourcemanager.hostname.one": "rm1",
            "yarn.resourcemanager.hostname.two": "rm2",
        }
        assert renewer_of(SiteConfiguration.of(pair)) == "rm/rm1@REALM"
        conf = SiteConfiguration.of(pair)
        assert planned_tokens(conf, [])[-1] == f"{RM_DELEGATION} for rm1:8032,rm2:8032"

    def test_a_site_that_names_none(self) -> None:
        lacking = {**SITE, "yarn.resourcemanager.principal": ""}
        with pytest.raises(ConfigurationError, match=r"yarn\.resourcemanager\.principal is not"):
            renewer_of(SiteConfiguration.of(lacking))


def token(kind: str, service: str) -> Token:
    return Token(f"who of {service}".encode(), b"very secret", kind, service)


class TestCallersTokens:
    """HADOOP_TOKEN_FILE_LOCATION: no login, and nothing is asked of a server."""

    HELD = (
        token(HDFS_DELEGATION, "ha-hdfs:lake"),
        token(HDFS_DELEGATION, "nn7:8020"),
        token(RM_DELEGATION, "rm:8032"),
        token("HIVE_DELEGATION_TOKEN", "hive"),
    )

    def tokens(self, wanted: Job, *held: Token) -> Dict[str, Token]:
        conf = SiteConfiguration.of(SITE)
        identity = ClusterIdentity(
            "ada", tokens=Credentials({f"t{i}": one for i, one in enumerate(held)})
        )
        services = job_name_services(conf, wanted, (ROOT,), ())
        return job_tokens(conf, identity, None, services)  # type: ignore[arg-type]

    def test_all_travel_the_needed_ones_under_their_services(self) -> None:
        assert self.tokens(job(), *self.HELD) == {
            "ha-hdfs:lake": self.HELD[0],
            "rm:8032": self.HELD[2],
            "t1": self.HELD[1],
            "t3": self.HELD[3],
        }

    def test_what_makes_the_caller_a_master_stays_with_it(self) -> None:
        own = [token(kind, "rm") for kind in (AM_RM, NM, CONTAINER, LOCALIZER)]
        kinds = {one.kind for one in self.tokens(job(), *self.HELD, *own).values()}
        assert kinds == {HDFS_DELEGATION, RM_DELEGATION, "HIVE_DELEGATION_TOKEN"}

    def test_names_that_are_taken(self) -> None:
        conf = SiteConfiguration.of(SITE)
        held = {"ha-hdfs:lake": token("kms-dt", "kms:9600"), "x": self.HELD[0], "y": self.HELD[2]}
        identity = ClusterIdentity("ada", tokens=Credentials(held))
        services = job_name_services(conf, job(), (ROOT,), ())
        found = job_tokens(conf, identity, None, services)  # type: ignore[arg-type]
        assert found["ha-hdfs:lake"] == self.HELD[0]
        assert set(found.values()) == set(held.values())

    def test_a_missing_one_is_named(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            self.tokens(job(), *self.HELD[:2])
        text = str(caught.value)
        assert "no token for the ResourceManager (rm:8032)" in text
        assert "HDFS_DELEGATION_TOKEN for ha-hdfs:lake, HDFS_DELEGATION_TOKEN for nn7:8020" in text
        assert "HADOOP_TOKEN_FILE_LOCATION" in text
        assert "secret" not in text and "who of" not in text
        assert "secret" not in json.dumps(repr(self.HELD))


class TestLifetimeLimits:
    DAY = 86400.0

    def limit(
        self, ends_in_s: float, identity: ClusterIdentity, **more: Any
    ) -> Optional[LifetimeLimit]:
        now = 1_700_000_000.0
        held = [hdfs_token(now, now + ends_in_s), Token(b"?", b"p", "HIVE", "hive")]
        wanted = Job("j", (), **more)
        return find_lifetime_limit(wanted, identity, held, now)

    def test_by_a_login(self) -> None:
        found = self.limit(7 * self.DAY, by_login())
        assert found is not None and found.ends == 1_700_000_000 + 7 * self.DAY
        date = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.ends))
        assert found.text == (
            f"can run until {date} (7 days): its tokens end then. For longer,"
            " submit by your own keytab, with tony.kerberos.ship-keytab=true"
        )

    def test_by_a_callers_tokens(self) -> None:
        found = self.limit(5 * 3600, ClusterIdentity("ann", tokens=Credentials()))
        assert found is not None and "(5 h) at the latest" in found.text
        assert "the tokens of HADOOP_TOKEN_FILE_LOCATION end then, or before" in found.text

    def test_by_a_service_whose_keytab_no_job_may_have(self) -> None:
        found = self.limit(150, by_login()._replace(real_user="gateway"))
        assert found is not None and "Submitted again by gateway" in found.text
        assert "(2 min 30 s)" in found.text and "keytab" not in found.text

    def test_jobs_without_a_limit(self) -> None:
        assert self.limit(7 * self.DAY, by_login(), hadoop=Hadoop(ship_keytab=True)) is None
        hour = Timeouts(application_s=3600)
        assert self.limit(7 * self.DAY, by_login(), timeouts=hour) is None
        assert self.limit(1800, by_login(), timeouts=hour) is not None
        assert find_lifetime_limit(Job("j", ()), by_login(), [], 0.0) is None


def hdfs_token(issued: float, ends: float) -> Token:
    texts = b"".join(vint(len(text)) + text for text in (b"ann", b"rm", b""))
    dates = vint(int(issued * 1000)) + vint(int(ends * 1000))
    return Token(b"\0" + texts + dates + vint(1) + vint(1), b"p", HDFS_DELEGATION, "nn:8020")


def by_login() -> ClusterIdentity:
    return ClusterIdentity("ann", cast(Any, object()))

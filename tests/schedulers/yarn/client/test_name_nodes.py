"""The NameNodes that a job names: each is asked before anything is staged."""

from __future__ import annotations

from typing import Any, List

import pytest

from tests.schedulers.yarn.client.test_delegation_tokens import SITE
from tests.schedulers.yarn.clusters import job
from tony_core.hadoop.errors import (
    AuthenticationError,
    KdcUnreachable,
    LoginError,
    Unreachable,
    WrongService,
)
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.endpoints import NameService
from tony_core.job.spec import FileRef, Hadoop, History, Yarn
from tony_core.schedulers.port import SchedulerError
from tony_core.schedulers.yarn.client.name_nodes import find_name_node_problems

SECURE = {**SITE, "dfs.namenode.kerberos.principal": "nn/_HOST@REALM"}
OTHER = Hadoop(namenodes=("nn8:9000",))


def problems(site: Any = SECURE, answer: Any = None, **more: Any) -> List[str]:
    def ask(conf: SiteConfiguration, identity: ClusterIdentity, found: NameService) -> None:
        asked.append(found.name)
        if answer is not None:
            raise answer

    asked.clear()
    conf = SiteConfiguration.of(site)
    return find_name_node_problems(conf, ClusterIdentity("ada"), job(**more), ask)


asked: List[str] = []


def test_each_is_asked_once_and_the_sites_default_is_not() -> None:
    files = (FileRef("hdfs://nn7/data", "d"), FileRef("hdfs://nn8:9000/x", "x"), FileRef("/l", "l"))
    more = {"history": History("hdfs://lake/history"), "yarn": Yarn("webhdfs://nn1:9870/staging")}
    assert problems(hadoop=OTHER, files=files, **more) == []
    assert asked == ["nn8:9000", "nn7"]


def test_a_host_that_does_not_resolve() -> None:
    site = {**SECURE, "hadoop.security.token.service.use_ip": "true"}
    (problem,) = problems(site, hadoop=Hadoop(namenodes=("nn.invalid",)))
    assert problem.startswith(
        "tony.other.namenodes names hdfs://nn.invalid: the host nn.invalid is"
    )
    assert asked == []


def test_a_site_that_names_no_principal() -> None:
    (problem,) = problems(SITE, hadoop=OTHER)
    assert problem.startswith("tony.other.namenodes names hdfs://nn8:9000, and dfs.namenode.kerber")
    assert asked == []


@pytest.mark.parametrize("error", [WrongService("X", "no such protocol"), LoginError("no key")])
def test_a_server_that_is_no_name_node(error: Exception) -> None:
    (problem,) = problems(answer=error, files=(FileRef("hdfs://nn7/data", "d"),))
    assert problem.startswith("tony.containers.resources names hdfs://nn7/data: no ")


def test_a_server_that_proves_nothing() -> None:
    with pytest.raises(SchedulerError, match="whose server has not proved to be a NameNode:"):
        problems(answer=AuthenticationError("another key"), hadoop=OTHER)


def test_one_that_does_not_answer_may_later() -> None:
    with pytest.raises(
        SchedulerError, match=r"^tony\.other\.namenodes names hdfs://nn8:9000: away"
    ):
        problems(answer=Unreachable("away"), hadoop=OTHER)
    with pytest.raises(SchedulerError, match=r"^no KDC"):
        problems(answer=KdcUnreachable("no KDC"), hadoop=OTHER)


def test_a_web_server_of_another_site() -> None:
    (problem,) = problems(history=History("webhdfs://nn7:9870/history"))
    assert problem.startswith("tony.history.location names webhdfs://nn7:9870/history: the web ser")
    assert "write hdfs://HOST:PORT" in problem

"""Keytabs that may not be shipped, or are of no use where they arrive."""

from __future__ import annotations

import re
from typing import Callable, List

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.kerberos import REALM
from tests.cluster.yarn.jobs import Tony, until
from tests.cluster.yarn.test_secure_keys import modes_below

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def ships(cluster: Hadoop, user: str) -> List[str]:
    """The options of a submit that ships a user's keytab."""
    conf = {
        "tony.kerberos.principal": f"{user}@{REALM}",
        "tony.kerberos.keytab": str(cluster.keytab_of(user)),
        "tony.kerberos.ship-keytab": "true",
        "tony.am.memory": "256",
        "tony.worker.instances": "1",
    }
    return [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]


def test_a_node_without_kerberos_and_a_service_that_acts_for_a_user(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop("secure")
    one = tony_on(cluster)
    job = one.submit(*ships(cluster, "ann"), "--executes", "sleep 100", small=False)
    output = job.ends(1)
    assert "the job ships a keytab, by which no fresh tokens can be fetched" in output
    assert re.search(r"krb5\.conf", output), output
    assert one.json("status", job.app_id)["attempt"] <= 1
    until(one.nothing_runs, "no process is left")

    before = modes_below(cluster, "/user/ann")
    one.env["HADOOP_PROXY_USER"] = "ann"
    words = ("--executes", "true", *ships(cluster, "gateway"))
    refused = one("submit", *words, check=False)
    assert refused.returncode == 2, refused.stderr
    assert "gateway submits for ann" in refused.stderr and "must not get it" in refused.stderr
    assert modes_below(cluster, "/user/ann") == before, "nothing was staged"


@pytest.mark.nightly
def test_a_cluster_that_encrypts_no_calls(hadoop: GetHadoop, tony_on: Callable[..., Tony]) -> None:
    cluster = hadoop("secure", "integrity")
    one = tony_on(cluster)
    refused = one("submit", "--executes", "true", *ships(cluster, "ann"), check=False)
    assert refused.returncode == 3, refused.stderr
    assert "the server offers the protection auth-int" in refused.stderr
    assert "must travel encrypted" in refused.stderr and "leave the key out" in refused.stderr
    assert ".tony" not in cluster.hdfs_of("ann").list("/user/ann")


@pytest.mark.nightly
def test_a_kdc_that_is_away_when_the_master_starts(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop("secure", "node_kerberos")
    one = tony_on(cluster)
    job = one.submit(*ships(cluster, "ann"), "--executes", "sleep 5", small=False)
    assert job.app_id
    cluster.stop("kdc")
    try:
        job.until(lambda: "no login by the shipped keytab" in job.output_text, "the warning")
    finally:
        cluster.start("kdc")
    job.ends(0)

"""A program by hand finds the file systems that TonY finds: both read the same properties."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Dict
from xml.sax.saxutils import escape

import pytest

import tony_hdfs_client
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration

PAIR = {
    "fs.defaultFS": "hdfs://lake",
    "dfs.nameservices": "lake",
    "dfs.ha.namenodes.lake": "one, two",
    "dfs.namenode.rpc-address.lake.one": "nn1:8020",
    "dfs.namenode.rpc-address.lake.two": "nn2:8020",
}
SITES: Dict[str, Dict[str, str]] = {
    "one NameNode": {"fs.defaultFS": "hdfs://nn1:8020"},
    "one without a port": {"fs.defaultFS": "hdfs://nn1"},
    "a pair": PAIR,
    "a pair and another": {
        **PAIR,
        "dfs.nameservices": "lake, pond",
        "dfs.namenode.rpc-address.pond": "nn3:8020",
    },
}
WEB: Dict[str, Dict[str, str]] = {
    "by default": {},
    "on any address": {
        f"dfs.namenode.{scheme}-address{tail}": "0.0.0.0:5070"
        for scheme in ("http", "https")
        for tail in ("", ".lake.one", ".lake.two", ".pond")
    },
    "on a host of its own": {
        f"dfs.namenode.{scheme}-address{tail}": "web:5070"
        for scheme in ("http", "https")
        for tail in ("", ".lake.one", ".lake.two", ".pond")
    },
}
POLICIES = ("", "HTTP_ONLY", "https_only")


@pytest.mark.parametrize(("site", "web", "policy"), list(product(SITES, WEB, POLICIES)))
@pytest.mark.parametrize("security", ["simple", "KERBEROS"])
def test_the_same_servers(
    site: str, web: str, policy: str, security: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**SITES[site], **WEB[web], "hadoop.security.authentication": security}
    if policy:
        given["dfs.http.policy"] = policy
    rows = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in given.items()
    )
    (tmp_path / "core-site.xml").write_text(f"<configuration>{rows}</configuration>")
    for name in ("TONY_HDFS", "YARN_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    conf = SiteConfiguration.of(given)
    found = tony_hdfs_client.site()
    assert found.default_fs == given["fs.defaultFS"]
    assert (found.tokens is not None) == endpoints.is_secure(conf)
    assert found.namenodes
    for name, urls in found.namenodes.items():
        expected = endpoints.name_service(conf, f"hdfs://{name}").web.urls
        assert sorted(urls) == sorted(expected), name

"""Where services are, out of configurations as sites have them."""

from __future__ import annotations

from typing import Dict, List

import pytest

from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.rpc.connection import Endpoints
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import Property, SiteConfiguration

RM = "yarn.resourcemanager"


def site(**values: str) -> SiteConfiguration:
    return of({key.replace("__", "-").replace("_", "."): value for key, value in values.items()})


def of(values: Dict[str, str]) -> SiteConfiguration:
    properties = {key: Property(value, "/conf/yarn-site.xml") for key, value in values.items()}
    return SiteConfiguration(properties, looked_in=["/conf"], read=["/conf/yarn-site.xml"], env={})


def shown(found: Endpoints) -> List[str]:
    return [str(address) for address in found.addresses]


class TestTheResourceManager:
    def test_by_its_host(self) -> None:
        conf = of({f"{RM}.hostname": "rm.example"})
        assert shown(endpoints.rm_client(conf)) == ["rm.example:8032"]
        assert shown(endpoints.rm_scheduler(conf)) == ["rm.example:8030"]
        assert endpoints.rm_web(conf).urls == ("http://rm.example:8088",)

    def test_by_addresses(self) -> None:
        conf = of(
            {
                f"{RM}.address": "a:1",
                f"{RM}.scheduler.address": "b:2",
                f"{RM}.webapp.address": "0.0.0.0:3",
                f"{RM}.hostname": "c",
            }
        )
        assert shown(endpoints.rm_client(conf)) == ["a:1"]
        assert shown(endpoints.rm_scheduler(conf)) == ["b:2"]
        assert endpoints.rm_web(conf).urls == ("http://c:3",)

    def test_a_pair(self) -> None:
        conf = of(
            {
                f"{RM}.ha.enabled": "true",
                f"{RM}.ha.rm-ids": "rm1,rm2",
                f"{RM}.hostname.rm1": "one",
                f"{RM}.hostname.rm2": "two",
                f"{RM}.address.rm2": "two:9",
                "yarn.http.policy": "HTTPS_ONLY",
            }
        )
        assert shown(endpoints.rm_client(conf)) == ["one:8032", "two:9"]
        assert endpoints.rm_web(conf).urls == ("https://one:8090", "https://two:8090")

    def test_a_pair_without_names(self) -> None:
        with pytest.raises(ConfigurationError, match="rm-ids names no ResourceManager"):
            endpoints.rm_client(of({f"{RM}.ha.enabled": "true"}))

    def test_no_configuration_at_all(self) -> None:
        conf = SiteConfiguration.load({"HADOOP_CONF_DIR": "/nowhere"})
        with pytest.raises(ConfigurationError) as caught:
            endpoints.rm_client(conf)
        words = str(caught.value)
        assert "No ResourceManager is configured" in words
        assert "HADOOP_CONF_DIR (/nowhere, which does not exist)" in words
        assert "Set HADOOP_CONF_DIR" in words

    def test_a_configuration_that_leaves_it_at_this_machine(self) -> None:
        found = endpoints.rm_client(of({"yarn.acl.enable": "false"}))
        assert shown(found) == ["0.0.0.0:8032"]
        assert "yarn.resourcemanager.hostname is 0.0.0.0" in found.note
        assert "looked for in /conf; read /conf/yarn-site.xml" in found.note

    def test_an_address_without_a_server_is_reported_with_its_source(self) -> None:
        note = endpoints.rm_client(of({f"{RM}.address": "a:1", f"{RM}.hostname": "c"})).note
        assert note.startswith("yarn.resourcemanager.address says so in /conf/yarn-site.xml. ")
        assert endpoints.rm_client(of({f"{RM}.hostname": "c"})).note.startswith(
            "yarn.resourcemanager.hostname says so in /conf/yarn-site.xml, and"
            " yarn.resourcemanager.address is not set (port 8032). "
        )
        pair = of(
            {
                f"{RM}.ha.enabled": "true",
                f"{RM}.ha.rm-ids": "rm1,rm2",
                f"{RM}.hostname.rm1": "one",
                f"{RM}.address.rm2": "two:9",
            }
        )
        assert endpoints.rm_client(pair).note.startswith(
            "yarn.resourcemanager.hostname.rm1 says so in /conf/yarn-site.xml, and"
            " yarn.resourcemanager.address.rm1 is not set (port 8032);"
            " yarn.resourcemanager.address.rm2 says so in /conf/yarn-site.xml. "
        )

    @pytest.mark.parametrize("text", ["a:b", "a:99999", "a b:1", ":1"])
    def test_what_is_no_address(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match=r"yarn\.resourcemanager\.address is"):
            endpoints.rm_client(of({f"{RM}.address": text}))

    def test_brackets(self) -> None:
        assert shown(endpoints.rm_client(of({f"{RM}.address": "[::1]:7"}))) == ["[::1]:7"]


class TestFileSystems:
    def test_one_name_node(self) -> None:
        found = endpoints.name_service(of({"fs.defaultFS": "hdfs://nn.example:9000/"}))
        assert shown(found.rpc) == ["nn.example:9000"]
        assert found.web.urls == ("http://nn.example:9870",)
        assert not found.highly_available

    def test_a_pair(self) -> None:
        conf = of(
            {
                "fs.defaultFS": "hdfs://prod",
                "dfs.nameservices": "prod,other",
                "dfs.ha.namenodes.prod": "nn1,nn2",
                "dfs.namenode.rpc-address.prod.nn1": "one:8020",
                "dfs.namenode.rpc-address.prod.nn2": "two:8020",
                "dfs.namenode.http-address.prod.nn1": "0.0.0.0:50070",
            }
        )
        found = endpoints.name_service(conf)
        assert found.highly_available
        assert shown(found.rpc) == ["one:8020", "two:8020"]
        assert found.web.urls == ("http://one:50070", "http://two:9870")

    def test_encrypted_web(self) -> None:
        conf = of({"fs.defaultFS": "hdfs://nn", "dfs.http.policy": "HTTPS_ONLY"})
        assert endpoints.name_service(conf).web.urls == ("https://nn:9871",)

    def test_a_member_without_address(self) -> None:
        conf = of({"dfs.nameservices": "prod", "dfs.ha.namenodes.prod": "nn1"})
        with pytest.raises(ConfigurationError, match=r"rpc-address\.prod\.nn1 is not set"):
            endpoints.name_service(conf, "hdfs://prod/x")

    def test_none(self) -> None:
        with pytest.raises(ConfigurationError, match=r"file:/// is on no HDFS \(fs.defaultFS\)"):
            endpoints.name_service(of({}))


PAIR = {
    "fs.defaultFS": "hdfs://prod",
    "dfs.nameservices": "prod",
    "dfs.ha.namenodes.prod": "a,b",
    "dfs.namenode.rpc-address.prod.a": "one:8020",
    "dfs.namenode.rpc-address.prod.b": "two:8020",
    "dfs.namenode.https-address.prod.b": "two:50470",
}


class TestWebServers:
    """``webhdfs://`` names a web server; the site's own are its file systems."""

    @pytest.mark.parametrize(
        ("url", "web"),
        [
            ("webhdfs://two:9870/x", ("http://one:9870", "http://two:9870")),
            ("webhdfs://TWO/x", ("http://one:9870", "http://two:9870")),
            ("swebhdfs://two:50470", ("https://one:9871", "https://two:50470")),
        ],
    )
    def test_of_a_pair(self, url: str, web: object) -> None:
        found = endpoints.name_service(of(PAIR), url)
        assert (found.name, found.highly_available) == ("prod", True)
        assert found.web.urls == web

    def test_of_one(self) -> None:
        site = {"fs.defaultFS": "hdfs://nn:9000", "dfs.namenode.http-address": "0.0.0.0:50070"}
        found = endpoints.name_service(of(site), "webhdfs://nn:50070/x")
        assert (found.name, shown(found.rpc)) == ("nn:9000", ["nn:9000"])

    def test_below_a_viewfs(self) -> None:
        mounts = {"fs.viewfs.mounttable.all.link./user": "hdfs://nn1:8020/home"}
        conf = of({"fs.defaultFS": "viewfs://all", **mounts})
        assert endpoints.name_service(conf, "webhdfs://nn1:9870/x").name == "nn1:8020"

    @pytest.mark.parametrize("url", ["webhdfs://three:9870", "webhdfs://two:50470", "webhdfs://c"])
    def test_of_another_site(self, url: str) -> None:
        found = endpoints.name_service(of(PAIR), url)
        assert found.rpc.addresses == ()
        assert found.web.urls[0].startswith(f"http://{url[10:]}")

    def test_the_location_by_its_name_node(self) -> None:
        def by_name_node(url: str) -> str:
            return endpoints.hdfs_location(of(PAIR), url)

        assert by_name_node("webhdfs://two:9870/a%20b") == "hdfs://prod/a%20b"
        for other in ("webhdfs://three:9870/a", "hdfs://two:8020/a", "/a", "webhdfs://a:b/c"):
            assert by_name_node(other) == other


class TestSecurity:
    def test_authentication(self) -> None:
        name = "hadoop.security.authentication"
        assert not endpoints.is_secure(of({}))
        assert not endpoints.is_secure(of({name: "SIMPLE"}))
        assert endpoints.is_secure(of({name: "Kerberos"}))
        with pytest.raises(ConfigurationError) as caught:
            endpoints.is_secure(of({name: "ldap"}))
        assert str(caught.value) == (
            f"{name} is 'ldap' in /conf/yarn-site.xml; expected simple or kerberos"
        )

    def test_principals_have_their_servers_hosts(self) -> None:
        found = endpoints.rm_client(
            of(
                {
                    "yarn.resourcemanager.ha.enabled": "true",
                    "yarn.resourcemanager.ha.rm-ids": "a,b",
                    "yarn.resourcemanager.hostname.a": "RM1.example.org",
                    "yarn.resourcemanager.hostname.b": "rm2.example.org",
                    "yarn.resourcemanager.principal": "rm/_HOST@EXAMPLE.ORG",
                }
            )
        )
        assert found.principals == (
            "rm/rm1.example.org@EXAMPLE.ORG",
            "rm/rm2.example.org@EXAMPLE.ORG",
        )
        principal = {"dfs.namenode.kerberos.principal": "hdfs/nn.example.org@EXAMPLE.ORG"}
        service = endpoints.name_service(of({"fs.defaultFS": "hdfs://other", **principal}))
        assert service.rpc.principals == ("hdfs/nn.example.org@EXAMPLE.ORG",)
        assert endpoints.rm_client(of({"yarn.resourcemanager.hostname": "rm"})).principals == ()

    @pytest.mark.parametrize(
        ("value", "allowed"),
        [
            ("privacy", ("auth-conf",)),
            ("authentication", ("auth",)),
            ("authentication,privacy", ("auth-conf", "auth")),
            ("integrity , privacy", ("auth-conf", "auth-int")),
        ],
    )
    def test_protections(self, value: str, allowed: object) -> None:
        assert endpoints.allowed_protections(of({"hadoop.rpc.protection": value})) == allowed

    def test_a_protection_that_does_not_exist(self) -> None:
        with pytest.raises(ConfigurationError, match="it knows authentication, integrity, privacy"):
            endpoints.allowed_protections(of({"hadoop.rpc.protection": "armour"}))


class TestOnHdfs:
    MOUNTS = {
        "fs.defaultFS": "viewfs://all",
        "fs.viewfs.mounttable.all.link./user": "hdfs://nn1:8020/home",
        "fs.viewfs.mounttable.all.link./user/ada": "hdfs://nn2:8020/people/ada/",
        "fs.viewfs.mounttable.all.link./models": "s3a://bucket/models",
        "fs.viewfs.mounttable.other.link./": "hdfs://nn9:8020/",
    }

    def located(self, path: str, **more: str) -> str:
        conf = SiteConfiguration.of({**self.MOUNTS, **more})
        return endpoints.on_hdfs(conf, path)

    def test_a_plain_default(self) -> None:
        conf = SiteConfiguration.of({"fs.defaultFS": "hdfs://nn:8020/"})
        assert endpoints.on_hdfs(conf, "/user/ada") == "hdfs://nn:8020/user/ada"

    @pytest.mark.parametrize(
        ("path", "where"),
        [
            ("/user/bob/.tony", "hdfs://nn1:8020/home/bob/.tony"),
            ("/user/ada/.tony", "hdfs://nn2:8020/people/ada/.tony"),
            ("/user/adam", "hdfs://nn1:8020/home/adam"),
            ("/user", "hdfs://nn1:8020/home"),
        ],
    )
    def test_a_mount_table_is_followed(self, path: str, where: str) -> None:
        assert self.located(path) == where

    def test_the_fallback_and_a_table_without_a_name(self) -> None:
        named = {"fs.viewfs.mounttable.all.linkFallback": "hdfs://nn3:8020/rest"}
        assert self.located("/tmp/x", **named) == "hdfs://nn3:8020/rest/tmp/x"
        conf = {
            "fs.defaultFS": "viewfs:///",
            "fs.viewfs.mounttable.default.linkMergeSlash": "hdfs://nn4:8020/",
        }
        assert endpoints.on_hdfs(SiteConfiguration.of(conf), "/a") == "hdfs://nn4:8020/a"

    @pytest.mark.parametrize("path", ["/models/7", "/tmp/x"])
    def test_what_is_mounted_elsewhere_names_the_key_and_the_roots(self, path: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            self.located(path)
        (line,) = str(caught.value).splitlines()
        assert "viewfs://all" in line and "tony.yarn.staging-dir" in line
        assert "hdfs://nn1:8020/home" in line and "hdfs://nn2:8020/people/ada" in line

    def test_another_default_is_no_hdfs(self) -> None:
        with pytest.raises(ConfigurationError, match="s3a://b is on no HDFS"):
            endpoints.on_hdfs(SiteConfiguration.of({"fs.defaultFS": "s3a://b"}), "/user")

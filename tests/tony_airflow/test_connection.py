"""From a connection to a site, and from a site to what TonY's client reads."""

from __future__ import annotations

import json
from typing import Any, Dict

import pytest

from tony_airflow.connection import Site, SiteError, site_of
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration


class Connection:
    """What is read of Airflow's."""

    def __init__(self, extra: Any = None, **fields: Any) -> None:
        self.conn_id = "prod"
        self.conn_type = fields.get("conn_type", "tony")
        self.host = fields.get("host")
        self.port = fields.get("port")
        self.login = fields.get("login")
        self.extra = json.dumps(extra) if isinstance(extra, dict) else extra

    @property
    def extra_dejson(self) -> Dict[str, Any]:
        return {}


def site(extra: Any = None, **fields: Any) -> Site:
    return site_of(Connection(extra, **fields))


def wrong(extra: Any = None, **fields: Any) -> str:
    with pytest.raises(SiteError) as caught:
        site(extra, **fields)
    return str(caught.value)


class TestConnectionFields:
    def test_nothing_is_the_embedded_scheduler(self) -> None:
        assert site() == Site(name="prod")
        assert site({"scheduler": "local", "home": "/data/tony"}).home == "/data/tony"

    def test_a_host_or_a_folder_is_yarn(self) -> None:
        assert site({"name_node": "nn:9000"}, host="rm").scheduler == "yarn"
        assert site({"hadoop_conf_dir": "/etc/hadoop"}).scheduler == "yarn"
        assert site({"hadoop": {"fs.defaultFS": "hdfs://ns"}}).scheduler == "yarn"

    def test_every_field(self) -> None:
        extra = {
            "scheduler": "yarn",
            "hadoop_conf_dir": "/etc/prod",
            "webhdfs_conn_id": "files",
            "queue": "ml",
            "history_location": "hdfs://ns/history",
            "portal_url": "https://tony.example.com",
            "conf": '{"tony.am.memory": "1g"}',
            "hadoop": {"yarn.acl.enable": True, "dfs.replication": 2},
            "home": "",
        }
        assert site(extra, host="rm1, rm2:8050", port=8040, login="ml") == Site(
            scheduler="yarn",
            name="prod",
            hadoop_conf_dir="/etc/prod",
            resource_managers=("rm1:8040", "rm2:8050"),
            hadoop={"yarn.acl.enable": "true", "dfs.replication": "2"},
            webhdfs_conn_id="files",
            queue="ml",
            history_location="hdfs://ns/history",
            portal_url="https://tony.example.com",
            user="ml",
            conf={"tony.am.memory": "1g"},
        )

    def test_all_problems_are_reported_at_once(self) -> None:
        message = wrong(
            {
                "qeue": "x",
                "portal_url": 3,
                "hadoop": [1],
                "conf": {"a": None},
                "hadoop_conf_dir": "etc",
            },
            host="rm 1",
        )
        assert message.startswith("the connection prod cannot be used: ")
        for words in (
            "an unknown key qeue (did you mean queue?)",
            "its portal_url is 3, which is not a text",
            'its hadoop is not a JSON object like {"key": "value"}',
            "the value of a in its conf is neither a text nor a number",
            "its Hadoop configuration folder etc is not an absolute path",
            "its host 'rm 1' is not an address of the form HOST or HOST:PORT",
        ):
            assert words in message

    @pytest.mark.parametrize(
        ("extra", "fields", "message"),
        [
            (None, {"conn_type": "http"}, "is of the type http, and jobs need one of the type"),
            ("{", {}, "its extra is not JSON"),
            ("[]", {}, "its extra is not a JSON object"),
            ({"scheduler": "local"}, {"host": "rm"}, "the scheduler local takes no host"),
            (None, {"host": "rm"}, "name its NameNode too"),
            ({"conf": "tony.x=y"}, {}, "its conf is not a JSON object"),
            (None, {"host": "rm:99999"}, "is not an address"),
        ],
    )
    def test_refusals(self, extra: Any, fields: Dict[str, Any], message: str) -> None:
        assert message in wrong(extra, **fields)


class TestWhatTravels:
    def test_there_and_back(self) -> None:
        made = site({"name_node": "nn", "hadoop": {"a": "b"}, "queue": "q"}, host="rm1,rm2")
        data = json.loads(json.dumps(made.to_dict()))
        assert Site.from_dict(data) == made
        assert Site.from_dict({**data, "of_a_newer_version": 1}) == made

    def test_nothing_secret(self) -> None:
        secret = "hunter2-hunter2"
        made = site(
            {
                "conf": {
                    "tony.secret.key": secret,
                    "tony.execution.env.A": secret,
                    "tony.am.memory": "1g",
                    "tony.x": f"https://u:{secret}@h/",
                },
                "hadoop": {"ssl.client.keystore.password": secret, "dfs.replication": "1"},
                "hadoop_conf_dir": "/etc/hadoop",
            }
        )
        assert made.conf["tony.secret.key"] == secret
        assert secret not in json.dumps(made.to_dict())
        assert Site.from_dict(made.to_dict()).conf == {"tony.am.memory": "1g"}
        assert Site.from_dict(made.to_dict()).hadoop == {"dfs.replication": "1"}

    def test_the_keys_below_the_job_file(self) -> None:
        made = site({"queue": "q", "conf": {"tony.yarn.queue": "other", "tony.am.vcores": 2}})
        assert made.conf_below() == {"tony.yarn.queue": "q", "tony.am.vcores": "2"}


class TestTheEnvironment:
    def test_without_a_word_it_is_this_process_own(self) -> None:
        assert Site().env({"A": "1"}) == {"A": "1"}

    def test_a_folder_replaces_what_the_machine_is_set_up_for(self) -> None:
        base = {"YARN_CONF_DIR": "/other", "HADOOP_HOME": "/opt/hadoop", "PATH": "/bin"}
        found = Site("yarn", hadoop_conf_dir="/etc/prod", user="ml").env(base)
        assert found == {
            "PATH": "/bin",
            "HADOOP_CONF_DIR": "/etc/prod",
            "YARN_CONF_DIR": "/etc/prod",
            "HADOOP_USER_NAME": "ml",
        }

    def test_a_keytab_for_all_calls(self) -> None:
        keys = {"tony.kerberos.principal": "ml@X", "tony.kerberos.keytab": "/etc/ml.keytab"}
        found = site({"scheduler": "yarn", "conf": keys})
        wanted = {"TONY_KERBEROS_PRINCIPAL": "ml@X", "TONY_KERBEROS_KEYTAB": "/etc/ml.keytab"}
        for made in (found, Site.from_dict(found.to_dict())):
            env = made.env({})
            assert {name: env.get(name) for name in wanted} == wanted

    def test_addresses_are_enough(self) -> None:
        made = site({"name_node": "nn:8020"}, host="rm:8050")
        conf = SiteConfiguration.load(made.env({"HADOOP_CONF_DIR": "/nowhere"}))
        assert conf.files == ("the connection prod",)
        assert [str(a) for a in endpoints.rm_client(conf).addresses] == ["rm:8050"]
        assert [str(a) for a in endpoints.rm_scheduler(conf).addresses] == ["rm:8030"]
        assert endpoints.rm_web(conf).urls == ("http://rm:8088",)
        assert endpoints.name_service(conf).name == "nn:8020"
        assert "the connection prod" in endpoints.rm_client(conf).note

    def test_a_pair(self) -> None:
        made = site(
            {"name_node": "hdfs://nn:8020/", "hadoop": {"yarn.http.policy": "HTTPS_ONLY"}},
            host="rm1,[::1]:8050",
        )
        conf = SiteConfiguration.load(made.env({}))
        assert [(a.host, a.port) for a in endpoints.rm_client(conf).addresses] == [
            ("rm1", 8032),
            ("::1", 8050),
        ]
        assert [a.host for a in endpoints.rm_scheduler(conf).addresses] == ["rm1", "::1"]
        assert endpoints.rm_web(conf).urls[0] == "https://rm1:8090"

    def test_addresses_go_over_the_folders(self, tmp_path: Any) -> None:
        (tmp_path / "yarn-site.xml").write_text(
            "<configuration><property><name>yarn.resourcemanager.hostname</name>"
            "<value>other</value></property><property><name>hadoop.rpc.protection</name>"
            "<value>privacy</value></property></configuration>"
        )
        made = site({"hadoop_conf_dir": str(tmp_path)}, host="rm")
        conf = SiteConfiguration.load(made.env({}))
        assert endpoints.rm_client(conf).addresses[0].host == "rm"
        assert conf.text("hadoop.rpc.protection") == "privacy"

"""Site files, read as Hadoop reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Dict

import pytest

from tests.fuzzing import fuzz, mutations
from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.site.configuration import SiteConfiguration, user_name
from tony_core.schedulers.yarn.client.scheduler import YarnScheduler


def write(folder: Path, body: str, name: str = "core-site.xml") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(
        '<?xml version="1.0"?>\n<?xml-stylesheet type="text/xsl" href="configuration.xsl"?>\n'
        f'<configuration xmlns:xi="http://www.w3.org/2001/XInclude">{body}</configuration>'
    )
    return path


def prop(name: str, value: str, extra: str = "") -> str:
    return f"<property><name>{name}</name><value>{value}</value>{extra}</property>"


def load(folder: Path, **env: str) -> SiteConfiguration:
    return SiteConfiguration.load({"HADOOP_CONF_DIR": str(folder), **env})


class TestFiles:
    def test_later_files_replace_and_final_stays(self, tmp_path: Path) -> None:
        write(tmp_path, prop("a", "1") + prop("b", "1", "<final>true</final>"))
        write(tmp_path, prop("a", "2") + prop("b", "2"), "yarn-site.xml")
        conf = load(tmp_path)
        assert (conf.get("a"), conf.get("b")) == ("2", "1")
        assert conf.source("a") == str(tmp_path / "yarn-site.xml")

    def test_both_ways_to_write_a_property(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            '<property name="a" value="1" final="true"/>'
            "<property><name> b </name><value> 2 </value><description>x</description></property>"
            "<property><name>c</name></property><property><name>d</name><value/></property>"
            "<configuration>" + prop("e", "&lt;5&gt;") + "</configuration>" + prop("a", "2"),
        )
        conf = load(tmp_path)
        assert conf.to_json() == {"a": "1", "b": "2", "d": "", "e": "<5>"}

    def test_deprecated_names(self, tmp_path: Path) -> None:
        write(tmp_path, prop("fs.default.name", "hdfs://old:1"))
        conf = load(tmp_path)
        assert conf.get("fs.defaultFS") == "hdfs://old:1"
        assert conf.get("fs.default.name") == "hdfs://old:1"

    def test_where_files_are_looked_for(self, tmp_path: Path) -> None:
        write(tmp_path / "hadoop", prop("a", "hadoop") + prop("b", "hadoop"))
        write(tmp_path / "yarn", prop("a", "yarn"), "yarn-site.xml")
        write(tmp_path / "hadoop", prop("a", "never"), "yarn-site.xml")
        conf = load(tmp_path / "hadoop", YARN_CONF_DIR=str(tmp_path / "yarn"))
        assert (conf.get("a"), conf.get("b")) == ("yarn", "hadoop")
        assert str(tmp_path / "yarn") in conf.where()

    def test_the_home_of_a_hadoop(self, tmp_path: Path) -> None:
        (tmp_path / "etc").mkdir()
        write(tmp_path / "etc" / "hadoop", prop("a", "home"))
        assert SiteConfiguration.load({"HADOOP_HOME": str(tmp_path)}).get("a") == "home"

    def test_nothing_is_found(self) -> None:
        conf = SiteConfiguration.load({"HADOOP_CONF_DIR": "/nowhere"})
        words = conf.where()
        assert "YARN_CONF_DIR (not set)" in words
        assert "HADOOP_CONF_DIR (/nowhere, which does not exist)" in words
        assert "no file was found" in words

    def test_the_job_has_the_last_word(self, tmp_path: Path) -> None:
        write(tmp_path, prop("a", "1"))
        conf = SiteConfiguration.load({}, conf_dir=str(tmp_path), overrides={"a": "2"})
        assert conf.get("a") == "2"

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("<configuration><property>", "not well-formed"),
            ("<other/>", "holds <other>"),
            ("", "not well-formed"),
            (
                '<!DOCTYPE x [<!ENTITY a "b">]><configuration>&a;</configuration>',
                "defines the entity a",
            ),
            (
                '<!DOCTYPE x [<!ENTITY a SYSTEM "/etc/passwd">]><configuration>&a;</configuration>',
                "defines the entity a",
            ),
        ],
    )
    def test_what_is_no_site_file(self, tmp_path: Path, text: str, words: str) -> None:
        (tmp_path / "core-site.xml").write_text(text)
        with pytest.raises(ConfigurationError, match=words) as caught:
            load(tmp_path)
        assert str(tmp_path / "core-site.xml") in str(caught.value)


class TestPropertiesOfAConnection:
    """TONY_HADOOP: a cluster that is known by other means than files."""

    def connection_text(self, only_these: bool = False, **properties: str) -> str:
        content = {"source": "the connection prod", "properties": properties, "alone": only_these}
        return json.dumps(content)

    def test_it_is_over_the_files_final_ones_too(self, tmp_path: Path) -> None:
        write(tmp_path, prop("a", "1", "<final>true</final>") + prop("b", "${a}"))
        conf = load(tmp_path, TONY_HADOOP=self.connection_text(a="2"))
        assert (conf.get("a"), conf.get("b")) == ("2", "2")
        assert conf.source("a") == "the connection prod"

    def test_with_only_these_no_file_is_read(self, tmp_path: Path) -> None:
        write(tmp_path, prop("b", "1"))
        conf = load(
            tmp_path,
            TONY_HADOOP=self.connection_text(only_these=True, **{"fs.default.name": "hdfs://n"}),
        )
        assert conf.get("b") is None
        assert conf.get("fs.defaultFS") == "hdfs://n"
        assert conf.files == ("the connection prod",)
        assert conf.where().startswith("Configuration was looked for in the connection prod; read")

    @pytest.mark.parametrize("text", ["{", "[]", "{}", '{"properties": [1]}', '"x"'])
    def test_what_is_no_such_thing_is_refused(self, text: str, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="TONY_HADOOP is not of the form"):
            load(tmp_path, TONY_HADOOP=text)

    def test_a_scheduler_needs_no_folder(self) -> None:
        text = self.connection_text(
            only_these=True,
            **{"fs.defaultFS": "hdfs://nn:8020", "yarn.resourcemanager.hostname": "rm"},
        )
        scheduler = YarnScheduler({"TONY_HADOOP": text, "HADOOP_USER_NAME": "ann"})
        assert scheduler.history_root() == "hdfs://nn:8020/user/ann/.tony/history"
        assert scheduler.user == "ann"


class TestIncludes:
    def test_a_file_of_the_folder(self, tmp_path: Path) -> None:
        write(tmp_path, prop("a", "included") + prop("b", "included"), "more.xml")
        write(tmp_path, '<xi:include href="more.xml"/>' + prop("b", "own"))
        conf = load(tmp_path)
        assert (conf.get("a"), conf.get("b")) == ("included", "own")
        assert conf.source("a") == str(tmp_path / "more.xml")

    def test_the_fallback(self, tmp_path: Path) -> None:
        fallback = f"<xi:fallback>{prop('a', 'fallback')}</xi:fallback>"
        write(tmp_path, f'<xi:include href="none.xml">{fallback}</xi:include>')
        assert load(tmp_path).get("a") == "fallback"

    @pytest.mark.parametrize(
        ("href", "words"),
        [
            ("http://example.com/site.xml", "only files of the same folder"),
            ("file://server/site.xml", "only files of the same folder"),
            ("jar:file:/x.jar!/a.xml", "only files of the same folder"),
            ("", "includes nothing"),
            ("/etc/passwd", "outside its folder"),
            ("../other/core-site.xml", "outside its folder"),
            ("none.xml", "does not exist"),
            ("core-site.xml", "includes itself"),
        ],
    )
    def test_what_is_refused(self, tmp_path: Path, href: str, words: str) -> None:
        write(tmp_path, f'<xi:include href="{href}"/>')
        with pytest.raises(ConfigurationError, match=words):
            load(tmp_path)

    def test_circles(self, tmp_path: Path) -> None:
        write(tmp_path, '<xi:include href="b.xml"/>', "a.xml")
        write(tmp_path, '<xi:include href="a.xml"/>', "b.xml")
        write(tmp_path, '<xi:include href="a.xml"/>')
        with pytest.raises(ConfigurationError, match="includes itself"):
            load(tmp_path)


class TestSubstitution:
    VALUES: Dict[str, str] = {
        "host": "rm",
        "address": "${host}:${port}",
        "port": "80${last}",
        "last": "32",
        "nested": "${${which}}",
        "which": "host",
        "unknown": "${missing}/${host}",
        "self": "x${self}",
        "circle": "${elcric}",
        "elcric": "${circle}",
        "user": "/home/${user.name}",
        "variable": "${env.WHO}",
        "unset": "${env.NOT-dash} ${env.NOT:-colon} ${env.EMPTY:-colon} ${env.EMPTY-dash}|",
        "default": "at ${yarn.resourcemanager.hostname}",
    }

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("address", "rm:8032"),
            ("nested", "rm"),
            ("unknown", "${missing}/${host}"),
            ("circle", "${elcric}"),
            ("user", "/home/alice"),
            ("variable", "me"),
            ("unset", "dash colon colon |"),
            ("default", "at 0.0.0.0"),
        ],
    )
    def test_values(self, tmp_path: Path, name: str, value: str) -> None:
        write(tmp_path, "".join(prop(key, text) for key, text in self.VALUES.items()))
        env = {"WHO": "me", "EMPTY": "", "HADOOP_USER_NAME": "alice"}
        assert load(tmp_path, **env).get(name) == value

    def test_growing_without_end(self, tmp_path: Path) -> None:
        write(tmp_path, prop("self", "x${self}"))
        with pytest.raises(ConfigurationError, match="more than 20 substitutions"):
            load(tmp_path).get("self")


class TestTypes:
    CONF = SiteConfiguration.of(
        {"n": " 12 ", "h": "0x1F", "bad": "twelve", "t": " True ", "l": "a, b,,c ", "m": "-0x2"}
    )

    def test_values(self) -> None:
        assert self.CONF.integer("n", 1) == 12
        assert self.CONF.integer("h", 1) == 31
        assert self.CONF.integer("m", 1) == -2
        assert self.CONF.integer("none", 1) == 1
        assert self.CONF.boolean("t", False)
        assert self.CONF.boolean("none", True)
        assert not self.CONF.boolean("n", False)
        assert self.CONF.names("l") == ["a", "b", "c"]

    def test_no_number(self) -> None:
        with pytest.raises(ConfigurationError, match="bad is 'twelve' in given: no whole number"):
            self.CONF.integer("bad", 1)


def test_who_calls() -> None:
    assert user_name({"HADOOP_USER_NAME": "alice"}) == "alice"
    assert user_name({})


DEEP = (b"<configuration>" * 5000) + (b"</configuration>" * 5000)


class TestDamagedFiles:
    @pytest.mark.parametrize(
        "data",
        [
            b"", b"\0", DEEP, b"<?xml version='1.0' encoding='klingon'?><configuration/>",
            b"<?xml version='1.0' encoding='shift_jis'?><configuration/>",
        ],
        ids=range(5),
    )  # fmt: skip
    def test_one_error_that_names_it(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "core-site.xml").write_bytes(data)
        with pytest.raises(ConfigurationError, match=r"core-site\.xml"):
            load(tmp_path)

    def test_an_include_in_a_folder_that_is_relative(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path / "conf", prop("a", "1"), "more.xml")
        write(tmp_path / "conf", '<xi:include href="more.xml"/>')
        monkeypatch.chdir(tmp_path)
        assert load(Path("conf")).get("a") == "1"

    def test_the_variable_nested_too_deeply(self) -> None:
        with pytest.raises(ConfigurationError, match="TONY_HADOOP is not of the form"):
            SiteConfiguration.load({"TONY_HADOOP": "[" * 100_000})

    @fuzz(
        data=mutations(
            b"<?xml version='1.0'?><configuration xmlns:xi='http://www.w3.org/2001/XInclude'>"
            b"<property><name>a</name><value>${b} ${a} ${env.X:-0x1f}</value><final>true</final>"
            b"</property><property name='b' value='${user.name}'/><xi:include href='no.xml'>"
            b"<xi:fallback/></xi:include></configuration>",
            b"<!DOCTYPE a [<!ENTITY b 'c'>]><configuration>&b;</configuration>",
            b"<configuration>" * 200,
        )
    )
    def test_any_file(self, tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
        folder = tmp_path_factory.getbasetemp()
        (folder / "core-site.xml").write_bytes(data)
        try:
            conf = load(folder)
            conf.to_json()
            conf.integer("a", 1)
        except ConfigurationError:
            pass

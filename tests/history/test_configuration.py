"""The configuration that a job ran with, read back with where each value came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzzing import fuzz, mutations
from tony_core.history.configuration import ConfigEntry, parse_config, read_config_entries
from tony_core.job.load import JobArguments, load_job
from tony_core.job.mask import MASK
from tony_core.job.xmlfile import job_to_xml


def keep(root: Path, text: str) -> None:
    (root / "app_1").mkdir()
    (root / "app_1" / "tony-final.xml").write_text(text)


def test_each_value_names_its_source(tmp_path: Path) -> None:
    (tmp_path / "tony-site.xml").write_text(
        "<configuration>\n<property><name>tony.yarn.queue</name><value>ml</value>"
        "<final>true</final></property></configuration>"
    )
    (tmp_path / "tony.xml").write_text(
        "<configuration>\n<property><name>tony.worker.instances</name><value>2</value>"
        "<source>from elsewhere</source></property>\n<property><name>my.own</name>"
        "<value>x</value></property></configuration>"
    )
    made = load_job(
        JobArguments(executes="a <b> && c", conf=("tony.worker.memory=1g", "my.password=hush")),
        conf_dir=str(tmp_path), cwd=str(tmp_path), env={}, user="ann",
    ).job  # fmt: skip
    keep(tmp_path, job_to_xml(made))
    entries = {entry.key: entry for entry in read_config_entries(str(tmp_path), "app_1")}
    site = f"{tmp_path}/tony-site.xml:2"
    assert entries["tony.yarn.queue"] == ("tony.yarn.queue", "ml", site)
    assert entries["tony.worker.instances"][1:3] == ("2", "tony.xml:2")
    assert entries["my.own"][1:3] == ("x", "tony.xml:3")
    assert entries["tony.worker.memory"][1:3] == ("1g", "--conf")
    assert entries["tony.client.executes"][1:3] == ("a <b> && c", "--executes")
    assert entries["my.password"][1:3] == (MASK, "--conf")
    assert "tony.am.memory" not in entries, "defaults are left out"


def test_a_password_in_the_address_of_a_job_file_is_not_kept(tmp_path: Path) -> None:
    made = load_job(
        JobArguments(conf_file="webhdfs://ann:hush@n:1/tony.xml"),
        read_bytes=lambda path: b"<configuration><property><name>tony.worker.instances</name>"
        b"<value>1</value></property></configuration>",
        env={}, user="ann", conf_dir="", needs_command=False,
    ).job  # fmt: skip
    text = job_to_xml(made)
    assert "hush" not in text and "@n:1/tony.xml:1</source>" in text


def test_a_configuration_of_hadoop_names_the_origin_first() -> None:
    text = (
        b"<configuration><property><name>a</name><value>1</value><final>false</final>"
        b"<source>tony.xml</source><source>job.xml</source></property>"
        b"<property><name>b</name><value>2</value></property></configuration>"
    )
    assert parse_config(text) == (ConfigEntry("a", "1", "tony.xml"), ConfigEntry("b", "2"))


def test_what_was_not_kept_is_empty_and_what_is_damaged_is_named(tmp_path: Path) -> None:
    assert read_config_entries(str(tmp_path), "app_1") == ()
    keep(tmp_path, "<configuration><property>")
    with pytest.raises(OSError, match=r"tony-final.xml:1: is not well-formed XML.*app_1"):
        read_config_entries(str(tmp_path), "app_1")


SAMPLE = b"""<configuration><property><name>a</name><value>&lt;1</value><source>s</source>
</property></configuration>"""


@fuzz(data=mutations(SAMPLE, b'<!DOCTYPE a [<!ENTITY b "c">]><configuration>&b;</configuration>'))
def test_any_configuration_is_read_or_named(data: bytes) -> None:
    try:
        parse_config(data)
    except ValueError as error:
        assert "tony-final.xml" in str(error)

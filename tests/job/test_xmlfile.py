from __future__ import annotations

from pathlib import Path
from typing import List

import pytest
from hypothesis import example
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations
from tests.job.loading import CWD
from tony_core.job.load import JobArguments, Loaded, load_job
from tony_core.job.problems import JobError, errors
from tony_core.job.xmlfile import MOST_BYTES, read_xml

HEAD = "<configuration>"
TAIL = "</configuration>"


def complaints(text: str | bytes) -> List[str]:
    data = text if isinstance(text, bytes) else text.encode()
    entries, problems = read_xml(data, "f")
    if errors(problems):
        assert entries == [] or "<" in str(problems)
    return [str(problem) for problem in problems]


def one(inside: str) -> str:
    return f"{HEAD}<property>{inside}</property>{TAIL}"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "f:1: is not well-formed XML: Document is empty"),
        ("<configuration>\n<property>", "f:2: is not well-formed XML"),
        ("<conf/>", "f:1: starts with <conf> instead of <configuration>"),
        ("<!DOCTYPE configuration>\n<configuration/>", "f:1: has a DOCTYPE"),
        (
            '<!DOCTYPE c [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + one("<name>&x;</name>"),
            "has a DOCTYPE",
        ),
        ('<!DOCTYPE c SYSTEM "http://127.0.0.1:1/x.dtd"><configuration/>', "has a DOCTYPE"),
        (one("<name>&x;</name>"), "is not well-formed XML"),
        (
            '<configuration xmlns:xi="http://www.w3.org/2001/XInclude">\n'
            '<xi:include href="/etc/passwd" parse="text"/></configuration>',
            "f:2: includes another file",
        ),
        ("<configuration>\n<proprety/></configuration>", "f:2: holds <proprety>"),
        (one("\n<nam>tony.x</nam><value>v</value>"), "f:2: a property holds <nam>, which means"),
        (one("<nam>tony.x</nam><value>v</value>"), "nothing (did you mean name?)"),
        (one("<name>a</name><name>b</name><value>v</value>"), "more than one <name>"),
        ("<?xml version='1.0' encoding='klingon'?><configuration/>", "is not"),
    ],
)
def test_refusals(text: str, wrong: str) -> None:
    assert any(wrong in line for line in complaints(text)), complaints(text)


def test_a_configuration_in_a_configuration_is_read_as_hadoop_does() -> None:
    inside = one("<name>b</name><value>2</value>")
    before, after = one("<name>a</name><value>1</value>"), one("<name>c</name><value>3</value>")
    text = before.replace("</configuration>", inside) + after.replace("<configuration>", "")
    entries, problems = read_xml(text.encode(), "f")
    assert [(entry.key, entry.text) for entry in entries] == [("a", "1"), ("b", "2"), ("c", "3")]
    assert problems == []


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (one("<value>v</value>"), "f:1: a property without a <name> is skipped"),
        ("<configuration>\n<property/></configuration>", "f:2: a property without a <name>"),
        (one("<name>tony.x</name>"), "f:1: tony.x has no <value> and is skipped"),
        (one("<name>k</name><value>v</value><since>1</since>"), "a property holds <since>"),
        ("<configuration><comment>c</comment></configuration>", "holds <comment> where only"),
    ],
)
def test_what_hadoop_skips_is_skipped_with_a_warning(text: str, warning: str) -> None:
    more = "<property><name>a</name><value>b</value></property></configuration>"
    entries, problems = read_xml(text.replace("</configuration>", more).encode(), "f")
    assert errors(problems) == []
    assert [warning in str(problem) for problem in problems] == [True]
    assert ("a", "b") in [(entry.key, entry.text) for entry in entries]


def test_many_entities_cost_nothing() -> None:
    bomb = "<!DOCTYPE c [<!ENTITY a0 'x'>" + "".join(
        f"<!ENTITY a{i} '{f'&a{i - 1};' * 10}'>" for i in range(1, 12)
    )
    assert complaints(bomb + "]>" + one("<name>&a11;</name><value>&a11;</value>"))


def test_a_large_file_is_refused_before_it_is_parsed() -> None:
    assert complaints(b" " * (MOST_BYTES + 1)) == ["f: is larger than 4 MB"]


def test_a_deep_file_is_refused() -> None:
    assert complaints("<a>" * 100_000)


def test_what_hadoop_accepts() -> None:
    text = (
        "<?xml-stylesheet href='x'?><configuration>\n"
        "<!-- a comment -->\n"
        "<property>\n<name> a.b </name>\n<value>x<!-- no -->y &amp; <![CDATA[<z>]]></value>"
        "<final> TRUE </final><description>d</description><source>s</source></property>\n"
        "<property name='c' value='d'/><property><name>skipped</name></property>"
        "<property><name>tony.other.namenodes</name><tag>t</tag></property></configuration>"
    )
    entries, problems = read_xml(text.encode(), "f")
    assert problems == []
    assert [(e.key, e.text, e.line, e.final) for e in entries] == [
        ("a.b", "xy & <z>", 4, True),
        ("c", "d", 6, False),
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_encodings(encoding: str) -> None:
    head = f"<?xml version='1.0' encoding='{encoding}'?>"
    entries, problems = read_xml(
        (head + one("<name>k</name><value>é</value>")).encode(encoding), ""
    )
    assert (problems, entries[0].text) == ([], "é")


_PIECES = st.sampled_from(
    [HEAD, TAIL, "<property>", "</property>", "<name>", "</name>", "<value>", "</value>", "<final>",
     "true", "</final>", "tony.worker.instances", "tony.", "worker", ".memory", "2g", "${", "}",
     "env.X", "&lt;", "&x;", "<!--", "-->", "<![CDATA[", "]]>", "<!DOCTYPE a>", "\x00", "é", "=",
     "tony.docker.enabled", "tony.application.prepare-stage", "a,b", "-1", "http://[", "::",
     "tony.containers.resources", "tony.execution.envs",
     "tony.application.dependency.a.timeout.after.b",
     "tony.worker.depends-on", "tony.application.tensorboard-log-dir", "hdfs://nn/x", "#archive"]
)  # fmt: skip


def outcome(folder: Path, data: bytes) -> str:
    (folder / "job.xml").write_bytes(data)
    arguments = JobArguments(executes="true", conf_file=str(folder / "job.xml"))
    try:
        loaded = load_job(arguments, env={}, cwd=CWD)
    except JobError as error:
        assert errors(error.problems)
        assert str(error)
        return "refused"
    assert isinstance(loaded, Loaded)
    return "loaded"


_JOB = (
    f"<?xml version='1.0' encoding='utf-8'?>{HEAD}<!-- a --><property><name>tony.worker.instances"
    "</name><value>2</value><final>true</final></property><property name='a' value='&lt;b'/>"
    f"<property><name>tony.x</name><value><![CDATA[${{a}}]]></value></property>{TAIL}"
).encode()


_DOCTYPE = b"<!DOCTYPE c [<!ENTITY x 'y'>]>"


@fuzz(data=mutations(_JOB, _JOB.decode().encode("utf-16"), _DOCTYPE + _JOB))
def test_any_damaged_xml_is_entries_or_problems(data: bytes) -> None:
    entries, problems = read_xml(data, "f")
    assert all(str(problem).startswith("f:") for problem in problems)
    assert all(entry.key and isinstance(entry.text, str) for entry in entries)


@fuzz(
    data=st.one_of(st.binary(), st.lists(_PIECES, max_size=40).map(lambda p: "".join(p).encode()))
)
@example(b"\xff\xfe<\x00")
def test_any_bytes_are_a_job_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    outcome(tmp_path_factory.getbasetemp(), data)


_KEYS = st.sampled_from(
    [f"tony.{role}.{word}" for role in ("worker", "ps", "chief", "am", "x", "Bad", "tensorboard")
     for word in ("instances", "memory", "gpus", "depends-on", "command", "resources", "y",
                  "resource.z", "max-instances", "node-label")]
    + ["tony.application.timeout", "tony.docker.enabled", "tony.docker.worker.image",
       "tony.application.prepare-stage", "tony.application.training-stage", "tony.portal.url",
       "tony.application.untracked.jobtypes", "tony.application.sidecar.jobtypes",
       "tony.application.group.g", "tony.application.dependency.worker.timeout.after.g",
       "tony.containers.envs", "tony.execution.env.A", "tony.task.port-range", "tony.scheduler",
       "tony.task.max-total-memory", "tony.history.finished-dir-timezone", "base",
       "tony.application.tensorboard-log-dir", "tony.application.framework"]
)  # fmt: skip
_VALUES = st.one_of(
    st.sampled_from(["1", "0", "2g", "worker", "ps,worker", "true", "GANG", "${base}", "${a.b}",
                     "off", "hdfs://nn/x", "/a::b#archive", "A=1", "9" * 20, "x:/y"]),
    st.text(max_size=12),
)  # fmt: skip


@fuzz(values=st.dictionaries(_KEYS, _VALUES, max_size=8))
def test_any_values_are_a_job_or_refused(values: dict[str, str]) -> None:
    arguments = JobArguments(executes="true", conf=values)
    try:
        load_job(arguments, env={}, cwd=CWD)
    except JobError as error:
        assert errors(error.problems)

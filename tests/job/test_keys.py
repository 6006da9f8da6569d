from __future__ import annotations

import re

import pytest

from tests.job.loading import CWD
from tony_core.job.build import build_job
from tony_core.job.keys.key import Key, Kind, Status
from tony_core.job.keys.table import RESERVED_ROLES, Table, table
from tony_core.job.settings import Settings
from tony_core.job.spec import Job
from tony_core.job.xmlfile import Entry


def read_everything() -> Settings:
    entries = [Entry("tony.worker.instances", "1", "test")]
    settings = Settings({entry.key: entry for entry in entries}, [], CWD)
    build_job(settings, "tester")
    return settings


def test_every_live_key_is_read_and_every_key_read_is_declared() -> None:
    live = {key.name for key in table().keys if key.status is Status.LIVE}
    assert live - read_everything().read_names == set()


def test_a_read_of_an_undeclared_key_fails() -> None:
    with pytest.raises(KeyError):
        read_everything().read("tony.not.declared")


VALUES = {
    Kind.TEXT: "word",
    Kind.ACL: "ann,bob staff",
    Kind.INT: "7",
    Kind.MEMORY: "7g",
    Kind.DURATION: "7h",
    Kind.LIST: "a,b",
    Kind.FILES: "/a/b",
    Kind.LIMIT: "7",
    Kind.PORTS: "20000-21000",
    Kind.PATH: "/a/b",
}


@pytest.mark.parametrize("name", [key.name for key in table().keys if key.fills])
def test_a_key_fills_the_field_that_the_table_names(name: str) -> None:
    key = table().by_name[name]
    if key.kind is Kind.BOOL:
        value = "false" if key.default == "true" else "true"
    else:
        value = key.choices[-1] if key.choices else VALUES[key.kind]
    plain = [Entry(f"tony.{role}.instances", "8", "test") for role in ("worker", "ps")]
    entries = [*plain, Entry(name.replace("<role>", "worker"), value, "test")]
    before = build_job(Settings({entry.key: entry for entry in plain}, [], CWD), "")
    after = build_job(Settings({entry.key: entry for entry in entries}, [], CWD), "")

    def field(job: Job) -> object:
        record, *path = key.fills.split(".")
        found: object = job
        if record == "Role":
            found = job.role("worker")
        elif record != "Job":
            found = getattr(job, "master" if record == "MasterSpec" else record.lower())
        for part in path:
            found = getattr(found, part)
        return found

    assert field(after) != field(before)
    assert after.role("ps") == before.role("ps")


def test_one_key_fills_a_field() -> None:
    keys = [Key(f"tony.{name}", Kind.TEXT, "X.", fills="Job.name") for name in ("x", "y")]
    with pytest.raises(ValueError, match="two keys fill"):
        Table(keys)


def test_the_field_of_a_key_exists() -> None:
    import tony_core.job.spec as spec

    for key in table().keys:
        if key.status is Status.LIVE:
            names = (key.fills or key.part_of).split(".")
            kind = getattr(spec, names[0])
            assert names[1] in kind.__annotations__, key.name


def test_defaults_parse() -> None:
    settings = Settings({}, [], CWD)
    for key in table().keys:
        if not key.is_pattern:
            settings.read(key.name)
        else:
            parts = dict.fromkeys(re.findall(r"<(\w+)>", key.name), "x")
            settings.read(key.name, **parts)
    assert settings.problems == []


def test_the_defaults_of_the_table_are_those_of_the_job() -> None:
    built = build_job(Settings({}, [], CWD), "")
    plain = Job(name="TonyApplication", roles=built.roles)
    assert built == plain


def test_every_line_of_the_table_is_whole() -> None:
    for key in table().keys:
        assert key.doc.endswith("."), key.name
        assert key.name.startswith("tony."), key.name
        assert (key.kind is Kind.CHOICE) == bool(key.choices), key.name
        if key.status is Status.RENAMED:
            assert key.alias in table().by_name
        if key.kind is Kind.DURATION:
            assert key.unit in ("s", "ms"), key.name


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("tony.worker.memory", "tony.<role>.memory"),
        ("tony.am.memory", "tony.am.memory"),
        ("tony.docker.worker.image", "tony.docker.<role>.image"),
        ("tony.docker.containers.image", "tony.docker.containers.image"),
        ("tony.driver.instances", "tony.driver.<any>"),
        ("tony.task.am.jvm.opts", "tony.<any>.jvm.opts"),
        ("tony.task.max-total-gpus", "tony.task.max-total-<resource>"),
        ("tony.task.max-total-instances", "tony.task.max-total-instances"),
        ("tony.worker.timeout", "tony.worker.timeout"),
        ("tony.horovod.mode.test.fast.fail", "tony.horovod.mode.<any>"),
        ("tony.version-info.checksum", "tony.version-info.<any>"),
        ("tony.<role>.memory", "tony.<role>.memory"),
        ("tony.worker.memry", None),
        ("tony.worker", None),
        ("tony.", None),
    ],
)
def test_find(name: str, found: str) -> None:
    match = table().find(name)
    assert (match.key.name if match else None) == found


def test_a_key_is_declared_once() -> None:
    key = Key("tony.x", Kind.TEXT, "X.")
    with pytest.raises(ValueError, match="twice"):
        Table([key, key])


def test_no_reserved_word_is_a_role_that_people_use() -> None:
    assert not RESERVED_ROLES & {"worker", "ps", "chief", "evaluator", "tensorboard", "scheduler"}

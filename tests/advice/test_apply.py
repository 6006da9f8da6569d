"""Advice into a job file: which keys, and the notes on those that come from elsewhere."""

from __future__ import annotations

from typing import Dict, Tuple

import pytest

from tests.advice.findings import MEMORY
from tony_core.advice.advice import Advice, Change
from tony_core.advice.apply import (
    Applied,
    apply,
    find_difference,
    job_files,
    overrides,
    read_settings,
)
from tony_core.job.xml_edit import entries_by_key

FILE = b"""<configuration>
  <property><name>tony.worker.instances</name><value>4</value></property>
  <property><name>tony.worker.memory</name><value>8g</value></property>
</configuration>
"""


def ran(*rows: Tuple[str, str, str], final: str = "") -> bytes:
    """The configuration of a run: keys, values and where they came from."""
    properties = "".join(
        f"<property><name>{key}</name><value>{value}</value>"
        f"{'<final>true</final>' if key == final else ''}<source>{source}</source></property>"
        for key, value, source in rows
    )
    return f"<configuration>{properties}</configuration>".encode()


def with_changes(*pairs: Tuple[str, str]) -> Advice:
    return MEMORY._replace(changes=tuple(Change(key, value) for key, value in pairs))


def applied(*advice: Advice, config: bytes = b"", final: Dict[str, str] | None = None) -> Applied:
    return apply(FILE, "tony.xml", advice, read_settings(config), final or {})


def test_a_key_of_the_file_is_changed() -> None:
    done = applied(MEMORY)
    assert done.data == FILE.replace(b"8g", b"3g")
    assert done.changes == (Change("tony.worker.memory", "3g", "8g"),)
    assert done.notes == done.refused == ()


def test_what_the_run_had_from_elsewhere_gets_a_note() -> None:
    config = ran(
        ("tony.worker.memory", "8g", "--conf"),
        ("tony.worker.vcores", "8", "/etc/tony/tony-site.xml:4"),
        ("tony.ps.memory", "8g", "argument"),
    )
    advice = with_changes(
        ("tony.worker.memory", "3g"), ("tony.worker.vcores", "2"), ("tony.ps.memory", "1g")
    )
    done = applied(advice, config=config)
    assert [change.key for change in done.changes] == [
        "tony.worker.memory", "tony.worker.vcores", "tony.ps.memory",
    ]  # fmt: skip
    memory, cores, ps = done.notes
    assert "tony.worker.memory" in memory and "--conf, which beats the job file" in memory
    assert "/etc/tony/tony-site.xml:4" in cores and "now sets it" in cores
    assert "argument, which beats" in ps
    assert entries_by_key(done.data)["tony.worker.vcores"].text == "2"


@pytest.mark.parametrize("how", ["here", "in the run"])
def test_a_final_key_is_refused_with_all_that_belongs_to_it(how: str) -> None:
    advice = with_changes(("tony.worker.memory", "3g"), ("tony.worker.vcores", "2"))
    row = ("tony.worker.vcores", "8", "/etc/tony-site.xml:4")
    if how == "here":
        done = applied(advice, final={"tony.worker.vcores": "/etc/tony-site.xml:4"})
    else:
        done = applied(advice, config=ran(row, final="tony.worker.vcores"))
    assert done.data == FILE and done.changes == ()
    (why,) = done.refused
    assert why.startswith("tony.worker.vcores is final in /etc/tony-site.xml:4")


def test_a_key_that_the_job_file_seals_itself_is_its_own() -> None:
    data = FILE.replace(b"8g</value>", b"8g</value><final>true</final>")
    config = ran(("tony.worker.memory", "8g", "tony.xml:3"), final="tony.worker.memory")
    done = apply(data, "tony.xml", [MEMORY], read_settings(config), {})
    assert done.refused == () and done.data == data.replace(b"8g", b"3g")


def test_of_two_values_for_a_key_the_worse_problems_counts() -> None:
    less = with_changes(("tony.worker.memory", "2g"), ("tony.worker.vcores", "1"))
    done = applied(MEMORY, less)
    assert [change.value for change in done.changes] == ["3g"]
    assert "left out" in done.refused[0]


def test_what_the_file_has_already_is_no_change() -> None:
    done = applied(with_changes(("tony.worker.memory", "8g")))
    assert done.data == FILE and done.changes == ()


def of_run(key: str, value: str, was: str) -> Advice:
    return MEMORY._replace(changes=(Change(key, value, was),))


@pytest.mark.parametrize(
    ("key", "was", "advised", "has", "is_kept"),
    [
        ("tony.worker.memory", "8g", "2g", "1g", True),
        ("tony.worker.memory", "8g", "2g", "3072", False),
        ("tony.worker.memory", "8g", "2g", "16g", False),
        ("tony.worker.memory", "2g", "4g", "8g", True),
        ("tony.worker.memory", "2g", "4g", "1g", False),
        ("tony.worker.memory", "", "4g", "8g", True),  # from 2g, the default
        ("tony.worker.memory", "8g", "2g", "${x}", False),
        ("tony.worker.vcores", "8", "2", "1", True),
        ("tony.task.stall-timeout", "20s", "9m", "30m", True),
        ("tony.task.stall-timeout", "20s", "9m", "off", True),
        ("tony.task.stall-timeout", "20s", "9m", "60", False),
        ("tony.task.stall-action", "", "restart", "fail", True),
        ("tony.task.stall-action", "", "restart", "warn", False),
        ("tony.task.max-missed-heartbeats", "25", "50", "100", True),
    ],
)
def test_what_the_file_has_by_now_and_goes_further_stays(
    key: str, was: str, advised: str, has: str, is_kept: bool
) -> None:
    data = FILE.replace(b"tony.worker.memory", key.encode()).replace(b"8g", has.encode())
    rows = [("tony.worker.instances", "4", "tony.xml:2")]
    settings = read_settings(ran(*rows, *([(key, was, "tony.xml:3")] if was else [])))
    done = apply(data, "tony.xml", [of_run(key, advised, was)], settings, {})
    assert (done.data == data) == is_kept and done.refused == ()
    if is_kept:
        (note,) = done.notes
        assert f"the file has {has} by now" in note and f"{advised} is left out" in note
    else:
        assert done.notes == () and done.changes == (Change(key, advised, has),)


def test_without_what_the_run_had_no_way_is_the_other_one() -> None:
    done = applied(of_run("tony.worker.memory", "3g", ""))
    assert [change.value for change in done.changes] == ["3g"]


def test_what_the_file_had_while_an_argument_counted_is_changed() -> None:
    data = FILE.replace(b"8g", b"1g")
    settings = read_settings(ran(("tony.worker.memory", "8g", "--conf")))
    done = apply(data, "tony.xml", [of_run("tony.worker.memory", "2g", "8g")], settings, {})
    assert [change.value for change in done.changes] == ["2g"] and "--conf" in done.notes[0]


def test_what_beats_the_file_is_known_where_it_is_not_masked() -> None:
    config = ran(
        ("tony.worker.instances", "4", "--conf"),
        ("tony.containers.envs", "A=1", "tony.xml:3, --conf"),
        ("tony.x.secret", "********", "argument"),
        ("tony.ps.memory", "1g", "tony.xml:5"),
    )
    assert overrides(read_settings(config)) == {"tony.worker.instances": "4"}


def test_the_job_files_of_a_run() -> None:
    config = ran(("a", "1", "/x/tony.xml:3"), ("b", "1", "/x/tony.xml:9"), ("c", "1", "--conf"),
                 ("d", "1", "/etc/tony/tony-site.xml:9"))  # fmt: skip
    assert job_files(read_settings(config)) == ("/x/tony.xml",)
    assert job_files(read_settings(b"<damaged")) == ()


def test_a_job_file_is_the_same_until_a_key_differs() -> None:
    rows = [
        ("tony.worker.instances", "4", "tony.xml:2"),
        ("tony.worker.memory", "8g", "tony.xml:3"),
    ]
    more = b"<property><name>n</name><value>1</value></property></configuration>"
    assert find_difference(FILE, "tony.xml", read_settings(ran(*rows))) == ""
    for changed, key in (
        (FILE.replace(b"8g", b"9g"), "tony.worker.memory"),
        (FILE.replace(b"worker.memory", b"ps.memory"), "tony.worker.memory"),
        (FILE.replace(b"</configuration>", more), "n"),
    ):
        assert find_difference(changed, "tony.xml", read_settings(ran(*rows))) == key
    # What an argument has replaced is not compared.
    rows[1] = ("tony.worker.memory", "9g", "--conf")
    assert find_difference(FILE, "tony.xml", read_settings(ran(*rows))) == ""

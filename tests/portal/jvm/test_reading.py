"""A .jhist file as every reader of history sees it; damaged and hostile ones."""

from __future__ import annotations

import copy
import json
import struct
from typing import Any, Dict, List

import pytest

from tests.fuzzing import bounds, fuzz, mutations
from tests.portal.jvm.files import (
    APP,
    ENDED,
    EVENTS,
    FAILED,
    INITED,
    NAME,
    RUNNING,
    STARTED,
    Event,
    container,
    deflated,
    jhist,
    number,
    text,
)
from tony_core.history.configuration import ConfigEntry
from tony_core.history.reader import JobHistory
from tony_core.history.timeline import timeline
from tony_core.portal.jvm import avro, reading
from tony_core.portal.jvm.config import JvmConfig, read_jvm_config, to_xml, with_roles
from tony_core.portal.jvm.reading import read_jhist
from tony_core.portal.jvm.schema import EVENT_SCHEMA
from tony_core.view import read_job

CONFIG = b"""<?xml version="1.0" encoding="UTF-8" standalone="no"?><configuration>
<property><name>tony.application.name</name><value>mnist</value><final>false</final>
<source>tony.xml</source><source>programmatically</source></property>
<property><name>tony.yarn.queue</name><value>ml</value></property>
<property><name>tony.application.framework</name><value>PYTORCH</value></property>
<property><name>tony.application.tags</name><value>a, b</value></property>
<property><name>tony.worker.instances</name><value>2</value></property>
<property><name>tony.worker.memory</name><value>4g</value></property>
<property><name>tony.worker.gpus</name><value>1</value></property>
<property><name>tony.ps.instances</name><value>1</value></property>
<property><name>tony.am.instances</name><value>1</value></property>
<property><name>tony.containers.envs</name><value>DB_PASSWORD=hunter2000,A=1</value></property>
</configuration>"""


def read(data: bytes, name: str = NAME, config: bytes = CONFIG, owner: str = "ann") -> JobHistory:
    found = read_jhist(APP, name, data, read_jvm_config(config, "tony-final.xml"), owner)
    json.dumps(found._asdict(), allow_nan=False)
    view = read_job(found.job, found.tasks)
    json.dumps(view.to_json(), allow_nan=False)
    return found


def test_a_failed_job() -> None:
    found = read(jhist())
    assert found.problems == ()
    assert read_jvm_config(CONFIG, "x").entries[0] == ("tony.application.name", "mnist", "tony.xml")
    view = read_job(found.job, found.tasks)
    assert (view.app_id, view.state.value, view.name, view.user) == (APP, "FAILED", "mnist", "ann")
    assert (view.queue, view.framework, view.tags) == ("ml", "pytorch", ("a", "b"))
    assert (view.submitted, view.finished) == (1542325695.566, 1542325733.637)
    assert view.description == "pytorch: 2 x worker, 1 x ps"
    assert found.job["roles"] == {
        "worker": {"instances": 2, "memory_mb": 4096, "vcores": 1, "gpus": 1},
        "ps": {"instances": 1, "memory_mb": 2048, "vcores": 1, "gpus": 0},
    }
    worker, ps = view.tasks
    assert (worker.task, worker.state, worker.node, worker.container) == (
        "worker:0", "failed", "n1", "c_2",
    )  # fmt: skip
    assert (worker.started, worker.ended, worker.duration_s) == (1542325701, 1542325731, 30)
    assert worker.usage == {"peak_rss_mb": 3.0}
    assert worker.measures == {"MAX_MEMORY_BYTES": 3145728.0}, "-1 is: not measured"
    assert "exited with 1" in worker.message and "hunter2000" not in worker.message
    assert (ps.state, ps.ended) == ("killed", 1542325733.637), "no end of its own"
    assert view.root_cause["task"] == "worker:0"
    assert [event["kind"] for event in found.events] == [
        "session-started", "stage-released", "task-state", "task-state", "task-state",
        "root-cause", "job-ended",
    ]  # fmt: skip
    line = timeline(found)
    assert line.to_json()["sums"] == {
        "queued": 4.434, "waiting": 1.0, "running": 30.0, "stopping": 2.637,
    }  # fmt: skip
    assert [bar.task for bar in line.bars] == ["worker:0", "ps:0"]
    assert found.metrics["latest"] == {"worker:0": {"MAX_MEMORY_BYTES": 3145728.0}}


def test_a_running_job() -> None:
    whole = jhist([INITED, *STARTED])
    for data in (b"", whole, whole[:-20], whole[:-90]):
        found = read(data, RUNNING)
        assert found.problems == () and found.job["state"] == "RUNNING"
        assert found.job["finished"] is None
    assert [task["state"] for task in read(whole, RUNNING).tasks] == ["running", "running"]


def test_a_session_that_was_started_again() -> None:
    again = [(kind, fields, at + 40_000) for kind, fields, at in STARTED]
    (worker, _) = read(jhist([INITED, *STARTED, FAILED, INITED, *again, ENDED])).tasks
    assert [run["session"] for run in worker["runs"]] == [0, 1]
    assert worker["session"] == 1 and worker["state"] == "killed" and "message" not in worker


def test_what_is_cut_short_is_read_as_far_as_it_goes() -> None:
    whole = jhist()
    found = read(whole[:-30])
    assert found.problems == (f"{NAME}: it is cut short",)
    assert len(found.tasks) == 2 and found.events[-1]["kind"] == "job-ended"
    assert found.job["state"] == "FAILED", "its name says so"


def test_a_name_of_another_application_is_refused() -> None:
    with pytest.raises(ValueError, match=r"is not the name of a .* file of application_1_1"):
        read_jhist("application_1_1", NAME, jhist())


def test_events_of_another_application_are_left_out() -> None:
    lie: Event = (INITED[0], {**INITED[1], "applicationId": "application_1_0001"}, INITED[2])
    found = read(jhist([lie, *STARTED, ENDED]))
    assert found.problems == (f"{NAME}: 1 events name another application; left out",)
    assert found.app_id == found.job["app_id"] == APP


def test_the_owner_of_the_files_counts_and_not_their_name() -> None:
    assert read(jhist(), owner="eve").job["user"] == "eve"
    assert read(jhist(), owner="").job["user"] == "ann"


def test_a_status_that_is_not_known_is_named() -> None:
    found = read(jhist(), NAME.replace("FAILED", "EXPLODED"))
    assert found.job["state"] == "FAILED" and "'EXPLODED' is not known" in found.problems[0]


# ------------------------------------------------------------------ the JVM's versions of a file


def versions() -> Dict[str, Any]:
    """The schema as that TonY's versions have had it, by what is different."""
    published = json.loads(json.dumps(EVENT_SCHEMA))
    java = '{"type": "string", "avro.java.string": "String"}'
    spelled = json.dumps(published).replace('"string"', java)
    optional = copy.deepcopy(published)
    for record in (0, 2):
        optional["fields"][1]["type"][record]["fields"][3]["type"] = ["null", "string"]
    no_containers = copy.deepcopy(published)
    for record in (0, 2):
        del no_containers["fields"][1]["type"][record]["fields"][3]
    del no_containers["fields"][1]["type"][3]["fields"][4]
    first = copy.deepcopy(no_containers)
    del first["fields"][1]["type"][2]
    first["fields"][0]["type"]["symbols"].remove("TASK_STARTED")
    future = copy.deepcopy(optional)
    future["fields"][0]["type"]["symbols"].append("TASK_MOVED")
    future["fields"][1]["type"].append(
        {"type": "record", "name": "TaskMoved", "fields": [
            {"name": "why", "type": {"type": "map", "values": ["null", "double", "Metric"]}},
            {"name": "when", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}
    )  # fmt: skip
    future["fields"].append({"name": "note", "type": "bytes"})
    return {"now": published, "java": json.loads(spelled), "0.4.7": optional,
            "before containers": no_containers, "first": first, "future": future}  # fmt: skip


@pytest.mark.parametrize("version", versions())
def test_files_of_every_version_are_read(version: str) -> None:
    import io

    import fastavro

    schema = versions()[version]
    wanted = [event for event in EVENTS if version != "first" or event[0] != "TaskStarted"]
    records: List[Dict[str, Any]] = []
    for kind, fields, at in wanted:
        symbol = {"ApplicationInited": "APPLICATION_INITED", "TaskStarted": "TASK_STARTED",
                  "TaskFinished": "TASK_FINISHED"}.get(kind, "APPLICATION_FINISHED")  # fmt: skip
        name = f"com.linkedin.tony.events.{kind}"
        records.append({"type": symbol, "event": (name, fields), "timestamp": at, "note": b"x"})
    if version == "future":
        moved = {"why": {"a": None, "b": 1.0}, "when": 5}
        event = ("com.linkedin.tony.events.TaskMoved", moved)
        records.insert(2, {"type": "TASK_MOVED", "event": event, "timestamp": 7, "note": b""})
    stream = io.BytesIO()
    fastavro.writer(stream, schema, records, codec="deflate")
    found = read(stream.getvalue())
    unknown = (f"{NAME}: 1 events are of a kind that is not known; left out",)
    assert found.problems == (unknown if version == "future" else ())
    worker = found.tasks[0]
    assert worker["state"] == "failed" and worker["usage"] == {"peak_rss_mb": 3.0}
    assert found.events[-1]["kind"] == "job-ended"


# ---------------------------------------------------------------------------------- hostile files

NS = "com.linkedin.tony.events"


def event_schema(*fields: Any, event: Any = None) -> Any:
    """Events with more fields in front, or others."""
    made = json.loads(json.dumps(EVENT_SCHEMA))
    made["fields"][:0] = list(fields)
    if event is not None:
        next(f for f in made["fields"] if f["name"] == "event")["type"] = event
    return made


def nested(depth: int) -> Any:
    kind: Any = "int"
    for _ in range(depth):
        kind = {"type": "array", "items": kind}
    return kind


def doubling(depth: int) -> List[Any]:
    """Fields of records that each hold the one before it twice: 2**depth values without a byte."""
    fields: List[Any] = [{"name": "f0", "type": {"type": "record", "name": "R0", "fields": [
        {"name": "x", "type": "null"}]}}]  # fmt: skip
    for level in range(1, depth):
        held = [{"name": name, "type": f"R{level - 1}"} for name in ("a", "b")]
        record = {"type": "record", "name": f"R{level}", "fields": held}
        fields.append({"name": f"f{level}", "type": record})
    return fields


RECURSIVE = {"type": "record", "name": "Self", "fields": [{"name": "self", "type": "Self"}]}
EMPTY = {"type": "array", "items": {"type": "record", "name": "Nothing", "fields": []}}
SCHEMAS: Dict[str, Any] = {
    "recursive": event_schema({"name": "x", "type": RECURSIVE}),
    "holds events": event_schema({"name": "x", "type": {"type": "array", "items": "Event"}}),
    "deep": event_schema({"name": "x", "type": nested(400)}),
    "doubling": event_schema(*doubling(40)),
    "empty items": event_schema({"name": "x", "type": EMPTY}),
    "null items": event_schema({"name": "x", "type": {"type": "array", "items": "null"}}),
    "fixed of nothing": event_schema(
        {"name": "x", "type": {"type": "fixed", "name": "F", "size": 0}}
    ),
    "huge fixed": event_schema(
        {"name": "x", "type": {"type": "fixed", "name": "F", "size": 1 << 40}}
    ),
    "odd name": event_schema({"name": "../../etc/passwd", "type": "int"}),
    "odd record": event_schema(
        {"name": "x", "type": {"type": "record", "name": "a b", "fields": []}}
    ),
    "many": event_schema(*({"name": f"f{i}", "type": "int"} for i in range(5000))),
    "symbols twice": event_schema(
        {"name": "x", "type": {"type": "enum", "name": "E", "symbols": ["A", "A"]}}
    ),
    "unknown type": event_schema({"name": "x", "type": "Nowhere"}),
    "events of arrays": event_schema(event=[{"type": "array", "items": "int"}]),
    "event is text": event_schema(event="string"),
    "foreign": {"type": "record", "name": "Click", "fields": [{"name": "x", "type": "int"}]},
    "no event": {"type": "record", "name": "Event", "namespace": NS, "fields": []},
    "a text": "string",
    "a list": ["int"],
    "null": None,
    "numbers": {"type": 3, "name": 4},
    "fields of numbers": {"type": "record", "name": "Event", "fields": [1, 2]},
    "no fields": {"type": "record", "name": "Event"},
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_hostile_schema_is_refused_before_anything_is_decoded(schema: str) -> None:
    data = container([(1 << 40, b"\0" * 4096)] * 3, SCHEMAS[schema])
    with bounds(seconds=5.0, megabytes=64.0):
        found = read(data)
    assert len(found.problems) == 1 and found.problems[0].startswith(f"{NAME}: it"), found.problems
    assert found.tasks == () and found.job["state"] == "FAILED"


MANY = number(10**9) + (text(b"") + struct.pack("<d", 1.0)) * 40_000
BLOCKS: Dict[str, bytes] = {
    "count": container([(1 << 60, b"")]),
    "negative count": container([(-5, b"")]),
    "many in one": container([(1, number(3) + number(3) + text(b"w") + b"\0" + text(b"X") + MANY)]),
    "long text": container([(1, number(0) + number(0) + number(1 << 50) + b"x" * 100)]),
    "bomb": container([(1, deflated(b"\0" * (1 << 28)))], codec=b"deflate"),
    "small bombs": container([(1, deflated(b"\0" * (1 << 20)))] * 100, codec=b"deflate"),
    "no deflate": container([(1, b"\xff" * 100)], codec=b"deflate"),
    "snappy": container([(1, b"\xff" * 100)], codec=b"snappy"),
    "odd codec": container([(1, b"")], codec=b"\xff\0" * 90),
    "enum": container([(1, number(77) + number(0) * 20)]),
    "union": container([(1, number(0) + number(77) + number(0) * 20)]),
    "negative union": container([(1, number(0) + number(-9) + number(0) * 20)]),
    "endless number": container([(1, b"\xff" * 4096)]),
    "metadata": avro.MAGIC + number(1 << 40) + text(b"k") * 10,
    "large metadata": container([], metadata={b"x": b"y" * (1 << 20)}),
    "huge block": avro.MAGIC + container([])[4:] + number(1) + number(1 << 50) + b"x",
    "negative block": container([]) + number(1) + number(-7),
    "no sync": container([(0, b"")])[:-16] + b"y" * 16 + b"\0" * 9,
    "text": b"hello",
    "head": avro.MAGIC,
    "half a head": container([])[:40],
}  # fmt: skip


@pytest.mark.parametrize("case", BLOCKS)
def test_a_hostile_file_takes_neither_time_nor_memory(case: str) -> None:
    with bounds(seconds=5.0, megabytes=120.0):
        found = read(BLOCKS[case])
    assert 1 <= len(found.problems) <= 2 and found.problems[0].startswith(f"{NAME}: ")
    assert found.tasks == () and found.job["state"] == "FAILED"


def test_a_large_file_is_refused() -> None:
    assert "is larger than 16 MB" in read(b"\0" * ((16 << 20) + 1)).problems[0]


def test_many_tasks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_TASKS", 50)
    monkeypatch.setattr(avro, "MOST_EVENTS", 100)
    found = read(jhist(("TaskStarted", {**STARTED[0][1], "taskIndex": i}, 1) for i in range(200)))
    assert len(found.tasks) == 50
    more, rest = found.problems
    assert "more than 100 events" in more and "more than 50 tasks" in rest


def test_hostile_text_stays_text_and_short() -> None:
    evil = "<script>alert(1)</script>\x1b]0;x\x07" + "x" * 40_000
    fields = {"taskType": evil, "taskIndex": -5, "host": "../../etc", "containerID": evil}
    done = {**fields, "status": evil, "metrics": [{"name": evil, "value": float("nan")}],
            "containerDiagnostic": evil}  # fmt: skip
    (task,) = read(jhist([("TaskStarted", fields, 1 << 62), ("TaskFinished", done, -5)])).tasks
    assert len(task["task"]) < 300 and task["index"] == 0 and len(task["container"]) == 200
    assert len(task["message"]) <= 64 << 10


@fuzz(data=mutations(jhist()), megabytes=100.0)
def test_any_file_is_read_or_named(data: bytes) -> None:
    read(data)


@fuzz(data=mutations(json.dumps(EVENT_SCHEMA).encode()), megabytes=100.0)
def test_any_schema_is_used_or_named(data: bytes) -> None:
    body = jhist()[len(container([])) :]
    read(container([(5, body)], metadata={b"avro.schema": data}))


# --------------------------------------------------------------------------------- configurations


def test_a_configuration_is_masked() -> None:
    config = read_jvm_config(CONFIG, "tony-final.xml")
    assert config.problems == () and "hunter2000" not in repr(config)
    assert b"hunter2000" not in config.to_xml()
    assert read_jvm_config(config.to_xml(), "x").entries == config.entries


@pytest.mark.parametrize(
    "data",
    [b"", b"<configuration>", b"\xff" * 100, b"<x/>",
     b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><configuration>&a;</configuration>'],
)  # fmt: skip
def test_a_damaged_configuration_is_named(data: bytes) -> None:
    found = read(jhist(), config=data)
    assert len(found.problems) == 1 and "tony-final.xml" in found.problems[0]
    assert found.job["name"] == "" and found.job["state"] == "FAILED"


def test_what_roles_asked_for_is_added_where_it_is_missing() -> None:
    config = JvmConfig(
        (ConfigEntry("tony.worker.memory", "1.5gb", "--conf"), ConfigEntry("tony.ps.memory", "1g"))
    )
    roles = {"worker": {"instances": 2, "memory_mb": 1536, "vcores": 1, "gpus": 1}, "odd": 3}
    assert with_roles(config, roles).entries == (
        ("tony.worker.memory", "1536m", "--conf"), ("tony.ps.memory", "1g", ""),
        ("tony.worker.instances", "2", ""), ("tony.worker.vcores", "1", ""),
        ("tony.worker.gpus", "1", ""),
    )  # fmt: skip


def test_markup_in_a_configuration_is_text() -> None:
    entries = (ConfigEntry("a<b>&", "</value><x>\r\n\"']]>", "<&>"),)
    assert read_jvm_config(to_xml(entries), "x").entries == entries


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(avro.MissingLibrary, match=r"pip install '\.\[portal\]'"):
        read(b"Obj\x01")

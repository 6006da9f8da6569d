"""The .jhist file of one of our jobs, and the numbers in it that Dr. Elephant counts with."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_core.history.reader import JobHistory
from tony_core.portal.jvm.avro import Decoded, decode
from tony_core.portal.jvm.config import read_jvm_config
from tony_core.portal.jvm.reading import read_jhist
from tony_core.portal.jvm.writing import JvmFiles, NotEnded, jvm_files, task_metrics
from tony_core.view import read_task

APP = "application_1541469337545_0031"
JOB: Dict[str, Any] = {
    "app_id": APP, "state": "FAILED", "name": "mnist", "user": "from-the-file", "submitted": 1000.0,
    "started": 1001.5, "finished": 1100.25,
    "roles": {"worker": {"instances": 2, "memory_mb": 1536, "vcores": 2, "gpus": 1},
              "ps": {"instances": 1, "memory_mb": 512, "vcores": 1, "gpus": 0}},
}  # fmt: skip
TASKS: List[Dict[str, Any]] = [
    {"task": "worker:0", "role": "worker", "index": 0, "state": "failed", "host": "n1",
     "node": "n1:45454", "container": "container_1_1_01_000002", "started": 1010.0,
     "ended": 1090.125, "message": "exit code 3", "usage": {"peak_rss_mb": 900.0}},
    {"task": "worker:1", "role": "worker", "index": 1, "state": "killed", "node": "n2:45454",
     "container": "container_1_1_01_000003", "started": 1011.0, "ended": 1095.0},
    {"task": "ps:0", "role": "ps", "index": 0, "state": "running", "host": "n3",
     "container": "container_1_1_01_000004", "started": 1009.0},
    {"task": "worker:2", "role": "worker", "index": 2, "state": "requested"},
]  # fmt: skip
METRICS = {
    "task": {"worker:0": {
        "rss_mb": [[1011, 100.0], [1012, 300.0]], "gpu_percent": [[1011, 20.0], [1012, 80.0]],
        "gpu_memory_mb": [[1011, 1000.0], [1012, 3000.0]],
        "gpu_memory_total_mb": [[1011, 4000.0], [1012, 4000.0]], "loss": [[1012, 0.5]]}},
    "latest": {},
}  # fmt: skip
CONFIG = b"""<configuration>
<property><name>tony.worker.memory</name><value>1.5g</value></property>
<property><name>tony.worker.instances</name><value>2</value></property>
</configuration>"""
RECORD = JobHistory(APP, JOB, tuple(TASKS), METRICS)


def written(record: JobHistory = RECORD) -> JvmFiles:
    return jvm_files(record, CONFIG, "ann")


def events(files: JvmFiles) -> List[Decoded]:
    problems: List[str] = []
    found = list(decode(files.jhist, problems))
    assert not problems
    return found


def test_a_job_as_its_events() -> None:
    files = written()
    assert files.jhist_name == f"{APP}-1001500-1100250-ann-FAILED.jhist"
    found = events(files)
    assert [(event.kind, event.timestamp) for event in found] == [
        ("ApplicationInited", 1001500), ("TaskStarted", 1009000), ("TaskStarted", 1010000),
        ("TaskStarted", 1011000), ("TaskFinished", 1090125), ("TaskFinished", 1095000),
        ("TaskFinished", 1100250), ("ApplicationFinished", 1100250),
    ], "a task that never began has no event: it would have begun in 1970"  # fmt: skip
    assert found[0].fields["numTasks"] == 4
    assert found[3].fields == {
        "taskType": "worker", "taskIndex": 1, "host": "n2",
        "containerID": "container_1_1_01_000003",
    }  # fmt: skip
    assert [event.fields["status"] for event in found[4:7]] == ["FAILED", "FINISHED", "FINISHED"]
    assert found[4].fields["containerDiagnostic"] == "exit code 3"
    assert found[5].fields["containerDiagnostic"] is None
    assert (found[7].fields["finishedTasks"], found[7].fields["failedTasks"]) == (2, 1)


def test_metrics_have_the_names_and_units_of_the_jvm() -> None:
    named = {metric["name"]: metric["value"] for metric in events(written())[4].fields["metrics"]}
    assert named == {
        "MAX_MEMORY_BYTES": 900.0 * 1048576, "AVG_MEMORY_BYTES": 200.0 * 1048576,
        "MAX_GPU_UTILIZATION": 80.0, "AVG_GPU_UTILIZATION": 50.0,
        "MAX_GPU_FB_MEMORY_USAGE": 75.0, "AVG_GPU_FB_MEMORY_USAGE": 50.0,
    }  # fmt: skip


def test_without_a_series_the_last_measure_counts() -> None:
    task = read_task({"task": "w:0", "measures": {"rss_mb": 2.0, "gpu_percent": 7.0}})
    assert task_metrics(task, None) == {
        "MAX_MEMORY_BYTES": 2097152.0, "AVG_MEMORY_BYTES": 2097152.0,
        "MAX_GPU_UTILIZATION": 7.0, "AVG_GPU_UTILIZATION": 7.0,
    }  # fmt: skip
    assert task_metrics(read_task({"task": "w:0"}), {"rss_mb": [[1, "x"], 3, None]}) == {}


def test_every_role_has_a_memory_that_dr_elephant_can_read() -> None:
    config = read_jvm_config(written().config, "x")
    assert config.get("tony.worker.memory") == "1536m", "it knows no 1.5g"
    assert config.get("tony.ps.memory") == "512m" and config.get("tony.ps.instances") == "1"
    assert config.get("tony.worker.gpus") == "1"
    old = {key: value for key, value in JOB.items() if key != "roles"}
    bare = read_jvm_config(jvm_files(RECORD._replace(job=old), None).config, "x")
    assert bare.get("tony.ps.memory") == "2048m", "the default, where history has no roles"
    assert bare.get("tony.worker.instances") == "3"


@pytest.mark.parametrize("state", ["RUNNING", "ACCEPTED", "odd"])
def test_a_job_that_has_not_ended_is_refused(state: str) -> None:
    with pytest.raises(NotEnded, match="has not ended"):
        jvm_files(RECORD._replace(job={**JOB, "state": state}), None)


def test_a_job_that_ran_out_of_time_has_failed() -> None:
    record = RECORD._replace(job={**JOB, "state": "TIMED_OUT"})
    assert "-FAILED.jhist" in written(record).jhist_name


def test_what_we_write_we_read() -> None:
    files = written()
    config = read_jvm_config(files.config, files.config_name)
    back = read_jhist(APP, files.jhist_name, files.jhist, config, "ann")
    assert back.problems == ()
    assert {task["task"]: task["state"] for task in back.tasks} == {
        "ps:0": "succeeded", "worker:0": "failed", "worker:1": "succeeded",
    }, "FINISHED: it was stopped because the job ended"  # fmt: skip
    assert back.job["roles"]["worker"]["memory_mb"] == 1536
    assert back.job["finished"] == 1100.25


_texts = st.text(max_size=20) | st.just("\ud800\x00")
_values: Any = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner),
    max_leaves=6,
)


@given(st.data())
def test_any_history_of_an_ended_job_can_be_written(data: st.DataObject) -> None:
    task = dict(TASKS[0])
    for key in data.draw(st.lists(st.sampled_from(sorted(task)), max_size=4)):
        task[key] = data.draw(_values)
    job = {**JOB, "roles": data.draw(_values), "user": data.draw(_values)}
    metrics = {"task": {"worker:0": data.draw(_values)}}
    record = RECORD._replace(job=job, tasks=(task,), metrics=metrics)
    files = jvm_files(record, data.draw(st.binary(max_size=40)))
    assert events(files)[-1].kind == "ApplicationFinished"
    config = read_jvm_config(files.config, "x")
    assert config.problems == ()
    read_jhist(APP, files.jhist_name, files.jhist, config)

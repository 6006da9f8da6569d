"""History between this TonY and the JVM's, by that one's own classes from Maven Central.

Its readers (``ParserUtils``, which Dr. Elephant and its portal use) read what we write, with the
schema that it publishes; we read what its writer writes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.cluster.jvm_tony.jars import VERSIONS, run_history
from tests.portal.jvm.test_writing import APP, CONFIG, RECORD
from tony_core.portal.jvm.location import JvmLocation
from tony_core.portal.jvm.publication import write_files
from tony_core.portal.jvm.writing import jvm_files
from tony_core.view import read_job

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


@pytest.mark.parametrize("version", VERSIONS)
def test_it_reads_what_we_write(tmp_path: Path, version: str) -> None:
    root = tmp_path / "tony-history"
    folder = write_files(str(root), jvm_files(RECORD, CONFIG, "ann.lee-2"))
    assert folder is not None
    lines = run_history(version, "read", Path(folder))
    assert [text for kind, text in lines if kind == "metadata"] == [
        f"{APP} 1001500 1100250 ann_lee_2 FAILED"
    ]
    events: List[Dict[str, Any]] = []
    for kind, text in lines:
        if kind == "event":
            name, at, content = text.split(" ", 2)
            events.append({"type": name, "at": int(at), **json.loads(content)})
    assert [(event["type"], event["at"]) for event in events] == [
        ("APPLICATION_INITED", 1001500), ("TASK_STARTED", 1009000), ("TASK_STARTED", 1010000),
        ("TASK_STARTED", 1011000), ("TASK_FINISHED", 1090125), ("TASK_FINISHED", 1095000),
        ("TASK_FINISHED", 1100250), ("APPLICATION_FINISHED", 1100250),
    ]  # fmt: skip
    failed = events[4]
    assert (failed["taskType"], failed["taskIndex"], failed["status"]) == ("worker", 0, "FAILED")
    assert {metric["name"]: metric["value"] for metric in failed["metrics"]} == {
        "MAX_MEMORY_BYTES": 943718400.0, "AVG_MEMORY_BYTES": 209715200.0,
        "MAX_GPU_UTILIZATION": 80.0, "AVG_GPU_UTILIZATION": 50.0,
        "MAX_GPU_FB_MEMORY_USAGE": 75.0, "AVG_GPU_FB_MEMORY_USAGE": 50.0,
    }  # fmt: skip
    assert failed["containerDiagnostic"] == "exit code 3"
    # Memory (MB), GPUs and instances of each role, as Dr. Elephant asks for them.
    roles = sorted(text for kind, text in lines if kind == "role")
    assert roles == ["ps 512 0 1", "worker 1536 1 2"]


@pytest.mark.parametrize("version", VERSIONS)
def test_we_read_what_it_writes(tmp_path: Path, version: str) -> None:
    run_history(version, "write", tmp_path / "intermediate" / APP)
    with JvmLocation(str(tmp_path)).open(APP) as folder:
        assert folder.fingerprint().is_history
        record, config = folder.record(), folder.config()
    assert record.problems == ()
    view = read_job(record.job, record.tasks)
    assert (view.name, view.state.value, view.finished) == ("mnist", "FAILED", 1542325733.637)
    assert [(task.task, task.state, task.node, task.container) for task in view.tasks] == [
        ("worker:0", "succeeded", "n0", "c_0"), ("worker:1", "failed", "n1", "c_1"),
    ]  # fmt: skip
    assert view.tasks[0].usage == {"peak_rss_mb": 2.0}
    assert view.root_cause["message"] == "worker:1 failed: Exit code: 3"
    assert record.job["roles"]["worker"]["memory_mb"] == 3072
    assert config is not None and b"hunter2000" not in config and b"mnist" in config

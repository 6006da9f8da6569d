"""What a job file asks for that this machine's scheduler cannot give, reported with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tony_core.client.submission import load, prepare
from tony_core.job.load import JobArguments
from tony_core.job.spec import Job
from tony_core.schedulers.local.client import LocalScheduler


def job_of(folder: Path, framework: str = "standalone", **keys: str) -> Job:
    """The job of a file with these keys, each on a line of its own from the second on."""
    lines = [
        f"<property><name>{key}</name><value>{value}</value></property>"
        for key, value in keys.items()
    ]
    (folder / "tony.xml").write_text("<configuration>\n" + "\n".join(lines) + "\n</configuration>")
    return load(
        JobArguments(executes="true", conf={"tony.application.framework": framework}),
        env={},
        cwd=str(folder),
    ).job


@pytest.mark.parametrize(
    "key",
    [
        "tony.history.location",
        "tony.application.checkpoint-dir",
        "tony.application.tensorboard-log-dir",
    ],
)
def test_a_folder_elsewhere_is_refused_with_its_place(key: str, tmp_path: Path) -> None:
    scheduler = LocalScheduler({"TONY_HOME": str(tmp_path / "home")})
    assert scheduler.check(job_of(tmp_path, **{key: str(tmp_path)})) == []
    assert scheduler.check(job_of(tmp_path, **{key: f"file://{tmp_path}"})) == []
    (words,) = scheduler.check(job_of(tmp_path, **{key: "ofs://me:word@bucket/x"}))
    assert words.startswith(
        f"tony.xml:2: {key}: ofs://********@bucket/x: only a folder of this machine"
    )
    for place in ("hdfs://nn/x", "s3a://bucket/x", "gs://bucket/x"):
        elsewhere = scheduler.check(job_of(tmp_path, **{key: place}))
        assert bool(elsewhere) == (key != "tony.application.checkpoint-dir")
    assert not (tmp_path / "home").exists()


def test_a_history_that_cannot_be_written_is_refused_with_its_place(tmp_path: Path) -> None:
    scheduler = LocalScheduler({"TONY_HOME": str(tmp_path / "home")})
    key = "tony.history.location"
    (tmp_path / "file").write_text("")
    for place in ("/proc/nope", f"{tmp_path}/file/below"):
        (words,) = scheduler.check(job_of(tmp_path, **{key: place}))
        assert words.startswith(f"tony.xml:2: {key}: {place} cannot be written: ")
    assert scheduler.check(job_of(tmp_path, **{key: f"{tmp_path}/new/folder"})) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "tony.xml"]


@pytest.mark.parametrize(
    ("keys", "span", "names", "need"),
    [
        ({"tony.worker.instances": "2"}, "15000-15001", "2 x worker", 3),
        ({"tony.worker.instances": "2"}, "15000-15002", "", 0),
        # TensorBoard's port is its own role's then, and a sidecar is no part of a wave.
        (
            {"tony.worker.instances": "2", "tony.tensorboard.instances": "1"},
            "15000-15001",
            "",
            0,
        ),
        (
            {"tony.data.instances": "3", "tony.worker.instances": "1",
             "tony.worker.depends-on": "data"},
            "15000-15001",
            "3 x data",
            3,
        ),
        (
            {"tony.worker.instances": "9",
             "tony.application.distributed-mode": "FCFS"},
            "15000-15001",
            "",
            0,
        ),
    ],
)  # fmt: skip
def test_a_port_range_that_can_never_do(
    keys: dict[str, str], span: str, names: str, need: int, tmp_path: Path
) -> None:
    scheduler = LocalScheduler({"TONY_HOME": str(tmp_path / "home")})
    job = job_of(tmp_path, "tensorflow", **{"tony.task.port-range": span}, **keys)
    port_problems = [words for words in scheduler.check(job) if "port" in words]
    if not need:
        assert port_problems == []
        return
    (words,) = port_problems
    assert words.startswith(f"tony.xml:2: tony.task.port-range: {span} are 2 ports, and")
    assert names in words and f"need {need} on this machine" in words


def test_what_changes_nothing_here_is_named_in_one_warning(tmp_path: Path) -> None:
    scheduler = LocalScheduler({"TONY_HOME": str(tmp_path / "home")})
    (tmp_path / "yarn.xml").write_text("<configuration/>")
    job = job_of(
        tmp_path,
        **{
            "tony.worker.node-label": "gpu",
            "tony.worker.instances": "1",
            "tony.worker.placement-spec": "notin,node,worker",
            "tony.application.yarn-conf-path": "yarn.xml",
            "tony.application.num-client-rm-connect-retries": "",
        },
    )
    assert scheduler.warnings(job) == [
        "of no effect on the embedded scheduler: tony.worker.node-label (tony.xml:2),"
        " tony.worker.placement-spec (tony.xml:4)"
    ]
    (found,) = prepare(scheduler, job).warnings
    assert "of no effect on the embedded" in str(found)
    plain = job_of(tmp_path, **{"tony.application.security.enabled": "false"})
    assert scheduler.warnings(plain) == []
    assert prepare(scheduler, plain).warnings == ()

"""Job files as they were written for the JVM plugin."""

from __future__ import annotations

from pathlib import Path

from tony_azkaban import execution, job_properties
from tony_azkaban.java_properties import load
from tony_azkaban.job_properties import find_unused
from tony_azkaban.site import Site
from tony_core.job.load import Loaded, load_job

# As Azkaban hands it on: the job's own, with what its servers and other Hadoop types add.
PROPERTIES = rb"""
type=tony
user.to.proxy=alice
src_dir=src
executes='mnist_distributed.py'
task_params=--data_dir hdfs\://nn/data --working_dir "my models" --steps\=100
python_venv=tf-venv.zip
python_binary_path=venv/bin/python
hdfs_classpath=hdfs\://nn/libs/hadoop,hdfs\://nn/libs/conf
worker_env.SKIP_HADOOP_PATH=true
worker_env.LD_LIBRARY_PATH=/usr/java/jre/lib/amd64/server
tony.application.name=mnist
tony.yarn.queue=default
tony.worker.instances=4
tony.worker.memory=4g
tony.worker.gpus=1
tony.ps.instances=2
tony.ps.memory=3g
tony.application.security.enabled=false
tony.application.tags=mnist,nightly
tony.task.am.jvm.opts=-Xmx1g
tony.containers.envs=HADOOP_MAPRED_HOME\=/opt/hadoop
jvm.args=-Dx\=y
hadoop-inject.mapreduce.job.queuename=default
classpath=./lib/*
azkaban.flow.execid=7
azkaban.flow.flowid=mnist
azkaban.job.attempt=0
azkaban.flow.start.timestamp=2026-01-01T00\:00\:00.000Z
working.dir=/az/executions/7
"""


#: The JVM plugin made one command line of these, and split it again by its quotes.
QUOTED = {
    b"src_dir=src": b"src_dir='src x'",
    b"python_venv=tf-venv.zip": b'python_venv="tf-venv.zip"',
    b"python_binary_path=venv/bin/python": b'python_binary_path="venv/bin/python"',
    b"SKIP_HADOOP_PATH=true": b'SKIP_HADOOP_PATH="-Da -Db"',
    b"hdfs_classpath=": b"hdfs_classpath='",
    b"/libs/conf\n": b"/libs/conf'\n",
}


def made(folder: Path, properties: bytes = PROPERTIES, source: str = "src") -> Loaded:
    (folder / source).mkdir()
    (folder / source / "mnist_distributed.py").write_text("")
    (folder / "tf-venv.zip").write_text("")
    return load_job(
        job_properties.arguments(load(properties), Site(), str(folder)), env={}, cwd=str(folder)
    )


def test_quotes_of_the_jvms_command_line_mean_what_they_meant(tmp_path: Path) -> None:
    properties = PROPERTIES
    for bare, quoted in QUOTED.items():
        assert bare in properties
        properties = properties.replace(bare, quoted)
    job = made(tmp_path, properties, "src x").job
    (tmp_path / "plain").mkdir()
    plain = made(tmp_path / "plain").job
    assert job.program.hdfs_classpath == plain.program.hdfs_classpath
    assert job.program.python == "venv/bin/python"
    assert dict(job.program.shell_env)["SKIP_HADOOP_PATH"] == "-Da -Db"
    assert job.role("worker").command == plain.role("worker").command


def test_it_is_the_job_that_it_was(tmp_path: Path) -> None:
    loaded = made(tmp_path)
    this = execution.read(load(PROPERTIES), {"JOB_NAME": "train"}, "az", "")
    job, notes = job_properties.finish(loaded, Site(), this)
    assert job.name == "mnist"
    assert [(role.name, role.instances) for role in job.roles] == [("worker", 4), ("ps", 2)]
    assert job.role("worker").resources.gpus == 1
    assert job.role("worker").command == (
        'venv/bin/python mnist_distributed.py --data_dir hdfs://nn/data --working_dir "my models"'
        " --steps=100"
    )
    assert dict(job.program.shell_env) == {
        "SKIP_HADOOP_PATH": "true",
        "LD_LIBRARY_PATH": "/usr/java/jre/lib/amd64/server",
    }
    assert dict(job.program.container_env) == {"HADOOP_MAPRED_HOME": "/opt/hadoop"}
    assert job.program.hdfs_classpath == ("hdfs://nn/libs/hadoop", "hdfs://nn/libs/conf")
    assert job.program.python == "venv/bin/python"
    assert job.tags[:2] == ("mnist", "nightly")
    assert {"azkaban.flow.execid:7", "azkaban.flow.flowid:mnist"} <= set(job.tags)
    # What has no effect here is one line of each kind.
    (more,) = map(str, find_unused(load(PROPERTIES)))
    assert more.endswith(": classpath, hadoop-inject.mapreduce.job.queuename, jvm.args")
    assert [str(note).partition(": ")[0] for note in notes] == [
        "of no effect here",
        "job file of the JVM TonY; defaults that differ",
    ]
    assert "tony.task.am.jvm.opts (job properties)" in str(notes[0])

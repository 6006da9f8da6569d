"""Job files as they were written for the JVM plugin."""

from __future__ import annotations

from pathlib import Path

from tony_azkaban import execution, translation
from tony_azkaban.properties import load
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


def made(folder: Path) -> Loaded:
    (folder / "src").mkdir()
    (folder / "src" / "mnist_distributed.py").write_text("")
    (folder / "tf-venv.zip").write_text("")
    return load_job(
        translation.arguments(load(PROPERTIES), Site(), str(folder)), env={}, cwd=str(folder)
    )


def test_it_is_the_job_that_it_was(tmp_path: Path) -> None:
    loaded = made(tmp_path)
    this = execution.read(load(PROPERTIES), {"JOB_NAME": "train"}, "az", "")
    job, notes = translation.finished(loaded, Site(), this)
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
    # What has no effect here is one line.
    assert [str(note) for note in notes] == [
        "of no effect here: tony.task.am.jvm.opts (job properties)"
    ]

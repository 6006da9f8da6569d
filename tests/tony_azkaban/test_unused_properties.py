"""Properties that look like ours: a warning for each, and never a false alarm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tony_azkaban.jobs import Job
from tests.tony_azkaban.test_jvm_jobs import PROPERTIES
from tony_azkaban.java_properties import load
from tony_azkaban.job_properties import NAMES, find_misspelled, is_one_edit

AZKABANS = """
alert.type alias azkaban.flow.execid azkaban.flow.flowid azkaban.flow.nested.path
azkaban.flow.projectid azkaban.flow.projectlastchangedby azkaban.flow.projectlastchangeddate
azkaban.flow.projectname azkaban.flow.projectversion azkaban.flow.start.day
azkaban.flow.start.hour azkaban.flow.start.milliseconds azkaban.flow.start.minute
azkaban.flow.start.month azkaban.flow.start.second azkaban.flow.start.timestamp
azkaban.flow.start.timezone azkaban.flow.start.year azkaban.flow.submituser azkaban.flow.uuid
azkaban.input.dataset azkaban.job.attachment.file azkaban.job.attempt azkaban.job.id
azkaban.job.metadata.file azkaban.link.attempt.url azkaban.link.execution.url
azkaban.link.job.url azkaban.link.jobexec.url azkaban.link.workflow.url azkaban.output.dataset
azkaban.url azkaban.webserver.url azkaban.webserverhost classpath command command.1 command.2
condition creator.default.proxy decryption.enabled dependencies driver-memory env.JAVA_HOME
env.PATH env.python_venv execute.as.user execution-jar execution.dir.retention executor-cores
executor-memory failure.email failure.emails failure.flow.action flow.name flow.num.job.threads
flow.parent.priority force.output.overwrite global.jvm.args hadoop-conf.dfs.replication
hadoop-inject.mapreduce.job.queuename hadoop.config hive.script input.path java.class jar.args
java.io.tmpdir job.class job.extend job.fullpath job.id job.path job.succeed.on.failure
jobtype.class jobtype.classpath jobtype.global.classpath jobtype.lib.dir jvm.args main.args
master method.cancel method.progress method.run notify.emails num-executors obtain.binary.token
obtain.hcat.token obtain.namenode.token output.path params param.day pig.script plugin.dir
proxy.user.lock.down python queue retries retry.backoff script server.hostname
spark.yarn.queue success.email success.emails tmpjars type user.to.proxy useExecutorPort
whitelist.file.path working.dir
""".split()
"""What servers of 2.5 and 3.x, and their Hadoop job types, have in a job's properties."""


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("exectues", "executes"),
        ("execute", "executes"),
        ("srcdir", "src_dir"),
        ("src.dir", "src_dir"),
        ("Src-Dir", "src_dir"),
        ("pyton_venv", "python_venv"),
        ("pythonVenv", "python_venv"),
        ("task_param", "task_params"),
        ("conf_flie", "conf_file"),
        ("azkaban.input.datasets", "azkaban.input.dataset"),
        ("worker_evn.PATH", "worker_env.PATH"),
        ("workerenv.PATH", "worker_env.PATH"),
        ("tony_azkban.retry", "tony_azkaban.retry"),
    ],
)
def test_one_slip_is_warned_of(typed: str, meant: str) -> None:
    (problem,) = find_misspelled([typed, *NAMES])
    assert problem.key == typed and f"(did you mean {meant}?)" in problem.message


def test_no_false_alarm() -> None:
    ours = [
        *NAMES,
        "worker_env.src.dir",
        "tony_azkaban.retry",
        "tony.worker.instances",
        "tony.home",
    ]
    own = ["raw", "models", "at_least", "python", "source", "dir", "exec", "src", "env.x", "run"]
    assert find_misspelled([*AZKABANS, *ours, *own, *load(PROPERTIES)]) == []


def test_edits() -> None:
    for one, other in [("ab", "ab"), ("ab", "ba"), ("abc", "ac"), ("", "a"), ("abc", "axc")]:
        assert is_one_edit(one, other) and is_one_edit(other, one)
    for one, other in [("abc", "cab"), ("abcd", "badc"), ("ab", "xy"), ("a", "abc"), ("ab", "cba")]:
        assert not is_one_edit(one, other) and not is_one_edit(other, one)


def test_a_refused_job_shows_the_misspelled_properties_too(tmp_path: Path) -> None:
    job = Job(tmp_path).set({"exectues": "python3 train.py"})
    job.props.pop("executes", None)
    assert "exectues: unknown property, which has no effect" in job.run(2)

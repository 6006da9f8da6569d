"""Job files and command lines in every shape that the JVM TonY's own documentation, examples and
tests have: each loads with the same outcome, or with a difference that is named."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping, NamedTuple, Optional, Sequence, Tuple

import pytest

from tests.job.loading import SAMPLES, load, warned, why, write_xml
from tony_core.cli.submit import job_arguments
from tony_core.cli.verbs import parser_of
from tony_core.client.submission import Frameworks
from tony_core.job.from_jvm import DEFAULTS
from tony_core.job.keys.table import table
from tony_core.job.load import Loaded, load_job
from tony_core.job.problems import JobError

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "from-jvm-tony.md"
SECURE_OFF = {"tony.application.security.enabled": "false"}
IMAGE = "registry.example.org/ml/train:7"


class Case(NamedTuple):
    """One job as its user submits it."""

    name: str
    words: Sequence[str]
    file: Optional[Mapping[str, str]] = None
    roles: Tuple[str, ...] = ()  # name x instances
    command: str = ""  # of the first role
    framework: str = "tensorflow"
    warnings: Tuple[str, ...] = ()  # what each warning holds, in their order
    errors: Tuple[str, ...] = ()  # what each error holds: then it is refused


def submitted(case: Case, folder: Path) -> Loaded:
    """The job of a command line, as ``tony submit`` loads it."""
    words = list(case.words)
    if case.file is not None:
        write_xml(folder / "tony.xml", case.file)
        if not any("conf_file" in word for word in words):
            words += ["--conf_file", str(folder / "tony.xml")]
    args = parser_of("submit").parse_args(words)
    return load_job(job_arguments(args), env={}, cwd=str(folder), user="u", frameworks=Frameworks())


VENV = ["-python_venv", "env.zip", "-python_binary_path", "Python/bin/python"]
SCRIPT = ["-executes", "models/train.py", "-src_dir", "src"]
WORKERS = {
    "tony.worker.instances": "4",
    "tony.worker.memory": "4g",
    "tony.worker.gpus": "1",
}
PS_WITHOUT_INSTANCES = "tony.ps.memory: tony.ps.instances is not set, so the job has no ps"
JVM_DEFAULTS = "job file of the JVM TonY"

CASES = [
    Case(
        "parameter servers without instances",
        [*SCRIPT, *VENV, "-task_params", "--input_dir hdfs://nn/in --steps 10"],
        {**WORKERS, "tony.ps.memory": "3g"},
        ("worker x 4",),
        "venv/Python/bin/python models/train.py --input_dir hdfs://nn/in --steps 10",
        warnings=(JVM_DEFAULTS, PS_WITHOUT_INSTANCES),
    ),
    Case(
        "an image by the older keys",
        [*SCRIPT, "-python_binary_path", "/opt/python/bin/python"],
        {
            **WORKERS,
            "tony.ps.memory": "3g",
            "tony.application.docker.enabled": "true",
            "tony.application.docker.image": IMAGE,
        },
        ("worker x 4",),
        "/opt/python/bin/python models/train.py",
        warnings=("older names of keys", JVM_DEFAULTS, PS_WITHOUT_INSTANCES),
    ),
    Case(
        "instances by -conf, and a variable",
        [
            *("-task_params", "--data_dir hdfs://nn/data --steps 10"),
            *("-python_venv", "env.zip", "-python_binary_path", "Python/bin/python"),
            *("-executes", "src/train.py", "-shell_env", "LD_LIBRARY_PATH=/usr/java/lib"),
            *("-conf", "tony.ps.instances=2", "-conf", "tony.worker.instances=2"),
        ],
        WORKERS,
        ("worker x 2", "ps x 2"),
        "venv/Python/bin/python src/train.py --data_dir hdfs://nn/data --steps 10",
        warnings=(JVM_DEFAULTS,),
    ),
    Case(
        "TensorFlow on a cluster without Kerberos, words joined by =",
        [
            *("--python_venv=/v/venv.zip", "--src_dir=/e/mnist", "--executes=train.py"),
            *("--task_params=--steps 10 --data_dir /tmp/d", "--python_binary_path=venv/bin/python"),
        ],
        {
            **SECURE_OFF,
            "tony.worker.instances": "2",
            "tony.worker.memory": "4g",
            "tony.ps.instances": "1",
        },
        ("worker x 2", "ps x 1"),
        "venv/bin/python train.py --steps 10 --data_dir /tmp/d",
        warnings=(JVM_DEFAULTS,),
    ),
    Case(
        "PyTorch without parameter servers",
        [
            *("--python_venv=/v/venv.zip", "--src_dir=/e/mnist", "--executes=train.py"),
            "--python_binary_path=bin/python",
        ],
        {
            **SECURE_OFF,
            "tony.ps.instances": "0",
            "tony.worker.instances": "2",
            "tony.application.framework": "pytorch",
        },
        ("worker x 2",),
        "venv/bin/python train.py",
        "pytorch",
        warnings=(JVM_DEFAULTS,),
    ),
    Case(
        "PyTorch with memory for parameter servers that there are none of, and zero GPUs",
        ["--executes", "train.py", "--python_venv=/v/torch.zip", "--task_params=--root /tmp/"],
        {
            **SECURE_OFF,
            "tony.application.name": "PyTorch",
            "tony.worker.instances": "2",
            "tony.worker.memory": "4g",
            "tony.worker.gpus": "0",
            "tony.ps.instances": "0",
            "tony.ps.memory": "2g",
            "tony.application.framework": "pytorch",
        },
        ("worker x 2",),
        "python3 train.py --root /tmp/",
        "pytorch",
        warnings=(JVM_DEFAULTS,),
    ),
    Case(
        "megabytes where gigabytes were meant",
        ["--executes", "train.py"],
        {
            **SECURE_OFF,
            "tony.worker.instances": "2",
            "tony.worker.memory": "8",
            "tony.ps.instances": "1",
            "tony.ps.memory": "4",
        },
        ("worker x 2", "ps x 1"),
        warnings=(
            JVM_DEFAULTS,
            "tony.worker.memory: '8' is 8 MB; for gigabytes write 8g",
            "tony.ps.memory: '4' is 4 MB; for gigabytes write 4g",
        ),
    ),
    Case(
        "MXNet",
        ["--executes", "train.py", "--python_binary_path", "python"],
        {
            **SECURE_OFF,
            "tony.scheduler.instances": "1",
            "tony.server.instances": "2",
            "tony.ps.instances": "0",
            "tony.worker.instances": "2",
            "tony.worker.vcores": "2",
            "tony.worker.memory": "4G",
            "tony.application.framework": "mxnet",
            "tony.application.name": "mxnet - regression",
        },
        ("scheduler x 1", "server x 2", "worker x 2"),
        "python train.py",
        "mxnet",
        warnings=(JVM_DEFAULTS,),
    ),
    Case(
        "Horovod in an image",
        ["--src_dir=/e/hvd", "--executes=train.py", "--python_binary_path=python3"],
        {
            "tony.worker.instances": "4",
            "tony.worker.memory": "3g",
            "tony.docker.enabled": "true",
            "tony.docker.containers.image": IMAGE,
            "tony.application.framework": "horovod",
        },
        ("worker x 4",),
        "python3 train.py",
        "horovod",
    ),
    Case(
        "a Horovod driver of the job's own",
        ["--executes=train.py"],
        {
            "tony.worker.instances": "2",
            "tony.application.framework": "horovod",
            "tony.horovod.driver.mode.debug": "true",
            "tony.driver.instances": "1",
            "tony.driver.vcores": "1",
            "tony.application.untracked.jobtypes": "driver",
            "tony.driver.command": "python driver.py -t -p 9999",
        },
        errors=("a Horovod driver of the job's own is not run",),
    ),
    Case(
        "keys of a driver without one",
        ["--executes=train.py"],
        {
            "tony.worker.instances": "2",
            "tony.application.framework": "horovod",
            "tony.horovod.mode.test": "true",
            "tony.driver.instances": "1",
            "tony.driver.vcores": "1",
        },
        ("worker x 2",),
        "python3 train.py",
        "horovod",
        warnings=(JVM_DEFAULTS, "tony.driver.instances"),
    ),
    Case(
        "a role that may run on after a group, untracked then",
        ["--executes=train.py"],
        {
            "tony.chief.instances": "1",
            "tony.worker.instances": "2",
            "tony.evaluator.instances": "1",
            "tony.application.group.A": "worker,chief",
            "tony.application.dependency.evaluator.timeout.after.A": "3600",
            "tony.application.dependency.evaluator.timeout.after.A.ignored": "true",
        },
        ("chief x 1", "worker x 2", "evaluator x 1"),
    ),
    Case(
        "Ray by commands of the shell",
        ["--src_dir=/e/ray", "--python_venv=ray.zip"],
        {
            "tony.worker.instances": "2",
            "tony.worker.memory": "3g",
            "tony.head.instances": "1",
            "tony.head.command": "chmod +x $PWD/venv/bin/*; ray start --head --port=`./port.py`",
            "tony.worker.command": "ray start --address=`./port.py --head` --block; ray stop",
        },
        ("worker x 2", "head x 1"),
        "ray start --address=`./port.py --head` --block; ray stop",
    ),
    Case(
        "a single task",
        [
            *("--src_dir", "scripts", "--executes", "check.py", "--hdfs_classpath", "hdfs://nn/lib"),
            *("--python_binary_path", "python", "--shell_env", "CHECK=CHECK"),
            *("--container_env", "SKIP_HADOOP_PATH=true"),
        ],
        {
            "tony.application.single-node": "true",
            "tony.application.hdfs-conf-path": "/c/hdfs.xml",
            "tony.application.yarn-conf-path": "/c/yarn.xml",
            "tony.containers.resources": "/r/common.zip",
        },
        ("worker x 1",),
        "python check.py",
        warnings=(JVM_DEFAULTS, "of no effect here: tony.application.single-node"),
    ),
    Case(
        "a single task with a GPU of the master's",
        ["-conf", "tony.am.gpus=1", "-executes", "train.py"],
        None,
        ("worker x 1",),
        warnings=(JVM_DEFAULTS,),
    ),
    Case(
        "stages",
        [
            *("--executes", "exit.py", "--python_binary_path", "python"),
            *("--conf", "tony.worker.instances=1", "--conf", "tony.ps.instances=1"),
            *("--conf", "tony.db.instances=1", "--conf", "tony.dbloader.instances=1"),
            *("--conf", "tony.application.prepare-stage=dbloader,db"),
            *("--conf", "tony.application.training-stage=ps,worker"),
        ],
        None,
        ("worker x 1", "ps x 1", "db x 1", "dbloader x 1"),
        "python exit.py",
    ),
    Case(
        "resources with a name, an archive, an empty item and a folder on HDFS",
        [
            *("--executes", "python check.py", "--conf", "tony.worker.instances=1"),
            "--conf",
            "tony.worker.resources=/r/a.zip::b.zip,/r/c.zip#archive,,/r/d.zip,hdfs://nn/lib",
            *("--conf", "tony.ps.instances=0"),
        ],
        None,
        ("worker x 1",),
        "python check.py",
    ),
    Case(
        "a standalone job",
        [
            *("--executes", "exit.py", "--python_binary_path", "python"),
            *("--conf", "tony.application.framework=standalone"),
            *("--conf", "tony.worker.instances=1"),
        ],
        None,
        ("worker x 1",),
        "python exit.py",
        "standalone",
    ),
    Case(
        "a standalone job of two tasks",
        [
            *("--executes", "exit.py", "--conf", "tony.application.framework=standalone"),
            *("--conf", "tony.worker.instances=1", "--conf", "tony.slave.instances=1"),
        ],
        errors=("standalone",),
    ),
    Case(
        "a role's own command, and a parameter server that is not tracked",
        [
            *("--python_venv", "t.zip", "--shell_env", "CHECK=CHECK"),
            *("--conf", "tony.ps.instances=1", "--conf", "tony.worker.instances=1"),
            *("--conf", "tony.ps.command=python serve.py"),
            *("--conf", "tony.worker.command=python train.py"),
            *("--conf", "tony.application.untracked.jobtypes=ps"),
        ],
        None,
        ("ps x 1", "worker x 1"),
        "python serve.py",
    ),
    Case(
        "a sidecar",
        [
            *("--conf", "tony.logger.instances=1", "--conf", "tony.worker.instances=1"),
            *("--conf", "tony.logger.command=python log.py"),
            *("--conf", "tony.worker.command=python train.py"),
            *("--conf", "tony.application.sidecar.jobtypes=logger"),
        ],
        None,
        ("logger x 1", "worker x 1"),
        "python log.py",
    ),
    Case(
        "TensorBoard beside the chief",
        [
            *("--executes", "python train.py", "--conf", "tony.chief.instances=1"),
            *("--conf", "tony.ps.instances=1", "--conf", "tony.worker.instances=2"),
            *("--conf", "tony.application.tensorboard-log-dir=/tmp"),
        ],
        None,
        ("chief x 1", "ps x 1", "worker x 2"),
        "python train.py",
    ),
    Case(
        "heartbeats",
        [
            *("--executes", "exit.py", "--conf", "tony.worker.instances=1"),
            *("--conf", "tony.task.heartbeat-interval-ms=100"),
            *("--conf", "tony.task.max-missed-heartbeats=5"),
        ],
        None,
        ("worker x 1",),
        "python3 exit.py",
    ),
    Case(
        "a role's command without instances, and --executes",
        ["--executes", "ls", "--shell_env", "A=a", "--conf", "tony.worker.command=cat"],
        None,
        ("worker x 1",),
        "cat",
        warnings=("tony.worker.command: tony.worker.instances is not set: the job is one single",),
    ),
    Case(
        "a chief's GPUs without a chief",
        ["--executes", "train.py"],
        {
            "tony.worker.instances": "3",
            "tony.worker.gpus": "1",
            "tony.evaluator.instances": "1",
            "tony.evaluator.vcores": "2",
            "tony.chief.gpus": "1",
        },
        ("worker x 3", "evaluator x 1"),
        warnings=("tony.chief.gpus: tony.chief.instances is not set, so the job has no chief",),
    ),
    Case(
        "retries, queue, tags, label, limits",
        ["--executes", "train.py"],
        {
            "tony.worker.instances": "2",
            "tony.am.retry-count": "1",
            "tony.yarn.queue": "ml",
            "tony.application.tags": "a,b",
            "tony.application.node-label": "gpu",
            "tony.worker.max-instances": "8",
            "tony.task.max-total-instances": "10",
            "tony.task.max-total-gpus": "4",
            "tony.application.timeout": "3600000",
            "tony.containers.envs": "A=1,B",
            "tony.execution.envs": "C=2",
        },
        ("worker x 2",),
    ),
    Case(
        "by the words of another submitter, with an archive that is a folder of its name",
        [
            *("--conf", "tony.worker.instances=2", "--conf", "tony.worker.memory=1G"),
            *("--conf", "tony.ps.instances=1", "--conf", "tony.ps.memory=1G"),
            *("--conf", "tony.containers.resources=/r/env.zip#archive,/r/train.py,/r/all.jar"),
            *("--conf", "tony.worker.command=A=$B env.zip/env/bin/python train.py -conf=a.json"),
            *("--conf", "tony.ps.command=env.zip/env/bin/python train.py -conf=a.json"),
            *("--conf", "tony.application.security.enabled=false"),
        ],
        None,
        ("worker x 2", "ps x 1"),
        "A=$B env.zip/env/bin/python train.py -conf=a.json",
        warnings=(JVM_DEFAULTS,),
    ),
    Case(
        "environment and data on HDFS, no parameters, a library path",
        [
            *("-executes", "./models/train.py", "-task_params", "", "-src_dir", "./src"),
            *("-python_venv", "hdfs://nn/e/venv.zip", "-python_binary_path", "env/bin/python"),
            *("-container_env", "LD_LIBRARY_PATH=/opt/native:/usr/java/lib/server"),
            *("-shell_env", "HADOOP_OPTS=-Dx=y -Da=b CLASSPATH=/c"),
        ],
        {**SECURE_OFF, "tony.worker.instances": "2"},
        ("worker x 2",),
        "venv/env/bin/python ./models/train.py",
        warnings=(JVM_DEFAULTS,),
    ),
    Case(
        "a command of the shell without anything else",
        ["--executes=echo 'hi'"],
        SECURE_OFF,
        ("worker x 1",),
        "echo 'hi'",
        warnings=(JVM_DEFAULTS,),
    ),
    Case(
        "what Hadoop puts into values, and keys of others",
        ["--executes", "train.py --out /out/${user.name}/${TASK_INDEX}"],
        {
            "tony.worker.instances": "${workers.number}",
            "workers.number": " 2 ",
            "tony.application.name": "job of ${user.name}",
            "mapreduce.job.queuename": "ml",
            "tony.application.framework": "PyTorch",
            "tony.application.distributed-mode": "gang",
        },
        ("worker x 2",),
        "python3 train.py --out /out/u/${TASK_INDEX}",
        "pytorch",
    ),
    Case(
        "limits that are none, and a stage with blanks",
        ["--executes", "train.py"],
        {
            "tony.worker.instances": "3",
            "tony.db.instances": "1",
            "tony.dbwriter.instances": "1",
            "tony.application.prepare-stage": "dbwriter, db",
            "tony.application.untracked.jobtypes": "db",
            "tony.task.max-total-instances": "-1",
            "tony.task.max-total-gpus": "-1",
            "tony.container.allocation.timeout": "-1",
            "tony.application.timeout": "0",
            "tony.docker.enabled": "False",
        },
        ("worker x 3", "db x 1", "dbwriter x 1"),
    ),
    Case(
        "a notebook in the master",
        ["--src_dir", "bin/", "--executes", "./notebook --ip=* $DISABLE_TOKEN"],
        {"tony.am.memory": "4g", "tony.am.vcores": "2", "tony.am.gpus": "1"},
        ("worker x 1",),
        "./notebook --ip=* $DISABLE_TOKEN",
    ),
    Case(
        "a role whose name has a capital letter, which was none there",
        ["--executes", "train.py"],
        {"tony.worker.instances": "1", "tony.dbWriter.instances": "1"},
        errors=("'dbWriter' is no role name",),
    ),
    Case(
        "a key of a fork",
        ["--executes", "train.py"],
        {"tony.worker.instances": "1", "tony.java.home": "/usr/java"},
        errors=("tony.java.home: unknown key",),
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_job_of_the_jvms(case: Case, tmp_path: Path) -> None:
    if case.errors:
        with pytest.raises(JobError) as caught:
            submitted(case, tmp_path)
        assert all(text in str(caught.value) for text in case.errors)
        return
    loaded = submitted(case, tmp_path)
    job = loaded.job
    assert [f"{r.name} x {r.instances}" for r in job.roles if not r.generated] == list(case.roles)
    assert job.framework == case.framework
    if case.command:
        assert job.roles[0].command == case.command
    texts = [str(warning) for warning in loaded.warnings]
    for text in case.warnings:
        assert any(text in each for each in texts), texts
    assert len(texts) == len(case.warnings), texts


#: Every key that the JVM TonY reads or has a default for, over its versions, with a value that is
#: no default there.
KEYS = {
    "tony.other.namenodes": "hdfs://other",
    "tony.yarn.queue": "ml",
    "tony.application.name": "n",
    "tony.application.type": "ML",
    "tony.application.tags": "a,b",
    "tony.application.framework": "pytorch",
    "tony.application.node-label": "gpu",
    "tony.application.placement-spec": "notin,node,worker",
    "tony.application.single-node": "true",
    "tony.application.enable-preprocess": "true",
    "tony.application.timeout": "60000",
    "tony.application.num-client-rm-connect-retries": "7",
    "tony.application.distributed-mode": "FCFS",
    "tony.application.prepare-stage": "ps",
    "tony.application.training-stage": "worker",
    "tony.application.untracked.jobtypes": "evaluator",
    "tony.application.sidecar.jobtypes": "evaluator",
    "tony.application.stop-on-failure-jobtypes": "evaluator",
    "tony.application.stop.on.failure.jobtypes": "evaluator",
    "tony.application.fail-on-worker-failure-enabled": "false",
    "tony.application.group.g": "worker",
    "tony.application.dependency.evaluator.timeout.after.g": "60",
    "tony.application.tensorboard-log-dir": "/logs",
    "tony.application.docker.enabled": "true",
    "tony.application.docker.image": IMAGE,
    "tony.application.security.enabled": "true",
    "tony.application.hdfs-conf-path": "/c/hdfs-site.xml",
    "tony.application.yarn-conf-path": "/c/yarn-site.xml",
    "tony.application.mapred-conf-path": "/c/mapred-site.xml",
    "tony.application.hadoop.location": "hdfs://nn/hadoop.tar.gz",
    "tony.application.hadoop.classpath": "share/*",
    "tony.application.test.horovod-test-mode-enable": "true",
    "tony.task.max-total-instances": "9",
    "tony.task.max-total-gpus": "9",
    "tony.task.executor.jvm.opts": "-Xmx1g",
    "tony.task.am.jvm.opts": "-Xmx1g",
    "tony.task.default.jvm.opts": "-Xmx1g",
    "tony.task.heartbeat-interval": "500",
    "tony.task.heartbeat-interval-ms": "500",
    "tony.task.max-missed-heartbeats": "9",
    "tony.task.metrics-interval-ms": "900",
    "tony.task.gpu-metrics.enabled": "false",
    "tony.task.registration-timeout-sec": "60",
    "tony.task.registration-retry-count": "3",
    "tony.task.executor.registry-timeout-sec": "60",
    "tony.task.executor.execution-timeout-ms": "60000",
    "tony.task.executor.execution.error-message-max-depth": "9",
    "tony.container.allocation.timeout": "60000",
    "tony.container.registration.timeout": "60000",
    "tony.am.retry-count": "1",
    "tony.am.memory": "3g",
    "tony.am.startup-timeout": "5m",
    "tony.am.vcores": "2",
    "tony.am.gpus": "1",
    "tony.am.wait-client-signal-stop-timeout-sec": "9",
    "tony.am.resources": "/r/a",
    "tony.am.command": "true",
    "tony.ps.memory": "5g",
    "tony.worker.timeout": "60000",
    "tony.worker.memory": "5g",
    "tony.worker.vcores": "5",
    "tony.worker.gpus": "1",
    "tony.worker.max-instances": "9",
    "tony.worker.resources": "/r/a",
    "tony.worker.command": "true",
    "tony.worker.node-label": "gpu",
    "tony.worker.depends-on": "ps",
    "tony.chief.name": "ps",
    "tony.chief.index": "1",
    "tony.containers.resources": "/r/a",
    "tony.containers.command": "true",
    "tony.containers.envs": "A=1",
    "tony.execution.envs": "A=1",
    "tony.docker.enabled": "true",
    "tony.docker.containers.image": IMAGE,
    "tony.docker.worker.image": IMAGE,
    "tony.docker.containers.mount": "/a:/b",
    "tony.gpu-exec-path": "/opt/nvidia-smi",
    "tony.python-exec-path": "/opt/python",
    "tony.horovod.mode.test": "true",
    "tony.horovod.mode.test.fast.fail": "true",
    "tony.history.host": "h",
    "tony.history.location": "/h",
    "tony.history.intermediate": "/h/i",
    "tony.history.finished": "/h/f",
    "tony.history.mover-interval-ms": "1",
    "tony.history.finished-dir-timezone": "CET",
    "tony.history.retention-sec": "60",
    "tony.history.purger-interval-ms": "1",
    "tony.history.cache.max-entries": "1",
    "tony.history.maxAppends": "1",
    "tony.init.module": "S",
    "tony.portal.cache.max-entries": "1",
    "tony.portal.url": "https://portal.example.org",
    "tony.keytab.user": "alice",
    "tony.keytab.location": "/k",
    "tony.https.port": "1",
    "tony.https.keystore.path": "/k",
    "tony.https.keystore.type": "PKCS12",
    "tony.https.keystore.password": "p",
    "tony.https.keystore.algorithm": "X",
    "tony.http.port": "1",
    "tony.secret.key": "s",
    "tony.version-info.version": "0.4",
}
_TRACKED_PS = {"tony.application.untracked.jobtypes": "evaluator"}
_IN_IMAGES = {"tony.docker.enabled": "true", "tony.docker.containers.image": "i:1"}
#: What a key needs beside it to mean anything.
BESIDE = {
    "tony.application.dependency.evaluator.timeout.after.g": {"tony.application.group.g": "worker"},
    "tony.application.docker.enabled": {"tony.docker.containers.image": IMAGE},
    "tony.application.docker.image": {"tony.docker.enabled": "true"},
    "tony.docker.enabled": {"tony.docker.containers.image": IMAGE},
    "tony.docker.worker.image": _IN_IMAGES,
    "tony.docker.containers.mount": _IN_IMAGES,
    "tony.worker.depends-on": _TRACKED_PS,
    "tony.application.prepare-stage": _TRACKED_PS,
    "tony.application.training-stage": _TRACKED_PS,
}


def test_a_configuration_whose_properties_lack_something(tmp_path: Path) -> None:
    (tmp_path / "tony.xml").write_text(
        "<configuration>\n<property><!-- nothing --></property>\n"
        "<property><name>some.key</name><value>a</value><source>s</source></property>\n"
        "<property><name>key.only</name></property>\n<property><value>v</value></property>\n"
        "<property><name>tony.worker.instances</name><value>3</value><final>true</final></property>"
        "</configuration>"
    )
    loaded = submitted(Case("", ["--executes", "train.py"]), tmp_path)
    assert loaded.job.role("worker").instances == 3
    assert [(warning.line, warning.message) for warning in loaded.warnings] == [
        (2, "a property without a <name> is skipped"),
        (5, "a property without a <name> is skipped"),
    ]


@pytest.mark.parametrize("key", KEYS)
def test_no_key_of_the_jvms_is_silent(key: str) -> None:
    """Each changes the job, or is named in a warning."""
    others = {
        "tony.worker.instances": "2",
        "tony.evaluator.instances": "1",
        "tony.ps.instances": "1",
        **BESIDE.get(key, {}),
    }
    if key in ("tony.application.docker.image", "tony.docker.containers.image"):
        others.update({"tony.docker.enabled": "true"})
        before = load({**others, "tony.docker.containers.image": "i:1"})
    else:
        before = load(others)
    after = load({**others, key: KEYS[key]})
    changed = after.job.replace(settings=()) != before.job.replace(settings=())
    assert changed or any(key in str(warning) for warning in after.warnings)


def test_the_defaults_that_differ_are_named_once() -> None:
    text = warned({"tony.worker.instances": "2", "tony.secret.key": "s"})
    assert text.count("defaults that differ") == 1
    for key in DEFAULTS:
        # Nothing of the user's runs in the master.
        assert (f"{key} (" in text) is (key != "tony.am.memory")
    assert "tony.am.retry-count (0 there, 2 here)" in text
    every = {key: there for key, (there, _) in DEFAULTS.items()}
    assert "defaults that differ" not in warned({**every, "tony.secret.key": "s"})
    assert "defaults that differ" not in warned({"tony.worker.instances": "2"})


def test_keys_with_another_meaning_are_named() -> None:
    keys = {
        "tony.worker.instances": "2",
        "tony.worker.resources": "hdfs://nn/lib,hdfs://nn/data.zip",
        "tony.application.framework": "pytorch",
        "tony.ps.instances": "1",
        "tony.am.startup-timeout": "600000",
        "tony.container.allocation.timeout": "300000",
    }
    named = (
        "tony.am.startup-timeout: '600000' is in seconds",
        "tony.ps.instances: a ps gets no RANK, WORLD and INIT_METHOD here",
        "hdfs://nn/lib: if it is a folder, it arrives as a folder of its name",
        "tony.container.allocation.timeout: limits the wait for containers; up to 0.4.7",
    )
    text = warned({**keys, "tony.secret.key": "s"})
    assert [each for each in named if each not in text] == []
    assert not any(each in warned(keys) for each in named)
    less = {
        "tony.ps.instances": "0",
        "tony.am.startup-timeout": "5m",
        "tony.container.registration.timeout": "300000",
    }
    text = warned({**keys, **less, "tony.worker.resources": "", "tony.secret.key": "s"})
    assert not any(each.split(": ")[1] in text for each in named)
    text = warned({**keys, "tony.ps.command": "serve", "tony.secret.key": "s"})
    assert named[1] not in text


def test_a_tensorboard_of_its_own_is_smaller() -> None:
    keys = {"tony.worker.instances": "2", "tony.application.tensorboard-log-dir": "hdfs://nn/logs"}
    named = "TensorBoard has 1024 MB and 1 core here; there 2 GB and two"
    assert named in warned({**keys, "tony.secret.key": "s"})
    assert named not in warned(keys)
    sized = {"tony.tensorboard.memory": "2g", "tony.tensorboard.vcores": "2"}
    assert named not in warned({**keys, **sized, "tony.secret.key": "s"})


def test_what_is_final_in_the_file_cannot_be_changed_by_conf(tmp_path: Path) -> None:
    file = str(write_xml(tmp_path / "tony.xml", {"tony.worker.instances": "2"}, final=True))
    named = "final here: --conf cannot change tony.worker.instances; there it could"
    assert named in warned(conf_file=file, from_jvm=True)
    assert named not in warned(conf_file=file)
    assert "is final in" in why({"tony.worker.instances": "3"}, conf_file=file)


def test_memory_of_the_master_matters_to_a_command_that_runs_there() -> None:
    keys = {"tony.application.enable-preprocess": "true", "tony.am.command": "true"}
    assert "tony.am.memory (2g there, 512m here)" in warned({**keys, "tony.secret.key": "s"})


def test_the_page_has_every_default_that_differs() -> None:
    page = PAGE.read_text()
    for key, (there, _) in DEFAULTS.items():
        assert f"| `{key}` | {there} | {table().by_name[key].default} |" in page


def test_keys_for_kerberos_have_a_reason() -> None:
    text = warned(
        {
            "tony.keytab.user": "alice",
            "tony.keytab.location": "/k",
            "tony.other.namenodes": "hdfs://a",
            "tony.application.security.enabled": "true",
        }
    )
    lines = [line for line in text.splitlines() if line.startswith("of no effect: tony.")]
    assert [line.count("(--conf)") for line in lines] == [2, 2], text
    assert "the scheduler local knows no Kerberos" in text
    assert "the login of the JVM TonY's portal" in text
    on_yarn = {"tony.scheduler": "yarn", "tony.other.namenodes": "hdfs://a"}
    assert "tony.other.namenodes" not in warned(on_yarn)  # the scheduler knows the cluster
    for sample in (
        {"tony.keytab.user": "user1", "tony.keytab.location": "/location/to/tony.keytab"},
        {"tony.application.security.enabled": "false"},
        {"tony.other.namenodes": ""},
    ):
        assert "Kerberos" not in warned(sample)


@pytest.mark.parametrize("word", ["executes", "task_params", "src-dir", "conf", "python_venv"])
@pytest.mark.parametrize("form", ["-{} value", "-{}=value"])
def test_one_dash_will_do(word: str, form: str) -> None:
    args = parser_of("submit").parse_args(form.format(word).split())
    assert getattr(args, word.replace("-", "_")) in ("value", ["value"])
    assert args.single_dash


def test_free_text_that_looks_like_an_option_of_one_dash() -> None:
    args = parser_of("submit").parse_args(["--task_params", "-debug", "--executes", "-m x"])
    assert (args.task_params, args.executes, args.debug) == ("-debug", "-m x", False)
    assert not args.single_dash


def test_a_file_with_every_default_of_the_jvms_takes_few_lines() -> None:
    sample = str(SAMPLES / "every-default.xml")
    loaded = load(conf_file=sample, from_jvm=True)
    assert len(loaded.warnings) < 10
    (ignored,) = [str(each) for each in loaded.warnings if "of no effect here" in str(each)]
    assert ignored.count(sample) == 1

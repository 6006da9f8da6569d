"""The JVM TonY's examples in shape, with programs of our own: same keys, same command, same end.

Each job is what one of its examples' pages tells to run, with less memory. The program is the same
for all: it looks for what that example's program reads, and fails without it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.cli.processes import tony

PROGRAM = """
import glob, json, os, sys, time
role, index = os.environ["JOB_NAME"], int(os.environ["TASK_INDEX"])
read = {name: os.environ.get(name) for name in sys.argv[2].split(",")}
assert None not in read.values(), read
for name in ("RANK", "WORLD", "TASK_NUM", "DMLC_NUM_WORKER", "HOROVOD_RANK"):
    int(os.environ.get(name, 0))
read["arguments"], read["prefix"], read["python"] = sys.argv[3:], sys.prefix, sys.executable
path = os.path.join(sys.argv[1], "%s-%d" % (role, index))
with open(path, "w") as file:
    json.dump(read, file)
os.rename(path, path + ".json")
serves = role in ("ps", "scheduler", "server", "evaluator")
tasks = sum(map(len, json.loads(os.environ["CLUSTER_SPEC"]).values()))
deadline = time.monotonic() + 60
while serves or len(glob.glob(os.path.join(sys.argv[1], "*.json"))) < tasks:
    assert serves or time.monotonic() < deadline, "the others have not begun"
    time.sleep(0.1)
"""


def environment_in(folder: Path, name: str) -> Path:
    """``virtualenv NAME; zip -r NAME.zip NAME``, as its pages tell."""
    made = folder / name
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    return Path(shutil.make_archive(str(folder / "env"), "zip", folder, name))


def submitted(folder: Path, keys: Dict[str, str], *words: str) -> Dict[str, Dict[str, Any]]:
    """Task -> what it found, of a job that has succeeded."""
    (folder / "found").mkdir()
    body = "".join(
        f"  <property>\n    <name>{key}</name>\n    <value>{value}</value>\n  </property>\n"
        for key, value in keys.items()
    )
    (folder / "tony-test.xml").write_text(f"<configuration>\n{body}</configuration>\n")
    less = ["--conf", "tony.am.memory=200m"]
    for role in ("ps", "worker", "scheduler", "server", "evaluator"):
        if f"tony.{role}.instances" in keys:
            less += ["--conf", f"tony.{role}.memory=100m"]
    done = tony(
        "submit", f"--conf_file={folder}/tony-test.xml", *words, *less, cwd=folder, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = (folder / "found").glob("*.json")
    return {path.stem.replace("-", ":"): json.loads(path.read_text()) for path in found}


@pytest.fixture
def src(tmp_path: Path) -> Path:
    """The example's source folder."""
    folder = tmp_path / "example"
    folder.mkdir()
    (folder / "mnist_distributed.py").write_text(PROGRAM)
    return folder


def parameters(tmp_path: Path, names: str, more: str = "") -> str:
    """What ``--task_params`` says to the program."""
    return f"--task_params={tmp_path}/found {names} {more}"


def test_mnist_pytorch(tmp_path: Path, src: Path) -> None:
    archive = environment_in(tmp_path, "venv")
    found = submitted(
        tmp_path,
        {
            "tony.application.security.enabled": "false",
            "tony.ps.instances": "0",
            "tony.worker.instances": "2",
            "tony.application.framework": "pytorch",
        },
        f"--python_venv={archive}",
        f"--src_dir={src}",
        f"--executes={src}/mnist_distributed.py",
        parameters(tmp_path, "INIT_METHOD,RANK,WORLD"),
        "--python_binary_path=venv/bin/python",
    )
    assert sorted(found) == ["worker:0", "worker:1"]
    assert {found[task]["RANK"] for task in found} == {"0", "1"}
    assert {found[task]["WORLD"] for task in found} == {"2"}
    for task in found.values():
        assert task["INIT_METHOD"].startswith("tcp://")
        assert "venv" in task["prefix"] and str(tmp_path / "venv") not in task["prefix"]


def test_mnist_tensorflow(tmp_path: Path, src: Path) -> None:
    """With the keys of its page on groups: the evaluator is not waited for."""
    found = submitted(
        tmp_path,
        {
            "tony.application.security.enabled": "false",
            "tony.ps.instances": "1",
            "tony.worker.instances": "2",
            "tony.evaluator.instances": "1",
            "tony.application.group.A": "worker",
            "tony.application.dependency.evaluator.timeout.after.A": "1",
            "tony.application.dependency.evaluator.timeout.after.A.ignored": "true",
        },
        "-src_dir",
        str(src),
        "-executes",
        "mnist_distributed.py",
        parameters(tmp_path, "TF_CONFIG,CLUSTER_SPEC", "--steps 1000 --data_dir /tmp/data"),
        f"--python_binary_path={sys.executable}",
    )
    assert sorted(found) == ["evaluator:0", "ps:0", "worker:0", "worker:1"]
    for task, read in found.items():
        role, _, index = task.partition(":")
        tf_config = json.loads(read["TF_CONFIG"])
        assert tf_config["task"] == {"type": role, "index": int(index)}
        assert len(tf_config["cluster"]["worker"]) == 2
        assert read["arguments"] == ["--steps", "1000", "--data_dir", "/tmp/data"]


@pytest.mark.nightly
def test_linearregression_mxnet(tmp_path: Path, src: Path) -> None:
    archive = environment_in(tmp_path, "Python3.5")
    names = "DMLC_ROLE,DMLC_PS_ROOT_URI,DMLC_PS_ROOT_PORT,DMLC_NUM_SERVER,DMLC_NUM_WORKER"
    found = submitted(
        tmp_path,
        {
            "tony.application.security.enabled": "false",
            "tony.scheduler.instances": "1",
            "tony.server.instances": "2",
            "tony.ps.instances": "0",
            "tony.worker.instances": "2",
            "tony.worker.vcores": "2",
            "tony.application.framework": "mxnet",
            "tony.application.name": "mxnet - linearregression",
        },
        f"--python_venv={archive}",
        f"--src_dir={src}",
        "--shell_env=DMLC_USE_KUBERNETES=1",
        "--shell_env=PS_VERBOSE=0",
        "--executes=mnist_distributed.py",
        parameters(tmp_path, names + ",DMLC_USE_KUBERNETES,PS_VERBOSE", "--param1 --param2"),
        "--python_binary_path=Python3.5/bin/python3",
    )
    roles: List[str] = sorted(read["DMLC_ROLE"] for read in found.values())
    assert roles == ["scheduler", "server", "server", "worker", "worker"]
    assert {(read["DMLC_NUM_SERVER"], read["DMLC_NUM_WORKER"]) for read in found.values()} == {
        ("2", "2")
    }


@pytest.mark.nightly
def test_horovod_on_tony(tmp_path: Path, src: Path) -> None:
    names = "CONTROLLER CPU_OPERATIONS GLOO_RENDEZVOUS_ADDR GLOO_RENDEZVOUS_PORT RANK SIZE"
    found = submitted(
        tmp_path,
        {"tony.worker.instances": "4", "tony.application.framework": "horovod"},
        f"--src_dir={src}",
        "--executes=mnist_distributed.py",
        parameters(tmp_path, ",".join(f"HOROVOD_{name}" for name in names.split())),
        "--python_binary_path=python3",
    )
    assert sorted(read["HOROVOD_RANK"] for read in found.values()) == ["0", "1", "2", "3"]


@pytest.mark.nightly
def test_ray_on_tony(tmp_path: Path, src: Path) -> None:
    """Roles with shell commands of their own: the environment is activated by hand."""
    archive = environment_in(tmp_path, "ray")
    run = f"mnist_distributed.py {tmp_path}/found CLUSTER_SPEC"
    activated = "chmod +x $PWD/venv/bin/python; source $PWD/venv/bin/activate; "
    found = submitted(
        tmp_path,
        {
            "tony.worker.instances": "2",
            "tony.worker.command": f"{activated} python {run}; exit $?",
            "tony.head.instances": "1",
            "tony.head.memory": "100m",
            "tony.head.command": f"python {run}; exit $?",
        },
        f"--python_venv={archive}",
        f"--src_dir={src}",
    )
    assert sorted(found) == ["head:0", "worker:0", "worker:1"]
    assert len(json.loads(found["head:0"]["CLUSTER_SPEC"])["worker"]) == 2

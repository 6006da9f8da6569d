from __future__ import annotations

import shlex
from pathlib import Path
from typing import Dict

import pytest

from tests.job.loading import CWD, job, load, warned, why
from tony_core.job.spec import TENSORBOARD_COMMAND, Docker, FileRef, Mode, RestartMode, Tracking

WORKER = {"tony.worker.instances": "2"}


def test_nothing_but_a_command_is_one_single_task() -> None:
    made = job()
    (role,) = made.roles
    assert (role.name, role.instances, role.command) == ("worker", 1, "python train.py")
    assert role.tracking is Tracking.TRACKED
    assert made.chief == ("worker", 0)
    assert made.master.resources.memory_mb == 512


def test_the_single_task_takes_the_keys_of_the_master() -> None:
    made = job(
        {
            "tony.am.memory": "8g",
            "tony.am.gpus": "1",
            "tony.am.command": "python alone.py",
            "tony.am.resources": "/data/x",
            "tony.worker.instances": "0",
        }
    )
    (role,) = made.roles
    assert (role.resources.memory_mb, role.resources.gpus) == (8192, 1)
    assert role.command == "python alone.py"
    assert role.files == (FileRef("/data/x", "x"),)
    assert (made.master.resources.memory_mb, made.master.resources.gpus) == (512, 0)


def test_one_role() -> None:
    made = job(
        {
            **WORKER,
            "tony.worker.memory": "1.5g",
            "tony.worker.vcores": "3",
            "tony.worker.gpus": "1",
            "tony.worker.resource.fpga": "2",
            "tony.worker.node-label": "fast",
            "tony.worker.allocation-tags": "a, b",
            "tony.containers.placement-spec": "spec",
            "tony.worker.max-restarts": "7",
        }
    )
    role = made.role("worker")
    assert role.resources.memory_mb == 1536
    assert role.resources.other == (("fpga", 2),)
    assert (role.node_label, role.placement_spec) == ("fast", "spec")
    assert (role.allocation_tags, role.max_restarts) == (("a", "b"), 7)


def test_which_command_wins() -> None:
    keys = {**WORKER, "tony.ps.instances": "1", "tony.ps.command": "serve"}
    assert [role.command for role in job(keys).roles] == ["python train.py", "serve"]
    keys["tony.containers.command"] = "common"
    assert [role.command for role in job(keys).roles] == ["common", "serve"]
    assert "--executes: tony.client.executes: not used: tony.containers.command" in warned(keys)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ({"executes": "python train.py"}, "python train.py"),
        ({"executes": "python train.py", "task_params": "--n 3"}, "python train.py --n 3"),
        ({"executes": "train.py"}, "python3 train.py"),
        ({"executes": "models/mnist.py --lr 1"}, "python3 models/mnist.py --lr 1"),
        ({"executes": "./train.py"}, "./train.py"),
        ({"executes": "'my script.py' --lr 1"}, "python3 'my script.py' --lr 1"),
        ({"executes": '"my script.py"'}, 'python3 "my script.py"'),
        ({"executes": "'./my script.py'"}, "'./my script.py'"),
        ({"executes": "my script.py"}, "my script.py"),
        ({"executes": "cat notes.pyc"}, "cat notes.pyc"),
        (
            {"executes": "t.py", "python_binary_path": "Python/bin/python", "python_venv": "v.zip"},
            "venv/Python/bin/python t.py",
        ),
        (
            {"executes": "t.py", "python_binary_path": "bin/python", "python_venv": "v.zip"},
            "venv/bin/python t.py",
        ),
        (
            {"executes": "t.py", "python_binary_path": "./venv/bin/python", "python_venv": "v.zip"},
            "venv/bin/python t.py",
        ),
        (
            {"executes": "t.py", "python_binary_path": "/opt/py thon", "python_venv": "v.zip"},
            "'/opt/py thon' t.py",
        ),
        ({"executes": "-m pkg", "python_binary_path": "python3.11"}, "python3.11 -m pkg"),
        (
            {"executes": "t.py", "conf": ["tony.python-exec-path=/usr/bin/pypy"]},
            "/usr/bin/pypy t.py",
        ),
    ],
)
def test_executes(words: Dict[str, str], command: str) -> None:
    from tony_core.job.load import JobArguments, load_job

    made = load_job(JobArguments(**words), env={}, cwd=CWD).job  # type: ignore[arg-type]
    assert made.roles[0].command == command


@pytest.mark.parametrize("name", ["my script.py", "it's.py", 'say "hi".py'])
def test_a_script_with_blanks_or_quotes_is_known_by_its_file(name: str, tmp_path: Path) -> None:
    command = job(command=name, src_dir=str(tmp_path)).roles[0].command
    assert command == name
    (tmp_path / name).write_text("")
    command = job(command=name, src_dir=str(tmp_path)).roles[0].command
    assert shlex.split(command) == ["python3", name]


def test_python_binary_path_rules() -> None:
    assert "no --python_venv" in why(python_binary_path="bin/python")
    assert "lead out of the venv" in why(python_binary_path="../python", python_venv="v.zip")
    assert "inside the venv" in why(python_binary_path="hdfs://nn/python", python_venv="v.zip")
    assert "no --executes" in why(command="", task_params="--x")


def test_paths_are_made_absolute_and_urls_kept() -> None:
    made = job(
        {"tony.containers.resources": "a/b, hdfs://nn/c.zip::c#archive, file:///d, /e/::f#ARCHIVE"},
        src_dir="src/",
        python_venv="hdfs://nn/v.zip",
    )
    assert made.program.src == f"{CWD}/src"
    assert made.program.venv == "hdfs://nn/v.zip"
    assert made.files == (
        FileRef(f"{CWD}/a/b", "b"),
        FileRef("hdfs://nn/c.zip", "c", True),
        FileRef("/d", "d"),
        FileRef("/e", "f", True),
    )


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("a::", "no name behind ::"),
        ("::b", "names no file"),
        ("#archive", "names no file"),
        ("a::b/c", "cannot be what"),
        ("a::..", "cannot be what"),
        ("/", "cannot be what"),
        ("x/a,y/a", "both be called a: add ::name"),
        ("http://[1/a", "is not a URL"),
    ],
)
def test_bad_resources(text: str, wrong: str) -> None:
    assert wrong in why({"tony.containers.resources": text})


def test_a_role_cannot_take_the_name_of_a_common_file() -> None:
    keys = {**WORKER, "tony.containers.resources": "/x/a", "tony.worker.resources": "/y/a"}
    assert "/y/a and /x/a would both be called a" in why(keys)


def test_environments() -> None:
    program = job(
        {"tony.execution.envs": "A=1,B=x\\,y", "tony.containers.env.D": " as it is "},
        shell_env=["A=2", "C=p,q=r"],
        container_env={"E": ""},
    ).program
    assert dict(program.shell_env) == {"A": "2", "B": "x,y", "C": "p,q=r"}
    assert dict(program.container_env) == {"D": " as it is ", "E": ""}
    assert "--shell_env: is not NAME=value" in why(shell_env=["p4ss word"])
    assert "--shell_env: is not NAME=value" in why(shell_env=["1A=word"])
    assert "--shell_env: FOO is not NAME=value" in why(shell_env=["FOO"])
    assert "p4ss" not in why({"tony.execution.envs": "p4ss word"})


def test_who_decides_the_end() -> None:
    made = job(
        {
            **WORKER,
            "tony.ps.instances": "1",
            "tony.tensorboard.instances": "1",
            "tony.watcher.instances": "1",
            "tony.application.sidecar.jobtypes": "tensorboard,watcher",
        }
    )
    assert {role.name: role.tracking.value for role in made.roles} == {
        "worker": "tracked",
        "ps": "untracked",
        "tensorboard": "sidecar",
        "watcher": "sidecar",
    }
    assert made.role("ps").stop_on_failure
    assert made.tracked_tasks == 2


def test_untracked_and_sidecar_at_once() -> None:
    both = {**WORKER, "tony.ps.instances": "1", "tony.application.sidecar.jobtypes": "ps"}
    assert job(both).role("ps").tracking is Tracking.SIDECAR  # the other was a default
    both["tony.application.untracked.jobtypes"] = "ps"
    assert "'ps' is untracked as well as a sidecar" in why(both)


def test_a_list_may_name_a_role_that_is_not_there() -> None:
    assert "there is no role 'wrker' (did you mean worker?)" in warned(
        {**WORKER, "tony.application.untracked.jobtypes": "wrker,driver,ps"}
    )


def test_stages_become_dependencies_on_what_is_waited_for() -> None:
    keys = {
        **WORKER,
        "tony.chief.instances": "1",
        "tony.dbwriter.instances": "1",
        "tony.db.instances": "1",
        "tony.application.untracked.jobtypes": "db",
        "tony.application.prepare-stage": "dbwriter, db",
        "tony.chief.depends-on": "dbwriter",
    }
    made = job(keys)
    assert made.role("worker").depends_on == ("dbwriter",)
    assert made.role("chief").depends_on == ("dbwriter",)
    assert made.role("db").depends_on == ()
    made = job({**keys, "tony.application.training-stage": "worker"})
    assert made.role("worker").depends_on == ("dbwriter",)
    assert "no role 'dbwritr'" in why({**keys, "tony.application.prepare-stage": "dbwritr"})
    assert "in the prepare stage too" in why({**keys, "tony.application.training-stage": "db"})


def test_what_may_be_depended_on() -> None:
    keys = {**WORKER, "tony.ps.instances": "1", "tony.tensorboard.instances": "1"}
    assert "'ps' is untracked: it is never waited for" in why(
        {**keys, "tony.worker.depends-on": "ps"}
    )
    assert "'tensorboard' is sidecar" in why({**keys, "tony.worker.depends-on": "tensorboard"})
    assert "no role 'wrker' (did you mean worker?)" in why({**keys, "tony.ps.depends-on": "wrker"})
    none = {**keys, "tony.ps.depends-on": "prep", "tony.prep.instances": "0"}
    assert job(none).role("ps").depends_on == ()


def test_groups() -> None:
    keys = {
        **WORKER,
        "tony.evaluator.instances": "1",
        "tony.application.group.A": "worker",
        "tony.application.dependency.evaluator.timeout.after.A": "60",
        "tony.application.dependency.evaluator.timeout.after.A.ignored": "true",
    }
    made = job(keys)
    assert made.groups == (("A", ("worker",)),)
    (one,) = made.group_dependencies
    assert (one.role, one.group, one.timeout_s, one.ignored) == ("evaluator", "A", 60.0, True)
    assert "there is no tony.application.group.B" in why(
        {**keys, "tony.application.dependency.worker.timeout.after.B": "60"}
    )
    assert "no role 'evalator' (did you mean evaluator?)" in why(
        {**keys, "tony.application.dependency.evalator.timeout.after.A": "60"}
    )
    assert "no role 'x'" in why({**keys, "tony.application.group.C": "x"})


def test_docker() -> None:
    keys = {**WORKER, "tony.docker.containers.image": "a:1"}
    assert job(keys).roles[0].docker is None
    keys["tony.docker.enabled"] = "true"
    assert job(keys).roles[0].docker == Docker("a:1")
    assert job(keys).master.docker is None
    keys["tony.docker.worker.image"] = "b:1"
    keys["tony.docker.containers.mount"] = "/a:/b:ro"
    assert job(keys).roles[0].docker == Docker("b:1", ("/a:/b:ro",))
    assert "there is no image for worker" in why({**WORKER, "tony.docker.enabled": "true"})
    assert "is not source:destination" in why({**keys, "tony.docker.containers.mount": "a:/b"})
    assert "no role 'wrker' (did you mean worker?)" in why({**keys, "tony.docker.wrker.image": "c"})


def test_preprocessing() -> None:
    keys = {**WORKER, "tony.am.command": "python prepare.py"}
    assert "of no effect without tony.application.enable-preprocess" in warned(keys)
    keys["tony.application.enable-preprocess"] = "true"
    assert job(keys).master.preprocess == "python prepare.py"
    assert job(keys).roles[0].command == "python train.py"
    del keys["tony.am.command"]
    assert job(keys).master.preprocess == "python train.py"


def test_tensorboard_beside_the_chief_or_on_its_own() -> None:
    local = load(WORKER, sidecar_tensorboard_log_dir="logs")
    assert local.job.program.tensorboard_log_dir == f"{CWD}/logs"
    assert [role.name for role in local.job.roles] == ["worker"]
    keys = {**WORKER, "tony.application.tensorboard-log-dir": "hdfs://nn/logs"}
    role = job(keys).role("tensorboard")
    assert role.generated
    assert (role.tracking, role.instances) == (Tracking.SIDECAR, 1)
    assert (role.command, role.resources.memory_mb) == (TENSORBOARD_COMMAND, 1024)
    role = job({**keys, "tony.tensorboard.memory": "3g"}).role("tensorboard")
    assert role.resources.memory_mb == 3072
    own = job({**keys, "tony.tensorboard.instances": "1"}).role("tensorboard")
    assert not own.generated
    assert own.command == TENSORBOARD_COMMAND
    assert "runs beside the chief" in warned(
        {**WORKER, "tony.tensorboard.memory": "3g"}, sidecar_tensorboard_log_dir="/logs"
    )
    none = job({**keys, "tony.tensorboard.instances": "0"})
    assert [role.name for role in none.roles] == ["worker"]


def test_tensorboard_takes_no_part_in_the_single_task() -> None:
    made = job({"tony.application.tensorboard-log-dir": "hdfs://nn/logs"})
    assert [role.name for role in made.roles] == ["worker", "tensorboard"]


def test_deadlines() -> None:
    times = job(
        {
            "tony.application.timeout": "60000",
            "tony.container.allocation.timeout": "-1",
            "tony.task.kill-grace": "0",
            "tony.application.chief-grace": "2m",
            "tony.task.executor.registry-timeout-sec": "30",
            "tony.client.lease": "5m",
            "tony.client.first-lease": "45s",
        }
    ).timeouts
    assert (times.application_s, times.allocation_s) == (60.0, 900.0)
    assert (times.kill_grace_s, times.chief_grace_s, times.registry_s) == (0.0, 120.0, 30.0)
    assert (times.client_lease_s, times.client_first_lease_s) == (300.0, 45.0)


def test_the_rest() -> None:
    made = job(
        {
            "tony.application.framework": "PyTorch",
            "tony.application.distributed-mode": "fcfs",
            "tony.am.restart-mode": "fresh",
            "tony.task.port-range": "20000-21000",
            "tony.application.tags": "a,b",
            "tony.local.memory": "4g",
            "tony.application.security.enabled": "false",
            "tony.task.max-total-memory": "64g",
        },
        scheduler="yarn",
    )
    assert (made.framework, made.mode, made.scheduler) == ("pytorch", Mode.FCFS, "yarn")
    assert made.master.restart_mode is RestartMode.FRESH
    assert made.network.port_range == (20000, 21000)
    assert (made.tags, made.local.memory_mb) == (("a", "b"), 4096)
    assert made.hadoop.security is False
    assert made.limits.total == (("memory", 65536),)
    assert "none of GANG, FCFS" in why({"tony.application.distributed-mode": "GNG"})


def test_a_list_of_groups_reaches_yarn_as_groups() -> None:
    made = job({**WORKER, "tony.yarn.acl.view": " staff", "tony.yarn.acl.modify": " "})
    assert (made.yarn.view_acl, made.yarn.modify_acl) == (" staff", None)

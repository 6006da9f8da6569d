"""What a task sees."""

from __future__ import annotations

import json
from typing import Any, Dict, Tuple

from tony_core.frameworks.base import Framework, Gang, Peer
from tony_core.job.spec import (
    TENSORBOARD_COMMAND,
    Job,
    Program,
    Resources,
    Role,
    Tracking,
)
from tony_core.master.executors.environment import (
    CLUSTER_SPEC,
    StartInfo,
    clashes,
    cluster_spec,
    identity_variables,
    port_names,
    shared_texts,
    task_environment,
    tensorboard,
    unset_for,
)
from tony_core.protocol.messages import shared_reference


def role(name: str, count: int = 1, **more: Any) -> Role:
    return Role(name, count, Resources(), command="python train.py", **more)


def a_job(*roles: Role, **more: Any) -> Job:
    return Job("j", roles or (role("ps", tracking=Tracking.UNTRACKED), role("worker", 2)), **more)


def a_gang(job: Job, **ports: int) -> Gang:
    peers = tuple(
        Peer(item.name, index, "n", f"h{index}", {"main": 10 + index, **ports})
        for item in job.roles
        for index in range(item.instances)
    )
    return Gang(job, 1, peers)


def peer_of(gang: Gang, name: str) -> Peer:
    return next(peer for peer in gang.peers if peer.name == name)


def seen(job: Job, name: str, info: StartInfo, **from_framework: str) -> Dict[str, str]:
    gang = a_gang(job)
    return task_environment(gang, peer_of(gang, name), info, from_framework)


INFO = StartInfo("app_1", 3)


def test_every_variable_of_the_job_files_page() -> None:
    job = a_job(
        program=Program(checkpoint_dir="/ckpt", tensorboard_log_dir="/tb"),
    )
    env = seen(job, "worker:0", StartInfo("app_1", 3, parameters="p"))
    assert env == {
        "PYTHONUNBUFFERED": "1",
        "JOB_NAME": "worker",
        "TASK_INDEX": "0",
        "TASK_NUM": "2",
        "JOB_ID": "app_1",
        "APP_ID": "app_1",
        "IS_CHIEF": "true",
        "SESSION_ID": "3",
        "ATTEMPT_NUMBER": "3",
        "NUM_AM_RETRIES": "3",
        "DISTRIBUTED_MODE": "GANG",
        "TONY_CHECKPOINT_DIR": "/ckpt",
        "TONY_TENSORBOARD_LOG_DIR": "/tb",
        "CLUSTER_SPEC": shared_reference("CLUSTER_SPEC"),
        "MODEL_PARAMS": "p",
    }


def test_only_the_chief_gets_is_chief() -> None:
    assert "IS_CHIEF" not in seen(a_job(), "worker:1", INFO)
    assert "IS_CHIEF" not in seen(a_job(), "ps:0", INFO)


def test_no_parameters_and_empty_ones_differ() -> None:
    assert "MODEL_PARAMS" not in seen(a_job(), "worker:0", INFO)
    assert seen(a_job(), "worker:0", StartInfo("a", 0, parameters=""))["MODEL_PARAMS"] == ""


def test_the_users_word_beats_the_frameworks_and_the_facts_beat_the_users() -> None:
    program = Program(
        container_env=(("A", "container"), ("B", "container"), ("MASTER_PORT", "1")),
        shell_env=(("B", "shell"), ("JOB_NAME", "wrong"), ("PYTHONUNBUFFERED", "")),
    )
    env = seen(a_job(program=program), "worker:1", INFO, MASTER_PORT="2", RANK="1")
    assert (env["A"], env["B"]) == ("container", "shell")
    assert (env["MASTER_PORT"], env["RANK"]) == ("1", "1")
    assert env["JOB_NAME"] == "worker"
    assert env["PYTHONUNBUFFERED"] == ""
    lines = clashes(a_job(program=program, framework="pytorch"), ["MASTER_PORT", "RANK"])
    assert len(lines) == 2
    assert "MASTER_PORT is the job's own value" in lines[0] and "pytorch" in lines[0]
    assert "JOB_NAME given by the job is not used" in lines[1]


def test_the_clusters_malloc_setting_goes_unless_the_user_wants_it() -> None:
    assert unset_for({}) == ["MALLOC_ARENA_MAX"]
    assert unset_for({"MALLOC_ARENA_MAX": "4"}) == []


def test_the_cluster_spec_holds_all_but_sidecars_in_the_jobs_order() -> None:
    job = a_job(role("worker", 2), role("ps"), role("watch", tracking=Tracking.SIDECAR))
    spec = json.loads(cluster_spec(a_gang(job)))
    assert spec == {"worker": ["h0:10", "h1:11"], "ps": ["h0:10"]}
    assert list(spec) == ["worker", "ps"]


def test_a_cluster_spec_that_no_variable_can_hold_is_left_out() -> None:
    gang = a_gang(a_job(role("worker", 12000)))
    texts = shared_texts(gang, Needy())
    assert CLUSTER_SPEC not in texts
    env = identity_variables(gang, gang.peers[0], StartInfo("a", 0, has_spec=CLUSTER_SPEC in texts))
    assert CLUSTER_SPEC not in env


def test_thousands_of_tasks_get_it_only_where_the_framework_needs_it() -> None:
    gang = a_gang(a_job(role("worker", 5000)))
    assert CLUSTER_SPEC in shared_texts(gang, Needy())
    assert CLUSTER_SPEC not in shared_texts(gang, Framework())
    assert CLUSTER_SPEC in shared_texts(a_gang(a_job(role("worker", 1000))), Framework())


class Needy(Framework):
    needs_full_spec = True


class TwoPorts(Framework):
    def ports(self, job: Job, role: str, index: int) -> Tuple[str, ...]:
        return ("main", "extra")


def test_tensorboards_port_is_the_chiefs_or_its_own_roles() -> None:
    job = a_job()
    assert port_names(job, TwoPorts(), "worker", 0) == ("main", "extra", "tensorboard")
    assert port_names(job, TwoPorts(), "worker", 1) == ("main", "extra")
    own = a_job(role("worker"), role("tensorboard", tracking=Tracking.SIDECAR))
    assert port_names(own, Framework(), "worker", 0) == ("main",)
    assert port_names(own, Framework(), "tensorboard", 0) == ("main", "tensorboard")


def test_only_the_tensorboard_task_gets_tb_port() -> None:
    gang = a_gang(a_job(), tensorboard=99)
    assert identity_variables(gang, gang.peers[0], INFO)["TB_PORT"] == "99"
    assert "TB_PORT" not in seen(a_job(), "worker:0", INFO)


def test_tensorboard_runs_beside_the_chief_when_the_job_names_a_log_folder() -> None:
    program = Program(tensorboard_log_dir="/logs", venv="v.zip", python="venv/bin/python3.11")
    job = a_job(program=program)
    settings = tensorboard(job, job.role("worker"), 0)
    assert settings is not None
    assert (settings["log_dir"], settings["port"]) == ("/logs", "tensorboard")
    pythons = settings["pythons"]
    assert isinstance(pythons, list)
    assert pythons[:3] == ["venv/bin/python3.11", "venv/bin/python", "python3"]
    assert tensorboard(job, job.role("worker"), 1) is None
    assert tensorboard(a_job(), job.role("worker"), 0) is None


def test_a_tensorboard_role_with_its_own_command_is_unchanged() -> None:
    program = Program(tensorboard_log_dir="/logs")
    job = a_job(role("worker"), role("tensorboard", tracking=Tracking.SIDECAR), program=program)
    assert tensorboard(job, job.role("tensorboard"), 0) is None
    assert tensorboard(job, job.role("worker"), 0) is None
    made = Role(
        "tensorboard", 1, Resources(), TENSORBOARD_COMMAND, Tracking.SIDECAR, generated=True
    )
    job = a_job(role("worker"), made, program=program)
    assert tensorboard(job, made, 0) is not None

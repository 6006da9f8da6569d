"""Every variable that the JVM TonY gives to a program: given here too, or named on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Set

import pytest

from tests.frameworks.gangs import gang, job
from tony_core.frameworks import find_framework
from tony_core.job.spec import MasterSpec
from tony_core.master import preprocess
from tony_core.master.executors.environment import (
    TENSORBOARD,
    StartInfo,
    port_names,
    task_environment,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from-jvm-tony.md"

_TASK = "JOB_NAME TASK_INDEX TASK_NUM JOB_ID APP_ID SESSION_ID ATTEMPT_NUMBER NUM_AM_RETRIES"
_TASK += " DISTRIBUTED_MODE MODEL_PARAMS CLUSTER_SPEC"
_HOROVOD = "CONTROLLER CPU_OPERATIONS GLOO_TIMEOUT_SECONDS GLOO_RENDEZVOUS_PORT"
_HOROVOD += " GLOO_RENDEZVOUS_ADDR CROSS_RANK CROSS_SIZE LOCAL_RANK LOCAL_SIZE SIZE RANK HOSTNAME"

#: framework -> the roles of a usual job, and what each of its tasks finds by that framework
FRAMEWORKS: Dict[str, tuple[Dict[str, int], str]] = {
    "tensorflow": ({"ps": 1, "worker": 2}, "TF_CONFIG"),
    "pytorch": ({"worker": 2}, "INIT_METHOD RANK WORLD"),
    "mxnet": (
        {"scheduler": 1, "server": 2, "worker": 2},
        "DMLC_ROLE DMLC_PS_ROOT_URI DMLC_PS_ROOT_PORT DMLC_LOCAL DMLC_NUM_SERVER DMLC_NUM_WORKER",
    ),
    "horovod": ({"worker": 2}, " ".join(f"HOROVOD_{name}" for name in _HOROVOD.split())),
    "standalone": ({"worker": 1}, ""),
}
#: Words between the JVM TonY's own processes, and of versions that are long gone.
NOT_GIVEN = (
    "AM_HOST AM_PORT METRICS_RPC_PORT PY4J_GATEWAY_PORT CLUSTER_WORKER_LIST DRIVER_OUTPUT_PATH"
)
_SERVICES = {"horovod_addr": "10.0.0.99", "horovod_port": "5000"}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_task_finds_what_it_found(framework: str) -> None:
    counts, names = FRAMEWORKS[framework]
    made = gang(job(framework, counts, master=MasterSpec(user_retries=5)), services=_SERVICES)
    chiefs: Set[str] = set()
    for peer in made.peers:
        by_framework = find_framework(framework).environment(made, peer)
        env = task_environment(made, peer, StartInfo("app_1", 1, parameters="p"), by_framework)
        missing = {*_TASK.split(), *names.split()} - set(env)
        assert not missing, f"{peer.name}: {missing}"
        assert env["NUM_AM_RETRIES"] == env["SESSION_ID"] == "1"  # how often, not how often at most
        has_port = TENSORBOARD in port_names(
            made.job, find_framework(framework), peer.role, peer.index
        )
        if env.get("IS_CHIEF") == "true":
            chiefs.add(peer.name)
        assert has_port == (peer.name in chiefs), "TB_PORT is the chief's"
    assert len(chiefs) == 1


def test_what_is_not_given_stands_on_the_page() -> None:
    text = PAGE.read_text()
    assert [name for name in NOT_GIVEN.split() if f"`{name}`" not in text] == []


def test_the_preprocessing_command_knows_what_it_is() -> None:
    env = preprocess.environment(job("tensorflow", {"worker": 1}), "app_1")
    assert env["PREPROCESSING_JOB"] == "true"

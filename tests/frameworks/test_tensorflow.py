"""TF_CONFIG."""

import json
from typing import Any, Dict

import pytest

from tests.frameworks.gangs import gang, job, seen
from tony_core.frameworks import find_framework
from tony_core.job.spec import Mode, Tracking

_TF = find_framework("tensorflow")


def _configs(counts: Dict[str, int], **fields: Any) -> Dict[str, Any]:
    starting = fields.pop("starting", ())
    made = gang(job("tensorflow", counts, **fields), starting=starting)
    found = seen(_TF, made)
    return {
        task: json.loads(env["TF_CONFIG"]) if "TF_CONFIG" in env else None
        for task, env in found.items()
    }


def test_chief_workers_and_parameter_servers() -> None:
    configs = _configs({"ps": 1, "chief": 1, "worker": 2})
    cluster = {
        "ps": ["10.0.0.0:20000"],
        "chief": ["10.0.0.1:20001"],
        "worker": ["10.0.0.2:20002", "10.0.0.3:20003"],
    }
    for task, config in configs.items():
        role, index = task.split(":")
        assert config == {"cluster": cluster, "task": {"type": role, "index": int(index)}}


def test_without_a_chief_worker_0_keeps_its_name() -> None:
    configs = _configs({"worker": 2})
    assert configs["worker:0"]["task"] == {"type": "worker", "index": 0}
    assert list(configs["worker:0"]["cluster"]) == ["worker"]


def test_the_evaluator_stands_in_its_own_only() -> None:
    configs = _configs({"chief": 1, "worker": 1, "evaluator": 1})
    assert "evaluator" not in configs["chief:0"]["cluster"]
    assert "evaluator" not in configs["worker:0"]["cluster"]
    assert configs["evaluator:0"] == {
        "cluster": {
            "chief": ["10.0.0.0:20000"],
            "worker": ["10.0.0.1:20001"],
            "evaluator": ["10.0.0.2:20002"],
        },
        "task": {"type": "evaluator", "index": 0},
    }


@pytest.mark.parametrize("tracking", list(Tracking))
def test_tensorboard_stands_in_none(tracking: Tracking) -> None:
    configs = _configs({"worker": 1, "tensorboard": 1}, tracking={"tensorboard": tracking})
    assert configs["tensorboard:0"] is None
    assert "tensorboard" not in configs["worker:0"]["cluster"]


def test_a_sidecar_stands_in_none() -> None:
    configs = _configs({"worker": 2, "proxy": 1}, tracking={"proxy": Tracking.SIDECAR})
    assert configs["proxy:0"] is None
    assert "proxy" not in configs["worker:0"]["cluster"]


def test_tasks_of_an_ended_stage_are_not_waited_for() -> None:
    configs = _configs(
        {"prepare": 1, "worker": 2},
        depends={"worker": ("prepare",)},
        starting=("worker:0", "worker:1"),
    )
    assert list(configs["worker:0"]["cluster"]) == ["worker"]


def test_fcfs_tasks_know_no_peers() -> None:
    assert _configs({"worker": 2}, mode=Mode.FCFS) == {"worker:0": None, "worker:1": None}


def test_a_single_task_has_a_cluster_only_under_a_name_that_tensorflow_knows() -> None:
    assert _configs({"worker": 1})["worker:0"]["cluster"] == {"worker": ["10.0.0.0:20000"]}
    assert _configs({"notebook": 1}) == {"notebook:0": None}


def test_the_cluster_is_sent_once() -> None:
    made = gang(job("tensorflow", {"worker": 200, "evaluator": 1}))
    (text,) = _TF.shared(made).values()
    assert text.count("10.0.0.") == 200
    for peer in made.peers:
        assert len(_TF.environment(made, peer)["TF_CONFIG"]) < 150
    assert _TF.needs_full_spec


def test_what_is_refused() -> None:
    def problems(**counts: int) -> Dict[str, str]:
        return {each.key: each.message for each in _TF.validate(job("tensorflow", counts))}

    assert problems(chief=1, worker=2, ps=1, evaluator=1) == {}
    assert problems(worker=1) == {}
    assert problems(chief=2) == {"tony.chief.instances": "2 x chief: TensorFlow allows one"}
    assert problems(worker=1, evaluator=2) == {
        "tony.evaluator.instances": "2 x evaluator: TensorFlow allows one"
    }
    assert "without a chief or a worker" in problems(ps=2)["tony.worker.instances"]
    assert "128 KiB" in problems(worker=9000)["tony.worker.instances"]
    assert problems(worker=8000) == {}


def test_nothing_is_released_before_the_start() -> None:
    assert _TF.release_ports == ()
    assert _TF.ports(job("tensorflow", {"worker": 1}), "worker", 0) == ("main",)

"""MXNet: the variables of each role, and what is refused."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

from tests.frameworks.gangs import gang, job, seen
from tony_core import frameworks
from tony_core.client.submission import load
from tony_core.frameworks.base import Peer
from tony_core.frameworks.mxnet import MxNet
from tony_core.job.load import JobArguments
from tony_core.job.spec import Mode, Tracking

_USUAL = {"scheduler": 1, "server": 2, "worker": 2}
_SHARED = {
    "DMLC_PS_ROOT_URI": "10.0.0.0",
    "DMLC_PS_ROOT_PORT": "20000",
    "DMLC_NUM_SERVER": "2",
    "DMLC_NUM_WORKER": "2",
    "DMLC_LOCAL": "0",
}


def problems(counts: Dict[str, int], **fields: Any) -> List[str]:
    """The keys that are to be mended."""
    return [problem.key for problem in MxNet().validate(job("mxnet", counts, **fields))]


def test_each_role_gets_the_schedulers_address() -> None:
    found = seen(MxNet(), gang(job("mxnet", {**_USUAL, "evaluator": 1, "tensorboard": 1})))
    assert found["scheduler:0"] == {
        **_SHARED,
        "DMLC_ROLE": "scheduler",
        "DMLC_USE_KUBERNETES": "1",
    }
    assert found["server:1"] == {
        **_SHARED,
        "DMLC_ROLE": "server",
        "DMLC_NODE_HOST": "10.0.0.2",
        "PORT": "20002",
    }
    assert found["worker:0"] == {
        **_SHARED,
        "DMLC_ROLE": "worker",
        "DMLC_NODE_HOST": "10.0.0.3",
        "PORT": "20003",
    }
    assert found["evaluator:0"] == found["tensorboard:0"] == {}


def test_on_one_machine_they_use_its_loopback() -> None:
    """A host's name says no interface, and ps-lite would take none that is the loopback's."""
    made = gang(job("mxnet", _USUAL))
    one = [Peer(peer.role, peer.index, "n", "box", peer.ports) for peer in made.peers]
    found = seen(MxNet(), type(made)(made.job, 0, tuple(one)))
    assert {env.get("DMLC_INTERFACE") for env in found.values()} == {"lo"}
    assert not any("DMLC_NODE_HOST" in env for env in found.values())
    two = [Peer(peer.role, peer.index, "n", f"box{peer.index}", peer.ports) for peer in made.peers]
    found = seen(MxNet(), type(made)(made.job, 0, tuple(two)))
    assert not any({"DMLC_INTERFACE", "DMLC_NODE_HOST"} & set(env) for env in found.values())


def test_what_is_refused() -> None:
    assert problems(_USUAL) == []
    assert problems(_USUAL, mode=Mode.FCFS) == ["tony.application.distributed-mode"]
    assert problems({"server": 1, "worker": 2}) == ["tony.scheduler.instances"]
    assert problems({"scheduler": 1, "worker": 2}) == ["tony.server.instances"]
    assert problems({"scheduler": 1, "server": 2}) == ["tony.worker.instances"]
    assert problems({**_USUAL, "scheduler": 2}) == ["tony.scheduler.instances"]
    assert problems(_USUAL, depends={"worker": ("server",)}) == ["tony.worker.depends-on"]
    assert problems({**_USUAL, "prepare": 1}, depends={"worker": ("prepare",)}) == []


def test_its_messages_name_the_remedy() -> None:
    (problem,) = MxNet().validate(job("mxnet", {"worker": 1}))
    assert "no scheduler and no server" in problem.message
    assert "tony.application.framework=standalone" in problem.message
    (ps,) = MxNet().validate(job("mxnet", {"scheduler": 1, "ps": 1, "worker": 1}))
    assert ps.message.endswith("what is called ps elsewhere is called server")


@pytest.mark.parametrize("role", ["scheduler", "server", "worker"])
def test_none_of_the_three_may_end_unheard(role: str) -> None:
    assert problems(_USUAL, tracking={role: Tracking.SIDECAR})[0] == (
        "tony.application.sidecar.jobtypes"
    )


def test_the_workers_end_is_the_jobs() -> None:
    untracked = {"worker": Tracking.UNTRACKED}
    assert problems(_USUAL, tracking=untracked) == ["tony.application.untracked.jobtypes"]


@pytest.mark.parametrize(
    ("words", "tracked"),
    [
        ([], ["worker"]),
        (["tony.application.untracked.jobtypes=ps"], ["scheduler", "server", "worker"]),
        (["tony.application.untracked.jobtypes=server"], ["scheduler", "worker"]),
    ],
)
def test_servers_are_not_waited_for_unless_the_job_sets_it(
    words: List[str], tracked: List[str]
) -> None:
    conf = [f"tony.{role}.instances=1" for role in ("scheduler", "server", "worker")]
    conf += ["tony.application.framework=MXNet", *words]
    made = load(JobArguments(executes="x", conf=conf), env={}, finds_job_file=False).job
    assert [role.name for role in made.roles if role.tracking is Tracking.TRACKED] == tracked
    assert frameworks.find_framework(made.framework).validate(made) == []


def test_other_frameworks_know_no_such_roles() -> None:
    conf = ["tony.server.instances=1", "tony.worker.instances=1"]
    made = load(JobArguments(executes="x", conf=conf), env={}, finds_job_file=False).job
    assert {role.tracking for role in made.roles} == {Tracking.TRACKED}


def test_the_programs_bind_their_ports_while_they_are_held() -> None:
    assert MxNet().release_ports == () and not MxNet().needs_full_spec

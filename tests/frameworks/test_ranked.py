"""PyTorch, JAX and MPI: who is which rank."""

from typing import Dict, List

import pytest

from tests.frameworks.gangs import gang, job, seen
from tony_core.frameworks import find_framework
from tony_core.frameworks.mpi import world_of
from tony_core.job.spec import Mode, Tracking

_SERVICES = {"pmi_port": "10.0.0.99:5000", "pmi_ids": "111,222,333"}


def _order(framework: str, counts: Dict[str, int], **fields: object) -> List[str]:
    """Task names by rank, by what the framework tells each."""
    variable = {"pytorch": "RANK", "jax": "TONY_JAX_PROCESS_ID", "mpi": "PMI_RANK"}[framework]
    starting = fields.pop("starting", ())
    made = gang(job(framework, counts, **fields), services=_SERVICES, starting=starting)
    ranks = {
        int(env[variable]): task
        for task, env in seen(find_framework(framework), made).items()
        if variable in env
    }
    assert sorted(ranks) == list(range(len(ranks)))
    return [ranks[rank] for rank in sorted(ranks)]


@pytest.mark.parametrize("framework", ["pytorch", "jax", "mpi"])
def test_ranks_run_over_what_trains_chief_first(framework: str) -> None:
    assert _order(framework, {"worker": 3}) == ["worker:0", "worker:1", "worker:2"]
    assert _order(framework, {"worker": 2, "chief": 1}) == ["chief:0", "worker:0", "worker:1"]
    assert _order(framework, {"trainer": 2}) == ["trainer:0", "trainer:1"]
    assert _order(framework, {"master": 1, "worker": 2}) == ["worker:0", "master:0", "worker:1"]


@pytest.mark.parametrize("framework", ["pytorch", "jax", "mpi"])
@pytest.mark.parametrize("role", ["ps", "evaluator", "tensorboard"])
@pytest.mark.parametrize("tracking", list(Tracking))
def test_what_serves_or_watches_has_no_rank(framework: str, role: str, tracking: Tracking) -> None:
    assert _order(framework, {role: 1, "worker": 2}, tracking={role: tracking}) == [
        "worker:0",
        "worker:1",
    ]


@pytest.mark.parametrize("framework", ["pytorch", "jax", "mpi"])
@pytest.mark.parametrize("tracking", [Tracking.UNTRACKED, Tracking.SIDECAR])
def test_untracked_roles_and_sidecars_have_no_rank(framework: str, tracking: Tracking) -> None:
    assert _order(framework, {"db": 2, "worker": 1}, tracking={"db": tracking}) == ["worker:0"]


@pytest.mark.parametrize("framework", ["pytorch", "jax", "mpi"])
def test_a_previous_stage_has_no_rank(framework: str) -> None:
    assert _order(
        framework,
        {"prepare": 1, "worker": 2},
        depends={"worker": ("prepare",)},
        starting=("worker:0", "worker:1"),
    ) == ["worker:0", "worker:1"]


def test_pytorch_environment() -> None:
    made = gang(job("pytorch", {"ps": 1, "worker": 2}))
    found = seen(find_framework("pytorch"), made)
    assert found["ps:0"] == {}
    assert found["worker:1"] == {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "20001",
        "INIT_METHOD": "tcp://10.0.0.1:20001",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "WORLD": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": "1",
        "GROUP_RANK": "1",
        "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "20001",
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": "1",
    }


def test_torchrun_starts_a_process_for_each_gpu() -> None:
    made = gang(job("pytorch", {"worker": 2}, gpus=4))
    assert seen(find_framework("pytorch"), made)["worker:0"]["PET_NPROC_PER_NODE"] == "4"


def test_jax_environment() -> None:
    made = gang(job("jax", {"worker": 2, "chief": 1}))
    assert seen(find_framework("jax"), made)["worker:1"] == {
        "JAX_COORDINATOR_ADDRESS": "10.0.0.2:20002",
        "TONY_JAX_NUM_PROCESSES": "3",
        "TONY_JAX_PROCESS_ID": "2",
    }


def test_mpi_environment() -> None:
    made = gang(job("mpi", {"worker": 2, "chief": 1}), services=_SERVICES)
    assert seen(find_framework("mpi"), made)["worker:1"] == {
        "PMI_PORT": "10.0.0.99:5000",
        "PMI_ID": "333",
        "PMI_RANK": "2",
        "PMI_SIZE": "3",
    }


def test_mpi_gives_a_sidecar_no_variables_before_there_is_a_service() -> None:
    made = gang(job("mpi", {"worker": 1, "tensorboard": 1}))  # the sidecar was ready first
    sidecar = next(peer for peer in made.peers if peer.role == "tensorboard")
    assert find_framework("mpi").environment(made, sidecar) == {}


def test_mpi_knows_its_world_before_anybody_has_a_place() -> None:
    assert world_of(job("mpi", {"worker": 2, "chief": 1, "tensorboard": 1})) == [
        "chief:0",
        "worker:0",
        "worker:1",
    ]
    # Several roles may join one world, whenever each of them can start.
    staged = job("mpi", {"prepare": 1, "a": 1, "b": 1}, depends={"b": ("prepare",)})
    assert world_of(staged) == ["a:0", "b:0"]


@pytest.mark.parametrize("framework", ["pytorch", "jax", "mpi"])
def test_what_is_refused(framework: str) -> None:
    found = find_framework(framework)

    def keys(counts: Dict[str, int], mode: Mode = Mode.GANG) -> List[str]:
        return [problem.key for problem in found.validate(job(framework, counts, mode=mode))]

    assert keys({"worker": 2, "ps": 1, "chief": 1}) == []
    assert keys({"worker": 2}, Mode.FCFS) == ["tony.application.distributed-mode"]
    assert keys({"ps": 2}) == ["tony.worker.instances"]
    assert keys({"chief": 2}) == ["tony.chief.instances"]


@pytest.mark.parametrize("framework", ["pytorch", "jax", "mpi"])
def test_the_program_binds_its_port_while_it_is_held(framework: str) -> None:
    assert find_framework(framework).release_ports == ()
    assert not find_framework(framework).needs_full_spec


def test_standalone_runs_exactly_one_task() -> None:
    standalone = find_framework("standalone")
    assert standalone.validate(job("standalone", {"worker": 1, "tensorboard": 1})) == []
    (problem,) = standalone.validate(job("standalone", {"worker": 2}))
    assert problem.key == "tony.worker.instances"
    assert "asks for 2 x worker" in problem.message
    (problem,) = standalone.validate(job("standalone", {"ps": 1, "worker": 1}))
    assert "1 x ps, 1 x worker" in problem.message
    made = gang(job("standalone", {"worker": 1}))
    assert seen(standalone, made) == {"worker:0": {}}


@pytest.mark.parametrize("framework", ["tensorflow", "pytorch", "jax", "mpi"])
def test_thousands_of_tasks_are_no_matter(framework: str) -> None:
    """What every task needs is worked out once: else this takes minutes."""
    size = 2000
    services = {"pmi_port": "h:1", "pmi_ids": ",".join(map(str, range(size)))}
    made = gang(job(framework, {"worker": size}), services=services)
    assert (
        len({tuple(env.items()) for env in seen(find_framework(framework), made).values()}) == size
    )

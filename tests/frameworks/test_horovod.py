"""Horovod: ranks and their variables."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from tests.frameworks.gangs import gang, job, seen
from tony_core.frameworks.base import Gang, Peer, ServiceContext
from tony_core.frameworks.horovod import Horovod, places
from tony_core.job.spec import Mode, Timeouts, Tracking

_SERVICES = {"horovod_addr": "10.0.0.99", "horovod_port": "5000"}


def _on(hosts: Sequence[str]) -> List[Peer]:
    return [Peer("worker", at, f"n{at}", host, {"main": 1}) for at, host in enumerate(hosts)]


def _placed(hosts: Sequence[str]) -> Dict[int, Tuple[int, int, int, int, int]]:
    """Worker -> rank, place and size on its host, place and size across hosts."""
    return {
        int(task.partition(":")[2]): (
            place.rank,
            place.local_rank,
            place.local_size,
            place.cross_rank,
            place.cross_size,
        )
        for task, place in places(_on(hosts)).items()
    }


def test_ranks_of_a_host_follow_each_other() -> None:
    assert _placed(["a", "b", "a", "b"]) == {
        0: (0, 0, 2, 0, 2),
        2: (1, 1, 2, 0, 2),
        1: (2, 0, 2, 1, 2),
        3: (3, 1, 2, 1, 2),
    }


def test_hosts_may_hold_different_numbers() -> None:
    assert _placed(["a", "b", "c", "c", "c", "a"]) == {
        0: (0, 0, 2, 0, 3),
        5: (1, 1, 2, 0, 2),
        1: (2, 0, 1, 1, 3),
        2: (3, 0, 3, 2, 3),
        3: (4, 1, 3, 1, 2),
        4: (5, 2, 3, 0, 1),
    }
    assert _placed([]) == {}


def test_variables_of_a_rank() -> None:
    made = job("horovod", {"worker": 2, "chief": 1, "ps": 1})
    found = seen(Horovod(), gang(made, services=_SERVICES))
    assert found["ps:0"] == {}
    assert found["chief:0"]["HOROVOD_RANK"] == "0"
    assert found["worker:1"] == {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.99",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "5000",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "330",
        "HOROVOD_HOSTNAME": "10.0.0.1",
        "HOROVOD_RANK": "2",
        "HOROVOD_SIZE": "3",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": "2",
        "HOROVOD_CROSS_SIZE": "3",
    }


def test_ranks_wait_longer_than_the_master_that_names_who_is_missing() -> None:
    made = job("horovod", {"worker": 1}, timeouts=Timeouts(registration_s=40.5))
    (env,) = seen(Horovod(), gang(made, services=_SERVICES)).values()
    assert env["HOROVOD_GLOO_TIMEOUT_SECONDS"] == "70"


def test_a_gang_on_one_host_uses_the_loopback() -> None:
    made = job("horovod", {"worker": 2})
    one_host = Gang(made, 0, tuple(_on(["127.0.0.1", "localhost"])), services=_SERVICES)
    assert {env["HOROVOD_GLOO_IFACE"] for env in seen(Horovod(), one_host).values()} == {"lo"}


def test_a_sidecar_that_was_ready_first_gets_no_variables() -> None:
    made = gang(job("horovod", {"worker": 1, "tensorboard": 1}), starting=("tensorboard:0",))
    assert Horovod().environment(made, made.peers[1]) == {}


def test_what_is_refused() -> None:
    def keys(counts: Dict[str, int], mode: Mode = Mode.GANG) -> List[str]:
        return [item.key for item in Horovod().validate(job("horovod", counts, mode=mode))]

    assert keys({"worker": 2, "chief": 1, "ps": 1}) == []
    assert keys({"worker": 2}, Mode.FCFS) == ["tony.application.distributed-mode"]
    assert keys({"ps": 2}) == ["tony.worker.instances"]
    assert keys({"chief": 2}) == ["tony.chief.instances"]
    beside = job("horovod", {"worker": 1}, tracking={"worker": Tracking.UNTRACKED})
    assert [item.key for item in Horovod().validate(beside)] == ["tony.worker.instances"]


def test_every_stage_of_every_session_has_a_store_of_its_own() -> None:
    horovod = Horovod()
    made = job("horovod", {"worker": 1})
    context = ServiceContext("127.0.0.1", lambda *what: None)
    services = [horovod.serve(made, session, 1, context) for session in (0, 0, 1)]
    try:
        ports = [one.environment()["horovod_port"] for one in services if one is not None]
        assert len(set(ports)) == 3
    finally:
        for one in services:
            assert one is not None
            one.close()


def test_thousands_of_tasks_are_no_matter() -> None:
    """What every task needs is worked out once: else this takes minutes."""
    size = 2000
    made = gang(job("horovod", {"worker": size}), services=_SERVICES)
    ranks = {env["HOROVOD_RANK"] for env in seen(Horovod(), made).values()}
    assert len(ranks) == size

"""XGBoost and LightGBM: the variables of a worker, and what the program makes of them."""

from __future__ import annotations

import os
import socket
import sys
import types
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List

import pytest

import tony
import tony_boosting
from tests.frameworks.gangs import gang, job, seen
from tony_core.frameworks import find_framework
from tony_core.job.spec import Mode, Tracking

BOTH = ["xgboost", "lightgbm"]


def order(framework: str, counts: Dict[str, int], **fields: Any) -> List[str]:
    """Task names by rank, by what the framework tells each."""
    found = seen(find_framework(framework), gang(job(framework, counts, **fields)))
    variable = f"TONY_{framework.upper()}_RANK"
    ranks = {int(env[variable]): task for task, env in found.items() if variable in env}
    assert sorted(ranks) == list(range(len(ranks)))
    assert all(env == {} for task, env in found.items() if task not in ranks.values())
    return [ranks[rank] for rank in sorted(ranks)]


@pytest.mark.parametrize("framework", BOTH)
def test_ranks_run_over_what_trains_chief_first(framework: str) -> None:
    assert order(framework, {"worker": 2, "chief": 1}) == ["chief:0", "worker:0", "worker:1"]
    assert order(framework, {"ps": 1, "worker": 2, "evaluator": 1}) == ["worker:0", "worker:1"]
    beside = {"db": Tracking.SIDECAR}
    assert order(framework, {"db": 1, "worker": 1}, tracking=beside) == ["worker:0"]


def test_variables_of_an_xgboost_worker() -> None:
    found = seen(find_framework("xgboost"), gang(job("xgboost", {"ps": 1, "worker": 2})))
    assert found["worker:1"] == {
        "DMLC_TRACKER_URI": "10.0.0.1",
        "DMLC_TRACKER_PORT": "20001",
        "DMLC_TASK_ID": "00000001",
        "DMLC_NUM_WORKER": "2",
        "TONY_XGBOOST_RANK": "1",
    }


def test_variables_of_a_lightgbm_machine() -> None:
    found = seen(find_framework("lightgbm"), gang(job("lightgbm", {"worker": 1, "chief": 1})))
    assert found["worker:0"] == {
        "TONY_LIGHTGBM_MACHINES": "10.0.0.1:20001,10.0.0.0:20000",
        "TONY_LIGHTGBM_NUM_MACHINES": "2",
        "TONY_LIGHTGBM_PORT": "20000",
        "TONY_LIGHTGBM_RANK": "1",
    }


@pytest.mark.parametrize("framework", BOTH)
def test_what_is_refused(framework: str) -> None:
    found = find_framework(framework)

    def keys(counts: Dict[str, int], mode: Mode = Mode.GANG) -> List[str]:
        return [problem.key for problem in found.validate(job(framework, counts, mode=mode))]

    assert keys({"worker": 2, "ps": 1, "chief": 1}) == []
    assert keys({"worker": 2}, Mode.FCFS) == ["tony.application.distributed-mode"]
    assert keys({"ps": 2}) == ["tony.worker.instances"]
    assert keys({"chief": 2}) == ["tony.chief.instances"]


def test_a_list_of_machines_that_fits_in_no_variable_is_refused() -> None:
    (problem,) = find_framework("lightgbm").validate(job("lightgbm", {"worker": 10_000}))
    assert "do not fit into one environment value" in problem.message
    assert find_framework("xgboost").validate(job("xgboost", {"worker": 10_000})) == []


@pytest.mark.parametrize("framework", BOTH)
def test_a_port_that_cannot_be_bound_while_it_is_held_is_released(framework: str) -> None:
    assert find_framework(framework).release_ports == ("main",)


@pytest.mark.parametrize("framework", BOTH)
def test_thousands_of_tasks_are_no_matter(framework: str) -> None:
    made = gang(job(framework, {"worker": 2000}))
    variable = f"TONY_{framework.upper()}_RANK"
    assert len({env[variable] for env in environments(framework, made)}) == 2000


def environments(framework: str, made: Any) -> List[Dict[str, str]]:
    """Of every task, shared texts not put in."""
    found = find_framework(framework)
    return [found.environment(made, peer) for peer in made.peers]


# ------------------------------------------------------------------ import tony


@pytest.fixture
def set_variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """``set_variables(NAME="value")``: this process as a task with these variables."""
    for name in list(os.environ):
        if name.startswith(("DMLC_", "TONY_XGBOOST_", "TONY_LIGHTGBM_")):
            monkeypatch.delenv(name)

    def set_all(**env: str) -> None:
        for name, value in env.items():
            monkeypatch.setenv(name, value)

    yield set_all


def machines(set_variables: Any, text: str, rank: int) -> None:
    set_variables(TONY_LIGHTGBM_MACHINES=text, TONY_LIGHTGBM_RANK=str(rank))


class TestLightGbm:
    def test_outside_of_a_job_there_is_no_network(self, set_variables: Any) -> None:
        assert tony.lightgbm_parameters(num_leaves=7) == {"num_leaves": 7}

    def test_a_single_machine_needs_none_either(self, set_variables: Any) -> None:
        machines(set_variables, "10.0.0.1:20001", 0)
        assert tony.lightgbm_parameters() == {}

    def test_the_whole_list_and_the_own_port(self, set_variables: Any) -> None:
        machines(set_variables, "10.0.0.1:20001,10.0.0.2:20002", 1)
        assert tony.lightgbm_parameters(max_bin=63) == {
            "machines": "10.0.0.1:20001,10.0.0.2:20002",
            "num_machines": 2,
            "local_listen_port": 20002,
            "tree_learner": "data",
            "max_bin": 63,
        }

    def test_what_is_given_counts_more(self, set_variables: Any) -> None:
        machines(set_variables, "10.0.0.1:1,10.0.0.2:2", 0)
        assert tony.lightgbm_parameters(tree_learner="voting")["tree_learner"] == "voting"

    def test_names_become_addresses(
        self, set_variables: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hosts = {"a": "10.0.0.3", "b": "10.0.0.4"}
        monkeypatch.setattr(socket, "gethostbyname", hosts.__getitem__)
        machines(set_variables, "a:1,b:2", 0)
        assert tony.lightgbm_parameters()["machines"] == "10.0.0.3:1,10.0.0.4:2"


class TestXGBoost:
    @pytest.fixture
    def done(self, monkeypatch: pytest.MonkeyPatch) -> List[Any]:
        """What the helper does with xgboost, which is not here."""
        done: List[Any] = []

        class Tracker:
            def __init__(self, **arguments: Any) -> None:
                done.append(("tracker", arguments))

            def start(self) -> None:
                done.append("start")

            def wait_for(self, timeout: int) -> None:
                done.append("wait")

        @contextmanager
        def context(**arguments: Any) -> Iterator[None]:
            done.append(("in", arguments))
            try:
                yield
            finally:
                done.append("out")

        modules = {
            "xgboost": types.ModuleType("xgboost"),
            "xgboost.collective": types.SimpleNamespace(CommunicatorContext=context),
            "xgboost.tracker": types.SimpleNamespace(RabitTracker=Tracker),
        }
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
        return done

    def job(self, set_variables: Any, rank: int, host: str = "10.0.0.1") -> None:
        set_variables(
            DMLC_TRACKER_URI=host,
            DMLC_TRACKER_PORT="20001",
            DMLC_TASK_ID=f"{rank:08d}",
            DMLC_NUM_WORKER="2",
            TONY_XGBOOST_RANK=str(rank),
        )

    def test_outside_of_a_job_nothing_happens(self, set_variables: Any, done: List[Any]) -> None:
        with tony.xgboost_communicator():
            pass
        assert done == []

    def test_a_worker_joins_by_its_variables(self, set_variables: Any, done: List[Any]) -> None:
        self.job(set_variables, 1)
        with tony.xgboost_communicator(dmlc_timeout=9):
            done.append("training")
        joined = {
            "dmlc_tracker_uri": "10.0.0.1",
            "dmlc_tracker_port": 20001,
            "dmlc_task_id": "00000001",
            "dmlc_retry": tony_boosting._RETRIES,
            "dmlc_timeout": 9,
        }
        assert done == [("in", joined), "training", "out"]

    def test_rank_0_runs_the_tracker_and_leaves_last(
        self, set_variables: Any, done: List[Any]
    ) -> None:
        self.job(set_variables, 0)
        with tony.xgboost_communicator():
            pass
        (_, made), start, _, *rest = done
        assert made == {"n_workers": 2, "host_ip": "10.0.0.1", "port": 20001, "sortby": "task"}
        assert start == "start" and rest == ["out", "wait"]

    def test_after_a_failure_the_tracker_is_not_waited_for(
        self, set_variables: Any, done: List[Any]
    ) -> None:
        self.job(set_variables, 0)
        with pytest.raises(KeyError), tony.xgboost_communicator():
            raise KeyError
        assert "wait" not in done


class TestAddresses:
    @pytest.fixture
    def hosts(self, monkeypatch: pytest.MonkeyPatch) -> Dict[str, str]:
        """What the file of hosts says."""
        hosts = {"127.0.0.1": "127.0.0.1", "me": "127.0.1.1", "other": "10.0.0.9"}
        monkeypatch.setattr(socket, "gethostbyname", hosts.__getitem__)
        return hosts

    def test_of_another_machine_and_of_an_address(self, hosts: Dict[str, str]) -> None:
        assert tony_boosting._address("other") == "10.0.0.9"
        assert tony_boosting._address("127.0.0.1") == "127.0.0.1"

    def test_a_name_for_the_loopback_becomes_the_address_that_peers_see(
        self, hosts: Dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tony_boosting, "_ROUTED", ("127.0.0.1", 9))  # no network needed
        assert tony_boosting._address("me") == "127.0.0.1"

    def test_without_a_network_it_stays(
        self, hosts: Dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tony_boosting, "_ROUTED", ("255.255.255.255", 9))  # refused
        assert tony_boosting._address("me") == "127.0.1.1"

    def test_the_tracker_is_where_all_look_for_it(
        self, hosts: Dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The same on the machine itself, whichever worker asks."""
        monkeypatch.setattr(tony_boosting, "_ROUTED", ("127.0.0.1", 9))
        monkeypatch.setenv("TONY_LIGHTGBM_MACHINES", "me:1,me:2,other:3")
        for rank in ("0", "1"):
            monkeypatch.setenv("TONY_LIGHTGBM_RANK", rank)
            found = tony.lightgbm_parameters()["machines"]
            assert found == "127.0.0.1:1,127.0.0.1:2,10.0.0.9:3"

"""Ray: the variables of a node, and what the program makes of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import types
from typing import Any, Dict, Iterator, List, Tuple

import pytest

import tony
import tony_ray
from tests.frameworks.gangs import gang, job, seen
from tony_core.frameworks import find_framework
from tony_core.job.spec import Mode, Resources


def test_variables_of_a_node() -> None:
    found = seen(
        find_framework("ray"), gang(job("ray", {"ps": 1, "worker": 1, "chief": 1}, gpus=2))
    )
    assert found["ps:0"] == {}
    assert found["chief:0"]["TONY_RAY_RANK"] == "0"
    assert found["worker:0"] == {
        "RAY_ADDRESS": "10.0.0.2:20002",
        "TONY_RAY_RANK": "1",
        "TONY_RAY_NODES": "2",
        "TONY_RAY_HOST": "10.0.0.1",
        "TONY_RAY_CPUS": "1",
        "TONY_RAY_GPUS": "2",
        "TONY_RAY_MEMORY": str(1024 * 1024 * 1024),
        "TONY_RAY_OBJECT_STORE_MEMORY": str(int(2048 * 1024 * 1024 * 0.2)),
    }


def test_what_is_refused() -> None:
    def keys(counts: Dict[str, int], mode: Mode = Mode.GANG) -> List[str]:
        return [
            problem.key for problem in find_framework("ray").validate(job("ray", counts, mode=mode))
        ]

    assert keys({"worker": 2, "chief": 1}) == keys({"head": 1, "chief": 1}) == []
    assert keys({"worker": 2}, Mode.FCFS) == ["tony.application.distributed-mode"]
    assert keys({"ps": 2}) == ["tony.worker.instances"]
    assert keys({"chief": 2}) == ["tony.chief.instances"]
    assert keys({"head": 1, "worker": 2}) == ["tony.head.instances"]


def test_a_container_that_is_too_small_is_refused() -> None:
    made = job("ray", {"worker": 2})
    (role,) = made.roles
    small = type(role)(role.name, 2, Resources(memory_mb=512), role.command)
    (problem,) = find_framework("ray").validate(made.replace(roles=(small,)))
    assert problem.key == "tony.worker.memory"
    assert "1024 MB at least" in problem.message


def test_the_head_binds_its_port_while_it_is_held() -> None:
    assert find_framework("ray").release_ports == ()


def test_thousands_of_tasks_are_no_matter() -> None:
    made = gang(job("ray", {"worker": 2000}))
    assert len({env["TONY_RAY_RANK"] for env in seen(find_framework("ray"), made).values()}) == 2000


# ------------------------------------------------------------------ import tony


class Node:
    """A process of Ray's, as the helper sees it."""

    def __init__(self, ended: Any = None) -> None:
        self.returncode = ended
        self.terminated = False

    def poll(self) -> Any:
        return self.returncode

    def terminate(self) -> None:
        self.terminated = True
        self.returncode = 1

    def wait(self, timeout: float = 0) -> int:
        return int(self.returncode)


class FakeRay(types.ModuleType):
    """Ray with so many nodes alive."""

    def __init__(self, alive: int) -> None:
        super().__init__("ray")
        self.alive = alive
        self.inits: List[Dict[str, Any]] = []

    def init(self, **arguments: Any) -> None:
        self.inits.append(arguments)

    def nodes(self) -> List[Dict[str, bool]]:
        return [{"Alive": True}] * self.alive + [{"Alive": False}]


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    made = FakeRay(2)
    monkeypatch.setitem(sys.modules, "ray", made)
    for name in list(os.environ):
        if name.startswith(("RAY_", "TONY_RAY_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(tony_ray, "_POLL_S", 0.01)
    monkeypatch.setattr(tony_ray.atexit, "register", lambda *of: None)
    return made


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tuple[socket.socket, str]]:
    """A server that answers at the head's port."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield server, f"127.0.0.1:{server.getsockname()[1]}"


def run_node(monkeypatch: pytest.MonkeyPatch, rank: int, address: str) -> List[List[str]]:
    """This process as a task of that rank; what commands it starts."""
    number = {"RANK": str(rank), "NODES": "2", "CPUS": "3", "GPUS": "0"}
    sizes = {"HOST": "127.0.0.1", "MEMORY": "1000", "OBJECT_STORE_MEMORY": "400"}
    for name, value in {**number, **sizes}.items():
        monkeypatch.setenv(f"TONY_RAY_{name}", value)
    monkeypatch.setenv("RAY_ADDRESS", address)
    commands: List[List[str]] = []

    def start(command: List[str], **rest: Any) -> Node:
        commands.append(command)
        return Node()

    monkeypatch.setattr(subprocess, "Popen", start)
    return commands


def test_by_hand_it_is_ray_itself(ray: FakeRay) -> None:
    tony.ray_init(num_cpus=1)
    assert ray.inits == [{"num_cpus": 1}]


def test_the_head_starts_and_gathers_all(
    ray: FakeRay, head: Tuple[socket.socket, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, address = head
    commands = run_node(monkeypatch, 0, address)
    tony.ray_init(namespace="mine")
    assert ray.inits == [{"address": address, "namespace": "mine"}]
    (command,) = commands
    assert command[:4] == [sys.executable, "-m", "ray.scripts.scripts", "start"]
    wanted = {"--block", "--head", f"--port={address.rpartition(':')[2]}", "--num-cpus=3"}
    assert wanted | {"--memory=1000", "--object-store-memory=400"} <= set(command)
    assert not [word for word in command if word.startswith("--node-ip-address")]


def test_nodes_that_do_not_come_are_counted(
    ray: FakeRay, head: Tuple[socket.socket, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_node(monkeypatch, 0, head[1])
    monkeypatch.setattr(tony_ray, "_START_S", 0.05)
    ray.alive = 1
    with pytest.raises(RuntimeError, match="1 of 2 nodes of Ray within"):
        tony.ray_init()


def test_a_node_serves_until_the_head_is_gone(
    ray: FakeRay, head: Tuple[socket.socket, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, address = head
    commands = run_node(monkeypatch, 1, address)
    looks: List[bool] = []
    answers = tony_ray._answers

    def look(where: Any) -> bool:
        looks.append(answers(where))
        if len(looks) == 3:
            server.close()
        return looks[-1]

    monkeypatch.setattr(tony_ray, "_answers", look)
    with pytest.raises(SystemExit) as ended:
        tony.ray_init()
    assert ended.value.code == 0
    assert looks == [True] * 3 + [False] * tony_ray._MISSED
    assert f"--address={address}" in commands[0] and ray.inits == []


def test_a_node_that_ends_while_the_head_is_there_has_failed(
    ray: FakeRay, head: Tuple[socket.socket, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_node(monkeypatch, 1, head[1])
    monkeypatch.setattr(subprocess, "Popen", lambda *of, **rest: Node(ended=1))
    with pytest.raises(SystemExit) as ended:
        tony.ray_init()
    assert ended.value.code == 1


def test_a_missing_head_is_reported_after_a_while(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_node(monkeypatch, 1, "127.0.0.1:1")
    monkeypatch.setattr(tony_ray, "_START_S", 0.05)
    with pytest.raises(RuntimeError, match=r"no head of Ray at 127\.0\.0\.1:1"):
        tony.ray_init()


def test_a_head_that_does_not_start_is_reported(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_node(monkeypatch, 0, "127.0.0.1:1")
    monkeypatch.setattr(subprocess, "Popen", lambda *of, **rest: Node(ended=2))
    with pytest.raises(RuntimeError, match=r"did not start \(exit code 2\)"):
        tony.ray_init()


def test_a_node_is_ended_by_sigterm() -> None:
    node = Node()
    tony_ray._end(node)
    assert node.terminated

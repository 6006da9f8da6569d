"""Messages and launches, built from the session machine's commands."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Tuple

import pytest

from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.frameworks import find_framework
from tony_core.frameworks.base import Framework, Gang, Peer
from tony_core.job.spec import Job, Mode, Network, Program, Resources, Role, Timeouts, Tracking
from tony_core.master.executors.task_commands import TaskCommands
from tony_core.master.session.commands import Member, PrepareTask, StartTasks, WarnProgram
from tony_core.protocol.job_secret import executor_key

ROLES = (
    Role("ps", 1, Resources(), "serve", Tracking.UNTRACKED),
    Role("chief", 1, Resources(), "lead"),
    Role("worker", 2, Resources(), "work"),
    Role("watch", 1, Resources(), "look", Tracking.SIDECAR),
)


def artifact(name: str, use: Use, *roles: str) -> Artifact:
    return Artifact(name, use, Kind.FOLDER, "/" + name, "/" + name, roles=roles)


ARTIFACTS = (
    artifact("job", Use.JOB),
    artifact("tony-runtime", Use.RUNTIME),
    artifact("tony-src", Use.SOURCE),
    artifact("data", Use.RESOURCE, "worker"),
)


class Counting(Framework):
    """Says what it was asked for."""

    release_ports = ("extra", "main")

    def ports(self, job: Job, role: str, index: int) -> Tuple[str, ...]:
        return ("main", "extra") if role == "worker" else ("main",)

    def shared(self, gang: Gang) -> Dict[str, str]:
        return {"all": ",".join(peer.name for peer in gang.peers)}

    def environment(self, gang: Gang, peer: Peer) -> Dict[str, str]:
        ranked = [item.name for item in gang.ranked()]
        return {"RANKED": ",".join(ranked), "AT": gang.services.get("at", "")}


def make_commands(job: Job, framework: Framework) -> TaskCommands:
    return TaskCommands(job, framework, ARTIFACTS, "app_1")


def members(job: Job) -> Tuple[Member, ...]:
    return tuple(
        Member(r.name, i, f"c-{r.name}-{i}", "n", "h", {"main": 1, "extra": 2})
        for r in job.roles
        for i in range(r.instances)
        if r.tracking is not Tracking.SIDECAR
    )


def start(job: Job, *tasks: str, session: int = 0, **more: Any) -> StartTasks:
    return StartTasks(session, tasks, members(job), **more)


JOB = Job("j", ROLES, framework="standalone", timeouts=Timeouts(execution_s=60.0))


class Served:
    def __init__(self) -> None:
        self.asked: List[Tuple[int, int]] = []

    def __call__(self, session: int, size: int) -> Mapping[str, str]:
        self.asked.append((session, size))
        return {"at": f"port {len(self.asked)}"}


def test_an_executor_is_launched_with_what_its_role_needs_and_no_secret() -> None:
    job = JOB.replace(program=Program(container_env=(("A", "1"),), shell_env=(("B", "2"),)))
    launch = make_commands(job, Counting()).launch("worker:1", "c1", "h:5", b"secret", "/py")
    assert launch.argv == ("/py", "-I", "-S", "tony-runtime", "executor", "--master", "h:5")
    assert launch.env == {"A": "1"}, "the child's own environment travels over the connection"
    assert [item.name for item in launch.artifacts] == ["tony-runtime", "tony-src", "data"]
    assert launch.secret == executor_key(b"secret", "c1")
    assert launch.secret != executor_key(b"secret", "c2") != b"secret"
    other = make_commands(job, Counting()).launch("ps:0", "c2", "h:5", b"secret", "/py")
    assert [item.name for item in other.artifacts] == ["tony-runtime", "tony-src"]


def test_only_the_program_gets_a_location_with_a_password() -> None:
    """A launch context is written into a script that others may read."""
    env = (("DATA_PATH", "s3://ann:hunter22@store/x"), ("TOKEN_FILE", "/run/token"), ("A", "1"))
    job = JOB.replace(program=Program(container_env=env))
    launch = make_commands(job, Counting()).launch("worker:1", "c1", "h:5", b"secret", "/py")
    assert launch.env == {"TOKEN_FILE": "/run/token", "A": "1"}


def test_a_task_gets_its_ports_and_its_source() -> None:
    job = JOB.replace(network=Network(port_range=(20000, 30000)))
    starts = make_commands(job, Counting()).prepare(PrepareTask("c", "worker:1", 4))
    assert (starts.task, starts.session, starts.source) == ("worker:1", 4, "tony-src")
    assert starts.ports == ["main", "extra"]
    assert starts.port_range == [20000, 30000]


def test_a_gang_starts_over_one_spec_encoded_once() -> None:
    served = Served()
    made = make_commands(JOB, Counting())
    shared, starts = made.start(start(JOB, "ps:0", "chief:0", "worker:0", "worker:1"), served)
    texts = json.loads(shared)
    assert texts["all"] == "chief:0,ps:0,worker:0,worker:1", "the chief's role first"
    assert json.loads(texts["CLUSTER_SPEC"])["worker"] == ["h:1", "h:1"]
    assert [order.container_id for order in starts] == [
        "c-ps-0",
        "c-chief-0",
        "c-worker-0",
        "c-worker-1",
    ]
    assert served.asked == [(0, 3)]
    last = starts[-1].start
    assert last.shared == {}
    assert last.command == "work"
    assert last.env["RANKED"] == "chief:0,worker:0,worker:1"
    assert last.env["AT"] == "port 1"
    assert last.execution_timeout_s == 60.0
    assert last.release_ports == ["extra", "main"]


def test_a_repeated_start_message_is_the_very_same() -> None:
    served = Served()
    made = make_commands(JOB, Counting())
    command = start(JOB, "ps:0", "chief:0", "worker:0", "worker:1")
    shared, starts = made.start(command, served)
    again, (order,) = made.start(start(JOB, "worker:1"), served)
    assert again == shared
    assert order == starts[-1]
    assert len(served.asked) == 1


def test_a_restarted_task_gets_the_same_variables_and_its_try() -> None:
    served = Served()
    made = make_commands(JOB, Counting())
    gang = ("ps:0", "chief:0", "worker:0", "worker:1")
    shared, starts = made.start(start(JOB, *gang, gang=gang), served)
    back = start(JOB, "worker:1", gang=gang, restart=2)
    again, (order,) = made.start(back, served)
    assert again == shared and served.asked == [(0, 3)]
    assert (order.start.restart, order.start.env["TASK_RESTARTS"]) == (2, "2")
    assert starts[-1].start.env == {**order.start.env, "TASK_RESTARTS": "0"}
    moved = [Member("worker", 1, "c-new", "n2", "h2", {"main": 9})]
    where = (*members(JOB)[:-1], *moved)
    _, (order,) = made.start(StartTasks(0, ("worker:1",), where, None, gang, 3), served)
    assert order.container_id == "c-new"
    assert order.start.env["RANKED"] == "chief:0,worker:0,worker:1"
    assert order.start.env["AT"] == "port 1", "the session's services are there already"


def test_a_next_master_sends_a_restarted_task_its_whole_gang() -> None:
    served = Served()
    gang = ("ps:0", "chief:0", "worker:0", "worker:1")
    back = start(JOB, "ps:0", gang=gang, restart=1)
    _, (order,) = make_commands(JOB, Counting()).start(back, served)
    assert order.start.env["RANKED"] == "chief:0,worker:0,worker:1"
    assert served.asked == [], "what comes back is no rank"
    starts = make_commands(JOB, Counting()).prepare(PrepareTask("c", "worker:1", 0, 2, True))
    assert (starts.session, starts.restart, starts.same_ports) == (0, 2, True)


def test_a_new_session_has_services_of_its_own() -> None:
    served = Served()
    made = make_commands(JOB, Counting())
    made.start(start(JOB, "worker:0", "worker:1"), served)
    made.forget(0)
    _, starts = made.start(start(JOB, "worker:0", "worker:1", session=1), served)
    assert starts[0].start.env["AT"] == "port 2"
    assert served.asked == [(0, 2), (1, 2)]


def test_a_sidecar_has_no_part_in_the_services() -> None:
    served = Served()
    command = StartTasks(
        0, ("watch:0",), (*members(JOB), Member("watch", 0, "c-w", "n", "h", {"main": 3}))
    )
    _, starts = make_commands(JOB, Counting()).start(command, served)
    assert served.asked == []
    assert starts[0].start.env["AT"] == ""


def test_tasks_of_an_fcfs_job_start_one_by_one() -> None:
    served = Served()
    job = JOB.replace(mode=Mode.FCFS)
    made = make_commands(job, Counting())
    made.start(start(job, "worker:0"), served)
    _, starts = made.start(start(job, "worker:1"), served)
    assert starts[0].start.env["RANKED"] == "worker:1"
    assert len(served.asked) == 2


def test_a_task_of_a_large_fcfs_job_gets_no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tony_core.job.spec.MOST_FCFS_ADDRESSES", 3)
    job = JOB.replace(mode=Mode.FCFS)
    made = make_commands(job, Counting())
    command = start(job, "worker:0")
    shared, starts = made.start(command, Served())
    assert "CLUSTER_SPEC" not in json.loads(shared)
    assert "CLUSTER_SPEC" not in starts[0].start.env
    assert any("CLUSTER_SPEC is not set: thousands" in note for note in made.notes(command))


def test_notes_are_reported_once() -> None:
    job = JOB.replace(program=Program(shell_env=(("RANKED", "x"),)))
    made = make_commands(job, Counting())
    command = start(job, "worker:0", "worker:1")
    _, starts = made.start(command, Served())
    assert starts[0].start.env["RANKED"] == "x"
    assert len(list(made.notes(command))) == 1
    assert list(made.notes(command)) == []


def test_thousands_of_starts_are_built_in_a_moment() -> None:
    job = Job("j", (Role("worker", 2000, Resources(), "w"),), framework="pytorch")
    made = make_commands(job, find_framework("pytorch"))
    names = tuple(f"worker:{index}" for index in range(2000))
    _, starts = made.start(start(job, *names), Served())
    assert starts[-1].start.env["RANK"] == "1999"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (Program(), ("", False)),
        (Program(preemption_signal="SIGUSR1"), ("SIGUSR1", False)),
        (Program(preemption_signal="SIGTERM", preemption_signal_all=True), ("SIGTERM", True)),
    ],
)
def test_a_warning_carries_the_jobs_signal(program: Program, expected: Tuple[str, bool]) -> None:
    job = Job("j", ROLES, framework="standalone", program=program)
    made = make_commands(job, Counting()).preemption(WarnProgram("c", 3, 1, 7.5, False))
    assert (made.signal, made.signal_all) == expected
    assert (made.session, made.restart, made.seconds, made.own) == (3, 1, 7.5, False)
    assert not made.withdrawn


@pytest.mark.parametrize(
    ("workers", "interval_s"), [(1, 0.04), (249, 5.0), (999, 20.0), (9999, 25.0)]
)
def test_executors_of_many_tasks_send_less_often_but_the_chiefs(
    workers: int, interval_s: float
) -> None:
    roles = (Role("chief", 1, Resources(), "lead"), Role("worker", workers, Resources(), "work"))
    job = JOB.replace(roles=roles)
    _, starts = make_commands(job, Counting()).start(start(job, "chief:0", "worker:0"), Served())
    assert [order.start.sending_interval_s for order in starts] == [0.0, interval_s]

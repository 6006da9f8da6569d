"""Messages and launches for executors, built from the session machine's commands. No I/O.

A *start* is one passing of the barrier: one gang, its shared texts encoded once, and its
framework's services. It is kept while its session lasts, because a task whose connection broke at
the wrong moment gets the same start again.
"""

from __future__ import annotations

import json
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from tony_core.files.artifact import Artifact, Use, find
from tony_core.frameworks.base import Framework, Gang, Peer
from tony_core.job.mask import is_secret, mask_text
from tony_core.job.spec import Job, Mode, Tracking
from tony_core.master.executors.environment import (
    CLUSTER_SPEC,
    TASK_RESTARTS,
    StartInfo,
    clashes,
    classpath,
    identity_variables,
    port_names,
    shared_texts,
    task_environment,
    tensorboard,
    unset_for,
)
from tony_core.master.session.commands import Member, PrepareTask, StartTasks, WarnProgram
from tony_core.master.tracking.port import Tracker
from tony_core.protocol.job_secret import executor_key
from tony_core.protocol.messages import Preemption, Prepare, Start, Welcome
from tony_core.schedulers.container_pool import Launch

#: (session, how many tasks train) -> the variables that the framework's services need.
Serve = Callable[[int, int], Mapping[str, str]]
# Of Measured and of Reported each, what a master takes in of a whole job. Each costs it some 70 us,
# so the executors of many tasks send less often, up to an interval that advice has its samples by.
SENT_A_SECOND = 50.0
LONGEST_SENDING_INTERVAL_S = 25.0


class StartOrder(NamedTuple):
    """A Start for a container."""

    container_id: str
    start: Start


class _Plan(NamedTuple):
    gang: Gang
    info: StartInfo
    shared: bytes


class TaskCommands:
    """Builds messages and launches for one job."""

    def __init__(
        self,
        job: Job,
        framework: Framework,
        artifacts: Tuple[Artifact, ...],
        app_id: str,
        tracker: Optional[Tracker] = None,
    ) -> None:
        self._job = job
        self._framework = framework
        self._artifacts = artifacts
        self._app_id = app_id
        self._tracker = tracker or Tracker()
        self._plans: Dict[Tuple[int, str], _Plan] = {}  # (session, task) -> its start
        self._noted: Set[str] = set()

    def welcome(self, attempt: int, silence_s: float, master_lost_s: float) -> Welcome:
        """The answer to an executor's Register; ``master_lost_s`` is the scheduler's default."""
        times, metrics = self._job.timeouts, self._job.metrics
        return Welcome(
            attempt=attempt,
            heartbeat_s=times.heartbeat_s,
            silence_s=silence_s,
            master_lost_s=times.master_lost_s or master_lost_s,
            metrics_interval_s=metrics.interval_s,
            gpu_metrics=metrics.gpu,
            error_lines=metrics.error_lines,
            registry_timeout_s=times.registry_s,
            gpu_exec_path=metrics.gpu_exec_path or "",
            shell_enabled=self._job.access.shell,
            notebook_enabled=self._job.access.notebook,
        )

    def launch(
        self, task: str, container_id: str, master: str, secret: bytes, python: str
    ) -> Launch:
        """Launch an executor; the program's own environment is never part of a launch."""
        role = self._job.role(task.rpartition(":")[0])
        runtime = find(self._artifacts, Use.RUNTIME)
        folder = runtime.name if runtime else "tony-runtime"
        artifacts = [item for item in self._artifacts if self._travels(item, role.name)]
        return Launch(
            argv=(python, "-I", "-S", folder, "executor", "--master", master),
            env={
                name: value
                for name, value in self._job.program.container_env
                if _is_open(name, value)
            },
            artifacts=tuple(artifacts),
            secret=executor_key(secret, container_id),
            task=task,
        )

    def _travels(self, item: Artifact, role: str) -> bool:
        return item.use is not Use.JOB and item.wanted_by(role)

    def prepare(self, command: PrepareTask) -> Prepare:
        """Prepare a task of a session with its ports."""
        role, _, index = command.task.rpartition(":")
        source = find(self._artifacts, Use.SOURCE)
        span = self._job.network.port_range
        program = self._job.program
        skip = dict((*program.container_env, *program.shell_env)).get("SKIP_HADOOP_PATH", "")
        return Prepare(
            task=command.task,
            session=command.session,
            ports=list(port_names(self._job, self._framework, role, int(index))),
            port_range=list(span) if span else None,
            source=source.name if source is not None and source.wanted_by(role) else "",
            gpus=self._job.role(role).resources.gpus if self._job.metrics.gpu_check else 0,
            hadoop_classpath=self._job.hadoop.classpath or "",
            skip_hadoop=skip.strip().lower() not in ("", "0", "false", "no"),
            restart=command.restart,
            same_ports=command.same_ports,
        )

    def start(self, command: StartTasks, serve: Serve) -> Tuple[bytes, List[StartOrder]]:
        """Build the shared texts, encoded once, and a Start for each task."""
        plan = self._plan(command, serve)
        peers = {peer.name: peer for peer in plan.gang.peers}
        where = {f"{item.role}:{item.index}": item.container_id for item in command.members}
        starts = [
            StartOrder(where[task], self._start(plan, peers[task], command.restart))
            for task in command.tasks
        ]
        return plan.shared, starts

    def preemption(self, command: WarnProgram) -> Preemption:
        """Warn a program, by the job's signal too."""
        program = self._job.program
        return Preemption(
            session=command.session,
            restart=command.restart,
            seconds=command.seconds,
            own=command.is_own,
            withdrawn=command.withdrawn,
            signal="" if program.preemption_signal == "off" else program.preemption_signal,
            signal_all=program.preemption_signal_all,
        )

    def forget(self, session: int) -> None:
        """Forget the starts of a session that is over."""
        self._plans = {key: plan for key, plan in self._plans.items() if key[0] != session}

    def notes(self, command: StartTasks) -> Iterator[str]:
        """Yield what the user should know of this start; each line once per job."""
        plan = self._plans.get((command.session, command.tasks[0]))
        if plan is None:
            return
        peer = next(peer for peer in plan.gang.peers if peer.name == command.tasks[0])
        names = [
            *self._framework.environment(plan.gang, peer),
            *identity_variables(plan.gang, peer, plan.info),
        ]
        lines = clashes(self._job, names)
        if not plan.info.has_spec:
            count = len(plan.gang.peers) if self._job.shares_addresses else "thousands of"
            lines.append(
                f"{CLUSTER_SPEC} is not set: {count} addresses are too many for"
                " an environment variable, or to be sent to every task of a framework that"
                " does not need them"
            )
        for line in lines:
            if line not in self._noted:
                self._noted.add(line)
                yield line

    def _plan(self, command: StartTasks, serve: Serve) -> _Plan:
        key = (command.session, command.tasks[0])
        again = self._plans.get(key)
        if again is not None and len(command.tasks) == 1 and _same(again.gang, command):
            return again
        peers = tuple(_peer(member) for member in self._ordered(command.members))
        starting = command.gang or command.tasks
        gang = Gang(self._job, command.session, peers, starting=starting)
        if again is not None:  # one of a gang comes back, at another place
            gang = gang.with_services(again.gang.services)
        elif not command.restart and self._gathered(command):
            gang = gang.with_services(serve(command.session, len(gang.ranked())))
        texts = shared_texts(gang, self._framework)
        self._tracker.started(command.session)
        info = StartInfo(
            self._app_id, command.session, command.parameters, CLUSTER_SPEC in texts,
            self._tracker.environment(),
        )  # fmt: skip
        plan = _Plan(gang, info, json.dumps(texts).encode())
        self._plans.update(((command.session, task), plan) for task in command.tasks)
        return plan

    def _gathered(self, command: StartTasks) -> bool:
        """Whether these tasks train together; sidecars have no services."""
        role = self._job.role(command.tasks[0].rpartition(":")[0])
        return role.tracking is not Tracking.SIDECAR or self._job.mode is Mode.FCFS

    def _ordered(self, members: Tuple[Member, ...]) -> List[Member]:
        """Sort by the job's order of roles, the chief's role first."""
        chief = self._job.chief
        names = [role.name for role in self._job.roles]
        if chief is not None:
            names.sort(key=lambda name: name != chief[0])
        place = {name: at for at, name in enumerate(names)}
        return sorted(members, key=lambda item: (place[item.role], item.index))

    def _start(self, plan: _Plan, peer: Peer, restart: int) -> Start:
        role = self._job.role(peer.role)
        env = task_environment(
            plan.gang, peer, plan.info, self._framework.environment(plan.gang, peer)
        )
        env[TASK_RESTARTS] = str(restart)
        staged = classpath(self._artifacts, role.name)
        if staged:
            theirs = env.get("CLASSPATH", "")
            env["CLASSPATH"] = f"{staged}:{theirs}" if theirs else staged
        return Start(
            session=plan.gang.session,
            command=role.command,
            env=env,
            unset=unset_for(env),
            release_ports=[name for name in self._framework.release_ports if name in peer.ports],
            execution_timeout_s=self._job.timeouts.execution_s,
            tensorboard=tensorboard(self._job, role, peer.index),
            restart=restart,
            stall_timeout_s=self._job.stall_timeout(role),
            sending_interval_s=self._sending_interval(plan.gang, peer),
        )

    def _sending_interval(self, gang: Gang, peer: Peer) -> float:
        """At least between two Measured and two Reported of this task; the chief's is the job's."""
        if gang.is_chief(peer):
            return 0.0
        tasks = sum(role.instances for role in self._job.roles)
        return min(tasks / SENT_A_SECOND, LONGEST_SENDING_INTERVAL_S)


def _same(gang: Gang, command: StartTasks) -> bool:
    """Whether the task has the same address as in that gang."""
    name = command.tasks[0]
    old: Optional[Peer] = next((peer for peer in gang.peers if peer.name == name), None)
    new = next((m for m in command.members if f"{m.role}:{m.index}" == name), None)
    return old is not None and new is not None and old == _peer(new)


def _peer(member: Member) -> Peer:
    return Peer(member.role, member.index, member.node, member.host, dict(member.ports))


def _is_open(name: str, value: str) -> bool:
    """Whether the executor may have it too; secrets go to the program only (by Start)."""
    return not is_secret(name) and mask_text(value) == value

"""The interface of a framework: a cluster spec in, an environment out.

One short module each, found by name through the entry point ``tony.frameworks`` (ours
are built in). The client asks :meth:`Framework.validate` before anything starts; the
master asks for ports, services and environments. Nothing here knows a scheduler.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Tuple,
)

from tony_core.job.spec import Job, Mode, RestartScope, Role, Tracking

# Roles beside the training, tracked or not: a parameter server serves, an evaluator reads
# checkpoints, TensorBoard reads events.
_BESIDE = ("ps", "evaluator", "tensorboard")


def trains(role: Role) -> bool:
    """Whether the role's tasks are ranks: tracked, and not a role that serves or watches."""
    return role.tracking is Tracking.TRACKED and role.name not in _BESIDE


class Peer(NamedTuple):
    """A task of the cluster spec, with its ports."""

    role: str
    index: int  # type: ignore[assignment]  # hides the tuple's method
    node: str
    host: str
    ports: Mapping[str, int]

    @property
    def name(self) -> str:
        """``worker:0``."""
        return f"{self.role}:{self.index}"

    def address(self, port: str = "main") -> str:
        """``HOST:PORT``."""
        return f"{self.host}:{self.ports[port]}"


class Gang:
    """One session's tasks, in the job's order of roles, chief's role first where it has one.

    ``services`` is what :meth:`Framework.serve` returned; ``starting`` names the tasks of this
    stage (those of earlier stages are peers only).
    """

    def __init__(
        self,
        job: Job,
        session: int,
        peers: Tuple[Peer, ...],
        services: Mapping[str, str] = {},
        starting: Tuple[str, ...] = (),
    ) -> None:
        self.job = job
        self.session = session
        self.peers = peers
        self.services = services
        self.starting = starting
        #: What was computed of this very gang once, for thousands of tasks that all need it.
        self.memo: Dict[str, Any] = {}

    def with_services(self, services: Mapping[str, str]) -> Gang:
        """The same tasks with other services."""
        return Gang(self.job, self.session, self.peers, services, self.starting)

    def role(self, peer: Peer) -> Role:
        return self.job.role(peer.role)

    def is_chief(self, peer: Peer) -> bool:
        return self.job.chief == (peer.role, peer.index)

    def ranked(self) -> Tuple[Peer, ...]:
        """The peers that train, chief first: tracked roles of the starting stage."""
        starting = set(self.starting)
        trains = [
            peer
            for peer in self.peers
            if self.role(peer).tracking is Tracking.TRACKED
            and (not starting or peer.name in starting)
        ]
        return tuple(sorted(trains, key=lambda peer: not self.is_chief(peer)))


def ranks(gang: Gang) -> Tuple[Peer, ...]:
    """The gang's ranks in their order, the chief first."""
    known: Optional[Tuple[Peer, ...]] = gang.memo.get("ranks")
    if known is None:
        known = tuple(peer for peer in gang.ranked() if trains(gang.role(peer)))
        gang.memo["ranks"] = known
    return known


def rank_of(gang: Gang, peer: Peer) -> Optional[int]:
    """The peer's rank; None for one that does not train."""
    places: Optional[Dict[str, int]] = gang.memo.get("rank_of")
    if places is None:
        places = {item.name: number for number, item in enumerate(ranks(gang))}
        gang.memo["rank_of"] = places
    return places.get(peer.name)


class FrameworkProblem(NamedTuple):
    """Why a job cannot run under this framework; ``key`` names the setting to change."""

    message: str
    key: str = ""


class TaskRestart(NamedTuple):
    """Whether one task may be restarted while its peers go on, and where."""

    why_not: str = ""  # the peers cannot go on with it: half a sentence
    address_bound: bool = False  # they have its address: only on the same node


class Service(Protocol):
    """A server that the framework runs in the master for one session (a rendezvous)."""

    def environment(self) -> Dict[str, str]:
        """The variables by which tasks find it; they reach :attr:`Gang.services`."""

    def close(self) -> None:
        """End it; called at the session's end."""


class ServiceContext(NamedTuple):
    """The master's side of a service: addresses, and where to report."""

    host: str  # the address tasks reach the master by
    failed: Callable[
        [str, str, int], None
    ]  # (reason, task, exit code): ends the session; any thread
    log: Callable[[str], None] = lambda text: None  # a line in the master's log; any thread
    #: Numeric addresses of the nodes on which this job's executors are now; any thread.
    nodes: Callable[[], Collection[str]] = tuple

    @property
    def listen_host(self) -> str:
        """The address to listen on: loopback where that is :attr:`host`, else all of them.

        No name is resolved: ``/etc/hosts`` may give this machine's own name 127.0.1.1.
        """
        loopback = self.host in ("localhost", "::1") or self.host.startswith("127.")
        return self.host if loopback else ""


class Framework:
    """The base: no ports beyond ``main``, no service, nothing in the environment."""

    name: str = ""

    #: Whether the tasks' environment depends on every peer's address (a cluster spec), or
    #: on the rendezvous point only; at thousands of tasks that decides what is sent.
    needs_full_spec: bool = False

    #: Ports the program cannot bind while we hold them; released just before exec.
    release_ports: Tuple[str, ...] = ()

    def validate(self, job: Job) -> List[FrameworkProblem]:
        """All problems of this job under this framework."""
        return []

    def task_restart(self, job: Job, role: Role) -> TaskRestart:
        """Whether a task of this role may be restarted while its peers go on, and where.

        Roles that train are refused unless a framework says otherwise: a peer that waits in a
        collective operation gets an error, or waits for ever.
        """
        if trains(role):
            return TaskRestart(
                f"tasks that train under {self.name} cannot go on with a restarted one"
            )
        return TaskRestart(
            address_bound=self.needs_full_spec and role.tracking is not Tracking.SIDECAR
        )

    def ports(self, job: Job, role: str, index: int) -> Tuple[str, ...]:
        """Names of the ports the task needs. ``main`` is always among them."""
        return ("main",)

    def serve(
        self, job: Job, session: int, size: int, context: ServiceContext
    ) -> Optional[Service]:
        """Start the server that the framework needs in the master for a session; None if none.

        ``size`` is the number of tasks that this stage starts.
        """
        return None

    def shared(self, gang: Gang) -> Dict[str, str]:
        """Text that is the same for all tasks, by name (see messages.shared_reference)."""
        return {}

    def environment(self, gang: Gang, peer: Peer) -> Dict[str, str]:
        """Variables for the task's program."""
        return {}


# ------------------------------------------------------------------ checks that several share


def refuse_fcfs(job: Job, framework: str, why: str) -> List[FrameworkProblem]:
    """Refuse FCFS: tasks would start before their peers are known."""
    if job.mode is not Mode.FCFS:
        return []
    return [
        FrameworkProblem(
            f"{framework} needs all its processes together, {why}: FCFS starts each as soon"
            " as it can be; use GANG",
            "tony.application.distributed-mode",
        )
    ]


def require_gang(
    job: Job, framework: str, needs: str, why_one_chief: str
) -> List[FrameworkProblem]:
    """Require what every framework of ranks does: all together, one at least, and one chief.

    ``needs``: what the tasks need of each other, as the end of "needs all its processes together,".
    """
    problems = refuse_fcfs(job, framework, needs)
    if not any(trains(role) and role.instances for role in job.roles):
        text = (
            f"no task would be a process of the {framework} job: every role is untracked,"
            " a sidecar or one that does not train"
        )
        problems.append(FrameworkProblem(text, "tony.worker.instances"))
    return problems + refuse_several(job, "chief", why_one_chief)


def refuse_several(job: Job, role: str, why: str) -> List[FrameworkProblem]:
    """Refuse more than one task of this role."""
    for candidate in job.roles:
        if candidate.name == role and candidate.instances > 1:
            return [
                FrameworkProblem(f"{candidate.instances} x {role}: {why}", f"tony.{role}.instances")
            ]
    return []


def refuse_elastic(job: Job, why: str) -> List[FrameworkProblem]:
    """Refuse elastic roles: the framework must know the number of tasks before."""
    for role in job.roles:
        if role.is_elastic:
            key = f"tony.{role.name}.min-instances"
            return [FrameworkProblem(f"{why}: it must equal tony.{role.name}.instances", key)]
    return []


def refuse_task_restart(job: Job, framework: Framework) -> List[FrameworkProblem]:
    """Refuse restarts of single tasks that their peers would not survive."""
    problems = []
    for role in job.roles:
        if role.restart_scope is RestartScope.TASK:
            why = framework.task_restart(job, role).why_not
            if why:
                key = f"tony.{role.name}.restart-scope"
                problems.append(FrameworkProblem(f"{why}: it must be session", key))
    return problems

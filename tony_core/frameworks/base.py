"""What a framework is to us: a cluster spec in, an environment out.

One short module each, found by name through the entry point ``tony.frameworks`` (ours
are built in). The client asks :meth:`Framework.validate` before anything starts; the
master asks for ports, services and environments. Nothing here knows a scheduler.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Protocol, Tuple

from tony_core.dataclass import dataclass, field
from tony_core.job.spec import Job, Role, Tracking

# Roles that stand beside the training whoever waits for them: a parameter server serves,
# an evaluator reads checkpoints, TensorBoard reads events.
_BESIDE = ("ps", "evaluator", "tensorboard")


def trains(role: Role) -> bool:
    """Whether the role's tasks are ranks: tracked, and not a role that serves or watches."""
    return role.tracking is Tracking.TRACKED and role.name not in _BESIDE


@dataclass(frozen=True)
class Peer:
    """One task of the cluster spec, with the ports it holds."""

    role: str
    index: int
    node: str
    host: str
    ports: Mapping[str, int]

    @property
    def name(self) -> str:
        """``worker:0``."""
        return f"{self.role}:{self.index}"

    def address(self, port: str = "main") -> str:
        """host:port."""
        return f"{self.host}:{self.ports[port]}"


@dataclass(frozen=True)
class Gang:
    """One session's tasks, in the job's order of roles, chief's role first where it has one."""

    job: Job
    session: int
    peers: Tuple[Peer, ...]
    services: Mapping[str, str] = field(default_factory=dict)  # what :meth:`serve` returned
    starting: Tuple[str, ...] = ()  # the tasks of this stage; earlier stages' are peers only
    #: What was worked out of this very gang once, for thousands of tasks that all need it.
    memo: Dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def role(self, peer: Peer) -> Role:
        """The peer's role."""
        return self.job.role(peer.role)

    def is_chief(self, peer: Peer) -> bool:
        """Whether the peer is the job's chief."""
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


@dataclass(frozen=True)
class Problem:
    """Why a job cannot run under this framework; ``key`` names the setting to mend."""

    message: str
    key: str = ""


@dataclass(frozen=True)
class Alone:
    """What it means to the others that one task is started again while they go on."""

    why_not: str = ""  # they cannot take it back: half a line for a person
    in_place: bool = False  # they hold its address: only where it was


class Service(Protocol):
    """Something the framework runs in the master for one session (a rendezvous)."""

    def environment(self) -> Dict[str, str]:
        """What the tasks need to find it; reaches :attr:`Gang.services`."""

    def close(self) -> None:
        """End it; called at the session's end."""


@dataclass(frozen=True)
class ServiceContext:
    """What a service may use."""

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

        Nothing is looked up: ``/etc/hosts`` may give this machine's own name 127.0.1.1.
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

    def validate(self, job: Job) -> List[Problem]:
        """All problems of this job under this framework."""
        return []

    def alone(self, job: Job, role: Role) -> Alone:
        """Whether a task of this role may be started again while the others go on, and where.

        What trains is refused unless a framework knows better: whoever waits for a peer in a
        collective operation gets an error, or waits for ever.
        """
        if trains(role):
            return Alone(f"what trains under {self.name} cannot take a task back")
        return Alone(in_place=self.needs_full_spec and role.tracking is not Tracking.SIDECAR)

    def ports(self, job: Job, role: str, index: int) -> Tuple[str, ...]:
        """Names of the ports the task needs. ``main`` is always among them."""
        return ("main",)

    def serve(
        self, job: Job, session: int, size: int, context: ServiceContext
    ) -> Optional[Service]:
        """Start what the framework needs in the master for a session; None if nothing.

        ``size`` is the number of tasks that this stage starts.
        """
        return None

    def shared(self, gang: Gang) -> Dict[str, str]:
        """Text that is the same for all tasks, by name (see messages.shared_reference)."""
        return {}

    def environment(self, gang: Gang, peer: Peer) -> Dict[str, str]:
        """What the task's program finds in its environment."""
        return {}

"""What can happen to a job: the events that its session machine takes.

* What the scheduler's pool reports *is* an event: a
  :class:`~tony_core.schedulers.container_pool.PoolEvent`.
* What an executor reports is one as well: a message of :mod:`tony_core.protocol.messages`, with the
  container that it came from (:class:`ExecutorReported`).
* The rest happens in the master itself, and stands here.

Time is given with each event; :class:`Tick` says only that it has passed.

Tasks are named ``role:index``. A container is named by the scheduler's id.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Tuple, Union

from tony_core.protocol.messages import (
    Ended,
    Ready,
    Register,
    Reported,
    Running,
    StacksDumped,
    Stalled,
    Stopped,
)
from tony_core.schedulers.container_pool import Container, PoolEvent

#: The messages of executors that are events of the machine.
Report = Union[Register, Ready, Running, Ended, Stopped, Reported, Stalled, StacksDumped]


class Begin(NamedTuple):
    """The master stands and the scheduler knows it: the job may start."""


class Tick(NamedTuple):
    """Time has passed; some deadline may have."""


class PreprocessEnded(NamedTuple):
    """``tony.am.command`` ended; ``parameters`` is what it wrote for every task."""

    exit_code: int
    parameters: Optional[str] = None
    stderr_tail: Tuple[str, ...] = ()


class ContainersInherited(NamedTuple):
    """The containers of the previous attempt that still run (a takeover), and its journal."""

    containers: Tuple[Container, ...]
    journal: Mapping[str, object]


class ExecutorReported(NamedTuple):
    """An executor sent this message.

    A Register comes on each new connection: the first, or one after a lost one.
    """

    container_id: str
    message: Report


class ExecutorLost(NamedTuple):
    """Its connection is gone, or silent, for longer than the heartbeats allow."""

    container_id: str
    reason: str


class ServiceFailed(NamedTuple):
    """A service of the framework in the master (a rendezvous) ended the session.

    ``task`` is the task that asked for it (an MPI abort), if one did.
    """

    session: int
    reason: str
    task: str = ""
    exit_code: int = 1


class GangRestartRequested(NamedTuple):
    """The programs are to start anew, from their checkpoint: a round that no budget pays for."""

    reason: str


class TokensExpiring(NamedTuple):
    """The job's delegation tokens end for good: the job must end while it can still write."""

    reason: str


MasterEvent = Union[
    Begin, Tick, PreprocessEnded, ContainersInherited, ExecutorReported, ExecutorLost,
    ServiceFailed, GangRestartRequested, TokensExpiring,
]  # fmt: skip
Event = Union[MasterEvent, PoolEvent]

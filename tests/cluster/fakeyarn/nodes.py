"""The fake's NodeManagers: ContainerManagementProtocol, and what each of them runs.

A container is *simulated* (it runs from its start until it is stopped) or *real*
(``processes.py``). A NodeManager tells the ResourceManager what it knows at its heartbeat, and
not before; while the ResourceManager is away it keeps its ends.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

from tests.cluster.fakeyarn import amounts
from tests.cluster.fakeyarn.processes import GRACE_S, CannotLocalise, Fetch, RealContainer, Script
from tests.cluster.fakeyarn.tokens import Tokens
from tests.cluster.fakeyarn.wire import TRACE, Call, Fault
from tony_core.hadoop.rpc.protobuf import Message
from tony_core.hadoop.yarn.ids import ContainerId, NodeId
from tony_core.hadoop.yarn.messages import container_calls as calls
from tony_core.hadoop.yarn.messages import yarn
from tony_core.hadoop.yarn.records import Capability

_YARN = "org.apache.hadoop.yarn.exceptions"
INVALID_TOKEN = "org.apache.hadoop.security.token.SecretManager$InvalidToken"

LOST, STOPPED_BY_MASTER, STOPPED_BY_RM, MEMORY = -100, -105, -106, -104
_RUNNING, _COMPLETE = 2, 3


@dataclass
class Running:
    """A container on a node, from its NodeManager's point of view."""

    id: ContainerId
    user: str
    amount: Capability
    tags: Tuple[str, ...]
    launch: yarn.ContainerLaunchContext
    real: Optional[RealContainer] = None
    killed: Optional[Tuple[int, str]] = None  # the exit status and why
    kill_at: float = 0.0
    exit_status: Optional[int] = None
    diagnostics: str = ""
    started: float = field(default_factory=time.monotonic)


@dataclass
class Hands:
    """What NodeManagers share: where real containers live, and how a test looks in."""

    root: Path
    fetch: Fetch
    real: bool = False
    started: List[ContainerId] = field(default_factory=list)  # of all nodes, in order
    refuse: Optional[Callable[[NodeId, ContainerId], Optional[Fault]]] = None
    on_start: Optional[Callable[[Running], None]] = None

    def logs(self, container: ContainerId) -> Path:
        """The folder of a container's logs."""
        return self.root / "logs" / str(container.attempt.application) / str(container)


class NodeManager:
    """One."""

    def __init__(self, node: NodeId, http_port: int, tokens: Tokens, hands: Hands) -> None:
        self.id = node
        self.rm = 0  # the mark of the ResourceManager that it registered with
        self._http_port = http_port
        self._tokens = tokens
        self._hands = hands
        self.running: Dict[ContainerId, Running] = {}
        self.ended: Dict[ContainerId, Running] = {}  # until the ResourceManager knows
        self._stopped: Dict[ContainerId, float] = {}
        self.dead = False
        self.others: Tuple[str, ...] = ()  # resources besides memory and cores

    # ---------------------------------------------------------------- calls

    def answer(self, call: Call) -> Message:
        """To a master."""
        if call.method == "startContainers":
            return self._start_all(calls.StartContainersRequest.decode(call.body), call.identifier)
        if call.method == "stopContainers":
            return self._stop_all(calls.StopContainersRequest.decode(call.body))
        if call.method == "getContainerStatuses":
            return self._statuses(calls.GetContainerStatusesRequest.decode(call.body))
        raise Fault("org.apache.hadoop.ipc.RpcNoSuchMethodException", call.method)

    def _start_all(
        self, request: calls.StartContainersRequest, identifier: bytes
    ) -> calls.StartContainersResponse:
        token = yarn.NMTokenIdentifier.decode(identifier)
        for one in request.start_container_request:
            if not self._tokens.is_container(one.container_token):
                where = f"{self.id.host}:{self.id.port}"
                text = f"Invalid container token used for starting container on : {where}"
                raise Fault(INVALID_TOKEN, text)
        done: List[yarn.ContainerId] = []
        failed: List[calls.ContainerExceptionMap] = []
        for one in request.start_container_request:
            claim = yarn.ContainerTokenIdentifier.decode(one.container_token.identifier)
            try:
                self._start(claim, one.container_launch_context, token)
            except Fault as fault:
                failed.append(_failure(claim.container_id, fault))
            else:
                done.append(claim.container_id)
        return calls.StartContainersResponse(
            succeeded_requests=done or None, failed_requests=failed or None
        )

    def _start(
        self,
        claim: yarn.ContainerTokenIdentifier,
        launch: yarn.ContainerLaunchContext,
        token: yarn.NMTokenIdentifier,
    ) -> None:
        container = ContainerId.from_message(claim.container_id)
        trouble = self._hands.refuse(self.id, container) if self._hands.refuse else None
        if trouble is not None:
            raise trouble
        unauthorised = f"{_YARN}.YarnException", "Unauthorized request to start container.\n"
        if token.app_attempt_id.application_id != claim.container_id.app_attempt_id.application_id:
            raise Fault(
                unauthorised[0], f"{unauthorised[1]}NMToken for another application was used"
            )
        if claim.nm_host_addr != str(self.id):
            raise Fault(
                unauthorised[0],
                f"{unauthorised[1]}Expected node {claim.nm_host_addr} and found {self.id}",
            )
        if container in self.running or container in self.ended or container in self._stopped:
            text = f"Attempt to relaunch the same container with id {container}"
            raise Fault(unauthorised[0], unauthorised[1] + text)
        if claim.expiry_time_stamp < time.time() * 1000:
            text = (
                f"This token is expired. current time is {int(time.time() * 1000)} found "
                f"{claim.expiry_time_stamp}\nNote: System times on machines may be out of sync."
                " Check system time and time zones."
            )
            raise Fault(unauthorised[0], unauthorised[1] + text)
        if claim.rm_identifier != self.rm:
            raise Fault(
                f"{_YARN}.InvalidContainerException",
                f"Container {container} rejected as it is allocated by a previous RM",
            )
        self.start(container, claim, launch)

    def start(
        self,
        container: ContainerId,
        claim: yarn.ContainerTokenIdentifier,
        launch: yarn.ContainerLaunchContext,
    ) -> None:
        """What a valid request leads to."""
        one = Running(
            container,
            claim.app_submitter,
            Capability.from_message(claim.resource),
            tuple(claim.allocation_tags),
            launch,
        )
        self.running[container] = one
        self._hands.started.append(container)
        if self._hands.real:
            self._start_real(one)
        if self._hands.on_start:
            self._hands.on_start(one)

    def _start_real(self, one: Running) -> None:
        place = self._hands.root / "work" / f"{self.id.host}-{self.id.port}"
        folder = place / str(one.id.attempt.application) / str(one.id)
        script = Script(folder, self._hands.logs(one.id), place / "cache", self._hands.fetch)
        own = {
            "CONTAINER_ID": str(one.id),
            "NM_HOST": self.id.host,
            "NM_PORT": str(self.id.port),
            "NM_HTTP_PORT": str(self._http_port),
            "LOCAL_DIRS": str(folder.parent),
            "USER": one.user,
            "LOGNAME": one.user,
            "HOME": "/home/",
        }
        try:
            script.write(one.launch, own)
        except CannotLocalise as error:
            one.killed = (-1000, str(error))
            return
        one.real = RealContainer(script)

    def _stop_all(self, request: calls.StopContainersRequest) -> calls.StopContainersResponse:
        done: List[yarn.ContainerId] = []
        failed: List[calls.ContainerExceptionMap] = []
        for message in request.container_id:
            container = ContainerId.from_message(message)
            if container in self.running:
                why = "Container killed by the ApplicationMaster.\n"
                self.kill(container, STOPPED_BY_MASTER, why)
            elif container not in self.ended and container not in self._stopped:
                failed.append(_failure(message, self._unknown(container)))
                continue
            done.append(message)
        return calls.StopContainersResponse(
            succeeded_requests=done or None, failed_requests=failed or None
        )

    def _statuses(
        self, request: calls.GetContainerStatusesRequest
    ) -> calls.GetContainerStatusesResponse:
        found: List[yarn.ContainerStatus] = []
        failed: List[calls.ContainerExceptionMap] = []
        for message in request.container_id:
            container = ContainerId.from_message(message)
            one = self.running.get(container) or self.ended.get(container)
            if one is not None:
                found.append(self._status(one))
            elif container in self._stopped:
                text = f"Container {container} was recently stopped on node manager."
                failed.append(_failure(message, Fault(f"{_YARN}.YarnException", text)))
            else:
                failed.append(_failure(message, self._unknown(container)))
        return calls.GetContainerStatusesResponse(
            status=found or None, failed_requests=failed or None
        )

    @staticmethod
    def _unknown(container: ContainerId) -> Fault:
        text = f"Container {container} is not handled by this NodeManager"
        return Fault(f"{_YARN}.YarnException", text)

    def _status(self, one: Running) -> yarn.ContainerStatus:
        over = one.exit_status is not None
        return yarn.ContainerStatus(
            container_id=one.id.to_message(),
            state=_COMPLETE if over else _RUNNING,
            diagnostics=one.diagnostics,
            exit_status=-1000 if one.exit_status is None else one.exit_status,
            capability=amounts.to_message(one.amount, self.others),
            execution_type=1,
            container_sub_state=5 if over else 2,
        )

    # ---------------------------------------------------------------- ends

    def kill(self, container: ContainerId, status: int, why: str) -> None:
        """TERM now, KILL a little later; the status that the ResourceManager gets."""
        one = self.running.get(container)
        if one is None or one.killed is not None:
            return
        one.killed = (status, why)
        if one.real is not None:
            one.real.signal(signal.SIGTERM)
            one.kill_at = time.monotonic() + GRACE_S

    def signal(self, container: ContainerId, number: signal.Signals) -> None:
        """Just that: what becomes of the container is its own affair, and so is its exit code."""
        one = self.running.get(container)
        if one is not None and one.real is not None:
            one.real.signal(number)
        elif one is not None:
            self._over(one, 128 + number, self._failure_words(one, 128 + number))

    def end(self, container: ContainerId, code: int) -> None:
        """A simulated container exits."""
        one = self.running[container]
        assert one.real is None
        self._over(one, code, "" if code == 0 else self._failure_words(one, code))

    def look(self, memory: bool = False) -> None:
        """After its processes."""
        for one in list(self.running.values()):
            if one.real is None:
                if one.killed is not None:
                    self._over(one, *one.killed)
                continue
            code = one.real.code()
            if code is None:
                if one.kill_at and time.monotonic() >= one.kill_at:
                    one.real.signal(signal.SIGKILL)
                elif memory and one.killed is None:
                    self._check_memory(one)
            elif one.killed is not None:
                status, why = one.killed
                words = f"{why}Container exited with a non-zero exit code {code}. \n"
                self._over(one, status, words)
            else:
                self._over(one, code, "" if code == 0 else self._failure_words(one, code))

    def _check_memory(self, one: Running) -> None:
        assert one.real is not None
        used = one.real.memory()
        limit = one.amount.memory_mb << 20
        if used > limit:
            self.kill(
                one.id,
                MEMORY,
                f"Container [pid={one.real.pid},containerID={one.id}] is running "
                f"{used - limit}B beyond the 'PHYSICAL' memory limit. Current usage: "
                f"{used / (1 << 20):.1f} MB of {one.amount.memory_mb} MB physical memory used; "
                f"{used / (1 << 20):.1f} MB of {one.amount.memory_mb * 2.1:.1f} MB virtual "
                "memory used. Killing container.\n"
                "Container killed on request. Exit code is 143\n",
            )

    def _failure_words(self, one: Running, code: int) -> str:
        if code in (137, 143):
            return (
                f"Container killed on request. Exit code is {code}\n"
                f"Container exited with a non-zero exit code {code}. \n"
            )
        last = one.real.last_words() if one.real is not None else ""
        end = f"{_stamp()}Container exited with a non-zero exit code {code}. {last}"
        return (
            f"{_stamp()}Exception from container-launch.\nContainer id: {one.id}\n"
            f"Exit code: {code}\n\n{end}{end}"
        )

    def _over(self, one: Running, code: int, diagnostics: str) -> None:
        del self.running[one.id]
        one.exit_status = code
        one.diagnostics = diagnostics
        self.ended[one.id] = one

    def acknowledge(self, container: ContainerId) -> None:
        """The ResourceManager knows of its end."""
        if self.ended.pop(container, None) is not None:
            self._stopped[container] = time.monotonic()

    def power_cut(self) -> None:
        """All that runs here is gone at once."""
        self.dead = True
        for one in self.running.values():
            if one.real is not None:
                one.real.kill_now()
        self.running.clear()
        self.ended.clear()


def _failure(container: yarn.ContainerId, fault: Fault) -> calls.ContainerExceptionMap:
    return calls.ContainerExceptionMap(
        container_id=container,
        exception=yarn.SerializedException(
            message=fault.text,
            trace=f"{fault.remote_class}: {fault.text}{TRACE}",
            class_name=fault.remote_class,
        ),
    )


def _stamp() -> str:
    return time.strftime("[%Y-%m-%d %H:%M:%S.000]")

"""The containers of a master on YARN.

Theory of operation
===================

One thread talks to the ResourceManager (:mod:`heartbeat`): four times a second while requests are
outstanding or containers are about to end, once a second otherwise, and at once after a call of
the master. :mod:`container_requests` decides what it sends, :mod:`containers` records what it
hears; both are pure. The threads of :mod:`launcher` start and stop containers on their nodes. One
lock guards what they share. The sink is called under that lock, so events come in order, and none
comes after :meth:`YarnPool.close`.

When another attempt has become the master, this process must not touch containers or files any
more: it exits at once (:func:`exit_superseded`).
"""

from __future__ import annotations

import threading
import time
from typing import Callable, List, Optional, Sequence

from tony_core.exit_causes import ExitCause
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.errors import AttemptNotFound, HadoopError, InvalidToken
from tony_core.hadoop.tokens import AM_RM, Token
from tony_core.hadoop.yarn.ids import ContainerId, NodeId
from tony_core.hadoop.yarn.node_manager import NodeManager, NodeTokens
from tony_core.hadoop.yarn.records import AppReport, Container, ContainerStatus
from tony_core.hadoop.yarn.rm_master import Allocation, Registered, RmMaster
from tony_core.job.spec import Resources
from tony_core.schedulers import container_pool, port
from tony_core.schedulers.yarn import application_state, placement_constraints
from tony_core.schedulers.yarn.master import pending_reasons
from tony_core.schedulers.yarn.master.application import Application, exit_superseded, register
from tony_core.schedulers.yarn.master.container_requests import ContainerRequests
from tony_core.schedulers.yarn.master.containers import Containers, HeldContainer
from tony_core.schedulers.yarn.master.heartbeat import Heartbeat, HeartbeatRequest
from tony_core.schedulers.yarn.master.launch_context import LaunchContexts, LaunchError
from tony_core.schedulers.yarn.master.launcher import ContainerLauncher, NodeClient
from tony_core.schedulers.yarn.master.nodes import NodeReports
from tony_core.schedulers.yarn.master.placement import ClusterNode, add_own_usage
from tony_core.schedulers.yarn.master.preemption import Preemptions
from tony_core.schedulers.yarn.master.user_tokens import UserTokens
from tony_core.schedulers.yarn.resources import to_capability, to_resources

# A node's report reaches the ResourceManager within a second, and us by the next heartbeat.
SETTLE_S = 1.5
EXPECT_ENDS_S = 3.0  # after a program's end: containers' ends are expected, and polled for
MAX_POLLED_NODES = 16  # up to so many nodes are polled themselves
NODES_S = 1.0  # the largest age of the node reports by which hosts are named
#: From a node's confirmation of a stop to the ResourceManager's report of the end.
UNREPORTED_END_S = 10.0
LOST_STATES = ("LOST", "UNHEALTHY", "DECOMMISSIONED", "REBOOTED", "SHUTDOWN")


class YarnPool(container_pool.ContainerPool):
    """A :class:`~tony_core.schedulers.container_pool.ContainerPool` on YARN."""

    def __init__(
        self,
        rm: RmMaster,
        application: Application,
        requests: ContainerRequests,
        contexts: LaunchContexts,
        nodes: NodeReports,
        *,
        tokens: Optional[NodeTokens] = None,
        open_node: Callable[[NodeId, Token], NodeClient] = NodeManager,
        report: Optional[Callable[[], AppReport]] = None,
        end: Optional[Callable[[str], None]] = None,
        superseded: Callable[[str], object] = exit_superseded,
        log: Callable[[str], None] = lambda text: None,
        closing: Callable[[], None] = lambda: None,
        user_tokens: Optional[UserTokens] = None,
    ) -> None:
        self._rm = rm
        self._heartbeat = Heartbeat(rm, application.attempt, self, report, log)
        self._application = application
        self._end = end
        self._requests = requests
        self._contexts = contexts
        self._nodes = nodes
        self._tokens = tokens or NodeTokens()
        self._launcher = ContainerLauncher(self._tokens, self, open_node)
        self._closing = closing
        self._user_tokens = user_tokens or UserTokens()
        self._superseded = superseded
        self._log = log
        self._containers = Containers(application.attempt.number)
        self._sink: Callable[[container_pool.PoolEvent], None] = lambda event: None
        self._changed = threading.Condition(threading.RLock())
        self._thread: Optional[threading.Thread] = None
        self._registered: Optional[Registered] = None
        self._is_takeover = application.attempt.number > 1
        self._registered_event = threading.Event()
        self._urgent = False
        self._over = False  # no heartbeats any more; the application's end is still reported
        self._shut_down = False  # the ResourceManager has ended the application itself
        self._closed = False
        self._ends_expected_until = 0.0
        self._progress = 0.0
        self._tracking_url = ""
        self._sent_url = ""
        self._preemptions = Preemptions(application.preemption)
        self._reason = pending_reasons.ReasonTimer()

    # ------------------------------------------------------------------ the port

    def start(
        self, sink: Callable[[container_pool.PoolEvent], None], page_url: str
    ) -> container_pool.PoolInfo:
        self._sink = sink
        self._tracking_url = self._sent_url = page_url
        call = self._heartbeat.register
        registered = self._registered = register(call, self._application, page_url, self._end)
        self._tokens.update(registered.node_tokens)
        number = self._application.attempt.number
        info = container_pool.PoolInfo(
            app_id=str(self._application.attempt.application),
            attempt=number,
            user=self._application.user,
            queue=registered.queue,
            max_resources=to_resources(registered.maximum),
            master_lost_s=self._application.master_lost_s,
            settle_s=SETTLE_S,
            can_restart_master=number < self._application.max_attempts,
            ends_containers_at_finish=True,
            scheduler="YARN",
        )
        self._thread = threading.Thread(
            target=self._run_heartbeat, name="yarn-heartbeat", daemon=True
        )
        self._thread.start()
        self._registered_event.set()
        return self._user_tokens.describe(info)

    def request(self, requests: Sequence[container_pool.ContainerRequest], gang: bool) -> None:
        with self._changed:
            now = time.monotonic()
            for request in requests:
                self._request(request, now)
            self._wake()

    def release(self, container_id: str) -> None:
        with self._changed:
            held = self._containers.find(container_id)
            if held is None:
                return
            if held.launched:
                self._stop(held)
            else:
                self._containers.release(held, silent=True)
                self._wake()

    def launch(self, container: container_pool.Container, launch: container_pool.Launch) -> None:
        with self._changed:
            if self._over:
                return
            held = self._containers.find(container.id)
            if held is None or held.end_requested or held.launched:
                if held is None:
                    self._emit(
                        container_pool.Completed(
                            container.id, 127, ExitCause.LAUNCH, "it has ended already"
                        )
                    )
                return
            held.launched = True
            try:
                context = self._contexts.launch(held.role, launch)
            except LaunchError as error:
                self._not_started(held, str(error))
                return
            allocation = held.allocation
            self._launcher.start(allocation.node, allocation.id, allocation.token, context)

    def stop(self, container_id: str) -> None:
        with self._changed:
            held = self._containers.find(container_id)
            if held is None:
                return
            if held.launched:
                self._stop(held)
            else:
                self._containers.release(held)
                self._wake()

    def expect_ends(self) -> None:
        with self._changed:
            now = time.monotonic()
            if now >= self._ends_expected_until:
                self._wake()
            self._ends_expected_until = now + EXPECT_ENDS_S

    def renew_tokens(self, content: bytes) -> bytes:
        fresh = Credentials.decode(content).without(AM_RM)
        with self._changed:
            held = self._contexts.credentials.with_renewed(fresh)
            self._contexts = self._contexts._replace(credentials=held)
        self._user_tokens.renew(held)
        return Credentials(held.tokens).encode()

    def check_fetch(self) -> Optional[port.SchedulerError]:
        return self._user_tokens.check(logs_in=not self._is_takeover)

    def fetch_tokens(self) -> container_pool.FreshTokens:
        return self._user_tokens.fetch()

    def report(self, progress: float, tracking_url: str, trouble: str = "") -> None:
        with self._changed:
            self._progress = min(1.0, max(0.0, progress))
            self._tracking_url = tracking_url or self._tracking_url

    def finish(self, state: port.AppState, diagnostics: str, tracking_url: str = "") -> None:
        with self._changed:
            self._over = True
            self._wake()
        self._join()
        if self._shut_down:
            return  # the ResourceManager has ended the application itself
        words = application_state.final_diagnostics(state, diagnostics)
        try:
            self._heartbeat.finish(application_state.final_status(state), words, tracking_url)
        except (AttemptNotFound, InvalidToken) as error:
            self._log(f"the ResourceManager has already ended the application: {error}")
        except HadoopError as error:
            raise port.SchedulerError(
                f"the ResourceManager did not accept the application's end: {error}"
            ) from error

    def close(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = self._over = True
            self._wake()
        self._registered_event.set()
        self._rm.close()
        self._launcher.close()
        self._join()
        self._closing()

    # ------------------------------------------------------------------ in the heartbeat's thread

    def _run_heartbeat(self) -> None:
        self._registered_event.wait()
        self._nodes.read(0.0)  # before a request has to wait for it
        try:
            while True:
                pause = self._heartbeat.turn()
                with self._changed:
                    if not self._urgent and not self._over:
                        self._changed.wait(pause)
                    self._urgent = False
                    if self._over:
                        return
        except Exception as error:
            # Without this thread the job cannot go on, so the master ends it.
            self.on_lost(f"the heartbeat to the ResourceManager failed: {error!r}")
            raise

    def next_request(self) -> HeartbeatRequest:
        now = time.monotonic()
        with self._changed:
            looks = self._requests.needs_nodes(now)
        nodes = self._nodes.read(NODES_S) if looks else ()
        with self._changed:
            url = self._tracking_url if self._tracking_url != self._sent_url else None
            self._sent_url = self._tracking_url
            update = self._requests.next_update(self._add_own_usage(nodes), now)
            return HeartbeatRequest(update, self._containers.next_releases(), self._progress, url)

    def on_answer(self, answer: Allocation) -> bool:
        self._tokens.update(answer.node_tokens)
        now = time.monotonic()
        with self._changed:
            self._inherit(answer)
            self._take_allocated(answer.allocated, now)
            for rejected in answer.rejected:
                words = f"its placement {rejected.reason} ({', '.join(rejected.tags)})"
                self.on_refused(rejected.request_id, words)
            self._report_nodes(answer)
            for one in answer.completed:
                for event in self._containers.record_end(one):
                    self._emit(event)
            for event in self._containers.end_unreported(now - UNREPORTED_END_S):
                self._emit(event)
            for event in self._preemptions.update(
                answer.preempted, self._containers.is_running, now
            ):
                self._emit(event)
            closely = now < self._ends_expected_until
            soon = closely or bool(self._requests.outstanding) or self._containers.awaits_end
            if closely:
                self._check_nodes()
            explains = self._reason.is_due(bool(self._requests.outstanding), now)
        if explains:
            self._report_reason(answer, now)
        return soon

    def on_resync(self, registered: Optional[Registered]) -> None:
        if registered is not None:
            self._tokens.update(registered.node_tokens)
        with self._changed:
            self._requests.resync()
            self._containers.resync()

    def on_refused(self, request_id: int, why: str) -> None:
        with self._changed:
            request = self._requests.find(request_id)
            if request is not None and request.missing:
                self._requests.drop(request)
                self._emit(container_pool.RequestRejected(request.role, why))

    def on_shutdown(self, why: str, by_user: bool) -> None:
        """End the job: the ResourceManager has ended the application."""
        with self._changed:
            self._shut_down = True
            if not self._over:
                self._over = True
                self._emit(container_pool.ShutdownRequested(why, by_user))

    def on_lost(self, why: str) -> None:
        """End the job: the ResourceManager cannot be reached. The end may still be reported."""
        with self._changed:
            if not self._over:
                self._over = True
                self._emit(container_pool.ShutdownRequested(why, False))

    def on_superseded(self, why: str) -> None:
        with self._changed:
            self._shut_down = self._over = True
        self._superseded(why)

    def _report_nodes(self, answer: Allocation) -> None:
        lost = [node.id for node in answer.updated_nodes if node.state in LOST_STATES]
        for node in sorted(self._containers.nodes_in_use(lost)):
            self._emit(container_pool.NodeLost(self._application.node_name(node.host, node.port)))

    def _take_allocated(self, given: Sequence[Container], now: float) -> None:
        taken: List[container_pool.Container] = []
        for container in given:
            request = self._requests.record_allocation(container.request_id, now)
            if request is None or self._over:
                self._containers.return_surplus(container)
                self._urgent = True
                continue
            lacking = pending_reasons.describe_shortfall(request.need, container.capability)
            if lacking:
                self._containers.return_surplus(container)
                self._requests.drop(request)
                words = f"{container.node} has less than requested: {lacking}"
                self._emit(container_pool.RequestRejected(request.role, words))
                continue
            self._containers.add(container, request.role, now)
            taken.append(self._application.to_port_container(container, request.role))
        if taken:
            self._emit(container_pool.Allocated(tuple(taken)))
        if self._requests.has_unsent:
            self._urgent = True

    def _inherit(self, answer: Allocation) -> None:
        """Report the containers of previous attempts: running, or ended without a report.

        The ResourceManager lists running ones at the registration (after its own restart also
        later), and ended ones in the first answer.
        """
        previous = [*answer.previous]
        registered, first = self._registered, self._is_takeover
        if first and registered is not None:
            previous[:0] = registered.previous
        self._is_takeover = False
        found = []
        for container in previous:
            role = self._requests.role_of(container.request_id)
            if self._containers.inherit(container, role) is not None:
                found.append(self._application.to_port_container(container, role))
        for one in answer.completed if first else ():
            if self._containers.get(one.id) is None:
                found.append(container_pool.Container(str(one.id), "", "", Resources(0, 0)))
        if found or first:
            self._emit(container_pool.PreviousContainers(tuple(found)))

    def _report_reason(self, answer: Allocation, now: float) -> None:
        nodes = self._nodes.read(NODES_S)
        queue = self._registered.queue if self._registered is not None else ""
        with self._changed:
            requests, held = self._requests.outstanding, self._containers.count_by_role()
            seen, avoided = self._add_own_usage(nodes), self._requests.blacklisted
            words = pending_reasons.explain_pending(
                requests, held, queue, answer.headroom, seen, avoided
            )
            if requests and self._reason.is_new(words, now):
                self._emit(container_pool.AllocationPending(words))

    # ------------------------------------------------------------------ from the launcher

    def on_started(self, container: ContainerId) -> None:
        with self._changed:
            held = self._containers.get(container)
            if held is not None and not held.started:
                held.started = True
                self._emit(container_pool.Started(str(container)))

    def on_not_started(self, container: ContainerId, why: str) -> None:
        """Release a container that the node has not started."""
        with self._changed:
            held = self._containers.get(container)
            if held is not None:
                self._not_started(held, why)

    def on_status(self, status: ContainerStatus) -> None:
        """Take a node's own report of an end, which comes before the ResourceManager's.

        It counts only for containers that ended by themselves: a node does not always know why
        one was killed.
        """
        with self._changed:
            if status.state == "COMPLETE" and 0 <= status.exit_status < 128:
                for event in self._containers.record_end(status):
                    self._emit(event)

    def on_stopped(self, container: ContainerId) -> None:
        """Note that the node has confirmed a stop; the ResourceManager will report the end."""
        with self._changed:
            held = self._containers.get(container)
            if held is not None:
                held.stopped_at = time.monotonic()

    def on_not_stopped(self, container: ContainerId, why: str) -> None:
        """Release a container through the ResourceManager: its node cannot be reached."""
        with self._changed:
            held = self._containers.get(container)
            if held is not None:
                self._log(f"{container} is released through the ResourceManager: {why}")
                self._containers.release(held)
                # A ResourceManager that has restarted may not know a node that was lost before, and
                # then never reports this end.
                held.stopped_at = time.monotonic()
                self._wake()

    # ------------------------------------------------------------------ inside

    def _request(self, request: container_pool.ContainerRequest, now: float) -> None:
        registered = self._registered
        try:
            constraint, tags = placement_constraints.request_constraint(
                request.role,
                request.placement_spec,
                request.allocation_tags,
                self._application.placement_spec,
            )
        except placement_constraints.ConstraintError as error:
            self._emit(container_pool.RequestRejected(request.role, str(error)))
            return
        if request.count and registered is not None:
            known = [one.name for one in registered.resource_types]
            need = to_capability(request.resources)
            why = pending_reasons.explain_impossible(need, registered.maximum, known)
            if why:
                self._emit(container_pool.RequestRejected(request.role, why))
                return
        self._requests.request(request, constraint, tags, now)

    def _add_own_usage(self, nodes: Sequence[ClusterNode]) -> Sequence[ClusterNode]:
        return add_own_usage(
            nodes, self._containers.usage(self._application.node_name, self._nodes.read_at)
        )

    def _check_nodes(self) -> None:
        there = self._containers.running_by_node()
        if len(there) <= MAX_POLLED_NODES:
            for node, containers in there.items():
                self._launcher.check_status(node, containers)

    def _stop(self, held: HeldContainer) -> None:
        """Stop a container; repeated calls have no effect. Needs the lock."""
        if not held.end_requested:
            held.end_requested = True
            self._launcher.stop(held.allocation.node, held.allocation.id)
            self._wake()

    def _not_started(self, held: HeldContainer, why: str) -> None:
        event = self._containers.fail_launch(held, why)
        if event is not None:
            self._emit(event)
        self._wake()

    def _emit(self, event: container_pool.PoolEvent) -> None:
        if not self._closed:
            self._sink(event)

    def _wake(self) -> None:
        self._urgent = True
        self._changed.notify_all()

    def _join(self) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

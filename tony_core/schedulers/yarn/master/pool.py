"""The master's side of YARN.

Theory of operation
===================

One thread talks to the ResourceManager (``heartbeat``): four times a second while something is
outstanding or about to end, once a second otherwise, and at once when the master has asked for
something. What it says is decided in ``asking`` (pure), what is heard of containers in
``holding`` (pure). A few other threads start and stop containers on their nodes (``launching``).
One lock guards what they share, and the sink is called under it: so events come in order, and
none after :meth:`YarnPool.close`.

When another attempt has become the master meanwhile, this process must touch nothing any more,
neither containers nor files: it ends on the spot (:func:`vanish`).
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, List, Optional, Sequence, Tuple

from tony_core.hadoop.errors import AttemptNotFound, HadoopError, InvalidToken
from tony_core.hadoop.tokens import Token
from tony_core.hadoop.yarn.ids import ContainerId, NodeId
from tony_core.hadoop.yarn.nm import NodeManager, NodeTokens
from tony_core.hadoop.yarn.records import AppReport, Container, ContainerStatus
from tony_core.hadoop.yarn.rm_master import Allocation, Registered, RmMaster
from tony_core.job.spec import Resources
from tony_core.schedulers import port
from tony_core.schedulers.yarn import application_state, placement_constraints
from tony_core.schedulers.yarn.master import pending_reasons
from tony_core.schedulers.yarn.master.application import Application, exit_superseded, register
from tony_core.schedulers.yarn.master.container_requests import Asking
from tony_core.schedulers.yarn.master.containers import Held, Holding
from tony_core.schedulers.yarn.master.heartbeat import Beat, Heartbeat
from tony_core.schedulers.yarn.master.launch_context import Contexts, LaunchError
from tony_core.schedulers.yarn.master.launcher import Launching, Node
from tony_core.schedulers.yarn.master.nodes import ClusterNodes
from tony_core.schedulers.yarn.master.placement import Place, with_ours
from tony_core.schedulers.yarn.resources import to_capability, to_resources

# A node's word on its containers: a second to the ResourceManager, and a hurried heartbeat.
SETTLE_S = 1.5
CLOSELY_S = 3.0  # for so long after a program's end every word on containers is wanted soon
CLOSELY_NODES = 16  # if there are no more, they are asked themselves
FIRST_WORD_S, WORDS_S = 1.0, 5.0  # until why we wait is said, and said again when it changed
NODES_S = 1.0  # how old the list of nodes may be to name hosts by it
UNHEARD_S = 10.0  # from a node's word that it ends a container to the ResourceManager's
GONE = ("LOST", "UNHEALTHY", "DECOMMISSIONED", "REBOOTED", "SHUTDOWN")


class YarnPool(port.ContainerPool):
    """See the module."""

    def __init__(
        self,
        rm: RmMaster,
        application: Application,
        asking: Asking,
        contexts: Contexts,
        nodes: ClusterNodes,
        *,
        tokens: Optional[NodeTokens] = None,
        open_node: Callable[[NodeId, Token], Node] = NodeManager,
        report: Optional[Callable[[], AppReport]] = None,
        end: Optional[Callable[[str], None]] = None,
        superseded: Callable[[str], object] = exit_superseded,
        say: Callable[[str], None] = lambda words: None,
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        self._rm = rm
        self._heartbeat = Heartbeat(rm, application.attempt, self, report, say)
        self._app = application
        self._end = end
        self._asking = asking
        self._contexts = contexts
        self._nodes = nodes
        self._tokens = tokens or NodeTokens()
        self._launching = Launching(self._tokens, self, open_node)
        self._closing = closing
        self._superseded = superseded
        self._say = say
        self._holding = Holding(application.attempt.number)
        self._sink: Callable[[port.PoolEvent], None] = lambda event: None
        self._changed = threading.Condition(threading.RLock())
        self._thread: Optional[threading.Thread] = None
        self._registered: Optional[Registered] = None
        self._takes_over = application.attempt.number > 1
        self._go = threading.Event()
        self._hurry = False
        self._over = False  # nothing more is said to the ResourceManager but the end
        self._dismissed = False  # not even that
        self._closed = False
        self._closely_until = 0.0
        self._progress = 0.0
        self._tracking_url = ""
        self._told_url = ""
        self._preempted: set[ContainerId] = set()
        self._waits_since: Optional[float] = None
        self._said_at = 0.0
        self._words = ""

    # ------------------------------------------------------------------ the port

    def start(self, sink: Callable[[port.PoolEvent], None], page_url: str) -> port.PoolInfo:
        self._sink = sink
        self._tracking_url = self._told_url = page_url
        call = self._heartbeat.register
        registered = self._registered = register(call, self._app, page_url, self._end)
        self._tokens.update(registered.node_tokens)
        number = self._app.attempt.number
        info = port.PoolInfo(
            app_id=str(self._app.attempt.application),
            attempt=number,
            user=self._app.user,
            queue=registered.queue,
            max_resources=to_resources(registered.maximum),
            master_lost_s=self._app.master_lost_s,
            settle_s=SETTLE_S,
            can_restart_master=number < self._app.max_attempts,
            ends_rest=True,
        )
        self._thread = threading.Thread(target=self._live, name="yarn-heartbeat", daemon=True)
        self._thread.start()
        self._go.set()
        return info

    def request(self, asks: Sequence[port.Ask], gang: bool) -> None:
        with self._changed:
            now = time.monotonic()
            for ask in asks:
                self._want(ask, now)
            self._wake()

    def release(self, container_id: str) -> None:
        with self._changed:
            held = self._holding.find(container_id)
            if held is None:
                return
            if held.launched:
                self._stop(held)
            else:
                self._holding.release(held, silent=True)
                self._wake()

    def launch(self, container: port.Container, launch: port.Launch) -> None:
        with self._changed:
            if self._over:
                return
            held = self._holding.find(container.id)
            if held is None or held.asked or held.launched:
                if held is None:
                    self._emit(
                        port.Completed(container.id, 127, port.Cause.LAUNCH, "it has ended already")
                    )
                return
            held.launched = True
            try:
                context = self._contexts.launch(held.role, launch)
            except LaunchError as error:
                self._not_started(held, str(error))
                return
            given = held.given
            self._launching.start(given.node, given.id, given.token, context)

    def stop(self, container_id: str) -> None:
        with self._changed:
            held = self._holding.find(container_id)
            if held is None:
                return
            if held.launched:
                self._stop(held)
            else:
                self._holding.release(held)
                self._wake()

    def look_closely(self) -> None:
        with self._changed:
            now = time.monotonic()
            if now >= self._closely_until:
                self._wake()
            self._closely_until = now + CLOSELY_S

    def report(self, progress: float, tracking_url: str) -> None:
        with self._changed:
            self._progress = min(1.0, max(0.0, progress))
            self._tracking_url = tracking_url or self._tracking_url

    def finish(self, state: port.AppState, diagnostics: str, tracking_url: str = "") -> None:
        with self._changed:
            self._over = True
            self._wake()
        self._join()
        if self._dismissed:
            return  # the ResourceManager has ended the application itself
        words = application_state.final_diagnostics(state, diagnostics)
        try:
            self._heartbeat.finish(application_state.final_status(state), words, tracking_url)
        except (AttemptNotFound, InvalidToken) as error:
            self._say(f"the ResourceManager has ended the application before: {error}")
        except HadoopError as error:
            raise port.SchedulerError(
                f"the ResourceManager did not take the outcome: {error}"
            ) from error

    def close(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = self._over = True
            self._wake()
        self._go.set()
        self._rm.close()
        self._launching.close()
        self._join()
        self._closing()

    # ------------------------------------------------------------------ the heartbeat's thread

    def _live(self) -> None:
        self._go.wait()
        self._nodes.places(0.0)  # before somebody waits for it
        try:
            while True:
                pause = self._heartbeat.turn()
                with self._changed:
                    if not self._hurry and not self._over:
                        self._changed.wait(pause)
                    self._hurry = False
                    if self._over:
                        return
        except Exception as error:
            # Nothing goes on without this thread; the master ends the job for it.
            self.on_lost(f"the conversation with the ResourceManager failed: {error!r}")
            raise

    def compose(self) -> Beat:
        """What is to be said now."""
        now = time.monotonic()
        with self._changed:
            looks = self._asking.looks_for_hosts(now)
        places = self._nodes.places(NODES_S) if looks else ()
        with self._changed:
            url = self._tracking_url if self._tracking_url != self._told_url else None
            self._told_url = self._tracking_url
            said = self._asking.say(self._with_ours(places), now)
            return Beat(said, self._holding.to_release(), self._progress, url)

    def on_answer(self, answer: Allocation) -> bool:
        """What the ResourceManager has said; whether there is more to come."""
        self._tokens.update(answer.node_tokens)
        now = time.monotonic()
        with self._changed:
            self._inherit(answer)
            self._granted(answer.allocated, now)
            for rejected in answer.rejected:
                words = f"its placement {rejected.reason} ({', '.join(rejected.tags)})"
                self.on_refused(rejected.request_id, words)
            self._hear_of_nodes(answer)
            for one in answer.completed:
                for event in self._holding.end(one):
                    self._emit(event)
            for event in self._holding.unheard(now - UNHEARD_S):
                self._emit(event)
            closely = now < self._closely_until
            soon = closely or bool(self._asking.outstanding) or self._holding.ending
            if closely:
                self._look_at_nodes()
            explains = self._explains(now)
        if explains:
            self._explain(answer, now)
        return soon

    def on_restart(self, registered: Optional[Registered]) -> None:
        """The ResourceManager knows nothing of what was asked."""
        if registered is not None:
            self._tokens.update(registered.node_tokens)
        with self._changed:
            self._asking.resync()
            self._holding.resync()

    def on_refused(self, request_id: int, why: str) -> None:
        """This can never be granted."""
        with self._changed:
            want = self._asking.find(request_id)
            if want is not None and want.missing:
                self._asking.drop(want)
                self._emit(port.Refused(want.role, why))

    def on_dismissed(self, why: str, by_user: bool) -> None:
        """The ResourceManager has ended the application."""
        with self._changed:
            self._dismissed = True
            if not self._over:
                self._over = True
                self._emit(port.ShutdownAsked(why, by_user))

    def on_lost(self, why: str) -> None:
        """Nothing goes on; the end may still be told."""
        with self._changed:
            if not self._over:
                self._over = True
                self._emit(port.ShutdownAsked(why, False))

    def on_superseded(self, why: str) -> None:
        """Another attempt is the master."""
        with self._changed:
            self._dismissed = self._over = True
        self._superseded(why)

    def _hear_of_nodes(self, answer: Allocation) -> None:
        lost = [node.id for node in answer.updated_nodes if node.state in GONE]
        for node in sorted(self._holding.on(lost)):
            self._emit(port.NodeLost(self._app.name(node.host, node.port)))
        taken = {*answer.preempted.certain, *answer.preempted.negotiable} - self._preempted
        known = [one for one in sorted(taken) if self._holding.of(one) is not None]
        if known:
            self._preempted.update(known)
            self._emit(port.PreemptionAsked(tuple(str(one) for one in known)))

    def _granted(self, given: Sequence[Container], now: float) -> None:
        taken: List[port.Container] = []
        for container in given:
            want = self._asking.granted(container.request_id, now)
            if want is None or self._over:
                self._holding.send_back(container)
                self._hurry = True
                continue
            lacking = pending_reasons.lack(want.need, container.capability)
            if lacking:
                self._holding.send_back(container)
                self._asking.drop(want)
                words = f"{container.node} gives less than was asked for: {lacking}"
                self._emit(port.Refused(want.role, words))
                continue
            self._holding.take(container, want.role, now)
            taken.append(self._app.shown(container, want.role))
        if taken:
            self._emit(port.Allocated(tuple(taken)))
        if self._asking.unsaid:
            self._hurry = True

    def _inherit(self, answer: Allocation) -> None:
        """What earlier masters left: running, or ended and nobody was told.

        The ResourceManager lists what runs when the master registers (and, after a restart, when
        it hears of it), and ends with the first answer.
        """
        previous = [*answer.previous]
        registered, first = self._registered, self._takes_over
        if first and registered is not None:
            previous[:0] = registered.previous
        self._takes_over = False
        found = []
        for container in previous:
            role = self._asking.role_of(container.request_id)
            if self._holding.inherit(container, role) is not None:
                found.append(self._app.shown(container, role))
        for one in answer.completed if first else ():
            if self._holding.of(one.id) is None:
                found.append(port.Container(str(one.id), "", "", Resources(0, 0)))
        if found or first:
            self._emit(port.PreviousContainers(tuple(found)))

    def _explains(self, now: float) -> bool:
        """Whether it is time to say why we wait."""
        if not self._asking.outstanding:
            self._waits_since, self._words = None, ""
            return False
        if self._waits_since is None:
            self._waits_since = now
        if now - self._waits_since < FIRST_WORD_S:
            return False
        return not self._words or now - self._said_at >= WORDS_S

    def _explain(self, answer: Allocation, now: float) -> None:
        places = self._nodes.places(NODES_S)
        queue = self._registered.queue if self._registered is not None else ""
        with self._changed:
            wants, held = self._asking.outstanding, self._holding.by_role()
            seen, avoided = self._with_ours(places), self._asking.avoided
            words = pending_reasons.reason(wants, held, queue, answer.headroom, seen, avoided)
            self._said_at = now
            if wants and words != self._words:
                self._words = words
                self._emit(port.Waiting(words))

    # ------------------------------------------------------------------ from launching

    def on_started(self, container: ContainerId) -> None:
        """The node has taken it."""
        with self._changed:
            held = self._holding.of(container)
            if held is not None and not held.started:
                held.started = True
                self._emit(port.Started(str(container)))

    def on_not_started(self, container: ContainerId, why: str) -> None:
        """The node has not: it is given back."""
        with self._changed:
            held = self._holding.of(container)
            if held is not None:
                self._not_started(held, why)

    def on_seen(self, status: ContainerStatus) -> None:
        """A node's own word, which is earlier than the ResourceManager's.

        It counts for what ended by itself; why something was killed, a node does not always know.
        """
        with self._changed:
            if status.state == "COMPLETE" and 0 <= status.exit_status < 128:
                for event in self._holding.end(status):
                    self._emit(event)

    def on_stopped(self, container: ContainerId) -> None:
        """The node ends it: the ResourceManager will say so."""
        with self._changed:
            held = self._holding.of(container)
            if held is not None:
                held.stopped_at = time.monotonic()

    def on_not_stopped(self, container: ContainerId, why: str) -> None:
        """The node cannot be told; the ResourceManager will tell it when it can."""
        with self._changed:
            held = self._holding.of(container)
            if held is not None:
                self._say(f"{container} is ended through the ResourceManager: {why}")
                self._holding.release(held)
                # One that has restarted may not know it: a node that was lost before is no more.
                held.stopped_at = time.monotonic()
                self._wake()

    # ------------------------------------------------------------------ inside

    def _want(self, ask: port.Ask, now: float) -> None:
        registered = self._registered
        try:
            constraint, tags = placement_constraints.request_constraint(
                ask.role, ask.placement_spec, ask.allocation_tags, self._app.placement_spec
            )
        except placement_constraints.ConstraintError as error:
            self._emit(port.Refused(ask.role, str(error)))
            return
        if ask.count and registered is not None:
            known = [one.name for one in registered.resource_types]
            need = to_capability(ask.resources)
            why = pending_reasons.never(need, registered.maximum, known)
            if why:
                self._emit(port.Refused(ask.role, why))
                return
        self._asking.request(ask, constraint, tags, now)

    def _with_ours(self, places: Sequence[Place]) -> Sequence[Place]:
        return with_ours(places, self._holding.given(self._app.name, self._nodes.read_at))

    def _look_at_nodes(self) -> None:
        there = self._holding.running()
        if len(there) <= CLOSELY_NODES:
            for node, containers in there.items():
                self._launching.look(node, containers)

    def _stop(self, held: Held) -> None:
        """Under the lock; asked again it changes nothing."""
        if not held.asked:
            held.asked = True
            self._launching.stop(held.given.node, held.given.id)
            self._wake()

    def _not_started(self, held: Held, why: str) -> None:
        event = self._holding.never_started(held, why)
        if event is not None:
            self._emit(event)
        self._wake()

    def _emit(self, event: port.PoolEvent) -> None:
        if not self._closed:
            self._sink(event)

    def _wake(self) -> None:
        self._hurry = True
        self._changed.notify_all()

    def _join(self) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


def open_master(arguments: Any) -> Tuple[port.MasterContext, YarnPool]:
    """The pool of the master that ``yarn-start`` made of this container."""
    from tony_core.schedulers.yarn.master.pool_factory import open_here

    return open_here(arguments)

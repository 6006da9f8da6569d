"""Starts and stops containers on their nodes: a few threads, and a queue for each node.

One thread at a time talks to a node, in the order of the calls; actions that queue up meanwhile
go in one call. So a slow or dead node delays only its own containers, as long as fewer such nodes
exist than threads. Threads are created when there is work.

Results go to a :class:`LaunchListener` from these threads; after :meth:`ContainerLauncher.close`
only those of calls that were under way.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import (
    Any,
    Callable,
    Deque,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Set,
    Tuple,
)

from tony_core.hadoop.errors import HadoopError, InvalidToken
from tony_core.hadoop.tokens import Token
from tony_core.hadoop.yarn.ids import ContainerId, NodeId
from tony_core.hadoop.yarn.launch import Launch
from tony_core.hadoop.yarn.node_manager import NodeManager, NodeTokens, Started
from tony_core.hadoop.yarn.records import ContainerStatus
from tony_core.unexpected_errors import UnexpectedErrors, log_to_stderr

THREADS = 8
BATCH = 32  # containers in one call: the node answers when it has processed all
START_S = 30.0
STOP_S = 10.0
STATUS_S = 2.0
MAX_CONNECTIONS = 64  # connections kept open between calls


class LaunchListener(Protocol):
    """Takes the results of starts, stops and status calls."""

    def on_started(self, container: ContainerId) -> None:
        """The node has started the container."""

    def on_not_started(self, container: ContainerId, why: str) -> None:
        """The container will not run; it must be released."""

    def on_stopped(self, container: ContainerId) -> None:
        """The node stops the container, or it has ended already."""

    def on_not_stopped(self, container: ContainerId, why: str) -> None:
        """The node cannot be reached; the container must be released."""

    def on_status(self, status: ContainerStatus) -> None:
        """The node's report of the container."""


class NodeClient(Protocol):
    """The calls of a :class:`NodeManager` that are used here."""

    def use(self, token: Token) -> None:
        """Use another token for the node."""

    def start(
        self, launches: Sequence[Tuple[Token, Launch]], *, within_s: Optional[float] = None
    ) -> Started:
        """Start containers."""

    def stop(
        self, containers: Sequence[ContainerId], *, within_s: Optional[float] = None
    ) -> Started:
        """Stop containers."""

    def statuses(
        self, containers: Sequence[ContainerId], *, within_s: Optional[float] = None
    ) -> Tuple[Mapping[ContainerId, ContainerStatus], Mapping[ContainerId, Any]]:
        """The status of those that the node knows."""

    def close(self) -> None:
        """Close the connection."""


class _Action(NamedTuple):
    """Start one container, stop it (without a launch), or get its status."""

    container: ContainerId
    token: Optional[Token] = None
    launch: Optional[Launch] = None
    status_only: bool = False

    @property
    def kind(self) -> str:
        """Actions of one kind go into one call."""
        return "status" if self.status_only else "stop" if self.launch is None else "start"


class ContainerLauncher:
    """Starts, stops and checks containers on all nodes."""

    def __init__(
        self,
        tokens: NodeTokens,
        listener: LaunchListener,
        open_node: Callable[[NodeId, Token], NodeClient] = NodeManager,
        threads: int = THREADS,
        log: Callable[[str], None] = log_to_stderr,
    ) -> None:
        self._tokens = tokens
        self._listener = listener
        self._open_node = open_node
        self._most = threads
        self._changed = threading.Condition(threading.RLock())
        self._queues: Dict[NodeId, List[_Action]] = {}
        self._ready: Deque[NodeId] = deque()
        self._busy: Set[NodeId] = set()
        self._nodes: Dict[NodeId, NodeClient] = {}
        self._threads: List[threading.Thread] = []
        self._idle = 0
        self._closed = False
        self.faults = UnexpectedErrors(log)

    def start(self, node: NodeId, container: ContainerId, token: Token, launch: Launch) -> None:
        """Start a container; the listener gets the result."""
        self._put(node, _Action(container, token, launch))

    def stop(self, node: NodeId, container: ContainerId) -> None:
        """Stop a container, after a start of it that is still queued."""
        self._put(node, _Action(container))

    def check_status(self, node: NodeId, containers: Sequence[ContainerId]) -> None:
        """Get the status of containers unless the node is busy; errors are ignored."""
        with self._changed:
            if node not in self._busy:
                for container in containers:
                    self._put(node, _Action(container, status_only=True))

    def close(self) -> None:
        """Stop all threads; calls under way are aborted."""
        with self._changed:
            self._closed = True
            self._queues.clear()
            self._ready.clear()
            nodes = list(self._nodes.values())
            threads = list(self._threads)
            self._changed.notify_all()
        for node in nodes:
            node.close()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()
        for node in self._nodes.values():  # one that was opened in the meantime
            node.close()

    # ------------------------------------------------------------------ threads

    def _put(self, node: NodeId, task: _Action) -> None:
        with self._changed:
            if self._closed:
                return
            self._queues.setdefault(node, []).append(task)
            if node in self._busy:
                return
            self._busy.add(node)
            self._ready.append(node)
            if self._idle < len(self._ready) and len(self._threads) < self._most:
                name = f"yarn-launching-{len(self._threads) + 1}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._ready or self._closed)
                self._idle -= 1
                if self._closed:
                    return
                node = self._ready.popleft()
                tasks = self._queues.pop(node, [])
            try:
                self._do(node, tasks)
            finally:
                with self._changed:
                    if self._queues.get(node):
                        self._ready.append(node)
                        self._changed.notify()
                    else:
                        self._busy.discard(node)

    def _do(self, node: NodeId, tasks: List[_Action]) -> None:
        while tasks:
            kind = tasks[0].kind
            batch: List[_Action] = []
            while tasks and len(batch) < BATCH and tasks[0].kind == kind:
                batch.append(tasks.pop(0))
            try:
                manager = self._manager(node)
                if kind == "start":
                    self._start(manager, batch)
                elif kind == "stop":
                    self._stop(manager, batch)
                else:
                    self._check_status(manager, batch)
            except Exception as error:
                text = str(error)
                if not isinstance(
                    error, HadoopError
                ):  # these containers fail; the thread continues
                    text = self.faults.record(f"{kind} on {node}")
                for task in batch if kind != "status" else ():
                    self._failed(task, kind == "start", text)

    def _manager(self, node: NodeId) -> NodeClient:
        token = self._tokens.get(node)
        with self._changed:
            manager = self._nodes.get(node)
            if manager is None:
                if len(self._nodes) >= MAX_CONNECTIONS:
                    self._close_idle_connection()
                manager = self._nodes[node] = self._open_node(node, token)
        manager.use(token)
        return manager

    def _close_idle_connection(self) -> None:
        for node in self._nodes:
            if node not in self._busy:
                self._nodes.pop(node).close()
                return

    def _start(self, manager: NodeClient, batch: List[_Action]) -> None:
        launches = [(task.token, task.launch) for task in batch if task.token and task.launch]
        try:
            result = manager.start(launches, within_s=START_S)
        except InvalidToken:
            if len(batch) == 1:
                raise
            for task in batch:  # one bad token fails the whole call
                try:
                    self._start(manager, [task])
                except HadoopError as error:
                    self._failed(task, True, str(error))
            return
        for container in result.done:
            self._listener.on_started(container)
        for container, reason in result.failed.items():
            self._listener.on_not_started(container, str(reason))
        answered = {*result.done, *result.failed}
        for task in batch:
            if task.container not in answered:
                self._listener.on_not_started(
                    task.container, "the node's answer does not mention it"
                )

    def _stop(self, manager: NodeClient, batch: List[_Action]) -> None:
        result = manager.stop([task.container for task in batch], within_s=STOP_S)
        for container in result.done:
            self._listener.on_stopped(container)
        for container, error in result.failed.items():
            self._listener.on_not_stopped(container, str(error))

    def _check_status(self, manager: NodeClient, batch: List[_Action]) -> None:
        known, _ = manager.statuses([task.container for task in batch], within_s=STATUS_S)
        for status in known.values():
            self._listener.on_status(status)

    def _failed(self, task: _Action, starting: bool, why: str) -> None:
        with self._changed:
            if self._closed:
                return
        if starting:
            self._listener.on_not_started(task.container, why)
        else:
            self._listener.on_not_stopped(task.container, why)

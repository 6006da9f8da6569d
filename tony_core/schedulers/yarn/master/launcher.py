"""Starts and stops containers on their nodes: a few threads, a queue for each node.

A node is spoken to by one thread at a time, in the order in which things were asked for; what
gathers meanwhile goes in one call. So a slow or dead node holds up its own containers alone, up
to as many as there are threads. Threads are made when there is work.

Results go to a :class:`Listener`, from these threads; nothing comes after :meth:`Launching.close`
but what was under way.
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
from tony_core.hadoop.yarn.nm import NodeManager, NodeTokens, Started
from tony_core.hadoop.yarn.records import ContainerStatus
from tony_core.unexpected_errors import UnexpectedErrors, log_to_stderr

THREADS = 8
BATCH = 32  # containers in one call: a node answers when it has looked at each
START_S = 30.0
STOP_S = 10.0
LOOK_S = 2.0
KEPT = 64  # connections that stay open between calls


class Listener(Protocol):
    """Who is told how it went."""

    def on_started(self, container: ContainerId) -> None:
        """The node has taken it."""

    def on_not_started(self, container: ContainerId, why: str) -> None:
        """It will not run; it has to be given back."""

    def on_stopped(self, container: ContainerId) -> None:
        """The node ends it, or it has ended before."""

    def on_not_stopped(self, container: ContainerId, why: str) -> None:
        """The node could not be told; the ResourceManager has to."""

    def on_seen(self, status: ContainerStatus) -> None:
        """What the node says of it."""


class Node(Protocol):
    """What is used of a :class:`NodeManager`."""

    def use(self, token: Token) -> None:
        """The node's token has changed."""

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
        """How they do, of those that the node knows."""

    def close(self) -> None:
        """Give back the connection."""


class _Task(NamedTuple):
    """To start one container, or to stop it (nothing to launch), or only to look at it."""

    container: ContainerId
    token: Optional[Token] = None
    launch: Optional[Launch] = None
    look: bool = False

    @property
    def kind(self) -> str:
        """What goes into one call."""
        return "look" if self.look else "stop" if self.launch is None else "start"


class Launching:
    """See the module."""

    def __init__(
        self,
        tokens: NodeTokens,
        listener: Listener,
        open_node: Callable[[NodeId, Token], Node] = NodeManager,
        threads: int = THREADS,
        log: Callable[[str], None] = log_to_stderr,
    ) -> None:
        self._tokens = tokens
        self._listener = listener
        self._open_node = open_node
        self._most = threads
        self._changed = threading.Condition(threading.RLock())
        self._tasks: Dict[NodeId, List[_Task]] = {}
        self._ready: Deque[NodeId] = deque()
        self._busy: Set[NodeId] = set()
        self._nodes: Dict[NodeId, Node] = {}
        self._threads: List[threading.Thread] = []
        self._idle = 0
        self._closed = False
        self.faults = UnexpectedErrors(log)

    def start(self, node: NodeId, container: ContainerId, token: Token, launch: Launch) -> None:
        """Start a container; the listener hears how that went."""
        self._put(node, _Task(container, token, launch))

    def stop(self, node: NodeId, container: ContainerId) -> None:
        """Stop a container, after a start of it that is still waiting."""
        self._put(node, _Task(container))

    def look(self, node: NodeId, containers: Sequence[ContainerId]) -> None:
        """Ask how containers do, unless the node has something else to do; errors are nobody's."""
        with self._changed:
            if node not in self._busy:
                for container in containers:
                    self._put(node, _Task(container, look=True))

    def close(self) -> None:
        """No call after this; those under way are ended."""
        with self._changed:
            self._closed = True
            self._tasks.clear()
            self._ready.clear()
            nodes = list(self._nodes.values())
            threads = list(self._threads)
            self._changed.notify_all()
        for node in nodes:
            node.close()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()
        for node in self._nodes.values():  # one that was opened meanwhile
            node.close()

    # ------------------------------------------------------------------ threads

    def _put(self, node: NodeId, task: _Task) -> None:
        with self._changed:
            if self._closed:
                return
            self._tasks.setdefault(node, []).append(task)
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
                tasks = self._tasks.pop(node, [])
            try:
                self._do(node, tasks)
            finally:
                with self._changed:
                    if self._tasks.get(node):
                        self._ready.append(node)
                        self._changed.notify()
                    else:
                        self._busy.discard(node)

    def _do(self, node: NodeId, tasks: List[_Task]) -> None:
        while tasks:
            kind = tasks[0].kind
            batch: List[_Task] = []
            while tasks and len(batch) < BATCH and tasks[0].kind == kind:
                batch.append(tasks.pop(0))
            try:
                manager = self._manager(node)
                if kind == "start":
                    self._start(manager, batch)
                elif kind == "stop":
                    self._stop(manager, batch)
                else:
                    self._look(manager, batch)
            except Exception as error:
                text = str(error)
                if not isinstance(error, HadoopError):  # these containers fail, the thread goes on
                    text = self.faults.record(f"{kind} on {node}")
                for task in batch if kind != "look" else ():
                    self._failed(task, kind == "start", text)

    def _manager(self, node: NodeId) -> Node:
        token = self._tokens.get(node)
        with self._changed:
            manager = self._nodes.get(node)
            if manager is None:
                if len(self._nodes) >= KEPT:
                    self._close_an_idle_one()
                manager = self._nodes[node] = self._open_node(node, token)
        manager.use(token)
        return manager

    def _close_an_idle_one(self) -> None:
        for node in self._nodes:
            if node not in self._busy:
                self._nodes.pop(node).close()
                return

    def _start(self, manager: Node, batch: List[_Task]) -> None:
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
        spoken = {*result.done, *result.failed}
        for task in batch:
            if task.container not in spoken:
                self._listener.on_not_started(task.container, "the node did not look at it")

    def _stop(self, manager: Node, batch: List[_Task]) -> None:
        result = manager.stop([task.container for task in batch], within_s=STOP_S)
        for container in result.done:
            self._listener.on_stopped(container)
        for container, error in result.failed.items():
            self._listener.on_not_stopped(container, str(error))

    def _look(self, manager: Node, batch: List[_Task]) -> None:
        known, _ = manager.statuses([task.container for task in batch], within_s=LOOK_S)
        for status in known.values():
            self._listener.on_seen(status)

    def _failed(self, task: _Task, starting: bool, why: str) -> None:
        with self._changed:
            if self._closed:
                return
        if starting:
            self._listener.on_not_started(task.container, why)
        else:
            self._listener.on_not_stopped(task.container, why)

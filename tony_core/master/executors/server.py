"""The master's end of the executors' connections: messages in, events out.

A connection belongs to no container until its first authenticated message, a Register that names a
container of this job. From then on every message is an event of the session machine, telemetry for
the page (measures, what is served), or only a sign of life. A second connection of the same
container replaces the first: the executor knows better which one works.

This module answers repeated messages whose answer is known: an acknowledged end is acknowledged
again and goes no further, until that container is prepared for the same program again (which then
ends again). An executor whose container is not this job's (any more) gets a Shutdown.
"""

from __future__ import annotations

import binascii
import resource
import socket
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Set, Tuple, Type

from tony_core.exit_causes import ExitCause, parse_cause
from tony_core.master.executors.liveness import Liveness
from tony_core.master.executors.message_limits import MOST_BYTES, SESSIONS, MessageLimits
from tony_core.master.session.events import ExecutorReported
from tony_core.protocol.channel import Channel
from tony_core.protocol.codec import ProtocolError, decode_record
from tony_core.protocol.handshake_limiter import HandshakeLimiter
from tony_core.protocol.job_secret import transport_factory, unpack_secret
from tony_core.protocol.link import Link, Listener, dial
from tony_core.protocol.messages import (
    STREAM_TO_MASTER,
    Acknowledge,
    Ended,
    Heartbeat,
    Measured,
    Message,
    Noted,
    Ping,
    Prepare,
    Ready,
    Register,
    Reported,
    Running,
    Serving,
    Shutdown,
    StacksDumped,
    Stalled,
    Stopped,
    Tokens,
    Welcome,
)
from tony_core.protocol.reactor import Reactor, Timer
from tony_core.schedulers.container_pool import ContainerPool

REGISTER_S = 15.0  # from a connection's handshake to its Register
BACKLOG = 65535  # of the listener; the kernel (net.core.somaxconn) lowers it
MOST_UNREGISTERED = 512  # and at most a quarter of the descriptors of this process


class ExecutorListener(Protocol):
    """Takes what executors send."""

    def report(self, event: ExecutorReported) -> None:
        """Take an event of the session machine."""

    def address(self, container_id: str, address: str) -> None:
        """Take the ``HOST:PORT`` where a next master may call the executor."""

    def measured(self, container_id: str, session: int, values: Mapping[str, float]) -> None:
        """Take measures of a task."""

    def keep_heartbeat_gap(self, container_id: str, gap_s: float) -> None:
        """Take the time between two messages: its longest, and a notable part of the allowance."""

    def serving(self, container_id: str, message: Serving, host: str) -> None:
        """Take the state of a web server beside the program; ``host`` is the executor's."""

    def noted(self, container_id: str, message: Noted) -> None:
        """Take a line for the story."""

    def disconnected(self, container_id: str) -> None:
        """Take the end of an executor's connection; it may reconnect within its allowance."""

    def stream(self, container_id: str, message: Message) -> None:
        """Take a message of a stream that a client has opened."""


class ExecutorServer:
    """The master's end of every connection to an executor."""

    def __init__(
        self,
        reactor: Reactor,
        secret: bytes,
        liveness: Liveness,
        listener: ExecutorListener,
        log: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._key = unpack_secret(secret)
        self._make_transport = transport_factory(self._key, master=True)
        self._liveness = liveness
        self._to = listener
        self._log = log
        self._known: Set[str] = set()  # containers of ours that have not ended
        self._leaving: Set[str] = set()  # those that got a Shutdown
        self._links: Dict[str, Link] = {}
        self._owner: Dict[Link, str] = {}
        self._hosts: Dict[str, str] = {}
        self._nodes: Dict[str, str] = {}  # the numeric address that each calls from
        self._unregistered: Dict[Link, Any] = {}  # connections without a Register -> their timer
        self._acknowledged: Dict[str, Set[Tuple[int, int]]] = {}  # session, restart
        self._limits: Dict[str, MessageLimits] = {}
        self._outsiders = MessageLimits()  # of those that have no container here
        self._listener: Optional[Listener] = None
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = max(8, min(MOST_UNREGISTERED, soft // 4)) if soft > 0 else MOST_UNREGISTERED
        self.limiter = HandshakeLimiter(reactor, most, log)
        self._welcome: Welcome
        self._tokens: Optional[Tokens] = None  # the newest; none before the first fetch
        self._pinger: Optional[Timer] = None
        self._handlers: Dict[Type[Any], Callable[[str, Any], None]] = {
            Ready: self._ready,
            Running: self._report,
            Ended: self._ended,
            Stopped: self._stopped,
            Heartbeat: lambda container_id, message: None,
            Measured: lambda cid, m: self._to.measured(cid, m.session, m.values),
            Reported: self._report,
            Serving: lambda cid, m: self._to.serving(cid, m, self._hosts.get(cid, "")),
            Stalled: self._report,
            StacksDumped: self._report,
            Noted: lambda cid, m: self._to.noted(cid, m),
            **dict.fromkeys(STREAM_TO_MASTER, lambda cid, m: self._to.stream(cid, m)),
        }

    # ------------------------------------------------------------------ connections

    def listen(self, host: str, welcome: Welcome) -> int:
        """Open a port for executors, each of which is greeted with ``welcome``; return the port."""
        self._welcome = welcome
        self._ping_later()
        self._listener = self.limiter.listen(host, 0, self.accept, backlog=BACKLOG)
        return self._listener.port

    def accept(self, sock: socket.socket) -> None:
        """Take a new connection, for the handshake first."""
        channel = self._channel(dialler=False)
        self.limiter.add(
            Link(
                self._reactor,
                self._make_transport(sock),
                channel,
                self._received,
                self._lost,
                self._established,
            )
        )

    def call(
        self, address: str, connected: Callable[[], None], failed: Callable[[str], None]
    ) -> None:
        """Call an executor of the previous attempt; one of the two callbacks follows."""

        def closed(link: Link, reason: str) -> None:
            known = link in self._owner or link in self._unregistered
            self._lost(link, reason)
            if not known:
                failed(reason)

        def established(link: Link) -> None:
            self._established(link)
            connected()

        def on_socket(sock: socket.socket) -> None:
            channel = self._channel(dialler=True)
            Link(
                self._reactor,
                self._make_transport(sock),
                channel,
                self._received,
                closed,
                established,
            )

        dial(self._reactor, address, on_socket, failed)

    def _channel(self, dialler: bool) -> Channel:
        return Channel(self._key.secret, dialler, binding=self._key.fingerprint, largest=MOST_BYTES)

    def expect(self, container_id: str) -> None:
        """Note a container of this job, whose executor may connect."""
        self._known.add(container_id)

    def drop(self, container_id: str) -> None:
        """Close the connection of an executor that counts as lost."""
        link = self._links.pop(container_id, None)
        if link is not None:
            self._owner.pop(link, None)
            link.close()

    def forget(self, container_id: str) -> None:
        """Close the connection of a container that has ended, and forget all about it."""
        self.drop(container_id)
        self._known.discard(container_id)
        self._leaving.discard(container_id)
        self._hosts.pop(container_id, None)
        self._nodes.pop(container_id, None)
        self._liveness.forget(container_id)
        self._acknowledged.pop(container_id, None)
        self._limits.pop(container_id, None)

    def nodes(self) -> List[str]:
        """List the numeric addresses of the executors' nodes. Thread-safe."""
        return list(self._nodes.values())

    def is_connected(self, container_id: str) -> bool:
        return container_id in self._links

    def send(
        self, container_id: str, message: Message, raw: Optional[Mapping[str, bytes]] = None
    ) -> bool:
        """Send a message; return False where there is no connection.

        The session machine repeats what matters when the executor registers again.
        """
        link = self._links.get(container_id)
        if link is None:
            return False
        if isinstance(message, Prepare) and container_id in self._acknowledged:
            self._acknowledged[container_id].discard((message.session, message.restart))
        elif isinstance(message, Shutdown):
            self._leaving.add(container_id)
        link.send(message, raw or {})
        return True

    def send_tokens(self, content: bytes) -> None:
        """Give all executors this content of their token file: now, and whenever one registers."""
        if not self._key.fingerprint:
            raise ProtocolError("tokens are sent over TLS only (tony.task.tls)", fault="local")
        text = binascii.b2a_base64(content, newline=False).decode("ascii")
        self._tokens = Tokens(text)
        for link in list(self._links.values()):
            link.send(self._tokens)

    def acknowledge(self, container_id: str, session: int, restart: int = 0) -> None:
        """Note that an end is in the journal, and tell the executor if it is connected."""
        known = self._acknowledged.setdefault(container_id, set())
        if len(known) >= SESSIONS:
            known.clear()  # repeated ends go to the session machine again
        known.add((session, restart))
        self.send(container_id, Acknowledge(session, restart))

    def close(self) -> None:
        if self._pinger is not None:
            self._pinger.cancel()
        if self._listener is not None:
            self._listener.close()
        self.limiter.close()
        for link in [*self._links.values(), *self._unregistered]:
            link.close()
        for timer in self._unregistered.values():
            timer.cancel()
        self._links.clear()
        self._unregistered.clear()
        self._owner.clear()

    # ------------------------------------------------------------------ from the links

    def _established(self, link: Link) -> None:
        self.limiter.remove(link)
        self._unregistered[link] = self._reactor.call_later(REGISTER_S, self._expire, link)

    def _expire(self, link: Link) -> None:
        del self._unregistered[link]
        self._log_about(None, f"{link.peer}: closed: no Register within {REGISTER_S:g} s")
        link.close()

    def _lost(self, link: Link, reason: str) -> None:
        if self.limiter.closed(link, reason):
            return
        timer = self._unregistered.pop(link, None)
        if timer is not None:
            timer.cancel()
        container_id = self._owner.pop(link, None)
        if container_id is not None and self._links.get(container_id) is link:
            del self._links[container_id]
            self._liveness.closed(
                container_id, self._reactor.now(), f"the connection was lost ({reason})"
            )
            if container_id not in self._leaving:
                self._log_about(container_id, f"{container_id}: connection lost: {reason}")
            self._to.disconnected(container_id)

    def _received(self, link: Link, message: Message) -> None:
        try:
            self._take(link, message)
        except ProtocolError as error:
            container_id = self._owner.get(link)
            self._log_about(container_id, f"{container_id or link.peer}: closed: {error}")
            link.close()
            self._lost(link, str(error))

    def _take(self, link: Link, message: Message) -> None:
        if isinstance(message, Register):
            if not link.speaks_for(message.container_id):
                raise ProtocolError("its Register names a container that it is not")
            bounds = self._limits_of(message.container_id)
            ended = None if message.ended is None else decode_record(Ended, message.ended)
            self._register(link, bounds.admit_first(message), ended and bounds.admit(ended))
            return
        container_id = self._owner.get(link)
        handler = self._handlers.get(type(message))
        if container_id is None or handler is None:
            when = "before Register" if container_id is None else "is not for a master"
            raise ProtocolError(f"{type(message).__name__} {when}")
        gap = self._liveness.note_message(container_id, self._reactor.now())
        if gap is not None:
            self._to.keep_heartbeat_gap(container_id, gap)
        admitted = self._limits_of(container_id).admit(message)
        if admitted is not None:
            handler(container_id, admitted)

    def _limits_of(self, container_id: str) -> MessageLimits:
        if container_id not in self._known:
            return self._outsiders
        return self._limits.setdefault(container_id, MessageLimits())

    def _log_about(self, container_id: Optional[str], text: str) -> None:
        bounds = self._outsiders if container_id is None else self._limits_of(container_id)
        if bounds.admits_line():
            self._log(text)

    def _register(self, link: Link, message: Register, ended: Optional[Ended]) -> None:
        timer = self._unregistered.pop(link, None)
        if timer is not None:
            timer.cancel()
        container_id = message.container_id
        if container_id not in self._known:
            self._log_about(
                None, f"{container_id}: not a container of this job (any more): shut down"
            )
            link.send(Shutdown(0.0, "this job has no such container (any more)"))
            link.flush_then_close()
            return
        old = self._links.get(container_id)
        self._links[container_id] = link
        self._owner[link] = container_id
        self._hosts[container_id] = message.host
        self._nodes[container_id] = link.peer.rpartition(":")[0]
        if old is not None and old is not link:
            self._owner.pop(old, None)
            old.close()
        self._liveness.note_message(container_id, self._reactor.now())
        host = message.listen_host or message.host
        shown = f"[{host}]" if ":" in host else host
        address = f"{shown}:{message.listen_port}"
        if message.listen_port:
            self._to.address(container_id, address)
        link.send(self._welcome)
        if self._tokens is not None:
            link.send(self._tokens)  # before any command: a program starts with them
        self._report(container_id, message)
        if ended is not None and self._links.get(container_id) is link:
            self._ended(container_id, ended)

    # ------------------------------------------------------------------ messages to events

    def _ready(self, container_id: str, m: Ready) -> None:
        self._hosts[container_id] = m.host
        self._report(container_id, m)

    def _report(self, container_id: str, m: Any) -> None:
        self._to.report(ExecutorReported(container_id, m))

    def _ended(self, container_id: str, m: Ended) -> None:
        if (m.session, m.restart) in self._acknowledged.get(container_id, ()):
            self.send(container_id, Acknowledge(m.session, m.restart))
            return
        if parse_cause(m.cause) is ExitCause.UNKNOWN:
            text = f"its executor reported the unknown exit cause {m.cause!r}"
            self._to.noted(container_id, Noted("warning", text, "unknown-exit-cause"))
        self._report(container_id, m)

    def _stopped(self, container_id: str, m: Stopped) -> None:
        if m.survivors:
            self._log_about(container_id, f"{container_id}: session {m.session} left {m.survivors}")
        self._report(container_id, m)

    def _ping(self) -> None:
        """Ping each executor, so that it knows that an idle connection is alive."""
        for link in list(self._links.values()):
            link.send(Ping())
        self._ping_later()

    def _ping_later(self) -> None:
        pause = max(0.05, self._liveness.silence_s / 4)
        self._pinger = self._reactor.call_later(pause, self._ping)


def distribute_tokens(content: bytes, pool: ContainerPool, executors: ExecutorServer) -> None:
    """Replace the job's tokens by fresh ones, wherever the job has them. On the reactor's thread.

    ``content`` is a file of Hadoop credentials, as a fetch gives it. The pool comes first: a
    container that is launched in between has the fresh ones already. It takes them for its
    launches, its calls, and the master's own files (journal, history, leases of the store).
    """
    executors.send_tokens(pool.renew_tokens(content))

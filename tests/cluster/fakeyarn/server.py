"""One thread for all sockets and all clocks of the fake, and one lock around all that it does.

A thousand NodeManagers listen on one socket: it is bound to every address of this machine, and
the address that a client called says which of them was meant.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from tests.cluster.fakeyarn.wire import TRACE, Call, Fault, ServerWire
from tony_core.hadoop.rpc.protobuf import Message

Handler = Callable[[str, Call], Union[Message, bytes]]
"""Answers a call that came to an address; a :class:`Fault` is an answer too."""

LOSE, DROP, SILENCE = "lose", "drop", "silence"
"""What may happen to a call: done and the answer lost with the connection; the connection lost
before anything was done; done and never answered."""


class Dead(Exception):
    """Who was called is not there: the connection breaks."""


@dataclass
class Service:
    """What listens at a port."""

    handler: Handler
    make_wire: Callable[[], ServerWire]
    intercept: Optional[Callable[[str, Call], Optional[str]]] = None
    calls: Dict[str, int] = field(default_factory=dict)  # by method
    accepted: int = 0


@dataclass
class _Connection:
    service: Service
    sock: socket.socket
    wire: ServerWire
    host: str  # the address of ours that was called
    out: bytearray = field(default_factory=bytearray)
    closing: bool = False


class Reactor:
    """The thread. Everything it calls, it calls with ``lock`` held."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._selector = selectors.DefaultSelector()
        self._listening: Dict[int, Tuple[socket.socket, Service]] = {}
        self._connections: Dict[socket.socket, _Connection] = {}
        self._timers: List[Tuple[float, int, Callable[[], Any]]] = []
        self._numbers = itertools.count()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._stopping = False
        self.failures: List[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="fakeyarn")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Nothing of it is left after this."""
        self._stopping = True
        self._wake()
        self._thread.join(10)
        assert not self._thread.is_alive()
        for sock in [*self._connections, *(sock for sock, _ in self._listening.values())]:
            sock.close()
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()

    def later(self, seconds: float, what: Callable[[], Any]) -> None:
        """Once, from the thread."""
        with self.lock:
            entry = (time.monotonic() + seconds, next(self._numbers), what)
            heapq.heappush(self._timers, entry)
        self._wake()

    # ---------------------------------------------------------------- ports

    def listen(self, service: Service, host: str = "127.0.0.1", port: int = 0) -> int:
        """The port at which the service is."""
        sock = socket.create_server((host, port), backlog=1024)
        sock.setblocking(False)
        number: int = sock.getsockname()[1]
        with self.lock:
            self._listening[number] = (sock, service)
            self._selector.register(sock, selectors.EVENT_READ, service)
        self._wake()
        return number

    def unlisten(self, port: int) -> None:
        """Nothing is at this port any more, and its connections end."""
        with self.lock:
            sock, service = self._listening.pop(port)
            self._selector.unregister(sock)
            sock.close()
            self.disconnect(service)

    def disconnect(self, service: Service, host: Optional[str] = None) -> None:
        """As a server that dies; of one address only, if it is given."""
        with self.lock:
            for connection in list(self._connections.values()):
                if connection.service is service and host in (None, connection.host):
                    self._close(connection)

    # ---------------------------------------------------------------- the thread

    def _wake(self) -> None:
        try:
            self._wake_out.send(b"\0")
        except OSError:
            pass  # it is over

    def _run(self) -> None:
        while not self._stopping:
            wait = None
            with self.lock:
                if self._timers:
                    wait = max(0.0, self._timers[0][0] - time.monotonic())
            for key, events in self._selector.select(wait):
                with self.lock:
                    self._guard(self._ready, key, events)
            with self.lock:
                self._due()

    def _guard(self, what: Callable[..., Any], *words: Any) -> None:
        """An error of the fake's own does not end it: the test that made it looks here."""
        try:
            what(*words)
        except Exception as error:
            self.failures.append(error)

    def _due(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            self._guard(heapq.heappop(self._timers)[2])

    def _ready(self, key: selectors.SelectorKey, events: int) -> None:
        if key.fileobj is self._wake_in:
            self._wake_in.recv(4096)
        elif isinstance(key.data, Service):
            self._accept(key.fileobj, key.data)
        elif isinstance(key.data, _Connection) and key.data.sock in self._connections:
            if events & selectors.EVENT_READ:
                self._read(key.data)
            if events & selectors.EVENT_WRITE and key.data.sock in self._connections:
                self._write(key.data)

    def _accept(self, listening: Any, service: Service) -> None:
        for _ in range(64):
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, OSError):
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            service.accepted += 1
            host = sock.getsockname()[0]
            connection = _Connection(service, sock, service.make_wire(), host)
            self._connections[sock] = connection
            self._selector.register(sock, selectors.EVENT_READ, connection)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(connection)
            return
        for call in connection.wire.receive(data):
            if connection.sock not in self._connections:
                return  # a call before this one ended it
            self._call(connection, call)
        connection.closing = connection.closing or connection.wire.over
        if connection.sock in self._connections:
            self._write(connection)

    def _call(self, connection: _Connection, call: Call) -> None:
        service = connection.service
        service.calls[call.method] = service.calls.get(call.method, 0) + 1
        fate = service.intercept(connection.host, call) if service.intercept else None
        if fate == DROP:
            self._close(connection)
            return
        try:
            answer = service.handler(connection.host, call)
        except Dead:
            self._close(connection)
            return
        except Fault as fault:
            if not fate:
                connection.wire.refuse(call, fault.remote_class, fault.text + TRACE)
        else:
            if not fate:
                connection.wire.answer(call, answer)
        if fate == LOSE:
            self._close(connection)

    def _write(self, connection: _Connection) -> None:
        connection.out += connection.wire.outgoing()
        try:
            while connection.out:
                sent = connection.sock.send(connection.out)
                del connection.out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._close(connection)
            return
        if connection.closing and not connection.out:
            self._close(connection)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.out else 0)
        self._selector.modify(connection.sock, wanted, connection)

    def _close(self, connection: _Connection) -> None:
        if self._connections.pop(connection.sock, None) is not None:
            self._selector.unregister(connection.sock)
            connection.sock.close()

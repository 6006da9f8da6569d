"""Tunnels of clients, below ``/tunnel/`` of the job's page (:mod:`tony_core.protocol.tunnel`).

Not behind the page's gate: who proves to hold the client key is the job's owner, whichever way
the requests came; who does not gets 88 bytes of handshake, one of few places, and some seconds. A
loopback page refuses other users of the machine before anything is read, as it does for all.

A request that comes late, for a position that is long passed, is refused and ends nothing. One
that waits for bytes is answered when there are some. Behind a cluster's proxy none
waits (:mod:`tony_core.master.web.routes` has the reason), and a connection ends with its answer:
the proxy opens one for each request, and leaves it open.
"""

from __future__ import annotations

import binascii
import json
import os
from collections import Counter
from typing import Dict, List, Optional

from tony_core.master.streams import StreamTable
from tony_core.master.web.proxy_gate import ProxyGate, user_of
from tony_core.master.web.request import BadRequest, Request, seconds, whole_number
from tony_core.master.web.server import SMALL_BODY, Exchange, Response
from tony_core.protocol.channel import Channel
from tony_core.protocol.codec import ProtocolError
from tony_core.protocol.messages import Message, Ping
from tony_core.protocol.reactor import GuardedReactor, Reactor, Timer
from tony_core.protocol.tunnel import (
    CLIENT,
    PING_S,
    PREFIX,
    ReceivedBytes,
    SentBytes,
    TunnelBroken,
)

MOST_OPEN = 16
MOST_UNPROVED = 64  # a handshake takes milliseconds: none is pushed out by a few calls a second
HANDSHAKE_S = 15.0
SILENT_S = 30.0  # without a request, a client counts as gone
GONE_S = 5.0  # the same, after the end of a connection in which a request waited
LONGEST_WAIT_S = 20.0
UNPROVED_WAIT_S = 1.0  # of who has proved nothing yet
LARGEST = 256 * 1024  # of one message of a client's
LARGEST_BODY = 512 * 1024  # of one request, in base64
LARGEST_ANSWER = 512 * 1024
_HEAD = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Tunnels:
    """Answers the requests of all tunnels."""

    def __init__(
        self,
        reactor: Reactor,
        secret: bytes,
        streams: StreamTable,
        gate: Optional[ProxyGate],  # None: no request comes by a proxy
    ) -> None:
        self._reactor = reactor
        self._secret = secret
        self._streams = streams
        self._gate = gate
        self._tunnels: Dict[str, _Tunnel] = {}
        self._closed = False

    def handle(self, exchange: Exchange) -> bool:
        """Answer one request below ``/tunnel/``; whether the job's owner asks."""
        words = exchange.request.path[len(PREFIX) :].split("/")
        if "once" in exchange.request.query:
            exchange.close_after()
        method = exchange.request.method
        try:
            if words == ["new"] and method == "PUT":
                if self._gate is not None:
                    self._gate.identify_soon(exchange, self._open)
                else:
                    self._open(exchange)
            elif len(words) == 2:
                self._pass_on(exchange, words[0], method, words[1])
            else:
                raise BadRequest(404, "there is no such tunnel")
        except ProtocolError as error:
            tunnel = self._tunnels.get(words[0])
            if tunnel is not None and not isinstance(error, TunnelBroken):
                tunnel.end(str(error))
            raise BadRequest(410, str(error)) from None
        tunnel = self._tunnels.get(words[0])
        return tunnel is not None and tunnel.established

    def body_limit(self, request: Request) -> int:
        """The bytes of a body that are taken: few of who does not name an open tunnel."""
        tunnel = self._tunnels.get(request.path[len(PREFIX) :].partition("/")[0])
        return LARGEST_BODY if tunnel is not None and tunnel.established else SMALL_BODY

    def close(self, reason: str) -> None:
        """End all tunnels: the job has ended."""
        self._closed = True
        self._streams.close_all(reason)
        for tunnel in list(self._tunnels.values()):
            tunnel.end_soon(reason)

    @property
    def closed(self) -> bool:
        """Whether the job has ended."""
        return self._closed

    def forget(self, tunnel: _Tunnel) -> None:
        """Take the end of a tunnel, once or more often."""
        if self._tunnels.pop(tunnel.name, None) is not None:
            self._streams.client_gone(tunnel)

    def _open(self, exchange: Exchange) -> None:
        if self._closed:
            raise BadRequest(503, "the job is ending")
        if sum(tunnel.established for tunnel in self._tunnels.values()) >= MOST_OPEN:
            raise BadRequest(503, f"the job has {MOST_OPEN} tunnels already; end some")
        peer = exchange.peer()
        if self._is_proxied(exchange):  # which all users come by, and which names them
            peer += f" {user_of(exchange.request.headers.get('cookie', ''))}"
        unproved = [tunnel for tunnel in self._tunnels.values() if not tunnel.established]
        if len(unproved) >= MOST_UNPROVED:
            # The oldest of who has the most: one peer cannot keep out the others.
            most = Counter(tunnel.peer for tunnel in unproved).most_common(1)[0][0]
            next(each for each in unproved if each.peer == most).end(
                "newer connections took its place"
            )
        name = os.urandom(16).hex()
        channel = Channel(
            self._secret, dialler=False, binding=b"tunnel " + name.encode(), largest=LARGEST
        )
        self._tunnels[name] = _Tunnel(name, peer, self._reactor, channel, self, self._streams)
        _answer(exchange, {"tunnel": name})

    def _pass_on(self, exchange: Exchange, name: str, method: str, verb: str) -> None:
        tunnel = self._tunnels.get(name)
        if tunnel is None:
            raise BadRequest(410, "this tunnel has ended")
        query = exchange.request.query
        if (method, verb) == ("PUT", "end"):
            tunnel.end("closed by the client")
            _answer(exchange, {})
            return
        at = whole_number(query.get("at", ""), "at")
        if (method, verb) == ("PUT", "up"):
            body = exchange.request.body
            try:
                data = binascii.a2b_base64(body)
            except ValueError:
                raise BadRequest(400, "the body is no base64") from None
            _answer(exchange, {"next": tunnel.receive(at, data)})
        elif (method, verb) == ("GET", "down"):
            wait = min(tunnel.longest_wait_s, seconds(query.get("wait", "0"), "wait"))
            tunnel.fetch(exchange, at, 0.0 if self._is_proxied(exchange) else wait)
        else:
            raise BadRequest(404, "there is no such request of a tunnel")
        if tunnel.established:
            exchange.trust()

    def _is_proxied(self, exchange: Exchange) -> bool:
        # The request that opened the tunnel has had the proxies looked up.
        return self._gate is not None and self._gate.is_proxy(exchange.peer())


class _Tunnel:
    """One client's tunnel."""

    def __init__(
        self,
        name: str,
        peer: str,
        reactor: Reactor,
        channel: Channel,
        tunnels: Tunnels,
        streams: StreamTable,
    ) -> None:
        self.name = name
        self.peer = peer
        self._reactor = reactor = GuardedReactor(reactor, self._failed)
        self._channel = channel
        self._tunnels = tunnels
        self._streams = streams
        self._up = ReceivedBytes()
        self._down = SentBytes()
        self._waiting: Optional[Exchange] = None
        self._wait_timer: Optional[Timer] = None
        self._wake_timer: Optional[Timer] = None
        self._ping_timer: Optional[Timer] = None
        self._ended = ""
        self._deadline = reactor.call_later(HANDSHAKE_S, self.end, "no handshake")

    def _failed(self, error: Exception) -> bool:
        self.end(f"a fault of tony's own: {type(error).__name__}")
        return True

    @property
    def established(self) -> bool:
        """Whether the client has proved to be the job's owner."""
        return self._channel.established

    @property
    def longest_wait_s(self) -> float:
        """How long a request may wait for bytes."""
        return LONGEST_WAIT_S if self.established else UNPROVED_WAIT_S

    def receive(self, at: int, data: bytes) -> int:
        """Take the client's bytes; returns the position of what it should send next."""
        fresh = self._up.accept(at, data)
        before = self.established
        messages: List[Message] = self._channel.receive(fresh) if fresh else []
        if self.established and not before and not self._channel.speaks_for(CLIENT):
            # An executor's key opens no tunnel: a program can read it.
            raise ProtocolError("the peer does not know this job's client key")
        if self.established and not before:
            self._ping()
        self._renew(SILENT_S)
        for message in messages:
            if not self._ended:
                self._streams.from_client(self, message)
        if self._channel.failure is not None:
            raise self._channel.failure
        self._wake_soon()
        return self._up.next

    def send(self, message: Message) -> None:
        """Send to the client."""
        if self._ended:
            return
        self._channel.send(message)
        self._wake_soon()

    def _ping(self) -> None:
        self.send(Ping())
        self._ping_timer = self._reactor.call_later(PING_S, self._ping)

    def fetch(self, exchange: Exchange, at: int, wait_s: float) -> None:
        """Answer with what the client has not got, waiting for some."""
        self._answer_waiting()  # one request waits at most: the newest
        self._fill()
        data = self._down.read(at, LARGEST_ANSWER)
        self._renew(SILENT_S)
        if data or wait_s <= 0 or self._ended:
            exchange.answer(Response(200, data, "application/octet-stream", _HEAD))
            return
        self._waiting = exchange
        self._wait_timer = exchange.reactor.call_later(wait_s, self._answer_waiting)
        exchange.on_gone = self._gone

    def end(self, reason: str) -> None:
        """End it now."""
        self._ended = self._ended or reason
        self._deadline.cancel()
        for timer in (self._wake_timer, self._ping_timer):
            if timer is not None:
                timer.cancel()
        self._answer_waiting()
        self._tunnels.forget(self)

    def end_soon(self, reason: str) -> None:
        """End it when the client has fetched what was sent, or after a moment."""
        self._wake()
        self._deadline.cancel()
        self._deadline = self._reactor.call_later(GONE_S, self.end, reason)

    def _renew(self, seconds_left: float) -> None:
        if self.established and not self._tunnels.closed:
            self._deadline.cancel()
            self._deadline = self._reactor.call_later(
                seconds_left, self.end, f"the client was silent for {seconds_left:g} s"
            )

    def _gone(self) -> None:
        self._waiting = None
        if self._wait_timer is not None:
            self._wait_timer.cancel()
        self._renew(GONE_S)

    def _fill(self) -> None:
        data = self._channel.outgoing()
        if data:
            self._down.write(data)

    def _wake_soon(self) -> None:
        # Not at once: what is sent together is fetched together.
        if self._wake_timer is None or not self._wake_timer.active:
            self._wake_timer = self._reactor.call_later(0, self._wake)

    def _wake(self) -> None:
        try:
            self._fill()
        except ProtocolError as error:
            self.end(str(error))
            return
        if self._down.end > self._down.start:
            self._answer_waiting()

    def _answer_waiting(self) -> None:
        exchange, self._waiting = self._waiting, None
        if self._wait_timer is not None:
            self._wait_timer.cancel()
            self._wait_timer = None
        if exchange is not None:
            exchange.on_gone = None
            data = self._down.read(self._down.start, LARGEST_ANSWER)
            exchange.answer(Response(200, data, "application/octet-stream", _HEAD))


def _answer(exchange: Exchange, content: Dict[str, object]) -> None:
    exchange.answer(Response(200, json.dumps(content).encode(), "application/json", _HEAD))

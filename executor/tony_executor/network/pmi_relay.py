"""The PMI relay between an MPI rank and the master's PMI server: ranks survive the master.

MPICH needs its PMI server in MPI_Init, and again in MPI_Finalize, where it crashes without one.
The server is in the master. So the program gets the address of this relay instead. The relay
forwards everything while the master is there. Afterwards it answers the last commands of a rank
that is done: a barrier opens, a finalize is acknowledged. It refuses everything else, so that a
rank that has not passed MPI_Init fails instead of training without its peers.

An abort without a master closes the connection: MPICH then crashes at its end, and the executor
reports a failure to the next master, not a success.

PMI has no secret, and every user of the node reaches the loopback address: the relay asks the
kernel who owns the caller's socket, and admits only this user's.
"""

from __future__ import annotations

import os
import socket
from typing import Callable, Dict, List, Optional, Set

from tony_core.loopback import loopback_address
from tony_core.protocol.link import Dial, dial, listen
from tony_core.protocol.reactor import GuardedReactor, Reactor
from tony_core.protocol.socket_owners import SocketTable, Unavailable

_MAX_BUFFERED = 1 << 20
_LONGEST_LINE = 1 << 16
_MAX_CONNECTIONS = 16

# Answers without a master. Commands that are not here close the connection.
_ANSWERS_WITHOUT_MASTER: Dict[bytes, bytes] = {
    b"barrier_in": b"cmd=barrier_out\n",
    b"finalize": b"cmd=finalize_ack\n",
    b"put": b"cmd=put_result rc=-1 msg=the_master_is_gone\n",
    b"get": b"cmd=get_result rc=-1 msg=the_master_is_gone value=unknown\n",
}


class PmiRelay:
    """Listens for this container's program on the loopback address."""

    def __init__(self, reactor: Reactor, server: str, log: Callable[[str], None]) -> None:
        self._reactor = reactor
        self._server = server
        self._log = log
        self._pairs: Set[_Pair] = set()
        host = loopback_address()
        self._listener = listen(reactor, host, 0, self._accepted, backlog=128)
        self._sockets = SocketTable()
        #: What the program finds as PMI_PORT: HOST:PORT, which it cuts at the first colon.
        self.address = f"{'localhost' if ':' in host else host}:{self._listener.port}"

    def close(self) -> None:
        """Close the listener and all connections; idempotent."""
        self._listener.close()
        self._sockets.close()
        for pair in list(self._pairs):
            pair.close()

    def _accepted(self, sock: socket.socket) -> None:
        if not self._is_own_user(sock):
            self._log("a connection to the PMI relay that is not this user's is refused")
            sock.close()
            return
        if len(self._pairs) >= _MAX_CONNECTIONS:
            sock.close()
            return
        pair = _Pair(self._reactor, sock, self._log, self._pairs.discard)
        self._pairs.add(pair)
        pair.dialling = dial(pair.reactor, self._server, pair.connected, pair.unreachable)

    def _is_own_user(self, sock: socket.socket) -> bool:
        try:
            owner = self._sockets.owner_of_peer(sock)
        except Unavailable:
            return False
        return owner is not None and owner.uid == os.geteuid()


class _Pair:
    """The connection of a rank, and ours to the master for it."""

    def __init__(
        self,
        reactor: Reactor,
        rank: socket.socket,
        log: Callable[[str], None],
        closed: Callable[[_Pair], None],
    ) -> None:
        self.reactor = reactor = GuardedReactor(reactor, self._failed)
        self._log = log
        self._closed = closed
        self._rank: Optional[socket.socket] = rank
        self._master: Optional[socket.socket] = None
        self._without_master = False
        self._admitted = False  # the server has admitted the rank
        self._line = b""  # of the rank, not complete yet
        self._command: Optional[bytes] = None  # not answered yet
        self._to: Dict[socket.socket, bytearray] = {rank: bytearray()}
        self._early = b""  # received before the master was reached
        self.dialling: Optional[Dial] = None
        rank.setblocking(False)
        reactor.watch(rank, self._from_rank)

    # ------------------------------------------------------------------ the master's side

    def connected(self, master: socket.socket) -> None:
        """Forward to the PMI server, which is connected."""
        if self._rank is None:
            master.close()
            return
        master.setblocking(False)
        self._master = master
        self._to[master] = bytearray()
        self.reactor.watch(master, self._from_master)
        self._send(master, self._early)
        self._early = b""

    def unreachable(self, reason: str) -> None:
        """Close: without a PMI server MPI_Init fails, as it should."""
        self._log("the PMI server of this session cannot be reached: " + reason)
        self.close()

    def _from_master(self) -> None:
        assert self._master is not None
        data = _receive(self._master)
        if data is None:
            return
        if data:
            self._admitted = True
            self._command = None
            if self._rank is not None:
                self._send(self._rank, data)
        else:
            self._lost_master()

    def _lost_master(self) -> None:
        self._drop(self._master)
        self._master = None
        if not self._admitted:
            self.close()  # it refused this rank
            return
        self._without_master = True
        self._log("the PMI server is gone; the rank may still finish")
        if self._command is not None:
            command, self._command = self._command, None
            self._answer(command)

    # ------------------------------------------------------------------ the rank's side

    def _from_rank(self) -> None:
        assert self._rank is not None
        data = _receive(self._rank)
        if data is None:
            return
        if not data:
            self.close()
            return
        lines: List[bytes] = (self._line + data).split(b"\n")
        self._line = lines.pop()
        if len(self._line) > _LONGEST_LINE:
            self.close()
            return
        for line in lines:
            self._command = line
            if self._without_master:
                self._answer(line)
            elif self._master is not None:
                self._send(self._master, line + b"\n")
            else:
                self._early += line + b"\n"
                if len(self._early) > _MAX_BUFFERED:
                    self.close()
            if self._is_closed():
                return

    def _answer(self, line: bytes) -> None:
        words = line.split()
        command = words[0][len(b"cmd=") :] if words and words[0].startswith(b"cmd=") else b""
        answer = _ANSWERS_WITHOUT_MASTER.get(command)
        self._command = None
        if answer is None or self._rank is None:
            self.close()
        else:
            self._send(self._rank, answer)

    # ------------------------------------------------------------------ bytes

    def _send(self, sock: socket.socket, data: bytes) -> None:
        waiting = self._to[sock]
        waiting += data
        if len(waiting) > _MAX_BUFFERED:
            self.close()
        else:
            self._flush(sock)

    def _flush(self, sock: socket.socket) -> None:
        waiting = self._to.get(sock)
        if waiting is None:
            return
        try:
            while waiting:
                del waiting[: sock.send(waiting)]
        except BlockingIOError:
            pass
        except OSError:
            waiting.clear()  # the next read finds that it is gone
        reader = self._from_rank if sock is self._rank else self._from_master
        self.reactor.watch(sock, reader, (lambda: self._flush(sock)) if waiting else None)

    def _failed(self, error: Exception) -> bool:
        self.close()
        return True

    def _is_closed(self) -> bool:
        return self._rank is None

    def _drop(self, sock: Optional[socket.socket]) -> None:
        if sock is not None:
            self._to.pop(sock, None)
            self.reactor.unwatch(sock)
            sock.close()

    def close(self) -> None:
        """Close both connections; idempotent."""
        rank, master = self._rank, self._master
        self._rank = self._master = None
        if self.dialling is not None:
            self.dialling.cancel()
        self._drop(rank)
        self._drop(master)
        self._closed(self)


def _receive(sock: socket.socket) -> Optional[bytes]:
    """The bytes that came; empty at the end, None when there are none after all."""
    try:
        return sock.recv(65536)
    except BlockingIOError:
        return None
    except OSError:
        return b""

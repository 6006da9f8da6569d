"""A job's Jupyter at a port of this machine, through a tunnel.

Each connection to the port is a stream of the tunnel. The port is on the loopback, and only this
user's own processes (and root's) are let in, where the system shows whose they are; Jupyter's token
is asked for in any case. A tunnel that is lost, because the job's master was started anew, is
opened again while the job runs.

A job that will open no notebook ends the serving at once. One that may, has :data:`READY_S`: from
when its master could first be asked, and again from when its program runs, whatever the reasons
are meanwhile. For a container it waits as long as the job does, which has deadlines of its own.

A notebook that is started anew, in another container, has another token. Each stream that opens
brings the token, so the first browser that comes with the old one causes the new address's print.

A tunnel renews the client's lease (``tony.client.lease``). While there is none, requests to the
job's page do: a client that cannot enter the job yet is there all the same.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import Callable, Dict, Optional

from tony_core.client.errors import NoClientKey, PageError, TunnelError
from tony_core.client.page import JobPage
from tony_core.client.tunnel import ClientStream, OpenStream, StreamKind, Tunnel, open_tunnel
from tony_core.loopback import loopback_address
from tony_core.protocol import socket_owners
from tony_core.protocol.link import Listener
from tony_core.protocol.reactor import Reactor
from tony_core.protocol.tunnel import PIECE, WINDOW, Refused
from tony_core.schedulers.port import AppState, AppStatus, Scheduler, SchedulerError

ASK_S = 0.5  # between two tries while the notebook does not answer yet
QUIET_S = 20.0  # a master that has just started has no key for its owner yet, nor Jupyter a socket
READY_S = 300.0
LOOK_S = 2.0  # between two looks at the job's state
NO_ANSWER = "its master did not answer"
NO_KEY = "its master left no key for its owner"


def listen_here(port: int) -> socket.socket:
    """A socket that listens at this port of the loopback; 0 is any. Raises OSError."""
    host = loopback_address()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.create_server((host, port), family=family, backlog=1024)
    sock.setblocking(False)
    return sock


class Notebook:
    """Serves a job's notebook here until the job ends; :meth:`run` returns its state.

    :param sock: of :func:`listen_here`; it is closed at the end.
    """

    def __init__(
        self,
        reactor: Reactor,
        open_one: Callable[[], Scheduler],
        app_id: str,
        sock: socket.socket,
        on_ready: Callable[[str], None],
        on_note: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._open_one = open_one
        self._scheduler = open_one()
        self._app_id = app_id
        self._on_ready = on_ready
        self._on_note = on_note
        self._tunnel: Optional[Tunnel] = None
        self._token = ""
        self._noted = ""
        self._since = reactor.now()  # when the present wait began
        self._has_deadline = True  # it has one
        self._failure = ""
        self._final: Optional[AppStatus] = None
        self._stopped = threading.Event()
        self._connections: Dict[int, _Connection] = {}
        self._sockets = socket_owners.SocketTable()
        self._owners = (0, os.getuid())
        self._listener = Listener(reactor, sock, self._accepted)
        self._thread = threading.Thread(target=self._look, name="job-state", daemon=True)

    def run(self) -> Optional[AppStatus]:
        """Serve until the job has ended; None after :meth:`stop`.

        Raises :class:`TunnelError` where the job opens no notebook.
        """
        self._thread.start()
        self._reactor.call_later(0, self._connect)
        try:
            self._reactor.run()
        finally:
            self._stopped.set()
            self._listener.close()
            for connection in list(self._connections.values()):
                connection.drop()
            if self._tunnel is not None:
                self._tunnel.close()
            self._sockets.close()
            self._thread.join(LOOK_S)
            self._scheduler.close()
        if self._failure and self._final is None:
            raise TunnelError(self._failure)
        return self._final

    @property
    def was_open(self) -> bool:
        """Whether it has answered at least once."""
        return bool(self._token)

    def stop(self) -> None:
        """Serve no more; from any thread or signal handler."""
        self._reactor.call_soon_threadsafe(self._reactor.stop)

    # ------------------------------------------------------------------ the tunnel

    def _connect(self) -> None:
        try:
            if self._scheduler.status(self._app_id).state is AppState.RUNNING:
                self._tunnel = open_tunnel(
                    self._scheduler, self._app_id, self._reactor, self._tunnel_lost
                )
            else:
                self._wait("")  # in the scheduler's queue; or it has ended, which _look sees
        except NoClientKey as error:
            self._wait(NO_KEY, str(error))
        except (TunnelError, SchedulerError) as error:
            self._wait(NO_ANSWER, str(error))
        if self._tunnel is not None:
            self._ask()
        else:
            self._reactor.call_later(ASK_S, self._connect)

    def _tunnel_lost(self, reason: str) -> None:
        self._tunnel = None
        for connection in list(self._connections.values()):
            connection.drop()
        if self._final is None:
            self._wait(NO_ANSWER, reason)  # one that is lost again and again has a deadline too
            if self._failure:
                return
            self._note(f"the connection to the job was lost ({reason}); trying again")
            self._reactor.call_later(ASK_S, self._connect)

    def _ask(self) -> None:
        """Open a stream to learn the token, until the notebook answers."""
        if self._tunnel is not None:
            self._open(_Probe(self._answers, self._not_yet))

    def _answers(self, token: str) -> None:
        self._noted = ""
        self._wait("", has_deadline=False)  # an open notebook is no wait, however long it is used
        if token != self._token:  # the first, or that of a restarted task
            self._token = token
            host = loopback_address()
            host = f"[{host}]" if ":" in host else host
            self._on_ready(f"http://{host}:{self._listener.port}/lab?token={token}")

    def _not_yet(self, reason: str, refused: str) -> None:
        if refused == Refused.FINAL.value:
            self._fail(f"{self._app_id} opens no notebook: {reason}")
            return
        has_program = refused != Refused.NO_PROGRAM.value
        what = "its notebook did not answer" if has_program else "its program did not start"
        self._wait(what, reason, has_program)
        self._reactor.call_later(ASK_S, self._ask)

    def _wait(self, what: str, reason: str = "", has_deadline: bool = True) -> None:
        """Note a wait for something (or for nothing); one that takes long is explained."""
        now = self._reactor.now()
        if not what or (has_deadline and not self._has_deadline):
            self._since = now
        self._has_deadline = has_deadline
        waited = now - self._since
        if has_deadline and waited > READY_S:
            self._fail(f"{self._app_id}: {what} within {READY_S:g} s: {reason}")
        elif reason and waited > QUIET_S:
            self._note(reason)

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self._reactor.stop()

    def _note(self, text: str) -> None:
        if text != self._noted:
            self._noted = text
            self._on_note(text)

    def _open(self, stream: ClientStream) -> None:
        assert self._tunnel is not None
        self._tunnel.open(stream, OpenStream(0, "", StreamKind.NOTEBOOK.value))

    # ------------------------------------------------------------------ connections

    def _accepted(self, sock: socket.socket) -> None:
        if self._tunnel is None or not self._is_own(sock):
            sock.close()
            return
        connection = _Connection(self._reactor, sock, self._answers, self._forget)
        self._connections[id(connection)] = connection
        self._open(connection)

    def _is_own(self, sock: socket.socket) -> bool:
        try:
            owner = self._sockets.owner_of_peer(sock)
        except socket_owners.Unavailable:
            self._note("connections are refused: the kernel does not say which user's they are")
            return False
        return owner is not None and owner.uid in self._owners

    def _forget(self, connection: _Connection) -> None:
        self._connections.pop(id(connection), None)

    # ------------------------------------------------------------------ the job's state

    def _look(self) -> None:
        scheduler = self._open_one()  # a connection may not be for two threads
        try:
            while not self._stopped.wait(LOOK_S):
                try:
                    status = scheduler.status(self._app_id)
                except SchedulerError:
                    continue  # it may answer again
                if status.state.ended:
                    self._reactor.call_soon_threadsafe(self._ended, status)
                    return
                if status.page_url and self._tunnel is None:
                    _renew_lease(JobPage(status.page_url, LOOK_S, scheduler.web))
        finally:
            scheduler.close()

    def _ended(self, status: AppStatus) -> None:
        self._final = status
        self._reactor.stop()


def _renew_lease(page: JobPage) -> None:
    try:
        page.job()
    except PageError:
        pass  # the tunnel's own tries say what is wrong
    finally:
        page.close()


class _Probe(ClientStream):
    """Asks whether the notebook answers."""

    def __init__(self, found: Callable[[str], None], not_yet: Callable[[str, str], None]) -> None:
        super().__init__()
        self._found = found
        self._not_yet = not_yet
        self._is_open = False

    def opened(self, note: str) -> None:
        self._is_open = True
        self.close()
        self._found(note)

    def ended(self, exit_code: Optional[int], message: str) -> None:
        if not self._is_open:
            self._not_yet(message, self.refused)


class _Connection(ClientStream):
    """A browser's connection, and its stream."""

    def __init__(
        self,
        reactor: Reactor,
        sock: socket.socket,
        answers: Callable[[str], None],
        forget: Callable[[_Connection], None],
    ) -> None:
        super().__init__()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reactor = reactor
        self._sock = sock
        self._answers = answers
        self._forget = forget
        self._unwritten = bytearray()
        self._is_open = self._closed = False
        self._sent_end = self._got_end = False

    def opened(self, note: str) -> None:
        self._is_open = True
        self._answers(note)
        self._watch()

    def received(self, data: bytes, error: bool, end: bool) -> None:
        if self._closed:
            return
        self._unwritten += data
        self._got_end = self._got_end or end
        if len(self._unwritten) > 2 * WINDOW:
            self.drop()
            return
        self._flush()

    def writable(self) -> None:
        if self._is_open:
            self._watch()

    def ended(self, exit_code: Optional[int], message: str) -> None:
        self._got_end = True
        self._is_open = False
        if not self._unwritten:
            self._finish()

    def drop(self) -> None:
        """Close it now, at both ends."""
        if not self._closed:
            self.close()
            self._finish()

    def _watch(self) -> None:
        if self._closed:
            return
        reads = self._is_open and not self._sent_end and self.window.left > 0
        self._reactor.watch(
            self._sock,
            self._read if reads else None,
            self._flush if self._unwritten else None,
        )

    def _read(self) -> None:
        try:
            data = self._sock.recv(min(PIECE, self.window.left))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.drop()
            return
        self._sent_end = not data
        self.write(data, end=not data)
        self._watch()
        if self._sent_end and self._got_end and not self._unwritten:
            self._finish()

    def _flush(self) -> None:
        count = 0
        try:
            while self._unwritten:
                sent = self._sock.send(self._unwritten[:PIECE])
                del self._unwritten[:sent]
                count += sent
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.drop()
            return
        self.take(count)
        if self._got_end and not self._unwritten:
            if self._sent_end or not self._is_open:
                self._finish()
                return
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError:
                self.drop()
                return
        self._watch()

    def _finish(self) -> None:
        if not self._closed:
            self._closed = True
            self._reactor.unwatch(self._sock)
            self._sock.close()
            self._forget(self)

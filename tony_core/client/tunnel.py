"""The client's end of a tunnel into a running job (:mod:`tony_core.protocol.tunnel`).

The key is read where only the job's owner can. The master is asked at its own address first, and
through the cluster's proxy where that cannot be reached. Two threads make the requests, one for
each direction; all else happens on the reactor's thread. Requests that fail are repeated for
:data:`RETRY_S`. Directly a request waits at the master for bytes; through a proxy none may, so the
client pauses, shortly after something has happened and longer while nothing does. It pauses in the
same way where a direct answer comes at once and empty, as no master of ours gives it for long.
"""

from __future__ import annotations

import binascii
import re
import threading
import time
from typing import Callable, Dict, List, Optional

from tony_core.client.errors import NoClientKey, PageError, PageGone, PageRefused, TunnelError
from tony_core.client.page import JobPage
from tony_core.files.location import join
from tony_core.files.registry import filesystem
from tony_core.jsontext import read_object
from tony_core.printable import printable
from tony_core.protocol.channel import Channel
from tony_core.protocol.codec import ProtocolError
from tony_core.protocol.messages import (
    CloseStream,
    Message,
    OpenStream,
    ResizeTerminal,
    StreamClosed,
    StreamData,
    StreamOpened,
    StreamTaken,
)
from tony_core.protocol.reactor import Reactor
from tony_core.protocol.tunnel import (
    CLIENT,
    FIRST_PIECE,
    HANDSHAKE_SIZE,
    KEY_FILE,
    LOST_S,
    PIECE,
    ClientKey,
    SentBytes,
    StreamKind,
    StreamWindow,
    TunnelBroken,
    pack_data,
    unpack_data,
)
from tony_core.schedulers.port import AppState, Scheduler

DIRECT_S = 3.0  # to reach the master itself; a firewall may drop what is sent there
CALL_S = 10.0
WAIT_S = 10.0  # of a request for bytes
RETRY_S = 20.0
HANDSHAKE_S = 20.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0  # between two requests through a proxy
UP_PIECE = 256 * 1024
RETRY_PAUSE_S = 0.2
END_S = 2.0  # for the last request
MOST_BYTES = 2 * 1024 * 1024  # of an answer, which may be another program's
_NAME = re.compile("[0-9a-f]{32}")


def read_client_key(scheduler: Scheduler, app_id: str) -> ClientKey:
    """The key of the owner's tunnels; SchedulerError where the job is another user's."""
    location = join(scheduler.owner_folder(app_id), KEY_FILE)
    try:
        return ClientKey.from_json(filesystem(location).get(location, 1 << 16))
    except FileNotFoundError:
        raise NoClientKey(
            f"{location} is not there: the master of {app_id} writes it when it starts. It has"
            " just started, or could not write it (its page and its log say why), or is of an"
            " older version of tony"
        ) from None
    except (OSError, ValueError) as error:
        raise TunnelError(f"{location} cannot be read: {error}") from error


def open_tunnel(
    scheduler: Scheduler, app_id: str, reactor: Reactor, on_lost: Callable[[str], None]
) -> Tunnel:
    """Open a tunnel to a running job; raises :class:`TunnelError` or SchedulerError."""
    status = scheduler.status(app_id)
    if status.state.ended:
        raise TunnelError(f"{app_id} has ended ({status.state.value}); its containers are gone")
    if status.state is not AppState.RUNNING:
        raise TunnelError(f"{app_id} does not run yet ({status.state.value}); try again later")
    key = read_client_key(scheduler, app_id)
    urls = [key.page_url]
    if status.page_url and status.page_url != key.page_url:
        urls.append(status.page_url)
    problems: List[str] = []
    for number, url in enumerate(urls):
        direct = number == 0

        def make(call_s: float, url: str = url, direct: bool = direct) -> JobPage:
            access = None if direct else scheduler.web
            return JobPage(url, call_s, access, most_bytes=MOST_BYTES)

        page = make(DIRECT_S if direct else CALL_S)
        try:
            once = "?once=1" if page.proxied else ""
            answer = read_object(page.exchange("PUT", f"tunnel/new{once}")[2])
            name = answer.get("tunnel")
            if isinstance(name, str) and _NAME.fullmatch(name):
                return Tunnel(reactor, name, key, make, on_lost)
            problems.append(f"{url} opens no tunnel: it is not a running job's page")
        except (PageError, ValueError) as error:
            problems.append(str(error))
        finally:
            page.close()
    raise TunnelError(f"{app_id} cannot be entered: " + printable("; ".join(problems)))


class Tunnel:
    """A tunnel and its streams. On the reactor's thread."""

    def __init__(
        self,
        reactor: Reactor,
        name: str,
        key: ClientKey,
        make_page: Callable[[float], JobPage],
        on_lost: Callable[[str], None],
    ) -> None:
        self.reactor = reactor
        self.closed = False
        self._name = name
        self._make_page = make_page
        self._pages = [make_page(CALL_S), make_page(CALL_S)]
        self.proxied = self._pages[0].proxied
        self._once = "&once=1" if self.proxied else ""  # the proxy opens a connection a request
        self._on_lost = on_lost
        self._channel = Channel(
            key.key, dialler=True, container_id=CLIENT, binding=b"tunnel " + name.encode()
        )
        self._streams: Dict[int, ClientStream] = {}
        self._last = 0
        self._sent = SentBytes()
        self._changed = threading.Condition()
        self._has_sent = threading.Event()  # so an answer may be there
        self._deadline = reactor.call_later(
            HANDSHAKE_S, self._lose, f"the master did not prove itself within {HANDSHAKE_S:g} s"
        )
        self._threads = [
            threading.Thread(target=self._run, args=(work, page), name=work.__name__, daemon=True)
            for work, page in (
                (self._send_all, self._pages[0]),
                (self._fetch_all, self._pages[1]),
            )
        ]
        self._queue_outgoing()
        for thread in self._threads:
            thread.start()

    def open(self, stream: ClientStream, message: OpenStream) -> None:
        """Open a stream; its callbacks follow."""
        self._last += 1
        stream.begin(self, self._last)
        self._streams[self._last] = stream
        self.send(message._replace(stream=self._last))

    def send(self, message: Message) -> None:
        """Send a message."""
        if not self.closed:
            self._channel.send(message)
            self._queue_outgoing()

    def close(self) -> None:
        """End it, with all its streams."""
        if self.closed:
            return
        self.closed = True
        self._deadline.cancel()
        with self._changed:
            self._changed.notify_all()
        self._has_sent.set()
        for page in self._pages:
            page.abort()
        last = self._make_page(END_S)
        try:
            last.exchange("PUT", f"tunnel/{self._name}/end?{self._once[1:]}")
        except PageError:
            pass  # the master notices that no request comes any more
        finally:
            last.close()
        for thread in self._threads:
            thread.join(END_S)

    # ------------------------------------------------------------------ on the reactor's thread

    def _queue_outgoing(self) -> None:
        data = self._channel.outgoing()
        if data:
            with self._changed:
                self._sent.write(data)
                self._changed.notify_all()

    def _receive(self, data: bytes) -> None:
        if self.closed:
            return
        try:
            messages = self._channel.receive(data)
            if messages:
                self._deadline.cancel()
                text = f"the master has sent nothing for {LOST_S:g} s"
                self._deadline = self.reactor.call_later(LOST_S, self._lose, text)
            self._queue_outgoing()
            for message in messages:
                self._deliver(message)
            if self._channel.failure is not None:
                raise self._channel.failure
        except ProtocolError as error:
            self._lose(str(error))

    def _deliver(self, message: Message) -> None:
        stream = self._streams.get(getattr(message, "stream", -1))
        if stream is None:
            return
        if isinstance(message, StreamOpened):
            stream.opened(printable(message.note))
        elif isinstance(message, StreamData):
            stream.received(unpack_data(message.data), message.error, message.end)
        elif isinstance(message, StreamTaken):
            stream.window.taken(message.size)
            stream.writable()
        elif isinstance(message, StreamClosed):
            del self._streams[message.stream]
            stream.refused = message.refused
            stream.ended(message.exit_code, printable(message.message))

    def _lose(self, reason: str) -> None:
        if not self.closed:
            self.close()
            self._on_lost(printable(reason))

    # ------------------------------------------------------------------ the threads

    def _run(self, work: Callable[[JobPage], None], page: JobPage) -> None:
        try:
            work(page)
        except (PageError, ProtocolError, ValueError, OSError) as error:
            if not self.closed:
                self.reactor.call_soon_threadsafe(self._lose, str(error))
        finally:
            page.close()

    def _send_all(self, page: JobPage) -> None:
        at = 0
        while True:
            with self._changed:
                while not self.closed and self._sent.end <= at:
                    self._changed.wait()
                if self.closed:
                    return
                most = UP_PIECE if at >= HANDSHAKE_SIZE else FIRST_PIECE
                data = self._sent.read(at, most)
            body = binascii.b2a_base64(data, newline=False)
            answer = self._ask(page, "PUT", f"up?at={at}", body)
            at += len(
                data
            )  # also where it is a repetition that arrived: what it brings is the same
            if read_object(answer).get("next") != at:
                raise TunnelBroken("the master does not take what it is sent")
            self._has_sent.set()

    def _fetch_all(self, page: JobPage) -> None:
        at = 0
        pause = FIRST_PAUSE_S
        wait = 0.0 if self.proxied else WAIT_S
        while not self.closed:
            asked = time.monotonic()
            data = self._ask(page, "GET", f"down?at={at}&wait={wait:g}", None, wait)
            at += len(data)
            if data:
                self.reactor.call_soon_threadsafe(self._receive, data)
            if self.proxied or (not data and time.monotonic() - asked < LONGEST_PAUSE_S / 2):
                if data or self._has_sent.is_set():
                    pause = FIRST_PAUSE_S
                    self._has_sent.clear()
                self._has_sent.wait(pause)
                pause = min(LONGEST_PAUSE_S, pause * 1.5)

    def _ask(
        self, page: JobPage, method: str, what: str, body: Optional[bytes], wait_s: float = 0.0
    ) -> bytes:
        """Make a request until it succeeds."""
        failing_since: Optional[float] = None
        while True:
            try:
                return page.exchange(
                    method, f"tunnel/{self._name}/{what}{self._once}", body, wait_s
                )[2]
            except (PageGone, PageRefused):
                raise
            except PageError:
                now = time.monotonic()
                failing_since = now if failing_since is None else failing_since
                if self.closed or now - failing_since > RETRY_S:
                    raise
                time.sleep(RETRY_PAUSE_S)


class ClientStream:
    """One stream as its user sees it; a subclass takes what happens."""

    def __init__(self) -> None:
        self.window = StreamWindow()  # of what we send
        self.tunnel: Optional[Tunnel] = None
        self.number = 0
        self.refused = ""  # where it did not begin: a value of Refused

    def begin(self, tunnel: Tunnel, number: int) -> None:
        self.tunnel, self.number = tunnel, number

    def write(self, data: bytes, end: bool = False) -> None:
        """Send bytes, no more than the window has left."""
        for at in range(0, len(data), PIECE) or (0,):
            piece = data[at : at + PIECE]
            last = end and at + PIECE >= len(data)
            self.window.send(len(piece), last)
            self._send(StreamData(self.number, pack_data(piece), end=last))

    def take(self, count: int) -> None:
        """Let the other end send so many bytes more."""
        if count:
            self._send(StreamTaken(self.number, count))

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal its size."""
        self._send(ResizeTerminal(self.number, rows, columns))

    def close(self) -> None:
        """End it."""
        self._send(CloseStream(self.number))

    def _send(self, message: Message) -> None:
        if self.tunnel is not None:
            self.tunnel.send(message)

    def opened(self, note: str) -> None:
        """Take that it is open."""

    def received(self, data: bytes, error: bool, end: bool) -> None:
        """Take bytes, and then :meth:`take` them."""

    def writable(self) -> None:
        """Take that the window has room again."""

    def ended(self, exit_code: Optional[int], message: str) -> None:
        """Take the end."""


__all__ = ["ClientStream", "OpenStream", "StreamKind", "Tunnel", "open_tunnel", "read_client_key"]

"""The executor's shell: sockets, signals, processes and the clock around its life.

Events go through one queue, so that a command which is done at once (and reported at once)
never runs inside another. SIGTERM does not go through it: whoever sends it to our group
gives us a quarter of a second.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, NoReturn, Optional, Set, Type

from tony_core.exit_causes import decode_status
from tony_core.loopback import loopback
from tony_core.protocol.channel import Channel
from tony_core.protocol.handshake_limiter import Door
from tony_core.protocol.jobkey import carrier, unpack
from tony_core.protocol.link import Link, Listener, listen, split_address
from tony_core.protocol.messages import Message
from tony_core.protocol.reactor import Reactor, Timer
from tony_core.version import __version__
from tony_executor import commands, processes
from tony_executor.events import Began, Event, Heard, Linked, NoMasterWillCome, Tick, Unlinked
from tony_executor.life import Life
from tony_executor.phases import EXIT_MASTER_LOST, EXIT_TERMINATED, Identity
from tony_executor.program import Program
from tony_executor.seeking import Seeking
from tony_executor.site import Site, is_loopback

WELCOME_S = 15.0  # from Register to Welcome
LAST_WORDS_S = 3.0
MAX_STRANGERS = 16
MAX_LOG = 1 << 20


class Shell:
    """One executor; :meth:`run` returns the exit code."""

    def __init__(self, site: Site, register_s: float) -> None:
        self._site = site
        self._reactor = Reactor()
        self._reactor.log = self._log
        self._log_size = 0
        self._links: Dict[int, Link] = {}
        self._strangers: Set[Link] = set()
        self._key = unpack(site.secret)
        self._carrier = carrier(self._key, master=False)
        self._door = Door(self._reactor, MAX_STRANGERS, self._log)
        self._count = 0
        self._queue: Deque[Event] = deque()
        self._busy = False
        self._ticker: Optional[Timer] = None
        self._exit: Optional[commands.Exit] = None
        self._children_pending = False
        # A master at a loopback address has its successors on this machine, too.
        listen_host = loopback() if is_loopback(split_address(site.master)[0]) else ""
        everywhere = "::" if ":" in site.host or loopback() == "::1" else "0.0.0.0"
        here = site.host if is_loopback(site.host) else everywhere
        self._listener: Listener = listen(self._reactor, listen_host or here, 0, self._called)
        self._door.listener = self._listener
        identity = Identity(
            site.container_id,
            site.host,
            self._listener.port,
            os.getpid(),
            __version__,
            listen_host,
        )
        self._life = Life(identity, register_s)
        self._seeking = Seeking(
            self._reactor,
            site.master,
            site.master_file,
            site.successor,
            self._dialled,
            lambda reason: self._feed(NoMasterWillCome(self._reactor.now(), reason)),
            self._log,
        )
        self._program = Program(
            self._reactor,
            site,
            self._feed,
            lambda: set(self._seeking.helpers),
            self._reap,
            self._log,
        )
        self._perform: Dict[Type[Any], Callable[[Any], None]] = {
            commands.Say: self._say,
            commands.Drop: self._drop,
            commands.Seek: lambda command: self._seeking.start(command.succeed),
            commands.StopSeeking: lambda command: self._seeking.stop(),
            commands.Configure: self._configure,
            commands.LayOut: lambda command: self._program.lay_out(command.prepare),
            commands.StartChild: lambda command: self._program.start(command.start),
            commands.Clear: lambda c: self._program.clear(c.grace_s, c.everything),
            commands.Log: lambda command: self._log(command.text),
            commands.Exit: self._leave,
        }

    def run(self) -> int:
        """Until it is over."""
        parent = os.getppid()
        signal.signal(signal.SIGCHLD, self._child_signalled)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._terminated)
        if not processes.be_subreaper(True):
            self._log("cannot become subreaper: what the program detaches may outlive it")
        # The embedded scheduler's shim, or else our guard: never a NodeManager, which is
        # restarted under running containers.
        if not processes.end_with_parent(parent):
            self._log("the process in front of the executor is gone")
            return EXIT_MASTER_LOST
        self._log(f"executor {__version__} of {self._site.container_id}, pid {os.getpid()}")
        try:
            self._feed(Began(self._reactor.now()))
            self._reactor.run()
        except BaseException:
            processes.kill_now(os.getpid(), set(self._seeking.helpers))
            raise
        assert self._exit is not None
        self._program.close()
        processes.kill_now(os.getpid(), set(self._seeking.helpers))
        self._log(f"exits with {self._exit.code}: {self._exit.reason}")
        self._listener.close()
        self._reactor.close()
        return self._exit.code

    # ------------------------------------------------------------------ events and commands

    def _feed(self, event: Event) -> None:
        self._queue.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue:
                for command in self._life.handle(self._queue.popleft()):
                    self._perform[type(command)](command)
        finally:
            self._busy = False
        self._set_ticker()

    def _set_ticker(self) -> None:
        deadline = self._life.next_deadline()
        if self._ticker is not None:
            if self._ticker.active and self._ticker.at == deadline:
                return
            self._ticker.cancel()
        self._ticker = None
        if deadline is not None:
            wait = deadline - self._reactor.now()
            self._ticker = self._reactor.call_later(wait, self._tick)

    def _tick(self) -> None:
        self._feed(Tick(self._reactor.now()))

    # ------------------------------------------------------------------ links

    def _called(self, sock: socket.socket) -> None:
        self._door.enter(self._link(sock, dialler=False))

    def _dialled(self, sock: socket.socket) -> None:
        self._strangers.add(self._link(sock, dialler=True))

    def _link(self, sock: socket.socket, dialler: bool) -> Link:
        self._count += 1
        number = self._count

        def established(link: Link) -> None:
            self._strangers.discard(link)
            self._door.leave(link)
            self._links[number] = link
            self._feed(Linked(self._reactor.now(), number))
            self._reactor.call_later(WELCOME_S, self._check_welcomed, number)

        def heard(link: Link, message: Message) -> None:
            self._feed(Heard(self._reactor.now(), number, message))

        def closed(link: Link, reason: str) -> None:
            self._strangers.discard(link)
            if self._links.pop(number, None) is not None:
                self._feed(Unlinked(self._reactor.now(), number, reason))
            elif not self._door.ended(link, reason):
                self._log(f"{link.peer}: {reason}")
            if self._exit is not None:
                self._reactor.stop()
            elif dialler:
                self._seeking.again()

        channel = Channel(
            self._key.secret,
            dialler,
            container_id=self._site.container_id,
            binding=self._key.fingerprint,
        )
        return Link(self._reactor, self._carrier(sock), channel, heard, closed, established)

    def _check_welcomed(self, number: int) -> None:
        link = self._links.get(number)
        if link is not None and self._life.link != number:
            self._close(number, f"no welcome within {WELCOME_S:g} s")

    def _close(self, number: int, reason: str) -> None:
        link = self._links.pop(number, None)
        if link is not None:
            self._log(f"{link.peer}: closed: {reason}")
            link.close()
            self._feed(Unlinked(self._reactor.now(), number, reason))
            self._seeking.again()

    def _say(self, command: commands.Say) -> None:
        link = self._links.get(command.link)
        if link is not None:
            link.send(command.message)

    def _drop(self, command: commands.Drop) -> None:
        self._close(command.link, command.reason)

    def _configure(self, command: commands.Configure) -> None:
        self._program.configure(command.welcome)
        link = self._links.get(command.link)
        if link is not None:
            link.expect_within(command.welcome.silence_s)

    # ------------------------------------------------------------------ processes

    def _child_signalled(self, number: int, frame: object) -> None:
        if not self._children_pending:
            self._children_pending = True
            self._reactor.call_soon_threadsafe(self._reap)

    def _reap(self) -> None:
        self._children_pending = False
        some = False
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            some = True
            if not self._seeking.reaped(pid, decode_status(status)[0]):
                self._program.reaped(pid, status, usage.ru_maxrss / 1024.0)
        if some:
            self._program.look_again()

    def _terminated(self, number: int, frame: object) -> NoReturn:
        """The container is being killed: leave nothing, and lose no time over words."""
        processes.kill_now(os.getpid(), set(self._seeking.helpers))
        self._log(f"ended by signal {number}")
        os._exit(EXIT_TERMINATED)

    # ------------------------------------------------------------------ the end

    def _leave(self, command: commands.Exit) -> None:
        self._exit = command
        self._seeking.stop()
        self._listener.close()
        self._door.close()
        link = self._links.get(self._life.link) if self._life.link is not None else None
        for other in [*self._links.values(), *self._strangers]:
            if other is not link:
                other.close()
        if link is None:
            self._reactor.stop()
        else:
            link.flush_then_close(LAST_WORDS_S)

    def _log(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        line = f"{stamp}Z {text}\n".encode("utf-8", "replace")
        if self._log_size + len(line) > MAX_LOG:
            return
        try:
            with open(self._site.log("executor.log"), "ab", 0) as file:
                file.write(line)
                self._log_size = file.tell()
        except OSError:
            pass  # a full disk: the program's own words matter more

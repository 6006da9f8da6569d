"""The executor's shell: sockets, signals, processes and the clock around its machine.

Events go through one queue, so that a command which is done (and reported) at once never runs
inside another. SIGTERM does not go through it: a node that sends it to our group gives us a quarter
of a second.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, NoReturn, Optional, Set, Type

from tony_core.exit_causes import decode_status
from tony_core.loopback import loopback_address
from tony_core.protocol.channel import Channel
from tony_core.protocol.handshake_limiter import HandshakeLimiter
from tony_core.protocol.job_secret import transport_factory, unpack_secret
from tony_core.protocol.link import Link, split_address
from tony_core.protocol.messages import STREAM_TO_EXECUTOR, Message, OpenStream, Welcome
from tony_core.protocol.reactor import Reactor, Timer
from tony_core.protocol.socket_owners import is_loopback
from tony_core.version import __version__
from tony_executor import commands, processes
from tony_executor.context import ContainerContext
from tony_executor.events import (
    Event,
    ExecutorStarted,
    LinkClosed,
    LinkOpened,
    MessageReceived,
    NoNextMaster,
    Tick,
    TokensNotWritten,
)
from tony_executor.exit_codes import EXIT_MASTER_LOST, EXIT_TERMINATED
from tony_executor.machine import ExecutorMachine
from tony_executor.network.master_discovery import MasterDiscovery
from tony_executor.program import Program
from tony_executor.task_state import ContainerIdentity

if TYPE_CHECKING:
    from tony_executor.streams import ProgramPlace, Streams

WELCOME_S = 15.0  # from Register to Welcome
FLUSH_S = 3.0
MAX_UNAUTHENTICATED = 16
MAX_LOG = 1 << 20


class Shell:
    """Performs the machine's commands; :meth:`run` returns the executor's exit code."""

    def __init__(self, context: ContainerContext, register_s: float) -> None:
        self._context = context
        self._reactor = Reactor(self._log)
        self._log_size = 0
        self._links: Dict[int, Link] = {}
        self._unauthenticated: Set[Link] = set()
        self._key = unpack_secret(context.secret)
        self._make_transport = transport_factory(self._key, master=False)
        self._limiter = HandshakeLimiter(self._reactor, MAX_UNAUTHENTICATED, self._log)
        self._count = 0
        self._queue: Deque[Event] = deque()
        self._busy = False
        self._ticker: Optional[Timer] = None
        self._exit: Optional[commands.Exit] = None
        self._children_pending = False
        self._welcome: Optional[Welcome] = None
        self._streams: Optional[Streams] = None  # of clients; made with the first
        self._streams_link = 0  # of the master that opens them
        # A master at a loopback address has its successors on this machine, too.
        listen_host = loopback_address() if is_loopback(split_address(context.master)[0]) else ""
        everywhere = "::" if ":" in context.host or loopback_address() == "::1" else "0.0.0.0"
        here = context.host if is_loopback(context.host) else everywhere
        self._listener = self._limiter.listen(listen_host or here, 0, self._accepted)
        identity = ContainerIdentity(
            context.container_id,
            context.host,
            self._listener.port,
            os.getpid(),
            __version__,
            listen_host,
        )
        self._token_file = context.environment.get("TONY_TOKEN_FILE", "")
        self._machine = ExecutorMachine(identity, register_s, self._token_refusal())
        self._discovery = MasterDiscovery(
            self._reactor,
            context.master,
            context.master_file,
            context.successor,
            self._connected,
            lambda reason: self._emit(NoNextMaster(self._reactor.now(), reason)),
            self._log,
        )
        self._program = Program(
            self._reactor,
            context,
            self._emit,
            lambda: set(self._discovery.helpers),
            lambda: self._streams.pids if self._streams is not None else frozenset(),
            self._reap,
            self._log,
        )
        self._performers: Dict[Type[Any], Callable[[Any], None]] = {
            commands.SendMessage: self._send,
            commands.CloseLink: self._close_link,
            commands.FindMaster: lambda command: self._discovery.start(command.start_successor),
            commands.StopFinding: lambda command: self._discovery.stop(),
            commands.Configure: self._configure,
            commands.PrepareTask: lambda command: self._program.prepare(command.prepare),
            commands.StartProgram: lambda command: self._program.start(command.start),
            commands.EndProcesses: self._end_processes,
            commands.WriteTokens: self._write_tokens,
            commands.WarnProgram: lambda command: self._program.warn(command.preemption),
            commands.DumpStacks: lambda command: self._program.dump_stacks(command.reason),
            commands.WriteLog: lambda command: self._log(command.text),
            commands.Exit: self._exit_process,
        }

    def run(self) -> int:
        """Run until the machine's Exit."""
        parent = os.getppid()
        signal.signal(signal.SIGCHLD, self._on_sigchld)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_termination)
        if not processes.be_subreaper(True):
            self._log("cannot become subreaper: processes that the program detaches may outlive it")
        # The embedded scheduler's shim, or else our guard: never a NodeManager, which is
        # restarted under running containers.
        if not processes.end_with_parent(parent):
            self._log("the executor's guard or shim is gone")
            return EXIT_MASTER_LOST
        self._log(f"executor {__version__} of {self._context.container_id}, pid {os.getpid()}")
        try:
            self._emit(ExecutorStarted(self._reactor.now()))
            self._reactor.run()
        except BaseException:
            processes.kill_now(os.getpid(), set(self._discovery.helpers))
            raise
        assert self._exit is not None
        self._program.close()
        processes.kill_now(os.getpid(), set(self._discovery.helpers))
        self._log(f"exits with {self._exit.code}: {self._exit.reason}")
        self._listener.close()
        self._reactor.close()
        return self._exit.code

    # ------------------------------------------------------------------ events and commands

    def _emit(self, event: Event) -> None:
        self._queue.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue:
                for command in self._machine.handle(self._queue.popleft()):
                    self._performers[type(command)](command)
        finally:
            self._busy = False
        self._set_ticker()

    def _set_ticker(self) -> None:
        deadline = self._machine.next_deadline()
        if self._ticker is not None:
            if self._ticker.active and self._ticker.at == deadline:
                return
            self._ticker.cancel()
        self._ticker = None
        if deadline is not None:
            wait = deadline - self._reactor.now()
            self._ticker = self._reactor.call_later(wait, self._tick)

    def _tick(self) -> None:
        self._emit(Tick(self._reactor.now()))

    # ------------------------------------------------------------------ links

    def _accepted(self, sock: socket.socket) -> None:
        self._limiter.add(self._link(sock, dialler=False))

    def _connected(self, sock: socket.socket) -> None:
        self._unauthenticated.add(self._link(sock, dialler=True))

    def _link(self, sock: socket.socket, dialler: bool) -> Link:
        self._count += 1
        number = self._count

        def established(link: Link) -> None:
            self._unauthenticated.discard(link)
            self._limiter.remove(link)
            self._links[number] = link
            self._emit(LinkOpened(self._reactor.now(), number))
            self._reactor.call_later(WELCOME_S, self._check_welcomed, number)

        def received(link: Link, message: Message) -> None:
            if isinstance(message, STREAM_TO_EXECUTOR):
                self._pass_to_stream(number, message)
                return
            self._emit(MessageReceived(self._reactor.now(), number, message))

        def closed(link: Link, reason: str) -> None:
            self._unauthenticated.discard(link)
            if self._links.pop(number, None) is not None:
                self._close_streams("the container has lost its master", number)
                self._emit(LinkClosed(self._reactor.now(), number, reason))
            elif not self._limiter.closed(link, reason):
                self._log(f"{link.peer}: {reason}")
            if self._exit is not None:
                self._reactor.stop()
            elif dialler:
                self._discovery.retry()

        channel = Channel(
            self._key.secret,
            dialler,
            container_id=self._context.container_id,
            binding=self._key.fingerprint,
        )
        return Link(
            self._reactor, self._make_transport(sock), channel, received, closed, established
        )

    def _check_welcomed(self, number: int) -> None:
        link = self._links.get(number)
        if link is not None and self._machine.master.link != number:
            self._close(number, f"no welcome within {WELCOME_S:g} s")

    def _close(self, number: int, reason: str) -> None:
        link = self._links.pop(number, None)
        if link is not None:
            self._log(f"{link.peer}: closed: {reason}")
            link.close()
            self._close_streams("the container has lost its master", number)
            self._emit(LinkClosed(self._reactor.now(), number, reason))
            self._discovery.retry()

    def _send(self, command: commands.SendMessage) -> None:
        link = self._links.get(command.link)
        if link is not None:
            link.send(command.message)

    def _close_link(self, command: commands.CloseLink) -> None:
        self._close(command.link, command.reason)

    def _configure(self, command: commands.Configure) -> None:
        self._welcome = command.welcome
        self._program.configure(command.welcome)
        link = self._links.get(command.link)
        if link is not None:
            link.limit_silence(command.welcome.silence_s)

    # ------------------------------------------------------------------ streams

    def _pass_to_stream(self, number: int, message: Message) -> None:
        if number != self._machine.master.link:
            return  # no master of ours (any more)
        if self._streams is None:
            if not isinstance(message, OpenStream):
                return
            from tony_executor.streams import Streams  # and terminals: few jobs have one

            self._streams = Streams(
                self._reactor, self._send_to_master, self._program_place, self._log
            )
        welcome = self._welcome
        if welcome is not None:
            self._streams.configure(welcome.shell_enabled, welcome.notebook_enabled)
        self._streams_link = number
        self._streams.handle(message)

    def _send_to_master(self, message: Message) -> None:
        link = self._links.get(self._streams_link)
        if link is not None:
            link.send(message)

    def _program_place(self) -> Optional[ProgramPlace]:
        from tony_executor.streams import ProgramPlace

        running = self._program.running
        if running is None:
            return None
        task, folder = self._machine.task.name, self._program.folder
        return ProgramPlace(task, running.env, folder, running.command)

    def _close_streams(self, reason: str, link: Optional[int] = None) -> None:
        """End all streams; where a link is named, those that were opened through it."""
        if self._streams is not None and link in (None, self._streams_link):
            self._streams.close_all(reason)

    def _end_processes(self, command: commands.EndProcesses) -> None:
        self._close_streams(f"{self._machine.task.name} is being ended")
        self._program.end_processes(command.grace_s, command.everything)

    # ------------------------------------------------------------------ tokens

    def _token_refusal(self) -> str:
        if not self._key.fingerprint:
            return "the connection to the master is not encrypted (tony.task.tls)"
        return "" if self._token_file else "this container has no token file"

    def _write_tokens(self, command: commands.WriteTokens) -> None:
        from tony_core.files.webhdfs import token_file  # few jobs live that long

        try:
            token_file.write_private(self._token_file, command.content)
        except OSError as error:
            reason = error.strerror or str(error)
            self._log(f"{self._token_file} cannot be replaced: {reason}")
            self._emit(TokensNotWritten(self._reactor.now(), reason))
        else:
            self._log(f"{self._token_file} holds fresh tokens")

    # ------------------------------------------------------------------ processes

    def _on_sigchld(self, number: int, frame: object) -> None:
        if not self._children_pending:
            self._children_pending = True
            self._reactor.call_soon_threadsafe(self._reap)

    def _reap(self) -> None:
        self._children_pending = False
        any_reaped = False
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            any_reaped = True
            exit_code = decode_status(status)[0]
            if self._streams is not None and self._streams.reaped(pid, exit_code):
                continue
            if self._discovery.reaped(pid, exit_code):
                continue
            if self._streams is not None and self._ends_program(pid):
                task = self._machine.task.name
                self._streams.close_all(f"{task} has ended (exit code {exit_code})")
            self._program.reaped(pid, status, usage.ru_maxrss / 1024.0)
        if any_reaped:
            self._program.child_reaped()

    def _ends_program(self, pid: int) -> bool:
        running = self._program.running
        return running is not None and running.pid == pid

    def _on_termination(self, number: int, frame: object) -> NoReturn:
        """End at once and leave no process: the container is being killed."""
        processes.kill_now(os.getpid(), set(self._discovery.helpers))
        self._log(f"ended by signal {number}")
        os._exit(EXIT_TERMINATED)

    # ------------------------------------------------------------------ the end

    def _exit_process(self, command: commands.Exit) -> None:
        self._exit = command
        self._discovery.stop()
        self._listener.close()
        self._limiter.close()
        master = self._machine.master.link
        link = self._links.get(master) if master is not None else None
        for other in [*self._links.values(), *self._unauthenticated]:
            if other is not link:
                other.close()
        if link is None:
            self._reactor.stop()
        else:
            link.flush_then_close(FLUSH_S)

    def _log(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        line = f"{stamp}Z {text}\n".encode("utf-8", "replace")
        if self._log_size + len(line) > MAX_LOG:
            return
        try:
            with open(self._context.log("executor.log"), "ab", 0) as file:
                file.write(line)
                self._log_size = file.tell()
        except OSError:
            pass  # a full disk: the program's own log matters more

"""Ports that are held for the program: bound, never listening.

Theory of operation
===================

A port is *held* by a socket that is bound exclusively, on all addresses of both families, which
fails while anything else is bound there. The kernel compares users for SO_REUSEPORT and not for
SO_REUSEADDR: a held socket has only the first, so that no other user can bind beside it.

Most servers set only SO_REUSEADDR (TensorFlow, TCPStore, Ray, ps-lite, TensorBoard). For these a
port is *shared* as late as possible: SO_REUSEADDR is set just before the program starts, and
cleared when the program has ended. Until the program listens, another user can bind a shared port
as well; once it listens, no other user can. What binds without any option (XGBoost, LightGBM) gets
its port *released*. In its first minute a :class:`PortWatch` looks for another user, or a process
older than the program, at the ports that it has not taken yet.

A port is *claimed* as long as its task has it, by an abstract unix socket of its number: so no
two executors of a node get one port, shared, released, or with connections that have only just
ended (TIME_WAIT), beside which a socket can be bound only with SO_REUSEADDR.

Ports come from the range the job gives, else from outside the ephemeral one, where no
outgoing connection takes them between two looks.

*Whose sockets.* The kernel is asked (``tony_core/protocol/socket_owners.py``) which sockets listen
at a port of this node; one without sock_diag has tables in /proc.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import (
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from tony_core.exit_causes import ExitCause
from tony_core.protocol.reactor import Reactor
from tony_core.protocol.socket_owners import SocketOwner, SocketTable, Unavailable
from tony_executor import processes
from tony_executor.monitoring.diagnosis import FIRST_SECONDS

_FIRST_LOOK_S = 0.1
_LONGEST_PAUSE_S = 2.0
_LOWEST = 10000
_ROOM = 2000  # ports; a smaller range is used only where there is no other
_LEAST_ROOM = 500
_HIGHEST = 65535
_KERNEL = "/proc/sys/net/ipv4"


class NoPort(Exception):
    """No port of the range is free; ``cause`` is the task's exit cause."""

    def __init__(self, cause: ExitCause, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class HeldPort(NamedTuple):
    """A port's two sockets; ``bound`` is None while it is released."""

    claim: Optional[socket.socket]
    bound: Optional[socket.socket]


class Ports:
    """The ports of one task of one session, by name."""

    def __init__(self) -> None:
        self._held: Dict[str, HeldPort] = {}
        self._span: Optional[Tuple[int, ...]] = None
        self.numbers: Dict[str, int] = {}

    def hold(
        self,
        names: Sequence[str],
        span: Optional[Sequence[int]] = None,
        kept: Optional[Dict[str, int]] = None,
        same: bool = False,
    ) -> Dict[str, int]:
        """Hold a port for each name; ``kept`` are served by something of ours already.

        With ``same`` those stay that were held before, and what was released is taken again.
        """
        kept = kept or {}
        self._span = tuple(span) if span else None
        if not same:
            self._close_ports(name for name in list(self._held) if name not in kept)
            self.numbers = {}
        for name in names:
            own = len(self._held)
            try:
                if name in kept:
                    self.numbers[name] = kept[name]
                elif name in self.numbers:
                    self._retake(name)
                else:
                    self._take(name)
            except NoPort as error:
                self.close()
                if span and own:
                    raise NoPort(
                        error.cause,
                        f"{error}; the task needs {len(names)}, and held {own} of them",
                    ) from error
                raise
        return dict(self.numbers)

    def renew(self, name: str) -> int:
        """Hold another port for this name instead; returns its number."""
        before = self._held.pop(name, None)
        try:
            self._take(name)
        finally:
            if before is not None:
                _close(before)
        return self.numbers[name]

    def share(self, names: Iterable[str]) -> None:
        """Let the program that starts next bind them beside us."""
        for name in names:
            if name in self._held:
                _set_reusable(self._held[name].bound, True)

    def release(self, names: Iterable[str]) -> None:
        """Close these but keep the claim: their program binds them without our socket."""
        for name in names:
            held = self._held.get(name)
            if held is not None and held.bound is not None:
                held.bound.close()
                self._held[name] = HeldPort(held.claim, None)

    def is_lost(self, name: str, program: int) -> bool:
        """Whether another user listens at the port, or a process older than the program."""
        owners = _listeners(self.numbers.get(name, 0))
        if any(each.uid != os.geteuid() for each in owners):
            return True
        return are_open_before({each.inode for each in owners}, program)

    def list_taken(self) -> List[str]:
        """The names of ports at which a process listens that is not below this one."""
        names = []
        for name in sorted(self.numbers):
            if _listeners(self.numbers[name]) and not serves(os.getpid(), self.numbers[name]):
                names.append(name)
        return names

    def close(self) -> None:
        """Release all ports."""
        self._close_ports(list(self._held))
        self.numbers = {}

    def _close_ports(self, names: Iterable[str]) -> None:
        for name in names:
            _close(self._held.pop(name))

    def _take(self, name: str) -> None:
        self._held[name], self.numbers[name] = _choose(self._span)

    def _retake(self, name: str) -> None:
        port = self.numbers[name]
        # Bound again even where it was shared: a user who was beside us is remembered by the kernel
        # (its shortcut for SO_REUSEPORT) until a socket is bound without that option.
        self.release([name])
        # Connections that the last program has ended linger on the port for a minute.
        bound = _bind(port) or _bind(port, reuse=True)
        held = self._held.get(name)
        self._held[name] = HeldPort(held.claim if held is not None else None, bound)
        if bound is None or _is_other_users(port):
            raise NoPort(
                ExitCause.ADDRESS_IN_USE, f"port {port}, which peers know, is taken on the node"
            )


class PortWatch:
    """Calls ``lost`` with the names of the ports that the program cannot have any more."""

    def __init__(
        self,
        reactor: Reactor,
        ports: Ports,
        names: Iterable[str],
        program: int,
        lost: Callable[[List[str]], None],
    ) -> None:
        self._reactor = reactor
        self._ports = ports
        self._names = list(names)
        self._program = program
        self._lost = lost
        self._until = reactor.now() + FIRST_SECONDS
        self._pause = _FIRST_LOOK_S
        self._timer = reactor.call_later(self._pause, self._look)

    def cancel(self) -> None:
        """Stop watching; idempotent."""
        self._timer.cancel()

    def _look(self) -> None:
        numbers = self._ports.numbers
        self._names = [n for n in self._names if n in numbers and not self._is_ours(numbers[n])]
        lost = [name for name in self._names if self._ports.is_lost(name, self._program)]
        if lost:
            self._lost(lost)
        elif self._names and self._reactor.now() < self._until:
            self._pause = min(_LONGEST_PAUSE_S, self._pause * 1.5)
            self._timer = self._reactor.call_later(self._pause, self._look)

    def _is_ours(self, port: int) -> bool:
        return not is_free(port) and serves(os.getpid(), port)


def serves(pid: int, port: int) -> bool:
    """Whether all that listens at the port is this user's, and open in this process or below it."""
    owners = _listeners(port)
    if not owners or any(each.uid != os.geteuid() for each in owners):
        return False
    pids = [pid, *(process.pid for process in processes.descendants(pid))]
    return are_open_in({each.inode for each in owners}, pids)


def is_free(port: int) -> bool:
    """Whether nothing listens there."""
    return not _listeners(port)


def _close(held: HeldPort) -> None:
    for sock in held:
        if sock is not None:
            sock.close()


def _set_reusable(sock: Optional[socket.socket], reusable: bool) -> None:
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reusable))


def _listeners(port: int) -> List[SocketOwner]:
    try:
        return list_listeners(port)
    except OwnersUnknown:
        return []


def _is_other_users(port: int) -> bool:
    return any(each.uid != os.geteuid() for each in _listeners(port))


# ---------------------------------------------------------------------- choosing


def _choose(span: Optional[Tuple[int, ...]]) -> Tuple[HeldPort, int]:
    low, high = (span[0], span[-1]) if span else outside_ephemeral()
    skipped = [] if span else reserved()
    size = high - low + 1
    # Every executor begins elsewhere, so that few collide.
    start = int.from_bytes(os.urandom(4), "big") % size
    claimed = 0
    for reuse in (False, True) if span else (False,):
        claimed = 0
        for step in range(size):
            port = low + (start + step) % size
            if any(a <= port <= b for a, b in skipped):
                continue
            try:
                claim = _claim(port)
            except OSError:
                claimed += 1
                continue
            bound = _bind(port, reuse)
            if bound is not None:
                return HeldPort(claim, bound), port
            if claim is not None:
                claim.close()
    if span is None:
        message = f"no port from {low} to {high} is free (outside the ephemeral ports)"
        raise NoPort(ExitCause.ADDRESS_IN_USE, message)
    raise NoPort(
        ExitCause.PORT_RANGE_FULL,
        f"no port of tony.task.port-range ({low}-{high}) is free on this node:"
        f" {claimed} held for tasks of TonY, {size - claimed} in use otherwise; give a wider range",
    )


def _claim(port: int) -> Optional[socket.socket]:
    """Claim it among the executors of the node; raises OSError when another has it."""
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    except OSError:
        return None
    try:
        sock.bind(b"\0tony-port-%d" % port)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise
        return None
    return sock


def _bind(port: int, reuse: bool = False) -> Optional[socket.socket]:
    """Bind it exclusively; with ``reuse`` also where connections of an earlier program linger."""
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # no IPv6
        try:
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
            sock.bind((address, port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRNOTAVAIL:
                continue
            return None
        return sock
    return None


def outside_ephemeral(folder: str = _KERNEL) -> Tuple[int, int]:
    """The range to draw from when the job names none."""
    low, high = 32768, 60999
    words = _read(folder, "ip_local_port_range").split()
    if len(words) == 2 and all(word.isdigit() for word in words):
        low, high = int(words[0]), int(words[1])
    first = _read(folder, "ip_unprivileged_port_start").strip()
    lowest = max(1024, int(first) if first.isdigit() else 0)
    if low - max(_LOWEST, lowest) >= _ROOM:
        return max(_LOWEST, lowest), low - 1
    if _HIGHEST - high >= _ROOM:
        return high + 1, _HIGHEST
    if low - lowest >= _LEAST_ROOM:
        return lowest, low - 1
    return min(lowest, _HIGHEST), _HIGHEST


def reserved(folder: str = _KERNEL) -> List[Tuple[int, int]]:
    """Spans of ports that the administrator keeps for services."""
    spans = []
    for word in _read(folder, "ip_local_reserved_ports").strip().split(","):
        first, _, last = word.partition("-")
        if first.isdigit() and (last or first).isdigit():
            spans.append((int(first), int(last or first)))
    return spans


def _read(folder: str, name: str) -> str:
    try:
        with open(f"{folder}/{name}", "rb") as file:
            return file.read(65536).decode("ascii", "replace")
    except OSError:
        return ""


_LISTEN = "0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


class OwnersUnknown(Exception):
    """The system does not tell who owns the sockets."""


def list_listeners(port: int) -> List[SocketOwner]:
    """All sockets that listen at the TCP port, on any address; raises :class:`OwnersUnknown`."""
    table = SocketTable()
    try:
        return table.listeners("", port)
    except Unavailable:
        suffix = f":{port:04X}"
        return [own for at, state, own in _rows() if state == _LISTEN and at.endswith(suffix)]
    finally:
        table.close()


def are_open_in(inodes: Set[int], pids: Iterable[int]) -> bool:
    """Whether every one of these sockets is open in one of these processes."""
    left = {f"socket:[{inode}]" for inode in inodes}
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for name in names:
            if not left:
                return True
            try:
                left.discard(os.readlink(f"/proc/{pid}/fd/{name}"))
            except OSError:
                continue
    return not left


def are_open_before(inodes: Set[int], program: int) -> bool:
    """Whether one of these sockets is open in a process that began before this one."""
    began = _began(str(program))
    if not inodes or began is None:
        return False
    older = [int(e) for e in os.listdir("/proc") if e.isdigit() and (_began(e) or began) < began]
    return any(are_open_in({inode}, older) for inode in inodes)


def _began(pid: str) -> Optional[int]:
    """When the process began, in ticks since the system did."""
    try:
        with open(f"/proc/{pid}/stat", "rb", 0) as file:
            return int(file.read(1024).rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _rows() -> Iterator[Tuple[str, str, SocketOwner]]:
    """(local address, state, owner) of what the tables list."""
    read = False
    for path in _TABLES:
        try:
            with open(path, "rb") as table:
                lines = table.read().decode("ascii", "replace").splitlines()[1:]
        except OSError:
            continue
        read = True
        for line in lines:
            words = line.split()
            if len(words) > 9:
                yield words[1], words[3], SocketOwner(int(words[7]), int(words[9]))
    if not read:
        raise OwnersUnknown(f"neither sock_diag nor {_TABLES[0]} can be used")

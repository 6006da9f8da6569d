"""Ports that are held for the program: bound, never listening.

A port is first bound alone, which fails while anybody else holds it, another executor
included; only then is the socket made shareable (SO_REUSEADDR, SO_REUSEPORT), so that most
programs can bind the port while we still hold it. The few that cannot get it released just
before they start. It is bound on all interfaces: nobody else gets it on any of them.

Ports come from the range the job gives, else from below the ephemeral one, where no
outgoing connection takes them between two looks.
"""

from __future__ import annotations

import os

from tony_core.light import TYPE_CHECKING, socket

if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional, Sequence, Tuple


_LOWEST = 10000
_RANGE_FILE = "/proc/sys/net/ipv4/ip_local_port_range"


class NoPort(Exception):
    """No port of the range is free; ``cause`` is the word for it in the task's end."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class Ports:
    """The ports of one task of one session, by name."""

    def __init__(self) -> None:
        self._held: Dict[str, socket.socket] = {}
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
        if not same:
            self.close()
        for name in names:
            if kept and name in kept:
                self.numbers[name] = kept[name]
                continue
            if name in self.numbers:
                self._take_again(name)
                continue
            try:
                sock = _take(tuple(span) if span else None)
            except NoPort as error:
                own = len(self._held)
                self.close()
                if span and own:
                    raise NoPort(
                        error.cause,
                        f"{error}; the task needs {len(names)}, and held {own} of them",
                    ) from error
                raise
            self._held[name] = sock
            self.numbers[name] = sock.getsockname()[1]
        return dict(self.numbers)

    def release(self, names: Iterable[str]) -> None:
        """Give these up: their program binds them alone."""
        for name in names:
            sock = self._held.pop(name, None)
            if sock is not None:
                sock.close()

    def _take_again(self, name: str) -> None:
        if name in self._held:
            return
        port = self.numbers[name]
        # Not alone: connections that its last program has ended linger on the port for a minute.
        sock = _bound(port, socket.SO_REUSEADDR)
        if sock is None:
            self.close()
            raise NoPort("address-in-use", f"port {port}, which peers know, is taken by somebody")
        self._held[name] = sock

    def taken(self) -> List[str]:
        """Those at which somebody listens (asked when the program has ended)."""
        return [name for name in sorted(self.numbers) if _is_listened_at(self.numbers[name])]

    def close(self) -> None:
        """Give up all."""
        self.release(list(self._held))
        self.numbers = {}


def _take(span: Optional[Tuple[int, ...]]) -> socket.socket:
    low, high = (span[0], span[-1]) if span else below_ephemeral()
    size = high - low + 1
    # Every executor begins elsewhere, so that few collide.
    start = int.from_bytes(os.urandom(4), "big") % size
    for step in range(size):
        sock = _bound(low + (start + step) % size)
        if sock is not None:
            return sock
    if span is None:
        message = f"no port from {low} to {high} is free (below the ephemeral ports)"
        raise NoPort("address-in-use", message)
    held = sum(_is_shared(port) for port in range(low, high + 1))
    raise NoPort(
        "port-range-full",
        f"no port of tony.task.port-range ({low}-{high}) is free on this node:"
        f" {held} held for tasks of yours, {size - held} in use otherwise; give a wider range",
    )


def _is_shared(port: int) -> bool:
    """Whether it is held as we hold ports: bound and shareable, with nobody listening."""
    sock = _bound(port, socket.SO_REUSEPORT)
    if sock is not None:
        sock.close()
    return sock is not None


def _bound(port: int, beside: int = 0) -> Optional[socket.socket]:
    """Bound alone, or beside those that have this option too and do not listen."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if beside:
            sock.setsockopt(socket.SOL_SOCKET, beside, 1)
        sock.bind(("0.0.0.0", port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        sock.close()
        return None
    return sock


def _is_listened_at(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("0.0.0.0", port))
        except OSError:
            return True
    return False


def below_ephemeral() -> Tuple[int, int]:
    """The range to draw from when the job names none."""
    try:
        with open(_RANGE_FILE, encoding="ascii") as file:
            low, high = (int(word) for word in file.read().split())
    except (OSError, ValueError):
        low, high = 32768, 60999
    if low - _LOWEST >= 2000:
        return _LOWEST, low - 1
    if 65535 - high >= 2000:
        return high + 1, 65535
    return 1024, 65535

"""Looks for the master while there is none.

Three things in turns, until somebody welcomes us: call the address we know; read the
master's file again, since a new one writes its address there; and run the scheduler's command,
where it gives us one: it sees to it that there is a next master (many executors run it at
once, and the master's lock lets one through) or finds out where that one is. Whatever it
starts here ends with the container.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Callable, List, Mapping, Optional

from tony_core.protocol.link import Dial, dial
from tony_core.protocol.reactor import Reactor, Timer
from tony_executor import child

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 3.0
DIAL_S = 5.0
SUCCEED_EVERY_S = 2.0
_LONGEST_FILE = 1 << 16

STARTED, HELD, NO_MORE = 0, 3, 4  # exit codes of the successor command


class Seeking:
    """``on_socket`` gets every connection that is made; ``on_hopeless`` the word that none will."""

    def __init__(
        self,
        reactor: Reactor,
        address: str,
        master_file: Optional[str],
        successor: Optional[List[str]],
        on_socket: Callable[[socket.socket], None],
        on_hopeless: Callable[[str], None],
        log: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._address = address
        self._master_file = master_file
        self._successor = successor
        self._on_socket = on_socket
        self._on_hopeless = on_hopeless
        self._log = log
        self._active = False
        self._pause = FIRST_PAUSE_S
        self._dial: Optional[Dial] = None
        self._timer: Optional[Timer] = None
        self._succeed_timer: Optional[Timer] = None
        self._said = ""
        self._running: Optional[int] = None  # pid of the successor command

    def start(self, succeed: bool) -> None:
        """Begin to look; ``succeed``: the master was there, so help the next one to start."""
        if not self._active:
            self._active = True
            self._pause = FIRST_PAUSE_S
            self._timer = self._reactor.call_later(0, self._call)
        if succeed and self._successor and self._succeed_timer is None:
            # Not at once: a connection may break while the master lives.
            wait = _between(0.3, 1.0)
            self._succeed_timer = self._reactor.call_later(wait, self._succeed)

    def stop(self) -> None:
        """Found, or given up."""
        self._active = False
        for timer in (self._timer, self._succeed_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._succeed_timer = None
        if self._dial is not None:
            self._dial.cancel()
            self._dial = None

    @property
    def helpers(self) -> List[int]:
        """Processes of ours that are none of the program's."""
        return [self._running] if self._running is not None else []

    def reaped(self, pid: int, exit_code: int) -> bool:
        """A child of ours ended; whether it was the successor command."""
        if pid != self._running:
            return False
        self._running = None
        if exit_code == NO_MORE:
            if self._active:
                self._on_hopeless("the application has ended, or no attempts of a master remain")
        elif exit_code == STARTED:
            self._log("started the next master")
        elif exit_code != HELD:
            self._log(f"the command that starts the next master failed with {exit_code}")
        if self._active:
            self._succeed_timer = self._reactor.call_later(SUCCEED_EVERY_S, self._succeed)
        return True

    # ------------------------------------------------------------------ calling

    def _call(self) -> None:
        self._timer = None
        if self._active:
            self._dial = dial(
                self._reactor, self._newest_address(), self._connected, self._failed, DIAL_S
            )

    def again(self) -> None:
        """The connection that was made led nowhere."""
        if self._active and self._dial is None and self._timer is None:
            wait = self._pause * _between(0.7, 1.3)
            self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
            self._timer = self._reactor.call_later(wait, self._call)

    def _connected(self, sock: socket.socket) -> None:
        self._dial = None
        self._on_socket(sock)

    def _failed(self, reason: str) -> None:
        self._dial = None
        if reason != self._said:
            self._said = reason
            self._log(reason)
        self.again()

    def _newest_address(self) -> str:
        found = address_in(self._master_file)
        if found is not None and found != self._address:
            self._log(f"the master is at {found} now")
            self._address = found
            self._pause = FIRST_PAUSE_S
        return self._address

    # ------------------------------------------------------------------ the next master

    def _succeed(self) -> None:
        self._succeed_timer = None
        if not self._active or self._running is not None or not self._successor:
            return
        argv = [str(word) for word in self._successor]
        try:
            argv[0] = _program(argv[0], os.environ)
            spawned = child.spawn(argv, os.environ, os.getcwd())
            self._running = spawned.pid
            child.check_executed(spawned)
        except (OSError, ValueError, child.NotExecuted) as error:
            self._log(f"cannot start the next master: {error}")
            if self._running is None:
                self._succeed_timer = self._reactor.call_later(SUCCEED_EVERY_S, self._succeed)


def address_in(path: Optional[str]) -> Optional[str]:
    """host:port of the master's file, when it is there and whole."""
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            said = json.loads(file.read(_LONGEST_FILE))
        host, port = said["host"], int(said["port"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    if not isinstance(host, str) or not host.isascii() or not 0 < port < 1 << 16:
        return None
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _program(name: str, environment: Mapping[str, str]) -> str:
    if "/" in name:
        return name
    for folder in environment.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(os.pathsep):
        candidate = os.path.join(folder, name)
        if folder and os.access(candidate, os.X_OK):
            return candidate
    return name


def _between(low: float, high: float) -> float:
    """Anything there; the module random loads hashes, and asks the kernel as well."""
    return low + (high - low) * os.urandom(1)[0] / 255

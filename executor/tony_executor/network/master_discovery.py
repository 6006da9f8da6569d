"""Looks for the master while there is none.

Until a master welcomes us it tries in turns: the address that we know; the master's file, into
which a new master writes its address; and the scheduler's successor command, where there is one.
That command starts the next master (many executors run it at once, and the master's lock lets one
through) or finds its address. What it starts here ends with the container.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Callable, List, Mapping, Optional

from tony_core.protocol.link import Dial, dial
from tony_core.protocol.reactor import Reactor, Timer
from tony_executor.launch.spawn import NotExecuted, check_executed, spawn

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 3.0
DIAL_S = 5.0
SUCCESSOR_EVERY_S = 2.0
_LONGEST_FILE = 1 << 16

STARTED, HELD, NO_MORE = 0, 3, 4  # exit codes of the successor command


class MasterDiscovery:
    """``on_socket`` gets each connection; ``on_no_master`` the reason why no master will come."""

    def __init__(
        self,
        reactor: Reactor,
        address: str,
        master_file: Optional[str],
        successor: Optional[List[str]],
        on_socket: Callable[[socket.socket], None],
        on_no_master: Callable[[str], None],
        log: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._address = address
        self._master_file = master_file
        self._successor = successor
        self._on_socket = on_socket
        self._on_no_master = on_no_master
        self._log = log
        self._active = False
        self._pause = FIRST_PAUSE_S
        self._dial: Optional[Dial] = None
        self._timer: Optional[Timer] = None
        self._successor_timer: Optional[Timer] = None
        self._last_failure = ""
        self._successor_pid: Optional[int] = None  # pid of the successor command

    def start(self, start_successor: bool) -> None:
        """Begin; ``start_successor``: there was a master, so help the next one to start."""
        if not self._active:
            self._active = True
            self._pause = FIRST_PAUSE_S
            self._timer = self._reactor.call_later(0, self._call)
        if start_successor and self._successor and self._successor_timer is None:
            # Not at once: a connection may break while the master lives.
            wait = _between(0.3, 1.0)
            self._successor_timer = self._reactor.call_later(wait, self._start_successor)

    def stop(self) -> None:
        """Stop looking."""
        self._active = False
        for timer in (self._timer, self._successor_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._successor_timer = None
        if self._dial is not None:
            self._dial.cancel()
            self._dial = None

    @property
    def helpers(self) -> List[int]:
        """Processes of ours that are not the program's."""
        return [self._successor_pid] if self._successor_pid is not None else []

    def reaped(self, pid: int, exit_code: int) -> bool:
        """Note the end of a child; returns whether it was the successor command."""
        if pid != self._successor_pid:
            return False
        self._successor_pid = None
        if exit_code == NO_MORE:
            if self._active:
                self._on_no_master("the application has ended, or no attempts of a master remain")
        elif exit_code == STARTED:
            self._log("started the next master")
        elif exit_code != HELD:
            self._log(f"the command that starts the next master failed with {exit_code}")
        if self._active:
            self._successor_timer = self._reactor.call_later(
                SUCCESSOR_EVERY_S, self._start_successor
            )
        return True

    # ------------------------------------------------------------------ calling

    def _call(self) -> None:
        self._timer = None
        if self._active:
            self._dial = dial(
                self._reactor, self._newest_address(), self._connected, self._failed, DIAL_S
            )

    def retry(self) -> None:
        """Try again: the connection that was made led to no master."""
        if self._active and self._dial is None and self._timer is None:
            wait = self._pause * _between(0.7, 1.3)
            self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
            self._timer = self._reactor.call_later(wait, self._call)

    def _connected(self, sock: socket.socket) -> None:
        self._dial = None
        self._on_socket(sock)

    def _failed(self, reason: str) -> None:
        self._dial = None
        if reason != self._last_failure:
            self._last_failure = reason
            self._log(reason)
        self.retry()

    def _newest_address(self) -> str:
        address = read_address(self._master_file)
        if address is not None and address != self._address:
            self._log(f"the master is at {address} now")
            self._address = address
            self._pause = FIRST_PAUSE_S
        return self._address

    # ------------------------------------------------------------------ the next master

    def _start_successor(self) -> None:
        self._successor_timer = None
        if not self._active or self._successor_pid is not None or not self._successor:
            return
        argv = [str(word) for word in self._successor]
        try:
            argv[0] = _program(argv[0], os.environ)
            spawned = spawn(argv, os.environ, os.getcwd())
            self._successor_pid = spawned.pid
            check_executed(spawned)
        except (OSError, ValueError, NotExecuted) as error:
            self._log(f"cannot start the next master: {error}")
            if self._successor_pid is None:
                self._successor_timer = self._reactor.call_later(
                    SUCCESSOR_EVERY_S, self._start_successor
                )


def read_address(path: Optional[str]) -> Optional[str]:
    """The host:port in the master's file; None where the file is missing or damaged."""
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            found = json.loads(file.read(_LONGEST_FILE))
        host, port = found["host"], int(found["port"])
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
    """A random number there, without the module ``random``, which loads hashlib."""
    return low + (high - low) * os.urandom(1)[0] / 255

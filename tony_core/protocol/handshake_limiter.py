"""The strangers at a listening port: how many, for how long, and what is said of them.

Theory of operation
===================

Who connects has proved nothing yet, and costs a descriptor, a few hundred bytes of buffers and
the hashes of one handshake, until its deadline (``link.HANDSHAKE_S``). A door bounds how many
such there are. When it is full nobody else is let in: whoever calls meanwhile waits in the
kernel's backlog, and is none the worse for it where the others are honest, for their handshakes
take milliseconds. A stranger that has taken longer than :data:`PATIENCE_S` makes room for those
that wait; one that has said something is given :data:`HEARD_S` more, for it may be us who were
slow. So a thousand peers that say nothing, or a byte a second, cost an honest one seconds,
and neither memory nor its place.

Who was turned away is counted. The log hears of the first at once, and of all the others in
one line a minute at most: an attack must not fill a disk.

Python 3.8.
"""

from __future__ import annotations

from typing import Callable, Dict, Optional

from tony_core.protocol.link import Link, Listener
from tony_core.protocol.reactor import Reactor, Timer

PATIENCE_S = 2.0
HEARD_S = 0.5  # more, once, for one that has said something: it may have waited for us
PRESS_S = 0.05  # at least, from a full door to the first that goes
PRESS_MOST = 64
TOLD_EVERY_S = 60.0


class Door:
    """See the module. ``listener`` is the one to hold while the door is full."""

    def __init__(self, reactor: Reactor, most: int, log: Callable[[str], None]) -> None:
        self.turned_away = 0
        self.listener: Optional[Listener] = None
        self._reactor = reactor
        self._most = most
        self._log = log
        self._inside: Dict[Link, float] = {}  # who has not proved itself, since when; oldest first
        self._spared: Dict[Link, float] = {}  # of them, who was given more time; until when
        self._pressing: Optional[Timer] = None
        self._untold = 0
        self._latest = ""
        self._tells: Optional[Timer] = None

    def __len__(self) -> int:
        return len(self._inside)

    def enter(self, link: Link) -> None:
        """A link whose peer has just connected."""
        self._inside[link] = self._reactor.now()
        if len(self._inside) >= self._most:
            if self.listener is not None:
                self.listener.pause()
            if self._pressing is None:
                self._pressing = self._reactor.call_later(self._wait(), self._press)

    def leave(self, link: Link) -> bool:
        """It has proved itself, or ended; whether it was still a stranger."""
        if self._inside.pop(link, None) is None:
            return False
        self._spared.pop(link, None)
        if self.listener is not None and len(self._inside) < self._most:
            self.listener.resume()
        return True

    def ended(self, link: Link, reason: str) -> bool:
        """A link ended; whether as a stranger, who is counted."""
        if not self.leave(link):
            return False
        self._count(f"{link.peer}: {reason}")
        return True

    def close(self) -> None:
        """Turn everybody away; the last count is told."""
        for timer in (self._pressing, self._tells):
            if timer is not None:
                timer.cancel()
        self._tell()
        for link in list(self._inside):
            link.close()
        self._inside.clear()
        self._spared.clear()

    # ------------------------------------------------------------------ a full door

    def _press(self) -> None:
        """Where it is full: those that took too long make room.

        A timer's, never an accept's: whatever lay in the strangers' sockets when this turn
        began has been read. After a master's pause that may be a crowd of honest proofs.
        """
        self._pressing = None
        now = self._reactor.now()
        overdue = [link for link in self._inside if self._due(link, now) <= now]
        if len(self._inside) < self._most:
            return
        for link in overdue[:PRESS_MOST]:
            link.close()
            self.ended(link, f"had not authenticated in {PATIENCE_S:g} s while others waited")
        if len(self._inside) >= self._most:
            self._pressing = self._reactor.call_later(self._wait(), self._press)

    def _wait(self) -> float:
        now = self._reactor.now()
        return max(PRESS_S, min(self._due(link, now) for link in self._inside) - now)

    def _due(self, link: Link, now: float) -> float:
        """When it has to make room."""
        due = self._inside[link] + PATIENCE_S
        if due <= now and link not in self._spared and link.heard_at > self._inside[link]:
            self._spared[link] = now + HEARD_S
        return self._spared.get(link, due)

    # ------------------------------------------------------------------ what is said

    def _count(self, text: str) -> None:
        self.turned_away += 1
        self._latest = text
        if self._tells is not None and self._tells.active:
            self._untold += 1
            return
        self._say(f"turned away {text}")
        self._tells = self._reactor.call_later(TOLD_EVERY_S, self._tell_more)

    def _tell(self) -> None:
        if self._untold:
            self._say(
                f"turned away {self._untold} more connections ({self.turned_away} in all);"
                f" the latest {self._latest}"
            )
            self._untold = 0

    def _say(self, text: str) -> None:
        try:
            self._log(text)
        except OSError:
            pass  # a full disk: whoever accepts or reads here must not take it for its socket's

    def _tell_more(self) -> None:
        if self._untold:
            self._tell()
            self._tells = self._reactor.call_later(TOLD_EVERY_S, self._tell_more)

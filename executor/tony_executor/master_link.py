"""Which of the connected peers is the master, and what a new one must be sent again."""

from __future__ import annotations

from typing import Callable, Dict, List, Optional

from tony_core.protocol.messages import (
    Message,
    Noted,
    Register,
    Reported,
    Serving,
    Welcome,
)
from tony_executor.commands import (
    CloseLink,
    Command,
    Configure,
    FindMaster,
    SendMessage,
    StopFinding,
    WriteLog,
)
from tony_executor.monitoring.telemetry import merge_reports

MAX_NOTES = 50


class MasterLink:
    """The link to the master, among those to peers that know the job's secret.

    Every such peer is sent a Register. One that answers with Welcome, of an attempt not older than
    the newest seen, becomes *the* master, and the link of the former is closed. No other peer is
    obeyed. While there is no master (``lost_since``), we look for it.
    """

    def __init__(self, emit: Callable[[Command], None]) -> None:
        self.attempt = 0
        self.link: Optional[int] = None
        self.welcome: Optional[Welcome] = None
        self.lost_since: Optional[float] = None
        self.heartbeat_at: Optional[float] = None
        self.registered: Dict[int, Register] = {}  # what was sent on each open link
        self._emit = emit

    def find(self, now: float, start_successor: bool) -> None:
        """Look for a master; ``start_successor``: help the next one to start."""
        self.lost_since = now
        self._emit(FindMaster(start_successor))

    def register(self, link: int, register: Register) -> None:
        """Tell the peer of a new link who we are."""
        self.registered[link] = register
        self._emit(SendMessage(link, register))

    def send(self, message: Message) -> None:
        """Send to the master; without one the message is dropped."""
        if self.link is not None:
            self._emit(SendMessage(self.link, message))

    def accept(self, link: int, welcome: Welcome, now: float) -> Optional[Register]:
        """Obey the master that sent this Welcome; returns the Register that it answered.

        None when it is refused: its link is closed, or was closed before.
        """
        if link not in self.registered:
            return None
        if welcome.attempt < self.attempt:
            self.close(link, f"master {welcome.attempt} is older than {self.attempt}", now)
            return None
        if self.link is not None and self.link != link:
            self.close(self.link, f"master {welcome.attempt} opened a new connection", now)
        self.attempt = welcome.attempt
        self.link = link
        self.lost_since = None
        self.welcome = welcome
        self.heartbeat_at = now + welcome.heartbeat_s
        self._emit(WriteLog(f"master {welcome.attempt} accepted us"))
        self._emit(StopFinding())
        self._emit(Configure(link, welcome))
        return self.registered[link]

    def closed(self, link: int, reason: str, now: float, is_exiting: bool) -> None:
        """A link is gone: look for the master if it was the master's, unless we exit."""
        self.registered.pop(link, None)
        if link != self.link:
            return
        self._lose(now)
        self._emit(WriteLog(f"connection to master {self.attempt} lost: {reason}"))
        if not is_exiting:
            self._emit(FindMaster(start_successor=True))

    def close(self, link: int, reason: str, now: float) -> None:
        """Close a link whose peer is not obeyed."""
        self.registered.pop(link, None)
        self._emit(CloseLink(link, reason))
        if link == self.link:
            self._lose(now)
            self._emit(FindMaster(start_successor=True))

    def _lose(self, now: float) -> None:
        self.link = None
        self.lost_since = now
        self.heartbeat_at = None


class UnsentTelemetry:
    """The telemetry that a new master cannot know: newest report, web servers, unsent notes."""

    def __init__(self) -> None:
        self._reported: Optional[Reported] = None
        self._serving: Dict[str, Serving] = {}
        self._notes: List[Noted] = []

    def begin_session(self) -> None:
        """Forget what the last program reported."""
        self._reported = None

    def keep(self, message: Message, is_connected: bool) -> None:
        """Keep what the message adds."""
        if isinstance(message, Reported):
            self._reported = merge_reports(self._reported, message)
        elif isinstance(message, Serving):
            if message.port:
                self._serving[message.name] = message
            else:
                self._serving.pop(message.name, None)
        elif isinstance(message, Noted) and not is_connected:
            self._notes = [*self._notes, message][-MAX_NOTES:]

    def take(self) -> List[Message]:
        """The messages for a new master; notes are handed out once."""
        found: List[Message] = [self._reported] if self._reported is not None else []
        found += self._serving.values()
        found += self._notes
        self._notes = []
        return found

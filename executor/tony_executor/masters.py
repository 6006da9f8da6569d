"""The part of the life that knows masters: who is obeyed, and what each is told."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Type

from tony_core.protocol.messages import (
    Ended,
    Message,
    Noted,
    Ready,
    Register,
    Reported,
    Serving,
    Shutdown,
    Welcome,
)
from tony_executor.commands import Command, Configure, Drop, Log, Say, Seek, StopSeeking
from tony_executor.events import Began, Heard, Linked, NoMasterWillCome, Unlinked
from tony_executor.phases import (
    EXIT_MASTER_LOST,
    EXIT_SHUT_DOWN,
    LEFTOVER_GRACE_S,
    NEXT,
    ON_THE_WIRE,
    SAY_AGAIN_S,
    Identity,
    InvalidTransition,
    Phase,
)


class Masters:
    """Links, attempts and Register; :class:`tony_executor.life.Life` is the whole."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.phase = Phase.IDLE
        self.task = ""
        self.session = -1
        self.restart = 0  # how often its task was started again alone in this session
        self.host = identity.host
        self.ports: Dict[str, int] = {}
        self.gpus: List[str] = []  # as in messages.Running
        self.offsets: Dict[str, int] = {}  # where this session's output begins in the logs
        self.attempt = 0
        self.link: Optional[int] = None
        self.exited = False
        self.ended: Optional[Ended] = None  # not acknowledged yet
        self._last: Optional[Ended] = None  # this session's; the next master has not heard it
        self._welcome: Optional[Welcome] = None
        self._now = 0.0
        self._told: Dict[int, Register] = {}  # what each open link was told
        self._alone_since: Optional[float] = None
        self._registry_from: Optional[float] = None
        self._heartbeat_at: Optional[float] = None
        self._again_at: Optional[float] = None
        self._reported: Optional[Reported] = None
        self._serving: Dict[str, Serving] = {}
        self._notes: List[Noted] = []
        self._story: List[str] = []
        self._out: List[Command] = []
        self._words: Dict[Type[Any], Callable[[Any], None]] = {}

    @property
    def leaving(self) -> bool:
        """Whether the end has begun."""
        raise NotImplementedError

    def _leave(self, code: int, reason: str, grace_s: float) -> None:
        raise NotImplementedError

    def _ran_s(self) -> float:
        raise NotImplementedError

    # ------------------------------------------------------------------ masters

    def _began(self, event: Began) -> None:
        self._alone_since = event.at
        self._do(Seek(succeed=False))

    def _linked(self, event: Linked) -> None:
        self._told[event.link] = self._register()
        self._do(Say(event.link, self._told[event.link]))

    def _unlinked(self, event: Unlinked) -> None:
        self._told.pop(event.link, None)
        if event.link != self.link:
            return
        self.link = None
        self._alone_since = event.at
        self._heartbeat_at = self._again_at = None
        self._do(Log(f"master {self.attempt} is gone: {event.reason}"))
        if not self.leaving:
            self._do(Seek(succeed=True))

    def _heard(self, event: Heard) -> None:
        if isinstance(event.message, Welcome):
            self._welcomed(event.link, event.message)
            return
        if event.link == self.link:
            word = self._words.get(type(event.message))
            if word is not None:
                word(event.message)
            else:
                name = type(event.message).__name__
                self._drop(event.link, f"{name} is no word of a master's")
        elif isinstance(event.message, Shutdown) and event.link in self._told:
            # Instead of Welcome: this job does not know our container (any more).
            self._refused(event.link, event.message)

    def _refused(self, link: int, message: Shutdown) -> None:
        if self.link is not None:
            self._drop(link, "an older master's word")
            return
        self._do(Log(f"sent away by a master: {message.reason}"))
        self._leave(EXIT_SHUT_DOWN, message.reason or "sent away", message.grace_s)

    def _welcomed(self, link: int, welcome: Welcome) -> None:
        if link not in self._told:
            return
        if welcome.attempt < self.attempt:
            self._drop(link, f"master {welcome.attempt} is older than {self.attempt}")
            return
        former = self.link
        if former is not None and former != link:
            self._drop(former, f"master {welcome.attempt} called anew")
        first = self._welcome is None
        self.attempt = welcome.attempt
        self.link = link
        self._alone_since = None
        self._welcome = welcome
        self._heartbeat_at = self._now + welcome.heartbeat_s
        if first or self.phase is Phase.PREPARING:
            self._registry_from = self._now
        self._do(Log(f"master {welcome.attempt} welcomes us"))
        self._do(StopSeeking())
        self._do(Configure(link, welcome))
        self._catch_up(self._told[link])

    def _catch_up(self, told: Register) -> None:
        """Say what changed between Register and Welcome, and what a new master cannot know."""
        if self.ended is not None:
            self._again_at = self._now + SAY_AGAIN_S
            if told.ended is None:
                self._say(self.ended)
        elif self.phase is Phase.READY and told.phase != "ready":
            self._say_ready()
        if self._reported is not None:
            self._say(self._reported)
        for serving in self._serving.values():
            self._say(serving)
        notes, self._notes = self._notes, []
        for note in notes:
            self._say(note)

    def _no_master_will_come(self, event: NoMasterWillCome) -> None:
        if self.link is None and not self.leaving:
            self._leave(EXIT_MASTER_LOST, event.reason, LEFTOVER_GRACE_S)

    def _drop(self, link: int, reason: str) -> None:
        self._told.pop(link, None)
        self._do(Drop(link, reason))
        if link == self.link:
            self.link = None
            self._alone_since = self._now
            self._heartbeat_at = self._again_at = None
            self._do(Seek(succeed=True))

    def _register(self) -> Register:
        who = self.identity
        return Register(
            container_id=who.container_id,
            host=who.host,
            listen_port=who.listen_port,
            pid=who.pid,
            runtime=who.runtime,
            task=self.task,
            session=self.session,
            phase=ON_THE_WIRE[self.phase],
            ports=dict(self.ports),
            ended=dict(self._last._asdict()) if self._last is not None else None,
            gpus=list(self.gpus),
            offsets=dict(self.offsets),
            ran_s=self._last.duration_s if self._last is not None else round(self._ran_s(), 3),
            restart=self.restart,
            listen_host=who.listen_host,
        )

    # ------------------------------------------------------------------ small things

    def _move(self, phase: Phase) -> None:
        self._story = [
            *self._story[-30:],
            f"{self._now:.3f} {self.phase.value} -> {phase.value} (session {self.session})",
        ]
        if phase not in NEXT[self.phase]:
            raise InvalidTransition(self._tell())
        self.phase = phase

    def _say_ready(self) -> None:
        self._say(Ready(self.session, self.host, dict(self.ports), self.restart))

    def _say(self, message: Message) -> None:
        if self.link is not None:
            self._do(Say(self.link, message))

    def _do(self, command: Command) -> None:
        self._out.append(command)

    def _tell(self) -> str:
        return "; ".join([f"{self.phase.value}, session {self.session}", *self._story])

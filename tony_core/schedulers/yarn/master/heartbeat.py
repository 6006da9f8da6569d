"""The conversation with the ResourceManager: one heartbeat after the other, whatever happens.

Theory of operation
===================

Each turn says what :class:`Listener.compose` gives and hands over what is heard. A heartbeat
whose answer was lost is sent again as it was: the ResourceManager answers the same number with
the same words, and does not look at what the request holds. What is new waits for the next one.

When the ResourceManager has restarted, the master registers again and all that is outstanding is
said again. When a request can never be granted the whole heartbeat is refused; then each part is
said alone, to find out which it was. When the ResourceManager says that this attempt is over,
either the application has ended, or another attempt is the master now: then this process must
touch nothing any more, neither containers nor files.
"""

from __future__ import annotations

import time
from typing import Callable, NamedTuple, Optional, Protocol, Sequence, Tuple

from tony_core.hadoop.errors import (
    AlreadyRegistered,
    AttemptNotFound,
    Closed,
    HadoopError,
    InvalidRequest,
    InvalidToken,
    NotRegistered,
    Remedy,
    RemoteError,
    Unreachable,
)
from tony_core.hadoop.yarn.ids import AttemptId, ContainerId
from tony_core.hadoop.yarn.messages.resource_requests import PlacementConstraintMapEntry
from tony_core.hadoop.yarn.records import AppReport, Capability
from tony_core.hadoop.yarn.rm_master import Allocation, Registered, RmMaster
from tony_core.schedulers.yarn import refusals
from tony_core.schedulers.yarn.master.container_requests import Said

HURRIED_S, CALM_S = 0.25, 1.0  # between heartbeats
CALL_S = 30.0
FINISH_S = 60.0
RM_LOST_S = 900.0  # YARN's own patience with a ResourceManager that does not answer
ENDED = ("FINISHED", "FAILED", "KILLED")
UNLIMITED = Capability(1 << 40, 1 << 30)


class Beat(NamedTuple):
    """What one heartbeat says."""

    said: Said = Said()
    release: Sequence[ContainerId] = ()
    progress: float = 0.0
    tracking_url: Optional[str] = None


class Listener(Protocol):
    """Who decides what is said, and hears the answers; called by the heartbeat's thread."""

    def compose(self) -> Beat:
        """What is to be said now; it counts as said."""

    def on_answer(self, answer: Allocation) -> bool:
        """What was heard; whether the next heartbeat should come soon."""

    def on_restart(self, registered: Optional[Registered]) -> None:
        """The ResourceManager has forgotten all that was said."""

    def on_refused(self, request_id: int, why: str) -> None:
        """This can never be granted."""

    def on_dismissed(self, why: str, by_user: bool) -> None:
        """The ResourceManager wants no more of this master; it has ended the application."""

    def on_lost(self, why: str) -> None:
        """The ResourceManager does not answer any more."""

    def on_superseded(self, why: str) -> None:
        """Another attempt is the master."""


class Heartbeat:
    """See the module. Used by one thread, but for register and finish."""

    def __init__(
        self,
        rm: RmMaster,
        attempt: AttemptId,
        listener: Listener,
        report: Optional[Callable[[], AppReport]],
        say: Callable[[str], None],
    ) -> None:
        self._rm = rm
        self._attempt = attempt
        self._listener = listener
        self._report = report
        self._say = say
        self._beat: Optional[Beat] = None  # sent, and not answered
        self._answered = time.monotonic()
        self._trouble = ""
        self._registration: Tuple[str, str, int, Sequence[PlacementConstraintMapEntry]] = (
            "", "", 0, ()
        )  # fmt: skip

    # ------------------------------------------------------------------ beginning and end

    def register(
        self,
        host: str,
        number: int,
        url: str,
        constraints: Sequence[PlacementConstraintMapEntry] = (),
    ) -> Registered:
        """Make this attempt the application's master."""
        self._registration = (host, url, number, constraints)
        self._answered = time.monotonic()
        try:
            return self._register()
        except AlreadyRegistered:
            # By a call whose answer was lost. A later attempt has to know what it inherits.
            if self._attempt.number > 1:
                raise
            return Registered(UNLIMITED, "", (), (), {})

    def finish(self, final: str, words: str, url: str) -> None:
        """The application's last word, whoever has restarted meanwhile."""
        try:
            self._rm.finish(final, words, url, within_s=FINISH_S)
        except NotRegistered:
            self._register()
            self._rm.finish(final, words, url, within_s=FINISH_S)

    def _register(self) -> Registered:
        host, url, number, constraints = self._registration
        return self._rm.register(host, number, url, constraints=constraints, within_s=FINISH_S)

    # ------------------------------------------------------------------ one turn

    def turn(self) -> float:
        """One heartbeat; how long to pause after it."""
        beat = self._beat = self._beat or self._listener.compose()
        try:
            answer = self._send(beat)
        except Closed:
            return CALM_S
        except NotRegistered:
            return self._again()
        except (AttemptNotFound, InvalidToken) as error:
            self._dismissed(str(error))
            return CALM_S
        except HadoopError as error:
            if _refuses(error, beat):
                self._refused(beat, error)
                return 0.0
            self._no_answer(beat, error)
            return CALM_S
        self._beat = None
        return self._heard(answer)

    def _send(self, beat: Beat) -> Allocation:
        answer = self._rm.allocate(
            progress=beat.progress,
            asks=beat.said.asks,
            scheduling=beat.said.scheduling,
            release=beat.release,
            avoid=beat.said.avoid,
            avoid_no_more=beat.said.avoid_no_more,
            tracking_url=beat.tracking_url,
            within_s=CALL_S,
        )
        self._answered, self._trouble = time.monotonic(), ""
        return answer

    def _heard(self, answer: Allocation) -> float:
        if answer.command == "RESYNC":
            return self._again()
        soon = self._listener.on_answer(answer)
        if answer.command == "SHUTDOWN":
            self._dismissed("the ResourceManager asks this master to end")
        return HURRIED_S if soon else CALM_S

    def _again(self) -> float:
        self._say(
            "the ResourceManager has restarted: registering and asking for all containers again"
        )
        registered: Optional[Registered] = None
        try:
            registered = self._register()
        except AlreadyRegistered:
            pass
        except (AttemptNotFound, InvalidToken) as error:
            self._dismissed(str(error))
            return CALM_S
        except HadoopError as error:
            self._no_answer(Beat(), error)
            return CALM_S
        self._beat = None
        self._listener.on_restart(registered)
        return 0.0

    # ------------------------------------------------------------------ trouble

    def _refused(self, beat: Beat, error: HadoopError) -> None:
        """One of the asks can never be granted: find out which, by saying each alone."""
        parts = beat.said.parts()
        if not parts:
            self._no_answer(beat, error)
            return
        if len(parts) == 1:
            self._listener.on_refused(parts[0][0], _words(error))
            self._beat = beat._replace(said=beat.said._replace(asks=(), scheduling=()))
            return
        rest: Optional[Beat] = beat._replace(said=beat.said._replace(asks=(), scheduling=()))
        for request_id, said in parts:
            try:
                answer = self._send(Beat(said, progress=beat.progress))
            except HadoopError as why:
                if _refuses(why, Beat(said)):
                    self._listener.on_refused(request_id, _words(why))
                    continue
                # Said once more with the rest: numbers are absolute.
                rest = beat if rest is not None else None
                self._no_answer(beat, why)
                break
            self._listener.on_answer(answer)
        self._beat = rest

    def _no_answer(self, beat: Beat, error: HadoopError) -> None:
        """The same is sent again, for a while: a restart of a ResourceManager takes minutes."""
        if isinstance(error, RemoteError) and not isinstance(error, Unreachable):
            self._beat = beat._replace(release=())  # one of them, most likely, is not ours
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._say(f"heartbeat: {error}")
        silent = time.monotonic() - self._answered
        if silent > RM_LOST_S:
            self._listener.on_lost(
                f"the ResourceManager has not answered for {silent:.0f} s: {error}"
            )

    def _dismissed(self, why: str) -> None:
        try:
            report = self._report() if self._report is not None else None
        except HadoopError:
            report = None
        if report is not None and report.attempt is not None:
            if report.state not in ENDED and report.attempt.number > self._attempt.number:
                self._listener.on_superseded(f"{report.attempt} is ({why})")
                return
            if report.state == "KILLED":
                words = report.diagnostics or "the application was killed"
                self._listener.on_dismissed(words, True)
                return
        self._listener.on_dismissed(why, report is None)


def _refuses(error: HadoopError, beat: Beat) -> bool:
    """Whether it is what was asked for that is wrong.

    Who has no placement constraints says so by an error of no class of its own.
    """
    if isinstance(error, InvalidRequest):
        return True
    plain = isinstance(error, RemoteError) and error.remedy is Remedy.NONE
    return plain and bool(beat.said.scheduling)


def _words(error: HadoopError) -> str:
    return (
        refusals.explain_refusal(error.text)
        if isinstance(error, RemoteError) and error.text
        else str(error)
    )

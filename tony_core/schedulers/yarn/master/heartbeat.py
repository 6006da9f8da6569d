"""The master's heartbeats to the ResourceManager, through restarts, refusals and lost answers.

Theory of operation
===================

Each turn sends what :meth:`HeartbeatListener.next_request` returns and hands over the answer. A
heartbeat whose answer was lost is sent again unchanged: the ResourceManager answers the same
response id with the same answer and ignores the request. New requests wait for the next heartbeat.

After a restart of the ResourceManager the master registers again, and everything outstanding is
sent again. A request that can never be granted makes the ResourceManager refuse the whole
heartbeat; then each part is sent by itself to find it. When the ResourceManager reports that this
attempt is over, either the application has ended or another attempt is the master now. In the
second case this process must not touch containers or files any more.
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
from tony_core.schedulers.yarn.master.container_requests import RequestUpdate

FAST_S, SLOW_S = 0.25, 1.0  # between heartbeats: while something is outstanding, and otherwise
CALL_S = 30.0
FINISH_S = 60.0
RM_LOST_S = 900.0  # YARN's clients wait as long for a ResourceManager
END_STATES = ("FINISHED", "FAILED", "KILLED")
UNLIMITED = Capability(1 << 40, 1 << 30)


class HeartbeatRequest(NamedTuple):
    """The content of a heartbeat."""

    update: RequestUpdate = RequestUpdate()
    release: Sequence[ContainerId] = ()
    progress: float = 0.0
    tracking_url: Optional[str] = None


class HeartbeatListener(Protocol):
    """Provides the requests and takes the answers, in the heartbeat's thread."""

    def next_request(self) -> HeartbeatRequest:
        """The content of the next heartbeat; counts as sent."""

    def on_answer(self, answer: Allocation) -> bool:
        """Take an answer; returns whether the next heartbeat should come soon."""

    def on_resync(self, registered: Optional[Registered]) -> None:
        """The ResourceManager has restarted and knows no requests."""

    def on_refused(self, request_id: int, why: str) -> None:
        """The ResourceManager can never grant this request."""

    def on_shutdown(self, why: str, by_user: bool) -> None:
        """The ResourceManager has ended the application."""

    def on_lost(self, why: str) -> None:
        """The ResourceManager has not answered for too long."""

    def on_superseded(self, why: str) -> None:
        """Another attempt is the master now."""


class Heartbeat:
    """Registers an attempt and sends its heartbeats; one thread calls :meth:`turn`."""

    def __init__(
        self,
        rm: RmMaster,
        attempt: AttemptId,
        listener: HeartbeatListener,
        report: Optional[Callable[[], AppReport]],
        log: Callable[[str], None],
    ) -> None:
        self._rm = rm
        self._attempt = attempt
        self._listener = listener
        self._report = report
        self._log = log
        self._unanswered: Optional[HeartbeatRequest] = None  # sent, not answered yet
        self._answered = time.monotonic()
        self._trouble = ""
        self._registration: Tuple[str, str, int, Sequence[PlacementConstraintMapEntry]] = (
            "", "", 0, ()
        )  # fmt: skip

    # ------------------------------------------------------------------ registration and end

    def register(
        self,
        host: str,
        number: int,
        url: str,
        constraints: Sequence[PlacementConstraintMapEntry] = (),
    ) -> Registered:
        """Register this attempt as the application's master."""
        self._registration = (host, url, number, constraints)
        self._answered = time.monotonic()
        try:
            return self._register()
        except AlreadyRegistered:
            # The answer to an earlier call was lost. Only a first attempt can do without it.
            if self._attempt.number > 1:
                raise
            return Registered(UNLIMITED, "", (), (), {})

    def finish(self, final: str, words: str, url: str) -> None:
        """Report the application's end; registers again if the ResourceManager has restarted."""
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
        """Send one heartbeat; returns how long to pause after it."""
        request = self._unanswered = self._unanswered or self._listener.next_request()
        try:
            answer = self._send(request)
        except Closed:
            return SLOW_S
        except NotRegistered:
            return self._register_again()
        except (AttemptNotFound, InvalidToken) as error:
            self._stop(str(error))
            return SLOW_S
        except HadoopError as error:
            if _is_refused_request(error, request):
                self._refused(request, error)
                return 0.0
            self._no_answer(request, error)
            return SLOW_S
        self._unanswered = None
        return self._handle_answer(answer)

    def _send(self, request: HeartbeatRequest) -> Allocation:
        answer = self._rm.allocate(
            progress=request.progress,
            resource_requests=request.update.resource_requests,
            scheduling_requests=request.update.scheduling_requests,
            release=request.release,
            blacklist_additions=request.update.blacklist_additions,
            blacklist_removals=request.update.blacklist_removals,
            tracking_url=request.tracking_url,
            within_s=CALL_S,
        )
        self._answered, self._trouble = time.monotonic(), ""
        return answer

    def _handle_answer(self, answer: Allocation) -> float:
        if answer.command == "RESYNC":
            return self._register_again()
        soon = self._listener.on_answer(answer)
        if answer.command == "SHUTDOWN":
            self._stop("the ResourceManager asks this master to end")
        return FAST_S if soon else SLOW_S

    def _register_again(self) -> float:
        self._log(
            "the ResourceManager has restarted: registering and requesting all containers again"
        )
        registered: Optional[Registered] = None
        try:
            registered = self._register()
        except AlreadyRegistered:
            pass
        except (AttemptNotFound, InvalidToken) as error:
            self._stop(str(error))
            return SLOW_S
        except HadoopError as error:
            self._no_answer(HeartbeatRequest(), error)
            return SLOW_S
        self._unanswered = None
        self._listener.on_resync(registered)
        return 0.0

    # ------------------------------------------------------------------ trouble

    def _refused(self, request: HeartbeatRequest, error: HadoopError) -> None:
        """Find the request that can never be granted, by sending each by itself."""
        parts = request.update.split()
        if not parts:
            self._no_answer(request, error)
            return
        if len(parts) == 1:
            self._listener.on_refused(parts[0][0], _describe_error(error))
            self._unanswered = request._replace(
                update=request.update._replace(resource_requests=(), scheduling_requests=())
            )
            return
        rest: Optional[HeartbeatRequest] = request._replace(
            update=request.update._replace(resource_requests=(), scheduling_requests=())
        )
        for request_id, update in parts:
            try:
                answer = self._send(HeartbeatRequest(update, progress=request.progress))
            except HadoopError as why:
                if _is_refused_request(why, HeartbeatRequest(update)):
                    self._listener.on_refused(request_id, _describe_error(why))
                    continue
                # It is sent again with the rest: the numbers are absolute.
                rest = request if rest is not None else None
                self._no_answer(request, why)
                break
            self._listener.on_answer(answer)
        self._unanswered = rest

    def _no_answer(self, request: HeartbeatRequest, error: HadoopError) -> None:
        """Send the same again for a while: a restart of a ResourceManager takes minutes."""
        if isinstance(error, RemoteError) and not isinstance(error, Unreachable):
            self._unanswered = request._replace(
                release=()
            )  # most likely, one of them is unknown to it
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._log(f"heartbeat: {error}")
        silent = time.monotonic() - self._answered
        if silent > RM_LOST_S:
            self._listener.on_lost(
                f"the ResourceManager has not answered for {silent:.0f} s: {error}"
            )

    def _stop(self, why: str) -> None:
        try:
            report = self._report() if self._report is not None else None
        except HadoopError:
            report = None
        if report is not None and report.attempt is not None:
            if report.state not in END_STATES and report.attempt.number > self._attempt.number:
                self._listener.on_superseded(f"{report.attempt} is the master now ({why})")
                return
            if report.state == "KILLED":
                words = report.diagnostics or "the application was killed"
                self._listener.on_shutdown(words, True)
                return
        self._listener.on_shutdown(why, report is None)


def _is_refused_request(error: HadoopError, request: HeartbeatRequest) -> bool:
    """Whether the requests themselves were refused.

    A ResourceManager without placement constraints refuses them with an error of no own class.
    """
    if isinstance(error, InvalidRequest):
        return True
    plain = isinstance(error, RemoteError) and error.remedy is Remedy.NONE
    return plain and bool(request.update.scheduling_requests)


def _describe_error(error: HadoopError) -> str:
    return (
        refusals.explain_refusal(error.text)
        if isinstance(error, RemoteError) and error.text
        else str(error)
    )

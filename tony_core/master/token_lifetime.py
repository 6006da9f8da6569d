"""The lifetime of a job's delegation tokens: when to warn, to fetch fresh ones, to end the job.

Theory of operation
===================

No server renews a token past its maximum lifetime, and without one the job writes neither journal
nor history. So the job ends shortly before, with a reason; or its master fetches fresh tokens in
time, with a keytab. One that YARN starts with tokens that have ended fetches others before it has
this machine (``fetch_overdue`` of :mod:`tony_core.schedulers.yarn.master.token_fetcher`).

Pure, as the session machine is: :meth:`TokenLifetime.handle` takes an event and the time, and
returns commands; :meth:`TokenLifetime.next_deadline` says when the next :class:`Tick` is due. All
times are the master's own clock (the reactor's); the shell converts the tokens' dates, which are
wall-clock time.

===============  =====================================================================
event            meaning
===============  =====================================================================
``Started``      the master has begun, with tokens of these dates. Always the first event, once.
                 Where it has fetched them itself, ``Fetched`` or ``FetchFailed`` follows
``Tick``         time has passed
``Fetched``      fresh tokens, that end then, are here and were sent to the executors
``FetchFailed``  there are none, or they cannot be sent, for this reason (one sentence)
===============  =====================================================================

================  ====================================================================
command           the shell's part
================  ====================================================================
``Fetch``         start a fetch that does not block; ``Fetched`` or ``FetchFailed`` follows.
                  There is never a second one before the answer to the first, or its deadline
``Warn``          a warning in the job's story
``RestartGang``   feed ``GangRestartRequested(reason)`` to the session machine
``EndJob``        feed ``TokensExpiring(reason)`` to the session machine
================  ====================================================================

Without a keytab (``can_fetch`` false): one warning, an hour before the tokens end (a tenth of
a short lifetime), and the end of the job a minute before (a twentieth of a short one).

With a keytab: a fetch at three quarters of the lifetime, or at once where that is over. The
ResourceManager renews the first tokens only, so fresh ones may end before these would have: they
last until they are to be renewed, by the next fetch (a day, where the first last a week). Each
fetch that fails is a warning, and is repeated after a pause that grows. Where none succeeds, the
job is warned and ended as above. With ``restarts_gang`` the programs start anew after each fetch
that gave others than they have, since some (libhdfs, children in Java) read their tokens only once.

==========================  =================================  =================================
limit                       of                                 when it is over
==========================  =================================  =================================
60 s, two thirds of 90 s    ``Request.limit_s``: the process   it ends, and says what it waited
                            that fetches                       for
90 s, ``LIMIT_S``           ``TokenFetcher``: that process     it is killed
120 s, ``FETCH_LIMIT_S``    ``Fetch``: until its answer        the next try, after a pause
300 s, ``OVERDUE_S``, or    ``fetch_overdue``: the first       this attempt ends; YARN counts it,
half of YARN's wait for a   fetch of a master whose tokens     and starts another or ends the job
silent master, if shorter   have ended, with all its tries
==========================  =================================  =================================
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Union

from tony_core.durations import describe_duration
from tony_core.schedulers.container_pool import TokenDates

WARNING_S = 3600.0
FETCH_LIMIT_S = 120.0  # from Fetch to its answer
FIRST_PAUSE_S = 60.0
LONGEST_PAUSE_S = 3600.0

FRESH = "the job has fresh tokens (tony.kerberos.refresh=restart)"
"""Why programs start anew."""

MAX_LIFETIME = "dfs.namenode.delegation.token.max-lifetime"


class Started(NamedTuple):
    """The master has begun; its tokens were issued and end at these times of its clock."""

    issued: float
    ends: float
    is_fetched: bool = False  # by this master: whether they could be handed on is the next event


class Tick(NamedTuple):
    """Time has passed."""


class Fetched(NamedTuple):
    """Fresh tokens are here; the first of them to end ends at this time of the master's clock."""

    ends: float
    known: bool = False  # programs have them already, or start with them


class FetchFailed(NamedTuple):
    """A fetch gave no tokens; the reason is one sentence."""

    reason: str


Event = Union[Started, Tick, Fetched, FetchFailed]


class Fetch(NamedTuple):
    """Fetch fresh tokens; an event answers."""


class Warn(NamedTuple):
    """Add a warning to the job's story."""

    text: str


class RestartGang(NamedTuple):
    """Start the programs anew, from their checkpoint; no budget pays."""

    reason: str


class EndJob(NamedTuple):
    """End the job; the last command."""

    reason: str


Command = Union[Fetch, Warn, RestartGang, EndJob]


class TokenLifetime:
    """One master's machine; see the module's docstring."""

    def __init__(self, can_fetch: bool = False, restarts_gang: bool = False) -> None:
        self._can_fetch = can_fetch
        self._restarts_gang = restarts_gang
        self._lifetime = 0.0
        self._warn_at: Optional[float] = None
        self._end_at: Optional[float] = None
        self._fetch_at: Optional[float] = None
        self._answer_by: Optional[float] = None
        self._failures = 0
        self._last_reason = ""

    def handle(self, event: Event, now: float) -> List[Command]:
        """Take in what happened at this time; return what is to be done."""
        if isinstance(event, Started):
            self._set_times(event.issued, event.ends)
            if event.is_fetched:
                self._answer_by = now + FETCH_LIMIT_S
            return self._take_due(now)
        if self._end_at is None:
            return []  # not started, or ended
        if isinstance(event, Fetched):
            return self._note_fetched(event, now) + self._take_due(now)
        if isinstance(event, FetchFailed):
            return self._note_failure(event.reason, now) + self._take_due(now)
        return self._take_due(now)

    def next_deadline(self) -> Optional[float]:
        """When a :class:`Tick` is due; ``None`` before the start and after the end."""
        times = (self._warn_at, self._end_at, self._fetch_at, self._answer_by)
        return min((time for time in times if time is not None), default=None)

    def _set_times(self, issued: float, ends: float) -> None:
        self._lifetime = max(0.0, ends - issued)
        dates = TokenDates(issued, ends)
        self._warn_at = ends - min(WARNING_S, self._lifetime / 10)
        self._end_at = dates.end_at
        self._fetch_at = dates.fetch_at if self._can_fetch else None
        self._failures = 0
        self._last_reason = ""

    def _note_fetched(self, event: Fetched, now: float) -> List[Command]:
        if TokenDates(now, event.ends).end_at <= now:
            return self._note_failure("the fresh tokens have ended already", now)
        self._answer_by = None
        self._set_times(now, event.ends)
        if not self._restarts_gang or event.known:
            return []
        return [RestartGang(FRESH)]

    def _note_failure(self, reason: str, now: float) -> List[Command]:
        if self._answer_by is None:
            return []  # the late answer of a fetch that is given up
        self._answer_by = None
        longest = min(LONGEST_PAUSE_S, self._lifetime / 20)
        pause = min(FIRST_PAUSE_S, self._lifetime / 100) * 2.0 ** min(self._failures, 30)
        pause = max(1.0, min(pause, longest))
        self._failures += 1
        self._last_reason = reason
        self._fetch_at = now + pause
        return [Warn(f"no fresh tokens: {reason}. Next try in {describe_duration(pause)}")]

    def _take_due(self, now: float) -> List[Command]:
        commands: List[Command] = []
        if self._answer_by is not None and self._answer_by <= now:
            commands += self._note_failure(f"no answer within {FETCH_LIMIT_S:g} s", now)
        if self._end_at is not None and self._end_at <= now:
            commands.append(EndJob(self._why_end()))
            self._warn_at = self._end_at = self._fetch_at = self._answer_by = None
            return commands
        if self._fetch_at is not None and self._fetch_at <= now:
            self._fetch_at = None
            self._answer_by = now + FETCH_LIMIT_S
            commands.append(Fetch())
        if self._warn_at is not None and self._warn_at <= now and self._end_at is not None:
            self._warn_at = None
            commands.append(Warn(self._warning(self._end_at - now)))
        return commands

    def _warning(self, left: float) -> str:
        return (
            f"the job will be ended in {describe_duration(left)}: its tokens end then for good, and"
            f" {self._remedy()}"
        )

    def _why_end(self) -> str:
        return (
            "the job's tokens are at the end of their maximum lifetime"
            f" ({describe_duration(self._lifetime)}), and {self._remedy()}"
        )

    def _remedy(self) -> str:
        if self._can_fetch:
            why = f" ({self._last_reason})" if self._last_reason else ""
            return f"its master has fetched no fresh ones{why}"
        return (
            "it ships no keytab to fetch others by (tony.kerberos.ship-keytab). Submit it again to"
            f" go on from its checkpoint, or ask the administrator for a longer {MAX_LIFETIME}"
        )

"""What must not happen before the journal is written, waits: as an event, and not for ever.

The rule is that a next master finds in the journal whatever an earlier one acted upon: the
session it began, the barrier it let the gang through, the budget it charged, the kill it was
asked for. On this machine's disk a write takes a millisecond and the rule costs nothing (one that
is full counts as a place that is away, and is tried again every second). On
HDFS it takes some ten milliseconds, and when the name node fails over some ten seconds, in
which the master must hear heartbeats and answer its page.

So the master performs its commands in order from a queue, and a :class:`WriteJournal`
*holds* the queue until the version it handed over is there (events wait too, and the machine
never sees itself half-way). Two writes, those that every job would have to wait for, are
ahead of nothing, because what a next master does without them is as good:

* the first of a job's first master says what a missing journal says, so the first containers
  are asked for at once;
* that a session's first gang has passed its barrier. A next master that reads only that the
  session was to begin ends all that it finds, waits until it is gone and starts the same
  session again (:mod:`adoption`): nothing runs twice at a time, and nobody pays for it.

**When the place is away for longer than** :data:`AHEAD_S` the job goes on, because a training
on a thousand devices is worth more than the certainty that a crash *now* would be
remembered. From then on nothing waits, until a write has succeeded; the thread that writes
goes on trying. What is risked is said in the story and on the page for as long as it lasts: a
master that dies meanwhile leaves a next one that knows only what was written last. It believes
the executors before the journal, so it errs to one side: at worst a session is begun again,
or a role that others depend on prepares once more, or a retry is not charged. One thing it
cannot hear from executors is that somebody asked for the job's end; YARN itself remembers
that (a killed application gets no next master).
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional

from tony_core.master.session.commands import Tell, Weight
from tony_core.master.state.journal import Journal
from tony_core.protocol.reactor import Reactor, Timer

AHEAD_S = 5.0
AGAIN_S = 1.0  # until a full disk is tried again


class JournalGate:
    """Holds the master's commands while the journal is on its way."""

    def __init__(
        self,
        reactor: Reactor,
        journal: Journal,
        first: bool,
        go_on: Callable[[], None],
        tell: Callable[[Tell], None],
        trouble: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._journal = journal
        self._first = first  # no master was before this one
        self._go_on = go_on
        self._tell = tell
        self._trouble = trouble  # for as long as it lasts; empty when it is over
        self._patience: Optional[Timer] = None  # with what is on its way
        self._again: Optional[Timer] = None  # for what only asking again can write
        self._last: Mapping[str, Any] = {}
        self.holds = False  # commands have to wait
        self.away = False  # the place does not answer: nothing waits for it

    def write(self, record: Mapping[str, Any]) -> None:
        """The machine's record; what follows waits for it."""
        last, self._last = self._last, record
        self._journal.write(record)
        if not self._journal.pending or self.away:
            return
        if self._patience is None:
            self._patience = self._reactor.call_later(AHEAD_S, self._late)
        if not (self._first and _says_nothing(record)) and not _first_barrier(last, record):
            self.holds = True

    def close(self) -> None:
        """The job is over: nothing waits, and nothing is told any more."""
        self.away = False
        if self._again is not None:
            self._again.cancel()
        self._let_go()

    def _let_go(self) -> None:
        self.holds = False
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _try_again(self) -> None:
        self._again = None
        self._journal.folder.again()
        self.look()

    def look(self) -> None:
        """See whether what was waited for is written; called when a write was tried."""
        if self._journal.pending:
            if self._again is None:
                self._again = self._reactor.call_later(AGAIN_S, self._try_again)
            return
        if self.away:
            self.away = False
            self._trouble("")
            where = self._journal.folder.folder
            self._tell(Tell("journal", f"the job's state is kept again at {where}", Weight.INFO))
        held = self.holds
        self._let_go()
        if held:
            self._go_on()

    def _late(self) -> None:
        self._let_go()
        self.away = True
        folder = self._journal.folder
        text = (
            f"the job's state cannot be written at {folder.folder}"
            f" ({folder.problem or f'no answer for {AHEAD_S:g} s'}); the job goes on, and it is"
            " tried again. A master that died now would begin from what was written last"
        )
        self._trouble(text)
        self._tell(Tell("journal", text, Weight.WARNING))
        self._go_on()


def _says_nothing(record: Mapping[str, Any]) -> bool:
    """Whether a next master would do the same without it: begin the first session."""
    told = ("released", "started", "done", "outcome", "parameters")
    return record.get("session") == 0 and not any(record.get(name) for name in told)


def _first_barrier(last: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Whether all that is new is that the first gang of a session may start."""
    if not last or last.get("released") or last.get("started"):
        return False
    beside = ("released", "started", "elapsed_s")
    return all(record[name] == last.get(name) for name in record if name not in beside)

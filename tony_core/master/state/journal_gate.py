"""Holds the master's commands until the journal entry that they depend on is durable.

A next master must find in the journal whatever its predecessor acted upon: the session it began,
the barrier that it released, the budget it charged, the kill it was asked for. On a local disk a
write takes a millisecond (one on a full disk is retried each second). On HDFS it takes some ten
milliseconds, and some ten seconds while a NameNode fails over; meanwhile the master must take
heartbeats and answer its page.

So the master performs its commands in order from a queue, and a :class:`WriteJournal` holds the
queue until that version is durable; events wait too, so the session machine never sees itself
half-way. Two writes, which would delay every job, hold nothing, because a next master does as well
without them:

* the first one of a job's first master, which says what a missing journal says: the first
  containers are requested at once;
* that a session's first gang has passed its barrier. A next master that reads only that the session
  was to begin ends all that it finds, waits for the ends and starts the same session again
  (:mod:`tony_core.master.session.takeover`): no two programs run side by side, and no budget pays.

**After** :data:`HOLD_S` **without an answer the job goes on**, because a training on a thousand
devices is worth more than the certainty that a crash *now* would be remembered. From then on
nothing is held until a write succeeds; the thread that writes keeps trying. The story and the page
show the risk for as long as it lasts: the successor of a master that dies meanwhile knows only what
was written last. It believes executors before the journal, so at worst a session is begun again, a
role that others depend on runs once more, or a retry is not charged. One thing it cannot learn from
executors is a request to end the job; YARN itself remembers that (a killed application gets no next
master).
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional

from tony_core.history.layout import StoryKind
from tony_core.master.session.commands import AddStoryLine, Level
from tony_core.master.state.journal import Journal
from tony_core.protocol.reactor import Reactor, Timer

HOLD_S = 5.0
RETRY_S = 1.0  # until a full disk is tried again


class JournalGate:
    """Holds commands while the journal is being written (:attr:`is_closed`)."""

    def __init__(
        self,
        reactor: Reactor,
        journal: Journal,
        first: bool,
        resume: Callable[[], None],
        add_line: Callable[[AddStoryLine], None],
        trouble: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._journal = journal
        self._first = first  # whether this is the first attempt
        self._resume = resume
        self._add_line = add_line
        self._trouble = trouble  # the page shows it until it is empty again
        self._limit: Optional[Timer] = None  # of the current hold
        self._retry: Optional[Timer] = None  # of a write on a full disk
        self._last: Mapping[str, Any] = {}
        self.is_closed = False  # commands have to wait
        self.is_bypassed = False  # writes fail or hang: commands do not wait

    def write(self, record: Mapping[str, Any]) -> None:
        """Write the machine's record and hold the commands after it."""
        last, self._last = self._last, record
        self._journal.write(record)
        if not self._journal.pending or self.is_bypassed:
            return
        if self._limit is None:
            self._limit = self._reactor.call_later(HOLD_S, self._late)
        if not (self._first and _is_like_none(record)) and not _first_barrier(last, record):
            self.is_closed = True

    def close(self) -> None:
        """Stop holding commands: the job has ended."""
        self.is_bypassed = False
        if self._retry is not None:
            self._retry.cancel()
        self._open()

    def _open(self) -> None:
        self.is_closed = False
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _retry_write(self) -> None:
        self._retry = None
        self._journal.folder.retry()
        self.check()

    def check(self) -> None:
        """Open the gate if the journal is durable; the journal calls it after each try."""
        if self._journal.pending:
            if self._retry is None:
                self._retry = self._reactor.call_later(RETRY_S, self._retry_write)
            return
        if self.is_bypassed:
            self.is_bypassed = False
            self._trouble("")
            where = self._journal.folder.folder
            self._add_line(
                AddStoryLine(
                    StoryKind.JOURNAL, f"the job's state is kept again at {where}", Level.INFO
                )
            )
        held = self.is_closed
        self._open()
        if held:
            self._resume()

    def _late(self) -> None:
        self._open()
        self.is_bypassed = True
        folder = self._journal.folder
        text = (
            f"the job's state cannot be written at {folder.folder}"
            f" ({folder.problem or f'no answer for {HOLD_S:g} s'}); the job goes on, and it is"
            " tried again. A master that died now would begin from what was written last"
        )
        self._trouble(text)
        self._add_line(AddStoryLine(StoryKind.JOURNAL, text, Level.WARNING))
        self._resume()


def _is_like_none(record: Mapping[str, Any]) -> bool:
    """Whether a next master would do the same without it: begin the first session."""
    fields = ("released", "started", "done", "outcome", "parameters")
    return record.get("session") == 0 and not any(record.get(name) for name in fields)


def _first_barrier(last: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Whether it only adds that the first gang of a session may start."""
    if not last or last.get("released") or last.get("started"):
        return False
    beside = ("released", "started", "elapsed_s")
    return all(record[name] == last.get(name) for name in record if name not in beside)

"""What an earlier master left: its journal, its history, and what to do when they are away.

A first master looks at nothing. A later one reads both before it registers, for so long and
no longer: the journal decides whether the training goes on, so it is waited for through the
failover of a name node; history only continues the story.

A journal that cannot be read is no reason to end the job: then nothing is taken over. What
the earlier master left is ended, and when the last of it is gone the first session begins
anew, with all its budgets: the user pays nothing for it.
"""

from __future__ import annotations

from typing import Any, List, Mapping, Tuple

from tony_core.dataclass import dataclass
from tony_core.files.location import is_remote
from tony_core.history.layout import segment_name
from tony_core.history.reader import place, read_events, segments
from tony_core.job.spec import Job
from tony_core.master.state.folder import patiently
from tony_core.master.state.journal import Journal, JournalContent, JournalError
from tony_core.schedulers.port import MasterContext

HISTORY_S = 10.0
#: Where the segments of a later master begin when nobody can say how many there are.
SEGMENTS_EACH = 1000


@dataclass(frozen=True)
class PreviousAttempt:
    """All of it."""

    journal: JournalContent
    history_dir: str
    segments: Tuple[str, ...] = ()
    story: Tuple[Mapping[str, Any], ...] = ()
    troubles: Tuple[str, ...] = ()  # for the story


def read_previous_attempt(context: MasterContext, job: Job, journal: Journal) -> PreviousAttempt:
    """What there is to go on from."""
    later = context.attempt > 1
    named = job.history.location
    folder = place(named, context.app_id, context.history_dir, later=False)
    if not later and is_remote(context.state_dir):
        return PreviousAttempt(JournalContent(), folder)
    troubles: List[str] = []
    past = JournalContent()
    try:
        past = journal.read()
    except (JournalError, OSError) as error:
        troubles.append(
            f"the earlier master's journal cannot be read ({error}): nothing is taken over, what"
            " it left is ended, and the job begins anew"
        )
    if not later:
        return PreviousAttempt(past, folder, troubles=tuple(troubles))

    def read() -> Tuple[str, List[str], List[Mapping[str, Any]]]:
        where = place(named, context.app_id, context.history_dir, later=True)
        known = segments(where)
        return where, known, read_events(where)[0] if known else []

    try:
        where, known, story = patiently(read, HISTORY_S)
    except OSError as error:
        troubles.append(f"the earlier history cannot be read ({error}); it goes on here")
        taken = segment_name((context.attempt - 1) * SEGMENTS_EACH)
        return PreviousAttempt(past, folder, (taken,), troubles=tuple(troubles))
    return PreviousAttempt(past, where, tuple(known), tuple(story), tuple(troubles))

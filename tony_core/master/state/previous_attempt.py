"""Reads what the previous attempt left: its journal and its history.

A first attempt reads nothing. A later one reads both before it registers, for a limited time: the
journal decides whether the training goes on, so reading it outlasts the failover of a NameNode;
history only continues the story.

A journal that cannot be read does not end the job: the master then takes nothing over. It ends the
containers of the previous attempt, and after the last of them the first session begins again with
all its budgets, at no cost for the user.
"""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Optional, Tuple

from tony_core.files.location import is_remote
from tony_core.history.folder import all_segments, place
from tony_core.history.layout import KINDS, segment_name
from tony_core.history.metric_series import SeriesStore
from tony_core.history.reader import read_events, read_series
from tony_core.job.spec import Job
from tony_core.master.state.folder import read_with_retries
from tony_core.master.state.journal import Journal, JournalContent, JournalError
from tony_core.schedulers.container_pool import MasterContext

HISTORY_S = 10.0
#: The segments of each attempt begin at a multiple of this where their number cannot be read.
SEGMENTS_EACH = 1000


class PreviousAttempt(NamedTuple):
    """The journal, and the history that the story continues."""

    journal: JournalContent
    history_dir: str
    segments: Tuple[str, ...] = ()
    story: Tuple[Mapping[str, Any], ...] = ()
    series: Optional[SeriesStore] = None  # the metrics
    troubles: Tuple[str, ...] = ()  # for the story


def read_previous_attempt(context: MasterContext, job: Job, journal: Journal) -> PreviousAttempt:
    """Read what a takeover needs; a first attempt gets empty records."""
    later = context.attempt > 1
    named = job.history.location
    folder = place(named, context.app_id, context.history_dir, later=False)
    if not later and is_remote(context.state_dir):
        return PreviousAttempt(JournalContent(), folder)
    troubles: List[str] = []
    content = JournalContent()
    try:
        content = journal.read()
    except (JournalError, OSError) as error:
        troubles.append(
            f"the previous attempt's journal cannot be read ({error}); no takeover: this master"
            " stops the previous attempt's containers and starts the job again"
        )
    if not later:
        return PreviousAttempt(content, folder, troubles=tuple(troubles))

    def read() -> Tuple[str, List[str], List[Mapping[str, Any]], Optional[SeriesStore]]:
        where = place(named, context.app_id, context.history_dir, later=True)
        known = all_segments(where)
        if not known:
            return where, known, [], None
        return where, known, read_events(where)[0], read_series(where)

    try:
        where, known, story, series = read_with_retries(read, HISTORY_S)
    except OSError as error:
        troubles.append(f"the earlier history cannot be read ({error}); it goes on here")
        taken = tuple(segment_name((context.attempt - 1) * SEGMENTS_EACH, kind) for kind in KINDS)
        return PreviousAttempt(content, folder, taken, troubles=tuple(troubles))
    return PreviousAttempt(content, where, tuple(known), tuple(story), series, tuple(troubles))

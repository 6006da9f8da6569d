"""Chooses the tracker that a job asks for."""

from __future__ import annotations

from typing import Callable

from tony_core.history.layout import StoryKind
from tony_core.job.spec import Job
from tony_core.master.publish import Publisher
from tony_core.master.session.commands import AddStoryLine, Level
from tony_core.master.state.journal import Journal
from tony_core.master.tracking.port import Tracker
from tony_core.protocol.job_secret import unpack_secret
from tony_core.protocol.reactor import Reactor


def open_tracker(
    reactor: Reactor,
    job: Job,
    secret: bytes,
    publisher: Publisher,
    journal: Journal,
    add_line: Callable[[AddStoryLine], None],
    log: Callable[[str], None],
) -> Tracker:
    """The tracker that the job asks for; the journal may have what a previous attempt knew."""
    if not job.mlflow.tracking_uri:
        return Tracker()
    from tony_core.master.tracking.tracker import MlflowTracker  # http.client: for those who ask

    key = unpack_secret(secret).secret

    def note(text: str, is_warning: bool) -> None:
        log(text)
        level = Level.WARNING if is_warning else Level.INFO
        add_line(AddStoryLine(StoryKind.TRACKING, text, level))

    return MlflowTracker(reactor, job, key, publisher, journal.tracked, journal.track, note)

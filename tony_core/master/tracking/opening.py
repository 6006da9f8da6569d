"""The tracker of a job, and one that does nothing for a job that names no server."""

from __future__ import annotations

from typing import Callable, Dict

from tony_core.history.layout import StoryKind
from tony_core.job.spec import Job
from tony_core.master.publish import Publisher
from tony_core.master.session.commands import AddStoryLine, Finish, Level
from tony_core.master.state.journal import Journal
from tony_core.protocol.messages import Reported
from tony_core.protocol.reactor import Reactor


class Tracker:
    """Of a job that is not tracked: each call returns at once."""

    def begin(self, then: Callable[[], None]) -> None:
        """Begin to track; ``then`` is called when the job may begin."""
        then()

    def environment(self) -> Dict[str, str]:
        """The variables that programs get."""
        return {}

    def started(self, session: int) -> None:
        """Take the start of a session's programs."""

    def reported(self, task: str, message: Reported) -> None:
        """Take what a program has reported."""

    def finish(self, command: Finish, then: Callable[[], None]) -> None:
        """Take the job's end; ``then`` is called when all is sent, or time is up."""
        then()

    def close(self) -> None:
        """Stop."""


def open_tracker(
    reactor: Reactor,
    job: Job,
    publisher: Publisher,
    journal: Journal,
    add_line: Callable[[AddStoryLine], None],
    log: Callable[[str], None],
) -> Tracker:
    """The tracker that the job asks for; the journal may have what a previous attempt knew."""
    if not job.mlflow.tracking_uri:
        return Tracker()
    from tony_core.master.tracking.tracker import MlflowTracker  # http.client: for those who ask

    def note(text: str, is_warning: bool) -> None:
        log(text)
        level = Level.WARNING if is_warning else Level.INFO
        add_line(AddStoryLine(StoryKind.TRACKING, text, level))

    return MlflowTracker(reactor, job, publisher, journal.tracked, journal.track, note)

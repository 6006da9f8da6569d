"""The job's end, in the order that a crash in the middle would forgive.

The session machine has ended every container by now. First the end is journalled, so that a
next master would only repeat what follows; then history is completed, the job folder goes,
and last the scheduler is told, because whoever waits for the job looks there. The page stays
for a moment when somebody is looking at it.
"""

from __future__ import annotations

import time
from typing import Callable, Mapping

from tony_core.files.location import local_path
from tony_core.history.store import HistoryWriter
from tony_core.master.commands import Finish, Tell, Weight
from tony_core.master.journal import Journal
from tony_core.master.page import Page
from tony_core.master.publish import Publisher
from tony_core.master.story import Story
from tony_core.master.webserver import WebServer
from tony_core.protocol.reactor import Reactor
from tony_core.schedulers.port import ContainerPool, MasterContext

LINGER_S = 1.0  # for a browser to fetch the end
CALLED_S = 0.05  # for a client that called while the end was being written
DRAIN_S = 1.0  # for answers that are on their way
LOOK_S = 0.02

Log = Callable[[str], None]


class Ending:
    """Performs a :class:`Finish`; stops the reactor when all is done."""

    def __init__(
        self,
        reactor: Reactor,
        context: MasterContext,
        pool: ContainerPool,
        journal: Journal,
        history: HistoryWriter,
        publisher: Publisher,
        story: Story,
        page: Page,
        server: WebServer,
        log: Log,
    ) -> None:
        self._reactor = reactor
        self._context = context
        self._pool = pool
        self._journal = journal
        self._history = history
        self._publisher = publisher
        self._story = story
        self._page = page
        self._server = server
        self._log = log

    def perform(self, finish: Finish) -> None:
        """The job has ended so."""
        diagnostics = str(self._publisher.clean(finish.diagnostics))
        self._log(f"{finish.state.value}: {diagnostics}")
        self._journal.ended(finish.state.value, diagnostics)
        self._publisher.facts.finished = time.time()
        self._publisher.report = None
        fields: Mapping[str, object] = {"state": finish.state.value}
        text = f"the job has ended: {finish.state.value}"
        self._story.tell(
            Tell("job-ended", text, Weight.DECISION, fields=fields),
            self._publisher.facts.finished,
        )
        self._publisher.changed()
        self._publisher.summarise(final=True)
        for problem in self._history.close():
            self._log(f"history is not complete: {problem}")
        remove_job_folder(self._context, self._log)
        self._pool.finish(finish.state, diagnostics, "")
        self._page.over = True
        self._story.release()
        linger = LINGER_S if self._page.watched_lately() else CALLED_S
        self._reactor.call_later(linger, self._hang_up, self._reactor.now() + linger + DRAIN_S)

    def _hang_up(self, deadline: float) -> None:
        if self._server.finish() and self._reactor.now() < deadline:
            self._reactor.call_later(LOOK_S, self._hang_up, deadline)
            return
        self._server.close()
        self._pool.close()
        self._reactor.stop()


def remove_job_folder(context: MasterContext, log: Log) -> None:
    """The secret and the job's files go with the job, and its lease on the store."""
    from tony_core.bundle import jobfolder  # much code, for the end only

    root = context.extra.get("home") or _root_of(context.job_dir)
    try:
        jobfolder.remove(root, context.app_id)
    except OSError as error:
        log(f"the job folder {context.job_dir} is not removed: {error}")


def _root_of(job_dir: str) -> str:
    """``ROOT/apps/ID/job`` -> ``ROOT``."""
    return local_path(job_dir).rstrip("/").rsplit("/", 3)[0]

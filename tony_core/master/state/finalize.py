"""The job's end, in the order that a crash in the middle would forgive.

The session machine has ended every container by now. First the end is journalled, so that a
next master would only repeat what follows; then history is completed, the job folder goes,
and last the scheduler is told, because whoever waits for the job looks there. The page stays
for a moment when somebody is looking at it.

Where the state stands elsewhere (HDFS), all that takes its time: a thread does it, and the page
goes on answering meanwhile, so that who watches has the whole end before the scheduler says the
word. Journal and history are written side by side, each for so long at most, and the folder goes
*after* the scheduler was told: the journal is in it, and a next master without a journal would
begin the job anew. Whoever ended it need not wait for that; what a dying master leaves there is
garbage of an ended job (``tony gc``).
"""

from __future__ import annotations

import threading
import time
from typing import Callable, List, Mapping

from tony_core.files.location import is_remote, local_path
from tony_core.files.registry import filesystem
from tony_core.history.store import HistoryWriter
from tony_core.master.publish import Publisher
from tony_core.master.session.commands import Finish, Tell, Weight
from tony_core.master.state.journal import Journal
from tony_core.master.story import Story
from tony_core.master.web.routes import Page
from tony_core.master.web.server import WebServer
from tony_core.protocol.reactor import Reactor
from tony_core.schedulers.port import AppState, ContainerPool, MasterContext

LINGER_S = 1.0  # for a browser to fetch the end
CALLED_S = 0.05  # for a client that called while the end was being written
DRAIN_S = 1.0  # for answers that are on their way
LOOK_S = 0.02
JOURNAL_S = 5.0  # for the end to be journalled elsewhere, while history is written
AWAY_S = 0.5  # when it was away already
REMOVE_S = 5.0  # for the job's folder elsewhere to go

Log = Callable[[str], None]


class Finalizer:
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
        away = self._journal.pending and bool(self._journal.folder.problem)
        self._journal.ended(finish.state.value, diagnostics)
        journalled_by = time.monotonic() + (AWAY_S if away else JOURNAL_S)
        # A machine that slept has a clock ahead of ours; one that was set back counts for nothing.
        told = self._publisher.wall(self._reactor.now())
        self._publisher.info.finished = max(time.time(), told)
        self._publisher.stop_reporting()
        fields: Mapping[str, object] = {"state": finish.state.value}
        text = f"the job has ended: {finish.state.value}"
        self._story.tell(
            Tell("job-ended", text, Weight.DECISION, fields=fields),
            self._publisher.info.finished,
        )
        self._publisher.changed()
        self._publisher.summarise(final=True)
        self._history.flush()
        portal = self._publisher.info.links.get("portal", "")

        def complete() -> None:
            for problem in self._history.close():
                self._log(f"history is not complete: {problem}")
            for problem in self._journal.close(max(0.0, journalled_by - time.monotonic())):
                self._log(f"the end is not journalled: {problem}")
            finish_application(
                self._context, self._pool, finish.state, diagnostics, portal, self._log
            )

        if is_remote(self._context.state_dir):
            aside(self._reactor, complete, self._completed)
        else:
            complete()
            self._completed()

    def _completed(self) -> None:
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


def aside(reactor: Reactor, work: Callable[[], None], done: Callable[[], None]) -> None:
    """Have a thread do the work, then call ``done`` on the reactor's; errors are raised there."""
    problem: List[BaseException] = []

    def finished() -> None:
        if problem:
            raise problem[0]
        done()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            problem.append(error)
        reactor.call_soon_threadsafe(finished)

    threading.Thread(target=run, name="ending", daemon=True).start()


def finish_application(
    context: MasterContext,
    pool: ContainerPool,
    state: AppState,
    diagnostics: str,
    tracking_url: str,
    log: Log,
) -> None:
    """Tell the scheduler, and remove the job's folder, in the order that the module explains.

    ``tracking_url`` is what a person opens from now on: the job in the portal. Where there is
    none, the scheduler's own page of the application has to do.
    """
    elsewhere = is_remote(context.state_dir)
    if not elsewhere:
        remove_job_folder(context, log)
    pool.finish(state, diagnostics, tracking_url)
    if elsewhere:
        remove_job_folder(context, log)


def remove_job_folder(context: MasterContext, log: Log) -> None:
    """The secret and the job's files go with the job, and its lease on the store."""
    from tony_core.bundle import jobfolder  # much code, for the end only

    root = _root_of(context)
    if not is_remote(root):
        try:
            jobfolder.remove(root, context.app_id)
        except OSError as error:
            log(f"the job folder {context.job_dir} is not removed: {error}")
        return
    problems: List[str] = [f"no answer for {REMOVE_S:g} s"]

    def remove() -> None:
        try:
            jobfolder.remove(root, context.app_id)
            if context.pointer:
                filesystem(context.pointer).delete(context.pointer)
            problems.clear()
        except Exception as error:
            problems[:] = [f"{type(error).__name__}: {error}"]

    thread = threading.Thread(target=remove, name="remove", daemon=True)
    thread.start()
    thread.join(REMOVE_S)
    if problems:
        log(f"{context.state_dir} is not removed (tony gc does it): {problems[0]}")


def _root_of(context: MasterContext) -> str:
    """Where everything of this user stands: ``ROOT/apps/ID`` is the state's folder."""
    if is_remote(context.state_dir):
        return context.state_dir.rstrip("/").rsplit("/", 2)[0]
    return context.store_root or local_path(context.job_dir).rstrip("/").rsplit("/", 3)[0]

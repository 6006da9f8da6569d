"""The job's end, in an order that survives a crash between any two steps.

The session machine has ended every container by now. First the end is written to the journal, so
that a next master would only repeat what follows; then history is completed, the job folder is
removed, and last the end is reported to the scheduler, because clients wait for it there. The page
stays for a moment while a browser shows it.

Where the state is on a remote file system (HDFS), a thread does all this, since it may take long.
The page goes on answering meanwhile, so that its readers see the whole end before the scheduler
reports it. Journal and history are written side by side, each for a limited time. The folder is
removed *after* the report to the scheduler: the journal is in it, and a next master without a
journal would begin the job again. What a master that dies there leaves behind is garbage of an
ended job (``tony gc``).
"""

from __future__ import annotations

import threading
import time
from typing import Callable, List, Mapping

from tony_core.files.location import is_remote, local_path
from tony_core.files.registry import filesystem
from tony_core.history.layout import StoryKind
from tony_core.history.store import HistoryWriter
from tony_core.master.publish import Publisher
from tony_core.master.session.commands import AddStoryLine, Finish, Level
from tony_core.master.state.journal import Journal
from tony_core.master.story import Story
from tony_core.master.web.routes import Page
from tony_core.master.web.server import WebServer
from tony_core.protocol.reactor import Reactor
from tony_core.schedulers.container_pool import ContainerPool, MasterContext
from tony_core.schedulers.port import AppState

BROWSER_S = 1.0  # for a browser to fetch the end
CLIENT_S = 0.05  # for a client that called while the end was being written
DRAIN_S = 1.0  # for answers that are on their way
DRAIN_CHECK_S = 0.02
JOURNAL_S = 5.0  # for the end to reach a remote journal, while history is written
JOURNAL_AWAY_S = 0.5  # the same, if earlier writes have failed
REMOVE_S = 5.0  # for a remote job folder to be removed

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
        """Write the end down and report it."""
        diagnostics = str(self._publisher.clean(finish.diagnostics))
        self._log(f"{finish.state.value}: {diagnostics}")
        away = self._journal.pending and bool(self._journal.folder.problem)
        self._journal.ended(finish.state.value, diagnostics)
        journalled_by = time.monotonic() + (JOURNAL_AWAY_S if away else JOURNAL_S)
        # The monotonic clock stands still while a machine sleeps; the wall clock may be set back.
        by_monotonic = self._publisher.wall(self._reactor.now())
        ended_at = max(time.time(), by_monotonic)
        self._publisher.finish(ended_at)
        fields: Mapping[str, object] = {"state": finish.state.value}
        text = f"the job has ended: {finish.state.value}"
        self._story.add(
            AddStoryLine(StoryKind.JOB_ENDED, text, Level.DECISION, fields=fields), ended_at
        )
        self._publisher.changed()
        self._publisher.recorder.finish()
        portal = self._publisher.info.links.get("portal", "")

        def complete() -> None:
            for problem in self._history.close():
                self._log(f"history is not complete: {problem}")
            for problem in self._journal.close(max(0.0, journalled_by - time.monotonic())):
                self._log(f"the end is not written to the journal: {problem}")
            finish_application(
                self._context, self._pool, finish.state, diagnostics, portal, self._log
            )

        if is_remote(self._context.state_dir):
            run_in_thread(self._reactor, complete, self._completed)
        else:
            complete()
            self._completed()

    def _completed(self) -> None:
        self._page.finish()
        self._story.release()
        linger = BROWSER_S if self._page.watched_lately() else CLIENT_S
        self._reactor.call_later(linger, self._hang_up, self._reactor.now() + linger + DRAIN_S)

    def _hang_up(self, deadline: float) -> None:
        if self._server.finish() and self._reactor.now() < deadline:
            self._reactor.call_later(DRAIN_CHECK_S, self._hang_up, deadline)
            return
        self._server.close()
        self._pool.close()
        self._reactor.stop()


def run_in_thread(reactor: Reactor, work: Callable[[], None], done: Callable[[], None]) -> None:
    """Run ``work`` on a thread, then ``done`` on the reactor's, where errors are raised too."""
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
    """Report the end to the scheduler and remove the job folder, in the order explained above.

    ``tracking_url`` is what people open from now on: the job in the portal. Where it is empty, the
    scheduler shows its own page of the application.
    """
    remote = is_remote(context.state_dir)
    if not remote:
        remove_job_folder(context, log)
    pool.finish(state, diagnostics, tracking_url)
    if remote:
        remove_job_folder(context, log)


def remove_job_folder(context: MasterContext, log: Log) -> None:
    """Remove the job's secret and files, and its lease on the store."""
    from tony_core.bundle import jobfolder  # loads much code, which only the end needs

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
            if context.state_pointer:
                filesystem(context.state_pointer).delete(context.state_pointer)
            problems.clear()
        except Exception as error:
            problems[:] = [f"{type(error).__name__}: {error}"]

    thread = threading.Thread(target=remove, name="remove", daemon=True)
    thread.start()
    thread.join(REMOVE_S)
    if problems:
        log(f"{context.state_dir} is not removed (tony gc does it): {problems[0]}")


def _root_of(context: MasterContext) -> str:
    """Return the root of the user's store: ``ROOT/apps/ID`` is the state folder."""
    if is_remote(context.state_dir):
        return context.state_dir.rstrip("/").rsplit("/", 2)[0]
    return context.store_root or local_path(context.job_dir).rstrip("/").rsplit("/", 3)[0]

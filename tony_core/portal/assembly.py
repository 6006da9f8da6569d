"""The portal's parts put together: index and scanner, schedulers and sources, the application.

:class:`AllJobs` is what the pages see of index and schedulers: the index's rows with what the
schedulers have known better for the last moments (then the index has it too), and before them the
running jobs that have no history yet.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from starlette.applications import Starlette

from tony_core.history.limits import PAGES
from tony_core.portal.app import create_app
from tony_core.portal.endings import Endings
from tony_core.portal.index.index import Index
from tony_core.portal.index.rows import JobPage, JobRow, Query, Usage
from tony_core.portal.index.scanner import Scanner
from tony_core.portal.job_folders import JobFolder
from tony_core.portal.jvm.publication import JhistPublisher
from tony_core.portal.live_jobs import LiveJobs
from tony_core.portal.locations import open_job
from tony_core.portal.monitoring import LiveKey
from tony_core.portal.schedulers import SchedulerPool
from tony_core.portal.settings import Settings
from tony_core.portal.sources import Sources
from tony_core.portal.tensorboard import TensorBoards
from tony_core.portal.tensorboard_relay import TensorBoardRelay
from tony_core.portal.viewer import Viewer

MakeEndings = Callable[[SchedulerPool, LiveJobs], Endings]


class AllJobs:
    """The index and the schedulers as one :class:`~tony_core.portal.site.JobIndex`."""

    def __init__(self, index: Index, live: LiveJobs) -> None:
        self._index = index
        self._live = live

    def page(self, query: Query, viewer: Viewer) -> JobPage:
        """One page; the first one begins with what has no history yet."""
        found = self._index.page(query, viewer)
        fresh = self._live.unlisted(viewer, self._index.known, query)
        rows = (*fresh, *self._live.overlay(found.rows))
        return JobPage(rows, found.next, found.total + len(fresh))

    def rows(self, app_id: str, viewer: Viewer) -> Tuple[JobRow, ...]:
        """The jobs of this id."""
        known = self._live.overlay(self._index.rows(app_id, viewer))
        return (*known, *self._live.unlisted(viewer, self._index.known, app_id=app_id))

    def runs(
        self,
        viewer: Viewer,
        pipeline: str = "",
        tag: str = "",
        since: float = 0.0,
        owner: str = "",
    ) -> Tuple[JobRow, ...]:
        """The newest jobs of a pipeline or tag, the oldest of them first."""
        return self._index.runs(viewer, pipeline, tag, since, owner)

    def usage(self, by: str, viewer: Viewer, since: float = 0.0) -> Sequence[Usage]:
        """Sums of figures."""
        return self._index.usage(by, viewer, since)

    def facets(self, viewer: Viewer) -> Mapping[str, Mapping[str, int]]:
        """What filters offer."""
        return self._index.facets(viewer)


class Portal(NamedTuple):
    """What runs behind the gate."""

    app: Starlette
    scanner: Scanner
    publisher: JhistPublisher
    live: LiveJobs
    close: Callable[[], None]

    def problems(self) -> List[str]:
        """What cannot be read now, and what cannot be kept to, a sentence each."""
        found: List[str] = []
        for state in self.scanner.states():
            if state.problem:
                found.append(f"The history location {state.name} cannot be read: {state.problem}")
            found += (f"The history location {state.name}: {note}" for note in state.notes)
        return [*found, *self.publisher.problems(), *self.live.problems()]

    def notes(self) -> List[str]:
        """What who runs the portal should know of the places."""
        return [note for state in self.scanner.states() for note in state.notes]

    def list_live(self) -> List[LiveKey]:
        """State, queue and user of each job that waits or runs."""
        return [(job.status.state.value, job.status.queue, job.owner) for job in self.live.jobs()]

    def numbers(self) -> Dict[str, float]:
        """Gauges for Prometheus."""
        states = self.scanner.states()
        return {
            "jobs": float(sum(state.jobs for state in states)),
            "histories_to_read": float(sum(state.waiting for state in states)),
            "running_jobs": float(len(self.live.jobs())),
        }


def assemble(
    settings: Settings,
    make_endings: Optional[MakeEndings] = None,
    log: Callable[[str], None] = lambda text: print(text, file=sys.stderr),  # noqa: T201
) -> Portal:
    """Start everything; raises OSError where the index cannot be kept."""
    locations = {location.name: location for location in settings.locations}
    with contextlib.ExitStack() as stack:
        index = Index(settings.index_folder, settings.public)
        stack.callback(index.close)
        publisher = JhistPublisher(settings.locations, log)
        stack.callback(publisher.close)
        pool = SchedulerPool(settings.schedulers, is_for_many=settings.is_for_many)
        stack.callback(pool.close)
        list_own = None if settings.is_for_many else pool.list_own
        live = LiveJobs(pool)
        stack.callback(live.close)
        scanner = Scanner(settings.locations, index, log, publisher.on_ended, live, list_own)
        stack.callback(scanner.close)

        def open_folder(row: JobRow) -> JobFolder:
            location = locations.get(row.location)
            if location is None:
                raise LookupError(f"the portal reads no location {row.location} any more")
            folder = open_job(location, row.app_id)
            if folder.owner != row.owner:  # another user's, since the index was made
                folder.close()
                raise LookupError(f"the files of {row.app_id} are {row.owner}'s no longer")
            folder.limits = PAGES
            return folder

        sources = Sources(pool, live, open_folder)
        stack.callback(sources.close)
        problems: List[str] = []
        relay = _open_relay(settings, sources, stack, problems)
        portal: List[Portal] = []
        endings = make_endings(pool, live) if make_endings else None
        app = create_app(
            settings,
            AllJobs(index, live),
            sources.open,
            endings=endings,
            find_problems=lambda: [
                *portal[0].problems(),
                *problems,
                *(() if settings.is_for_many else portal[0].notes()),
            ],
            tensorboards=relay,
            log=log,
        )
        scanner.start()
        live.start()
        closing = stack.pop_all()
    portal.append(Portal(app, scanner, publisher, live, closing.close))
    return portal[0]


def _open_relay(
    settings: Settings, sources: Sources, stack: contextlib.ExitStack, problems: List[str]
) -> Optional[TensorBoardRelay]:
    """The way to TensorBoards; None, and a problem, where its port cannot be had."""
    tensorboards = TensorBoards(
        sources, idle_s=settings.tensorboard_idle_s, python=settings.tensorboard_python
    )
    stack.callback(tensorboards.close)
    try:
        relay = TensorBoardRelay(
            tensorboards, settings.bind, settings.tensorboard_port, settings.tensorboard_url
        )
    except OSError as error:
        problems.append(
            f"The portal cannot listen at {settings.bind}, port {settings.tensorboard_port}, so it"
            f" starts no TensorBoard: {(error.strerror or str(error)).lower()}"
        )
        return None
    stack.callback(relay.close)
    relay.start()
    return relay

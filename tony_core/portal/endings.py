"""Ends jobs as the viewer himself: the one thing that the portal can do.

=================  ==============================  ===================================
scheduler          who ends it                     there is a button
=================  ==============================  ===================================
embedded           the portal's own user           for that user, of his own jobs
a cluster, own     the portal's own user           for that user, of his own jobs
a cluster, many    the viewer, by a proxy user     for the owner, where the cluster
                                                   lets the portal act for him; for an
                                                   administrator of the portal, and whom
                                                   the job's list names, where the
                                                   cluster shows the job to him
=================  ==============================  ===================================

Whose job it is, the scheduler says: a history with another user's id in its name ends nothing. An
administrator acts as himself, too: whether he may end another's job, the cluster decides, by its
own administrators and the job's ``tony.yarn.acl.modify``. So do those whom that list names, as the
job's kept configuration has it. No scheduler says beforehand whether it would: a button may be
there, and the answer a refusal. Every attempt is a line in the access log.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Callable, Dict, Tuple

from tony_core.files.local import user_name
from tony_core.portal.index.rows import JobRow
from tony_core.portal.live_jobs import LiveJob, LiveJobs
from tony_core.portal.schedulers import EMBEDDED, SchedulerPool, TooLate
from tony_core.portal.task_logs import owned_status
from tony_core.portal.viewer import Viewer, is_listed
from tony_core.schedulers.port import Scheduler, SchedulerError

KILL_S = 60.0  # the programs' grace is 10 s by default
ASK_S = 3.0
KNOWN_S = 60.0  # that the cluster lets the portal act for a user
_MOST_KNOWN = 5000
Audit = Callable[[str, Viewer, JobRow, str], None]
"""Takes a result (``ended``, ``refused``, ``failed``), who, which job, and a sentence."""
FindAcl = Callable[[], str]


class NotEnded(Exception):
    """A job was not ended; the text says why."""


class Endings:
    """Ends running jobs; any thread may ask."""

    def __init__(
        self,
        pool: SchedulerPool,
        live: LiveJobs,
        is_for_many: bool,
        audit: Audit,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = pool
        self._live = live
        self._is_for_many = is_for_many
        self._audit = audit
        self._now = now
        self._own = user_name(os.geteuid())
        self._lock = threading.Lock()
        self._known: Dict[Tuple[str, str, str], Tuple[float, bool]] = {}

    def may_end(self, viewer: Viewer, row: JobRow, find_modify_acl: FindAcl = lambda: "") -> bool:
        """Whether there is a button.

        ``find_modify_acl`` reads the users and groups that the job lets change it.
        """
        job = self._live.job(row.app_id, row.owner)
        if job is None:
            return False
        user = self._pool.user_for(job.scheduler, viewer.name)
        if self._is_his(viewer, row, job):
            return self._may_act(job, user)
        may_ask = self._is_for_cluster(viewer, job, find_modify_acl)
        return may_ask and self._may_act(job, user, job.status.app_id)

    def end_job(self, viewer: Viewer, row: JobRow, find_modify_acl: FindAcl = lambda: "") -> str:
        """End it; what happened, as a sentence. Raises :class:`NotEnded`."""
        job = self._live.job(row.app_id, row.owner)
        try:
            if job is None:
                raise NotEnded(f"no scheduler of this portal lists {row.app_id} as running")
            if not (
                self._is_his(viewer, row, job) or self._is_for_cluster(viewer, job, find_modify_acl)
            ):
                raise NotEnded(f"{row.app_id} is {row.owner}'s, and you are {viewer.name}")
            result, text = self._end(viewer, row, job)
        except NotEnded as error:
            self._audit("refused", viewer, row, str(error))
            raise
        except SchedulerError as error:
            self._audit("failed", viewer, row, str(error))
            raise NotEnded(str(error)) from None
        self._audit(result, viewer, row, text)
        return text

    def _end(self, viewer: Viewer, row: JobRow, job: LiveJob) -> Tuple[str, str]:
        """The audit's word, and the sentence for the viewer."""

        def kill(scheduler: Scheduler) -> bool:
            status = owned_status(scheduler, row.app_id, row.owner)
            if status is None:
                raise NotEnded(f"the scheduler knows no job {row.app_id} of {row.owner}")
            if status.state.ended:
                return False
            scheduler.kill(row.app_id, f"ended by {viewer.name} in the portal")
            return True

        user = self._pool.user_for(job.scheduler, viewer.name)
        try:
            was_running = self._pool.call(
                job.scheduler, kill, user=user, within_s=KILL_S, what=f"ending {row.app_id}"
            )
        except TooLate:
            return "asked", f"{row.app_id} was asked to end, and has not ended after {KILL_S:g} s"
        if not was_running:
            return "ended", f"{row.app_id} had ended already"
        return "ended", f"{row.app_id} has ended"

    def _is_his(self, viewer: Viewer, row: JobRow, job: LiveJob) -> bool:
        """Whether the viewer is the job's owner, as the one whom he would act as."""
        if self._is_for_many and job.scheduler != EMBEDDED:
            return viewer.name == row.owner
        if viewer.name != self._own:
            return False  # root at a user's portal, or any viewer of one for many
        own = self._own if job.scheduler == EMBEDDED else self._name_at(job.scheduler)
        return own == row.owner

    def _is_for_cluster(self, viewer: Viewer, job: LiveJob, find_modify_acl: FindAcl) -> bool:
        """Whether a cluster is to decide if the viewer may end another's job."""
        if not self._is_for_many or job.scheduler == EMBEDDED:
            return False
        return viewer.is_admin or is_listed(viewer, find_modify_acl())

    def _name_at(self, scheduler: str) -> str:
        """The portal's own name at a cluster; empty where that is not known now."""
        try:
            return self._pool.call(scheduler, lambda one: one.user, within_s=ASK_S)
        except SchedulerError:
            return ""

    def _may_act(self, job: LiveJob, user: str, anothers: str = "") -> bool:
        """Whether the scheduler answers the portal in a user's name.

        ``anothers``: the id of a job that is not the user's, which it has to show to him.
        """
        key = (job.scheduler, user, anothers)
        with self._lock:
            at, known = self._known.get(key, (0.0, False))
            if key in self._known and self._now() - at < KNOWN_S:
                return known
        try:
            status = self._pool.call(
                job.scheduler,
                lambda one: owned_status(one, job.status.app_id, job.owner),
                user=user,
                within_s=ASK_S,
                what=f"acting for {user or 'oneself'}",
            )
            found = not anothers or (status is not None and not status.view_refusal)
        except SchedulerError:
            found = False
        with self._lock:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = (self._now(), found)
        return found


def describe_ending(result: str, viewer: Viewer, row: JobRow, text: str) -> str:
    """The line of the access log."""
    return (
        f"end-job result={result} viewer={viewer.name} app={row.app_id} owner={row.owner}"
        f" location={row.location}: {text}"
    )

"""One job of one task instance: found or submitted, waited for, ended.

Theory of operation
===================

**Never two jobs.** A job carries its task's tags (:mod:`tony_airflow.tags`) from its submit on. So
a try first looks for jobs with these tags: it continues a job of its own generation, ends those of
other generations, and only then submits a new one. When the cluster cannot be asked, the try fails
and the next one asks again.

**No job of another user.** Any user of the cluster can give a job these tags. So only applications
of the user for whom the task acts are the task's. Another user's is named in the log and left
alone: it may not stop the task. That may be the task's own from before its login changed.

**No job without a task.** A task that Airflow tells to end ends its job (:meth:`TaskJob.kill_now`,
from a signal handler; calls run in a thread that it may leave behind), unless another try has
continued the job (:mod:`.ownership`). A task that fails while its job goes on leaves the job to the
next try if there is one, and ends it if there is none. When a task vanishes, the job's lease
(``tony.client.lease``) is no longer renewed: a task renews it, on a worker or in a trigger, as it
reads the job's page. When the lease is over, the job ends by itself.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from airflow.providers.common.compat.sdk import AirflowException

from tony_airflow.hooks.tony import NotOwn, TonyHook
from tony_airflow.job_arguments import read_arguments, secrets_of
from tony_airflow.links.addresses import application_page, links_of, portal_page
from tony_airflow.links.tony import PORTAL, TENSORBOARD
from tony_airflow.operators.ownership import SETTLED_S, is_true_within
from tony_airflow.tags import LINK, TaskTags
from tony_core.client.errors import ClientError, NotFound
from tony_core.client.merge import from_status
from tony_core.client.outage import SchedulerOutage
from tony_core.client.portal_pages import tensorboard_page
from tony_core.client.watch import Watch
from tony_core.client.workflow.output import (
    OutputReader,
    parse_position,
    unreadable,
    without_control,
)
from tony_core.client.workflow.report import Reporter
from tony_core.job.mask import KnownSecrets
from tony_core.schedulers.port import (
    AppState,
    AppStatus,
    NoSuchApplication,
    NotLoggedIn,
    SchedulerError,
)
from tony_core.view import SCHEDULER, JobView

#: Between SIGTERM and SIGKILL Airflow leaves five seconds.
KILL_NOW_S = 4.0
OWNER_LOOKUP_S = 2.0  # of these, to ask which try owns the job
UNHURRIED_KILL_S = 45.0
OUTPUT_S = 2.0  # between two reads of the chief's output
LOGIN_PAUSE_S = 2.0  # between two tries to log in
LAST_LINES_S = 20.0  # to read the tasks' last lines after the execution_timeout
STOPPED = "its Airflow task was stopped"
GONE = "GONE"
MOST_NAMED = 3  # other users' applications in a warning


class StillRunning(SchedulerError):
    """A job that has to end before a new one starts does not end."""


class TaskJob:
    """The job that a task instance has, if any."""

    def __init__(
        self,
        hook: TonyHook,
        log: Any,
        push: Callable[[Mapping[str, str]], None] = lambda links: None,
    ) -> None:
        self.hook = hook
        self.app_id: Optional[str] = None
        self.is_killed = False  # by this task
        self.is_yielded = False  # to another try of the task
        self.has_ended = False  # as far as this task saw
        self.is_submitting = False  # its id is not known yet
        self.kill_targets: Optional[List[str]] = None  # None until a kill knows them
        self.links: Dict[str, str] = {}  # all that were ever known
        self.history_page = ""  # in Airflow's web server
        self.follows_output = False  # whether the log has the chief's output and all last lines
        self.output = OutputReader(hook)
        self._log = log
        self._push = push
        self._watch: Optional[Watch] = None
        self._tags: Optional[TaskTags] = None
        self._adopted_at = float("inf")

    # ------------------------------------------------------------------ beginning

    def follow_output(self, operator: Any) -> None:
        """Log the chief's output if the operator wants it, with the job's secrets masked."""
        self.follows_output = operator.get_logs
        arguments, _ = read_arguments(operator.job_arguments())
        self.hook.secrets = frozenset(secrets_of(arguments))

    def find_predecessor(self, tags: TaskTags, keep: bool = True) -> Optional[AppStatus]:
        """Find the job of an earlier try to continue; end all other jobs of the task that run.

        Without ``keep`` it ends that one too: each try has a job of its own.
        """
        self._tags = tags
        own, others = self._find(tags)
        self._warn_of_others([one for one in others if not one.state.ended])
        found = tags.predecessors(own)
        stale, reusable = list(found.stale), found.reusable
        if reusable is not None and not keep:
            stale += [] if reusable.state.ended else [reusable]
            reusable = None
        for status in stale:
            self._log.warning(
                "%s of an earlier try of this task still runs (%s): it is ended first",
                status.app_id,
                status.state.value,
            )
            self.end(status.app_id, "another try of its task has begun")
        return reusable

    def _find(self, tags: TaskTags) -> Tuple[List[AppStatus], List[AppStatus]]:
        """The task's applications, and other users' that carry its tag."""
        found = self.hook.find(tags.of_task)
        own = self.hook.only_own(found) if found else []
        return own, [status for status in found if status not in own]

    def _warn_of_others(self, others: List[AppStatus]) -> None:
        if others:
            named = [f"{status.app_id} of {status.user}" for status in others[:MOST_NAMED]]
            more = len(others) - len(named)
            self.warn(
                f"{', '.join(named)}{f' and {more} more' if more else ''}: not this task's, though"
                f" it has its tags, since the task acts for {self.hook.user()}. It is left alone,"
                " and the task has a job of its own. If the task's user has changed since an"
                " earlier try, end it: tony kill"
            )

    def refuse_if_stopped(self) -> None:
        """AirflowException when Airflow has stopped the task: it needs no job."""
        if self.is_killed:
            raise AirflowException("the task was stopped before its job was submitted")

    def adopt(self, app_id: str) -> None:
        """Take a job as the task's; end it at once if Airflow has stopped the task."""
        self.app_id = app_id
        self._adopted_at = time.monotonic()
        if self.is_killed:
            self._kill()

    def end(self, app_id: str, reason: str) -> None:
        """End a job and wait for its end; StillRunning when it does not end."""
        try:
            killed = self.hook.kill(app_id, f"{reason} (Airflow)")
        except NoSuchApplication:
            return
        if not killed.ended:
            raise StillRunning(
                f"{app_id} was killed and still is {killed.status.state.value}: nothing new"
                " is started beside it; the next try looks again"
            )

    # ------------------------------------------------------------------ waiting

    def state(self, app_id: str) -> str:
        """The state of a job of the task, from the scheduler or history; GONE without one."""
        try:
            return self.hook.status(app_id, own=True).state.value
        except NotOwn as error:
            self._warn_of_others([error.status])
            return GONE
        except NoSuchApplication:
            pass
        try:
            return self.hook.view(app_id).state.value
        except (NotFound, NoSuchApplication):
            return GONE

    def wait(
        self,
        unreachable_s: float,
        event: Optional[Mapping[str, Any]] = None,
        lease_s: Optional[float] = None,
    ) -> Optional[JobView]:
        """Wait for the job's end; None if the task was stopped, or another try has it.

        A job that has ended already is read at once, with its whole history. ``event`` is a
        trigger's event of its end: the log then has the story, and the scheduler may have forgotten
        the job or be another host's.
        """
        assert self.app_id is not None
        try:
            if event is not None:
                self.output.position = parse_position(event.get("output"))
            # A trigger that has seen the job has logged its story.
            story = event is None or not event.get("seen", True)
            view = self._wait(self.app_id, unreachable_s, lease_s, story)
            if view is None:
                self.push_last_links()
                return None
            self.has_ended = True
            if self.follows_output:
                for line in self.output.last_lines(view):
                    self.info(line)
            self._log_advice(view.app_id)
            return view
        except NoSuchApplication:
            if event is None or not event.get("outcome"):
                raise
            self.has_ended = True
            cause = str(event.get("diagnostics") or "")
            return JobView(self.app_id, AppState(event["outcome"]), SCHEDULER, diagnostics=cause)

    def _wait(
        self, app_id: str, unreachable_s: float, lease_s: Optional[float], story: bool
    ) -> Optional[JobView]:
        reporter = Reporter(self.info, self.warn, hidden=(LINK,))
        application = application_page(self.hook.site, app_id)
        next_read = 0.0

        def tick() -> None:
            nonlocal next_read
            now = time.monotonic()
            if self.follows_output and now >= next_read and watch.view is not None:
                for line in self.output.new_lines(watch.view):
                    self.info(line)
                next_read = now + max(OUTPUT_S, 10 * (time.monotonic() - now))

        callbacks = reporter.callbacks(
            story=story,
            lease_s=lease_s,
            on_view=lambda view: self.push_links_of(view, application),
            on_tick=tick,
        )
        self._wait_for_login(unreachable_s)
        with self.hook.get_conn().client() as client:
            watch = self._watch = Watch(
                client.scheduler,
                app_id,
                callbacks,
                history=self.hook.site.history_location,
                unreachable_s=unreachable_s,
                login_s=unreachable_s,
            )
            try:
                return None if self.is_killed or self.is_yielded else watch.run()
            finally:
                self._watch = None
                reporter.end()

    def _log_advice(self, app_id: str) -> None:
        known = KnownSecrets(self.hook.secrets)
        for line in self.hook.advice(app_id):
            self.info(without_control(line, known))

    def _wait_for_login(self, limit_s: float) -> None:
        """Wait for a new ticket if the login has none now; NotLoggedIn when none has come."""
        outage = SchedulerOutage(login_s=limit_s)
        while True:
            asked = time.monotonic()
            try:
                with self.hook.get_conn().client():
                    return
            except NotLoggedIn as error:
                failure = outage.failed(error, asked)
                if failure.has_expired or self.is_killed or self.is_yielded:
                    raise
                if failure.is_first:
                    self.warn(f"this task cannot log in now, and tries again: {error}")
            time.sleep(LOGIN_PAUSE_S)

    # ------------------------------------------------------------------ XComs and log

    def push_identity(self, ti: Any) -> None:
        """Push which job the task has, for other tasks and its page (:mod:`tony_airflow.pages`)."""
        site = self.hook.site
        ti.xcom_push(key="application_id", value=self.app_id)
        where = {"connection": site.name, "scheduler": site.scheduler}
        if site.proxy_user:
            where["proxy_user"] = site.proxy_user
        ti.xcom_push(key="tony_connection", value=where)

    def push_links(self, links: Mapping[str, str]) -> None:
        """Push the links that are new."""
        fresh = {name: url for name, url in links.items() if self.links.get(name) != url}
        if fresh:
            self.links.update(fresh)
            self._push(fresh)

    def push_first_links(self, read_page: bool) -> None:
        """Push the links known at the submit, or on the job's page."""
        assert self.app_id is not None
        try:
            if read_page:
                view = self.hook.view(self.app_id)
            else:
                view = from_status(self.hook.status(self.app_id))
            self.push_links_of(view)
        except (SchedulerError, ClientError):
            pass  # they are pushed when the job is first seen

    def push_links_of(self, view: JobView, application: Optional[str] = None) -> None:
        """Push the links of a view; ``application`` is the application's page, where known."""
        if application is None:
            application = application_page(self.hook.site, view.app_id)
        portal = portal_page(self.hook.site, view.app_id)
        found = links_of(view, application, self.history_page, portal)
        had_tensorboard = TENSORBOARD in self.links.keys() - view.links.keys()
        if view.state.ended and had_tensorboard:  # it ended with its master
            if PORTAL in found:
                found[TENSORBOARD] = tensorboard_page(found[PORTAL])
            elif self.history_page:
                found[TENSORBOARD] = f"{self.history_page}#metrics"
        self.push_links(found)

    def push_last_links(self, view: Optional[JobView] = None) -> None:
        """Push the links of a job that was ended: those to its own page lead nowhere now."""
        if self.app_id is not None and self.has_ended:
            try:
                if view is None:
                    self.push_first_links(read_page=True)
                else:
                    self.push_links_of(view)
            except Exception as error:  # Airflow may refuse XComs of a task that is marked
                self.warn(f"the links could not be kept: {error}")

    def info(self, text: str) -> None:
        """Write a line into the task's log."""
        self._log.info("%s", text)

    def warn(self, text: str) -> None:
        """Write a warning into the task's log."""
        self._log.warning("%s", text)

    # ------------------------------------------------------------------ ending

    def on_failed_deferral(
        self, tags: TaskTags, is_timeout: bool, limit: Any, retried: bool
    ) -> None:
        """End or leave what runs after a deferral without an event: it took longer than the
        ``limit``, or its trigger failed."""
        running = [one for one in self._find(tags)[0] if not one.state.ended]
        if is_timeout and not running:
            self.warn(f"execution_timeout ({limit}) is over: no job of this task is running")
        for status in running:
            self.adopt(status.app_id)
            if is_timeout:
                self.end_on_timeout(limit)
            else:
                self.leave_or_end(retried, "its task failed")

    def end_on_timeout(self, limit: Any) -> None:
        """End the job of a task that ran for longer than its ``execution_timeout``.

        The log gets the result, and the last lines of the job's tasks.
        """
        what = f"ending the job {self.app_id}" if self.app_id else "looking for a job of this task"
        self.warn(f"execution_timeout ({limit}) is over: {what}")
        reason = f"the execution_timeout ({limit}) of its Airflow task is over"
        self.kill_now(UNHURRIED_KILL_S, reason)
        if self.app_id is None and self.kill_targets:
            self.app_id = self.kill_targets[0]
        if self.app_id is None:
            if self.kill_targets == [] or self._tags is None:
                self.warn("nothing was submitted yet")
            else:
                self.warn(
                    "the cluster does not answer: if a job was submitted, it ends when its lease"
                    " is over"
                )
        elif self.has_ended:
            self.warn(f"the job {self.app_id} has ended")
            self._log_last_lines(self.app_id)
        else:
            self.warn(
                f"the job {self.app_id} has not ended in {UNHURRIED_KILL_S:g} s: it does when its"
                f" lease is over; its output: tony logs {self.app_id}"
            )

    def _log_last_lines(self, app_id: str) -> None:
        """Push the links and log the last lines of a job that was ended, within a time limit."""
        views: List[JobView] = []
        found: List[str] = []

        def read() -> bool:
            try:
                views.append(self.hook.view(app_id))
                if self.follows_output:
                    found.extend(self.output.last_lines(views[0], bool(self.output.position)))
            except (SchedulerError, ClientError, OSError) as error:
                found.append(unreadable(app_id, error))
            return True

        in_time = is_true_within(LAST_LINES_S, read)
        if views:
            self.push_last_links(views[0])
        for line in list(found):
            self.info(line)
        if self.follows_output and not in_time:
            self.info(
                f"the last lines of its tasks were not read in {LAST_LINES_S:g} s:"
                f" tony logs {app_id}"
            )

    def kill_now(self, wait_s: float = KILL_NOW_S, reason: str = STOPPED) -> None:
        """End the job from a signal handler: no call to Airflow, no lock, and not for long.

        The thread goes on when the time is over: mostly it has sent the request by then, and if the
        process is killed before, the lease ends the job. While a job is being submitted the handler
        returns at once, since the submit goes on only then, and :meth:`adopt` ends its job. A
        submit that was broken off left no id: such a job is found by its tag.
        """
        self.is_killed = True
        watch = self._watch  # another thread may clear it
        if watch is not None:
            watch.stop()
        if not self.is_submitting and (self.app_id is not None or self._tags is not None):
            thread = threading.Thread(
                target=self._kill, args=(reason,), name="tony-kill", daemon=True
            )
            thread.start()
            thread.join(wait_s)

    def on_kill(self, has_another_try: Callable[[], bool]) -> None:
        """Airflow's call, in a signal handler: end the job unless another try continues it."""
        began = time.monotonic()
        if not self._yields(has_another_try):
            self.kill_now(KILL_NOW_S - min(OWNER_LOOKUP_S, time.monotonic() - began))

    def _yields(self, has_another_try: Callable[[], bool]) -> bool:
        """Whether the job is left to another try, which Airflow and the cluster have to confirm.

        If the task has two jobs, the one of the try that is over is ended.
        """
        if self.is_yielded:
            return True
        age_s = time.monotonic() - self._adopted_at
        if self.is_killed or self._tags is None or age_s < SETTLED_S:
            return False
        if not is_true_within(
            OWNER_LOOKUP_S, lambda: has_another_try() and self._running() == [self.app_id]
        ):
            return False
        self.is_yielded = True
        watch = self._watch  # another thread may clear it
        if watch is not None:
            watch.stop()
        return True

    def _kill(self, reason: str = STOPPED) -> None:
        try:
            self.kill_targets = [self.app_id] if self.app_id else self._running()
            killed = [self.hook.kill(app_id, reason) for app_id in self.kill_targets]
            self.has_ended = all(one.ended for one in killed)
        except Exception:  # noqa: S110 - in a handler nothing may be logged; the lease ends the job
            pass
        finally:
            self.hook.close()

    def _running(self) -> List[str]:
        """The task's applications that have not ended."""
        assert self._tags is not None
        own, _ = self._find(self._tags)
        return [status.app_id for status in own if not status.state.ended]

    def leave_or_end(self, retried: bool, why: str) -> None:
        """When the task fails while its job may go on: leave the job to the next try, or end it."""
        if self.app_id is None or self.is_killed or self.is_yielded or self.has_ended:
            return
        if retried:
            self._log.warning("%s goes on: the next try takes it up again", self.app_id)
            return
        try:
            self.end(self.app_id, why)
            self._log.warning("%s was ended: %s", self.app_id, why)
        except (SchedulerError, ClientError, OSError) as error:
            self._log.warning(
                "%s could not be ended (%s): it ends by itself when its lease is over",
                self.app_id,
                error,
            )

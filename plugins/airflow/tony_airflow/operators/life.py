"""One job of one task instance: found or submitted, waited for, ended.

Theory of operation
===================

**Never two.** A job carries its task's tags (:mod:`tony_airflow.tags`) from its submit on, so a
try that begins first looks for what carries them: a job of its own generation is taken up again,
one of an older generation is ended, and only then a new one may be submitted. What the cluster
cannot be asked for is not guessed: the try fails, and the next one asks again.

**Never orphaned.** A task that is told to end ends its job (:meth:`TaskJob.kill_now`, from a signal
handler, so whom it asks it asks in a thread that may be left behind), unless another try has
taken the task over (:mod:`.owner`). One that fails while its job goes on leaves it to the next try
if there is one, and ends it if there is none.
One that vanishes renews no lease (``tony.client.lease``): whoever waits, here or in a trigger,
reads the job's page, which renews it; when nobody has for that long, the job ends by itself.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from airflow.providers.common.compat.sdk import AirflowException

from tony_airflow.connection import LOCAL, Site
from tony_airflow.hooks.tony import TonyHook
from tony_airflow.jobs import read_arguments, secrets_of
from tony_airflow.lease import UnseenPage
from tony_airflow.links.addresses import application_page, links_of
from tony_airflow.links.tony import TENSORBOARD
from tony_airflow.operators.ends import UNHURRIED_S
from tony_airflow.operators.owner import SETTLED_S, within
from tony_airflow.output import position_of
from tony_airflow.reporting import OutputReader, Reporter
from tony_airflow.tags import TaskTags, sort_out
from tony_core.client.errors import ClientError, NotFound
from tony_core.client.view import PAGE, SCHEDULER, JobView, from_status
from tony_core.client.watch import Callbacks, Watch
from tony_core.schedulers.port import AppState, AppStatus, NoSuchApplication, SchedulerError

#: Between SIGTERM and SIGKILL Airflow leaves five seconds.
KILL_NOW_S = 4.0
ASK_NOW_S = 2.0  # of these, for whose the job is
OUTPUT_S = 2.0  # between two looks at the chief's output
LAST_LINES_S = 20.0  # to read the tasks' last lines after the task's time is over
GONE = "GONE"


class StillRunning(SchedulerError):
    """A job that had to end first does not end."""


class TaskJob:
    """The job that a task instance has, if any."""

    def __init__(
        self,
        hook: TonyHook,
        log: Any,
        publish: Callable[[Mapping[str, str]], None] = lambda links: None,
    ) -> None:
        self.hook = hook
        self.app_id: Optional[str] = None
        self.killed = False  # by this very task
        self.given_up = False  # another try of the task has it
        self.ended = False  # as far as was seen
        self.links: Dict[str, str] = {}  # all that were seen
        self.page = ""  # in Airflow's web server
        self.follows = False  # whether the log has the chief's output, and every task's last lines
        self.output = OutputReader(hook)
        self.submitting = False  # whether its id is about to be known
        self.targets: Optional[List[str]] = None  # what a kill was for; None until that is known
        self._log = log
        self._publish = publish
        self._watch: Optional[Watch] = None
        self._tags: Optional[TaskTags] = None
        self._taken_at = float("inf")

    # ------------------------------------------------------------------ beginning

    def predecessor(self, tags: TaskTags, keep: bool = True) -> Optional[AppStatus]:
        """The job of an earlier try that is this one's too; whatever else still runs is ended.

        Without ``keep`` none is: each try has a job of its own.
        """
        self._tags = tags
        found = sort_out(self.hook.find(tags.of_task), tags)
        left = list(found.left)
        mine = found.mine
        if mine is not None and not keep:
            left += [] if mine.state.ended else [mine]
            mine = None
        for status in left:
            self._log.warning(
                "%s of an earlier try of this task still runs (%s): it is ended first",
                status.app_id,
                status.state.value,
            )
            self.end(status.app_id, "another try of its task has begun")
        return mine

    def refuse_ended(self) -> None:
        """AirflowException when the task was told to end: it needs no job any more."""
        if self.killed:
            raise AirflowException("the task was stopped before its job was submitted")

    def take(self, app_id: str) -> None:
        """This is the task's job from now on; at once ended if the task was told to end."""
        self.app_id = app_id
        self._taken_at = time.monotonic()
        if self.killed:
            self._kill()

    def end(self, app_id: str, reason: str) -> None:
        """End a job and see it ended; StillRunning when it does not."""
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
        """Its state as the scheduler or history tells it; GONE when nobody knows it any more."""
        try:
            return self.hook.status(app_id).state.value
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
        """Its end; None when the task was told to end meanwhile, or has lost it to another try.

        A job that has ended already is read at once, to the last line of its history. ``event`` is
        what a trigger said of its end: the log has the story by then, and a scheduler may have
        forgotten the job, or be another host's.
        """
        assert self.app_id is not None
        try:
            if event is not None:
                self.output.position = position_of(event.get("output"))
            # A trigger that has seen the job has told its story.
            story = event is None or not event.get("seen", True)
            view = self._wait(self.app_id, unreachable_s, lease_s, story)
            if view is None:
                self.publish_last()
                return None
            self.ended = True
            if self.follows:
                for line in self.output.last_lines(view):
                    self.say(line)
            return view
        except NoSuchApplication:
            if event is None or not event.get("outcome"):
                raise
            self.ended = True
            said = str(event.get("diagnostics") or "")
            return JobView(self.app_id, AppState(event["outcome"]), SCHEDULER, diagnostics=said)

    def _wait(
        self, app_id: str, unreachable_s: float, lease_s: Optional[float], story: bool
    ) -> Optional[JobView]:
        reporter = Reporter(self.say, self.warn)
        page = UnseenPage(lease_s)
        application = application_page(self.hook.site, app_id)

        def unseen(why: str) -> None:
            warning = page.failed(why)
            if warning:
                self.warn(warning)

        def seen(view: JobView) -> None:
            if view.source == PAGE:
                page.seen()
            if not view.state.ended:
                reporter.links(view.links)
                reporter.progress(view)
            self.publish_of(view, application)

        next_look = 0.0

        def tick() -> None:
            nonlocal next_look
            now = time.monotonic()
            if self.follows and now >= next_look and watch.view is not None:
                self.tell_output(watch.view)
                next_look = now + max(OUTPUT_S, 10 * (time.monotonic() - now))

        told = Callbacks(
            on_event=reporter.event if story else None,
            on_tasks=reporter.tasks if story else None,
            on_view=seen,
            on_unreachable=lambda why: self.warn(f"the scheduler does not answer: {why}"),
            on_silent_page=unseen,
            on_tick=tick,
        )
        with self.hook.get_conn().one() as client:
            watch = self._watch = Watch(
                client.scheduler,
                app_id,
                told,
                history=self.hook.site.history_location,
                unreachable_s=unreachable_s,
            )
            try:
                return None if self.killed or self.given_up else watch.run()
            finally:
                self._watch = None
                reporter.end()

    def publish(self, links: Mapping[str, str]) -> None:
        """Push the links that are new."""
        fresh = {name: url for name, url in links.items() if self.links.get(name) != url}
        if fresh:
            self.links.update(fresh)
            self._publish(fresh)

    def push_name(self, ti: Any) -> None:
        """Say which job the task has: for others, and for its page (:mod:`tony_airflow.pages`)."""
        site = self.hook.site
        ti.xcom_push(key="application_id", value=self.app_id)
        told = {"connection": site.name, "scheduler": site.scheduler}
        ti.xcom_push(key="tony_connection", value=told)

    def publish_first(self, look: bool) -> None:
        """The links that are known as the job is submitted; by its page too, with ``look``."""
        assert self.app_id is not None
        try:
            told = self.hook.view if look else lambda app_id: from_status(self.hook.status(app_id))
            self.publish_of(told(self.app_id))
        except (SchedulerError, ClientError):
            pass  # they come as soon as it is seen

    def publish_of(self, view: JobView, application: Optional[str] = None) -> None:
        """The links of a job as it was seen; ``application`` is its page, where that is known."""
        if application is None:
            application = application_page(self.hook.site, view.app_id)
        found = links_of(view, application, self.page)
        if view.state.ended and self.page and TENSORBOARD in self.links.keys() - view.links.keys():
            found[TENSORBOARD] = f"{self.page}#metrics"  # TensorBoard went with its master
        self.publish(found)

    def publish_last(self, view: Optional[JobView] = None) -> None:
        """The links of a job that was ended: its page is gone, and they lead to what stays."""
        if self.app_id is not None and self.ended:
            try:
                if view is None:
                    self.publish_first(look=True)
                else:
                    self.publish_of(view)
            except Exception as error:  # Airflow may take no more of a task that is marked
                self.warn(f"the links could not be kept: {error}")

    def tell_output(self, view: JobView) -> None:
        """Log the chief's new lines."""
        for line in self.output.new_lines(view):
            self.say(line)

    # ------------------------------------------------------------------ ending

    def after_deferral(self, tags: TaskTags, too_long: bool, limit: Any, retried: bool) -> None:
        """End or leave what runs after a deferral without an event: it took longer than the
        ``limit``, or its trigger failed."""
        running = [one for one in self.hook.find(tags.of_task) if not one.state.ended]
        if too_long and not running:
            self.warn(f"execution_timeout ({limit}) is over: no job of this task is running")
        for status in running:
            self.take(status.app_id)
            if too_long:
                self.time_is_over(limit)
            else:
                self.leave(retried, "its task failed")

    def time_is_over(self, limit: Any) -> None:
        """End it, since its task ran for longer than its ``execution_timeout``; log that, what
        came of it, and the last lines of its tasks."""
        what = f"ending the job {self.app_id}" if self.app_id else "looking for a job of this task"
        self.warn(f"execution_timeout ({limit}) is over: {what}")
        self.kill_now(UNHURRIED_S, f"the execution_timeout ({limit}) of its Airflow task is over")
        if self.app_id is None and self.targets:
            self.app_id = self.targets[0]
        if self.app_id is None:
            if self.targets == [] or self._tags is None:
                self.warn("nothing was submitted yet")
            else:
                self.warn(
                    "the cluster does not answer: if a job was submitted, it ends when its lease"
                    " is over"
                )
        elif self.ended:
            self.warn(f"the job {self.app_id} has ended")
            self._tell_in_time(self.app_id)
        else:
            self.warn(
                f"the job {self.app_id} has not ended in {UNHURRIED_S:g} s: it does when its lease"
                f" is over; its output: tony logs {self.app_id}"
            )

    def _tell_in_time(self, app_id: str) -> None:
        """The links and last lines of a job that was ended; its task has no time to wait for."""
        views: List[JobView] = []
        found: List[str] = []

        def read() -> bool:
            try:
                views.append(self.hook.view(app_id))
                if self.follows:
                    found.extend(self.output.last_lines(views[0], bool(self.output.position)))
            except (SchedulerError, ClientError, OSError) as error:
                found.append(f"the logs of its tasks cannot be read ({error}): tony logs {app_id}")
            return True

        in_time = within(LAST_LINES_S, read)
        if views:
            self.publish_last(views[0])
        for line in list(found):
            self.say(line)
        if self.follows and not in_time:
            self.say(
                f"the last lines of its tasks were not read in {LAST_LINES_S:g} s:"
                f" tony logs {app_id}"
            )

    def kill_now(
        self, wait_s: float = KILL_NOW_S, reason: str = "its Airflow task was stopped"
    ) -> None:
        """End it from a signal handler: no question to Airflow, no lock, and not for long.

        The thread goes on when the time is over: the request is mostly out by then, and a
        process that is killed before leaves the job to its lease. While a job is being submitted
        the handler returns at once, since the submit goes on only then, and :meth:`take` ends what
        comes of it. Of a submit that was broken off nobody knows the id: such a job is found by
        its tag.
        """
        self.killed = True
        watch = self._watch
        if watch is not None:
            watch.stop()
        if not self.submitting and (self.app_id is not None or self._tags is not None):
            thread = threading.Thread(
                target=self._kill, args=(reason,), name="tony-kill", daemon=True
            )
            thread.start()
            thread.join(wait_s)

    def told_to_end(self, is_anothers: Callable[[], bool]) -> None:
        """Airflow's call, in a signal handler: end it, unless another try of the task has it."""
        began = time.monotonic()
        if not self._gives_up(is_anothers):
            self.kill_now(KILL_NOW_S - min(ASK_NOW_S, time.monotonic() - began))

    def _gives_up(self, is_anothers: Callable[[], bool]) -> bool:
        """Whether another try of the task has the job, which then goes on.

        Airflow is asked, and the cluster too: of two jobs, however they came to be, the one of the
        try that is over is ended.
        """
        if self.given_up:
            return True
        if self.killed or self._tags is None or time.monotonic() - self._taken_at < SETTLED_S:
            return False
        if not within(ASK_NOW_S, lambda: is_anothers() and self._submitted() == [self.app_id]):
            return False
        self.given_up = True
        watch = self._watch
        if watch is not None:
            watch.stop()
        return True

    def _kill(self, reason: str = "its Airflow task was stopped") -> None:
        try:
            self.targets = [self.app_id] if self.app_id else self._submitted()
            killed = [self.hook.kill(app_id, reason) for app_id in self.targets]
            self.ended = all(one.ended for one in killed)
        except Exception:  # noqa: S110 - in a handler nothing may be logged; the lease is left
            pass
        finally:
            self.hook.close()

    def _submitted(self) -> List[str]:
        assert self._tags is not None
        found = self.hook.find(self._tags.of_task)
        return [status.app_id for status in found if not status.state.ended]

    def leave(self, retried: bool, why: str) -> None:
        """The task fails while its job may go on: the next try's, or nobody's."""
        if self.app_id is None or self.killed or self.given_up or self.ended:
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

    def follow(self, operator: Any) -> None:
        """Let the log have the chief's output if the operator wants that, without its secrets."""
        self.follows = operator.get_logs
        arguments, _ = read_arguments(operator.job_words())
        self.hook.secrets = frozenset(secrets_of(arguments))

    def say(self, text: str) -> None:
        """A line of the task's log."""
        self._log.info("%s", text)

    def warn(self, text: str) -> None:
        """A line of the task's log that is worth a look."""
        self._log.warning("%s", text)


def trigger_of(job: TaskJob, operator: Any, lease_s: Optional[float]) -> Any:
    """The trigger that waits for a task's job from now on; connections are given back."""
    from tony_airflow.triggers.tony import TonyTrigger

    site = travelling(job.hook.site)
    job.hook.close()
    return TonyTrigger(
        site=site,
        app_id=str(job.app_id),
        poll_interval=operator.poll_interval,
        unreachable_s=operator.unreachable_timeout,
        lease_s=lease_s,
        host=socket.gethostname(),
        links=operator.link_names,
        # A trigger's arguments lie in Airflow's database: it gets no secret, so it masks none.
        get_logs=operator.get_logs and not job.hook.secrets,
    )


def travelling(site: Site) -> Dict[str, Any]:
    """A site as a trigger carries it; the embedded scheduler's folder named, wherever it runs."""
    data = site.to_dict()
    if site.scheduler == LOCAL and not site.home:
        from tony_core.schedulers.local.home import home_root

        data["home"] = home_root(site.env())
    return data

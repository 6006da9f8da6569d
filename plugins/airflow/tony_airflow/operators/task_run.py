"""One try of a task, from what Airflow calls to what the task returns.

It is the operator's half that only a run needs: it finds or submits the job (:mod:`.submission`),
waits for it here or hands it to a trigger, and turns its end into the task's result or exception
(:mod:`.retries`). :mod:`.task_job` describes what happens to the job in each way that a try can
end.
"""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Mapping, Optional

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
)

from tony_airflow import assets
from tony_airflow.connection import Site
from tony_airflow.errors import translated_errors
from tony_airflow.hooks.tony import TonyHook
from tony_airflow.links.addresses import history_page, lasting_links
from tony_airflow.links.tony import LOG, push
from tony_airflow.operators import retries, submission
from tony_airflow.operators.ownership import has_another_try
from tony_airflow.operators.task_job import TaskJob
from tony_airflow.tags import task_tags
from tony_airflow.triggers.tony import TonyTrigger
from tony_core.client.workflow.results import result_of, summary_line
from tony_core.schedulers.port import AppState, AppStatus
from tony_core.view import JobView

if TYPE_CHECKING:
    from tony_airflow.operators.tony import TonyOperator


class TaskRun:
    """A try of an operator's task, and its job."""

    def __init__(self, operator: TonyOperator, context: Any) -> None:
        self._operator = operator
        self._context = context
        self._ti = context["ti"]
        self._tags = task_tags(self._ti, operator.retries)
        self._log = operator.log
        self._job: Optional[TaskJob] = None
        self._reusable: Optional[AppStatus] = None
        self._submitted_lease_s: Optional[float] = None
        self._result: Any = None
        self._summary: Optional[Dict[str, Any]] = None

    # ------------------------------------------------------------------ Airflow's calls

    def begin(self) -> Any:
        """Find or submit the job, and wait for it here or in a trigger."""
        operator = self._operator
        with self.translated_errors(is_try=True):
            if operator.read_error is not None:
                raise operator.read_error
            job = self._open(submission.open_hook(operator))
            operator.external_id_key = self._tags.state_key
            self._reusable = job.find_predecessor(self._tags, keep=operator.durable)
            if not operator.wait_for_completion:
                app_id = self.submit()
                return {"application_id": app_id, "outcome": job.state(app_id), "links": job.links}
            if not operator.deferrable:
                return operator.execute_resumable(self._context)
            app_id = self.submit()
            if self._reusable is not None and self._reusable.state.ended:
                return self.wait(app_id)
            return self._defer(job)

    def complete(self, event: Mapping[str, Any]) -> Any:
        """Go on with a trigger's event, which has all that is known."""
        with self.translated_errors(is_try=True):
            job = self._open(TonyHook.of(Site.from_dict(event["site"])))
            job.adopt(event["app_id"])
            if event.get("refused"):
                raise AirflowFailException(str(event["refused"]))
            if event.get("error"):
                raise AirflowException(str(event["error"]))
            if not retries.is_first_lease_over(event):
                job.push_links(event.get("links") or {})
                return self._wait(event)
            job.warn(f"{event['diagnostics']}: the job is submitted again, without a first lease")
        self._operator.has_first_lease = False
        return self._operator.begin(self._context)

    def resume(self, resume: Callable[[], Any]) -> Any:
        """Go on after a deferral; when that failed, end the job or leave it to the next try."""
        try:
            return resume()
        except retries.deferral_errors() as error:
            is_timeout = type(error).__name__ == "TaskDeferralTimeout"
            try:
                with self.translated_errors():
                    self._open(submission.open_hook(self._operator)).on_failed_deferral(
                        self._tags,
                        is_timeout,
                        self._operator.execution_timeout,
                        retries.is_retried(self._context),
                    )
            except AirflowException as other:
                self._log.warning("its job could not be looked for: %s", other)
            raise

    def on_kill(self) -> None:
        """End the job, from a signal handler, unless another try continues it."""
        if self._job is not None:
            self._job.on_kill(self._has_another_try)

    # ------------------------------------------------------------------ the job

    def submit(self) -> str:
        """The running job of this generation, else a new one."""
        job = self._require_job()
        if self._reusable is not None:
            app_id = self._reusable.app_id
            self._log.info(
                "an earlier try of this task submitted %s, which is %s: it is taken up again",
                app_id,
                self._reusable.state.value,
            )
        else:
            app_id = self._submit(job)
        job.adopt(app_id)
        if job.is_killed:
            raise AirflowException(f"the task was stopped, and {app_id} with it")
        job.push_identity(self._ti)
        # A read of its page would count as the trigger's.
        job.push_first_links(read_page=not self._operator.deferrable)
        return app_id

    def state(self, app_id: str) -> str:
        """The state of a job whose id an earlier try has stored."""
        with self.translated_errors():
            return self._require_job().state(app_id)

    def wait(self, app_id: str) -> Any:
        """Wait for the end, and give what the task returns."""
        job = self._require_job()
        if job.app_id is None:  # an earlier try has stored it
            job.adopt(app_id)
            job.push_identity(self._ti)
        self._result = self._wait()
        return self._result

    def result(self, app_id: str) -> Any:
        """What the task returns."""
        return self.wait(app_id) if self._result is None else self._result

    @property
    def links(self) -> Mapping[str, str]:
        """The links that were pushed, by name."""
        return self._job.links if self._job is not None else {}

    def lineage(self) -> Any:
        """OpenLineage's record of the job; None where its provider is absent."""
        source = self._job.hook.site.label if self._job is not None else ""
        return assets.lineage_of(self._summary, source, self._operator.model_path)

    @contextmanager
    def translated_errors(self, is_try: bool = False) -> Iterator[None]:
        """Raise the client's errors as Airflow's, and close connections at the end.

        With ``is_try`` an error also decides whether the job is ended or left to the next try.
        """
        try:
            with translated_errors():
                try:
                    yield
                except Exception as error:
                    if is_try and self._job is not None:
                        follows = retries.is_retried_after(error, self._context)
                        self._job.leave_or_end(follows, "its task failed")
                    raise
        except AirflowTaskTimeout:
            # Now, and not in on_kill, which Airflow calls next and gives little time.
            if self._job is not None:
                self._job.end_on_timeout(self._operator.execution_timeout)
            raise
        except KeyboardInterrupt:  # in a DAG that is tested by hand
            if self._job is not None:
                self._job.kill_now()
            raise
        finally:
            if self._job is not None:
                self._job.hook.close()  # a kill opens connections of its own

    # ------------------------------------------------------------------ steps

    def _open(self, hook: TonyHook) -> TaskJob:
        operator = self._operator
        self._job = job = TaskJob(
            hook, self._log, lambda links: push(self._ti, links, operator.link_names)
        )
        job.follow_output(operator)
        job.is_killed = operator.is_stopped
        job.history_page = history_page(self._ti)
        return job

    def _require_job(self) -> TaskJob:
        assert self._job is not None, "execute() comes first"
        return self._job

    def _submit(self, job: TaskJob) -> str:
        operator = self._operator
        name = {"tony.application.name": f"{operator.dag_id}.{operator.task_id}"}
        job.is_submitting = True
        try:
            app_id, lease_s = submission.submit(
                job.hook,
                operator.job_arguments(),
                self._tags,
                below={**name, **retries.lease_keys(operator, self._lease_s())},
                lease_s=None if isinstance(operator.lease, bool) else operator.lease,
                folder=operator.dag_folder(),
                job_folder=operator.job_folder,
                before=job.refuse_if_stopped,
            )
        finally:
            job.is_submitting = False
        self._submitted_lease_s = lease_s or 0.0
        site = job.hook.site
        user = f", for the user {site.proxy_user}" if site.proxy_user else ""
        self._log.info("submitted %s to %s%s", app_id, site.label, user)
        return app_id

    def _lease_s(self) -> Optional[float]:
        """For how long the job goes on after the last read of its page; None for ever."""
        if self._submitted_lease_s is not None:
            return self._submitted_lease_s or None
        return retries.lease_s(self._operator)

    def _defer(self, job: TaskJob) -> None:
        operator = self._operator
        trigger = TonyTrigger(
            site=job.hook.site.for_trigger(),
            app_id=str(job.app_id),
            poll_interval=operator.poll_interval,
            unreachable_s=operator.unreachable_timeout,
            lease_s=self._lease_s(),
            host=socket.gethostname(),
            links=operator.link_names,
            # Airflow keeps a trigger's arguments in its database: it gets no secret, and masks
            # none.
            get_logs=operator.get_logs and not job.hook.secrets,
        )
        job.hook.close()
        self._log.info("waiting for %s in a triggerer", job.app_id)
        operator.wait_in_trigger(trigger)

    def _wait(self, event: Optional[Mapping[str, Any]] = None) -> Any:
        job = self._require_job()
        view = job.wait(self._operator.unreachable_timeout, event, self._lease_s())
        if job.is_yielded:
            raise AirflowException(f"another try of this task has {job.app_id}, which goes on")
        if view is None:
            raise AirflowException(f"the task was stopped, and {job.app_id} with it")
        return self._finish(job, view)

    def _finish(self, job: TaskJob, view: JobView) -> Any:
        operator = self._operator
        seen = {name: url for name, url in job.links.items() if not name.startswith(LOG)}
        self._summary = result = result_of(view, lasting_links(view, seen))
        if result["metrics"]:
            self._ti.xcom_push(key="metrics", value=result["metrics"])
        if view.state is not AppState.SUCCEEDED:
            raise retries.failure_of(view, job.output.failure_tail(view), operator.retry_killed)
        self._log.info("%s", summary_line(view))
        if operator.outlets:
            assets.publish(self._context, operator.outlets, result, operator.model_path)
        return operator.succeeded(self._context, view, result)

    def _has_another_try(self) -> bool:
        lease = self._operator.lease
        # For a job that an earlier try submitted, only this argument tells its lease.
        has_lease = bool(self._submitted_lease_s or (not isinstance(lease, bool) and lease))
        return has_another_try(self._ti, self._operator.durable, has_lease)

"""Distributed training as one task of a DAG.

:mod:`.task_job` describes what happens to the job in each way that a task can end. Parsing a DAG
imports this module in every process of Airflow, so functions import what only a run needs.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Dict,
    Iterator,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Union,
)

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
    ResumableJobMixin,
)
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_3_PLUS

from tony_airflow.links.tony import LOG
from tony_airflow.operators import retries
from tony_airflow.operators.base import JobOperator, links_for
from tony_airflow.operators.retries import deferral_errors, is_retried
from tony_airflow.parsing import (
    JOB_ARGUMENTS,
    check_optional_seconds,
    check_seconds,
    is_deferrable,
    refuse_unknown,
)

if TYPE_CHECKING:
    from tony_airflow.hooks.tony import TonyHook
    from tony_airflow.operators.task_job import TaskJob
    from tony_airflow.tags import TaskTags
    from tony_core.schedulers.port import AppStatus
    from tony_core.view import JobView

Seconds = Union[timedelta, float]


class TonyOperator(ResumableJobMixin, JobOperator):
    """Submits a job and waits for its end.

    Every setting that a job file, the command line or a Python program can give a job is a
    templated argument here. The arguments take precedence over the job file.

    :param tony_conn_id: the connection of the type ``tony`` that says where the job goes.
    :param scheduler: a scheduler instead of the connection's; ``local``, the embedded one, needs no
        connection.
    :param executes: the command that each task runs: a text for a shell (``python train.py``), or a
        list of arguments, which no shell reads (``["python", "train.py", "{{ params.day }}"]``).
        The list is safe for templates whose values other people choose.
    :param task_params: arguments to append to it, likewise a text or a list.
    :param src_dir: the program: a folder, zip or tar. Relative paths, here and in ``python_venv``,
        ``conf_file`` and ``files``, start in the folder of the DAG's file; those in a job file
        start in the job file's.
    :param python_venv: its environment: zip, tar.gz or folder, local or remote.
    :param python_binary_path: its Python: an absolute path, or one inside of ``python_venv``.
    :param conf_file: the job file (``tony.xml``), local or remote, or its text itself.
    :param render_conf_file: whether the job file is a template too.
    :param conf: other keys of the job, as a mapping or as ``key=value`` each.
    :param roles: ``{"worker": {"instances": 4, "memory": "4g", "gpus": 1}, "ps": 1}``: the keys
        ``tony.ROLE.*`` without their beginning. It may be one template as a whole, as ``conf``,
        ``env``, ``container_env``, ``files`` and ``tags`` may: ``"{{ params.roles }}"``.
    :param env: variables of the program. ``container_env``: of the process around it too.
    :param files: more files for every task: ``source[::name][#archive]``.
    :param framework: ``tensorflow``, ``pytorch``, ``jax``, ``mpi``, ``standalone`` ...
    :param job_name: by default ``DAG.TASK``, unless the job file names it.
    :param yarn_queue: the queue of the *job*. (``queue`` is Airflow's own, that of the task.)
    :param node_label: where on the cluster it may run.
    :param tags: of the application, besides the job file's and two of our own.
    :param docker_image: the image of its containers.
    :param hdfs_classpath: more for the CLASSPATH, as on the command line.
    :param tensorboard_log_dir: the folder that a TensorBoard beside the chief shows.
    :param checkpoint_dir: where the program's checkpoints are.
    :param model_path: the model's path when the job has succeeded, for the events of the assets in
        ``outlets``: by default the ``model`` in the program's ``tony.result``.
    :param timeout: how long the job may take (``"2h"``, a timedelta, seconds). The task's own
        ``execution_timeout`` ends the job as well.
    :param poll_interval: the seconds between two calls to the scheduler for a deferred task's job.
    :param deferrable: wait in a triggerer, at the cost of no worker slot.
    :param durable: whether the next try continues the running job of the one before. Otherwise it
        ends that job and submits a new one.
    :param wait_for_completion: if False, the task succeeds when the job is accepted.
    :param retry_killed: whether a retry submits a job again that was killed from outside (``tony
        kill``, ``yarn application -kill``): by default the task fails for good.
    :param lease: the job ends by itself when no task has waited for it for so long: by default the
        time that a retry and an absent cluster may take. ``False``: never.
    :param get_logs: the task's log follows the chief's output, and ends with every task's.
    :param unreachable_timeout: for how long a cluster that does not answer is asked again.
    """

    template_fields: Sequence[str] = ("tony_conn_id", "scheduler", *JOB_ARGUMENTS)
    #: For ``conf_file`` only, and only with ``render_conf_file``: see __init__.
    template_ext: Sequence[str] = (".xml",)
    template_fields_renderers: ClassVar[Dict[str, str]] = {
        "executes": "bash",
        "conf_file": "html",
        "conf": "json",
        "roles": "json",
        "env": "json",
        "container_env": "json",
    }
    ui_color = "#e8f0fe"

    def __init__(
        self,
        *,
        tony_conn_id: str = "tony_default",
        scheduler: Optional[str] = None,
        executes: Union[str, Sequence[str], None] = None,
        task_params: Union[str, Sequence[str], None] = None,
        src_dir: Optional[str] = None,
        python_venv: Optional[str] = None,
        python_binary_path: Optional[str] = None,
        conf_file: Optional[str] = None,
        render_conf_file: bool = False,
        conf: Union[Mapping[str, Any], Sequence[str], str, None] = None,
        roles: Union[Mapping[str, Any], str, None] = None,
        env: Union[Mapping[str, str], str, None] = None,
        container_env: Union[Mapping[str, str], str, None] = None,
        files: Union[str, Sequence[str], None] = None,
        framework: Optional[str] = None,
        job_name: Optional[str] = None,
        yarn_queue: Optional[str] = None,
        node_label: Optional[str] = None,
        tags: Union[str, Sequence[str], None] = None,
        docker_image: Optional[str] = None,
        hdfs_classpath: Union[str, Sequence[str], None] = None,
        tensorboard_log_dir: Optional[str] = None,
        checkpoint_dir: Optional[str] = None,
        model_path: Optional[str] = None,
        timeout: Union[timedelta, float, str, None] = None,
        poll_interval: float = 5.0,
        deferrable: Optional[bool] = None,
        durable: bool = True,
        wait_for_completion: bool = True,
        retry_killed: bool = False,
        lease: Union[timedelta, float, bool, None] = None,
        get_logs: bool = True,
        unreachable_timeout: Seconds = 900.0,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(type(self), kwargs)
        # Older versions keep no state for tasks; there the tags alone find the job again.
        super().__init__(**({"durable": durable} if AIRFLOW_V_3_3_PLUS else {}), **kwargs)
        self.tony_conn_id = tony_conn_id
        self.scheduler = scheduler
        self.executes = executes
        self.task_params = task_params
        self.src_dir = src_dir
        self.python_venv = python_venv
        self.python_binary_path = python_binary_path
        self.conf_file = conf_file
        self.render_conf_file = render_conf_file
        self.conf = conf
        self.roles = roles
        self.env = env
        self.container_env = container_env
        self.files = files
        self.framework = framework
        self.job_name = job_name
        self.yarn_queue = yarn_queue
        self.node_label = node_label
        self.tags = tags
        self.docker_image = docker_image
        self.hdfs_classpath = hdfs_classpath
        self.tensorboard_log_dir = tensorboard_log_dir
        self.checkpoint_dir = checkpoint_dir
        self.model_path = model_path
        self.timeout = timeout
        self.poll_interval = check_seconds("poll_interval", poll_interval)
        self.deferrable = is_deferrable(deferrable)
        self.durable = durable
        self.wait_for_completion = wait_for_completion
        self.retry_killed = retry_killed
        self.lease = lease if isinstance(lease, bool) else check_optional_seconds("lease", lease)
        self.get_logs = get_logs
        self.unreachable_timeout = check_seconds("unreachable_timeout", unreachable_timeout)
        # Airflow would read any templated text that ends so from a file: a command, a resource, a
        # Hadoop file of the job. This operator reads its job file itself.
        self.template_ext = ()
        self._links = links_for(roles)
        self._job: Optional[TaskJob] = None
        self._is_stopped = False
        self._ti: Any = None
        self._submitted_lease_s: Optional[float] = None
        self._has_first_lease = True
        self._reusable: Optional[AppStatus] = None
        self._tags: Optional[TaskTags] = None
        self._result: Any = None
        self._summary: Optional[Dict[str, Any]] = None

    # ------------------------------------------------------------------ Airflow's calls

    def execute(self, context: Any) -> Any:
        """Airflow's call for each try."""
        return self.begin(context)

    def begin(self, context: Any) -> Any:
        """Find or submit the job, and wait for it here or in a trigger."""
        with self._translated_errors(context):
            self.refuse_unread()
            job = self._open(self._site_hook(), context)
            self._tags = tags = self._tags_of(context)
            self.external_id_key = tags.state_key
            self._reusable = job.find_predecessor(tags, keep=self.durable)
            if not self.wait_for_completion:
                app_id = self.submit_job(context)
                return {"application_id": app_id, "outcome": job.state(app_id), "links": job.links}
            if not self.deferrable:
                return self.execute_resumable(context)
            app_id = self.submit_job(context)
            if self._reusable is not None and self._reusable.state.ended:
                return self.poll_until_complete(app_id, context)
            return self._defer(job)

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Airflow's call when the trigger has fired; the event has all that is known."""
        from tony_airflow.connection import Site
        from tony_airflow.hooks.tony import TonyHook

        self._is_deferred = True
        with self._translated_errors(context):
            job = self._open(TonyHook.of(Site.from_dict(event["site"])), context)
            job.adopt(event["app_id"])
            if event.get("refused"):
                raise AirflowFailException(str(event["refused"]))
            if event.get("error"):
                raise AirflowException(str(event["error"]))
            if not retries.is_first_lease_over(event):
                job.push_links(event.get("links") or {})
                return self._wait(context, event)
            job.warn(f"{event['diagnostics']}: the job is submitted again, without a first lease")
        self._has_first_lease = False
        return self.begin(context)

    def resume_execution(self, next_method: str, next_kwargs: Any, context: Any) -> Any:
        """Airflow's call after a deferral, also when that failed or took too long."""
        self._is_deferred = True
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except deferral_errors() as error:
            try:
                self._on_failed_deferral(context, type(error).__name__ == "TaskDeferralTimeout")
            except AirflowException as other:
                self.log.warning("its job could not be looked for: %s", other)
            raise

    def on_kill(self) -> None:
        """Airflow's call on SIGTERM, in a signal handler, and when the time is over.

        It may come before :meth:`execute` has started, which then still runs for some seconds.
        """
        self._is_stopped = True
        if self._job is not None:
            self._job.on_kill(self._has_another_try)

    # ------------------------------------------------------------------ ResumableJobMixin

    def submit_job(self, context: Any) -> str:
        """The running job of this generation, else a new one."""
        job, ti = self._require_job(), context["ti"]
        if self._reusable is not None:
            app_id = self._reusable.app_id
            self.log.info(
                "an earlier try of this task submitted %s, which is %s: it is taken up again",
                app_id,
                self._reusable.state.value,
            )
        else:
            app_id = self._submit(job)
        job.adopt(app_id)
        if job.is_killed:
            raise AirflowException(f"the task was stopped, and {app_id} with it")
        job.push_identity(ti)
        # A read of its page would count as the trigger's.
        job.push_first_links(read_page=not self.deferrable)
        return app_id

    def get_job_status(self, external_id: Any, context: Any) -> str:
        """The state of a job whose id an earlier try has stored."""
        with self._translated_errors():
            return self._require_job().state(str(external_id))

    def is_job_active(self, status: str) -> bool:
        """Whether the task can wait for a job in this state."""
        from tony_core.schedulers.port import AppState

        return status in AppState.__members__ and not AppState(status).ended

    def is_job_succeeded(self, status: str) -> bool:
        """Whether the task has nothing left to do for a job in this state."""
        return status == "SUCCEEDED"

    def poll_until_complete(self, external_id: Any, context: Any) -> Any:
        """Wait for the end, and give what the task returns."""
        job = self._require_job()
        if job.app_id is None:  # an earlier try has stored it
            job.adopt(str(external_id))
            job.push_identity(context["ti"])
        self._result = self._wait(context)
        return self._result

    def get_job_result(self, external_id: Any, context: Any) -> Any:
        """What the task returns."""
        if self._result is None:
            self.poll_until_complete(external_id, context)
        return self._result

    # ------------------------------------------------------------------ for subclasses

    def succeeded(self, context: Any, view: JobView, result: Dict[str, Any]) -> Any:
        """What the task returns for a job that has succeeded."""
        return result

    @property
    def links_pushed(self) -> Mapping[str, str]:
        """The links of this try, by name."""
        return self._job.links if self._job is not None else {}

    def get_openlineage_facets_on_complete(self, ti: Any) -> Any:
        """OpenLineage's call, where its provider is installed."""
        from tony_airflow.assets import lineage_of

        source = self._job.hook.site.label if self._job is not None else ""
        return lineage_of(self._summary, source, self.model_path)

    # ------------------------------------------------------------------ submitting and waiting

    def _submit(self, job: TaskJob) -> str:
        from tony_airflow.operators import submission

        assert self._tags is not None
        name = {"tony.application.name": f"{self.dag_id}.{self.task_id}"}
        leases = retries.lease_keys(self, self._lease_s(), self._has_first_lease)
        job.is_submitting = True
        try:
            app_id, lease_s = submission.submit(
                job.hook,
                self.job_arguments(),
                self._tags,
                below={**name, **leases},
                lease_s=None if isinstance(self.lease, bool) else self.lease,
                folder=self._folder(),
                job_folder=self._job_folder,
                before=job.refuse_if_stopped,
            )
        finally:
            job.is_submitting = False
        self._submitted_lease_s = lease_s or 0.0
        self.log.info("submitted %s to %s", app_id, job.hook.site.label)
        return app_id

    def _lease_s(self) -> Optional[float]:
        """For how long the job goes on after the last read of its page; None for ever."""
        if self._submitted_lease_s is not None:
            return self._submitted_lease_s or None
        return retries.lease_s(self)

    def _defer(self, job: TaskJob) -> NoReturn:
        from tony_airflow.operators.task_job import trigger_of

        self._is_deferred = True
        trigger = trigger_of(job, self, self._lease_s())
        self.log.info("waiting for %s in a triggerer", job.app_id)
        self.defer(trigger=trigger, method_name="execute_complete", timeout=self.execution_timeout)

    def _wait(self, context: Any, event: Optional[Mapping[str, Any]] = None) -> Any:
        job = self._require_job()
        view = job.wait(self.unreachable_timeout, event, self._lease_s())
        if job.is_yielded:
            raise AirflowException(f"another try of this task has {job.app_id}, which goes on")
        if view is None:
            raise AirflowException(f"the task was stopped, and {job.app_id} with it")
        return self._finish(context, job, view)

    def _finish(self, context: Any, job: TaskJob, view: JobView) -> Any:
        from tony_airflow.assets import publish
        from tony_airflow.links.addresses import lasting_links
        from tony_core.client.workflow.results import result_of, summary_line
        from tony_core.schedulers.port import AppState

        seen = {name: url for name, url in job.links.items() if not name.startswith(LOG)}
        result = result_of(view, lasting_links(view, seen))
        if result["metrics"]:
            context["ti"].xcom_push(key="metrics", value=result["metrics"])
        self._summary = result
        if view.state is not AppState.SUCCEEDED:
            raise retries.failure_of(view, job.output.failure_tail(view), self.retry_killed)
        self.log.info("%s", summary_line(view))
        if self.outlets:
            publish(context, self.outlets, result, self.model_path)
        return self.succeeded(context, view, result)

    def _on_failed_deferral(self, context: Any, is_timeout: bool) -> None:
        """End or leave the task's job, which is found by its tag."""
        with self._translated_errors():
            job = self._open(self._site_hook(), context)
            tags, retried = self._tags_of(context), is_retried(context)
            job.on_failed_deferral(tags, is_timeout, self.execution_timeout, retried)

    def _open(self, hook: TonyHook, context: Any) -> TaskJob:
        from tony_airflow.links.addresses import history_page
        from tony_airflow.links.tony import push
        from tony_airflow.operators.task_job import TaskJob

        self._ti = ti = context["ti"]
        self._job = TaskJob(hook, self.log, lambda links: push(ti, links, self.link_names))
        self._job.follow_output(self)
        self._job.is_killed = self._is_stopped
        self._job.history_page = history_page(ti)
        return self._job

    def _has_another_try(self) -> bool:
        from tony_airflow.operators.ownership import has_another_try

        # For a job that an earlier try submitted, only this argument tells its lease.
        lease = self._submitted_lease_s or (not isinstance(self.lease, bool) and self.lease)
        return has_another_try(self._ti, self.durable, bool(lease))

    def _require_job(self) -> TaskJob:
        assert self._job is not None, "execute() comes first"
        return self._job

    def _tags_of(self, context: Any) -> TaskTags:
        from tony_airflow.tags import task_tags

        return task_tags(context["ti"], self.retries)

    @contextmanager
    def _translated_errors(self, context: Any = None) -> Iterator[None]:
        """Raise the client's errors as Airflow's, and close connections at the end.

        With a try's context an error also decides whether the job is ended or left to the next try.
        """
        from tony_airflow.errors import translated_errors

        try:
            with translated_errors():
                try:
                    yield
                except Exception as error:
                    if context is not None and self._job is not None:
                        follows = retries.is_retried_after(error, context)
                        self._job.leave_or_end(follows, "its task failed")
                    raise
        except AirflowTaskTimeout:
            # Now, and not in on_kill, which Airflow calls next and gives little time.
            if self._job is not None:
                self._job.end_on_timeout(self.execution_timeout)
            raise
        except KeyboardInterrupt:  # in a DAG that is tested by hand
            if self._job is not None:
                self._job.kill_now()
            raise
        finally:
            if self._job is not None:
                self._job.hook.close()  # a kill opens connections of its own

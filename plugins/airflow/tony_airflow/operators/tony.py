"""Distributed training as one task of a DAG.

What Airflow calls, and what happens then:

======================  ==========================================================================
``execute``             find the job of an earlier try, or submit one; wait for it here, or defer
``execute_complete``    the trigger has fired: read the job's end; submit again after a first lease
``resume_execution``    the deferral failed or took too long: leave the job to the next try, or
                        end it
``on_kill``             end the job, unless another try of the task continues it
``submit_job`` ...      for Airflow's ``ResumableJobMixin``, which remembers the job's id
======================  ==========================================================================

:mod:`.task_run` does it. Parsing a DAG file imports this module in a process of its own, and takes
15 ms for it; with TonY's client, which only a run needs, it would take 0.3 s.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Dict, List, Mapping, Optional, Sequence, Union

from airflow.providers.common.compat.sdk import AirflowException, BaseOperator, ResumableJobMixin
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_3_PLUS

from tony_airflow.links.tony import links_for, names_of
from tony_airflow.parsing import (
    JOB_ARGUMENTS,
    Argument,
    GivenUser,
    check_optional_seconds,
    check_seconds,
    check_user,
    is_deferrable,
    refuse_unknown,
)

if TYPE_CHECKING:
    from tony_airflow.operators.task_run import TaskRun

Seconds = Union[timedelta, float]


class TonyOperator(ResumableJobMixin, BaseOperator):
    """Submits a job and waits for its end.

    Every setting that a job file, the command line or a Python program can give a job is a
    templated argument here. The arguments take precedence over the job file.

    :param tony_conn_id: the connection of the type ``tony`` that says where the job goes.
    :param scheduler: a scheduler instead of the connection's; ``local``, the embedded one, needs no
        connection.
    :param proxy_user: the user for whom the connection's login acts on a cluster, by the cluster's
        leave (``hadoop.proxyuser.*``): the job, its files and its history are that user's. An
        argument that gives nothing, ``None`` too, fails the task.
    :param run_as_owner: act for the task's owner instead.
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

    template_fields: Sequence[str] = (
        "tony_conn_id",
        "scheduler",
        "proxy_user",
        *JOB_ARGUMENTS,
    )
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

    conf_file: Optional[str]
    files: Union[str, Sequence[str], None]
    model_path: Optional[str]

    def __init__(
        self,
        *,
        tony_conn_id: str = "tony_default",
        scheduler: Optional[str] = None,
        proxy_user: GivenUser = Argument.NOT_GIVEN,
        run_as_owner: bool = False,
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
        given = {name: value for name, value in locals().items() if name in JOB_ARGUMENTS}
        refuse_unknown(type(self), kwargs)
        # Older versions keep no state for tasks; there the tags alone find the job again.
        super().__init__(**({"durable": durable} if AIRFLOW_V_3_3_PLUS else {}), **kwargs)
        for name, value in given.items():
            setattr(self, name, value)
        self.tony_conn_id = tony_conn_id
        self.scheduler = scheduler
        self.names_proxy_user = check_user(proxy_user, run_as_owner)
        self.proxy_user = None if proxy_user is Argument.NOT_GIVEN else proxy_user
        self.run_as_owner = run_as_owner
        self.render_conf_file = render_conf_file
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
        self.has_first_lease = True
        self.is_stopped = False  # by Airflow
        self.job_folder: Optional[str] = None  # of a job file that was a template
        self.read_error: Optional[AirflowException] = None  # of that job file
        self._links = links_for(roles)
        self._is_deferred = False  # then the trigger pushes the links, in another process
        self._run: Optional[TaskRun] = None

    # ------------------------------------------------------------------ Airflow's calls

    def execute(self, context: Any) -> Any:
        """Airflow's call for each try."""
        return self.begin(context)

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Airflow's call when the trigger has fired; the event has all that is known."""
        self._is_deferred = True
        return self._start(context).complete(event)

    def resume_execution(self, next_method: str, next_kwargs: Any, context: Any) -> Any:
        """Airflow's call after a deferral, also when that failed or took too long."""
        self._is_deferred = True
        resume = super().resume_execution
        return self._start(context).resume(lambda: resume(next_method, next_kwargs, context))

    def on_kill(self) -> None:
        """Airflow's call on SIGTERM, in a signal handler, and when the time is over.

        It may come before :meth:`execute` has started, which then still runs for some seconds.
        """
        self.is_stopped = True
        if self._run is not None:
            self._run.on_kill()

    def get_openlineage_facets_on_complete(self, ti: Any) -> Any:
        """OpenLineage's call, where its provider is installed."""
        return self._run.lineage() if self._run is not None else None

    @property
    def operator_extra_links(self: Any) -> Any:  # type: ignore[override]
        """Airflow's call; for a mapped task it comes before there is an operator.

        Empty once the task is deferred: for each link Airflow would look for the address that the
        trigger has pushed, log an error where there is none, and replace the others.
        """
        if not isinstance(self, TonyOperator):
            return links_for(self.partial_kwargs.get("roles"))
        return () if self._is_deferred else self._links

    def _do_render_template_fields(
        self, parent: Any, template_fields: Any, context: Any, jinja_env: Any, seen_oids: Any
    ) -> None:
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)
        if parent is self:
            from tony_airflow.operators.submission import render_job_file

            render_job_file(self, lambda text: self.render_template(text, context, jinja_env))

    # ------------------------------------------------------------------ ResumableJobMixin

    def submit_job(self, context: Any) -> str:
        """The running job of this generation, else a new one."""
        return self._started().submit()

    def get_job_status(self, external_id: Any, context: Any) -> str:
        """The state of a job whose id an earlier try has stored."""
        return self._started().state(str(external_id))

    def is_job_active(self, status: str) -> bool:
        """Whether the task can wait for a job in this state."""
        return status in ("SUBMITTED", "ACCEPTED", "RUNNING")

    def is_job_succeeded(self, status: str) -> bool:
        """Whether the task has nothing left to do for a job in this state."""
        return status == "SUCCEEDED"

    def poll_until_complete(self, external_id: Any, context: Any) -> Any:
        """Wait for the end, and give what the task returns."""
        return self._started().wait(str(external_id))

    def get_job_result(self, external_id: Any, context: Any) -> Any:
        """What the task returns."""
        return self._started().result(str(external_id))

    # ------------------------------------------------------------------ the run of a try

    def begin(self, context: Any) -> Any:
        """Find or submit the job, and wait for it here or in a trigger."""
        return self._start(context).begin()

    def succeeded(self, context: Any, view: Any, result: Dict[str, Any]) -> Any:
        """What the task returns for a job that has succeeded."""
        return result

    def wait_in_trigger(self, trigger: Any) -> None:
        """Defer the task until the trigger fires."""
        self._is_deferred = True
        self.defer(trigger=trigger, method_name="execute_complete", timeout=self.execution_timeout)

    @property
    def links_pushed(self) -> Mapping[str, str]:
        """The links of this try, by name."""
        return self._run.links if self._run is not None else {}

    @property
    def link_names(self) -> List[str]:
        """The names of the links that the task has."""
        return names_of(self._links)

    def job_arguments(self) -> Dict[str, Any]:
        """The job's arguments by name, rendered."""
        return {name: getattr(self, name) for name in JOB_ARGUMENTS}

    def dag_folder(self) -> Optional[str]:
        """The folder of the DAG's file, where relative paths start."""
        folder = getattr(getattr(self, "_dag", None), "folder", None)
        return str(folder) if folder else None

    def _start(self, context: Any) -> TaskRun:
        from tony_airflow.operators.task_run import TaskRun

        self._run = TaskRun(self, context)
        return self._run

    def _started(self) -> TaskRun:
        assert self._run is not None, "execute() comes first"
        return self._run

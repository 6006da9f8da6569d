"""An operator with a job's arguments: its links, and its arguments as Airflow renders them.

Airflow stores what it renders and shows it to everyone who may see the task, before the operator
runs. So the secrets among the arguments are given to Airflow's masker here. Parsing a DAG imports
this module: it imports next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from airflow.providers.common.compat.sdk import AirflowException, BaseOperator, mask_secret

from tony_airflow.links.tony import LINKS, TaskLogLink, names_of
from tony_airflow.parsing import JOB_ARGUMENTS

if TYPE_CHECKING:
    from tony_airflow.hooks.tony import TonyHook

MOST_LOG_LINKS = 16  # for single tasks; the job's page lists all


def links_for(roles: Any) -> Tuple[Any, ...]:
    """The links to the job, and to each task's log that is known when the DAG is parsed."""
    return (*LINKS, *map(TaskLogLink, _first_tasks(roles)))


def _first_tasks(roles: Any) -> List[str]:
    names: List[str] = []
    for role, keys in roles.items() if isinstance(roles, Mapping) else ():
        count = keys.get("instances") if isinstance(keys, Mapping) else keys
        if isinstance(role, str) and isinstance(count, int) and not isinstance(count, bool):
            names += [f"{role}:{index}" for index in range(min(count, MOST_LOG_LINKS))]
    return names[:MOST_LOG_LINKS]


class JobOperator(BaseOperator):
    """Has the attributes of a job, as ``TonyOperator`` sets them from its arguments."""

    tony_conn_id: str
    scheduler: Optional[str]
    conf_file: Optional[str]
    render_conf_file: bool

    _links: Tuple[Any, ...] = LINKS
    _is_deferred = False  # then the trigger pushes the links, in another process
    _job_folder: Optional[str] = None  # of a job file that was a template
    _read_error: Optional[AirflowException] = None

    @property
    def operator_extra_links(self: Any) -> Any:  # type: ignore[override]
        """Airflow's call; for a mapped task it comes before there is an operator.

        Empty once the task is deferred: for each link Airflow would look for the address that the
        trigger has pushed, log an error where there is none, and replace the others.
        """
        if not isinstance(self, JobOperator):
            return links_for(self.partial_kwargs.get("roles"))
        return () if self._is_deferred else self._links

    @property
    def link_names(self) -> List[str]:
        """The names of the links that the task has."""
        return names_of(self._links)

    def job_arguments(self) -> Dict[str, Any]:
        """The job's arguments by name, rendered."""
        return {name: getattr(self, name) for name in JOB_ARGUMENTS}

    def refuse_unread(self) -> None:
        """Raise the error with which the job file could not be read.

        Only a try that submits needs the file: one that is resumed has its job, and the file may be
        gone by then.
        """
        if self._read_error is not None:
            raise self._read_error

    def _do_render_template_fields(
        self, parent: Any, template_fields: Any, context: Any, jinja_env: Any, seen_oids: Any
    ) -> None:
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)
        if parent is not self:
            return
        if self.render_conf_file and isinstance(self.conf_file, str) and self.conf_file.strip():
            self._render_job_file(self.conf_file, context, jinja_env)
        self._mask_secrets()

    def _render_job_file(self, conf_file: str, context: Any, jinja_env: Any) -> None:
        from tony_airflow.operators.submission import folder_of, read_job_file

        self._job_folder = folder_of(conf_file, self._folder())
        try:
            text = read_job_file(conf_file, self._folder(), self._site_hook)
        except AirflowException as error:
            self._read_error = error
            return
        self.conf_file = self.render_template(text, context, jinja_env)

    def _mask_secrets(self) -> None:
        from tony_airflow.job_arguments import read_arguments, secrets_of

        arguments, _ = read_arguments(self.job_arguments())  # problems are reported on running
        for text in secrets_of(arguments):
            mask_secret(text)

    def _folder(self) -> Optional[str]:
        folder = getattr(getattr(self, "_dag", None), "folder", None)
        return str(folder) if folder else None

    def _site_hook(self) -> TonyHook:
        from tony_airflow.hooks.tony import TonyHook

        hook = TonyHook(self.tony_conn_id, scheduler=self.scheduler or None)
        hook.site  # noqa: B018 - looked up now: a kill must not have to
        return hook

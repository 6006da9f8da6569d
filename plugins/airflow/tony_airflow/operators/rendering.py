"""An operator's arguments as Airflow renders them, before each try and each resuming of one.

What is rendered is stored by Airflow and shown to everybody who may see the task, before the
operator has had its say: so secrets are named here.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Optional

from airflow.providers.common.compat.sdk import AirflowException, BaseOperator, mask_secret

if TYPE_CHECKING:
    from tony_airflow.hooks.tony import TonyHook
    from tony_airflow.jobs import JobWords


class RenderedOperator(BaseOperator):
    """What an operator of jobs is told, its templates filled in."""

    tony_conn_id: str
    scheduler: Optional[str]
    conf_file: Optional[str]
    render_conf_file: bool

    _job_folder: Optional[str] = None  # of a job file that was a template
    _unread: Optional[AirflowException] = None

    def job_words(self) -> JobWords:
        """The job as it was asked for, rendered."""
        from tony_airflow.jobs import JobWords

        return JobWords(**{one.name: getattr(self, one.name) for one in fields(JobWords)})

    def refuse_unread(self) -> None:
        """Raise what kept the job file from being read.

        Only a try that begins needs it: one that is resumed has its job, and must not fail for a
        file that is gone by then.
        """
        if self._unread is not None:
            raise self._unread

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
        from tony_airflow.operators.jobfile import folder_of, read_job_file

        self._job_folder = folder_of(conf_file, self._folder())
        try:
            text = read_job_file(conf_file, self._folder(), self._site_hook)
        except AirflowException as error:
            self._unread = error
            return
        self.conf_file = self.render_template(text, context, jinja_env)

    def _mask_secrets(self) -> None:
        from tony_airflow.jobs import read_arguments, secrets_of

        arguments, _ = read_arguments(self.job_words())  # what is wrong is said when it is run
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

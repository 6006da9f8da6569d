"""Submits the job of an operator's arguments; reports all problems before anything is sent."""

from __future__ import annotations

import os
import tempfile
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional, Tuple

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, mask_secret

from tony_airflow.errors import translated_errors
from tony_airflow.hooks.tony import TonyHook
from tony_airflow.job_arguments import (
    TAGS,
    is_job_file_text,
    read_arguments,
    secrets_of,
)
from tony_airflow.logins import refuse_login_file, requested_user
from tony_airflow.tags import LINK, TaskTags
from tony_core.files.registry import filesystem
from tony_core.job.load import JobArguments, text_of
from tony_core.job.problems import JobError
from tony_core.job.settings import is_remote

if TYPE_CHECKING:
    from tony_airflow.operators.tony import TonyOperator

LINKS = "tony.application.links"


def submit(
    hook: TonyHook,
    given: Mapping[str, Any],
    tags: TaskTags,
    *,
    below: Mapping[str, str],
    lease_s: Optional[float] = None,
    folder: Optional[str] = None,
    job_folder: Optional[str] = None,
    before: Callable[[], None] = lambda: None,
) -> Tuple[str, Optional[float]]:
    """Start the job; its application's id, and the lease that its whole configuration gives it.

    ``below`` are keys that the job file and the connection may change; ``folder`` is the DAG
    file's, ``job_folder`` that of a job file which was rendered to a text. ``before`` is called
    when all is checked and nothing is sent yet; it may raise.
    """
    arguments, problems = read_arguments(given, lease_s=lease_s, folder=folder)
    _mask(arguments)
    arguments = arguments._replace(
        defaults={**below, **hook.site.conf},
        cwd=job_folder or folder_of(arguments.conf_file, folder),
    )
    with _as_file(arguments) as arguments:
        try:
            job = hook.load(arguments).job
        except JobError as error:
            raise JobError([*problems, *error.problems]) from error
        if problems:
            raise JobError(problems)
        extra = {**arguments.extra, TAGS: ",".join(tags.added_to(job.tags))}
        if tags.url:
            extra[LINKS] = text_of({LINK: tags.url, **dict(job.links)})
        before()
        app_id = hook.submit(arguments._replace(extra=extra))
    return app_id, job.timeouts.client_lease_s


def render_job_file(operator: TonyOperator, render: Callable[[str], str]) -> None:
    """Render the job file where it is a template, and give the job's secrets to Airflow's masker.

    Airflow stores what it renders and shows it to everyone who may see the task, before the
    operator runs. An error is kept: only a try that submits needs the file, and a try that is
    resumed has its job.
    """
    conf_file = operator.conf_file
    if operator.render_conf_file and isinstance(conf_file, str) and conf_file.strip():
        folder = operator.dag_folder()
        operator.job_folder = folder_of(conf_file, folder)
        try:
            text = read_job_file(conf_file, folder, lambda: open_hook(operator))
        except AirflowException as error:
            operator.read_error = error
        else:
            operator.conf_file = render(text)
    _mask(read_arguments(operator.job_arguments())[0])  # problems are reported on running


def open_hook(operator: TonyOperator) -> TonyHook:
    """The hook of an operator's connection, which is looked up now: a kill must not have to."""
    hook = TonyHook(
        operator.tony_conn_id,
        scheduler=operator.scheduler or None,
        proxy_user=requested_user(operator),
    )
    hook.site  # noqa: B018
    return hook


def _mask(arguments: JobArguments) -> None:
    for text in secrets_of(arguments):
        mask_secret(text)


def read_job_file(conf_file: str, folder: Optional[str], open_hook: Callable[[], TonyHook]) -> str:
    """The text of a job file that is a template; ``open_hook`` is for one on a cluster."""
    if is_job_file_text(conf_file):
        return conf_file
    try:
        if is_remote(conf_file):
            with translated_errors(), closing(open_hook()) as hook, hook.get_conn().client():
                return filesystem(conf_file).get(conf_file).decode()
        path = os.path.join(folder or "", conf_file.removeprefix("file://"))
        refuse_login_file(path)
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise AirflowFailException(f"conf_file {conf_file} cannot be read: {why}") from error


def folder_of(conf_file: Optional[str], folder: Optional[str]) -> Optional[str]:
    """The folder for relative paths in a job file: its own, or the DAG's if it is no local file."""
    if not conf_file or is_job_file_text(conf_file) or is_remote(conf_file):
        return folder
    return os.path.dirname(os.path.join(folder or "", conf_file.removeprefix("file://"))) or folder


@contextmanager
def _as_file(arguments: JobArguments) -> Iterator[JobArguments]:
    """The arguments with a job file instead of its text, which exists inside the block."""
    if arguments.conf_file is None or not is_job_file_text(arguments.conf_file):
        yield arguments
        return
    with tempfile.TemporaryDirectory(prefix="tony-job-") as folder:
        path = os.path.join(folder, "tony.xml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(arguments.conf_file)
        yield arguments._replace(conf_file=path)

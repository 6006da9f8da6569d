"""From an operator's words to an application: all that is wrong is said at once, before anything
is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Mapping, Optional, Tuple

from airflow.providers.common.compat.sdk import mask_secret

from tony_airflow.hooks.tony import TonyHook
from tony_airflow.jobs import TAGS, JobWords, read_arguments, secrets_of
from tony_airflow.operators.jobfile import as_file, folder_of
from tony_airflow.tags import LINK, TaskTags
from tony_core.job.load import text_of
from tony_core.job.problems import JobError

LINKS = "tony.application.links"


def submitted(
    hook: TonyHook,
    words: JobWords,
    tags: TaskTags,
    *,
    below: Mapping[str, str],
    lease_s: Optional[float] = None,
    folder: Optional[str] = None,
    job_folder: Optional[str] = None,
    before: Callable[[], None] = lambda: None,
) -> Tuple[str, Optional[float]]:
    """Start the job; its application's id, and its lease as the job file and all else have it.

    ``below`` are keys that the job file and the connection may change; ``folder`` is the DAG
    file's, ``job_folder`` that of a job file which was rendered to a text.
    ``before`` is called when all is checked and nothing sent yet; it may raise.
    """
    arguments, wrong = read_arguments(words, lease_s=lease_s, folder=folder)
    for text in secrets_of(arguments):
        mask_secret(text)
    arguments = replace(
        arguments,
        defaults={**below, **hook.site.conf},
        cwd=job_folder or folder_of(arguments.conf_file, folder),
    )
    with as_file(arguments) as arguments:
        try:
            job = hook.load(arguments).job
        except JobError as error:
            raise JobError([*wrong, *error.problems]) from error
        if wrong:
            raise JobError(wrong)
        said = {**arguments.extra, TAGS: ",".join(tags.beside(job.tags))}
        if tags.url:
            said[LINKS] = text_of({LINK: tags.url, **dict(job.links)})
        before()
        app_id = hook.submit(replace(arguments, extra=said))
    return app_id, job.timeouts.client_lease_s

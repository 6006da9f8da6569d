"""Job files that are templates, and job files that are a text."""

from __future__ import annotations

import os
import tempfile
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Callable, Iterator, Optional

from airflow.providers.common.compat.sdk import AirflowFailException

from tony_airflow.hooks.tony import TonyHook
from tony_airflow.jobs import is_text_of_job
from tony_airflow.operators.ends import spoken
from tony_core.files.registry import filesystem
from tony_core.job.load import JobArguments
from tony_core.job.settings import is_remote


def read_job_file(conf_file: str, folder: Optional[str], open_hook: Callable[[], TonyHook]) -> str:
    """The text of a job file that is a template; ``open_hook`` is for one on a cluster."""
    if is_text_of_job(conf_file):
        return conf_file
    try:
        if is_remote(conf_file):
            with spoken(), closing(open_hook()) as hook, hook.get_conn().one():
                return filesystem(conf_file).get(conf_file).decode()
        path = os.path.join(folder or "", conf_file.removeprefix("file://"))
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise AirflowFailException(f"conf_file {conf_file} cannot be read: {why}") from error


def folder_of(conf_file: Optional[str], folder: Optional[str]) -> Optional[str]:
    """What relative paths in a job file stand in: its own folder; of one that is no file here the
    DAG's."""
    if not conf_file or is_text_of_job(conf_file) or is_remote(conf_file):
        return folder
    return os.path.dirname(os.path.join(folder or "", conf_file.removeprefix("file://"))) or folder


@contextmanager
def as_file(arguments: JobArguments) -> Iterator[JobArguments]:
    """The same with a job file that is a text as a file, for as long as it is needed."""
    if arguments.conf_file is None or not is_text_of_job(arguments.conf_file):
        yield arguments
        return
    with tempfile.TemporaryDirectory(prefix="tony-job-") as folder:
        path = os.path.join(folder, "tony.xml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(arguments.conf_file)
        yield replace(arguments, conf_file=path)

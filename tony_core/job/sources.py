"""The local files that a job names: do they exist? Apart from the other checks, which touch
no file system."""

from __future__ import annotations

import os.path
from typing import Callable, Iterator, List, Tuple

from tony_core.job.limits import problem_at
from tony_core.job.problems import Problem
from tony_core.job.settings import is_remote, is_url
from tony_core.job.spec import Job


def named_sources(job: Job) -> Iterator[Tuple[str, str]]:
    """(key, source) of everything that is sent with the job. A missing hdfs_classpath is
    skipped when staged, so it is none of these."""
    if job.program.src:
        yield "tony.client.src-dir", job.program.src
    if job.program.venv:
        yield "tony.client.python-venv", job.program.venv
    for ref in job.files:
        yield "tony.containers.resources", ref.source
    for ref in job.master.files:
        yield "tony.am.resources", ref.source
    for role in job.roles:
        for ref in role.files:
            yield f"tony.{role.name}.resources", ref.source
    for key, path in (
        ("tony.application.hadoop.location", job.hadoop.location),
        ("tony.application.hdfs-conf-path", job.hadoop.hdfs_conf),
        ("tony.application.yarn-conf-path", job.hadoop.yarn_conf),
        ("tony.application.mapred-conf-path", job.hadoop.mapred_conf),
    ):
        if path:
            yield key, path.partition("#")[0]


def missing_sources(job: Job, exists: Callable[[str], bool] = os.path.exists) -> List[Problem]:
    """The local ones that are not there."""
    problems: List[Problem] = []
    for key, source in dict.fromkeys(named_sources(job)):
        if not is_remote(source) and not exists(source):
            words = f"{source} does not exist{_from_where(job, key, source)}"
            problems.append(problem_at(job, key, words))
    return problems


def _from_where(job: Job, key: str, source: str) -> str:
    """Of a relative path: the folder that it was looked for from, which is nowhere in the file."""
    for item in job.setting(key).split(","):
        path = item.strip().partition("::")[0].partition("#")[0]
        if not path or path.startswith("/") or is_url(path):
            continue
        tail = f"/{os.path.normpath(path)}"
        if source.endswith(tail):
            folder = source[: -len(tail)] or "/"
            return f" ({path} is taken from the folder you submit from, {folder})"
        if path.startswith(".") and os.path.basename(source) == os.path.basename(tail):
            return f" ({path} is taken from the folder you submit from)"
    return ""

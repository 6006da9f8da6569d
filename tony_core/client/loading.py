"""A submit's words made into a checked job, with the frameworks and file systems there are."""

from __future__ import annotations

from typing import Callable, Iterator, Mapping, Optional, Sequence

from tony_core import schedulers
from tony_core.files.registry import filesystem
from tony_core.frameworks import UnknownFramework, find, names, refusals
from tony_core.frameworks.base import Problem as FrameworkProblem
from tony_core.job.load import JobArguments, Loaded, load_job
from tony_core.job.problems import JobError, problem_at
from tony_core.job.spec import Job
from tony_core.job.validate import missing_sources

Check = Callable[[Job], Sequence[FrameworkProblem]]


class Frameworks(Mapping[str, Check]):
    """Every framework's own check by name; none is loaded or looked for before it is asked."""

    def __getitem__(self, name: str) -> Check:
        try:
            framework = find(name)
        except UnknownFramework:
            raise KeyError(name) from None
        return lambda job: [*framework.validate(job), *refusals.alone(job, framework)]

    def __iter__(self) -> Iterator[str]:
        return iter(names())

    def __len__(self) -> int:
        return len(names())


def load(
    arguments: JobArguments,
    *,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    conf_dir: Optional[str] = None,
    finds_job_file: bool = True,
) -> Loaded:
    """The job, or JobError with every problem, missing local files included.

    ``finds_job_file``: whether a ``tony.xml`` in the working folder is the job file of a job that
    names none.
    """
    alone = None if finds_job_file or arguments.conf_file else ()
    loaded = load_job(
        arguments,
        env=env,
        cwd=cwd,
        conf_dir=conf_dir,
        frameworks=Frameworks(),
        program=alone,
        read_bytes=lambda location: filesystem(location).get(location),
    )
    wrong = missing_sources(loaded.job)
    nowhere = schedulers.missing(loaded.job.scheduler)
    if nowhere:
        wrong.append(problem_at(loaded.job, "tony.scheduler", nowhere))
    if wrong:
        raise JobError([*wrong, *loaded.warnings])
    return loaded

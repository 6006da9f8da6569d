"""Short ways to load a job in a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping, Optional

import pytest

from tony_core.job.load import JobArguments, Loaded, load_job
from tony_core.job.problems import JobError, Problem, errors
from tony_core.job.spec import Job

SAMPLES = Path(__file__).parent / "samples"
CWD = "/nowhere/at/all"


def load(
    settings: Optional[Mapping[str, str]] = None,
    *,
    env: Optional[Mapping[str, str]] = None,
    command: str = "python train.py",
    **words: Any,
) -> Loaded:
    """A job of these keys, all on the command line."""
    conf = [f"{key}={value}" for key, value in (settings or {}).items()]
    if command:
        words.setdefault("executes", command)
    arguments = JobArguments(conf=conf, **words)
    return load_job(arguments, env=env or {}, cwd=CWD, user="tester")


def job(settings: Optional[Mapping[str, str]] = None, **words: Any) -> Job:
    """The job alone."""
    return load(settings, **words).job


def refused(settings: Optional[Mapping[str, str]] = None, **words: Any) -> List[Problem]:
    """The errors that refuse these keys."""
    with pytest.raises(JobError) as caught:
        load(settings, **words)
    return errors(caught.value.problems)


def why(settings: Optional[Mapping[str, str]] = None, **words: Any) -> str:
    """The same, as one text."""
    return "\n".join(str(problem) for problem in refused(settings, **words))


def warned(settings: Optional[Mapping[str, str]] = None, **words: Any) -> str:
    """The warnings, as one text."""
    return "\n".join(str(problem) for problem in load(settings, **words).warnings)


def write_xml(path: Path, settings: Mapping[str, str], *, final: bool = False) -> Path:
    """A job file; the first property's name stands in line 3, the next ones three lines on."""
    lines = ["<configuration>"]
    for key, value in settings.items():
        mark = "<final>true</final>" if final else ""
        lines += ["<property>", f"<name>{key}</name>", f"<value>{value}</value>{mark}</property>"]
    lines.append("</configuration>")
    path.write_text("\n".join(lines))
    return path

"""A job built by a Python program, without any file; the same checks apply."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional

from tony_core.job.load import JobArguments, load_job
from tony_core.job.spec import Job
from tony_core.job.validate import FrameworkChecks
from tony_core.job.xmlreader import Entry

PROGRAM = "program"


def job(
    name: Optional[str] = None,
    roles: Optional[Mapping[str, Mapping[str, Any]]] = None,
    *,
    command: Optional[str] = None,
    framework: Optional[str] = None,
    src: Optional[str] = None,
    venv: Optional[str] = None,
    python: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    conf: Optional[Mapping[str, Any]] = None,
    frameworks: Optional[FrameworkChecks] = None,
    conf_dir: Optional[str] = None,
    cwd: Optional[str] = None,
    user: Optional[str] = None,
) -> Job:
    """``job("mnist", {"worker": {"instances": 2, "memory": "2g"}}, command="python train.py")``.

    What a role holds are the ``tony.<role>.*`` keys without their beginning, with ``_`` or
    ``-`` (other resource types as ``"resource": {"fpga": 1}``). ``env`` is the program's own
    environment; ``conf`` any other keys. JobError says everything that is wrong.
    """
    entries: List[Entry] = []
    for key, value in (
        ("tony.application.name", name),
        ("tony.application.framework", framework),
        ("tony.containers.command", command),
        ("tony.client.src-dir", src),
        ("tony.client.python-venv", venv),
        ("tony.client.python-binary-path", python),
    ):
        if value is not None:
            entries.append(Entry(key, value, PROGRAM))
    for role, settings in (roles or {}).items():
        for word, value in settings.items():
            key = f"tony.{role}.{word.replace('_', '-')}"
            if word == "resource" and isinstance(value, Mapping):
                entries.extend(Entry(f"{key}.{n}", text_of(v), PROGRAM) for n, v in value.items())
            elif value is not None:
                entries.append(Entry(key, text_of(value), PROGRAM))
    entries.extend(
        Entry(f"tony.execution.env.{variable}", str(value), PROGRAM)
        for variable, value in (env or {}).items()
    )
    entries.extend(Entry(key, text_of(value), PROGRAM) for key, value in (conf or {}).items())
    return load_job(
        JobArguments(),
        conf_dir=conf_dir,
        cwd=cwd,
        frameworks=frameworks,
        user=user,
        program=entries,
    ).job


def text_of(value: Any) -> str:
    """A Python value as a job file says it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(
            f"{key}={str(text).replace(',', chr(92) + ',')}" for key, text in value.items()
        )
    if isinstance(value, (list, tuple)):
        return ",".join(text_of(item) for item in value)
    return str(value)

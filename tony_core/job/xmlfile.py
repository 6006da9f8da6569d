"""A job as ``tony-final.xml`` and back."""

from __future__ import annotations

from typing import Mapping, Optional

from tony_core.job.mask import mask_settings
from tony_core.job.spec import Job

# A carriage return too: else a reader makes a line feed of it.
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})


def job_to_xml(job: Job, masked: bool = True) -> str:
    """What was said about the job, with where it came from; defaults are left out.

    ``masked`` hides secrets: what people can read is always masked, and no job can be made
    of it again.
    """
    settings = mask_settings(job.settings) if masked else job.settings
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<configuration>"]
    for item in settings:
        if item.source == "default":
            continue
        lines.append("  <property>")
        lines.append(f"    <name>{item.key.translate(_ESCAPES)}</name>")
        lines.append(f"    <value>{item.value.translate(_ESCAPES)}</value>")
        if item.final:
            lines.append("    <final>true</final>")
        lines.append(f"    <source>{_printable(item.source).translate(_ESCAPES)}</source>")
        lines.append("  </property>")
    lines.append("</configuration>")
    return "\n".join(lines) + "\n"


def job_from_xml(
    text: str,
    *,
    user: str = "",
    cwd: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    file: str = "tony-final.xml",
) -> Job:
    """The job that an unmasked XML describes; no site file and no defaults of a machine."""
    from tony_core.job.load import JobArguments, load_job
    from tony_core.job.problems import JobError, errors
    from tony_core.job.xmlreader import read_xml

    entries, problems = read_xml(text.encode("utf-8", "replace"), file)
    if errors(problems):
        raise JobError(problems)
    return load_job(
        JobArguments(), conf_dir="", env=env or {}, cwd=cwd, user=user, program=entries
    ).job


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)

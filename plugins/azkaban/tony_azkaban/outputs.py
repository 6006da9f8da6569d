"""The outputs for the next jobs of the flow: ``JOB_OUTPUT_PROP_FILE``.

Azkaban reads the file when the job has succeeded, and gives it to the jobs that directly depend on
it. Every name prefixes with ``tony_result.``, whatever the program chooses: so none is a property
that decides how the next job runs (``command``, ``env.X``, ``tony.``...).

Azkaban evaluates values several times while it prepares the next job: ``${name}`` on every version,
``$(expression)`` as JEXL on 3.x, where no escape survives the second pass. A condition on a job's
output (flows of 3.x in YAML) becomes ``'value'`` in a script. So the JSON escape, which means
nothing to Azkaban, replaces each character that can begin or end any of these.

A server fails a job that names a property which does not exist. So each output exists, empty where
it has no value, and so does each other name ``tony_result.`` in the flow's own files.
"""

from __future__ import annotations

import json
import os
import re
from typing import AbstractSet, Dict, Mapping, Optional

from tony_core.client.portal_pages import PORTAL, tensorboard_page
from tony_core.job.spec import Job
from tony_core.view import JobView

PREFIX = "tony_result"

#: Begins an expression, ends a script's literal, or breaks a line of a log or script.
_ACTIVE = re.compile("[$'\x00-\x1f\x7f-\x9f\u2028\u2029]")


def outputs(
    view: JobView,
    job: Optional[Job],
    name: str,
    history: str,
    links: Mapping[str, str],
    named: AbstractSet[str] = frozenset(),
) -> Dict[str, str]:
    """The outputs by name, each also with the job's name, for flows with several jobs.

    ``links`` are those it had while it ran, since TensorBoard ends with the master: the portal,
    where there is one, starts it again. ``named`` are the outputs that the flow's files name, which
    exist at least as an empty text.
    """
    portal, tensorboard = view.links.get(PORTAL, ""), links.get("tensorboard", "")
    values: Dict[str, str] = {
        "application_id": view.app_id,
        "outcome": view.state.value,
        "duration_s": f"{view.duration_s(view.finished or 0.0) or 0.0:.1f}",
        "tensorboard_url": tensorboard_page(portal) if portal and tensorboard else tensorboard,
        "history_url": portal or history,
    }
    for metric, value in metrics(view, job).items():
        values[f"metrics.{metric}"] = repr(value)
    safe = {key: inert(text) for key, text in values.items()}
    result = view.result
    if result is None or isinstance(result, str):
        safe["value"] = inert(result or "")
    else:
        safe["value"] = _escape(json.dumps(result))  # its backslashes are JSON's own
    # Of the names in the flow's files only those of this job. In a flow within a flow the job has
    # its plain name besides its path.
    prefixes = (PREFIX, f"{PREFIX}.{name}", f"{PREFIX}.{name.rpartition(':')[2]}")
    ours = tuple(f"{prefix}.metrics." for prefix in prefixes)
    out = {key: "" for key in named if key.startswith(ours) and _ACTIVE.search(key) is None}
    for prefix in prefixes:
        out.update({_escape(f"{prefix}.{key}"): text for key, text in safe.items()})
    return out


def inert(text: str) -> str:
    """The text in a form of which Azkaban evaluates nothing: ``\\u00245`` for ``$5``.

    ``\\u005c`` replaces a backslash, which at the end of a literal would escape the quote; so each
    ``\\uXXXX`` in the result is an escape.
    """
    return _escape(text.replace("\\", "\\u005c"))


def _escape(text: str) -> str:
    return _ACTIVE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def metrics(view: JobView, job: Optional[Job]) -> Dict[str, float]:
    """The last value of each metric that the programs reported; the chief's where several did."""
    chief = job.chief if job is not None else None
    first = "{}:{}".format(*chief) if chief else ""
    found: Dict[str, float] = {}
    for task in sorted(view.tasks, key=lambda task: task.task != first):
        for metric, value in task.reported.items():
            found.setdefault(metric, value)
    return found


def write(path: str, values: Mapping[str, str]) -> None:
    """Write the outputs into the file that the server has made, and keep that file.

    Where the server starts jobs as other users, the file's group lets the server read it.
    """
    data = json.dumps(dict(values), indent=1).encode("ascii") + b"\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with open(os.open(path, flags, 0o644), "wb") as file:
        file.write(data)

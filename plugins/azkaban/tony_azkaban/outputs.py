"""What the next jobs of the flow may use: ``JOB_OUTPUT_PROP_FILE``.

Azkaban reads it when the job has succeeded, and gives it to the jobs that directly depend on
it. Every name begins with ``tony_result.``, whatever the program chooses: so none is a property
that decides how the next job runs (``command``, ``env.X``, ``tony.``...).

Azkaban evaluates values, again and again while it prepares the next job: ``${name}`` on every
version, ``$(expression)`` as JEXL on 3.x, where no escape survives the second pass. A condition
on a job's output (flows of 3.x in YAML) becomes ``'value'`` in a script. So a character that
can begin or end any of these stands as its JSON escape, which means nothing to Azkaban.

A job that names a property which is not there fails. So each property of ours is there, empty where
there is nothing to say, and so is whatever else of ``tony_result.`` the flow's own files name.
"""

from __future__ import annotations

import json
import os
import re
from typing import AbstractSet, Dict, Mapping, Optional

from tony_core.client.view import JobView
from tony_core.job.spec import Job

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
    """Flat names and texts; each also with the job's name, for flows with several.

    ``links``: those it had while it ran. TensorBoard's goes with the master. ``named``: what the
    flow's files name, which is there at least as an empty text.
    """
    said: Dict[str, str] = {
        "application_id": view.app_id,
        "outcome": view.state.value,
        "duration_s": f"{view.duration_s(view.finished or 0.0) or 0.0:.1f}",
        "tensorboard_url": links.get("tensorboard", ""),
        "history_url": view.links.get("portal", "") or history,
    }
    for metric, value in metrics(view, job).items():
        said[f"metrics.{metric}"] = repr(value)
    safe = {key: inert(text) for key, text in said.items()}
    result = view.result
    if result is None or isinstance(result, str):
        safe["value"] = inert(result or "")
    else:
        safe["value"] = _escape(json.dumps(result))  # its backslashes are JSON's own
    # Only those that this job may give: another of the flow gives its own. In a flow within a flow
    # the job has its own name besides its path.
    begins = (PREFIX, f"{PREFIX}.{name}", f"{PREFIX}.{name.rpartition(':')[2]}")
    ours = tuple(f"{begin}.metrics." for begin in begins)
    out = {key: "" for key in named if key.startswith(ours) and _ACTIVE.search(key) is None}
    for begin in begins:
        out.update({_escape(f"{begin}.{key}"): text for key, text in safe.items()})
    return out


def inert(text: str) -> str:
    """The text as no Azkaban evaluates any of it: ``$5`` as ``\\u00245``.

    A backslash stands as ``\\u005c``: at the end of a literal it would swallow the quote, and
    so every ``\\uXXXX`` of the answer is an escape.
    """
    return _escape(text.replace("\\", "\\u005c"))


def _escape(text: str) -> str:
    return _ACTIVE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def metrics(view: JobView, job: Optional[Job]) -> Dict[str, float]:
    """The newest value of everything reported: the chief's word before any other's."""
    chief = job.chief if job is not None else None
    first = "{}:{}".format(*chief) if chief else ""
    found: Dict[str, float] = {}
    for task in sorted(view.tasks, key=lambda task: task.task != first):
        for metric, value in task.reported.items():
            found.setdefault(metric, value)
    return found


def write(path: str, said: Mapping[str, str]) -> None:
    """Into the file that the server has made, which stays the same file.

    Where the server starts jobs as other users, it is that file's group which lets it read.
    """
    data = json.dumps(dict(said), indent=1).encode("ascii") + b"\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with open(os.open(path, flags, 0o644), "wb") as file:
        file.write(data)

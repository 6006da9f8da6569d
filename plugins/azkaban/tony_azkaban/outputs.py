"""What the next jobs of the flow may use: ``JOB_OUTPUT_PROP_FILE``.

Azkaban reads it when the job has succeeded, and gives it to the jobs that directly depend on
it. No name begins with ``tony.``, or a next job with ``type=tony`` would take it for a key.
"""

from __future__ import annotations

import json
import os
from typing import Dict, Mapping, Optional

from tony_core.client.view import JobView
from tony_core.job.spec import Job

PREFIX = "tony_result"


def outputs(
    view: JobView, job: Optional[Job], name: str, history: str, links: Mapping[str, str]
) -> Dict[str, str]:
    """Flat names and texts; each also with the job's name, for flows with several.

    ``links``: those it had while it ran. TensorBoard's goes with the master.
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
    told = view.result
    if told is not None:
        said["value"] = told if isinstance(told, str) else json.dumps(told)
    out = {f"{PREFIX}.{key}": text for key, text in said.items() if text}
    out.update({f"{PREFIX}.{name}.{key}": text for key, text in said.items() if text})
    return out


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
    """All at once: a server may read it while we are being killed."""
    making = f"{path}.making"
    with open(making, "w", encoding="ascii") as file:
        json.dump(dict(said), file, indent=1)
        file.write("\n")
    os.replace(making, path)

"""Histories for the portal's tests, as masters write them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

NOW = 1_750_000_000.0


def app(number: int) -> str:
    """The id of an application."""
    return f"application_1750000000000_{number:04d}"


def write_job(
    root: Path,
    app_id: str,
    *,
    tasks: Sequence[Mapping[str, Any]] = (),
    events: Sequence[Mapping[str, Any]] = (),
    config: str = "",
    changed: Optional[float] = None,
    **job: Any,
) -> Path:
    """Write one job's history; by default of a job that has ended long ago."""
    folder = root / app_id
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"app_id": app_id, "name": "mnist", "user": "from-the-file", "state": "SUCCEEDED",
             "submitted": NOW, "started": NOW + 5, "finished": NOW + 60, "progress": 1.0,
             "queue": "default", "framework": "tensorflow", "tags": []}  # fmt: skip
    facts.update(job)
    summary = {"job": facts, "tasks": list(tasks), "metrics": {}}
    replace(folder / "summary.json", json.dumps(summary))
    if events:
        replace(folder / "events-0001.jsonl", "".join(json.dumps(each) + "\n" for each in events))
    if config:
        replace(folder / "tony-final.xml", config)
    if changed is not None:
        for file in folder.iterdir():
            os.utime(file, (changed, changed))
    return folder


def replace(path: Path, text: str) -> None:
    """Write a whole file at once, as masters do."""
    made = path.with_name(f".{path.name}.new")
    made.write_text(text)
    made.replace(path)

"""A job's history as a master writes it, in a TONY_HOME."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

from tests.schedulers.local.test_damaged import APP
from tony_airflow.pages.history import TaskInstanceKey

TI_KEY = TaskInstanceKey("dag", "manual__2026-01-01T00:00:00+00:00", "train")
APP_ID = "local_20260101000000_abcdef"
CONTAINER = f"container_{APP_ID}_01_000001"
EVIL = "<script>alert('x')</script>"


def written(home: Path, ti_key: TaskInstanceKey = TI_KEY, app_id: str = APP_ID, **job: Any) -> str:
    """An ended job of one task, which printed a line; its id."""
    folder = home / "history" / app_id
    folder.mkdir(parents=True)
    recorded: Dict[str, Any] = {
        "app_id": app_id,
        "name": "training",
        "state": "FAILED",
        "user": "ann",
        "submitted": 1767225600.0,
        "finished": 1767225660.0,
        "diagnostics": "worker:0 failed with exit code 7",
        "tags": ["mine", ti_key.tag],
        **job,
    }
    run = {"session": 0, "container": CONTAINER, "node": "here"}
    tasks: List[Dict[str, Any]] = [
        {
            "task": "worker:0",
            "role": "worker",
            "state": "failed",
            "session": 0,
            "container": CONTAINER,
            "exit_code": 7,
            "reported": {"loss": 0.25},
            "runs": [run],
        }
    ]
    summary = {"job": recorded, "tasks": tasks, "metrics": {}}
    (folder / "summary.json").write_text(json.dumps(summary))
    event = {"n": 1, "time": 1767225600.0, "kind": "session", "text": "session 0 begins"}
    (folder / "events-0001.jsonl").write_text(json.dumps(event) + "\n")
    app = home / "apps" / app_id
    (app / "logs" / CONTAINER).mkdir(parents=True)
    (app / "app.json").write_text(json.dumps(APP._replace(app_id=app_id).to_json()))
    (app / "logs" / CONTAINER / "stdout").write_text(f"the last epoch {EVIL}\n")
    return app_id

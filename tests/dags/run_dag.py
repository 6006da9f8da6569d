"""Run as a script: dag.test() of one DAG file, and what became of it as JSON.

python run_dag.py FILE CONF OUTPUT, CONF and OUTPUT being JSON.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, Dict, List


def main(file: str, conf: str, output: str) -> None:
    from airflow.utils.session import create_session

    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    run = module.dag.test(run_conf=json.loads(conf))
    with create_session() as session:
        tasks: Dict[str, str] = {}
        gave: Dict[str, Any] = {}
        for ti in run.get_task_instances(session=session):
            name = ti.task_id if ti.map_index < 0 else f"{ti.task_id}[{ti.map_index}]"
            tasks[name] = str(ti.state)
            gave[name] = ti.xcom_pull(
                task_ids=ti.task_id, map_indexes=ti.map_index, session=session
            )
        result = {
            "state": str(run.state),
            "tasks": tasks,
            "gave": gave,
            "events": asset_events(session, run.run_id),
        }
    Path(output).write_text(json.dumps(result))


def asset_events(session: Any, run_id: str) -> List[Dict[str, Any]]:
    """The extra of each event of an asset in this run."""
    from airflow.models.asset import AssetEvent

    events = session.query(AssetEvent).filter_by(source_run_id=run_id)
    return [dict(event.extra) for event in events]


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Print, as one line of JSON, the result of ``dag.test()`` of a DAG; Airflow 2.11's Python runs it.

python dags.py FOLDER WAY
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable, Dict

from airflow import DAG
from airflow.decorators import task

from tony_airflow.operators.tony import TonyOperator
from tony_airflow.sensors.tony import TonySensor

# It lasts a little: a trigger that first sees a job after its end logs only the end.
PROGRAM = """
import sys, time, tony
tony.report(metrics={"accuracy": 0.75})
time.sleep(2)
sys.exit("the data is broken" if "broken" in sys.argv else 0)
"""


def operator(folder: Path, task_id: str = "train", **more: Any) -> TonyOperator:
    src = folder / "src"
    src.mkdir(exist_ok=True)
    (src / "train.py").write_text(PROGRAM)
    arguments: Dict[str, Any] = {
        "executes": f"{sys.executable} train.py",
        "src_dir": str(src),
        "roles": {"worker": {"instances": 2, "memory": "256m"}},
        "poll_interval": 0.5,
    }
    return TonyOperator(task_id=task_id, scheduler="local", **{**arguments, **more})


def sync(folder: Path) -> None:
    operator(folder)


def deferred(folder: Path) -> None:
    operator(folder, deferrable=True)


def broken(folder: Path) -> None:
    operator(folder, task_params="broken", retries=0)


def sensed(folder: Path, deferrable: bool = False) -> None:
    train = operator(folder, wait_for_completion=False)
    sensor = TonySensor(
        task_id="sensed",
        scheduler="local",
        application_id="{{ ti.xcom_pull(task_ids='train', key='application_id') }}",
        poke_interval=0.5,
        timeout=120,
        deferrable=deferrable,
    )
    train >> sensor


def sensed_deferred(folder: Path) -> None:
    sensed(folder, deferrable=True)


def decorated(folder: Path) -> None:
    arguments = {"scheduler": "local", "roles": {"worker": {"instances": 1, "memory": "256m"}}}

    @task.tony(task_id="train", **arguments)
    def train(day: str, epochs: int = 3) -> Dict[str, Any]:
        import tony

        return {"day": day, "epochs": epochs, "index": tony.task().index}

    train("{{ ds }}", epochs=2)


def mapped(folder: Path) -> None:
    """Two mapped tasks, whose outcomes the task ``train`` gathers."""
    (folder / "train.py").write_text(PROGRAM)
    each = TonyOperator.partial(
        task_id="each",
        scheduler="local",
        src_dir=str(folder),
        roles={"worker": {"instances": 1, "memory": "256m"}},
    ).expand(executes=[f"{sys.executable} train.py {name}" for name in ("one", "two")])

    @task(task_id="train")
    def gather(found: Any) -> Any:
        return [result["outcome"] for result in found]

    gather(each.output)


WAYS: Dict[str, Callable[[Path], None]] = {
    way.__name__: way
    for way in (sync, deferred, broken, sensed, sensed_deferred, decorated, mapped)
}


def links(dag: Any, run: Any) -> Dict[str, Any]:
    """The addresses of the task's buttons, as the web server asks for them, without an operator."""
    ti = run.get_task_instance("train")
    known = dag.get_task("train").operator_extra_links
    found = {link.name: link.get_link(None, ti_key=ti.key) for link in known}
    return {name: url for name, url in found.items() if url}


def main(folder: str, way: str) -> None:
    with DAG(way, schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)) as dag:
        WAYS[way](Path(folder))
    run = dag.test()
    result = {
        "state": str(run.get_state()),
        "tasks": {ti.task_id: str(ti.state) for ti in run.get_task_instances()},
        "links": links(dag, run),
        "result": run.get_task_instance("train").xcom_pull("train"),
    }
    print("RESULT " + json.dumps(result, default=str), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

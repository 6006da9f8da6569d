"""DAGs that a test runs with ``dag.test()``, in a process of their own.

What came of each is written to the file that $RECORD names, a line of JSON each.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timedelta
from typing import Any, Callable, Dict

from airflow.providers.common.compat.sdk import DAG

from tony_airflow.operators.tony import TonyOperator

REPORTS = 'import tony; tony.report(metrics={"loss": 0.25})'


def record(**written: Any) -> None:
    with open(os.environ["RECORD"], "a", encoding="utf-8") as file:
        file.write(json.dumps(written) + "\n")


class Recorded(TonyOperator):
    """Tells of each try what it returned, or how it failed."""

    def execute(self, context: Any) -> Any:
        return self._record_call(context, lambda: TonyOperator.execute(self, context))

    def execute_complete(self, context: Any, event: Any) -> Any:
        return self._record_call(
            context, lambda: TonyOperator.execute_complete(self, context, event)
        )

    def _record_call(self, context: Any, call: Callable[[], Any]) -> Any:
        ti = context["ti"]
        written = {"dag": ti.dag_id, "try": ti.try_number, "map_index": ti.map_index}
        try:
            result = call()
        except BaseException as error:
            record(**written, error=type(error).__name__, message=str(error))
            raise
        record(**written, result=result)
        return result


class LosesItsWorker(Recorded):
    """The first try dies as soon as its job was submitted."""

    def poll_until_complete(self, external_id: Any, context: Any) -> Any:
        if context["ti"].try_number == 1:
            raise RuntimeError(f"the worker of {external_id} is gone")
        return super().poll_until_complete(external_id, context)


def words(program: str = REPORTS, **more: Any) -> Dict[str, Any]:
    return {
        "task_id": "train",
        "scheduler": "local",
        "executes": f"{sys.executable} -c '{program}'",
        "framework": "standalone",
        "roles": {"worker": {"instances": 1, "memory": "256m"}},
        "conf": {"tony.am.retry-count": 0, "tony.task.kill-grace": "1s"},
        "poll_interval": 0.5,
        **more,
    }


def dag(name: str) -> DAG:
    return DAG(name, schedule=None, start_date=datetime(2026, 1, 1), catchup=False)


SOON = timedelta(seconds=1)

with dag("succeeds") as succeeds:
    Recorded(**words())
with dag("fails") as fails:
    Recorded(**words("import sys; sys.exit(7)", retries=1, retry_delay=SOON))
with dag("deferred") as deferred:
    Recorded(**words(deferrable=True))
with dag("mapped") as mapped:
    given = words()
    roles = given.pop("roles")
    Recorded.partial(**given).expand(roles=[roles, roles])
with dag("retried") as retried:
    LosesItsWorker(**words("import time; time.sleep(5)", retries=1, retry_delay=SOON))
with dag("too_long") as too_long:
    Recorded(
        **words("import time; time.sleep(600)", execution_timeout=timedelta(seconds=20), retries=0)
    )
with dag("wrong") as wrong:
    Recorded(**words(python_venv="/nowhere/venv.zip", retries=2, retry_delay=SOON))
with dag("templated") as templated:
    Recorded(
        **words(
            executes=f"{sys.executable} -c '{{{{ params.program }}}}'", params={"program": REPORTS}
        )
    )

if __name__ == "__main__":
    for one in sys.argv[1:]:
        run = globals()[one].test()
        for ti in run.get_task_instances():
            record(ended=one, map_index=ti.map_index, state=str(ti.state), tries=ti.try_number)

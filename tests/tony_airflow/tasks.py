"""Airflow's side of a task, as far as an operator sees it: a task instance that keeps what it is
given, and a store for its state. For whole tasks there is ``dag.test()``."""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, Dict, List, Optional

from tony_airflow.connection import Site
from tony_airflow.hooks.tony import TonyHook
from tony_airflow.operators.tony import TonyOperator
from tony_core.schedulers.port import AppStatus

PATIENCE_S = 120.0
ONE_WORKER = {"worker": {"instances": 1, "memory": "256m"}}
SLEEPS = "import time; time.sleep(600)"


class Instance:
    """A task instance, try by try."""

    def __init__(self, retries: int = 0, map_index: int = -1, run_id: str = "run") -> None:
        self.dag_id, self.run_id, self.task_id = "dag", run_id, "train"
        self.map_index = map_index
        self.try_number = 1
        self.retries = retries
        self.max_tries = retries
        self.log_url = "http://airflow/dags/dag/runs/run/tasks/train?try_number=1"
        self.stats_tags: Dict[str, str] = {}
        self.pushed: Dict[str, Any] = {}
        self.state: Dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def retry(self) -> Instance:
        """Airflow begins the next try: what an earlier one pushed is gone, its state is not."""
        self.try_number += 1
        self.pushed = {}
        return self

    def clear(self) -> Instance:
        """A user clears it."""
        self.max_tries = self.try_number + self.retries
        return self.retry()

    def task(self, program: str = "pass", **options: Any) -> TonyOperator:
        """An operator of this task."""
        return operator(program, retries=self.retries, **options)

    def context(self, stateful: bool = True) -> Dict[str, Any]:
        context: Dict[str, Any] = {"ti": self, "task_instance": self, "outlet_events": {}}
        if stateful:
            context["task_state_store"] = _Store(self.state)
        return context


class _Store:
    def __init__(self, held: Dict[str, Any]) -> None:
        self._held = held

    def get(self, key: str, default: Any = None) -> Any:
        return self._held.get(key, default)

    def set(self, key: str, value: Any, **more: Any) -> None:
        self._held[key] = value


def operator(program: str = "pass", **options: Any) -> TonyOperator:
    """One of the embedded scheduler's that runs a line of Python in one task."""
    arguments: Dict[str, Any] = {
        "task_id": "train",
        "scheduler": "local",
        "executes": f"{sys.executable} -c '{program}'",
        "framework": "standalone",
        "roles": ONE_WORKER,
        **options,
    }
    arguments["conf"] = {
        "tony.am.retry-count": 0,
        "tony.task.kill-grace": "1s",
        **arguments.get("conf", {}),
    }
    return TonyOperator(**arguments)


def jobs(running: Optional[bool] = None) -> List[AppStatus]:
    """All of the test's own TONY_HOME."""
    hook = TonyHook.of(Site())
    try:
        found = hook.list()
    finally:
        hook.close()
    return [one for one in found if running is None or running is not one.state.ended]


def end_all() -> None:
    """Whatever a test has left running."""
    hook = TonyHook.of(Site())
    try:
        for status in hook.list():
            if not status.state.ended:
                hook.kill(status.app_id, "the test has ended")
    finally:
        hook.close()


def until(question: Callable[[], Any], what: str) -> Any:
    """Its answer, as soon as it has one."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"{what} did not come within {PATIENCE_S:g} s"
        time.sleep(0.05)

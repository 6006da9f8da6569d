"""Whether another try has the job of a task that Airflow ends."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, Dict, Optional

import pytest

from tony_airflow.operators import ownership
from tony_airflow.operators.ownership import TaskState, fetch_task_state, is_true_within


@pytest.mark.parametrize(
    ("state", "current", "has_another"),
    [
        ("none", None, True),  # reset by a scheduler that took it for orphaned
        ("scheduled", None, True),
        ("queued", None, True),
        ("up_for_retry", None, True),  # given up, since its worker was not heard of
        ("running", False, True),
        ("deferred", False, True),
        ("running", True, False),  # the worker is shut down
        ("running", None, False),  # of an unknown try
        ("deferred", True, False),
        ("restarting", None, False),  # cleared
        ("failed", None, False),  # marked, or its run is
        ("success", None, False),
        ("skipped", None, False),
        ("removed", None, False),
        ("a state of later versions", False, False),
    ],
)
def test_whose_the_job_is(state: str, current: Optional[bool], has_another: bool) -> None:
    assert TaskState(state, current).has_another_try is has_another


class Requested:
    """A task instance that can ask Airflow; its answers are given."""

    dag_id, run_id, task_id, id = "dag", "run", "train", "0"

    def __init__(self, states: Dict[str, Any], map_index: int = -1) -> None:
        self.map_index = map_index
        self.states = states
        self.requested: Dict[str, Any] = {}

    def get_task_states(self, **words: Any) -> Dict[str, Any]:
        self.requested = words
        return {"run": self.states} if self.states else {}


def test_requests_to_the_api() -> None:
    ti = Requested({"train": "queued"})
    assert fetch_task_state(ti) == TaskState("queued")
    assert ti.requested == {
        "dag_id": "dag",
        "task_ids": ["train"],
        "run_ids": ["run"],
        "map_index": None,
    }
    assert fetch_task_state(Requested({"train": None})) == TaskState("none")
    mapped = Requested({"train_3": SimpleNamespace(value="failed")}, map_index=3)
    assert fetch_task_state(mapped) == TaskState("failed")
    assert mapped.requested["map_index"] == 3


def test_what_cannot_be_asked() -> None:
    assert fetch_task_state(object()) is None  # Airflow 2
    assert fetch_task_state(Requested({})) is None


@pytest.mark.parametrize(("answer", "current"), [(200, True), (404, False), (500, None)])
def test_whether_this_try_is_the_one(
    monkeypatch: pytest.MonkeyPatch, answer: int, current: Optional[bool]
) -> None:
    """By a question that Airflow's supervisor answers for live ids only."""
    runner = pytest.importorskip("airflow.sdk.execution_time.task_runner")
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time.comms import ErrorResponse

    class Comms:
        def send(self, msg: Any) -> None:
            assert msg.type == "ValidateInletsAndOutlets"
            if answer != 200:
                detail = {"status_code": answer}
                raise AirflowRuntimeError(
                    ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail)
                )

    monkeypatch.setattr(runner, "SUPERVISOR_COMMS", Comms(), raising=False)
    ti = Requested({"train": "running"})
    ti.id = "01234567-89ab-7cde-8f01-23456789abcd"
    assert fetch_task_state(ti) == TaskState("running", current)


def test_an_answer_has_to_come_in_time() -> None:
    held = threading.Event()
    try:
        assert not is_true_within(0.01, lambda: held.wait(30) or True)
    finally:
        held.set()

    def broken() -> bool:
        raise OSError("no supervisor")

    assert not is_true_within(30, broken)
    assert is_true_within(30, lambda: True) and not is_true_within(30, lambda: False)
    assert ownership.SETTLED_S >= 60  # a supervisor hears within seconds that its try is over

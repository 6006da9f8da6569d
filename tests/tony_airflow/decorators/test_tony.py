"""@task.tony on the embedded scheduler: real jobs, Airflow's side by hand."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

import pytest
from airflow.providers.common.compat.sdk import (
    DAG,
    AirflowException,
    AirflowFailException,
    TaskDeferred,
    task,
)

from tests.tony_airflow.tasks import Instance, end_all, jobs
from tony_airflow.decorators import body
from tony_airflow.decorators.tony import TonyDecoratedOperator, shipment, tony_task

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def no_job_is_left() -> Iterator[None]:
    yield
    end_all()


def decorated(function: Callable[..., Any], *args: Any, **kwargs: Any) -> TonyDecoratedOperator:
    return TonyDecoratedOperator(
        task_id="train",
        python_callable=function,
        op_args=args,
        op_kwargs=kwargs,
        scheduler="local",
        framework="standalone",
        roles={"worker": {"instances": 1, "memory": "256m"}},
        python_binary_path=sys.executable,
        conf={"tony.am.retry-count": 0},
    )


def test_the_value_comes_back_and_the_operators_own_is_another() -> None:
    def train(rate: float, arguments: Dict[str, Any], ds: Any = None) -> Any:
        import tony

        tony.report(metrics={"loss": rate})
        return {"model": "/models/" + ds, "arguments": arguments, "chief": tony.task().is_chief}

    ti = Instance()
    value = decorated(train, 0.5, arguments={"a": [1]}).execute(
        {**ti.context(), "ds": "2026-01-02"}
    )
    assert value == {"model": "/models/2026-01-02", "arguments": {"a": [1]}, "chief": True}
    assert ti.pushed["job"]["outcome"] == "SUCCEEDED"
    assert ti.pushed["metrics"] == {"loss": 0.5}
    assert ti.pushed["application_id"] == jobs()[0].app_id


def test_a_failing_function_names_its_line() -> None:
    def train(parts: int) -> float:
        return 1 / parts  # right here

    with pytest.raises(AirflowException) as caught:
        decorated(train, 0).execute(Instance().context())
    text = str(caught.value)
    assert "ZeroDivisionError" in text
    assert "return 1 / parts  # right here" in text
    assert Path(__file__).name in text


def test_an_argument_that_cannot_travel_is_refused_before_anything_is_submitted() -> None:
    def train(model: Any) -> None: ...

    with pytest.raises(AirflowFailException, match=r"argument model\['layers'\]\[0\] is of the"):
        decorated(train, {"layers": [object()]}).execute(Instance().context())
    assert jobs() == []


def test_too_much_of_it() -> None:
    def train(data: Any) -> None: ...

    with pytest.raises(TypeError, match="pass the path of the data"):
        shipment(train, ["x" * 2_000_000], {}, {})


def test_what_a_task_of_the_context_is_asked_for() -> None:
    def train(first: int, /, ds: Any = None, *, params: Any = None, **rest: Any) -> None: ...

    text = shipment(train, [1], {"more": 2}, {"ds": "today", "params": {"a": 1}, "ti": object()})
    assert '"args": [1, "today"]' in text
    assert '"kwargs": {"params": {"a": 1}, "more": 2}' in text


# ------------------------------------------------------------------ while the DAG is parsed


def test_it_is_one_of_airflows_decorators() -> None:
    with DAG("it", schedule=None):

        @task.tony(scheduler="local", roles={"worker": 2})
        def train(rate: float) -> float:
            return rate

        one = train(0.5)
        many = train.override(task_id="many").expand(rate=[0.1, 0.2])
    assert one.operator.executes == "tony_function.py"
    assert one.operator.custom_operator_name == "@task.tony"
    assert many.operator.task_id == "many"


SIZE = 3


def test_a_free_name_is_refused_as_the_dag_is_parsed() -> None:
    with pytest.raises(body.BodyError, match=r"train\(\) uses SIZE"):

        @tony_task(roles={"worker": 2})
        def train() -> int:
            return SIZE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"executes": "x"}, "has no executes"),
        ({"task_params": "x"}, "has no task_params"),
        ({"wait_for_completion": False}, "waits for the job's end"),
    ],
)
def test_arguments_that_the_decorator_refuses(arguments: Dict[str, Any], message: str) -> None:
    def train() -> None: ...

    with pytest.raises(ValueError, match=message):
        TonyDecoratedOperator(task_id="train", python_callable=train, **arguments)


def test_deferred_the_value_comes_with_the_trigger() -> None:
    def train(rate: float) -> Any:
        return {"rate": rate}

    one = decorated(train, 0.5)
    one.deferrable, one.poll_interval = True, 0.2
    with pytest.raises(TaskDeferred) as caught:
        one.execute(Instance().context())

    async def fired() -> Any:
        async for event in caught.value.trigger.run():
            return event.payload
        return None

    found = asyncio.run(asyncio.wait_for(fired(), 120))
    ti = Instance()
    assert decorated(train, 0.5).execute_complete(ti.context(), found) == {"rate": 0.5}
    assert ti.pushed["job"]["outcome"] == "SUCCEEDED"

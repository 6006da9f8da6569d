"""``@task.tony``: each task of a job runs the function's body.

    @task.tony(roles={"worker": 4}, framework="pytorch", python_venv="env.tar.gz")
    def train(day, epochs=3):
        import torch
        ...
        return {"model": path, "loss": loss}

    evaluate(train("{{ ds }}"))

The function's source and its arguments, as JSON, are shipped with the job, which needs no Airflow.
The chief's return value is the task's (it is the job's result, ``tony.result``).
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import tempfile
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    DecoratedOperator,
    task_decorator_factory,
)

from tony_airflow.decorators import runner
from tony_airflow.decorators.body import Body, BodyError, body_of
from tony_airflow.operators.tony import TonyOperator

PROGRAM = "tony_function.py"
LARGEST_ARGUMENTS = 1024 * 1024  # as JSON; larger data belongs into a file or on HDFS
JOB = "job"
"""The XCom key of the operator's own result, since the task returns the function's value."""


class TonyDecoratedOperator(DecoratedOperator, TonyOperator):  # type: ignore[misc]
    """A :class:`TonyOperator` whose program is a function of the DAG file."""

    template_fields: Sequence[str] = (
        *(name for name in TonyOperator.template_fields if name not in ("executes", "task_params")),
        *DecoratedOperator.template_fields,
    )
    template_fields_renderers = {
        **TonyOperator.template_fields_renderers,
        **DecoratedOperator.template_fields_renderers,
    }
    custom_operator_name = "@task.tony"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Optional[Collection[Any]] = None,
        op_kwargs: Optional[Mapping[str, Any]] = None,
        **kwargs: Any,
    ) -> None:
        for name in ("executes", "task_params"):
            if kwargs.get(name) is not None:
                raise ValueError(f"@task.tony has no {name}: the function is the program")
        if kwargs.get("wait_for_completion") is False:
            raise ValueError(
                "@task.tony waits for the job's end to return the function's value; to only start a"
                " job, use TonyOperator(wait_for_completion=False)"
            )
        super().__init__(
            python_callable=python_callable,
            op_args=op_args,
            op_kwargs=op_kwargs,
            executes=PROGRAM,
            **kwargs,
        )

    def begin(self, context: Any) -> Any:
        """Ship the function with its arguments, and wait for its value."""
        folder = tempfile.mkdtemp(prefix="tony-function-")
        try:
            # The submit stages them: they are not needed here after that.
            self.files = [*_listed(self.files), *self._ship(folder, context)]
            return super().begin(context)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def succeeded(self, context: Any, view: Any, result: Dict[str, Any]) -> Any:
        """Return the function's value, and push the operator's own result as the XCom ``job``."""
        context["ti"].xcom_push(key=JOB, value=super().succeeded(context, view, result))
        return view.result

    def _ship(self, folder: str, context: Mapping[str, Any]) -> List[str]:
        try:
            shipped = shipment(self.python_callable, self.op_args, self.op_kwargs, context)
        except (BodyError, TypeError) as error:
            raise AirflowFailException(str(error)) from error
        with open(os.path.join(folder, runner.SHIPPED), "w", encoding="utf-8") as file:
            file.write(shipped)
        shutil.copyfile(runner.__file__, os.path.join(folder, PROGRAM))
        return [os.path.join(folder, name) for name in (PROGRAM, runner.SHIPPED)]


def shipment(
    function: Callable[..., Any],
    args: Collection[Any],
    kwargs: Mapping[str, Any],
    context: Mapping[str, Any],
) -> str:
    """The function and its arguments for the runner; TypeError for what JSON cannot hold.

    As with every ``@task``, a parameter without an argument that has the name of a value in
    Airflow's context gets that value.
    """
    body: Body = body_of(function)
    values, keywords = _bound(function, args, kwargs, context)
    # For messages: a parameter's name is clearer than its number.
    named = list(inspect.signature(function).parameters)
    data = {
        **body._asdict(),
        "args": [_argument(body.name, _name_at(named, at), one) for at, one in enumerate(values)],
        "kwargs": {name: _argument(body.name, name, one) for name, one in keywords.items()},
    }
    text = json.dumps(data)
    if len(text) > LARGEST_ARGUMENTS + len(body.source):
        raise TypeError(
            f"the arguments of {body.name}() are {len(text) - len(body.source)} characters of JSON,"
            f" and {LARGEST_ARGUMENTS} is the limit: pass the path of the data"
        )
    return text


def _bound(
    function: Callable[..., Any],
    args: Collection[Any],
    kwargs: Mapping[str, Any],
    context: Mapping[str, Any],
) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    signature = inspect.signature(function)
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = [name for name, each in signature.parameters.items() if each.kind in plain]
    given = {name: context[name] for name in named if name in context}
    for name in list(signature.parameters)[: len(args)]:
        given.pop(name, None)
    bound = signature.bind(*args, **{**given, **kwargs})
    bound.apply_defaults()
    return bound.args, bound.kwargs


def _argument(function: str, name: str, value: Any) -> Any:
    try:
        return runner.plain(value, name)
    except TypeError as error:
        raise TypeError(
            f"{function}() was not started: its argument {error}. Arguments are shipped as JSON:"
            " pass numbers, texts, lists and dicts of them"
        ) from None


def _name_at(names: Sequence[str], at: int) -> str:
    return names[at] if at < len(names) else f"argument {at + 1}"


def _listed(files: Any) -> List[Any]:
    if not files:
        return []
    return [one for one in files.split(",") if one] if isinstance(files, str) else list(files)


def tony_task(python_callable: Optional[Callable[..., Any]] = None, **kwargs: Any) -> Any:
    """Make a function the program of a job: ``@task.tony(roles={"worker": 2})``.

    :param roles: how many run it, and what each gets, as for :class:`TonyOperator`, whose other
        arguments are taken too.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        if callable(function):  # else Airflow's own error is better
            body_of(function)  # refused while the DAG is parsed, mapped or not
        return task_decorator_factory(
            python_callable=function,
            decorated_operator_class=TonyDecoratedOperator,
            **kwargs,
        )

    return decorate if python_callable is None else decorate(python_callable)

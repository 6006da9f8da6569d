"""Which functions can be shipped, and which names are refused; no Airflow is needed for it."""

from __future__ import annotations

import json
import math as mathematics
import os.path
from typing import Any, Callable, List

import pytest

from tony_airflow.decorators.body import BodyError, body_of

SIZE = 3


def helper() -> int:
    return 1


def refused(function: Callable[..., Any]) -> str:
    with pytest.raises(BodyError) as caught:
        body_of(function)
    return str(caught.value)


# ------------------------------------------------------------------ what may be


def everything_of_its_own(first: SIZE, *rest: json.JSONDecoder, key: int = SIZE, **more) -> SIZE:  # type: ignore
    import json
    import os.path as paths
    from math import pi
    from math import tau as circle

    class Model:
        size: List[int] = [1]
        twice = [size, size]

        def run(self, times: Any) -> Any:
            return [self.size for _ in range(times)], pi

    def inner(depth: SIZE) -> Any:  # type: ignore
        nonlocal total
        total += depth
        return inner(depth - 1) if depth else (total, circle, rest)

    total: int = 0
    local: str
    try:
        local = json.dumps([name + "" for name in paths.split(first)])
    except ValueError as error:
        local = str(error)
    with open(__file__) as file:
        lines = {line: len(line) for line in file}
    if (count := len(lines)) > 3:
        print(f"{count!r} {local}", more, key)
    global seen
    seen = lambda value: (value, count)  # noqa: E731
    return Model().run(inner(3)), seen(1), everything_of_its_own


def test_what_a_function_has_itself_is_no_matter() -> None:
    body = body_of(everything_of_its_own)
    assert body.name == "everything_of_its_own"
    assert body.source.startswith("def everything_of_its_own(")
    assert body.file == __file__


def test_the_source_of_a_function_inside_of_another_keeps_its_texts() -> None:
    def inside() -> str:
        return """
two
    lines"""

    source = body_of(inside).source
    assert source.startswith("    def inside")
    assert '"""\ntwo\n    lines"""' in source


# ------------------------------------------------------------------ what may not


def test_a_module_of_the_file_is_imported_inside() -> None:
    def train() -> Any:
        return mathematics.pi, os.path.sep

    assert refused(train) == (
        "train() uses mathematics and os, and only the function itself is shipped to where the job"
        " runs: import mathematics and os inside of it"
    )


def test_a_closure_is_named() -> None:
    rate = 0.1

    def train() -> float:
        return rate

    assert "pass rate, of the function around it, as arguments" in refused(train)


def test_names_of_the_file_are_named_with_what_to_do() -> None:
    lost = 1

    def train(x: int) -> Any:
        def deeper() -> Any:
            return helper() + x + SIZE + lost

        return [deeper() for _ in range(SIZE)], mathematics.e, undefined  # type: ignore  # noqa: F821

    text = refused(train)
    assert text.startswith("train() uses ")
    assert "import mathematics inside of it" in text
    assert "pass lost, of the function around it, as arguments" in text
    assert "pass helper, SIZE and undefined as arguments, or define them inside of it" in text


def test_what_only_looks_like_a_name_of_its_own() -> None:
    def train() -> Any:
        class Model:
            size = SIZE

        return Model, [value + 1 for value in range(3)], value  # type: ignore  # noqa: F821

    text = refused(train)
    assert "SIZE" in text and "value" in text


def test_no_lambda_no_coroutine_no_generator_no_method() -> None:
    async def later() -> None: ...

    def several() -> Any:
        yield 1

    assert "a function with a name" in refused(lambda: 1)
    assert "plain function" in refused(later)
    assert "plain function" in refused(several)
    assert "a function with a name" in refused(print)


def test_without_a_source() -> None:
    names: Any = {}
    exec("def train(): pass", names)
    assert "the source of train() cannot be read" in refused(names["train"])


def keep(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def test_another_decorator_is_refused() -> None:
    @keep
    def train() -> None: ...

    assert "decorated with @keep too" in refused(train)

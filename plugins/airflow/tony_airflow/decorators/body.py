"""Takes the source of a function from a DAG file, to run it where the DAG file is not.

A task of the job runs the function's text and nothing around it: neither its module nor a function
around it. So each name in it has to be its own, an argument, an import inside of it, or a builtin.
Any other name is refused while the DAG is parsed, and not an hour later on a node.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import types
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Set, Tuple

from tony_airflow.decorators.runner import compiled, parsed

KNOWN = frozenset((*dir(builtins), "__file__", "__name__", "__annotations__"))
"""Names that exist in every Python."""


class BodyError(ValueError):
    """The function cannot be shipped as it is."""


class Body(NamedTuple):
    """The shipped part of a function; ``line`` is its first line in the DAG file."""

    name: str
    source: str
    file: str
    line: int


def body_of(function: Callable[..., Any]) -> Body:
    """The body of a function; BodyError says why it cannot be shipped."""
    name = getattr(function, "__name__", "")
    if not inspect.isfunction(function) or name == "<lambda>":
        raise BodyError(f"@task.tony takes a function with a name, not {function!r}")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise BodyError(
            f"{name}() is a coroutine or a generator: @task.tony takes a plain function"
        )
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise BodyError(
            f"the source of {name}() cannot be read, and @task.tony ships the source: write the"
            " function in a file"
        ) from None
    source = "".join(lines)
    try:
        found = parsed(source)
    except (SyntaxError, ValueError):
        raise BodyError(
            f"the lines of {name}() are not a whole function: give it lines of its own"
        ) from None
    _refuse_decorators(found)
    free = free_names(found)
    if free:
        raise BodyError(_advice(function, free))
    return Body(name, source, function.__code__.co_filename, first)


def free_names(function: ast.FunctionDef) -> List[str]:
    """The names that it uses and does not define, in the order of their first use."""
    places: Dict[str, Tuple[int, int]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            places.setdefault(node.id, (node.lineno, node.col_offset))
    used: Set[str] = set()
    defined = {function.name}
    for code in _codes(compiled(function, "<function>")):
        steps = [(step.opname, step.argval) for step in dis.get_instructions(code)]
        stored = {name for step, name in steps if step == "STORE_NAME"}  # in the body of a class
        loaded = {name for step, name in steps if step.startswith("LOAD") and _is_global(step)}
        used |= loaded - stored
        defined |= {name for step, name in steps if step == "STORE_GLOBAL"}
    free = used - defined - KNOWN
    return sorted(free, key=lambda name: (places.get(name, (0, 0)), name))


def _is_global(step: str) -> bool:
    return step.endswith(("_GLOBAL", "_GLOBALS", "_NAME"))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _refuse_decorators(function: ast.FunctionDef) -> None:
    """BodyError for a decorator below ours, since its module is not shipped."""
    texts = [ast.unparse(one) for one in function.decorator_list]
    ours = [index for index, text in enumerate(texts) if ".tony" in text or "tony_task" in text]
    below = texts[ours[-1] + 1 :] if ours else texts
    if below:
        raise BodyError(
            f"{function.name}() is decorated with @{below[0]} too, which does not exist where the"
            " function runs: @task.tony has to be the only decorator, or the last one"
        )


def _advice(function: Callable[..., Any], free: List[str]) -> str:
    """The message for all free names: what to do for each kind."""
    name = function.__name__
    around = set(function.__code__.co_freevars)
    module = vars(inspect.getmodule(function) or builtins)
    imported, closed, other = [], [], []
    for one in free:
        if one in around:
            closed.append(one)
        elif inspect.ismodule(module.get(one)) or _comes_from_elsewhere(module.get(one), function):
            imported.append(one)
        else:
            other.append(one)
    parts = []
    if imported:
        parts.append(f"import {_listed(imported)} inside of it")
    if closed:
        parts.append(f"pass {_listed(closed)}, of the function around it, as arguments")
    if other:
        parts.append(f"pass {_listed(other)} as arguments, or define them inside of it")
    return (
        f"{name}() uses {_listed(free)}, and only the function itself is shipped to where the job"
        f" runs: {'; '.join(parts)}"
    )


def _comes_from_elsewhere(value: Any, function: Callable[..., Any]) -> bool:
    home = getattr(value, "__module__", None)
    return isinstance(home, str) and home not in (function.__module__, "builtins")


def _listed(names: List[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

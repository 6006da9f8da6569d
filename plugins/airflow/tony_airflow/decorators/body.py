"""A function of a DAG file as source that runs where the DAG file is not.

What a task of the job runs is the function's text and nothing around it: neither the module it
stands in nor the function it may stand in. So each name that it uses has to be its own, an
argument, something that it imports, or one of Python's. One that is not is refused by name while
the DAG is parsed, and not an hour later on a node.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import symtable
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

from tony_airflow.decorators.runner import parsed

KNOWN = frozenset((*dir(builtins), "__file__", "__name__"))
"""Names that are there wherever Python is."""


class BodyError(ValueError):
    """The function cannot be shipped as it is."""


@dataclass(frozen=True)
class Body:
    """What is shipped of a function; ``line`` is where it begins in the file it was written in."""

    name: str
    source: str
    file: str
    line: int

    def to_dict(self) -> Dict[str, Any]:
        """As :mod:`tony_airflow.decorators.runner` reads it."""
        return {"name": self.name, "source": self.source, "file": self.file, "line": self.line}


def body_of(function: Callable[..., Any]) -> Body:
    """A function's; BodyError names what stands in the way."""
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
            f"the source of {name}() cannot be read, and it is what @task.tony ships: write the"
            " function in a file"
        ) from None
    source = "".join(lines)
    try:
        found = parsed(source)
    except (SyntaxError, ValueError):
        raise BodyError(
            f"{name}() stands where its text alone is no function; give it lines of its own"
        ) from None
    _refuse_decorators(found)
    free = free_names(found)
    if free:
        raise BodyError(_advice(function, free))
    return Body(name, source, function.__code__.co_filename, first)


def free_names(function: ast.FunctionDef) -> List[str]:
    """The names that it uses and that nothing in it makes, in the order of their first use."""
    alone = _Alone().visit(parsed(ast.unparse(function)))
    text = ast.unparse(ast.fix_missing_locations(alone))
    used: Set[str] = set()
    made: Set[str] = {function.name}
    for table in _tables(symtable.symtable(text, "<function>", "exec")):
        for symbol in table.get_symbols():
            if table.get_type() == "module":
                continue
            if symbol.is_global():
                if symbol.is_referenced():
                    used.add(symbol.get_name())
                if symbol.is_declared_global() and (symbol.is_assigned() or symbol.is_imported()):
                    made.add(symbol.get_name())
    order: Dict[str, Tuple[int, int]] = {}
    for node in ast.walk(alone):
        if isinstance(node, ast.Name):
            order.setdefault(node.id, (node.lineno, node.col_offset))
    free = used - made - KNOWN
    return sorted(free, key=lambda name: (order.get(name, (0, 0)), name))


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


class _Alone(ast.NodeTransformer):
    """The function without what is not evaluated on a node: decorators, defaults, annotations."""

    def __init__(self) -> None:
        self._inside = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        if not self._inside:
            self._inside = True
            node.decorator_list = []
            node.args.defaults = []
            node.args.kw_defaults = [None for _ in node.args.kw_defaults]
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name) and node.value is None:
            return ast.copy_location(ast.Pass(), node)
        value = node.value or ast.Constant(None)  # it makes the name local all the same
        return self.generic_visit(ast.copy_location(ast.Assign([node.target], value), node))


def _refuse_decorators(function: ast.FunctionDef) -> None:
    """Ours stays here, those above it are Airflow's; one below would be lost with its module."""
    texts = [ast.unparse(one) for one in function.decorator_list]
    ours = [index for index, text in enumerate(texts) if ".tony" in text or "tony_task" in text]
    below = texts[ours[-1] + 1 :] if ours else texts
    if below:
        raise BodyError(
            f"{function.name}() is decorated with @{below[0]} too, which is not there where the"
            " function runs: @task.tony has to stand alone, or below others"
        )


def _advice(function: Callable[..., Any], free: List[str]) -> str:
    """One message for all of them, with what to do for each kind."""
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

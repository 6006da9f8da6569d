"""Takes the source of a function from a DAG file, to run it where the DAG file is not.

A task of the job runs the function's text and nothing around it: neither its module nor a function
around it. So each name in it has to be its own, an argument, an import inside of it, or a builtin.
Any other name is refused while the DAG is parsed, and not an hour later on a node.
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
"""Names that exist in every Python."""


class BodyError(ValueError):
    """The function cannot be shipped as it is."""


@dataclass(frozen=True)
class Body:
    """The shipped part of a function; ``line`` is its first line in the DAG file."""

    name: str
    source: str
    file: str
    line: int

    def to_dict(self) -> Dict[str, Any]:
        """Plain JSON for :mod:`tony_airflow.decorators.runner`."""
        return {"name": self.name, "source": self.source, "file": self.file, "line": self.line}


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
    stripped = _Stripper().visit(parsed(ast.unparse(function)))
    text = ast.unparse(ast.fix_missing_locations(stripped))
    used: Set[str] = set()
    defined: Set[str] = {function.name}
    for table in _tables(symtable.symtable(text, "<function>", "exec")):
        for symbol in table.get_symbols():
            if table.get_type() == "module":
                continue
            if symbol.is_global():
                if symbol.is_referenced():
                    used.add(symbol.get_name())
                if symbol.is_declared_global() and (symbol.is_assigned() or symbol.is_imported()):
                    defined.add(symbol.get_name())
    order: Dict[str, Tuple[int, int]] = {}
    for node in ast.walk(stripped):
        if isinstance(node, ast.Name):
            order.setdefault(node.id, (node.lineno, node.col_offset))
    free = used - defined - KNOWN
    return sorted(free, key=lambda name: (order.get(name, (0, 0)), name))


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


class _Stripper(ast.NodeTransformer):
    """Removes what a node does not evaluate: decorators, defaults, annotations."""

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
        value = node.value or ast.Constant(None)  # the name is local even without a value
        return self.generic_visit(ast.copy_location(ast.Assign([node.target], value), node))


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

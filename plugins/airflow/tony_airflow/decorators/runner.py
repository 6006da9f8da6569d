"""Runs a function of a DAG file as one task of a job: this file is shipped, and runs on the node.

``tony_function.json`` in its folder has the function's source and its arguments. On the node there
is no Airflow, and of TonY only the module ``tony``. The chief's return value is the job's result.

Standard library only, Python 3.8.
"""

from __future__ import annotations
import __future__

import ast
import json
import linecache
import math
import os
import sys
import traceback
import types
from typing import Any, Callable, Dict, List

SHIPPED = "tony_function.json"


def plain(value: Any, at: str) -> Any:
    """The value as plain JSON; TypeError names the place of anything else.

    Tuples become lists; numbers of numpy and tensors of one element become numbers.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{at} is {value}, which JSON cannot hold")
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{at}[{index}]") for index, item in enumerate(value)]
    if hasattr(value, "items"):
        found: Dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{at} has the key {key!r}, and JSON's keys are texts")
            found[key] = plain(item, f"{at}[{key!r}]")
        return found
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        return plain(value.item(), at)
    raise TypeError(f"{at} is of the type {type(value).__name__}, which JSON cannot hold")


def parsed(source: str) -> ast.FunctionDef:
    """Parse a function's source, indented or not; its strings of several lines stay unchanged."""
    indented = source[:1].isspace()
    tree = ast.parse("if True:\n" + source if indented else source)
    (found,) = tree.body
    if indented:
        assert isinstance(found, ast.If)
        ast.increment_lineno(tree, -1)
        (found,) = found.body
    if not isinstance(found, ast.FunctionDef):
        raise SyntaxError("this is not a function")
    return found


def compiled(function: ast.FunctionDef, file: str) -> types.CodeType:
    """Compile a function without what only its DAG file has: decorators, defaults, annotations."""
    function.decorator_list = []
    function.args.defaults = []  # all arguments are passed
    function.args.kw_defaults = [None for _ in function.args.kw_defaults]
    flag = __future__.annotations.compiler_flag  # no annotation is evaluated
    return compile(ast.Module([function], []), file, "exec", flag, True)


def function_of(shipped: Dict[str, Any]) -> Callable[..., Any]:
    """Compile the function so that tracebacks show its DAG file and its lines."""
    function = parsed(shipped["source"])
    file, line = shipped["file"], shipped["line"]
    ast.increment_lineno(function, line - 1)
    lines: List[str] = ["\n"] * (line - 1) + shipped["source"].splitlines(True)
    linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
    names: Dict[str, Any] = {"__name__": "__main__", "__file__": file}
    exec(compiled(function, file), names)  # noqa: S102
    found: Callable[..., Any] = names[shipped["name"]]
    return found


def main(folder: str) -> int:
    """Run the function; a failure's traceback shows the function's own frames."""
    import tony

    with open(os.path.join(folder, SHIPPED), encoding="utf-8") as file:
        shipped = json.load(file)
    name = shipped["name"]
    try:
        returned = function_of(shipped)(*shipped["args"], **shipped["kwargs"])
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        traceback.print_exception(type(error), error, trace)
        return 1
    if not tony.task().is_chief:
        return 0
    try:
        tony.result(plain(returned, f"what {name}() returned"))
    except (TypeError, ValueError) as error:
        sys.stderr.write(
            f"{name}() ended, and its value cannot be returned: {error}. Return numbers, texts,"
            " lists and dicts of them; save large data, and return its path\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.dirname(os.path.abspath(__file__))))

"""The runner as a node runs it: in a Python of its own, with nothing but the standard library."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from tests.importgraph import CHECKOUT
from tony_airflow.decorators import runner
from tony_airflow.decorators.body import body_of

PROGRAM = CHECKOUT / "program"


class Node:
    """A task's folder; the module ``tony`` of this checkout is on its path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports = folder / "reports"

    def run(
        self, function: Callable[..., Any], *args: Any, chief: bool = True, **kwargs: Any
    ) -> subprocess.CompletedProcess[str]:
        shutil.copy(runner.__file__, self.folder / "tony_function.py")
        shipped = {**body_of(function)._asdict(), "args": args, "kwargs": kwargs}
        (self.folder / runner.SHIPPED).write_text(json.dumps(shipped))
        env = {
            "PYTHONPATH": str(PROGRAM),
            "TONY_REPORT_FILE": str(self.reports),
            "JOB_NAME": "worker",
            "TASK_INDEX": "0" if chief else "1",
            **({"IS_CHIEF": "true"} if chief else {}),
        }
        return subprocess.run(
            [sys.executable, "-W", "error", "tony_function.py"],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def results(self) -> List[Any]:
        if not self.reports.exists():
            return []
        message = [json.loads(line) for line in self.reports.read_text().splitlines()]
        return [line["result"] for line in message if "result" in line]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


LIMIT = 5


def test_the_chiefs_value_is_the_result(node: Node) -> None:
    def train(steps: LIMIT, /, *more: int, rate: float = LIMIT, **rest: Dict[str, int]) -> LIMIT:  # type: ignore
        """Text of
        two lines."""
        import tony

        print("on", tony.task().role, train.__doc__)
        return {"steps": steps, "more": more, "rate": rate, "rest": rest}

    done = node.run(train, 3, 4, 5, rate=0.5, deep={"a": [1]})
    assert done.returncode == 0, done.stderr
    assert "on worker Text of" in done.stdout
    assert node.results() == [
        {"steps": 3, "more": [4, 5], "rate": 0.5, "rest": {"deep": {"a": [1]}}}
    ]


def test_others_give_none(node: Node) -> None:
    def train() -> Any:
        return object()

    assert node.run(train, chief=False).returncode == 0
    assert node.results() == []


def test_a_traceback_shows_the_functions_own_lines(node: Node) -> None:
    def train(parts: int) -> float:
        def divide(by: int) -> float:
            return 1 / by  # the line of the fault

        return divide(parts)

    done = node.run(train, 0)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "return 1 / by  # the line of the fault" in done.stderr
    wrong = (
        Path(__file__)
        .read_text()
        .splitlines()
        .index("            return 1 / by  # the line of the fault")
    )
    assert f'File "{__file__}", line {wrong + 1}, in divide' in done.stderr
    assert "tony_function.py" not in done.stderr, "nothing of the runner's own"


def test_an_exit_code_is_the_functions(node: Node) -> None:
    def train() -> None:
        raise SystemExit(7)

    assert node.run(train).returncode == 7


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("{'model': object()}", "what train() returned['model'] is of the type object"),
        ("[1, float('nan')]", "what train() returned[1] is nan"),
        ("{1: 2}", "what train() returned has the key 1"),
        ("'x' * 70_000", "65536 is the most"),
    ],
)
def test_a_value_that_cannot_come_back_is_named(
    code: str, message: str, node: Node, tmp_path: Path
) -> None:
    def train(code: str) -> Any:
        return eval(code)

    done = node.run(train, code)
    assert done.returncode == 1
    assert message in done.stderr
    assert "save large data, and return its path" in done.stderr
    assert "Traceback" not in done.stderr
    assert node.results() == []


class Scalar:
    """As numpy's: not a float, but holding one."""

    def item(self) -> float:
        return 0.5


def test_numbers_of_other_kinds_are_numbers() -> None:
    assert runner.plain({"a": Scalar(), "b": (1, None, True)}, "it") == {
        "a": 0.5,
        "b": [1, None, True],
    }


def test_an_old_python_can_read_the_runner() -> None:
    ast.parse(Path(runner.__file__).read_text(), feature_version=(3, 8))

"""Every example is a DAG: it parses, and its tasks are what they should be."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from tests.dags.conftest import DAGS

FILES = sorted(path for path in DAGS.glob("*.py"))


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.name)
def file(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(scope="module")
def dag(file: Path) -> Any:
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:  # Airflow 2
        from airflow.models.dagbag import DagBag
    bag = DagBag(dag_folder=str(file))
    assert bag.import_errors == {}
    (found,) = bag.dags.values()
    return found


def test_it_can_be_found_by_its_file(dag: Any, file: Path) -> None:
    assert dag.dag_id == f"tony_{file.stem}"
    assert {"tony", "example"} <= set(dag.tags)
    assert dag.doc_md and dag.description


def test_it_runs_as_a_script(file: Path) -> None:
    assert file.read_text().rstrip().endswith('if __name__ == "__main__":\n    dag.test()')
    assert ast.get_docstring(ast.parse(file.read_text()))


def test_each_framework_with_an_example_is_there() -> None:
    from tests.examples.test_jobs import NAMES

    text = (DAGS / "frameworks.py").read_text()
    for name in NAMES:
        assert name == "hdfs" or f'"{name}"' in text, f"{name} is missing"

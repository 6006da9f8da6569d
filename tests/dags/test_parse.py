"""Every example is a DAG: it parses, and its tasks are what they should be."""

from __future__ import annotations

import ast
import importlib.metadata
import re
from pathlib import Path
from typing import Any, Iterator

import pytest

from tests.dags.conftest import DAGS
from tests.importgraph import CHECKOUT

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


def test_the_environment_of_bin_try_has_every_provider_that_an_example_imports() -> None:
    known = {"airflow-core", "airflow-providers-common-compat"}
    known |= {
        re.split("[^a-z-]", line, maxsplit=1)[0].removeprefix("apache-")
        for line in importlib.metadata.requires("apache-airflow-core") or ()
        if "extra ==" not in line
    }
    script = (CHECKOUT / "bin" / "try").read_text()
    for list_ in re.findall(r"\$dags/(\S*requirements\.txt)", script):
        lines = (DAGS / list_).read_text().splitlines()
        known |= {re.split("[>=<]", line)[0].removeprefix("apache-") for line in lines}
    programs = DAGS / "retraining" / "programs"
    for path in DAGS.rglob("*.py"):
        for name in imports_of(path) if programs not in path.parents else ():
            if name.startswith("airflow.providers."):
                words = name.split(".")
                names = {"-".join(words[:end]) for end in range(3, len(words) + 1)}
                assert names & known, f"{path.name} imports {name}, which bin/try does not install"


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module

"""A master and executors that end with their test."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest

from tests.executor.standin import Executor, Master


@pytest.fixture
def master() -> Iterator[Master]:
    made = Master()
    yield made
    made.close()


@pytest.fixture
def launch(tmp_path: Path, master: Master) -> Iterator[Callable[..., Executor]]:
    """Starts executors of the master; what they left in their own stderr fails the test."""
    made: List[Executor] = []

    def start(**options: Any) -> Executor:
        executor = Executor(tmp_path, options.pop("master", master.address), **options)
        made.append(executor)
        return executor

    yield start
    for executor in made:
        executor.close()
    for executor in made:
        assert "Traceback" not in executor.errors(), executor.errors()


@pytest.fixture
def executor(launch: Callable[..., Executor]) -> Executor:
    return launch()

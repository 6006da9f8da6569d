"""Jobs of real frameworks, ended whatever becomes of the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest

from tests.frameworks.submitting import EXAMPLES, Submitted


@pytest.fixture
def submit(
    tmp_path: Path, environment: Callable[[str], Path]
) -> Iterator[Callable[..., Submitted]]:
    """``submit("jax", "jax", params=...)``: the example in that environment."""
    made: List[Submitted] = []

    def start(example: str, env: str, **rest: Any) -> Submitted:
        python = environment(env) / "bin" / "python"
        folder = tmp_path / f"job-{len(made)}"
        folder.mkdir()
        made.append(Submitted(folder, EXAMPLES / example, python, **rest))
        return made[-1]

    yield start
    for job in made:
        job.close()

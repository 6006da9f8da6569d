"""Jobs of real frameworks, ended whatever becomes of the test; who hears their services."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest

from tests.frameworks.failures import Failures
from tests.frameworks.submitting import EXAMPLES, Submitted


@pytest.fixture
def failures() -> Failures:
    """Who hears what a framework's service fails with."""
    return Failures()


@pytest.fixture
def submit(
    tmp_path: Path, environment: Callable[[str], Path]
) -> Iterator[Callable[..., Submitted]]:
    """``submit("jax", "jax", params=...)``: the example in that environment."""
    made: List[Submitted] = []
    folders: List[str] = []

    def start(example: str, env: str, **rest: Any) -> Submitted:
        python = environment(env) / "bin" / "python"
        folder = tmp_path / f"job-{len(made)}"
        folder.mkdir()
        if example == "ray":  # whose sockets need a short path, and whose logs stay
            short = tempfile.mkdtemp(prefix="tony-ray-", dir="/tmp")
            folders.append(short)
            rest["arguments"] = [*rest.get("arguments", ()), "--shell_env", f"RAY_TMPDIR={short}"]
        made.append(Submitted(folder, EXAMPLES / example, python, **rest))
        return made[-1]

    yield start
    for job in made:
        job.close()
    for path in folders:
        shutil.rmtree(path, ignore_errors=True)

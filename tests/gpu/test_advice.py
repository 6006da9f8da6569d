"""What is advised of jobs that use a real GPU well and badly."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, List

import pytest

from tests.gpu import advice_cases as cases
from tests.gpu.conftest import GpuJob

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


def start(submit: Callable[..., GpuJob], name: str) -> GpuJob:
    conf: List[str] = [f"tony.{key}={value}" for key, value in cases.settings_of(name).items()]
    return submit(cases.PROGRAM.name, params=f"{name} {cases.SECONDS}", conf=conf, roles=())


@pytest.mark.parametrize("name", cases.ADVISED)
def test_how_it_is_used(submit: Callable[..., GpuJob], tony_home: Path, name: str) -> None:
    job = start(submit, name)
    job.ends(0)
    found = cases.advice_of(name, tony_home, job.app_id)
    assert cases.is_expected(name, found), [each.to_json() for each in found]


def test_a_kernel_that_never_ends(submit: Callable[..., GpuJob], tony_home: Path) -> None:
    job = start(submit, cases.HANGS)
    job.ends(1)
    found = cases.describe_hang(tony_home, job.app_id)
    assert found["is_expected"], found

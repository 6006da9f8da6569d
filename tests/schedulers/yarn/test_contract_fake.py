"""YARN under the contract that every scheduler has to meet, without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest

from tests.cluster.fakeyarn.harness import FakeHarness, hasten
from tests.schedulers.contract import *  # noqa: F403


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHarness]:
    """A fake YARN with masters in a hurry."""
    hasten(monkeypatch)
    made = FakeHarness(tmp_path)
    yield made
    made.close()

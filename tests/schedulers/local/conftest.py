"""What all tests of the embedded scheduler may ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest

from tests.schedulers.local.fixtures import LocalHarness


@pytest.fixture
def harness(tony_home: Path, tmp_path: Path) -> Iterator[LocalHarness]:
    """The embedded scheduler, in a home of the test's own."""
    found = LocalHarness(tony_home, tmp_path)
    yield found
    found.close()

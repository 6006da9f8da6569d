"""The command line on the schedulers there are."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Iterator, List, Optional

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.yarn.jobs import Tony


@pytest.fixture
def tony_on(tmp_path: Path) -> Iterator[Callable[..., Tony]]:
    """``tony_on(cluster)``, or ``tony_on()`` for the embedded scheduler."""
    made: List[Tony] = []

    def make(cluster: Optional[Hadoop] = None) -> Tony:
        folder = tmp_path / f"tony-{len(made)}"
        folder.mkdir()
        made.append(Tony(folder, cluster))
        return made[-1]

    yield make
    for one in made:
        one.close()

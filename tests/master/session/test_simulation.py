"""The session machine under chance: any order, duplicates, losses, delays, deaths, time.

What can happen, and what must hold after each step, stands in
:mod:`tests.master.session.random_jobs` and :mod:`tests.master.session.world`.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from typing import List, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import CHECKOUT
from tests.master.session.random_jobs import T, replay, run_job

SHRUNK = int(os.environ.get("TONY_SIMULATED_SEQUENCES", "40"))
SEEDED = 1_500
SHARDS = 10
A_NIGHT = 100_000


class Drawn:
    """Choices by hypothesis, which makes a life that goes wrong as short as it can."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def number(self, low: int, high: int) -> int:
        """One of these numbers, both ends included."""
        return self._data.draw(st.integers(low, high))

    def one_of(self, items: Sequence[T]) -> T:
        """One of these things."""
        return items[self.number(0, len(items) - 1)]


@pytest.mark.timeout(300 + SHRUNK)
@settings(max_examples=SHRUNK, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.data())
def test_whatever_happens_every_invariant_holds_and_the_job_ends(data: st.DataObject) -> None:
    run_job(Drawn(data))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDED, 500))
def test_so_it_does_for_thousands_of_seeds(first: int) -> None:
    for seed in range(first, first + 500):
        replay(seed)


@pytest.mark.parametrize(
    "seed",
    [
        73994229627,
        73994273937,
        73994283768,
        73994292515,
        73994294571,
        73994296228,
        73994302084,  # a task that ended before its gang began is taken over
        73994363595,  # two deadlines of one moment, and the first one ends the job
        73994390810,
    ],
)
def test_and_for_those_that_went_wrong_once(seed: int) -> None:
    replay(seed)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_and_for_others_every_night(shard: int) -> None:
    each = A_NIGHT // SHARDS
    first = datetime.date.today().toordinal() * A_NIGHT + shard * each
    for seed in range(first, first + each):
        replay(seed)


def test_a_seed_replays_a_run() -> None:
    stories: List[List[str]] = [[], []]
    for story in stories:
        replay(17, story.append)
    assert stories[0] and stories[0] == stories[1]
    words = [sys.executable, "-m", "tests.master.session.random_jobs", "17"]
    done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("\n".join(stories[0]) + "\n")

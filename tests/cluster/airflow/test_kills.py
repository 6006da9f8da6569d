"""Whatever strikes a task at whatever second of its life: never two jobs, and none is left.

A night draws the moments by the date; a failure names the seed, which draws them again:

    TONY_KILL_SEED=739944 bin/test -m nightly tests/cluster/airflow/test_kills.py

``TONY_KILL_ROUNDS=10`` strikes at every second of a task's first half minute (some hours).
"""

from __future__ import annotations

import os
from datetime import date
from random import Random
from typing import Callable

import pytest

from tests.cluster.airflow import dags
from tests.cluster.airflow.killing import STEPS, STRIKES, hit
from tests.cluster.airflow.standing import Airflow
from tests.cluster.airflow.training import Training

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(1200)]

DAGS = {"trainings.py": dags.TRAININGS}

# Read before the tests, whose environment has none of ours.
SEED = int(os.environ.get("TONY_KILL_SEED", 0))
ROUNDS = min(STEPS, int(os.environ.get("TONY_KILL_ROUNDS", 1)))


@pytest.mark.parametrize("turn", range(ROUNDS))
@pytest.mark.parametrize("name", STRIKES)
def test_never_two_and_none_left(
    airflow: Airflow, training: Callable[..., Training], name: str, turn: int
) -> None:
    seed = SEED or date.today().toordinal()
    more_s = Random(f"{seed} {name}").sample(range(STEPS), ROUNDS)[turn]
    chance = Random(f"{seed} {name} {more_s}")
    print(f"TONY_KILL_SEED={seed} TONY_KILL_ROUNDS={ROUNDS}: {name} at {more_s} s and more")
    hit(airflow, training, STRIKES[name], more_s + chance.random(), chance)

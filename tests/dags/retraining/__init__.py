"""The retraining pipeline, as far as it goes without a cluster."""

from __future__ import annotations

from tests.conftest import CHECKOUT

RETRAINING = CHECKOUT / "dags" / "examples" / "retraining"
PROGRAMS = RETRAINING / "programs"

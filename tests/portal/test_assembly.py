"""The portal's parts put together: what it tells of its places."""

from __future__ import annotations

from pathlib import Path

import pytest

from tony_core.portal.assembly import assemble
from tony_core.portal.index.rows import LocationState
from tony_core.portal.settings import Settings


def test_what_an_administrator_has_to_know_of_a_place_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    portal = assemble(Settings(index_folder=str(tmp_path), tensorboard_port=0))
    try:
        states = (
            LocationState("old", "/old", problem="gone"),
            LocationState("full", "/full", notes=("3 histories are older than its retention",)),
        )
        monkeypatch.setattr(portal.scanner, "states", lambda: states)
        assert portal.problems() == [
            "The history location old cannot be read: gone",
            "The history location full: 3 histories are older than its retention",
        ]
    finally:
        portal.close()

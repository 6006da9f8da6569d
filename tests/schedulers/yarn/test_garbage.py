"""What dead applications left is found and removed; what lives or is new stays."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Dict, Optional

import pytest

from tony_core.schedulers.yarn.garbage import collect

DAY = 86400.0
APPS = {name: f"application_1700000000000_000{i}" for i, name in enumerate("abcd")}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for app_id in APPS.values():
        made = tmp_path / "apps" / app_id
        made.mkdir(parents=True)
        (made / "journal.json").write_text("{}")
    (tmp_path / "apps" / "something-else").mkdir()
    return tmp_path


def found(root: Path, ends: Dict[str, Optional[float]], dry_run: bool = False) -> list[str]:
    lines = list(collect(str(root), lambda app_id: ends[app_id], DAY, dry_run))
    return [line.split()[1] for line in lines]


def test_only_what_ended_long_ago(root: Path) -> None:
    now = time.time()
    ends = {APPS["a"]: now - 2 * DAY, APPS["b"]: now - 60, APPS["c"]: None, APPS["d"]: now - DAY}
    assert found(root, ends) == [APPS["a"], APPS["d"]]


def test_one_that_nobody_knows_is_as_old_as_what_it_left(root: Path) -> None:
    old = time.time() - 3 * DAY
    os.utime(root / "apps" / APPS["a"], (old, old))
    ends: Dict[str, Optional[float]] = dict.fromkeys(APPS.values(), 0.0)
    lines = list(collect(str(root), lambda app_id: ends[app_id], DAY, True))
    assert len(lines) == 1
    assert f"{APPS['a']} (not known to the cluster any more)" in lines[0]


def test_a_place_that_was_never_used_has_no_garbage(tmp_path: Path) -> None:
    assert found(tmp_path / "nothing", {}) == []

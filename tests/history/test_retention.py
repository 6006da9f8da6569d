"""Which histories go: a user's words and bytes decide about his own alone."""

from __future__ import annotations

import json
import math
import os
import random
import time
from pathlib import Path
from typing import Dict, List

import pytest

from tests.second_user import as_second_user, needs_root, open_folder
from tony_core.history.reader import expired
from tony_core.history.retention import KeptHistory, choose_expired, fair_share, too_much

__all__ = ["open_folder"]

TB = 1 << 40


@pytest.mark.parametrize(
    ("held", "whole", "share"),
    [
        ({}, 10, 10),
        ({"ann": 10}, 10, 10),
        ({"ann": 11}, 10, 10),
        ({"ann": 2, "bob": 9}, 10, 8),  # bob has what ann leaves
        ({"ann": 6, "bob": 9}, 10, 5),
        ({"ann": 1, "bob": 2, "eve": TB}, 10, 7),
        ({"ann": 4, "bob": 4, "eve": TB}, 10, 3),
        ({"ann": 5, "bob": -TB}, 4, 4),
        ({"ann": 5}, 0, 0),
    ],
)
def test_each_user_may_keep_the_same(held: Dict[str, int], whole: int, share: int) -> None:
    assert fair_share(held, whole) == share


def test_a_share_is_never_less_than_an_equal_part_and_all_fit() -> None:
    luck = random.Random(7)
    for _ in range(500):
        held = {str(user): luck.choice((0, 5, 50, TB)) for user in range(luck.randint(1, 9))}
        whole = luck.randrange(1, 300)
        share = fair_share(held, whole)
        assert share >= whole // len(held)
        assert sum(min(size, share) for size in held.values()) <= whole


def test_of_too_much_the_oldest_go_and_what_runs_stays() -> None:
    jobs = [KeptHistory("a", 1.0, 5), KeptHistory("b", 2.0, 5, False), KeptHistory("c", 3.0, 5)]
    assert [job.app_id for job in too_much(jobs, 15, 15)] == []
    assert [job.app_id for job in too_much(jobs, 15, 14)] == ["a"]
    assert [job.app_id for job in too_much(jobs, 15, 5)] == ["a", "c"]


def test_what_to_remove_depends_on_age_and_size() -> None:
    kept = [
        KeptHistory("a", 100.0, 5),
        KeptHistory("b", 200.0, 5),
        KeptHistory("c", 50.0, 5, False),
    ]
    assert choose_expired(kept, 1e9, None, 300.0) == []
    assert choose_expired(kept, math.inf, 9, 300.0) == ["a", "b"]
    assert choose_expired(kept, math.inf, 10, 300.0) == ["a"]
    assert choose_expired(kept, 150.0, 0, 300.0) == ["a", "c", "b"]


@pytest.mark.parametrize("has_ended", [True, False])
def test_no_user_loses_a_job_for_anothers_bytes(has_ended: bool) -> None:
    kept = [
        *(KeptHistory(f"ann-{day}", float(day), 10, owner="ann") for day in range(4)),
        KeptHistory("bob-new", 99.0, TB, has_ended, owner="bob"),
        KeptHistory("bob-old", 9.0, 10, owner="bob"),
    ]
    gone = choose_expired(kept, math.inf, 100, 100.0)
    assert gone == ["bob-old", *(["bob-new"] if has_ended else [])]


def job(root: Path, number: int, hours: float, fill: int = 0) -> Path:
    """A history of a job that ended so long ago, with so many bytes of story."""
    folder = root / f"application_1_{number:04d}"
    folder.mkdir()
    facts = {"app_id": folder.name, "state": "SUCCEEDED", "finished": time.time() - 3600 * hours}
    (folder / "summary.json").write_text(json.dumps({"job": facts, "tasks": []}))
    (folder / "events-0001.jsonl").write_text("\n" * fill)
    return folder


def gone(root: Path, size: int) -> List[str]:
    return [app_id[-4:] for app_id in expired(str(root), math.inf, retention_bytes=size)]


def test_a_file_of_holes_is_no_larger_than_it_is(tmp_path: Path) -> None:
    job(tmp_path, 1, 5)
    with open(job(tmp_path, 2, 1) / "more", "wb") as sparse:
        sparse.truncate(10 * TB)
    assert gone(tmp_path, 1 << 30) == []


def test_a_link_to_another_job_counts_nothing(tmp_path: Path) -> None:
    one = job(tmp_path, 1, 5, fill=60_000)
    job(tmp_path, 2, 1)
    (tmp_path / "application_1_0009").symlink_to(one)
    notes: List[str] = []
    assert expired(str(tmp_path), math.inf, None, notes.append, 100_000) == []
    assert "application_1_0009 is kept: it is a symbolic link" in notes[0]


@needs_root
def test_the_owner_of_the_bytes_loses_his_jobs(open_folder: Path) -> None:
    root = open_folder
    root.chmod(0o1777)
    with as_second_user():
        job(root, 3, 2)
        job(root, 4, 1, fill=300_000)
    for number in (1, 2):
        job(root, number, 10, fill=20_000)
    assert gone(root, 100_000) == ["0003", "0004"]


@needs_root
def test_a_closed_folder_hides_no_other(open_folder: Path) -> None:
    job(open_folder, 1, 5)
    closed = job(open_folder, 2, 5)
    for path in (open_folder / "application_1_0001").iterdir():
        os.chmod(path, 0o644)
    os.chmod(open_folder / "application_1_0001", 0o755)
    os.chmod(closed, 0o700)
    notes: List[str] = []
    with as_second_user():
        found = expired(str(open_folder), 3600.0, warn=notes.append)
    assert found == ["application_1_0001"]
    assert any("application_1_0002 is kept" in text for text in notes)

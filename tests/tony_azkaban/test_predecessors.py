"""Applications of earlier attempts, found by tags, which any user can give to an application."""

from __future__ import annotations

from typing import Dict, List

import pytest

from tests.client.scripted import Scripted, status
from tony_azkaban.execution import Execution
from tony_azkaban.predecessors import settle

RETRY = Execution("train", "12", "nightly", server="az", attempt=1)
TAGS = tuple(RETRY.tags().values())


@pytest.mark.parametrize(
    "props",
    [
        {},
        {"tony_azkaban.retry": "attach"},
        {"tony_azkaban.attach": "app_1", "tony_azkaban.retry": "attach"},
    ],
)
@pytest.mark.parametrize(("user", "ours"), [("ann", True), ("mallory", False)])
def test_only_our_own_user_s_are_ours(user: str, ours: bool, props: Dict[str, str]) -> None:
    """A stranger's with our tags is neither watched nor ended: the retry begins anew."""
    scheduler = Scripted("", status("app_1", tags=TAGS))
    scheduler.user = "ann"
    scheduler.set("app_1", user=user)
    lines: List[str] = []
    taken: List[str] = []
    found = settle(scheduler, RETRY, props, lines.append, taken.append)
    if not ours:
        assert (found, lines, taken, scheduler.killed) == (None, [], [], [])
    elif props:
        assert (found, taken, scheduler.killed) == ("app_1", ["app_1"], [])
    else:
        assert [app_id for app_id, _ in scheduler.killed] == ["app_1"]


def test_a_named_one_of_another_user_is_submitted_anew() -> None:
    first = Execution("train", "13", "nightly", server="az")
    scheduler = Scripted("", status("app_1", tags=TAGS))
    scheduler.user = "ann"
    scheduler.set("app_1", user="mallory")
    lines: List[str] = []
    props = {"tony_azkaban.attach": "app_1"}
    assert settle(scheduler, first, props, lines.append, lines.append) is None
    assert "not an application of this job" in lines[0]
    scheduler.set("app_1", user="ann")
    assert settle(scheduler, first, props, lines.append, lines.append) == "app_1"

from __future__ import annotations

from typing import Any

import pytest

from tony_core.durations import describe_duration, show_duration


@pytest.mark.parametrize(
    "seconds, words",
    [(0, "0 s"), (7.4, "7 s"), (60, "1 min"), (3599.7, "1 h"), (7 * 86400 - 60, "6 days 23 h"),
     (86400 + 5, "1 day"), (150, "2 min 30 s")],
)  # fmt: skip
def test_in_words(seconds: float, words: str) -> None:
    assert describe_duration(seconds) == words


@pytest.mark.parametrize(
    "seconds, shown",
    [(-1, "0.0 s"), (4.25, "4.2 s"), (60, "1 min 00 s"), (723.9, "12 min 03 s"),
     (19200, "5 h 20 min"), (172799, "47 h 59 min"), (172800, "2 d 00 h"), (None, ""),
     (float("nan"), ""), (float("inf"), ""), (10**400, "")],
)  # fmt: skip
def test_of_one_shape(seconds: Any, shown: str) -> None:
    assert show_duration(seconds) == shown

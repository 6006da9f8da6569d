from __future__ import annotations

import pytest

from tony_core.durations import describe_duration


@pytest.mark.parametrize(
    "seconds, words",
    [(0, "0 s"), (7.4, "7 s"), (60, "1 min"), (3599.7, "1 h"), (7 * 86400 - 60, "6 days 23 h"),
     (86400 + 5, "1 day"), (150, "2 min 30 s")],
)  # fmt: skip
def test_in_words(seconds: float, words: str) -> None:
    assert describe_duration(seconds) == words

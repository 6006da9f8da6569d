"""Times that cover others, against looking at each for each."""

from __future__ import annotations

from typing import List, Tuple

from hypothesis import given
from hypothesis import strategies as st

from tests.advice.jobs import JobBuilder, names
from tony_core.advice.coverage import Coverage, points_within, subtract
from tony_core.history.story_lines import Span

BASE = 1_700_000_000.0
PAIRS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=12)


def spans(pairs: List[Tuple[int, int]]) -> List[Span]:
    return [Span("x", BASE + min(pair), BASE + max(pair)) for pair in pairs]


def apart(pairs: List[Tuple[int, int]]) -> List[Span]:
    """Of numbers in order every second gap."""
    edges = sorted({number for pair in pairs for number in pair})
    return [Span("x", BASE + a, BASE + b) for a, b in zip(edges[::2], edges[1::2], strict=False)]


@given(PAIRS, PAIRS, st.integers(0, 50))
def test_as_if_each_was_looked_at(ours: List[Tuple[int, int]], theirs: List[Tuple[int, int]],
                                  at: int) -> None:  # fmt: skip
    mine, others = spans(ours), spans(theirs)
    wanted = sum(max(0.0, min(a.end, b.end) - max(a.begin, b.begin)) for a in mine for b in others)
    assert abs(Coverage(others).overlap_s(mine) - wanted) < 1e-4
    is_in = any(b.begin <= BASE + at <= b.end for b in others if b.end > b.begin)
    assert Coverage(others).has(BASE + at) == is_in
    parted = apart(theirs)
    left = subtract(mine, parted)
    lengths = sum(span.end - span.begin for span in mine) - Coverage(parted).overlap_s(mine)
    assert abs(sum(span.end - span.begin for span in left) - lengths) < 1e-4
    assert Coverage(parted).overlap_s(left) < 1e-4
    points = tuple((BASE + number, 1.0) for number in range(50))
    kept = tuple(p for span in parted for p in points if span.begin <= p[0] <= span.end)
    assert points_within(points, [p[0] for p in points], parted) == kept


def test_a_history_of_many_stalls_is_looked_at_once() -> None:
    """With a look at each stall for each point it would take minutes."""
    builder = JobBuilder()
    builder.start()
    begin = builder.at
    for _ in range(20_000):
        builder.wait(5.0).line("stalled", "x", still_s=2.0, tasks=["worker:0"])
        builder.wait(3.0).line("stall-over", "x")
    for task in builder.tasks:
        builder.metrics[task] = {
            name: [[begin + 8.0 * at, float(at)] for at in range(20_000)]
            for name in ("rss_mb", "cpu_percent", "step", "saved")
        }
    assert "stalled" in names(builder.move("succeeded").finish())

"""What is kept for the next reader, and how long."""

from __future__ import annotations

from tests.portal.fakes import a_row
from tony_core.portal.index.rows import JobRow
from tony_core.portal.page_cache import PageCache


class Clock:
    """It goes on only when it is asked to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_of_an_ended_job_until_its_row_changes() -> None:
    cache, made = PageCache(), []  # type: PageCache, List[int]

    def ask(row: JobRow, kind: str = "job") -> int:
        return cache.get(row, kind, lambda: made.append(1) or len(made), lambda value: 10)

    assert [ask(a_row()), ask(a_row()), ask(a_row(), "story")] == [1, 1, 2]
    assert ask(a_row(error="and more is known")) == 3
    assert ask(a_row(location="there")) == 4


def test_of_a_running_job_for_as_long_as_it_costs() -> None:
    clock = Clock()
    cache, made = PageCache(clock=clock), []  # type: PageCache, List[int]

    def make() -> int:
        clock.now += 0.5
        made.append(1)
        return len(made)

    def ask(progress: float) -> int:
        row = a_row(state="RUNNING", finished=None, progress=progress)
        return cache.get(row, "job", make, lambda value: 10)

    assert [ask(0.1), ask(0.2)] == [1, 1]
    clock.now += 4.9
    assert ask(0.3) == 1
    clock.now += 0.2
    assert ask(0.3) == 2
    other = a_row(state="RUNNING", finished=None, owner="bob")
    assert cache.get(other, "job", make, lambda value: 10) == 3, "another owner's is another job"


def test_it_stays_small() -> None:
    cache = PageCache(most_bytes=100)
    for number in range(20):
        cache.get(a_row(number), "job", lambda number=number: number, lambda value: 30)  # type: ignore[misc]
    assert [cache.get(a_row(n), "job", lambda: -1, lambda value: 1) for n in (19, 18, 3)] == [
        19,
        18,
        -1,
    ]

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


def test_of_a_job_that_ended_not_for_ever() -> None:
    """Files may change without a change of what the list shows."""
    clock = Clock()
    cache = PageCache(clock=clock)
    assert cache.get(a_row(), "job", lambda: 1, lambda value: 10) == 1
    clock.now += 599
    assert cache.get(a_row(), "job", lambda: 2, lambda value: 10) == 1
    clock.now += 2
    assert cache.get(a_row(), "job", lambda: 3, lambda value: 10) == 3


def test_what_was_not_read_whole_is_soon_read_again() -> None:
    clock = Clock()
    cache = PageCache(clock=clock)

    def ask(answer: str) -> str:
        def make() -> str:
            clock.now += 0.01
            return answer

        return cache.get(a_row(), "job", make, len, is_whole=lambda value: value != "damaged")

    assert [ask("damaged"), ask("whole")] == ["damaged", "damaged"], "a flood costs little"
    clock.now += 0.2
    assert [ask("whole"), ask("damaged")] == ["whole", "whole"]


def test_of_a_running_job_for_each_viewer() -> None:
    """What its scheduler lets one viewer read is not another's."""
    cache, running = PageCache(clock=Clock()), a_row(state="RUNNING", finished=None)

    def ask(row: JobRow, viewer: str) -> str:
        return cache.get(row, "job", lambda: f"as {viewer}", len, viewer)

    assert [ask(running, "ann"), ask(running, "bob")] == ["as ann", "as bob"]
    assert [ask(a_row(), "ann"), ask(a_row(), "bob")] == ["as ann", "as ann"]

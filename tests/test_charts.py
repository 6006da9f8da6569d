"""Charts of metrics: what a page draws."""

from __future__ import annotations

from typing import Iterator, List

from tony_core.charts import LINES, OTHER, draw_chart, draw_charts, line_style


def test_a_new_session_begins_a_line_of_its_own() -> None:
    points = [[1.0, 5.0], [2.0, 4.0], [3.0, 5.0], [4.0, 4.5]]
    found = draw_charts([{"task": "w:0"}], {"task": {"w:0": {"loss": points}}}, breaks=(2.5, 9.0))
    assert found.count("<polyline") == 2 and found.count("<title>") == 1
    assert draw_charts([{"task": "w:0"}], {"task": {"w:0": {"loss": points}}}).count("<poly") == 1


def test_each_part_of_a_line_has_its_points_in_whatever_order_breaks_and_times_are() -> None:
    points = [(5.0, 1.0), (1.0, 2.0), (3.0, 3.0), (2.0, 4.0)]
    found = draw_chart("loss", [("c0", "w:0", points)], breaks=(4.0, 2.0, 4.0))
    parts = [part.split('"')[0].split() for part in found.split('points="')[1:]]
    # Before 2, from 2 on, from 4 on: a break belongs to what follows it.
    assert [[pair.split(",")[0] for pair in part] for part in parts] == [
        ["0"],
        ["500000", "250000"],
        ["1000000"],
    ]


def test_a_damaged_story_with_very_many_sessions_costs_no_more_than_its_points() -> None:
    points = [[float(at), 1.0] for at in range(1000)]
    tasks = [{"task": f"w:{number}"} for number in range(LINES)]
    series = {task["task"]: {f"m{number}": points for number in range(12)} for task in tasks}
    counted = Counted(at / 200 for at in range(200_000))
    draw_charts(tasks, {"task": series}, breaks=counted)
    assert counted.walks == 12, "each chart goes through them once, to put them in order"


class Counted(List[float]):
    """Numbers that count how often all of them are gone through."""

    walks = 0

    def __iter__(self) -> Iterator[float]:
        self.walks += 1
        return super().__iter__()


def test_no_two_of_twenty_four_lines_look_alike() -> None:
    styles = [line_style(number) for number in range(3 * LINES)]
    assert len({*styles, OTHER}) == 3 * LINES + 1
    assert styles[0] == "c0" and styles[9] == "c1 d1" and styles[17] == "c1 d2"

"""Charts of metrics: what a page draws."""

from __future__ import annotations

from tony_core.charts import draw_charts


def test_a_new_session_begins_a_line_of_its_own() -> None:
    points = [[1.0, 5.0], [2.0, 4.0], [3.0, 5.0], [4.0, 4.5]]
    found = draw_charts([{"task": "w:0"}], {"task": {"w:0": {"loss": points}}}, breaks=(2.5, 9.0))
    assert found.count("<polyline") == 2 and found.count("<title>") == 1
    assert draw_charts([{"task": "w:0"}], {"task": {"w:0": {"loss": points}}}).count("<poly") == 1

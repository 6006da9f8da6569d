"""The threat model: every test that it names exists, and no cell of it is empty."""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

import pytest

from tests.docs.pages import CHECKOUT

_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def table() -> Tuple[List[str], Dict[str, List[str]]]:
    """Its columns, and its rows by their first cell."""
    text = (CHECKOUT / "docs/security.md").read_text()
    section = text.partition("\n## Threat model\n")[2].partition("\n## ")[0]
    lines = [line.strip("|") for line in section.splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return head[1:], {row[0]: row[1:] for row in rows}


COLUMNS, ROWS = table()
CELLS = [
    pytest.param(cell, id=f"{who}: {what}")
    for who, cells in ROWS.items()
    for what, cell in zip(COLUMNS, cells, strict=True)
]


def test_every_attacker_and_every_harm_is_there() -> None:
    assert len(COLUMNS) == 5 and len(ROWS) == 9
    assert all(len(cells) == len(COLUMNS) for cells in ROWS.values())


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_names_existing_tests_or_why_there_are_none(cell: str) -> None:
    named = _TEST.findall(cell)
    assert named or "**not protected**: " in cell, cell
    for path, test in named:
        assert re.search(rf"^ *def {test}\(", (CHECKOUT / path).read_text(), re.MULTILINE), test
    assert len(named) == cell.count("::")

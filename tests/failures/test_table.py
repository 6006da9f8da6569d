"""The table of docs/failures.md names tests that there are, and all of those here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, Set

from tests.conftest import CHECKOUT


def named() -> Dict[str, Set[str]]:
    """File -> the tests of it that the table names."""
    found: Dict[str, Set[str]] = {}
    text = (CHECKOUT / "docs" / "failures.md").read_text()
    for row in text.split("## Everything that was tried")[1].splitlines():
        cells = row.split(" | ")
        file = ""
        for word in re.findall(r"`([^`]+)`", cells[2]) if len(cells) == 3 else ():
            if word.endswith(".py"):
                file = word
            else:
                found.setdefault(file, set()).add(word)
    return found


def written_in(path: Path) -> Set[str]:
    """The tests that a file holds."""
    return set(re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE))


def test_each_test_that_is_named_is_there() -> None:
    table = named()
    assert len(table) > 5
    for file, tests in table.items():
        assert tests <= written_in(CHECKOUT / "tests" / file), file


def test_each_test_of_a_failure_is_named() -> None:
    table = named()
    for name in ("test_programs.py", "test_ours.py"):
        assert written_in(CHECKOUT / "tests" / "failures" / name) == table[f"failures/{name}"]

"""The table of docs/failures.md names tests that there are, and all of those here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List, Set

from tests.conftest import CHECKOUT


def rows() -> List[List[str]]:
    """The cells of each row: what fails, what TonY reports, the tests, on what they try it."""
    text = (CHECKOUT / "docs" / "failures.md").read_text()
    table = text.split("## Everything that was tried")[1].splitlines()
    found = [line.strip("| ").split(" | ") for line in table if line.startswith("| ")]
    assert found[0] == ["what fails", "message", "tried in", "on"]
    return found[1:]


def named() -> Dict[str, Set[str]]:
    """File -> the tests of it that the table names."""
    found: Dict[str, Set[str]] = {}
    for _, _, tests, _ in rows():
        file = ""
        for word in re.findall(r"`([^`]+)`", tests):
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


def test_each_row_names_what_it_was_tried_on() -> None:
    page = (CHECKOUT / "docs" / "failures.md").read_text()
    for what, _, tests, on in rows():
        kinds = [part.split(",")[0].split(":")[0] for part in on.split("; ")]
        for kind in kinds:
            assert f"- *{kind.removesuffix(' on YARN')}*:" in page, (what, kind)
        if "failures/" in tests or "master/test_master_real.py" in tests:
            assert "a job" in kinds, what
        if "`executor/" in tests:
            assert "an executor" in kinds, what


def test_each_test_of_a_failure_is_named() -> None:
    table = named()
    for name in (
        "test_programs.py",
        "test_own_processes.py",
        "test_task_restart.py",
        "test_machine.py",
        "test_clock.py",
    ):
        assert written_in(CHECKOUT / "tests" / "failures" / name) == table[f"failures/{name}"]

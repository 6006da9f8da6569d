"""``tony compare``: jobs of a history side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List

import pytest

from tests.cli.conftest import Tony, scripted, tony
from tests.cli.schema import wrong_with
from tests.client.scripted import Scripted
from tests.history.test_compare import trained
from tony_core.history.reader import JobHistory

__all__ = ["scripted", "tony"]

CONFIG = (
    "<configuration><property><name>tony.worker.memory</name><value>{}</value></property>"
    "<property><name>tony.application.name</name><value>mnist</value></property></configuration>"
)


def keep(root: Path, app_id: str, record: JobHistory, memory: str = "") -> None:
    folder = root / app_id
    folder.mkdir(parents=True)
    job = {**record.job, "app_id": app_id}
    summary = {"job": job, "tasks": record.tasks, "metrics": record.metrics}
    (folder / "summary.json").write_text(json.dumps(summary))
    lines = [json.dumps(event) + "\n" for event in record.events]
    (folder / "events-0001.jsonl").write_text("".join(lines))
    if memory:
        (folder / "tony-final.xml").write_text(CONFIG.format(memory))


@pytest.fixture
def place(tmp_path: Path, scripted: Scripted) -> Path:
    """A history that the scheduler knows nothing of, with three jobs."""
    root = tmp_path / "elsewhere"
    keep(root, "app_aa", trained(5, [5.0, 4.0, 3.0], result={"loss": 3.0}, name="a"), "2g")
    keep(root, "app_ab", trained(65, [5.0, 3.0], result={"loss": 3.0}, name="b"), "4g")
    keep(root, "app_c", trained(5, [1.0], name="\x1b[31mc"))
    return root


def compare(tony: Tony, place: Path, *words: str) -> Any:
    done = tony("compare", "--history", str(place), "--json", *words)
    assert done.code == 0, done.err
    data = json.loads(done.out)
    assert wrong_with(data, "compare") == []
    return data


def test_what_differs_is_printed(tony: Tony, place: Path) -> None:
    done = tony("compare", "aa", "app_ab", "--history", str(place))
    assert done.code == 0, done.err
    rows: List[List[str]] = [row.split() for row in done.out.splitlines()]
    assert ["tony.worker.memory", "2g", "4g"] in rows
    assert "tony.application.name" not in done.out, "it is the same"
    assert ["waiting", "5.0", "s", "1", "min", "05", "s"] in rows
    assert ["steps", "per", "s", "10", "10"] in rows and ["speed-up", "1", "1"] in rows
    assert ["loss", "at", "step", "100", "4", "3"] in rows
    assert ["at", "the", "end", "3", "3"] in rows
    assert done.err == "tony: app_aa\n", "the whole id, where it was not given"


def test_the_same_as_json(tony: Tony, place: Path) -> None:
    data = compare(tony, place, "app_aa", "app_ab")
    assert data["config"] == [{"name": "tony.worker.memory", "values": ["2g", "4g"]}]
    assert {"name": "waiting", "values": [5.0, 65.0]} in data["phases"]
    assert {"name": "steps_per_s", "values": [10.0, 10.0]} in data["speed"]
    (loss,) = data["metrics"]
    assert (loss["across"], loss["at"], loss["values"]) == ("step", 100, [4.0, 3.0])
    (loss,) = compare(tony, place, "app_aa", "app_ab", "--by", "time")["metrics"]
    assert (loss["across"], loss["at"]) == ("seconds", 20)


def test_a_configuration_that_was_not_kept_is_named(tony: Tony, place: Path) -> None:
    done = tony("compare", "app_aa", "app_c", "--history", str(place))
    assert "the configuration of B is not known" in done.err
    assert "\x1b" not in done.out
    (place / "app_c" / "tony-final.xml").write_text("<configuration>")
    data = compare(tony, place, "app_aa", "app_c")
    assert data["unknown_configs"] == [1]
    (problem,) = data["problems"]
    assert problem.startswith("app_c: its configuration cannot be read")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["app_aa"], "1 job cannot be compared; name 2 to 20"),
        (["x"] * 21, "21 jobs cannot be compared; name 2 to 20"),
        (["app_aa", "aa"], "app_aa is named twice"),
        (["app_aa", ""], "the application's id is empty"),
        (["app_aa", "app_a"], "'app_a' is ambiguous"),
        (["app_aa", "app_zz"], "there is no job 'app_zz' in the history"),
    ],
)
def test_ids_that_cannot_be_compared(tony: Tony, place: Path, words: List[str], why: str) -> None:
    done = tony("compare", "--history", str(place), *words)
    assert done.code == 2 and why in done.err

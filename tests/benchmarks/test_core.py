"""The benchmarks of the core still run, and their lines make a page."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Iterator, List

import pytest

from tests.importgraph import CHECKOUT

BENCHMARKS = CHECKOUT / "benchmarks"
PROGRAMS = sorted(path.name for path in BENCHMARKS.glob("core_*.py"))
FIGURES_OF = {
    "core_commands.py": 3, "core_detection.py": 4, "core_memory.py": 5, "core_overhead.py": 2,
    "core_scale.py": 8, "core_start.py": 5,
}  # fmt: skip


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import one of them by its name, as if it stood where it is run."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield load
    for name in set(sys.modules) - before:
        path = getattr(sys.modules[name], "__file__", None) or ""
        if path.startswith(str(BENCHMARKS)):
            del sys.modules[name]


def run(program: str, *words: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / program), *words],
        cwd=CHECKOUT, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def lines(program: str, *words: str, timeout: float) -> List[Dict[str, Any]]:
    """What it printed, when it went well."""
    done = run(program, *words, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_program_of_the_core_is_run_by_the_one_that_runs_all(module: Any) -> None:
    parts = {f"core_{part}.py" for part in module("core_all").PARTS}
    assert parts | {"core_all.py"} == set(PROGRAMS)
    assert parts == set(FIGURES_OF)


@pytest.mark.parametrize("program", [*PROGRAMS, "master_cost.py"])
def test_each_has_a_help_text(program: str) -> None:
    done = run(program, "--help")
    assert done.returncode == 0 and "--quick" in done.stdout, done.stderr


def test_a_figure_stands_beside_its_floor(module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    module("measuring").figure(
        "a start", 0.123456, "s", floor=0.1, floor_is="bare", bar=0.1, runs=3
    )
    figure_line = json.loads(capsys.readouterr().out)
    assert figure_line.pop("load") >= 0
    assert figure_line == {
        "figure": "a start", "value": 0.1235, "unit": "s", "floor": 0.1, "floor_is": "bare",
        "over_floor": 0.02346, "bar": 0.1, "verdict": "missed", "runs": 3,
    }  # fmt: skip


def test_the_interval_is_students(module: Any) -> None:
    ratio, low, high = module("core_overhead").interval([0.9, 1.0, 1.1], [1.0, 1.0, 1.0])
    assert low < 0.8 < ratio < 1.01 < 1.2 < high
    same = module("core_overhead").interval([50.0] * 10, [50.0] * 10)
    assert same == pytest.approx((1.0, 1.0, 1.0))


@pytest.mark.parametrize(
    ("low", "high", "held"), [(0.97, 0.995, True), (0.9, 1.1, False), (0.96, 0.98, False)]
)
def test_an_interval_that_is_very_wide_holds_nothing(
    module: Any, low: float, high: float, held: bool
) -> None:
    assert module("core_overhead").holds(low, high) is held


def test_nothing_is_written_when_a_part_fails(tmp_path: Path) -> None:
    kept = tmp_path / "lines"
    done = run("core_all.py", "--only", "no-such-part", "--lines", str(kept))
    assert done.returncode == 1 and not kept.exists()
    assert "not measured: no-such-part" in done.stderr


def test_the_page_gets_the_table_and_keeps_the_rest(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    runner = module("core_all")
    page.write_text(f"before\n{runner.BEGIN}\nold\n{runner.END}\nafter\n")
    monkeypatch.setattr(runner, "PAGE", page)
    figure_line = {
        "figure": "a start",
        "value": 0.05,
        "unit": "s",
        "floor": 0.02,
        "floor_is": "bare",
    }
    ratio = {"figure": "steps", "value": 0.99, "unit": "ratio", "low": 0.98, "high": 1.0}
    runner.write("Measured then", [
        {**figure_line, "bar": 0.1, "verdict": "held", "load": 0.5},
        {**ratio, "bar": "the interval reaches 0.99", "verdict": "held", "load": 1.5},
    ])  # fmt: skip
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| a start | 0.05 s | 0.02 s (bare) | 0.1 s | held |" in text
    assert "| steps | 0.99 (0.98 to 1) |  | the interval reaches 0.99 | held |" in text
    assert "Measured then; load average 0.5 to 1.5" in text


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_executors_that_are_simulated_get_their_spec_and_end_well() -> None:
    found = lines("core_scale.py", "--quick", "--counts", "20,40", timeout=300)
    assert [figure_line["unit"] for figure_line in found] == ["s", "cores", "MB", "s"] * 2
    assert found[0]["spec_kb"] > 0.3  # the addresses of twenty


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_what_a_master_keeps_and_shows_is_measured_in_one_run() -> None:
    found = lines("master_cost.py", "--quick", "--tasks", "20", timeout=300)
    assert [figure_line["unit"] for figure_line in found] == [
        *["cores"] * 3,
        *["s"] * 3,
        "MB",
        "KB",
        "s",
    ]
    assert found[0]["floors"] == found[1]["floors"] == found[2]["floors"], "one run"
    assert "heartbeats alone" in found[0]["floor_is"], "what samples cost is not in the floor"
    answer = found[3]
    assert answer["answers"] >= 2 and answer["samples"] > 20 * 10
    assert found[4]["value"] > 0 and found[7]["points_kb"] > 0


def test_a_sample_is_long_enough_for_a_scrape() -> None:
    done = run("master_cost.py", "--tasks", "20", "--seconds", "20", "--every", "15")
    assert done.returncode == 2 and "may have no scrape each 15 s" in done.stderr


@pytest.mark.parametrize("way", ["HEARTBEATS", "SAMPLES"])
def test_only_the_floor_gets_no_samples(
    module: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    cost = module("master_cost")
    gangs: List[Any] = []

    class Watched(cost.Gang):  # type: ignore[name-defined, misc]
        def __init__(self, *words: Any) -> None:
            super().__init__(*words)
            gangs.append(self)

    monkeypatch.setattr(cost, "Gang", Watched)
    found = cost.sample(3, 1.0, getattr(cost, way), 15.0)
    assert found["points_bytes"] == 0, "neither records anything"
    assert bool(gangs[0].executors.measures_every) is (way == "SAMPLES")


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(700)
@pytest.mark.parametrize("program", sorted(set(FIGURES_OF) - {"core_scale.py"}))
def test_it_measures_all_it_should(program: str) -> None:
    found = lines(program, "--quick", timeout=600)
    assert len(found) == FIGURES_OF[program]
    assert all(figure_line["value"] >= 0 and "load" in figure_line for figure_line in found)

"""Advice at a job's end: extra lines, which can cost nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import pytest

from tests.advice.findings import INPUT, MEMORY, stand_in
from tests.cli.test_compare import keep
from tests.client.scripted import APP, Scripted
from tests.history.test_compare import trained
from tony_core.advice import report
from tony_core.client.advice import MOST_LINES, advice_lines
from tony_core.files.port import wait_limit


@pytest.fixture
def scheduler(tmp_path: Path) -> Scripted:
    made = Scripted(str(tmp_path))
    keep(Path(made.history_root(None) or ""), APP, trained(5, [5.0] * 40), "8g")
    return made


def test_the_worst_comes_in_a_few_lines(
    scheduler: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, MEMORY, INPUT)
    assert advice_lines(scheduler, APP) == [
        f"advice: 2 (1 severe): tony advise {APP}",
        "  severe: worker: asks for 8 GB of memory and never used more than 2.1 GB"
        " [tony.worker.memory: 8g -> 3g]",
        "  low: the GPUs wait for data 40 % of the time [read ahead]",
    ]
    stand_in(monkeypatch, *[MEMORY] * 50)
    assert len(advice_lines(scheduler, APP)) == MOST_LINES == 10
    assert advice_lines(scheduler, APP, most=1) == [
        f"advice: 50 (50 severe): tony advise {APP}"
    ]  # fmt: skip


def test_a_secret_in_a_text_is_masked(scheduler: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, MEMORY._replace(problem="db_password=hunter22 is slow"))
    assert "hunter22" not in "".join(advice_lines(scheduler, APP))


def test_without_advice_or_an_end_or_a_history_there_are_none(
    scheduler: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch)
    assert advice_lines(scheduler, APP) == []
    stand_in(monkeypatch, MEMORY)
    assert advice_lines(scheduler, "app_none") == []
    assert advice_lines(scheduler, APP, most_tasks=0) == []
    running = trained(5, [5.0])
    running = running._replace(job={**running.job, "finished": None})
    keep(Path(scheduler.history_root(None) or ""), "app_runs", running)
    assert advice_lines(scheduler, "app_runs") == []


@pytest.mark.parametrize("error", [OSError("gone"), KeyError("x"), RecursionError(), MemoryError()])
def test_whatever_fails_is_a_line_for_debugging(
    scheduler: Scripted, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(record: Any, config: bytes) -> None:
        raise error

    monkeypatch.setattr(report, "advise", fail)
    logged: List[str] = []
    assert advice_lines(scheduler, APP, debug=logged.append) == []
    assert logged and logged[0].startswith(f"no advice on {APP}: {type(error).__name__}")


def test_file_systems_are_waited_for_for_a_few_seconds(
    scheduler: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: List[Any] = []
    monkeypatch.setattr(
        report, "advise", lambda record, config: limits.append(wait_limit.get()) or []
    )
    advice_lines(scheduler, APP)
    assert limits == [3.0] and wait_limit.get() is None

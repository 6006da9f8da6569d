"""``tony doctor`` shows what a scheduler finds, and ends by it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Callable, Iterator

import pytest

from tests.cli.schema import wrong_with
from tony_core.cli.main import main
from tony_core.job.spec import Job
from tony_core.schedulers.local.client import LocalScheduler
from tony_core.schedulers.port import CheckResult, Finding

Tony = Callable[..., int]


@pytest.fixture
def tony(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tony:
    monkeypatch.chdir(tmp_path)
    return lambda *words: int(main(["doctor", *words]))


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the shell that the tests were started from is worth a word."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("PYTHON"):
            monkeypatch.delenv(name)


@pytest.mark.usefixtures("plain")
def test_this_machine(tony: Tony, capsys: pytest.CaptureFixture[str]) -> None:
    assert tony("--json", "--no-probe") == 0
    report = json.loads(capsys.readouterr().out)
    assert wrong_with(report, "doctor") == []
    assert {"TONY_HOME", "tony.runtime.python", "GPUs"} <= {
        one["what"] for one in report["findings"]
    }


@pytest.mark.parametrize(
    ("python", "expected"),
    [("no-such-python", "there is no no-such-python"), ("/bin/true", "is no Python")],
)
@pytest.mark.usefixtures("plain")
def test_a_python_that_is_none(
    tony: Tony, capsys: pytest.CaptureFixture[str], python: str, expected: str
) -> None:
    assert tony("--python", python) == 3
    out = capsys.readouterr()
    assert expected in out.out
    assert "name one that runs here" in out.out
    assert "1 of 14 things are wrong" in out.err
    assert "skipped a container: what it needs is wrong" in out.out


def test_each_finding_is_shown_with_its_advice(
    tony: Tony, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def examine(_: LocalScheduler, job: Job, stage: object) -> Iterator[Finding]:
        assert (job.queue, stage) == ("ml", None)
        yield Finding("the queue", CheckResult.WRONG, "ml\x1b[2J is stopped", "ask for another")
        yield Finding("a container", CheckResult.SKIPPED)

    monkeypatch.setattr(LocalScheduler, "examine", examine)
    assert tony("--queue", "ml", "--no-probe") == 3
    out = capsys.readouterr().out
    assert "wrong   the queue: ml" in out
    assert "\x1b" not in out
    assert "ask for another" in out
    assert "skipped a container" in out


def test_a_scheduler_that_cannot_be_opened(
    tony: Tony, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TONY_HOME", "relative")
    assert tony() == 3
    assert "TONY_HOME" in capsys.readouterr().out


@pytest.mark.skipif(os.getuid() != 0, reason="others are refused before anything is looked at")
@pytest.mark.usefixtures("plain")
def test_a_home_that_cannot_be_made(
    tony: Tony, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TONY_HOME", "/proc/x")
    assert tony() == 3
    out = capsys.readouterr()
    assert "wrong   staging: /proc/x: No such file" in out.out
    assert "skipped a container" in out.out
    assert "of 14 things are wrong" in out.err


@pytest.mark.usefixtures("plain")
def test_a_cluster_that_was_not_asked_for_is_noted(
    tony: Tony, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop/conf")
    assert tony("--no-probe") == 0
    assert (
        "note    the scheduler: local\n          HADOOP_CONF_DIR is set" in capsys.readouterr().out
    )
    assert tony("--scheduler", "local", "--no-probe") == 0
    assert "HADOOP_CONF_DIR" not in capsys.readouterr().out

"""Schedulers by name: ours, and those that other distributions bring."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tony_core.client.submission import load
from tony_core.job.load import JobArguments
from tony_core.job.problems import JobError
from tony_core.job.spec import Job
from tony_core.schedulers import open_scheduler, scheduler_names
from tony_core.schedulers.port import NoSuchScheduler, SchedulerError

CHECKOUT = Path(__file__).resolve().parents[2]


def test_schedulers_are_opened_by_name(tmp_path: Path) -> None:
    opened = open_scheduler("local", {"TONY_HOME": str(tmp_path / "there")})
    assert opened.name == "local"
    assert opened.staging_root(Job("job", ())) == str(tmp_path / "there")
    assert opened.history_root() == str(tmp_path / "there" / "history")
    assert "local" in scheduler_names()


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(SchedulerError, match=r"no scheduler 'slurm'; there is: .*local"):
        open_scheduler("slurm")
    with pytest.raises(NoSuchScheduler, match="there is no scheduler 'mesos'"):
        open_scheduler("mesos")


def test_yarn_needs_a_configuration(tmp_path: Path) -> None:
    assert "yarn" in scheduler_names()
    with pytest.raises(SchedulerError, match="Set HADOOP_CONF_DIR to the cluster"):
        open_scheduler("yarn", {"HADOOP_CONF_DIR": str(tmp_path)})


def test_a_job_for_a_scheduler_that_is_not_there_is_bad(tmp_path: Path) -> None:
    (tmp_path / "tony.xml").write_text(
        "<configuration>\n<property><name>tony.scheduler</name><value>mesos</value></property>\n"
        "</configuration>"
    )
    with pytest.raises(JobError) as caught:
        load(JobArguments(executes="true"), env={}, cwd=str(tmp_path))
    words = "tony.xml:2: tony.scheduler: there is no scheduler 'mesos'; there is: local, yarn"
    assert str(caught.value) == words


def test_another_distribution_brings_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "brought_along.py").write_text("def make(env):\n    return [env]\n")
    info = tmp_path / "brought_along-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: brought-along\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tony.schedulers]\nbrought = brought_along:make\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "brought" in scheduler_names()
    assert open_scheduler("brought", {"A": "1"}) == [{"A": "1"}]  # type: ignore[comparison-overlap]


def test_the_package_costs_nothing_to_import() -> None:
    code = "import sys, tony_core.schedulers; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=CHECKOUT, capture_output=True)
    assert b"tony_core.schedulers" in done.stdout
    for module in (b"importlib.metadata", b"tony_core.schedulers.port", b"dataclasses"):
        assert module not in done.stdout.split()

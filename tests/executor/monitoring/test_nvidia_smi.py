"""The metrics of a task's GPUs, with a stand-in for nvidia-smi."""

from __future__ import annotations

import itertools
import os
import stat
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.executor.standin import Executor, Master
from tony_core.advice.thresholds import LeastEvidence
from tony_core.measures import GPU_PERCENT
from tony_core.protocol.messages import Measured, Start
from tony_core.protocol.reactor import Reactor
from tony_executor.monitoring.nvidia_smi import (
    EARLY_EVERY_S,
    EARLY_S,
    EVERY_S,
    GpuMetrics,
    look_interval,
    parse,
)
from tony_executor.monitoring.observer import ProgramObserver, Surroundings

SAMPLE_S = 5.0  # tony.task.metrics-interval-ms


def fake(folder: Path, code: str) -> Path:
    """Stands for nvidia-smi, which machines without GPUs lack."""
    path = folder / "smi"
    path.write_text(f'#!/bin/bash\necho "$@" > {folder}/asked\n{code}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


class TestGpus:
    def test_their_values_are_among_the_measures(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        smi = fake(tmp_path, "echo '50, 1000, 16000'; echo '100, 3000, 16000'")
        master.welcome.update(gpu_metrics=True, gpu_exec_path=str(smi))
        launch(env={"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"})
        master.prepare()
        master.start("sleep 60")
        found = master.until(
            lambda: [m for m in master.received(Measured) if "gpu_percent" in m.values][:1]
        )[0]
        assert found.values["gpu_percent"] == 75
        assert found.values["gpu_memory_mb"] == 4000
        assert found.values["gpus"] == 2
        assert "-i GPU-a,GPU-b" in (tmp_path / "asked").read_text()

    @pytest.mark.parametrize(("enabled", "visible"), [(False, "0"), (True, ""), (True, "-1")])
    def test_never_started_where_there_are_none(
        self,
        master: Master,
        launch: Callable[..., Executor],
        tmp_path: Path,
        enabled: bool,
        visible: str,
    ) -> None:
        smi = fake(tmp_path, "echo 1, 2, 3")
        master.welcome.update(gpu_metrics=enabled, gpu_exec_path=str(smi))
        launch(env={"CUDA_VISIBLE_DEVICES": visible})
        master.prepare()
        master.start("sleep 60")
        master.until(lambda: len(master.received(Measured)) > 2)
        assert not (tmp_path / "asked").exists()

    def test_one_that_hangs_holds_nothing_up(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        smi = fake(tmp_path, "sleep 300")
        master.welcome.update(gpu_metrics=True, gpu_exec_path=str(smi))
        executor = launch(env={"CUDA_VISIBLE_DEVICES": "0"})
        master.prepare()
        master.start("sleep 60")
        master.until(lambda: len(master.received(Measured)) > 4)
        assert master.stop().clean
        assert master.shut_down(executor) == 0

    def test_its_output_is_parsed(self) -> None:
        assert parse("") == {}
        assert parse("No devices were found\n") == {}
        assert parse("[N/A], 5, 10\n")["gpu_memory_mb"] == 5
        assert "gpu_percent" not in parse("[N/A], 5, 10\n")


class TestHowOften:
    def test_at_first_often_then_seldom(self) -> None:
        assert look_interval(0.0) == look_interval(EARLY_S - 1.0) == EARLY_EVERY_S
        assert look_interval(EARLY_S) == EVERY_S
        assert look_interval(EARLY_S, 3600.0) == EVERY_S
        assert look_interval(EARLY_S, 100.0) == 25.0
        assert look_interval(EARLY_S, 5.0) == EARLY_EVERY_S

    @given(st.floats(0.0, 1e6), st.none() | st.floats(0.01, 1e6))
    def test_never_oftener_than_at_first_and_four_times_in_a_timeout(
        self, age_s: float, timeout_s: Optional[float]
    ) -> None:
        every_s = look_interval(age_s, timeout_s)
        assert EARLY_EVERY_S <= every_s <= look_interval(age_s)
        assert timeout_s is None or every_s <= max(EARLY_EVERY_S, timeout_s / 4)

    def test_a_long_run_costs_little_and_a_short_one_has_its_samples(self, watched: Any) -> None:
        looks, measured = watched(1200.0)
        early = [at for at in looks if at < EARLY_S]
        assert len(early) >= EARLY_S / 15.0 and looks[0] < 2.0
        gaps = gaps_of([at for at in looks if at >= EARLY_S + EVERY_S])
        assert min(gaps) >= EVERY_S and max(gaps) <= EVERY_S + SAMPLE_S
        # Between two looks the samples go on, each with the newest value: a mean weighs all alike.
        with_gpu = [at for at, each in measured if each.values.get(GPU_PERCENT) == 50.0]
        assert sum(at < EARLY_S for at in with_gpu) >= LeastEvidence().samples
        assert max(gaps_of(with_gpu)) <= SAMPLE_S

    @pytest.mark.parametrize(("timeout_s", "most_s"), [(40.0, 15.0), (100.0, 37.5)])
    def test_where_a_stall_is_judged_by_them_they_are_looked_at_in_time(
        self, watched: Any, timeout_s: float, most_s: float
    ) -> None:
        looks, _ = watched(600.0, timeout_s)
        assert min(gaps_of(looks)) >= EARLY_EVERY_S and max(gaps_of(looks)) <= most_s


def gaps_of(times: List[float]) -> List[float]:
    return [after - before for before, after in itertools.pairwise(times)]


class Quickly(Reactor):
    """Its time passes at once, but stands while nvidia-smi runs."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0
        self.gpus: Optional[GpuMetrics] = None
        self.looks: List[float] = []

    def now(self) -> float:
        return self.at

    def _wait(self) -> Optional[float]:
        pause = super()._wait()
        assert self.gpus is not None and pause is not None
        running = self.gpus.pids
        for pid in running:
            if self.at not in self.looks:
                self.looks.append(self.at)
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self.gpus.reaped(pid, os.waitstatus_to_exitcode(status))
        if self.gpus.pids or running:
            return 0.002
        self.at += pause
        return 0.0


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """``watched(seconds, stall timeout)``: when nvidia-smi was asked, and what was measured."""
    reactor = Quickly()

    def run(seconds: float, timeout_s: Optional[float] = None) -> Any:
        gpus = reactor.gpus = GpuMetrics(reactor, {"CUDA_VISIBLE_DEVICES": "0"})
        gpus.enable(True, str(fake(tmp_path, "echo 50, 1000, 16000")))
        measured: List[Tuple[float, Measured]] = []

        def emit(event: Any) -> None:
            if isinstance(event.message, Measured):
                measured.append((event.at, event.message))

        around = Surroundings(
            reactor,
            emit,
            lambda: gpus.pids,
            lambda: gpus.pids,
            gpus,
            lambda: SAMPLE_S,
            print,
        )
        observer = ProgramObserver(around, 0, str(tmp_path / "reports"))
        logs = {"stdout": str(tmp_path / "stdout"), "stderr": str(tmp_path / "stderr")}
        observer.watch_stalls(Start(0, "true", {}, {}, stall_timeout_s=timeout_s), logs, {})
        reactor.call_later(seconds, reactor.stop)
        reactor.run()
        observer.close()
        gpus.close()
        return reactor.looks, measured

    yield run
    reactor.close()

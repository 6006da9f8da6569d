"""The metrics of a task's GPUs, with a stand-in for nvidia-smi."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Callable

import pytest

from tests.executor.standin import Executor, Master
from tony_core.protocol.messages import (
    Measured,
)
from tony_executor.monitoring.nvidia_smi import parse


class TestGpus:
    def fake(self, folder: Path, code: str) -> Path:
        """Stands for nvidia-smi, which machines without GPUs lack."""
        path = folder / "smi"
        path.write_text(f'#!/bin/bash\necho "$@" > {folder}/asked\n{code}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def test_their_values_are_among_the_measures(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        smi = self.fake(tmp_path, "echo '50, 1000, 16000'; echo '100, 3000, 16000'")
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
        smi = self.fake(tmp_path, "echo 1, 2, 3")
        master.welcome.update(gpu_metrics=enabled, gpu_exec_path=str(smi))
        launch(env={"CUDA_VISIBLE_DEVICES": visible})
        master.prepare()
        master.start("sleep 60")
        master.until(lambda: len(master.received(Measured)) > 2)
        assert not (tmp_path / "asked").exists()

    def test_one_that_hangs_holds_nothing_up(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        smi = self.fake(tmp_path, "sleep 300")
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

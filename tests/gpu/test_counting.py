"""GPUs are counted before the program starts, by the real nvidia-smi."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, List

import pytest

from tests.executor.conftest import launch, master
from tests.executor.standin import Executor, Master
from tests.gpu import smi
from tests.gpu.conftest import GpuJob
from tony_core.protocol.messages import Ended, Prepare, Ready, Register, Start

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
__all__ = ["launch", "master"]  # fixtures

NO_GPU = "GPU-00000000-0000-0000-0000-000000000000"
SHOW = 'echo "[$CUDA_VISIBLE_DEVICES]"'


def prepare(master: Master, count: int) -> None:
    master.expect(Register)
    master.send(Prepare("worker:0", 0, ["main"], gpus=count))


class TestUnmanagedGpus:
    """A container without a word on which are its own, as on nodes that only count."""

    def test_as_many_as_there_are(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        executor = launch(env={"TONY_GPU_LOCKS": str(tmp_path / "locks")})
        prepare(master, len(smi.uuids()))
        master.expect(Ready)
        master.send(Start(0, SHOW, {}))
        assert master.expect(Ended).exit_code == 0
        assert executor.log("stdout") == "[]\n"
        locked = {path.name for path in (tmp_path / "locks").iterdir()}
        assert set(smi.uuids()) <= locked

    def test_more_than_there_are(self, master: Master, launch: Callable[..., Executor]) -> None:
        count = len(smi.uuids())
        launch()
        prepare(master, count + 1)
        ended = master.expect(Ended)
        assert ended.cause == "gpus"
        assert f"{count + 1} GPUs asked for, and node 127.0.0.1 shows {count}" in ended.message

    def test_two_containers_that_each_want_all(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        """The second one begins when the first has ended."""
        locks = {"TONY_GPU_LOCKS": str(tmp_path / "locks")}
        first = launch(env=locks)
        prepare(master, len(smi.uuids()))
        master.expect(Ready)
        other = Master()
        try:
            launch(name="other", env=locks, master=other.address)
            prepare(other, len(smi.uuids()))
            with pytest.raises(AssertionError):
                other.expect(Ready, within=2)
            first.process.terminate()
            other.expect(Ready)
        finally:
            other.close()

    def test_one_that_the_scheduler_names_and_is_not_there(
        self, master: Master, launch: Callable[..., Executor]
    ) -> None:
        launch(env={"CUDA_VISIBLE_DEVICES": NO_GPU})
        prepare(master, 1)
        ended = master.expect(Ended)
        assert "a GPU asked for, and node 127.0.0.1 shows 0" in ended.message


def liar(folder: Path, times: int = 1000) -> Path:
    """An nvidia-smi that lists another GPU so often, and else is the real one."""
    program = folder / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -L ] && [ "$(cat {folder}/asked 2>/dev/null | wc -l)" -lt {times} ]; then\n'
        f"  echo asked >> {folder}/asked\n"
        f"  echo 'GPU 0: NVIDIA (UUID: {NO_GPU})'\n"
        "  exit 0\n"
        "fi\n"
        'exec "$(PATH="$PATH:/usr/local/nvidia/bin" command -v nvidia-smi)" "$@"\n'
    )
    program.chmod(0o755)
    return program


def causes(job: GpuJob) -> List[str]:
    return [str(line["text"]) for line in job.story() if line["kind"] == "root-cause"]


def test_a_node_that_shows_fewer_fails_by_name_and_never_starts_the_program(
    submit: Callable[..., GpuJob], tmp_path: Path
) -> None:
    given = [
        f"tony.gpu-exec-path={liar(tmp_path)}",
        *("tony.am.retry-count=5", "tony.task.max-infrastructure-failures=1"),
    ]
    job = submit("seen.py", params="torch", conf=given)
    output = job.ends(1)
    assert "a GPU asked for, and node" in output and "shows 0" in output, output
    assert len(causes(job)) == 2, "the first, and the one more that the system's budget has"
    assert not job.lines("seen")


def test_it_costs_the_user_nothing(submit: Callable[..., GpuJob], tmp_path: Path) -> None:
    given = [f"tony.gpu-exec-path={liar(tmp_path, times=1)}", "tony.am.retry-count=0"]
    job = submit("seen.py", params="torch", conf=given)
    job.ends(0)
    assert job.seen(session=1)["available"]
    assert len(causes(job)) == 1
    assert [line for line in job.story() if "shows 0" in str(line["text"])]


def test_without_the_check_the_program_starts(
    submit: Callable[..., GpuJob], tmp_path: Path
) -> None:
    given = [f"tony.gpu-exec-path={liar(tmp_path)}", "tony.task.gpu-check=false"]
    job = submit("seen.py", params="torch", conf=given)
    job.ends(0)
    assert job.seen()["available"]
    assert not (tmp_path / "asked").exists()

"""GPUs are counted before the program starts, and no two containers share one."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Callable, List, Optional

import pytest

from tests.executor.standin import Executor, Master
from tests.second_user import as_stranger, needs_root
from tony_core.protocol.messages import Ended, Noted, Prepare, Ready, Register, Running, Start
from tony_executor.launch import gpu_allocation
from tony_executor.launch.gpu_allocation import GpuLockError, GpuLocks
from tony_executor.monitoring.nvidia_smi import find_program, parse_devices, select

LINK = "os.symlink('/etc', argument)"
LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa0000-1111-2222-3333-444455556666)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbb0000-1111-2222-3333-444455556666)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1g.5gb      Device  1: (UUID: MIG-GPU-bbbb0000-1111/1/0)
"""


class TestWords:
    def test_gpus_and_slices(self) -> None:
        assert parse_devices(LISTED) == [
            "GPU-aaaa0000-1111-2222-3333-444455556666",
            "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f",
            "MIG-GPU-bbbb0000-1111/1/0",
        ]
        assert parse_devices("No devices found.\n") == []

    def test_what_a_variable_names(self) -> None:
        uuids = ["GPU-a1", "GPU-b2", "GPU-c3"]
        assert select("2,0", uuids) == ["GPU-c3", "GPU-a1"]
        assert select("GPU-b, 7,GPU-zz,1", uuids) == ["GPU-b2"]


class TestLocks:
    def test_two_never_hold_the_same(self, tmp_path: Path) -> None:
        one, other = GpuLocks(str(tmp_path / "l")), GpuLocks(str(tmp_path / "l"))
        node = ["a", "b", "c"]
        assert one.take(2, node) == ["a", "b"]
        assert other.take(2, node) is None and other.held == []
        assert other.take(1, node) == ["c"]
        assert one.take(2, node) == ["a", "b"]  # the next session's: ours stay ours
        one.release()
        assert other.take(2, node) == ["c", "a"]

    def test_one_that_is_gone_is_given_back(self, tmp_path: Path) -> None:
        one, other = GpuLocks(str(tmp_path)), GpuLocks(str(tmp_path))
        assert one.take(1, ["a", "b"]) == ["a"]
        assert one.take(1, ["b", "c"]) == ["b"]
        assert other.take(2, ["a", "c"]) == ["a", "c"]

    def test_a_folder_of_another_user(self, tmp_path: Path) -> None:
        (tmp_path / "mine").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "mine")
        with pytest.raises(GpuLockError, match="not a folder of this user"):
            GpuLocks(str(tmp_path / "link")).take(1, ["a"])
        (tmp_path / "file").write_text("")
        with pytest.raises(GpuLockError, match="cannot be made"):
            GpuLocks(str(tmp_path / "file" / "x")).take(1, ["a"])

    @needs_root
    @pytest.mark.parametrize("kind", ["os.mkdir(argument)", "open(argument, 'w')", LINK])
    def test_another_user_who_takes_the_name_first_is_passed_over(
        self, tmp_path: Path, open_folder: Path, kind: str
    ) -> None:
        open_folder.chmod(0o1777)
        name = open_folder / f"tony-gpus-{os.geteuid()}"
        as_stranger(kind, str(name))
        one, other = (GpuLocks(parent=str(open_folder)) for _ in range(2))
        assert one.take(1, ["a", "b"]) == ["a"]
        assert other.take(1, ["a", "b"]) == ["b"] and other.take(2, ["a", "b"]) is None
        assert one.folder == other.folder != str(name)
        assert os.stat(one.folder).st_mode & 0o777 == 0o700

    @needs_root
    def test_one_name_after_the_other_user_has_gone(self, open_folder: Path) -> None:
        """Who began meanwhile, and who begins after, still exclude each other."""
        open_folder.chmod(0o1777)
        name = open_folder / f"tony-gpus-{os.geteuid()}"
        as_stranger("os.mkdir(argument)", str(name))
        one, other = (GpuLocks(parent=str(open_folder)) for _ in range(2))
        assert one.take(1, ["a"]) == ["a"]
        name.rmdir()
        assert other.take(1, ["a"]) is None
        name.mkdir()  # as an executor does that looked before the first one had made its own
        assert other.take(1, ["a"]) is None
        assert GpuLocks(parent=str(open_folder)).take(1, ["b"]) == ["b"]
        one.release()
        assert other.take(1, ["a"]) == ["a"]


@pytest.fixture
def nvidia_smi(tmp_path: Path, master: Master) -> Callable[..., Path]:
    """A stand-in that shows so many GPUs, and whose path the master tells."""
    script = tmp_path / "nvidia-smi"

    def make(count: int, code: str = "exit 0") -> Path:
        lines = [f"echo 'GPU {n}: Model (UUID: GPU-{n}{n})'" for n in range(count)]
        script.write_text("\n".join(["#!/bin/sh", *lines, code, ""]))
        script.chmod(0o755)
        return script

    master.welcome["gpu_exec_path"] = str(script)
    return make


def prepare(master: Master, count: int) -> None:
    master.expect(Register)
    master.send(Prepare("worker:0", 0, ["main"], gpus=count))


SHOW = 'echo "[$CUDA_VISIBLE_DEVICES]"'


def locked(tmp_path: Path, **env: str) -> dict:
    return {"TONY_GPU_LOCKS": str(tmp_path / "locks"), **env}


class TestExecutor:
    def test_too_few_fail_the_task_and_name_the_node(
        self, master: Master, executor: Executor, nvidia_smi: Callable[..., Path]
    ) -> None:
        nvidia_smi(1)
        prepare(master, 2)
        ended = master.expect(Ended)
        assert ended.cause == "gpus"
        assert "2 GPUs asked for, and node 127.0.0.1 shows 1" in ended.message
        assert not master.received(Ready)

    def test_one_that_fails(
        self, master: Master, executor: Executor, nvidia_smi: Callable[..., Path]
    ) -> None:
        nvidia_smi(0, "echo 'NVIDIA-SMI has failed'; exit 9")
        prepare(master, 1)
        ended = master.expect(Ended)
        assert ended.cause == "gpus"
        assert "exit code 9: NVIDIA-SMI has failed" in ended.message
        assert "tony.task.gpu-check=false" in ended.message
        assert executor.process.poll() is None

    def test_none_at_all(self, master: Master, launch: Callable[..., Executor]) -> None:
        launch(env={"PATH": "/usr/bin:/bin"})
        if find_program({"PATH": "/usr/bin:/bin"}):
            pytest.skip("this machine has one")
        prepare(master, 1)
        master.expect(Ready)
        assert not master.received(Ended)
        (noted,) = master.received(Noted)
        assert (noted.level, noted.once) == ("warning", gpu_allocation.UNCOUNTED)
        assert "a GPU asked for on node 127.0.0.1, and not counted" in noted.text
        assert "no nvidia-smi" in noted.text
        assert "tony.gpu-exec-path" in noted.text and "tony.task.gpu-check" in noted.text
        master.send(Start(0, SHOW, {}))
        assert master.expect(Ended).exit_code == 0

    @pytest.mark.parametrize("text", [None, "no program"])
    def test_a_tool_that_is_no_program(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path, text: Optional[str]
    ) -> None:
        tool = tmp_path / "nvidia-smi"
        if text is not None:
            tool.write_text(text)
        master.welcome["gpu_exec_path"] = str(tool)
        launch()
        prepare(master, 2)
        master.expect(Ready)
        (noted,) = master.received(Noted)
        assert "2 GPUs asked for on node 127.0.0.1, and not counted" in noted.text
        assert f"{tool} cannot be run" in noted.text

    def test_as_many_as_asked_for_are_not_restricted(
        self,
        master: Master,
        launch: Callable[..., Executor],
        nvidia_smi: Callable[..., Path],
        tmp_path: Path,
    ) -> None:
        nvidia_smi(2)
        executor = launch(env=locked(tmp_path))
        prepare(master, 2)
        master.expect(Ready)
        master.send(Start(0, SHOW, {}))
        assert master.expect(Ended).exit_code == 0
        assert executor.log("stdout") == "[]\n"
        assert master.expect(Running).gpus == ["GPU-00", "GPU-11"]

    def test_two_containers_of_a_node_that_isolates_nothing(
        self,
        master: Master,
        launch: Callable[..., Executor],
        nvidia_smi: Callable[..., Path],
        tmp_path: Path,
    ) -> None:
        nvidia_smi(3)
        seen: List[str] = []
        others = []
        for name in ("one", "two"):
            mine = Master(gpu_exec_path=master.welcome["gpu_exec_path"])
            others.append(mine)
            executor = launch(name=name, env=locked(tmp_path), master=mine.address)
            prepare(mine, 1)
            mine.expect(Ready)
            mine.send(Start(0, SHOW, {}))
            assert mine.expect(Ended).exit_code == 0
            seen.append(executor.log("stdout").strip())
            # The next session of the same container has the same ones.
            mine.prepare(session=1, gpus=1)
            mine.send(Start(1, SHOW, {}))
            mine.expect(Ended, session=1)
            assert executor.log("stdout").split() == [seen[-1]] * 2
        assert seen == ["[GPU-00]", "[GPU-11]"]
        assert GpuLocks(str(tmp_path / "locks")).take(1, ["GPU-00", "GPU-11"]) is None
        for mine in others:
            mine.close()

    def test_the_schedulers_own_choice_stands(
        self,
        master: Master,
        launch: Callable[..., Executor],
        nvidia_smi: Callable[..., Path],
        tmp_path: Path,
    ) -> None:
        nvidia_smi(3)
        executor = launch(env=locked(tmp_path, CUDA_VISIBLE_DEVICES="GPU-22,GPU-00"))
        prepare(master, 2)
        master.expect(Ready)
        master.send(Start(0, SHOW, {}))
        master.expect(Ended)
        assert executor.log("stdout") == "[GPU-22,GPU-00]\n"
        assert master.expect(Running).gpus == ["GPU-22", "GPU-00"]
        assert not (tmp_path / "locks").exists()

    @pytest.mark.parametrize("visible", ["GPU-00,GPU-55", "0,2"])
    def test_the_schedulers_own_choice_is_checked(
        self,
        master: Master,
        launch: Callable[..., Executor],
        nvidia_smi: Callable[..., Path],
        visible: str,
    ) -> None:
        """CUDA would leave out what is not there, and train on the rest."""
        nvidia_smi(2)
        launch(env={"CUDA_VISIBLE_DEVICES": visible})
        prepare(master, 2)
        ended = master.expect(Ended)
        assert ended.cause == "gpus"
        assert "2 GPUs asked for, and node 127.0.0.1 shows 1" in ended.message
        assert f"(CUDA_VISIBLE_DEVICES={visible})" in ended.message

    def test_a_choice_that_cannot_be_checked_stands_without_a_warning(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        master.welcome["gpu_exec_path"] = str(tmp_path / "no-such-program")
        launch(env={"CUDA_VISIBLE_DEVICES": "0"})
        prepare(master, 1)
        master.expect(Ready)
        assert not master.received(Noted) and not master.received(Ended)

    def test_a_gpu_in_slices_may_be_named_as_a_whole(
        self, master: Master, launch: Callable[..., Executor], nvidia_smi: Callable[..., Path]
    ) -> None:
        nvidia_smi(1, "echo '  MIG 1g.5gb Device  0: (UUID: MIG-1)'")
        launch(env={"CUDA_VISIBLE_DEVICES": "GPU-00"})
        prepare(master, 1)
        master.expect(Ready)

    def test_it_chooses_among_those_that_are_left_to_it(
        self,
        master: Master,
        launch: Callable[..., Executor],
        nvidia_smi: Callable[..., Path],
        tmp_path: Path,
    ) -> None:
        nvidia_smi(4)
        executor = launch(env=locked(tmp_path, CUDA_VISIBLE_DEVICES="2,3"))
        prepare(master, 1)
        master.expect(Ready)
        master.send(Start(0, SHOW, {}))
        master.expect(Ended)
        assert executor.log("stdout") == "[GPU-22]\n"
        assert master.expect(Running).gpus == ["GPU-22"]

    def test_what_the_environment_hides_is_not_there(
        self, master: Master, launch: Callable[..., Executor], nvidia_smi: Callable[..., Path]
    ) -> None:
        nvidia_smi(2)
        launch(env={"CUDA_VISIBLE_DEVICES": ""})
        prepare(master, 1)
        assert "CUDA_VISIBLE_DEVICES=" in master.expect(Ended).message


class TestWaiting:
    """In this process: with short deadlines."""

    def answers(self, master: Master, check: gpu_allocation.GpuAllocation, asked: int) -> str:
        problems: List[str] = []
        check.allocate(asked, problems.append)

        def reap() -> bool:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return bool(problems)
            if pid:
                check.reaped(pid, os.waitstatus_to_exitcode(status))
            return bool(problems)

        master.until(reap)
        return problems[0]

    def check(self, master: Master, tmp_path: Path, script: Path) -> gpu_allocation.GpuAllocation:
        env = {"PATH": "/usr/bin:/bin", "TONY_GPU_LOCKS": str(tmp_path / "locks")}
        check = gpu_allocation.GpuAllocation(master.reactor, env, "node1", lambda text, once: None)
        check.use_program(str(script))
        return check

    def test_a_driver_that_hangs(
        self,
        master: Master,
        tmp_path: Path,
        nvidia_smi: Callable[..., Path],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(gpu_allocation, "ANSWER_S", 0.1)
        check = self.check(master, tmp_path, nvidia_smi(0, "exec sleep 300"))
        assert "did not answer within 0.1 s" in self.answers(master, check, 1)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)  # it was killed

    def test_locks_that_others_keep(
        self,
        master: Master,
        tmp_path: Path,
        nvidia_smi: Callable[..., Path],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(gpu_allocation, "BUSY_S", 0.1)
        other = GpuLocks(str(tmp_path / "locks"))
        assert other.take(1, ["GPU-00"])
        check = self.check(master, tmp_path, nvidia_smi(2))
        complaint = self.answers(master, check, 2)
        assert complaint.startswith("node node1 has 2 GPUs, and other containers of TonY held")

    def test_locks_that_are_released_in_time(
        self, master: Master, tmp_path: Path, nvidia_smi: Callable[..., Path]
    ) -> None:
        other = GpuLocks(str(tmp_path / "locks"))
        assert other.take(2, ["GPU-00", "GPU-11"])
        check = self.check(master, tmp_path, nvidia_smi(3))
        master.reactor.call_later(0.1, other.release)
        assert self.answers(master, check, 2) == ""
        assert check.visible in ("GPU-00,GPU-11", "GPU-00,GPU-22")
        check.close()
        assert other.take(3, ["GPU-00", "GPU-11", "GPU-22"])


def test_the_field_is_left_out_without_gpus() -> None:
    from tony_core.protocol.codec import encode

    assert "gpus" not in json.loads(encode(Prepare("worker:0", 0, ["main"])))[1]

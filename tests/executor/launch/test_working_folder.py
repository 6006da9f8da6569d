"""The folder that a program runs in: copies, links, permissions."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from tests.executor.standin import Executor, Master
from tony_core.protocol.messages import Ended, Prepare, Ready, Register, Start
from tony_executor.launch import working_folder


class TestFolder:
    @pytest.fixture(autouse=True)
    def artifacts(self, executor: Executor) -> None:
        source = executor.work / "tony-src"
        (source / "pkg" / "empty").mkdir(parents=True)
        (source / "train.py").write_text("print('hello')")
        (source / "run.sh").write_text("#!/bin/sh\necho ran")
        (source / "run.sh").chmod(0o555)
        (source / "link").symlink_to("pkg")
        (source / "broken").symlink_to("nowhere")
        (source / "data.csv").write_text("the source's own")
        (executor.work / "data.csv").write_text("a resource of the same name")
        (executor.work / "model").mkdir()
        (executor.work / "model" / "weights").write_text("w")

    def test_the_source_is_copied_and_the_rest_is_linked(
        self, master: Master, executor: Executor
    ) -> None:
        master.prepare(source="tony-src")
        folder = executor.work / "session-0"
        assert sorted(os.listdir(folder)) == [
            "broken", "data.csv", "link", "model", "pkg", "run.sh", "train.py",
        ]  # fmt: skip
        assert (folder / "pkg" / "empty").is_dir()
        assert os.readlink(folder / "link") == "pkg"
        assert os.readlink(folder / "broken") == "nowhere"
        assert stat.S_IMODE((folder / "run.sh").stat().st_mode) == 0o755
        assert not (folder / "train.py").is_symlink()
        assert (folder / "data.csv").read_text() == "the source's own"
        assert (folder / "model").is_symlink()
        assert (folder / "model" / "weights").read_text() == "w"

    def test_what_the_node_itself_puts_there_is_not_the_programs(
        self, master: Master, executor: Executor
    ) -> None:
        for name in ("container_tokens", "launch_container.sh", ".launch_container.sh.crc"):
            (executor.work / name).write_text("a NodeManager's")
        (executor.work / "tmp").mkdir()
        (executor.folder / "cache").mkdir()
        (executor.work / "sysfs").symlink_to(executor.folder / "cache")  # a resource of the job
        master.prepare(source="tony-src")
        found = set(os.listdir(executor.work / "session-0"))
        assert not found & {"container_tokens", "launch_container.sh", "tmp"}
        assert not [name for name in found if name.endswith(".crc")]
        assert "sysfs" in found

    def test_localised_things_may_be_links_to_what_is_read_only(
        self, master: Master, executor: Executor
    ) -> None:
        """As a NodeManager does: everything is in a cache that other containers use too."""
        cache = executor.folder / "filecache" / "10" / "venv.tar.gz"
        (cache / "bin").mkdir(parents=True)
        python = cache / "bin" / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o555)
        for folder in (cache / "bin", cache):
            folder.chmod(0o555)
        (executor.work / "venv").symlink_to(cache)
        (executor.work / "tony-src").rename(executor.folder / "filecache" / "11")
        (executor.work / "tony-src").symlink_to(executor.folder / "filecache" / "11")
        master.prepare(source="tony-src")
        master.send(Start(0, "command -v python; python train.py; echo own > train.py", {}))
        assert master.expect(Ended).exit_code == 0
        for folder in (cache, cache / "bin"):
            folder.chmod(0o755)
        assert executor.log("stdout").split() == [f"{executor.work}/venv/bin/python", "hello"]

    def test_what_a_session_writes_no_other_sees(self, master: Master, executor: Executor) -> None:
        for session in (0, 1):
            master.prepare(session, source="tony-src")
            master.send(Start(session, "cat train.py; echo spoilt > train.py; ls", {}))
            assert master.expect(Ended, session=session).exit_code == 0
        out = executor.log("stdout")
        assert out.count("print('hello')") == 2
        assert "session-" not in out and "report" not in out and "tony-" not in out
        assert (executor.work / "tony-src" / "train.py").read_text() == "print('hello')"

    def test_a_session_prepared_anew_gets_a_new_folder(
        self, master: Master, executor: Executor
    ) -> None:
        master.run_program("touch mine; exit 1")
        master.messages.clear()
        master.send(Prepare("worker:0", 0, ["main"]))
        master.expect(Ready, session=0)
        master.send(Start(0, "pwd; ls", {}))
        assert master.expect(Ended, session=0).exit_code == 0
        assert "session-0-2\n" in executor.log("stdout")
        assert "mine" not in executor.log("stdout")

    def test_without_a_source_there_are_links_only(
        self, master: Master, executor: Executor
    ) -> None:
        master.prepare()
        assert (executor.work / "session-0" / "tony-src").is_symlink()

    def test_a_source_that_is_not_there(self, master: Master, executor: Executor) -> None:
        master.expect(Register)
        master.send(Prepare("worker:0", 0, ["main"], source="lost"))
        ended = master.expect(Ended)
        assert ended.cause == "localisation"
        assert "the source folder lost" in ended.message

    def test_small_files_stand_beside_it(self, master: Master, executor: Executor) -> None:
        master.prepare()
        master.send(Start(0, 'cat "$TONY_FILES_DIR/hosts"; ls', {}, files={"hosts": "a:1\n"}))
        assert master.expect(Ended).exit_code == 0
        assert executor.log("stdout").startswith("a:1\n")
        assert "files-" not in executor.log("stdout")

    def test_a_file_that_would_leave_its_folder(self, master: Master, executor: Executor) -> None:
        master.prepare()
        master.send(Start(0, "true", {}, files={"../evil": "x"}))
        assert master.expect(Ended).cause == "localisation"
        assert not (executor.work / "evil").exists()


def test_a_big_file_is_copied_whole(tmp_path: Path) -> None:
    data = os.urandom(5_000_000)
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "a").chmod(0o444)
    working_folder.copy_file(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").read_bytes() == data
    assert os.access(tmp_path / "b", os.W_OK)

"""A shipped virtual environment: found, and repaired where its interpreter is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Callable, List

import pytest

from tests.executor.standin import Executor, Master
from tony_core.protocol.messages import Ended, Noted, Prepare, Register
from tony_executor.launch import venv


class TestVenv:
    def make(self, executor: Executor, home: str, minor: str, target: str, below: str = "") -> Path:
        """A venv as it arrives from another machine; ``below`` the top of its archive."""
        venv = executor.folder / "shipped" / below
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", "--copies", str(venv)], check=True
        )
        (venv / "pyvenv.cfg").write_text(
            f"home = {home}\ninclude-system-site-packages = false\nversion = {minor}.7\n"
        )
        for name in os.listdir(venv / "bin"):
            if name.startswith("python"):
                (venv / "bin" / name).unlink()
        (venv / "bin" / "python3").symlink_to(target)
        (venv / "bin" / "python").symlink_to("python3")
        (venv / "bin" / "tool").write_text("#!/bin/sh\necho a tool of the venv")
        (venv / "bin" / "tool").chmod(0o755)
        (folder,) = (venv / "lib").iterdir()
        (folder / "site-packages" / "shipped_module.py").write_text("answer = 42")
        (executor.work / "venv").symlink_to(executor.folder / "shipped")
        return venv

    def content(self, venv: Path) -> List[str]:
        """All but the bytecode, which Python itself puts where it can."""
        paths = [path for path in venv.rglob("*") if "__pycache__" not in path.parts]
        return sorted(str(path) for path in paths if "lib64" not in path.parts)

    @property
    def minor(self) -> str:
        return f"{sys.version_info[0]}.{sys.version_info[1]}"

    SCRIPT = (
        "python -c 'import shipped_module, sys; print(shipped_module.answer, sys.prefix)';"
        "tool; echo $VIRTUAL_ENV"
    )

    def test_its_programs_come_first(self, master: Master, executor: Executor) -> None:
        python = os.path.realpath(sys.executable)
        self.make(executor, os.path.dirname(python), self.minor, python)
        ended = master.run_program(self.SCRIPT)
        assert ended.exit_code == 0, ended
        out = executor.log("stdout").splitlines()
        assert out[0].startswith("42 ")
        assert out[1:] == ["a tool of the venv", f"{executor.work}/venv"]

    def test_an_interpreter_of_another_machine_is_replaced(
        self, master: Master, launch: Callable[..., Executor]
    ) -> None:
        base = os.path.dirname(os.path.realpath(sys.executable))
        executor = launch(env={"PATH": f"{base}:/usr/bin:/bin"})
        venv = self.make(executor, "/opt/away/bin", self.minor, "/opt/away/bin/python3")
        before = self.content(venv)
        for session in (0, 1):
            ended = master.run_program(self.SCRIPT, session)
            assert ended.exit_code == 0, ended
        out = executor.log("stdout").splitlines()
        assert out[0].startswith("42 ") and out[1] == "a tool of the venv"
        assert self.content(venv) == before
        assert os.readlink(venv / "bin" / "python3") == "/opt/away/bin/python3"
        note = master.expect(Noted)
        assert "/opt/away/bin/python3 is not on this node" in note.text
        assert os.path.realpath(executor.work / "session-0" / "venv").endswith(".tony-venv")

    @pytest.mark.parametrize("is_broken", [False, True])
    @pytest.mark.parametrize("top", ["venv", "Python3.5"])
    def test_an_archive_may_hold_the_folder_of_an_environment(
        self, master: Master, launch: Callable[..., Executor], top: str, is_broken: bool
    ) -> None:
        python = os.path.realpath(sys.executable)
        executor = launch(env={"PATH": f"{os.path.dirname(python)}:/usr/bin:/bin"})
        home = "/opt/away/bin" if is_broken else os.path.dirname(python)
        target = "/opt/away/bin/python3" if is_broken else python
        venv = self.make(executor, home, self.minor, target, below=top)
        (venv.parent / "README").write_text("beside it\n")
        before = self.content(venv.parent)
        more = "".join(
            f"; {path} -c 'import shipped_module; print(shipped_module.answer)'"
            for path in ("venv/bin/python", "venv/bin/python3")
        )
        more += f"; cat venv/README; venv/{top}/bin/tool"
        ended = master.run_program(self.SCRIPT + more)
        assert ended.exit_code == 0, ended
        out = executor.log("stdout").splitlines()
        assert out[0].startswith("42 ")
        tool = "a tool of the venv"
        assert out[1:] == [tool, f"{executor.work}/.tony-venv", "42", "42", "beside it", tool]
        assert self.content(venv.parent) == before
        note = master.expect(Noted).text
        assert ("is not on this node" if is_broken else f"the venv's folder {top}") in note

    def test_a_node_without_that_version_is_an_error(
        self, master: Master, executor: Executor
    ) -> None:
        self.make(executor, "/opt/away/bin", "3.99", "/opt/away/bin/python3.99")
        master.expect(Register)
        master.send(Prepare("worker:0", 0, ["main"]))
        ended = master.expect(Ended)
        assert ended.cause == "environment"
        assert "/opt/away/bin/python3.99" in ended.message
        assert "install Python 3.99 on the nodes" in ended.message


def test_an_overlay_that_was_not_finished_is_made_anew(tmp_path: Path) -> None:
    away = tmp_path / "venv"
    (away / "bin").mkdir(parents=True)
    (away / "lib").mkdir()
    (away / "bin" / "python").symlink_to("/opt/away/python3")
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    (away / "pyvenv.cfg").write_text(f"home = /opt/away\nversion_info = {minor}.1.final.0\n")
    overlay = tmp_path / ".tony-venv"
    (tmp_path / ".tony-venv.unfinished" / "bin").mkdir(parents=True)
    (tmp_path / ".tony-venv.unfinished" / "bin" / "half").write_text("")
    found = venv.find(str(tmp_path), str(overlay), os.environ["PATH"])
    assert found is not None and found.folder == str(overlay)
    assert sorted(os.listdir(overlay)) == ["bin", "lib", "pyvenv.cfg"]
    assert "half" not in os.listdir(overlay / "bin")
    assert os.access(overlay / "bin" / "python", os.X_OK)


def test_a_venv_without_a_bin_is_noted(tmp_path: Path) -> None:
    (tmp_path / "venv" / "inner").mkdir(parents=True)
    found = venv.find(str(tmp_path), str(tmp_path / "o"), "")
    assert found is not None and "no folder bin" in found.note
    assert venv.find(str(tmp_path / "venv"), str(tmp_path / "o"), "") is None

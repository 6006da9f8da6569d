"""What a program finds: its folder, its ports, its environment, its interpreter."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List

import pytest

from tests.executor.standin import Executor, Master, environment_of, free_span
from tony_core.protocol.messages import Ended, Noted, Prepare, Ready, Register, Start
from tony_core.protocol.messages import shared_reference as ref

SHOW = "python3 -c 'import json, os; print(json.dumps(dict(os.environ)))'"


def seen(master: Master, executor: Executor, session: int = 0, **fields: object) -> Dict[str, str]:
    """The environment that a program sees."""
    ended = master.run_program(SHOW, session, **fields)
    assert ended.exit_code == 0, ended
    return environment_of(executor.log("stdout").splitlines()[-1])


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
        master.heard.clear()
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


class TestPorts:
    def test_each_name_gets_its_own_below_the_ephemeral_range(
        self, master: Master, executor: Executor
    ) -> None:
        ready = master.prepare(ports=["main", "tensorboard", "third"])
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        assert len(set(ready.ports.values())) == 3
        assert all(1024 <= port < low for port in ready.ports.values())

    def test_the_range_that_is_given(self, master: Master, executor: Executor) -> None:
        span = free_span(2)
        ready = master.prepare(ports=["a", "b"], port_range=span)
        assert set(ready.ports.values()) == set(span)

    def test_a_range_that_is_full(self, master: Master, executor: Executor) -> None:
        master.expect(Register)
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
            master.send(Prepare("worker:0", 0, ["main"], port_range=[port, port]))
            ended = master.expect(Ended)
        assert ended.cause == "port-range-full"
        assert f"no port of tony.task.port-range ({port}-{port}) is free" in ended.message
        assert "0 held for tasks of TonY, 1 in use otherwise" in ended.message

    def test_a_range_that_is_full_of_our_own(
        self, master: Master, launch: Callable[..., Executor]
    ) -> None:
        other = Master()
        try:
            for number, each in enumerate((master, other)):
                launch(master=each.address, name=f"container_{number}")
            span = free_span(2)
            master.prepare(ports=["a", "b"], port_range=span)
            other.expect(Register)
            other.send(Prepare("worker:1", 0, ["main"], port_range=span))
            ended = other.expect(Ended)
        finally:
            other.close()
        assert ended.cause == "port-range-full"
        assert "2 held for tasks of TonY, 0 in use otherwise" in ended.message

    def test_a_range_that_is_too_small_for_one_task(
        self, master: Master, executor: Executor
    ) -> None:
        master.expect(Register)
        master.send(Prepare("worker:0", 0, ["a", "b"], port_range=free_span(1)))
        ended = master.expect(Ended)
        assert ended.cause == "port-range-full"
        assert "the task needs 2, and held 1 of them" in ended.message

    def test_two_executors_never_get_the_same(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        other = Master()
        try:
            for number, each in enumerate((master, other)):
                launch(master=each.address, name=f"container_{number}")
            first, last = span = free_span(20)
            names = [str(number) for number in range(10)]
            mine = master.prepare(ports=names, port_range=span).ports
            others = other.prepare(ports=names, port_range=span).ports
            assert set(mine.values()) | set(others.values()) == set(range(first, last + 1))
        finally:
            other.close()

    @pytest.mark.parametrize("options", [[2], [15], [2, 15]], ids=["addr", "port", "both"])
    @pytest.mark.parametrize("address", ["", "127.0.0.1", "::"])
    def test_a_program_binds_a_port_that_is_held(
        self, master: Master, executor: Executor, options: list, address: str
    ) -> None:
        port = master.prepare().ports["main"]
        master.start("sleep 60")
        family = socket.AF_INET6 if address == "::" else socket.AF_INET
        try:
            sock = socket.socket(family)
        except OSError:
            pytest.skip("no IPv6 here")
        with sock:
            for option in options:
                sock.setsockopt(socket.SOL_SOCKET, option, 1)
            sock.bind((address, port))
            sock.listen()

    def test_nobody_else_takes_a_port_that_is_held(
        self, master: Master, executor: Executor
    ) -> None:
        port = master.prepare().ports["main"]
        with socket.socket() as sock, pytest.raises(OSError, match="in use"):
            sock.bind(("", port))

    def test_one_that_cannot_be_shared_is_released(
        self, master: Master, executor: Executor
    ) -> None:
        ready = master.prepare(ports=["main", "kept"])
        for name, works in (("main", True), ("kept", False)):
            code = f"import socket; socket.socket().bind(('', {ready.ports[name]}))"
            script = f'python3 -c "{code}" 2>/dev/null && echo {name}-{works}'
            executor.work.joinpath(f"{name}.sh").write_text(script)
        master.send(
            Start(
                0,
                f"bash {executor.work}/main.sh; bash {executor.work}/kept.sh; true",
                {},
                release_ports=["main"],
            )
        )
        master.expect(Ended)
        assert executor.log("stdout") == "main-True\n"


class TestEnvironment:
    def test_small_and_clean(self, master: Master, launch: Callable[..., Executor]) -> None:
        executor = launch(
            env={
                "MALLOC_ARENA_MAX": "4",
                "LD_LIBRARY_PATH": "/opt/cuda",
                "CUDA_VISIBLE_DEVICES": "1",
                "RANDOM_OF_THE_SITE": "1",
                "TONY_SUCCESSOR": '["/bin/false"]',
                "TONY_MASTER_FILE": "/nowhere",
                "AWS_SECRET": "x",
            }
        )
        env = seen(master, executor, env={"JOB_NAME": "worker", "TONY_SECRET_FILE": "/etc/x"})
        assert env["JOB_NAME"] == "worker"
        assert env["LD_LIBRARY_PATH"] == "/opt/cuda"
        assert env["CUDA_VISIBLE_DEVICES"] == "1"
        assert env["PYTHONUNBUFFERED"] == "1"
        assert env["PWD"].endswith("/work/session-0")
        assert {name for name in env if name.startswith("TONY_")} == {
            "TONY_REPORT_FILE",
            "TONY_CACHE_DIR",
        }
        assert not {"MALLOC_ARENA_MAX", "RANDOM_OF_THE_SITE", "AWS_SECRET"} & set(env)

    def test_a_home_that_cannot_be_written_is_no_home(
        self, master: Master, launch: Callable[..., Executor]
    ) -> None:
        executor = launch(env={"HOME": "/nowhere/"})
        assert seen(master, executor)["HOME"] == str(executor.work)

    def test_shared_texts_are_put_in(self, master: Master, executor: Executor) -> None:
        env = seen(
            master,
            executor,
            env={"CLUSTER_SPEC": ref("spec"), "TF_CONFIG": f'{{"cluster": {ref("spec")}, "i": 1}}'},
            shared={"spec": '{"worker": ["a:1"]}'},
        )
        assert env["CLUSTER_SPEC"] == '{"worker": ["a:1"]}'
        assert json.loads(env["TF_CONFIG"]) == {"cluster": {"worker": ["a:1"]}, "i": 1}

    def test_the_master_may_unset_and_the_user_may_keep(
        self, master: Master, launch: Callable[..., Executor]
    ) -> None:
        executor = launch(env={"LANG": "C.UTF-8", "TZ": "UTC"})
        env = seen(
            master,
            executor,
            env={"MALLOC_ARENA_MAX": "2", "PYTHONUNBUFFERED": ""},
            unset=["TZ", "MALLOC_ARENA_MAX"],
        )
        assert env["LANG"] == "C.UTF-8"
        assert "TZ" not in env
        assert env["MALLOC_ARENA_MAX"] == "2"
        assert env["PYTHONUNBUFFERED"] == ""

    def test_tony_can_be_imported_and_nothing_else_of_ours(
        self, master: Master, executor: Executor
    ) -> None:
        code = (
            "import tony, importlib.util as u\n"
            "print(tony.__file__)\n"
            "print([n for n in ('tony_core', 'tony_executor') if u.find_spec(n)])"
        )
        (executor.work / "probe.py").write_text(code)
        master.run_program(
            f"/usr/bin/env -u VIRTUAL_ENV {sys.base_prefix}/bin/python3 probe.py",
            env={"PYTHONPATH": "/theirs"},
        )
        lines = executor.log("stdout").splitlines()
        assert lines[0].endswith("/tony-runtime/program/tony.py")
        assert lines[1] == "[]"

    def test_the_users_own_python_path_follows(self, master: Master, executor: Executor) -> None:
        env = seen(master, executor, env={"PYTHONPATH": "/theirs:/more"})
        first, rest = env["PYTHONPATH"].split(":", 1)
        assert first.endswith("/program") and rest == "/theirs:/more"

    def test_signals_are_the_programs_own(self, master: Master, executor: Executor) -> None:
        master.run_program("cat /proc/self/status")
        status = dict(line.split(":", 1) for line in executor.log("stdout").splitlines())
        masks = {name: int(status[name], 16) for name in ("SigIgn", "SigBlk", "SigCgt")}
        assert masks == {"SigIgn": 0, "SigBlk": 0, "SigCgt": 0}

    def test_no_file_of_ours_is_open_in_it(self, master: Master, executor: Executor) -> None:
        master.run_program("ls -l /proc/self/fd")
        targets = [line.split(" -> ")[1] for line in executor.log("stdout").splitlines()[1:]]
        assert not [t for t in targets if "socket" in t or "pipe" in t or "eventpoll" in t]


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

    def test_a_node_without_that_version_says_so(self, master: Master, executor: Executor) -> None:
        self.make(executor, "/opt/away/bin", "3.99", "/opt/away/bin/python3.99")
        master.expect(Register)
        master.send(Prepare("worker:0", 0, ["main"]))
        ended = master.expect(Ended)
        assert ended.cause == "environment"
        assert "/opt/away/bin/python3.99" in ended.message
        assert "install Python 3.99 on the nodes" in ended.message


def test_the_host_is_the_node_or_the_way_to_the_master(
    master: Master, launch: Callable[..., Executor]
) -> None:
    launch(env={"TONY_NODE": "node7.example:8041"})
    assert master.expect(Register).host == "node7.example"
    other = Master()
    try:
        launch(master=other.address, name="container_2", env={"TONY_NODE": ""})
        assert other.expect(Register).host == "127.0.0.1"
    finally:
        other.close()


@pytest.mark.parametrize(
    ("env", "address", "words"),
    [
        ({"TONY_LOG_DIR": ""}, "127.0.0.1:1", "missing environment variables: TONY_LOG_DIR"),
        ({"TONY_SECRET_FILE": "/nowhere"}, "127.0.0.1:1", "TONY_SECRET_FILE /nowhere: No such"),
        ({"TONY_SECRET_FILE": "/dev/null"}, "127.0.0.1:1", "is empty"),
        ({"TONY_SUCCESSOR": "x"}, "127.0.0.1:1", "TONY_SUCCESSOR is not a JSON"),
        ({}, "nonsense", "--master: 'nonsense' is not host:port"),
    ],
)
def test_started_wrongly(
    launch: Callable[..., Executor], env: Dict[str, str], address: str, words: str
) -> None:
    executor = launch(master=address, env=env)
    assert executor.wait() == 64
    assert words in executor.errors()

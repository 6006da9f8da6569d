"""The variables, signals and descriptors that a program starts with."""

from __future__ import annotations

import json
import sys
from typing import Callable, Dict, Optional

import pytest

from tests.executor.standin import Executor, Master, environment_of
from tony_core.protocol.messages import shared_reference as ref
from tony_executor.launch.environment import base_environment

SHOW = "python3 -c 'import json, os; print(json.dumps(dict(os.environ)))'"


def seen(master: Master, executor: Executor, session: int = 0, **fields: object) -> Dict[str, str]:
    """The environment that a program sees."""
    ended = master.run_program(SHOW, session, **fields)
    assert ended.exit_code == 0, ended
    return environment_of(executor.log("stdout").splitlines()[-1])


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
            "TONY_PREEMPTION_FILE",
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


@pytest.mark.parametrize(("tokens", "found"), [("/c/.tony-tokens", "/c/.tony-tokens"), ("", None)])
def test_the_containers_credentials_stay_with_the_executor(
    tokens: str, found: Optional[str]
) -> None:
    container = {"HADOOP_TOKEN_FILE_LOCATION": "/c/container_tokens", "HADOOP_HOME": "/h"}
    env = base_environment({**container, "TONY_TOKEN_FILE": tokens})
    assert env.get("HADOOP_TOKEN_FILE_LOCATION") == found
    assert "TONY_TOKEN_FILE" not in env
    # Outside of YARN there is no such file, and the variable is the user's own.
    assert base_environment(container)["HADOOP_TOKEN_FILE_LOCATION"] == "/c/container_tokens"

"""CLASSPATH for libhdfs, with a stand-in for Hadoop's own script."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, List

import pytest

from tests.executor.standin import Executor, Master
from tony_core.protocol.messages import Ended, Noted, Prepare, Ready, Register, Start
from tony_executor.launch.hadoop_classpath import expand_classpath

SHOW = 'echo "$CLASSPATH|$HADOOP_CONF_DIR|$HADOOP_HOME"'


def install(folder: Path, body: str = 'echo "$HADOOP_CONF_DIR:/jars/a.jar:/jars/b.jar"') -> Path:
    """A Hadoop whose script counts its calls."""
    (folder / "bin").mkdir(parents=True)
    script = folder / "bin" / "hadoop"
    script.write_text(f'#!/bin/bash\necho "$@" >> {folder}/calls\n{body}\n')
    script.chmod(0o755)
    return folder


def shown(master: Master, executor: Executor, session: int = 0, **start: object) -> List[str]:
    master.send(Start(session, SHOW, start.pop("env", {}), **start))  # type: ignore[arg-type]
    assert master.expect(Ended, session=session).exit_code == 0
    return executor.log("stdout").splitlines()[-1].split("|")


class TestOnTheNode:
    @pytest.fixture
    def hadoop(self, tmp_path: Path) -> Path:
        return install(tmp_path / "hadoop")

    def environment(self, hadoop: Path, **more: str) -> dict:
        return {"PATH": f"{hadoop}/bin:/usr/bin:/bin", "HADOOP_CONF_DIR": "/etc/h", **more}

    def test_it_is_asked_once_for_all_sessions(
        self, master: Master, launch: Callable[..., Executor], hadoop: Path
    ) -> None:
        executor = launch(env=self.environment(hadoop))
        for session in (0, 1):
            master.prepare(session)
            assert shown(master, executor, session) == [
                "/etc/h:/jars/a.jar:/jars/b.jar",
                "/etc/h",
                "",
            ]
        assert (hadoop / "calls").read_text() == "classpath --glob\n"

    def test_the_jobs_own_classpath_comes_first(
        self, master: Master, launch: Callable[..., Executor], hadoop: Path
    ) -> None:
        executor = launch(env=self.environment(hadoop))
        master.prepare()
        env = {"CLASSPATH": "/mine.jar"}
        assert shown(master, executor, env=env)[0] == "/mine.jar:/etc/h:/jars/a.jar:/jars/b.jar"

    @pytest.mark.parametrize("how", ["container", "master", "start"])
    def test_it_can_be_turned_off(
        self, master: Master, launch: Callable[..., Executor], hadoop: Path, how: str
    ) -> None:
        more = {"SKIP_HADOOP_PATH": "true"} if how == "container" else {}
        executor = launch(env=self.environment(hadoop, **more))
        master.prepare(skip_hadoop=how == "master")
        env = {"SKIP_HADOOP_PATH": "true"} if how == "start" else {}
        assert shown(master, executor, env=env) == ["", "/etc/h", ""]
        assert (hadoop / "calls").exists() == (how == "start")

    def test_the_start_waits_for_it(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        gate = tmp_path / "gate"
        hadoop = install(
            tmp_path / "slow", f"until [ -e {gate} ]; do sleep 0.02; done; echo /a.jar"
        )
        executor = launch(env=self.environment(hadoop))
        master.prepare()  # the barrier does not
        master.send(Start(0, SHOW, {}))
        master.wait(0.1)
        assert not master.received(Ended)
        gate.touch()
        assert master.expect(Ended).exit_code == 0
        assert executor.log("stdout").startswith("/a.jar|")

    def test_a_stop_while_it_is_waited_for(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        hadoop = install(tmp_path / "slow", "exec sleep 300")
        launch(env=self.environment(hadoop))
        master.prepare()
        master.send(Start(0, SHOW, {}))
        assert master.stop().clean
        assert master.expect(Ended).cause == "stopped"

    def test_one_that_fails_is_no_reason_to_end(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        hadoop = install(tmp_path / "broken", "echo 'JAVA_HOME is not set' >&2; exit 1")
        executor = launch(env=self.environment(hadoop))
        master.prepare()
        assert shown(master, executor)[0] == ""
        assert "exit code 1" in executor.log("executor.log")
        assert "JAVA_HOME is not set" in executor.log("hadoop.log")
        assert not master.received(Noted)


class TestTheJobsOwn:
    def test_an_archive_and_configuration(self, master: Master, executor: Executor) -> None:
        work = executor.work
        install(work / ".tony-hadoop" / "hadoop-3.4.2")
        (work / ".tony-conf-hdfs").write_text("<configuration/>")
        (work / ".tony-conf-yarn").mkdir()
        (work / ".tony-conf-yarn" / "yarn-site.xml").write_text("<configuration/>")
        (work / ".tony-conf-yarn" / "core-site.xml").write_text("<configuration/>")
        master.prepare()
        conf = str(work / ".tony-hadoop-conf")
        assert shown(master, executor) == [
            f"{conf}:/jars/a.jar:/jars/b.jar",
            conf,
            str(work / ".tony-hadoop" / "hadoop-3.4.2"),
        ]
        assert sorted(os.listdir(conf)) == ["core-site.xml", "hdfs-site.xml", "yarn-site.xml"]
        assert not [name for name in os.listdir(work / "session-0") if "hadoop" in name]

    def test_a_class_path_inside_it(self, master: Master, executor: Executor) -> None:
        lib = executor.work / ".tony-hadoop" / "lib"
        lib.mkdir(parents=True)
        for name in ("b.jar", "a.jar", "notes.txt"):
            (lib / name).write_text("")
        master.expect(Register)
        master.send(Prepare("worker:0", 0, ["main"], hadoop_classpath="lib/*:etc"))
        master.expect(Ready)
        root = executor.work / ".tony-hadoop"
        assert shown(master, executor)[0] in (
            f"{root}/lib/a.jar:{root}/lib/b.jar",
            f"{lib}/a.jar:{lib}/b.jar",
        )

    def test_an_archive_without_the_script_is_a_warning(
        self, master: Master, executor: Executor
    ) -> None:
        (executor.work / ".tony-hadoop").mkdir()
        master.prepare()
        shown(master, executor)
        (noted,) = master.received(Noted)
        assert "holds no bin/hadoop" in noted.text


def test_the_parts_of_a_class_path(tmp_path: Path) -> None:
    names = ("one/a.jar", "one/b.jar", "two/c.jar")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = expand_classpath("one/*, two/c.jar:nowhere", str(tmp_path), "/conf")
    assert found.split(":") == [
        "/conf",
        *(f"{tmp_path}/{n}" for n in ("one/a.jar", "one/b.jar", "two/c.jar")),
    ]

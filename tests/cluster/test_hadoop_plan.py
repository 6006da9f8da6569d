"""What a cluster consists of, as far as that shows without starting one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Iterator, List

import pytest

from tests.cluster.hadoop import classes, jars, kerberos, native, sandbox
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.features import NAMES, complete, make_plan
from tests.cluster.hadoop.jars import Distribution, SandboxError
from tests.cluster.hadoop.plan import Plan, Ports
from tests.cluster.hadoop.site import read_site, write_site
from tests.importgraph import CHECKOUT


@pytest.fixture
def ports() -> Iterator[Ports]:
    made = Ports()
    yield made
    made.close()


def plan_of(folder: Path, ports: Ports, *features: str) -> Plan:
    distribution = Distribution("3.4.2", folder / "jars", folder / "java")
    (distribution.formatted / "current").mkdir(parents=True)
    (distribution.formatted / "current" / "VERSION").write_text("one")
    (distribution.formatted / "current" / "fsimage_0").write_text("image")
    (folder / "cluster").mkdir()
    return make_plan(Plan(folder / "cluster", distribution, ports, complete(features)))


class TestFeatures:
    def test_one_brings_along_what_it_needs_in_the_order_of_applying(self) -> None:
        assert complete(["indexed_logs", "labels"]) == [
            "two_nodes",
            "labels",
            "log_aggregation",
            "indexed_logs",
        ]

    def test_an_unknown_one_is_refused_with_those_there_are(self) -> None:
        with pytest.raises(SandboxError, match=r"no feature .gpus.; there are: two_nodes, .*gpu"):
            complete(["gpus"])

    def test_all_are_in_the_documentation(self) -> None:
        text = (CHECKOUT / "docs" / "hadoop-sandbox.md").read_text()
        assert [name for name in NAMES if f"`{name}`" not in text] == []

    def test_all_at_once_make_a_plan(
        self, tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "spark" / "bin").mkdir(parents=True)
        (tmp_path / "spark" / "bin" / "spark-submit").touch()
        monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
        plan = plan_of(tmp_path, ports, *NAMES)
        assert list(plan.daemons) == "kdc zk nn0 nn1 rm0 rm1 dn0 nm0 nm1 nm2".split()

    def test_spark_has_to_be_somewhere(
        self, tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SPARK_HOME", str(tmp_path))
        with pytest.raises(SandboxError, match=r"needs SPARK_HOME; .* has no bin/spark-submit"):
            plan_of(tmp_path, ports, "spark")

    def test_a_client_of_mapreduce_has_a_home_of_hadoop(self, tmp_path: Path, ports: Ports) -> None:
        (tmp_path / "jars" / "lib").mkdir(parents=True)
        (tmp_path / "jars" / "lib" / "hadoop-streaming-3.4.2.jar").touch()
        plan = plan_of(tmp_path, ports, "mapreduce")
        plan.write()
        home = Path(plan.description()["client"]["HADOOP_HOME"])
        assert os.access(home / "bin" / "hadoop", os.X_OK)
        assert list((home / "share" / "hadoop" / "tools" / "lib").glob("hadoop-streaming-*.jar"))
        done = subprocess.run([home / "bin" / "yarn", "rmadmin"], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "yarn: only these are here: application, logs\n"

    @pytest.mark.parametrize("features", [(), ("queues",), ("labels",), ("queues", "labels")])
    def test_the_shares_of_queues_are_whole(
        self, tmp_path: Path, ports: Ports, features: tuple[str, ...]
    ) -> None:
        site = plan_of(tmp_path, ports, *features).site("capacity-scheduler")
        prefix = "yarn.scheduler.capacity."

        def check(queue: str) -> None:
            names = site.get(f"{prefix}{queue}.queues", "")
            if not names:
                return
            children = [f"{queue}.{name}" for name in names.split(",")]
            assert sum(int(site[f"{prefix}{child}.capacity"]) for child in children) == 100
            if "labels" in features:
                label = "accessible-node-labels.gpu.capacity"
                shares = [int(site.get(f"{prefix}{child}.{label}", "0")) for child in children]
                assert sum(shares) in (0, 100)
            for child in children:
                check(child)

        check("root")


class TestWriting:
    def test_a_daemon_reads_its_own_files_with_what_all_have(
        self, tmp_path: Path, ports: Ports
    ) -> None:
        plan = plan_of(tmp_path, ports, "two_nodes")
        plan.write()
        shared = read_site(plan.folder / "conf" / "yarn-site.xml")
        own = read_site(plan.folder / "conf.d" / "nm1" / "yarn-site.xml")
        assert shared.items() <= own.items()
        assert own["yarn.nodemanager.hostname"] == "127.0.0.2"
        assert "yarn.nodemanager.hostname" not in shared

    def test_two_name_nodes_share_edits_and_no_image(self, tmp_path: Path, ports: Ports) -> None:
        plan = plan_of(tmp_path, ports, "nn_ha")
        plan.write()
        assert [path.name for path in plan.data("edits").glob("*/*")] == ["VERSION"]
        assert (plan.data("nn1") / "name" / "current" / "fsimage_0").is_file()

    def test_a_virtual_environment_around_us_is_not_on_the_nodes(
        self, tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("VIRTUAL_ENV", "/venv")
        monkeypatch.setenv("PATH", "/venv/bin:/usr/bin:/bin")
        monkeypatch.setenv("TONY_SOMETHING", "ours")
        environment = plan_of(tmp_path, ports).description()["environment"]
        assert environment["PATH"] == "/usr/bin:/bin"
        assert "TONY_SOMETHING" not in environment

    def test_values_are_text_and_not_xml(self, tmp_path: Path) -> None:
        written = {"a": "<&>\"'", "b": "/path with spaces/ü", "c": ""}
        write_site(tmp_path / "site.xml", written)
        assert read_site(tmp_path / "site.xml") == written


class TestSecure:
    def test_a_key_server_starts_first_and_nodes_come_in_two(
        self, tmp_path: Path, ports: Ports
    ) -> None:
        plan = plan_of(tmp_path, ports, "secure", "queues")
        assert list(plan.daemons) == "kdc nn0 rm0 dn0 nm0 nm1".split()
        assert f"KRB5_KDC_PROFILE={plan.folder}/kerberos/kdc.conf" in plan.command(
            plan.daemons["kdc"]
        )
        assert plan.site("yarn-site")["yarn.admin.acl"] == "admin,yarn-admin"
        flag = f"-Djava.security.krb5.conf={plan.folder}/kerberos/krb5.conf"
        for name in ("nn0", "rm0", "dn0", "nm0", "nm1"):
            assert flag in plan.command(plan.daemons[name])
        assert plan.description()["flags"] == [flag]

    @pytest.mark.parametrize(
        "features, chosen",
        [((), "authentication,privacy"), (("privacy",), "privacy"), (("integrity",), "integrity")],
    )
    def test_a_protection_beside_it_is_the_only_one(
        self, tmp_path: Path, ports: Ports, features: tuple[str, ...], chosen: str
    ) -> None:
        plan = plan_of(tmp_path, ports, "secure", *features)
        assert plan.site("core-site")["hadoop.rpc.protection"] == chosen

    def test_what_is_missing_is_named_and_nothing_is_left(
        self, tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        distribution = plan_of(tmp_path, ports).distribution
        monkeypatch.setattr(kerberos, "find_program", lambda name: name)
        for _ in range(2):
            with pytest.raises(SandboxError, match=r"not found: krb5kdc, .*install krb5-kdc"):
                Hadoop.up(tmp_path / "new", ["secure"], jars=distribution)
        assert not (tmp_path / "new").exists()

    def test_an_open_cluster_has_no_users(
        self, tmp_path: Path, ports: Ports, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = plan_of(tmp_path, ports)
        plan.write()
        assert sandbox.main(["--folder", str(plan.folder), "env", "--user", "bob"]) == 1
        assert "only a secure cluster has users" in capsys.readouterr().err


class TestPorts:
    def test_a_port_goes_only_to_a_server_that_reuses_the_address(self, ports: Ports) -> None:
        port = ports.take()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port))
            server.listen()

    def test_all_are_different(self, ports: Ports) -> None:
        assert len({ports.take() for _ in range(200)}) == 200


class TestJava:
    @staticmethod
    def home(folder: Path, version: str) -> Path:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "java").touch(mode=0o755)
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
        return folder

    def test_the_one_that_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TONY_JAVA_HOME", str(self.home(tmp_path / "17", "17.0.1")))
        assert jars.find_java() == tmp_path / "17"

    def test_one_too_new_is_not_taken(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TONY_JAVA_HOME", str(self.home(tmp_path / "25", "25.0.1")))
        monkeypatch.setenv("JAVA_HOME", str(self.home(tmp_path / "17", "17.0.1")))
        assert jars.find_java() == tmp_path / "17"


class TestCommand:
    def test_a_missing_cluster_is_reported(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for verb in ("status", "down", "env"):
            assert sandbox.main(["--folder", str(tmp_path), verb]) == 1
            assert f"there is no cluster in {tmp_path}" in capsys.readouterr().err

    def test_a_cluster_that_is_down_is_reported(
        self, tmp_path: Path, ports: Ports, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = plan_of(tmp_path, ports)
        plan.write()
        assert sandbox.main(["--folder", str(plan.folder), "status"]) == 1
        assert "is not up" in capsys.readouterr().err
        assert json.loads((plan.folder / "cluster.json").read_text())["version"] == "3.4.2"

    def test_a_folder_with_other_things_is_not_overwritten(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "mine").touch()
        assert sandbox.main(["--folder", str(tmp_path), "up"]) == 1
        assert "has other things in it" in capsys.readouterr().err
        assert (tmp_path / "mine").exists()

    def test_a_folder_that_hadoop_cannot_spell_is_refused(self, tmp_path: Path) -> None:
        distribution = Distribution("3.4.2", tmp_path / "jars", tmp_path / "java")
        for name in ("with space", "a,b", "ü"):
            with pytest.raises(SandboxError, match="letters, digits"):
                Hadoop.up(tmp_path / name, jars=distribution)
            assert not (tmp_path / name).exists()

    def test_a_version_that_is_none_is_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert sandbox.main(["--folder", str(tmp_path / "x"), "up", "--version", "3.x"]) == 1
        assert "'3.x' is no version of Hadoop; known to work: 3.4.2" in capsys.readouterr().err

    def test_the_features_are_listed_with_what_they_mean(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert sandbox.main(["features"]) == 0
        listed = capsys.readouterr().out
        assert all(name in listed for name in NAMES)


class TestArchive:
    """Of the jars' classes; without Java."""

    @staticmethod
    def distribution(folder: Path, version: str = "17.0.1") -> Distribution:
        home = TestJava.home(folder / "java", version)
        (home / "lib" / "server").mkdir(parents=True)
        (home / "lib" / "server" / "libjvm.so").touch()
        made = Distribution("3.4.2", folder / "key", home)
        made.lib.mkdir(parents=True)
        made.jar("hadoop-hdfs").write_text("jar")
        return made

    @staticmethod
    def name_of(distribution: Distribution) -> str:
        name = jars.archive_name(distribution)
        assert name is not None
        return name

    def test_a_daemon_starts_from_it_where_there_is_one(self, tmp_path: Path) -> None:
        distribution = self.distribution(tmp_path)
        path = tmp_path / f"{self.name_of(distribution)}-3.jsa"
        flag = f"-XX:SharedArchiveFile={path}"
        assert flag not in distribution.java([], "Main", heap_mb=1)
        path.write_text("all")
        assert flag in distribution.java([], "Main", heap_mb=1)
        path.write_text("al")  # Java might die of it
        assert flag not in distribution.java([], "Main", heap_mb=1)
        path.unlink()
        path.with_name(f"{path.name[:-6]}-{tmp_path.stat().st_size}.jsa").mkdir()
        assert "SharedArchive" not in str(distribution.java([], "Main", heap_mb=1))

    def test_the_jars_come_first_as_it_wants_them(self, tmp_path: Path, ports: Ports) -> None:
        plan = plan_of(tmp_path, ports, "mapreduce")
        jars_of_all = f"{plan.distribution.lib}/*"
        commands = [plan.command(daemon) for daemon in plan.daemons.values()]
        paths = [argv[argv.index("-classpath") + 1].split(":") for argv in commands]
        assert {tuple(path[:1]) for path in paths} == {(jars_of_all,)}
        assert paths[0][1:] == [
            str(plan.folder / name) for name in ("conf.d/nn0", "conf", "classes")
        ]
        assert f"-classpath '{jars_of_all}':\"$conf\"" in plan.programs["bin/hadoop"]

    def test_no_other_jars_and_no_other_java_find_it(self, tmp_path: Path) -> None:
        one, other = self.distribution(tmp_path / "1"), self.distribution(tmp_path / "2")
        seen = [self.name_of(one), self.name_of(other)]
        one.jar("hadoop-hdfs").write_text("other")
        seen.append(self.name_of(one))
        os.utime(one.jar("hadoop-hdfs"), (1, 1))
        seen.append(self.name_of(one))
        one.jar("hadoop-yarn").touch()
        seen.append(self.name_of(one))
        (one.java_home / "release").write_text('JAVA_VERSION="17.0.2"\n')
        seen.append(self.name_of(one))
        (one.java_home / "lib" / "server" / "libjvm.so").write_text("other")
        seen.append(self.name_of(one))
        assert len(set(seen)) == len(seen)
        assert self.name_of(one) == seen[-1]

    def test_an_older_java_has_none(self, tmp_path: Path) -> None:
        distribution = self.distribution(tmp_path, "11.0.2")
        assert jars.archive_name(distribution) is None
        with pytest.raises(SandboxError, match="Java 17 or newer"):
            classes.share(distribution)

    def test_jars_that_are_gone_have_none(self, tmp_path: Path) -> None:
        distribution = self.distribution(tmp_path)
        distribution.jar("hadoop-hdfs").unlink()
        distribution.lib.rmdir()
        assert jars.archive_name(distribution) is None

    def test_lists_become_one_without_half_lines(self) -> None:
        lists = ["# Note\njava/lang/Object\na/A\n", "java/lang/Object\na/B\n\na/C", ""]
        assert classes.merge(lists) == "java/lang/Object\na/A\na/B\n"

    def test_fetching_goes_well_when_it_cannot_be_made(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        found = self.distribution(tmp_path)  # this Java cannot even be run
        monkeypatch.setattr(sandbox, "distribution", lambda version: found)
        monkeypatch.setattr(native.platform, "machine", lambda: "abacus")
        assert sandbox.main(["fetch"]) == 0
        printed = capsys.readouterr()
        assert printed.out == f"{found.folder}\n"
        assert "daemons will start more slowly: " in printed.err
        assert "no cluster can be secure: " in printed.err
        assert "this machine is abacus" in printed.err
        assert [path.name for path in tmp_path.iterdir() if "classes" in path.name] == []

    def test_it_is_made_once_and_the_one_before_it_goes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        distribution = self.distribution(tmp_path)
        old = tmp_path / "key.classes-old.jsa"
        old.touch()
        ran = []

        def run(command: List[str], limit: float, *rest: object) -> None:
            ran.append(command)
            made = next(word for word in command if word.startswith("-XX:SharedArchiveFile="))
            Path(made.partition("=")[2]).write_text("archive")

        monkeypatch.setattr(classes, "run", run)
        monkeypatch.setattr(classes, "_watch", lambda *_: ["a/A\n"])
        path = classes.share(distribution)
        assert path.name == f"{self.name_of(distribution)}-7.jsa"
        assert classes.share(distribution) == path
        assert ["-Xshare:dump" in command for command in ran] == [True, False, False]
        assert ["-Xshare:on" in command for command in ran] == [False, True, True]
        assert sorted(one.name for one in tmp_path.iterdir()) == sorted(
            ["java", "key", "key.lock", path.name]
        )

    def test_one_that_java_does_not_take_is_thrown_away(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        distribution = self.distribution(tmp_path)
        (tmp_path / f"{self.name_of(distribution)}-0.jsa").touch()

        def run(command: List[str], *rest: object) -> None:
            if "-Xshare:on" in command:
                raise SandboxError("Unable to use shared archive.")
            made = next(word for word in command if word.startswith("-XX:SharedArchiveFile="))
            Path(made.partition("=")[2]).touch()

        monkeypatch.setattr(classes, "run", run)
        monkeypatch.setattr(classes, "_watch", lambda *_: ["a/A\n"])
        with pytest.raises(SandboxError, match="Unable"):
            classes.share(distribution)
        assert [one.name for one in tmp_path.iterdir() if "classes" in one.name] == []

    @pytest.mark.cluster
    @pytest.mark.parametrize("version", jars.VERSIONS)
    def test_java_takes_it_as_a_daemon_starts(
        self, tmp_path: Path, ports: Ports, version: str
    ) -> None:
        distribution = jars.distribution(version)
        if jars.archive_of(distribution) is None:
            pytest.skip(f"`bin/hadoop-sandbox fetch {version}` makes it")
        plan = make_plan(Plan(tmp_path, distribution, ports, complete(["rm_ha"])))
        plan.write()
        for daemon in plan.daemons.values():
            command = plan.command(daemon)
            start = command[: command.index(daemon.main)]
            subprocess.run([*start, "-Xshare:on", "-version"], check=True, timeout=60)

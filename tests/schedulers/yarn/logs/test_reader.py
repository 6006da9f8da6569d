"""A container's logs wherever they are: on the node, moving, moved, on a server, nowhere."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Sequence, Tuple

import pytest

from tests.hadoop.kerberos.handshakes import HandshakeServer, ScriptedLogin
from tests.hadoop.logs.logfiles import RECORDED, WRITTEN, recorded, tfile
from tests.schedulers.yarn.logs.standin_node import Node
from tony_core.files.local import LocalFileSystem
from tony_core.files.port import FileSystem, Stat
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.schedulers.port import LogRef, SchedulerError
from tony_core.schedulers.yarn.logs import reader as module
from tony_core.schedulers.yarn.logs.aggregated import StoredFile, StoredLogs
from tony_core.schedulers.yarn.logs.forgotten import ForgottenLogs
from tony_core.schedulers.yarn.logs.node_web import KnownNodes
from tony_core.schedulers.yarn.logs.reader import (
    YarnLogs,
    list_master_logs,
    parse_master_nodes,
    resolve_master_log,
)

APP = "application_1700000000000_0042"
CONTAINER = "container_1700000000000_0042_01_000002"
NODE = "somewhere:4545"


class Files(LocalFileSystem):
    """Local files, with a count of what is asked for, and trouble when it is asked for."""

    def __init__(self) -> None:
        self.opened: List[Tuple[str, int]] = []
        self.trouble: Dict[str, OSError] = {}

    def open(self, location: str, offset: int = 0) -> BinaryIO:
        self.opened.append((location, offset))
        return super().open(location, offset)

    def list(self, location: str) -> List[Stat]:
        for part, error in self.trouble.items():
            if part in location:
                raise error
        return super().list(location)


class World:
    """A site: where its nodes' files go, one node, and a reader."""

    def __init__(self, folder: Path, node: Node, **more: str) -> None:
        self.folder = folder
        self.node = node
        self.files = Files()
        values = {
            "fs.defaultFS": "file:///",
            "yarn.nodemanager.remote-app-log-dir": str(folder),
            "yarn.log-aggregation-enable": "true",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        self.conf = SiteConfiguration.of(values)
        self.logs = YarnLogs(self.conf, ClusterIdentity("me"), self._files_of, timeout_s=10)
        self.ref = (APP, CONTAINER, NODE, f"http://{node.address}/node/containerlogs/x/y", "owner")

    def _files_of(self, location: str) -> FileSystem:
        return self.files

    def write(self, data: bytes, where: str = "bucket-logs-tfile/0042", node: str = NODE) -> None:
        folder = self.folder / "owner" / where / APP
        folder.mkdir(parents=True, exist_ok=True)
        (folder / node.replace(":", "_")).write_bytes(data)

    def move(self, *, sizes: Sequence[int] = ()) -> None:
        """As a node does when the application has ended."""
        logs = list(self.node.containers[CONTAINER].items())
        self.write(tfile([[(CONTAINER, logs)]], sizes=sizes))
        del self.node.containers[CONTAINER]

    def read(self, name: str, offset: int = 0, limit: int = 1 << 20, **more: Any) -> bytes:
        return self.logs.read(*self.ref, name, offset, limit, **more)


@pytest.fixture
def node() -> Iterator[Node]:
    with Node() as node:
        node.containers[CONTAINER] = {"stdout": b"some text\n", "executor.log": b""}
        yield node


@pytest.fixture
def world(tmp_path: Path, node: Node) -> Iterator[World]:
    world = World(tmp_path, node)
    yield world
    world.logs.close()


class TestTheMove:
    def test_a_reader_by_offsets_notices_nothing(self, world: World, node: Node) -> None:
        chance = random.Random(5)
        text = chance.randbytes(300_000)
        found, written, moved = b"", 0, False
        while not moved or len(found) < len(text):
            if written < len(text):
                written += chance.randrange(30_000)
                node.containers[CONTAINER]["stdout"] = text[:written]
            elif not moved:
                world.move(sizes=[10_000] * 29)
                moved = True
            found += world.read("stdout", len(found), chance.randrange(1, 20_000))
        assert found == text
        assert world.read("stdout", len(found)) == b""
        assert world.logs.names(*world.ref) == ["executor.log", "stdout"]
        assert world.logs.size(*world.ref, "stdout") == len(text)

    def test_a_log_that_moves_between_two_looks(self, world: World, node: Node) -> None:
        """The node has removed its file and has not forgotten the container yet."""
        world.move()
        node.containers[CONTAINER] = {}
        assert world.read("stdout") == b"some text\n"

    def test_the_node_fails_in_the_middle(self, world: World, node: Node) -> None:
        world.move()
        node.override = 500, b"Exception reading log file. It might be because it was aggregated"
        assert world.read("stdout", 5) == b"text\n"

    def test_no_node_is_asked_twice(self, world: World, node: Node) -> None:
        world.move()
        world.read("stdout")
        requests, opened = len(node.requests), len(world.files.opened)
        assert world.read("stdout", 5) == b"text\n"
        assert world.read("nothing") == b""
        assert (len(node.requests), len(world.files.opened)) == (requests, opened)

    def test_the_end_of_an_application_is_waited_for(
        self, world: World, node: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "POLL_S", 0.01)
        looks = []

        def last_words(target: str) -> None:
            looks.append(target)
            if len(looks) == 3:
                node.containers[CONTAINER]["stdout"] += b"last words\n"

        node.before = last_words
        assert world.read("stdout", 10) == b""
        assert world.read("stdout", 10, ended=True) == b"last words\n"
        node.running = False
        assert world.read("stdout", 21, ended=True) == b""


class TestWhereTheFilesAre:
    @pytest.mark.parametrize(
        "where",
        [
            "bucket-logs-tfile/0042",
            "bucket-logs-ifile/0042",
            "logs-tfile",
            "logs-ifile",
            "logs",
        ],
    )
    def test_all_layouts_are_known(self, world: World, node: Node, where: str) -> None:
        del node.containers[CONTAINER]
        world.write(tfile([[(CONTAINER, [("stdout", b"here")])]]), where)
        assert world.read("stdout") == b"here"

    def test_a_sites_own_places(self, tmp_path: Path) -> None:
        conf = SiteConfiguration.of(
            {
                "fs.defaultFS": "hdfs://name:8020",
                "yarn.log-aggregation.file-formats": "IFile",
                "yarn.log-aggregation.IFile.remote-app-log-dir": "s3a://store/logs/",
                "yarn.log-aggregation.IFile.remote-app-log-dir-suffix": "mine",
                "yarn.nodemanager.remote-app-log-dir-suffix": "theirs",
            }
        )
        store = StoredLogs(conf, lambda location: LocalFileSystem())
        assert [place for _, place in store.places(APP, "me")] == [
            f"s3a://store/logs/me/bucket-mine/0042/{APP}",
            f"s3a://store/logs/me/mine/{APP}",
            f"hdfs://name:8020/tmp/logs/me/bucket-theirs-tfile/0042/{APP}",
            f"hdfs://name:8020/tmp/logs/me/theirs-tfile/{APP}",
            f"hdfs://name:8020/tmp/logs/me/theirs/{APP}",
        ]

    @pytest.mark.parametrize("name", RECORDED)
    def test_files_of_real_clusters(self, world: World, node: Node, name: str) -> None:
        app = str(RECORDED[name]["application"])
        folder = world.folder / "owner" / "logs" / app
        folder.mkdir(parents=True)
        (folder / "localhost_1234").write_bytes(recorded(name))
        for container in RECORDED[name]["containers"]:  # type: ignore[attr-defined]
            ref = (app, container, "localhost:1234", "", "owner")
            assert set(WRITTEN) <= set(world.logs.names(*ref))
            for log, text in WRITTEN.items():
                assert world.logs.read(*ref, log, 0, 1 << 23) == text
                assert world.logs.size(*ref, log) == len(text)

    def test_the_right_nodes_file_is_opened_first(self, world: World, node: Node) -> None:
        for name in ("aaa:1", "somewhere:1", "zzz:1"):
            world.write(tfile([[("container_other", [])]]), node=name)
        world.move()
        world.read("stdout")
        assert {location.rpartition("/")[2] for location, _ in world.files.opened} == {
            "somewhere_4545"
        }
        ref = (APP, CONTAINER, "unknown:9", "", "owner")
        assert world.logs.read(*ref, "stdout", 0, 4) == b"some"

    def test_what_was_uploaded_piece_by_piece(self, world: World, node: Node) -> None:
        del node.containers[CONTAINER]
        for number, text in enumerate([b"first ", b"second ", b"third"]):
            data = tfile([[(CONTAINER, [("stdout", text), (f"log.{number}", b"x")])]])
            world.write(data, node=f"{NODE}_{1700000000000 + number}")
        world.write(b"not whole", node=f"{NODE}.tmp")
        assert world.read("stdout", 3, 12) == b"first second third"[3:15]
        assert world.logs.names(*world.ref) == ["log.0", "log.1", "log.2", "stdout"]


class TestStoredFiles:
    def test_reading_on_opens_it_once(self, tmp_path: Path) -> None:
        data = random.Random(1).randbytes(1_000_000)
        (tmp_path / "file").write_bytes(data)
        files = Files()
        file = StoredFile(files, files.stat(str(tmp_path / "file")))
        found, at = b"", 0
        while at < len(data):
            found += file.read(at, 100_000)
            at += 100_000
        assert found == data
        assert len(files.opened) <= 2
        file.close()

    def test_small_pieces_are_kept(self, tmp_path: Path) -> None:
        data = random.Random(1).randbytes(200_000)
        (tmp_path / "file").write_bytes(data)
        files = Files()
        file = StoredFile(files, files.stat(str(tmp_path / "file")))
        for at in range(199_000, 200_000, 10):
            assert file.read(at, 10) == data[at : at + 10]
        assert file.read(65_530, 20) == data[65_530:65_550]
        assert len(files.opened) == 3


class TestWhatCannotBeHad:
    def gone(self, world: World) -> str:
        world.node.containers.clear()
        with pytest.raises(SchedulerError) as caught:
            world.read("stdout")
        return str(caught.value)

    def test_not_moved_yet(self, world: World) -> None:
        world.write(b"", node=f"{NODE}.tmp")
        reason = self.gone(world)
        assert "Unknown container" in reason
        assert "(those of 0 nodes are there)" in reason
        assert "try again in a moment" in reason

    def test_no_aggregation(self, tmp_path: Path, node: Node) -> None:
        world = World(tmp_path, node, **{"yarn_log-aggregation-enable": "false"})
        reason = self.gone(world)
        world.logs.close()
        assert "does not collect the logs of ended applications" in reason
        assert NODE in reason

    def test_no_permission(self, world: World) -> None:
        world.files.trouble["/owner/"] = PermissionError(13, "Permission denied", "/app-logs/owner")
        reason = self.gone(world)
        assert "me may not read the logs" in reason
        assert "ask owner" in reason

    def test_the_node_does_not_let_us(self, world: World, node: Node) -> None:
        node.override = 403, b"User [me] is not authorized to view the logs for application"
        with pytest.raises(SchedulerError, match="view ACLs"):
            world.read("stdout")

    def test_a_client_with_tokens_needs_a_ticket(self, world: World, node: Node) -> None:
        """The owner's access list has nothing to do with it."""
        node.override = 401, b"Authentication required"
        identity = ClusterIdentity("owner", tokens=Credentials())
        opened = YarnLogs(world.conf, identity, world._files_of, timeout_s=10)
        refusal = pytest.raises(SchedulerError, match=r"takes no delegation token.*use a ticket")
        with closing(opened) as logs, refusal as got:
            logs.read(*world.ref, "stdout", 0, 100)
        assert "may not see" not in str(got.value)

    def test_files_that_are_damaged(self, world: World) -> None:
        world.write(b"something else" * 10)
        reason = self.gone(world)
        assert "no TFile" in reason
        assert "somewhere_4545" in reason

    def test_hdfs_is_away(self, world: World) -> None:
        world.files.trouble["/owner/"] = OSError(113, "No route to host")
        assert "No route to host" in self.gone(world)

    def test_a_log_of_another_name_is_empty(self, world: World) -> None:
        assert world.read("nothing") == b""
        assert world.logs.size(*world.ref, "nothing") == 0

    @pytest.mark.parametrize("name", ["", "..", "../../etc/passwd"])
    def test_names_that_are_none(self, world: World, name: str) -> None:
        with pytest.raises(SchedulerError, match="not the name of a log"):
            world.read(name)


class TestTheLogServer:
    def test_it_is_the_last_resort(self, tmp_path: Path, node: Node) -> None:
        text = random.Random(1).randbytes(200_000)
        url = f"http://{node.address}/ws/v1/applicationhistory/"
        world = World(tmp_path, node, **{"yarn_log_server_web-service_url": url})
        node.containers[CONTAINER] = {"stdout": text}
        ref = (APP, CONTAINER, NODE, "http://127.0.0.1:1/", "owner")
        world.files.trouble["/owner/"] = PermissionError(13, "Permission denied", "/app-logs/owner")
        assert world.logs.names(*ref) == ["stdout"]
        assert world.logs.size(*ref, "stdout") == len(text)
        requests = len(node.requests)
        found = b""
        while len(found) < len(text):
            found += world.logs.read(*ref, "stdout", len(found), 30_000)
        assert found == text
        assert len(node.requests) == requests  # the answer with the size is read on
        assert world.logs.read(*ref, "stdout", 1000, 10) == text[1000:1010]
        assert world.logs.read(*ref, "stdout", len(text), 10) == b""
        assert world.logs.read(*ref, "nothing", 0, 10) == b""
        node.containers.clear()
        with pytest.raises(SchedulerError, match=r"may not read.*the log server .* answered 404"):
            world.logs.names(*ref)
        world.logs.close()


class TestForgedHistories:
    """Container, node and address are what the job's author wrote into its history."""

    @pytest.mark.parametrize(
        "container",
        [
            "container_1700000000000_0043_01_000002",
            "container_1700000000001_0042_01_000002",
            "container_e17_1700000000000_0043_01_000002",
            "../../1700000000000_0043/container_1700000000000_0042_01_000002",
            "",
        ],
    )
    def test_the_container_of_another_application(
        self, tmp_path: Path, node: Node, container: str
    ) -> None:
        """The reader may see both: a service is in the view lists of its users' jobs."""
        url = f"http://{node.address}/ws/v1/applicationhistory/"
        world = World(tmp_path, node, **{"yarn_log_server_web-service_url": url})
        node.containers[container] = {"stdout": b"ann's"}
        world.write(tfile([[(container, [("stdout", b"ann's")])]]))
        with closing(world.logs):
            for address in (world.ref[3], "http://127.0.0.1:1/"):
                ref = (APP, container, NODE, address, "owner")
                for call in (
                    lambda ref=ref: world.logs.names(*ref),
                    lambda ref=ref: world.logs.size(*ref, "stdout"),
                    lambda ref=ref: world.logs.read(*ref, "stdout", 0, 10),
                ):
                    with pytest.raises(SchedulerError, match=f"is no container of {APP}"):
                        call()
        assert (node.requests, world.files.opened) == ([], [])

    def test_one_after_a_restart_of_the_resource_manager(self, world: World, node: Node) -> None:
        container = CONTAINER.replace("container_", "container_e17_")
        node.containers[container] = {"stdout": b"text"}
        ref = (APP, container, NODE, f"http://{node.address}/", "owner")
        assert world.logs.read(*ref, "stdout", 0, 10) == b"text"

    def test_a_login_goes_to_the_clusters_nodes_only(self, tmp_path: Path, node: Node) -> None:
        values = {
            "hadoop_security_authentication": "kerberos",
            "hadoop_http_authentication_type": "kerberos",
            "yarn_resourcemanager_webapp_address": "127.0.0.1:1",
        }
        login, reports = ScriptedLogin(), []
        with HandshakeServer() as known, HandshakeServer() as forged:
            known.body = b'[{"containerLogInfo": [{"fileName": "stdout"}]}]'

            def report() -> List[str]:
                reports.append(1)
                return [known.address]

            world = World(tmp_path, node, **values)
            identity = ClusterIdentity("airflow", login)
            with closing(
                YarnLogs(world.conf, identity, world._files_of, nodes=report, timeout_s=10)
            ) as logs:
                for address in (known.address, f"http://{known.address}/node/containerlogs/x"):
                    assert logs.names(APP, CONTAINER, NODE, address, "bob") == ["stdout"]
                assert (len(known.greetings), len(reports)) == (1, 1)
                ref = (APP, CONTAINER, NODE, f"http://{forged.address}/node/x", "bob")
                for call in (
                    lambda: logs.names(*ref),
                    lambda: logs.size(*ref, "stdout"),
                    lambda: logs.read(*ref, "stdout", 0, 10),
                ):
                    with pytest.raises(SchedulerError, match=r"gets no login, for the cluster"):
                        call()
                world.write(tfile([[(CONTAINER, [("stdout", b"collected")])]]))
                folder = tmp_path / "owner"
                folder.rename(tmp_path / "bob")
                assert logs.read(*ref, "stdout", 0, 10) == b"collected"
            world.logs.close()
            assert (forged.connections, forged.requests) == (0, [])
        assert login.targets == ["HTTP/127.0.0.1"]
        assert len(reports) == 1

    def test_how_long_a_report_of_nodes_is_used(self) -> None:
        reports, now = [["One:8042"], ["one:8042", "two:8042"], ["two:8042"]], [0.0]
        nodes = KnownNodes(lambda: reports.pop(0), lambda: now[0])
        assert nodes.has("one", 8042)
        assert not nodes.has("two", 8042) and not nodes.has("one", 80)
        assert len(reports) == 2
        now[0] += 60
        assert nodes.has("two", 8042), "it has joined"
        now[0] += 599
        assert nodes.has("one", 8042)
        now[0] += 1
        assert not nodes.has("one", 8042)
        assert reports == []


class TestForgottenApplications:
    """The ResourceManager knows them no more, so only one user's own folder is looked at."""

    def reader(self, world: World, owner: str = "owner") -> ForgottenLogs:
        return ForgottenLogs(world.conf, world._files_of, owner)

    def test_what_is_in_its_owners_folder(self, world: World) -> None:
        world.move()
        with closing(self.reader(world)) as logs:
            ref = LogRef(CONTAINER)
            assert logs.list_logs(APP, ref) == ["executor.log", "stdout"]
            assert logs.read_log(APP, ref, "stdout", 5, 100) == b"text\n"
            assert logs.log_size(APP, ref, "stdout") == 10
            assert logs.read_log(APP, ref, "nothing", 0) == b""

    def test_another_users_folder_and_the_node_are_not_looked_at(
        self, world: World, node: Node
    ) -> None:
        with closing(self.reader(world)) as logs:
            ref = LogRef(CONTAINER, NODE, f"http://{node.address}/")
            with pytest.raises(SchedulerError, match="no aggregated logs of"):
                logs.read_log(APP, ref, "stdout", 0)
        assert node.requests == []
        world.move()
        with (
            closing(self.reader(world, "eve")) as logs,
            pytest.raises(SchedulerError, match="in eve's folder"),
        ):
            logs.read_log(APP, LogRef(CONTAINER), "stdout", 0)

    @pytest.mark.parametrize("owner", ["", ".", "..", "eve/../owner", "/owner"])
    def test_an_owner_that_is_no_users_name(self, world: World, owner: str) -> None:
        with pytest.raises(SchedulerError, match="is not the name of a user"):
            self.reader(world, owner)

    def test_the_container_of_another_application(self, world: World) -> None:
        other = CONTAINER.replace("_0042_", "_0043_")
        world.write(tfile([[(other, [("stdout", b"ann's")])]]))
        with (
            closing(self.reader(world)) as logs,
            pytest.raises(SchedulerError, match="is no container of"),
        ):
            logs.read_log(APP, LogRef(other), "stdout", 0)


class TestMasters:
    def test_one_that_has_ended_is_found_by_the_resource_manager(
        self, tmp_path: Path, node: Node
    ) -> None:
        attempt = {"containerId": CONTAINER, "nodeId": NODE, "nodeHttpAddress": node.address}
        world = World(tmp_path, node, yarn_resourcemanager_webapp_address=node.address)
        node.attempts = {"appAttempts": {"appAttempt": [{"containerId": ""}, attempt]}}
        for _ in range(2):
            assert world.logs.read(APP, CONTAINER, "", "", "me", "stdout", 0, 4) == b"some"
        assert sum("appattempts" in target for target in node.requests) == 1
        world.logs.close()

    @pytest.mark.parametrize(
        "report", [None, [], {"appAttempts": 1}, {"appAttempts": {"appAttempt": 2}}]
    )
    def test_unknown_addresses(self, report: object) -> None:
        assert parse_master_nodes(report) == {}

    def test_the_logs_of_all_of_them(self, world: World, node: Node) -> None:
        first, second = (f"container_1700000000000_0042_{n:02d}_000001" for n in (1, 2))
        node.containers[second] = {"stdout": b"2"}
        url = f"http://{node.address}/"
        masters = [LogRef(first, NODE, url), LogRef(second, NODE, url)]
        assert list_master_logs(world.logs, APP, masters, "owner") == ["master-2.stdout"]
        node.containers[first] = {"stdout": b"1", "stderr": b""}
        assert list_master_logs(world.logs, APP, masters, "owner") == [
            "master-1.stderr",
            "master-1.stdout",
            "master-2.stdout",
        ]
        assert resolve_master_log(masters, "master-1.stdout") == (masters[0], "stdout")
        assert resolve_master_log(masters, "stdout") == (masters[1], "stdout")
        node.containers.clear()
        with pytest.raises(SchedulerError):
            list_master_logs(world.logs, APP, masters, "owner")

"""Logs by the nodes' web service: what real ones said, and what follows from that."""

from __future__ import annotations

import json
import random
from typing import Iterator, List, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations
from tests.schedulers.yarn.logs.standin_node import RECORDED, Node, wrapped
from tony_core.hadoop.logs.datainput import FormatError
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.web import WebAccess, WebClient, WebResponse, WebUnreachable
from tony_core.schedulers.yarn.logs.log_server import LogServer
from tony_core.schedulers.yarn.logs.node_web import (
    LogsDenied,
    LogsUnavailable,
    NodeLogs,
    NoSuchLog,
    parse_log_names,
)
from tony_core.schedulers.yarn.logs.text import LogTextParser

CONTAINER = "container_1700000000000_0001_01_000002"
STDOUT = b"".join(b"%d\n" % number for number in range(1, 21)) + bytes(3)


@pytest.fixture
def node() -> Iterator[Node]:
    with Node() as node:
        node.containers[CONTAINER] = {"stdout": b"", "stderr": b"", "launch_container.sh": b"x"}
        yield node


@pytest.fixture
def logs() -> Iterator[NodeLogs]:
    web = WebClient(WebAccess("me"), timeout_s=10)
    logs = NodeLogs(web)
    yield logs
    logs.close()
    web.close()


def body(version: str, name: str) -> bytes:
    return str(RECORDED[version]["answers"][name]["body"]).encode("latin-1")


def shape(text: bytes) -> List[bytes]:
    """The lines, less what differs from log to log."""
    words = [line.split(b" on ")[0].split(b":")[0] for line in text.split(b"\n")]
    return [word.strip(b"=*") for word in words]


@pytest.mark.parametrize("version", RECORDED)
class TestRecordedAnswers:
    @pytest.mark.parametrize(
        ("name", "last", "begin", "text", "running"),
        [
            ("whole", None, 0, STDOUT, True),
            ("ended", None, 0, STDOUT, False),
            ("last 7", 7, len(STDOUT) - 7, STDOUT[-7:], True),
            ("empty", None, 0, b"", True),
            ("empty", 4096, 0, b"", True),
        ],
    )
    def test_a_log(
        self, version: str, name: str, last: int, begin: int, text: bytes, running: bool
    ) -> None:
        parser = LogTextParser(last)
        assert parser.feed(body(version, name)) == text
        assert parser.begin == begin
        assert parser.length == (0 if name == "empty" else len(STDOUT))
        assert parser.end() is running

    def test_every_cut_is_noticed(self, version: str) -> None:
        whole = body(version, "whole")
        for length in range(whole.index(b"End of")):
            parser = LogTextParser()
            parser.feed(whole[:length])
            with pytest.raises(FormatError):
                parser.end()

    @given(st.lists(st.integers(1, 40), max_size=60))
    def test_where_it_is_cut_into_pieces_does_not_matter(
        self, version: str, sizes: List[int]
    ) -> None:
        parser, rest, found = LogTextParser(), body(version, "whole"), b""
        for size in [*sizes, 1 << 20]:
            found += parser.feed(rest[:size])
            rest = rest[size:]
        assert found == STDOUT
        assert parser.end()

    def test_the_standin_answers_the_same(self, version: str) -> None:
        recorded = RECORDED[version]
        mine = wrapped(recorded["container"], "stdout", STDOUT, None, True)
        assert shape(mine) == shape(body(version, "whole"))

    def test_the_names(self, version: str) -> None:
        listing = json.loads(body(version, "names"))
        assert parse_log_names(listing) == ["empty", "prelaunch.err", "prelaunch.out", "stdout"]
        both = {"containerLogsInfo": [listing["containerLogsInfo"]] * 2}
        assert parse_log_names(both) == parse_log_names(listing)
        assert parse_log_names(None) == parse_log_names({"containerLogsInfo": "?"}) == []


@fuzz(data=mutations(*(body(v, "whole") for v in RECORDED)), last=st.none() | st.integers(0, 99))
def test_a_damaged_log_is_a_log_or_an_error(data: bytes, last: Optional[int]) -> None:
    parser = LogTextParser(last)
    try:
        for piece in (data[:100], data[100:]):
            assert len(parser.feed(piece)) <= len(data)
        parser.end()
    except FormatError:
        pass


DEEP = b"[" * 200_000


class Answered(WebResponse):
    """An answer that holds these bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, most: int) -> bytes:
        found, self.data = self.data[:most], self.data[most:]
        return found

    def close(self) -> None:
        pass


@fuzz(data=st.one_of(mutations(b'{"containerLogInfo": [{"fileName": "a"}]}', DEEP), st.binary()))
def test_any_list_of_logs(data: bytes) -> None:
    assert all(isinstance(name, str) for name in parse_log_names(Answered(data).json()))


@fuzz(
    data=mutations(*(body(v, "whole") for v in RECORDED)),
    offset=st.integers(0, 99),
    limit=st.integers(0, 99),
)
def test_any_answer_of_a_log_server_is_a_log_or_an_error(
    data: bytes, offset: int, limit: int
) -> None:
    class Canned(WebClient):
        def get(self, address: str, target: str, *, tls: bool = False) -> WebResponse:
            answer = Answered(data)
            answer.status = 200
            return answer

    conf = SiteConfiguration.of({"yarn.log.server.web-service.url": "http://h:1/ws"})
    server = LogServer(conf, Canned(WebAccess("me")))
    try:
        assert server.size(CONTAINER, "stdout") >= 0
        assert len(server.read(CONTAINER, "stdout", offset, limit)) <= limit
        server.names(CONTAINER)
    except (FormatError, LogsUnavailable):
        pass
    server.close()


@pytest.mark.parametrize(
    "address", ["\ud800:1", "a" * 64 + ".example:1", ".a:1", "[::1", "h:x", "h h:1", ""]
)
@pytest.mark.parametrize("tls", [False, True])
def test_no_name_of_a_host_is_more_than_unreachable(address: str, tls: bool) -> None:
    web = WebClient(WebAccess("me"), timeout_s=1)
    with pytest.raises(WebUnreachable):
        web.get(address, "/x", tls=tls)
    with pytest.raises(WebUnreachable):
        web.get("127.0.0.1:1", "/\u20ac x", tls=tls)
    web.close()


@fuzz(data=st.binary(max_size=300), last=st.none() | st.integers(0, 99))
def test_anything_else_is_no_log(data: bytes, last: Optional[int]) -> None:
    parser = LogTextParser(last)
    with pytest.raises(FormatError):
        parser.feed(data)
        parser.end()


@pytest.mark.parametrize("cut", [0, 1, 5, 16, 40])
def test_an_empty_log_of_hadoop_2_10_has_no_head(cut: int) -> None:
    answer = b"End of LogType:stderr.\n" + b"*" * 71 + b"\n"
    parser = LogTextParser(4096)
    assert parser.feed(answer[:cut]) + parser.feed(answer[cut:]) == b""
    assert (parser.length, parser.begin, parser.end()) == (0, 0, False)


def test_a_head_without_end_is_given_up() -> None:
    parser = LogTextParser()
    with pytest.raises(FormatError, match="does not end"):
        for _ in range(1000):
            parser.feed(b"Container: x" * 100)


class TestReading:
    def test_a_log_is_asked_for_once(self, node: Node, logs: NodeLogs) -> None:
        text = random.Random(1).randbytes(1_000_000)
        node.containers[CONTAINER]["stdout"] = text
        found = b""
        while len(found) < len(text):
            found += logs.read(node.address, CONTAINER, "stdout", len(found), 70_000)
        assert found == text
        assert len(node.requests) == 1

    def test_only_what_was_added_is_requested(self, node: Node, logs: NodeLogs) -> None:
        text = random.Random(1).randbytes(1_000_000)
        node.containers[CONTAINER]["stdout"] = text
        assert len(logs.read(node.address, CONTAINER, "stdout", 0, 1 << 21)) == len(text)
        node.sent = 0
        for number in range(5):
            at = len(node.containers[CONTAINER]["stdout"])
            assert logs.read(node.address, CONTAINER, "stdout", at, 100) == b""
            node.containers[CONTAINER]["stdout"] += b"%d\n" % number
            assert logs.read(node.address, CONTAINER, "stdout", at, 100) == b"%d\n" % number
        assert node.sent < 80_000

    def test_any_place_is_right_however_it_grows(self, node: Node, logs: NodeLogs) -> None:
        chance = random.Random(2)
        whole = chance.randbytes(400_000)
        length = 1000

        def grow(target: str) -> None:
            nonlocal length
            length = min(len(whole), length + chance.randrange(20_000))
            node.containers[CONTAINER]["stdout"] = whole[:length]

        node.before = grow
        for _ in range(60):
            at = chance.randrange(length + 1000)
            before = length
            data = logs.read(node.address, CONTAINER, "stdout", at, chance.randrange(1, 50_000))
            assert data == whole[at : at + len(data)]
            assert data or at >= before

    def test_the_end_is_read_without_what_is_before(self, node: Node, logs: NodeLogs) -> None:
        text = random.Random(3).randbytes(3_000_000)
        node.containers[CONTAINER]["stdout"] = text
        assert logs.size(node.address, CONTAINER, "stdout") == len(text)
        assert logs.read(node.address, CONTAINER, "stdout", len(text) - 100, 1000) == text[-100:]
        assert node.sent < 50_000

    def test_a_log_that_was_cut_shorter_has_nothing_there(self, node: Node, logs: NodeLogs) -> None:
        node.containers[CONTAINER]["stdout"] = b"0123456789"
        assert logs.read(node.address, CONTAINER, "stdout", 0, 100) == b"0123456789"
        node.containers[CONTAINER]["stdout"] = b"01"
        assert logs.read(node.address, CONTAINER, "stdout", 10, 100) == b""

    def test_whether_the_container_runs_is_known_at_the_end(
        self, node: Node, logs: NodeLogs
    ) -> None:
        node.containers[CONTAINER]["stdout"] = b"text"
        logs.read(node.address, CONTAINER, "stdout", 4, 10)
        assert logs.running
        node.running = False
        logs.read(node.address, CONTAINER, "stdout", 4, 10)
        assert not logs.running


class TestWhatIsNotThere:
    def test_another_name(self, node: Node, logs: NodeLogs) -> None:
        with pytest.raises(NoSuchLog):
            logs.read(node.address, CONTAINER, "a b/c", 0, 10)
        assert "/a%20b%2Fc?" in node.requests[-1]

    def test_another_container(self, node: Node, logs: NodeLogs) -> None:
        with pytest.raises(LogsUnavailable, match="Unknown container"):
            logs.names(node.address, "container_1_0001_01_000001")

    def test_a_node_that_is_gone(self, logs: NodeLogs) -> None:
        with pytest.raises(LogsUnavailable, match=r"127\.0\.0\.1:1 cannot be asked"):
            logs.read("127.0.0.1:1", CONTAINER, "stdout", 0, 10)

    def test_a_log_of_another_user(self, node: Node, logs: NodeLogs) -> None:
        node.override = 403, b"User [me] is not authorized to view the logs"
        with pytest.raises(LogsDenied, match="not authorized"):
            logs.names(node.address, CONTAINER)

    @pytest.mark.parametrize(
        "answer", [b"", b"<html>", b"Container: x\nLogLength:9\nLogContents:\n1"]
    )
    def test_something_else_answers(self, node: Node, logs: NodeLogs, answer: bytes) -> None:
        node.override = 200, answer
        with pytest.raises((FormatError, LogsUnavailable)):
            logs.read(node.address, CONTAINER, "stdout", 0, 10)
            logs.read(node.address, CONTAINER, "stdout", 1, 10)

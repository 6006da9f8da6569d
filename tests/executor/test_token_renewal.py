"""Fresh tokens at an executor: whose it takes, in which order, and how the file is replaced."""

from __future__ import annotations

import binascii
import shutil
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.executor.standin import CHECKOUT, SECRET, Executor, Master
from tests.executor.test_machine import WHO, Story, welcome
from tony_core.client import tls_key_pair
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.tokens import HDFS_DELEGATION, Token
from tony_core.protocol.messages import Ended, Noted, Tokens
from tony_executor import commands as do
from tony_executor import events as ev
from tony_executor.machine import ExecutorMachine
from tony_executor.token_renewal import RETRY_S

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")


def a_file(number: int, size: int = 10) -> bytes:
    password = b"%d" % number * size
    return Credentials({"t": Token(b"id", password, HDFS_DELEGATION, "ha-hdfs:ns")}).encode()


def tokens(content: bytes) -> Tokens:
    return Tokens(binascii.b2a_base64(content, newline=False).decode())


def written(out: List[do.Command]) -> List[bytes]:
    return [command.content for command in out if isinstance(command, do.WriteTokens)]


@pytest.fixture
def story() -> Story:
    return Story().linked()


class TestMachine:
    def test_they_are_written_once(self, story: Story) -> None:
        assert written(story.receive(tokens(a_file(1)))) == [a_file(1)]
        assert written(story.receive(tokens(a_file(1)))) == []
        assert written(story.receive(tokens(a_file(2)))) == [a_file(2)]
        assert not story.sent(Noted)

    def test_a_failed_write_is_tried_again(self, story: Story) -> None:
        story.receive(tokens(a_file(1)))
        story(ev.TokensNotWritten(0, "No space left on device"))
        (note,) = story.sent(Noted)
        assert note.level == "warning" and "No space left on device" in note.text
        assert written(story.later(RETRY_S - 1)) == []
        assert written(story.later(1)) == [a_file(1)]
        story(ev.TokensNotWritten(0, "No space left on device"))
        assert written(story.receive(tokens(a_file(2)))) == [a_file(2)]
        assert written(story.later(10 * RETRY_S)) == [], "the newer ones are there"

    def test_a_former_master_is_not_obeyed(self, story: Story) -> None:
        story.linked(link=2, attempt=2)
        assert written(story.receive(tokens(a_file(1)), link=1)) == []
        assert written(story.receive(tokens(a_file(2)), link=2)) == [a_file(2)]

    def test_nor_is_a_peer_before_its_welcome(self) -> None:
        story = Story()
        story(ev.LinkOpened(0, 1))
        assert written(story.receive(tokens(a_file(1)))) == []

    @pytest.mark.parametrize("content", ["", "?", "AAAA", "SERUUw==="[:7]])
    def test_what_is_no_credentials_file_is_refused(self, story: Story, content: str) -> None:
        assert written(story.receive(Tokens(content))) == []
        assert "no credentials file" in story.sent(Noted)[0].text

    def test_no_tls_no_tokens(self) -> None:
        story = Story()
        story.machine = ExecutorMachine(WHO, 100.0, "the connection is not encrypted")
        story(ev.ExecutorStarted(0.0))
        story.linked()
        assert written(story.receive(tokens(a_file(1)))) == []
        assert "the connection is not encrypted" in story.sent(Noted)[0].text
        assert story.machine.master.link == 1, "the master is obeyed all the same"

    def test_no_repr_shows_them(self) -> None:
        message = tokens(a_file(1))
        assert message.content not in repr(message)
        assert "HDTS" not in repr(do.WriteTokens(a_file(1)))


class TokenOrder(RuleBasedStateMachine):
    """Masters come and go, writes fail: the file becomes what the newest master sent last."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Story()
        self.links: Dict[int, int] = {}  # open link -> the attempt that welcomed us there
        self.count = 0
        self.wanted = self.file = b""
        self.is_full = False

    def watch(self, out: List[Any]) -> None:
        """What the shell does with the machine's commands, on a disk that may be full."""
        for content in written(out):
            if self.is_full:
                self.watch(self.story(ev.TokensNotWritten(0, "full")))
            else:
                self.file = content
        for command in out:
            if isinstance(command, do.CloseLink):
                self.links.pop(command.link, None)

    @rule(attempt=st.integers(1, 3))
    def a_master_connects(self, attempt: int) -> None:
        self.count += 1
        self.links[self.count] = attempt
        self.watch(self.story(ev.LinkOpened(0, self.count)))
        self.watch(self.story.receive(welcome(attempt, master_lost_s=1e9), self.count))

    @precondition(lambda self: self.links)
    @rule(data=st.data(), number=st.integers(0, 3))
    def one_sends_tokens(self, data: Any, number: int) -> None:
        link = data.draw(st.sampled_from(sorted(self.links)))
        if link == self.story.machine.master.link:
            self.wanted = a_file(number)
        self.watch(self.story.receive(tokens(a_file(number)), link))

    @precondition(lambda self: self.links)
    @rule(data=st.data())
    def a_link_breaks(self, data: Any) -> None:
        link = data.draw(st.sampled_from(sorted(self.links)))
        del self.links[link]
        self.watch(self.story(ev.LinkClosed(0, link, "broken")))

    @rule(is_full=st.booleans())
    def the_disk_changes(self, is_full: bool) -> None:
        self.is_full = is_full

    @rule()
    def time_passes(self) -> None:
        self.watch(self.story.later(RETRY_S))
        assert self.is_full or self.file == self.wanted

    @invariant()
    def nothing_else_is_written(self) -> None:
        retries = self.story.machine._tokens.retry_at is not None
        assert self.file == self.wanted or retries


TestTokenOrder = TokenOrder.TestCase


# ------------------------------------------------------------------ real executors


@pytest.fixture(scope="module")
def secret() -> bytes:
    return tls_key_pair.with_tls(SECRET[:32].ljust(32, b"."))


@pytest.fixture
def held(tmp_path: Path) -> Path:
    path = tmp_path / "held" / ".tony-tokens"
    path.parent.mkdir()
    Credentials().write(str(path))
    return path


@pytest.fixture
def secured(secret: bytes) -> Iterator[Master]:
    made = Master(secret=secret)
    yield made
    made.close()


# Reads its token file all the time; a part of one would not parse.
READER = """
import os, sys, time
sys.path[:0] = [os.environ["CHECKOUT"]]
from tony_core.files.webhdfs.token_file import parse
path, seen = os.environ["HADOOP_TOKEN_FILE_LOCATION"], set()
while not os.path.exists("stop"):
    tokens, _ = parse(open(path, "rb").read())
    for token in tokens:
        assert len(set(token.password)) == 1 and len(token.password) == 100000, "torn"
        seen.add(token.password[:1])
open("seen", "w").write(b"".join(sorted(seen)).decode())
"""


@needs_openssl
def test_a_program_never_reads_a_torn_file(
    tmp_path: Path, secured: Master, secret: bytes, held: Path
) -> None:
    env = {"TONY_TOKEN_FILE": str(held)}
    executor = Executor(tmp_path, secured.address, secret=secret, env=env)
    try:
        secured.prepare()
        (tmp_path / "reader.py").write_text(READER)
        stop = f"cd {tmp_path} && exec python3 {tmp_path / 'reader.py'}"
        secured.start(stop, env={"CHECKOUT": str(CHECKOUT)})
        for number in range(60):
            secured.send(tokens(a_file(number % 10, 100_000)))
            secured.wait(0.01)
        last = a_file(9, 100_000)
        secured.until(lambda: held.read_bytes() == last)
        secured.wait(0.2)
        assert held.stat().st_mode & 0o777 == 0o600
        (tmp_path / "stop").touch()
        ended = secured.expect(Ended)
        assert ended.exit_code == 0, ended
        assert (tmp_path / "seen").read_text().endswith("9")
        assert [path.name for path in held.parent.iterdir()] == [held.name]
        assert "1" * 50 not in executor.log("executor.log")
        assert secured.shut_down(executor) == 0
    finally:
        executor.close()


def test_tokens_over_an_open_connection_are_refused(tmp_path: Path, held: Path) -> None:
    master = Master()
    executor = Executor(tmp_path, master.address, env={"TONY_TOKEN_FILE": str(held)})
    before = held.read_bytes()
    try:
        master.prepare()
        master.send(tokens(a_file(1)))
        note = master.expect(Noted)
        assert "not encrypted (tony.task.tls)" in note.text and note.level == "warning"
        assert held.read_bytes() == before
        assert master.shut_down(executor) == 0
    finally:
        executor.close()
        master.close()


@needs_openssl
def test_a_container_without_a_token_file_refuses_them(
    tmp_path: Path, secured: Master, secret: bytes
) -> None:
    executor = Executor(tmp_path, secured.address, secret=secret, env={"TONY_TOKEN_FILE": ""})
    try:
        secured.prepare()
        secured.send(tokens(a_file(1)))
        assert "has no token file" in secured.expect(Noted).text
        assert secured.shut_down(executor) == 0
    finally:
        executor.close()


@needs_openssl
def test_a_folder_that_takes_no_file(
    tmp_path: Path, secured: Master, secret: bytes, held: Path
) -> None:
    held.unlink()
    held.parent.rmdir()
    executor = Executor(
        tmp_path, secured.address, secret=secret, env={"TONY_TOKEN_FILE": str(held)}
    )
    try:
        secured.prepare()
        secured.send(tokens(a_file(1)))
        assert "No such file or directory" in secured.expect(Noted).text
        held.parent.mkdir()
        secured.send(tokens(a_file(1)))
        secured.until(lambda: held.exists() and held.read_bytes() == a_file(1))
        assert secured.shut_down(executor) == 0
    finally:
        executor.close()

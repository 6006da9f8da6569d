"""What an executor can make a master keep, and that no value of its ends it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Dict, Iterator, List, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.master.shell import SECRET, Shell, a_job, until
from tests.protocol.ends import executor_end
from tests.protocol.test_codec import STRATEGIES
from tony_core.job.spec import MasterSpec, Resources, Role
from tony_core.master.executors.message_limits import (
    NAME,
    NAMES,
    NOTES,
    STALLS,
    TURNS,
    MessageLimits,
)
from tony_core.protocol import messages
from tony_core.protocol.codec import ProtocolError
from tony_core.protocol.messages import (
    Ended,
    Measured,
    Noted,
    Ready,
    Register,
    Reported,
    Serving,
    StacksDumped,
    Stalled,
)
from tony_core.protocol.messages import Running as Runs

STALL_KINDS = st.sampled_from(["", "steps", "quiet", "suspended", "asleep"])
NEAR = st.integers(-1, 3)
RESULTS = ["", "{", "NaN", "[1e999]", '"\\ud800"', "[" * 30_000 + "]" * 30_000, '{"a":1}']


def fields(kind: Any) -> Dict[str, Any]:
    """Values of the right type, many of them near those that mean something."""
    made: Dict[str, Any] = {}
    for field in kind._fields:
        wild = STRATEGIES[get_type_hints(kind)[field]]
        made[field] = st.one_of(NEAR, wild) if wild is STRATEGIES[int] else wild
    if "ports" in made:
        near = st.dictionaries(st.sampled_from(["main", "x"]), st.integers(-1, 70_000))
        made["ports"] = st.one_of(near, made["ports"])
    if kind is Register:
        made["task"] = st.sampled_from(["", "worker:0", "worker:7", "no:0", "worker:x", "x"])
        made["phase"] = st.sampled_from([*("idle", "ready", "running", "ended"), "asleep"])
        made["container_id"] = st.just("")
        made["ended"] = st.none() | st.fixed_dictionaries(
            {"session": NEAR, "exit_code": st.integers(-2, 300)}
        )
        made["stalled"] = st.none() | st.builds(
            lambda session, kind: {"session": session, "kind": kind}, NEAR, STALL_KINDS
        )
    if kind is Stalled:
        made["kind"] = STALL_KINDS
    if kind is Ended:
        made["cause"] = st.sampled_from(["exited", "stopped", "gpus", "disk-full", "?"])
        made["exit_code"] = st.one_of(st.integers(-1, 3), made["exit_code"])
    if kind is Reported:
        made["result"] = st.sampled_from(RESULTS)
    if kind is Serving:
        made["name"] = st.just("tensorboard") | made["name"]
    return made


WORDS = st.one_of([st.builds(kind, **fields(kind)) for kind in messages.TO_MASTER])


class Liar:
    """Speaks in an executor's name, with its key; calls again when it is hung up on."""

    def __init__(self, shell: Shell, container_id: str) -> None:
        self.shell, self.container_id = shell, container_id
        self.connected = False

    def send_messages(self, words: List[Any]) -> None:
        host, port = self.shell.address.split(":")
        channel = executor_end(SECRET, container_id=self.container_id)
        with socket.create_connection((host, int(port)), 30) as sock:
            sock.sendall(channel.outgoing())
            while not channel.established:
                channel.receive(sock.recv(4096))
            channel.send(Register(self.container_id, "127.0.0.1", 0, 1, "0"))
            for word in words:
                if isinstance(word, Register):
                    word = word._replace(container_id=self.container_id)
                channel.send(word)
            try:
                sock.sendall(channel.outgoing())
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass
            except OSError:
                pass  # it was hung up on


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[Liar]:
    roles = Role("worker", 1, Resources(), "true")
    job = a_job(roles, master=MasterSpec(user_retries=100_000))
    with Shell(tmp_path, job) as shell:
        (container,) = shell.launched(1)
        yield Liar(shell, container)
        assert shell.error is None
        for path in ("/api/job", "/api/tasks", "/api/events", "/api/metrics", "/"):
            assert shell.get(path)[0] == 200
        shell.kill("the test is over")
        for container_id in list(shell.pool.launched):
            shell.pool.end(container_id)


@settings(  # over real sockets, so fewer than elsewhere
    max_examples=3000 if settings().max_examples >= 1000 else 25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(words=st.lists(WORDS, max_size=6))
def test_no_word_of_an_executor_ends_the_master(liar: Liar, words: List[Any]) -> None:
    """Nor does it break its page, which is read at the end of the fixture."""
    liar.container_id = list(liar.shell.pool.launched)[-1]
    liar.send_messages(words)
    assert liar.shell.error is None
    assert liar.shell._thread.is_alive()


@pytest.mark.parametrize("result", RESULTS[1:6])
def test_a_result_that_is_no_json_is_passed_over(tmp_path: Path, result: str) -> None:
    chief = Role("chief", 1, Resources(), "true")
    with Shell(tmp_path, a_job(chief)) as shell:
        (executor,) = shell.gang(1)
        executor.send_messages(Reported(0, None, {"loss": 1.0}, None, result))
        publisher = shell.master._publisher
        until(lambda: publisher.series.latest("chief:0") or shell.error, "what came with it")
        assert shell.json("/api/job")["result"] is None
        assert shell.get("/")[0] == 200
        shell.kill("the test is over")
        shell.pool.end(executor.container_id)


def test_a_flood_fills_neither_memory_nor_log_nor_story(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(Role("worker", 1, Resources(), "true"))) as shell:
        (executor,) = shell.gang(1)
        log: List[str] = []
        shell.master._executors._log = log.append
        story, rendezvous = shell.master._story, shell.master._executors
        before = story.last
        for at in range(520):
            executor.send_messages(
                Noted("warning", f"{at} " + "x" * 900, once=f"o{at}"),
                Noted("info", f"again {at}"),
                Measured(0, {f"m{at}": 1.0, "n" * 300: 2.0}),
                Reported(0, 0.1, {f"r{at}": 1.0}),
                Serving("tensorboard", at % 2),
                Ended(at + 7, 1),
                Ended(0, 1, restart=at + 1),
            )
        executor.send_messages(Noted("info", "the last"), Measured(0, {"m1": 7.0}))
        publisher = shell.master._publisher
        until(lambda: publisher.series.latest("worker:0").get("m1") == 7.0, "the last of it")
        assert len(publisher.series.latest("worker:0")) <= NAMES + 1
        assert story.last - before <= NOTES + 2 * TURNS + 20
        assert len(publisher.info.ends) <= 1
        assert len(rendezvous._acknowledged[executor.container_id]) <= 10_000
        assert len(log) < 1100
        assert shell.get("/api/job")[0] == 200
        shell.finish(executor)
        shell.go(executor)
        shell.join()


def test_calling_and_hanging_up_again_and_again_fills_no_log(tmp_path: Path) -> None:
    bounds = MessageLimits()
    assert sum(bounds.admits_line() for _ in range(5000)) == 1000


@pytest.mark.parametrize(
    "word",
    [
        Ready(0, "host name", {"main": 1}),
        Ready(0, "h" * 256, {"main": 1}),
        Ready(0, "evil\nhost", {"main": 1}),
        Ready(0, "127.0.0.1", {"main": 0}),
        Ready(0, "127.0.0.1", {"main": 65536}),
        Ready(0, "127.0.0.1", {str(at): 1 + at for at in range(65)}),
        Register("c", "h", 65536, 1, "0"),
        Register("c", "h", 1, -1, "0"),
        Register("c", "h", 1, 1, "0", phase="asleep"),
        Register("c", "h", 1, 1, "0", session=-2),
        Runs(0, -1),
        Ended(0, 256),
        Ended(0, 0, signal=-1),
        Serving("tensorboard", -1),
        Stalled(0, kind="asleep"),
        Register("c", "h", 1, 1, "0", stalled={"kind": "steps"}),
        Register("c", "h", 1, 1, "0", stalled={"session": 0, "kind": "asleep"}),
        Register("c", "h", 1, 1, "0", stalled={"session": 0, "frame": 7}),
    ],
)
def test_what_no_executor_of_ours_sends(word: Any) -> None:
    with pytest.raises(ProtocolError):
        MessageLimits().admit_first(word) if isinstance(word, Register) else MessageLimits().admit(
            word
        )


def test_what_is_too_long_is_cut() -> None:
    ended = MessageLimits().admit(
        Ended(0, 1, message="m" * 10**6, stderr_tail=["t" * 1000] * 10_000)
    )
    assert len(ended.message) < 10_000
    assert sum(map(len, ended.stderr_tail)) < 300_000
    assert MessageLimits().admit(Reported(0, 1e308, {})).progress == 1.0
    stalled = Stalled(0, 0, "steps", -1.0, cpu_percent=-1.0, frame="f" * 10**6)
    found = MessageLimits().admit(stalled)
    assert (found.still_s, found.cpu_percent, len(found.frame)) == (0.0, 0.0, NAME)
    first = Register("c", "h", 1, 1, "0", stalled=dict(stalled._asdict()))
    assert MessageLimits().admit_first(first).stalled == dict(found._asdict())
    assert MessageLimits().admit(Ended(0, 0, duration_s=-5.0)).duration_s == 0.0


def test_a_flood_of_stalls_ends_and_what_moves_is_still_taken() -> None:
    limits = MessageLimits()
    found = [limits.admit(Stalled(0, kind="steps")) for _ in range(2 * STALLS)]
    assert sum(each is not None for each in found) == STALLS
    assert limits.admit(Stalled(0)) == Stalled(0)


@pytest.mark.parametrize("kind", [Stalled, StacksDumped])
def test_a_functions_name_cannot_steer_a_terminal_or_write_a_line(kind: Any) -> None:
    name = "f\x1b[2J\r\n\u202eevil\x9b<b> (\ud800.py:1)"
    found = MessageLimits().admit(kind(0)._replace(frame=name)).frame
    assert found.isprintable() and "f?[2J???evil?<b>" in found


def test_what_stacks_show_is_cut_and_counted_with_the_stalls() -> None:
    limits = MessageLimits()
    taken = limits.admit(StacksDumped(0, 0, -1.0, "x" * 1000))
    assert taken == StacksDumped(0, 0, 0.0, "x" * NAME)
    found = [limits.admit(StacksDumped(0)) for _ in range(2 * STALLS)]
    assert sum(each is not None for each in found) == STALLS - 1

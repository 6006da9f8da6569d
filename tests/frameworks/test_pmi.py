"""The PMI-1 server: lines in, replies out."""

from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations
from tony_core.frameworks.pmi import Aborted, Complete, Drop, Joined, PmiServer, Send


def _server(size: int = 2) -> PmiServer:
    return PmiServer([1000 + rank for rank in range(size)], "kvs")


def _begin(server: PmiServer, rank: int, connection: int) -> None:
    outcomes = server.received(connection, f"cmd=initack pmiid={1000 + rank}")
    assert Joined(connection, rank) in outcomes


def _both() -> PmiServer:
    server = _server()
    _begin(server, 0, 10)
    _begin(server, 1, 11)
    return server


def _lines(outcomes: List[object]) -> List[str]:
    return [each.line for each in outcomes if isinstance(each, Send)]


def test_a_rank_sends_its_number_and_gets_its_rank() -> None:
    server = _server()
    assert server.missing() == []
    first = server.received(5, "cmd=initack pmiid=1001")
    assert first == [
        Joined(5, 1),
        Send(5, "cmd=initack rc=0"),
        Send(5, "cmd=set size=2"),
        Send(5, "cmd=set rank=1"),
        Send(5, "cmd=set debug=0"),
    ]
    assert server.missing() == [0]
    assert server.received(6, "cmd=initack pmiid=1000")[-1] == Complete()
    assert server.missing() == []


@pytest.mark.parametrize(
    "line",
    [
        "cmd=initack pmiid=0",  # a rank is no number
        "cmd=initack pmiid=-1",
        "cmd=initack pmiid=x",
        "cmd=initack",
        "cmd=put kvsname=kvs-0 key=a value=b",
        "GET / HTTP/1.1",
        "",
    ],
)
def test_a_stranger_gets_no_word(line: str) -> None:
    server = _server()
    (outcome,) = server.received(5, line)
    assert isinstance(outcome, Drop) and outcome.is_unknown
    # Nor a second try on the same connection.
    assert server.received(5, "cmd=initack pmiid=1000") == []


def test_the_same_rank_twice() -> None:
    server = _both()
    (outcome,) = server.received(12, "cmd=initack pmiid=1001")
    assert outcome == Drop(12, "rank 1 is connected already")


def test_the_usual_questions() -> None:
    server = _both()
    assert _lines(server.received(10, "cmd=init pmi_version=1 pmi_subversion=1")) == [
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
    ]
    assert _lines(server.received(10, "cmd=init pmi_version=2 pmi_subversion=0")) == [
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1"
    ]
    assert _lines(server.received(10, "cmd=get_maxes")) == [
        "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"
    ]
    assert _lines(server.received(10, "cmd=get_appnum")) == ["cmd=appnum appnum=0"]
    assert _lines(server.received(10, "cmd=get_universe_size")) == ["cmd=universe_size size=2"]
    assert _lines(server.received(11, "cmd=get_my_kvsname")) == ["cmd=my_kvsname kvsname=kvs-0"]


def test_what_one_rank_puts_another_gets() -> None:
    server = _both()
    put = "cmd=put kvsname=kvs-0 key=addr[0] value=tag#a=b=="
    assert _lines(server.received(10, put)) == ["cmd=put_result rc=0 msg=success"]
    assert _lines(server.received(11, "cmd=get kvsname=kvs-0 key=addr[0]")) == [
        "cmd=get_result rc=0 msg=success value=tag#a=b=="
    ]
    assert _lines(server.received(11, "cmd=get kvsname=kvs-0 key=other")) == [
        "cmd=get_result rc=-1 msg=key_not_found value=unknown"
    ]
    assert "rc=-1" in _lines(server.received(11, "cmd=get kvsname=kvs-9 key=addr[0]"))[0]
    assert "rc=-1" in _lines(server.received(11, "cmd=put kvsname=kvs-9 key=a value=b"))[0]
    assert "rc=-1" in _lines(server.received(11, "cmd=put kvsname=kvs-0 value=b"))[0]


@pytest.mark.parametrize(("key", "value", "rc"), [(64, 1024, 0), (65, 1, -1), (1, 1025, -1)])
def test_lengths_are_the_announced_ones(key: int, value: int, rc: int) -> None:
    server = _both()
    line = f"cmd=put kvsname=kvs-0 key={'k' * key} value={'v' * value}"
    assert f"rc={rc} " in _lines(server.received(10, line))[0]


@given(st.permutations(range(5)), st.integers(1, 4))
def test_a_barrier_opens_for_all_when_the_last_is_in(order: List[int], rounds: int) -> None:
    server = _server(5)
    for rank in range(5):
        _begin(server, rank, rank)
    for _ in range(rounds):
        for rank in order[:-1]:
            assert server.received(rank, "cmd=barrier_in") == []
            assert server.received(rank, "cmd=barrier_in") == []  # twice is once
        out = server.received(order[-1], "cmd=barrier_in")
        assert out == [Send(rank, "cmd=barrier_out") for rank in range(5)]


def test_abort_names_the_rank_and_ends_all_answers() -> None:
    server = _both()
    assert server.received(10, "cmd=barrier_in") == []
    assert server.received(11, "cmd=abort exitcode=7 message=abort") == [Aborted(1, 7, "")]
    # MPI_Abort returns: the rank must not get through MPI_Finalize as if all were well.
    assert server.received(11, "cmd=barrier_in") == []
    assert server.received(11, "cmd=finalize") == []
    assert server.received(10, "cmd=finalize") == []


@pytest.mark.parametrize(
    ("word", "code"), [("exitcode=0", 1), ("exitcode=256", 1), ("exitcode=-1", 255), ("", 255)]
)
def test_an_abort_is_never_a_success(word: str, code: int) -> None:
    (outcome,) = _both().received(10, f"cmd=abort {word}")
    assert isinstance(outcome, Aborted) and outcome.exit_code == code


def test_a_rank_that_finalized_may_begin_again_with_new_keys() -> None:
    server = _both()
    server.received(10, "cmd=put kvsname=kvs-0 key=a value=old")
    assert server.received(10, "cmd=finalize") == [Send(10, "cmd=finalize_ack")]
    assert server.closed(10) == []
    _begin(server, 0, 20)
    assert server.missing() == [1]
    assert _lines(server.received(20, "cmd=get_my_kvsname")) == ["cmd=my_kvsname kvsname=kvs-1"]
    assert "rc=-1" in _lines(server.received(20, "cmd=get kvsname=kvs-1 key=a"))[0]
    # The other one is still in the first world, whose keys it sees.
    assert "value=old" in _lines(server.received(11, "cmd=get kvsname=kvs-0 key=a"))[0]


def test_a_rank_that_died_may_not() -> None:
    server = _both()
    assert server.closed(10) == []
    (outcome,) = server.received(20, "cmd=initack pmiid=1000")
    assert outcome == Drop(20, "rank 0 left without MPI_Finalize before")


def test_spawn_is_refused_with_an_answer() -> None:
    server = _both()
    for line in ("mcmd=spawn", "nprocs=2", "execname=/bin/true", "cmd=barrier_in"):
        assert server.received(10, line) == []
    (line,) = _lines(server.received(10, "endcmd"))
    assert line.startswith("cmd=spawn_result rc=-1")
    assert _lines(server.received(10, "cmd=get_appnum")) == ["cmd=appnum appnum=0"]


@pytest.mark.parametrize("command", ["publish_name", "unpublish_name", "lookup_name"])
def test_names_are_not_published(command: str) -> None:
    (line,) = _lines(_both().received(10, f"cmd={command} service=s port=p"))
    assert "rc=-1" in line


@pytest.mark.parametrize("line", ["cmd=introduce", "cmd=_words", "nonsense", "cmd=", "cmd=init2"])
def test_an_unknown_command_ends_the_connection(line: str) -> None:
    (outcome,) = _both().received(10, line)
    assert isinstance(outcome, Drop) and not outcome.is_unknown


SESSION = b"""cmd=initack pmiid=1000
cmd=init pmi_version=1 pmi_subversion=1
cmd=get_my_kvsname
cmd=put kvsname=kvs-0 key=P0 value=addr#1$x=y
cmd=barrier_in
cmd=get kvsname=kvs-0 key=P1
mcmd=spawn
nprocs=1
endcmd
cmd=finalize
cmd=abort exitcode=3 message=why
"""


@fuzz(damaged=mutations(SESSION, SESSION.replace(b"1000", b"1001")))
def test_no_line_breaks_it(damaged: bytes) -> None:
    server = _server()
    _begin(server, 1, 11)
    for line in damaged.decode("latin-1").split("\n"):
        for outcome in server.received(7, line):
            assert isinstance(outcome, (Send, Drop, Joined, Complete, Aborted))
    server.closed(7)


def test_what_a_rank_puts_is_bounded_and_goes_with_its_world() -> None:
    server = _both()
    put = "cmd=put kvsname=kvs-0 key=k{} value=" + "v" * 1000
    answers = [_lines(server.received(10, put.format(at)))[0] for at in range(5000)]
    assert answers[0] == "cmd=put_result rc=0 msg=success"
    assert answers[-1] == "cmd=put_result rc=-1 msg=too_many_keys"
    assert server._worlds[0].held < 10 * 1024 * 1024
    for connection in (10, 11):
        server.received(connection, "cmd=finalize")
    assert server._worlds[0].values == {}


def test_two_ranks_never_share_a_number() -> None:
    with pytest.raises(ValueError):
        PmiServer([1, 1], "kvs")

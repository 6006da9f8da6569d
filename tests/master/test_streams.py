"""The table of streams: who may open what, and what each end may send."""

from __future__ import annotations

from typing import List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_core.job.spec import Access
from tony_core.master.streams import MAX_STORY_LINES, StreamTable, TaskPlace
from tony_core.protocol.codec import ProtocolError
from tony_core.protocol.messages import (
    CloseStream,
    Message,
    OpenStream,
    StreamClosed,
    StreamData,
    StreamOpened,
    StreamTaken,
)
from tony_core.protocol.tunnel import MAX_STREAMS, PIECE, WINDOW, Refused, pack_data

PLACES = [
    TaskPlace("worker:0", "c0", True, "running"),
    TaskPlace("worker:1", "c1", True, "running"),
    TaskPlace("worker:2", "c2", False, "succeeded"),
]


class Client:
    def __init__(self) -> None:
        self.got: List[Message] = []

    def send(self, message: Message) -> None:
        self.got.append(message)


class World:
    """A table with what it sends."""

    def __init__(self, access: Access = Access(), places: List[TaskPlace] = PLACES) -> None:
        self.sent: List[Tuple[str, Message]] = []
        self.connected = True
        self.story: List[Tuple[str, str]] = []
        self.table = StreamTable(
            access, lambda: places, self._send, lambda task, text: self.story.append((task, text))
        )

    def _send(self, container_id: str, message: Message) -> bool:
        self.sent.append((container_id, message))
        return self.connected

    def open(self, client: Client, number: int, task: str = "worker:0", **fields: str) -> None:
        self.table.from_client(client, OpenStream(number, task, fields.get("kind", "shell")))


def refusal(client: Client) -> str:
    message = client.got[-1]
    assert isinstance(message, StreamClosed)
    return message.message


def refused(client: Client) -> Refused:
    message = client.got[-1]
    assert isinstance(message, StreamClosed)
    return Refused(message.refused)


def test_two_clients_with_the_same_numbers_are_kept_apart() -> None:
    world, ada, bob = World(), Client(), Client()
    world.open(ada, 1)
    world.open(bob, 1, "worker:1")
    (_, first), (_, second) = world.sent
    assert isinstance(first, OpenStream) and isinstance(second, OpenStream)
    assert first.stream != second.stream
    world.table.from_executor("c1", StreamData(second.stream, pack_data(b"for bob")))
    assert ada.got == [] and bob.got == [StreamData(1, pack_data(b"for bob"))]
    assert [task for task, _ in world.story] == ["worker:0", "worker:1"]
    assert (
        world.story[1][1] == "a shell is opened beside the program of worker:1, by the job's owner"
    )


def test_a_container_cannot_answer_for_another_one() -> None:
    world, ada = World(), Client()
    world.open(ada, 1)
    world.table.from_executor("c1", StreamData(1, pack_data(b"forged")))
    world.table.from_executor("c1", StreamClosed(1, 0))
    assert ada.got == []


@pytest.mark.parametrize(
    ("access", "kind"), [(Access(shell=False), "shell"), (Access(notebook=False), "notebook")]
)
def test_what_the_site_forbids_is_refused(access: Access, kind: str) -> None:
    world, ada = World(access), Client()
    world.open(ada, 1, kind=kind)
    assert f"tony.{kind}.enabled" in refusal(ada) and world.sent == []
    assert refused(ada) is Refused.FINAL


@pytest.mark.parametrize(
    ("task", "kind", "words", "why"),
    [
        (
            "worker:9",
            "shell",
            "there is no task 'worker:9'; the job has worker:0, worker:1",
            Refused.FINAL,
        ),
        ("", "shell", "name one task with -t", Refused.FINAL),
        ("", "notebook", "has one task, and this job has worker:0, worker:1", Refused.FINAL),
        (
            "worker:2",
            "shell",
            "worker:2 runs no program now: it is succeeded",
            Refused.NO_PROGRAM,
        ),
        ("worker:0", "fridge", "submit it again", Refused.FINAL),
    ],
)
def test_what_cannot_be_opened(task: str, kind: str, words: str, why: Refused) -> None:
    world, ada = World(), Client()
    world.open(ada, 1, task, kind=kind)
    assert words in refusal(ada) and world.sent == [] and refused(ada) is why


@pytest.mark.parametrize("kind", ["shell", "notebook"])
def test_a_job_without_tasks_yet_may_have_some_later(kind: str) -> None:
    world, ada = World(places=[]), Client()
    world.open(ada, 1, "", kind=kind)
    assert "none yet" in refusal(ada) and refused(ada) is Refused.NO_PROGRAM


def test_the_only_task_needs_no_name() -> None:
    world, ada = World(places=PLACES[:1]), Client()
    world.open(ada, 1, "")
    assert world.sent[0] == ("c0", OpenStream(1, "worker:0", "shell"))


def test_the_story_does_not_grow_with_every_command() -> None:
    world, ada = World(), Client()
    for number in range(MAX_STORY_LINES + 50):
        world.open(ada, number)
        world.table.from_executor("c0", StreamClosed(number + 1, 0))
    assert len(world.story) == MAX_STORY_LINES
    assert "no further ones" in world.story[-1][1] and "no further" not in world.story[-2][1]


def test_a_role_of_one_task_names_it() -> None:
    world, ada = World(places=[*PLACES, TaskPlace("helper:0", "c9", True, "running")]), Client()
    world.open(ada, 1, "helper")
    (container, opened) = world.sent[0]
    assert container == "c9" and isinstance(opened, OpenStream) and opened.task == "helper:0"
    world.open(ada, 2, "worker")
    assert refusal(ada) == "worker has 3 tasks; name one, such as -t worker:0"


def test_an_executor_that_is_not_connected() -> None:
    world, ada = World(), Client()
    world.connected = False
    world.open(ada, 1)
    assert "not connected now" in refusal(ada) and refused(ada) is Refused.NO_PROGRAM


def test_a_client_that_sends_more_than_its_window() -> None:
    world, ada = World(), Client()
    world.open(ada, 1)
    piece = StreamData(1, pack_data(bytes(PIECE)))
    for _ in range(WINDOW // PIECE):
        world.table.from_client(ada, piece)
    with pytest.raises(ProtocolError, match="window"):
        world.table.from_client(ada, piece)
    with pytest.raises(ProtocolError, match="piece"):
        world.table.from_client(ada, StreamData(1, pack_data(bytes(PIECE + 1))))


def test_an_executor_that_sends_more_than_its_window_loses_that_stream_only() -> None:
    world, ada = World(), Client()
    world.open(ada, 1)
    world.open(ada, 2)
    for _ in range(WINDOW // PIECE + 1):
        world.table.from_executor("c0", StreamData(1, pack_data(bytes(PIECE))))
    assert "window" in refusal(ada)
    assert world.sent[-1] == ("c0", CloseStream(1))
    world.table.from_executor("c0", StreamOpened(2))
    assert ada.got[-1] == StreamOpened(2)


def test_messages_that_no_window_counts_are_refused() -> None:
    world, ada = World(), Client()
    world.open(ada, 1)
    before = len(world.sent)
    for message in (StreamData(1, ""), StreamTaken(1, 0)):
        with pytest.raises(ProtocolError):
            world.table.from_client(ada, message)
    world.table.from_client(ada, StreamData(1, "", end=True))
    with pytest.raises(ProtocolError, match="after its end"):
        world.table.from_client(ada, StreamData(1, "", end=True))
    assert len(world.sent) == before + 1


@pytest.mark.parametrize(
    "messages",
    [
        [StreamData(1, "")],
        [StreamTaken(1, 0)],
        [StreamOpened(1), StreamOpened(1)],
        [StreamData(1, "", end=True), StreamData(1, "", end=True)],
    ],
)
def test_an_executor_that_floods_a_client_loses_the_stream(messages: List[Message]) -> None:
    world, ada = World(), Client()
    world.open(ada, 1)
    for message in messages:
        world.table.from_executor("c0", message)
    assert refusal(ada) and len(ada.got) == len(messages)
    assert world.sent[-1] == ("c0", CloseStream(1))


def test_taking_more_than_was_sent() -> None:
    world, ada = World(), Client()
    world.open(ada, 1)
    with pytest.raises(ProtocolError):
        world.table.from_client(ada, StreamTaken(1, 1))
    world.table.from_executor("c0", StreamTaken(1, -1))
    assert "takes more" in refusal(ada)


def test_a_client_that_is_gone_leaves_nothing() -> None:
    world, ada, bob = World(), Client(), Client()
    world.open(ada, 1)
    world.open(bob, 1)
    world.table.client_gone(ada)
    assert world.sent[-1] == ("c0", CloseStream(1))
    world.table.from_executor("c0", StreamClosed(1, 0))
    world.table.from_executor("c0", StreamClosed(2, 3))
    assert ada.got == [] and bob.got == [StreamClosed(1, 3)]


def test_a_container_that_is_gone_ends_its_streams() -> None:
    world, ada = World(), Client()
    world.open(ada, 1)
    world.open(ada, 2, "worker:1")
    world.table.container_gone("c0", "its container has ended")
    assert ada.got == [StreamClosed(1, None, "its container has ended")]


def test_a_number_is_not_used_twice() -> None:
    world, ada = World(), Client()
    world.open(ada, 1)
    with pytest.raises(ProtocolError, match="twice"):
        world.open(ada, 1)


def test_the_number_of_streams_is_bounded() -> None:
    world, ada = World(), Client()
    for number in range(MAX_STREAMS + 1):
        world.open(ada, number)
    assert refused(ada) is Refused.NOT_READY
    assert "open streams already" in refusal(ada) and len(world.sent) == MAX_STREAMS


NUMBERS = st.integers(0, 3)
DATA = st.builds(pack_data, st.integers(0, PIECE + 5).map(bytes))
SIZES = st.one_of(st.integers(-1, 2), st.just(PIECE), st.integers(0, 2 * WINDOW))
TASKS = st.sampled_from(["worker:0", "worker:1", "worker:9"])
MESSAGES = st.one_of(
    st.builds(
        OpenStream, NUMBERS, st.sampled_from(["worker:0", "worker:1", "x"]), st.just("shell")
    ),
    st.builds(StreamOpened, NUMBERS),
    st.builds(StreamData, NUMBERS, DATA, end=st.booleans()),
    st.builds(StreamTaken, NUMBERS, SIZES),
    st.builds(CloseStream, NUMBERS),
    st.builds(StreamClosed, NUMBERS),
)


@given(
    st.lists(
        st.tuples(st.sampled_from(["ada", "bob", "c0", "c1", "loses c0"]), MESSAGES), max_size=60
    )
)
def test_whatever_the_ends_send_nothing_is_left(
    steps: List[Tuple[str, Message]],
) -> None:
    world = World()
    clients = {"ada": Client(), "bob": Client()}
    for who, message in steps:
        if who == "loses c0":
            world.table.container_gone("c0", "it is lost")
        elif who in clients:
            try:
                world.table.from_client(clients[who], message)
            except ProtocolError:
                world.table.client_gone(clients[who])
                clients[who] = Client()
        else:
            world.table.from_executor(who, message)
    for client in clients.values():
        for number in range(4):
            assert_in_order([m for m in client.got if m[0] == number])
        world.table.client_gone(client)
    before = len(world.sent)
    for number in range(len(steps)):
        for container_id in ("c0", "c1"):
            world.table.from_executor(container_id, StreamClosed(number, 0))
    world.table.close_all("the end")
    assert len(world.sent) == before, "no stream is left"


def assert_in_order(messages: List[Message]) -> None:
    """What a client gets of one number: opened once, nothing after the end, then closed."""
    is_open = has_ended = False
    for message in messages:
        if isinstance(message, StreamClosed):
            is_open = has_ended = False
        elif isinstance(message, StreamOpened):
            assert not is_open
            is_open = True
        elif isinstance(message, StreamData):
            assert (message.data or message.end) and not has_ended
            has_ended = message.end

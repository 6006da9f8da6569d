"""Streams between clients of the job and its containers, as the master passes them on.

A tunnel (``web/tunnels.py``) is one client's; an executor has one connection for all of them. So
each stream has two numbers, and this is the table between them. The master holds nothing of a
stream but its two windows, by which it refuses a peer that sends more than the other end takes.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Protocol, Tuple, Union

from tony_core.job.spec import Access
from tony_core.protocol.codec import ProtocolError
from tony_core.protocol.messages import (
    CloseStream,
    Message,
    OpenStream,
    ResizeTerminal,
    StreamClosed,
    StreamData,
    StreamOpened,
    StreamTaken,
)
from tony_core.protocol.tunnel import (
    MAX_STREAMS,
    PIECE,
    Refused,
    StreamKind,
    StreamWindow,
    packed_size,
)
from tony_core.view import names_task

MOST_WORDS = 100_000  # characters of a command
MAX_STORY_LINES = 200  # about shells: a script may run a command every few seconds for days


class StreamClient(Protocol):
    """A tunnel, as its streams see it."""

    def send(self, message: Message) -> None:
        """Send to the client."""


class TaskPlace(NamedTuple):
    """Where a task runs."""

    task: str
    container_id: str
    is_running: bool
    state: str


class _Refusal(NamedTuple):
    """The stream is not opened, for this reason."""

    refused: Refused
    reason: str


class _Stream:
    def __init__(self, client: StreamClient, number: int, container_id: str) -> None:
        self.client = client
        self.number = number  # the client's
        self.container_id = container_id
        self.to_client = StreamWindow()
        self.to_executor = StreamWindow()
        self._is_open = False

    def open(self) -> None:
        """Note that its other end stands."""
        if self._is_open:
            raise ProtocolError("a stream is opened twice")
        self._is_open = True


class StreamTable:
    """All streams of the job."""

    def __init__(
        self,
        access: Access,
        places: Callable[[], List[TaskPlace]],
        send: Callable[[str, Message], bool],
        tell_story: Callable[[str, str], None],
    ) -> None:
        self._allowed = {StreamKind.SHELL: access.shell, StreamKind.NOTEBOOK: access.notebook}
        self._places = places
        self._send = send
        self._tell_story = tell_story
        self._streams: Dict[int, _Stream] = {}
        self._numbers: Dict[Tuple[StreamClient, int], int] = {}
        self._last = 0
        self._story_lines = 0

    # ------------------------------------------------------------------ from clients

    def from_client(self, client: StreamClient, message: Message) -> None:
        """Take a message of a client's; raises :class:`ProtocolError`."""
        if isinstance(message, OpenStream):
            self._open(client, message)
            return
        if not isinstance(message, (StreamData, StreamTaken, ResizeTerminal, CloseStream)):
            raise ProtocolError(f"{type(message).__name__} is not for a tunnel")
        number = self._numbers.get((client, message.stream))
        if number is None:
            return  # it has ended, and the client does not know yet
        stream = self._streams[number]
        if isinstance(message, StreamData):
            stream.to_executor.send(_size(message), message.end)
        elif isinstance(message, StreamTaken):
            stream.to_client.taken(message.size)
        self._send(stream.container_id, message._replace(stream=number))

    def client_gone(self, client: StreamClient) -> None:
        """End all streams of a tunnel that is over."""
        for number, stream in list(self._streams.items()):
            if stream.client is client:
                self._send(stream.container_id, CloseStream(number))
                self._forget(number)

    def _open(self, client: StreamClient, message: OpenStream) -> None:
        if (client, message.stream) in self._numbers:
            raise ProtocolError("the number of a stream is used twice")
        place = self._find(message)
        if isinstance(place, _Refusal):
            client.send(_closed(message, place))
            return
        self._last += 1
        number = self._last
        stream = _Stream(client, message.stream, place.container_id)
        self._streams[number] = stream
        self._numbers[client, message.stream] = number
        if not self._send(place.container_id, message._replace(stream=number, task=place.task)):
            self._forget(number)
            text = f"the executor of {place.task} is not connected now; try again"
            client.send(_closed(message, _Refusal(Refused.NO_PROGRAM, text)))
        elif message.kind == StreamKind.SHELL.value:
            what = "a command is run" if message.command else "a shell is opened"
            text = f"{what} beside the program of {place.task}, by the job's owner"
            self._add_line(place.task, text)

    def _find(self, message: OpenStream) -> Union[TaskPlace, _Refusal]:
        """The place to open it in, or the reason why it is refused."""
        try:
            kind = StreamKind(message.kind)
        except ValueError:
            text = "this job's version of tony has no such streams; submit it again"
            return _Refusal(Refused.FINAL, text)
        if not self._allowed[kind]:
            text = f"this site allows no {kind.value}s (tony.{kind.value}.enabled)"
            return _Refusal(Refused.FINAL, text)
        if sum(map(len, message.command)) > MOST_WORDS:
            return _Refusal(Refused.FINAL, f"the command has more than {MOST_WORDS} characters")
        if len(self._streams) >= MAX_STREAMS:
            text = f"the job has {MAX_STREAMS} open streams already; end some"
            return _Refusal(Refused.NOT_READY, text)
        places = self._places()
        found = [place for place in places if names_task(message.task, place.task)]
        if not message.task and len(places) == 1:
            found = places
        if not found:
            return self._no_task(kind, message.task, [place.task for place in places])
        if len(found) > 1:
            text = f"{message.task} has {len(found)} tasks; name one, such as -t {found[0].task}"
            return _Refusal(Refused.FINAL, text)
        if not found[0].is_running:
            text = f"{found[0].task} runs no program now: it is {found[0].state}"
            return _Refusal(Refused.NO_PROGRAM, text)
        return found[0]

    def _no_task(self, kind: StreamKind, task: str, tasks: List[str]) -> _Refusal:
        more = f" and {len(tasks) - 8} more" if len(tasks) > 8 else ""
        names = f"{', '.join(tasks[:8]) or 'none yet'}{more}"
        if task:
            what = f"there is no task {task!r}; the job has {names}"
        elif kind is StreamKind.NOTEBOOK and tasks:
            what = f"a notebook's job has one task, and this job has {names}"
        else:
            what = f"name one task with -t; the job has {names}"
        return _Refusal(Refused.FINAL if tasks else Refused.NO_PROGRAM, what)

    def _add_line(self, task: str, text: str) -> None:
        self._story_lines += 1
        if self._story_lines == MAX_STORY_LINES:
            text += "; no further ones are listed"
        if self._story_lines <= MAX_STORY_LINES:
            self._tell_story(task, text)

    # ------------------------------------------------------------------ from executors

    def from_executor(self, container_id: str, message: Message) -> None:
        """Take a message of an executor's; one that breaks a rule ends its stream."""
        number = getattr(message, "stream", -1)
        stream = self._streams.get(number)
        if stream is None or stream.container_id != container_id:
            return  # its client is gone, and the executor does not know yet
        try:
            if isinstance(message, StreamOpened):
                stream.open()
            elif isinstance(message, StreamData):
                stream.to_client.send(_size(message), message.end)
            elif isinstance(message, StreamTaken):
                stream.to_executor.taken(message.size)
        except ProtocolError as error:
            self._send(container_id, CloseStream(number))
            message = StreamClosed(number, None, str(error))
        if isinstance(message, StreamClosed):
            self._forget(number)
        elif not isinstance(message, (StreamOpened, StreamData, StreamTaken)):
            return
        stream.client.send(message._replace(stream=stream.number))

    def container_gone(self, container_id: str, reason: str) -> None:
        """End the streams into a container that is lost or has ended."""
        for number, stream in list(self._streams.items()):
            if stream.container_id == container_id:
                self._forget(number)
                stream.client.send(StreamClosed(stream.number, None, reason))

    def close_all(self, reason: str) -> None:
        """End all streams, for this reason."""
        for container_id in {stream.container_id for stream in self._streams.values()}:
            self.container_gone(container_id, reason)

    def _forget(self, number: int) -> None:
        stream = self._streams.pop(number)
        del self._numbers[stream.client, stream.number]


def _closed(message: OpenStream, refusal: _Refusal) -> StreamClosed:
    return StreamClosed(message.stream, None, refusal.reason, refusal.refused.value)


def _size(message: StreamData) -> int:
    size = packed_size(message.data)
    if size > PIECE:
        raise ProtocolError(f"a piece of a stream has {size} bytes; at most {PIECE}")
    return size

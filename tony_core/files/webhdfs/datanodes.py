"""Bytes from and to a DataNode, as Python's streams.

A download is a file from an offset on. An upload is one piece after the other, of any sum
(chunked). Each wait has a limit (a shorter one for what only looks); there is none for the whole,
since a file may be of any size.
"""

from __future__ import annotations

import errno
import io
import socket
from typing import Any, BinaryIO, Callable, List, Optional, cast

from .answers import parse_refusal, translate_refusal
from .connection import CONNECT_S, WAIT_S, Address, Answer, Connection, describe, split_url

AT_ONCE = 1 << 20
DATA_NODES_TRIED = 3
_BUFFER = 64 << 10
_FAILURE = 64 << 10
_FIELDS = "Content-Type: application/octet-stream\r\nConnection: close\r\n"


class LostNode(Exception):
    """A DataNode cannot be reached, or closed the connection: another one may serve."""

    def __init__(self, node: Address, error: OSError) -> None:
        super().__init__(str(error))
        self.node = node
        self.error = error

    def as_error(self, path: str, doing: str) -> OSError:
        """The error when no other DataNode serves either."""
        return OSError(
            errno.EHOSTUNREACH,
            f"the DataNode {self.node} could not be reached for {doing} ({describe(self.error)})."
            " The NameNode named it: it is down, or a firewall or its host name keeps this machine"
            " from it",
            path,
        )

    def addresses(self) -> List[str]:
        """The node's IP addresses: a NameNode excludes by them, not by names or ports."""
        try:
            found = socket.getaddrinfo(self.node.host, None, type=socket.SOCK_STREAM)
        except OSError:
            return []
        return sorted({str(one[4][0]) for one in found})


def fetch(url: str, path: str, user: str, limit_s: Optional[float] = None) -> io.BufferedReader:
    """What a DataNode has at a URL that a NameNode gave; :class:`LostNode`, or an OSError."""
    tls, address, target = split_url(url)
    try:
        wait_s = WAIT_S if limit_s is None else limit_s / DATA_NODES_TRIED
        connection = Connection(address, tls, wait_s=wait_s, connect_s=min(CONNECT_S, wait_s))
    except OSError as error:
        raise LostNode(address, error) from None
    try:
        answer = connection.request("GET", target)
        if answer.status != 200:
            _refuse(answer, path, user)
    except OSError as error:
        connection.close()
        if error.filename is None:
            raise LostNode(address, error) from None
        raise
    return io.BufferedReader(_Download(answer, path), _BUFFER)


class _Download(io.RawIOBase):
    """The body of an answer."""

    def __init__(self, answer: Answer, path: str) -> None:
        super().__init__()
        self._answer = answer
        self._path = path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._answer.read_into(memoryview(buffer))
        except OSError as error:
            node = self._answer.connection.address
            text = f"the DataNode {node} broke off in mid-file ({describe(error)}); read it again"
            raise OSError(errno.EIO, text, self._path) from None

    def readall(self) -> bytes:
        parts: List[bytes] = []
        buffer = memoryview(bytearray(AT_ONCE))
        while True:
            count = self.readinto(buffer)
            if not count:
                return b"".join(parts)
            parts.append(bytes(buffer[:count]))

    def close(self) -> None:
        if not self.closed:
            self._answer.connection.close()
        super().close()


class Upload:
    """A file on its way to a DataNode. ``begun`` is false while nothing has been sent."""

    def __init__(self, url: str, path: str, user: str) -> None:
        tls, address, self._target = split_url(url)
        self.node = address
        self._path = path
        self._user = user
        self.begun = False
        try:
            self._connection = Connection(address, tls)
        except OSError as error:
            raise LostNode(self.node, error) from None

    def close(self) -> None:
        """Close the connection, whatever has happened."""
        self._connection.close()

    def send_bytes(self, data: bytes) -> None:
        """A body that is there already."""
        self._send(lambda: self._head(f"Content-Length: {len(data)}\r\n"))
        self._send(lambda: self._connection.send(data))
        self._finish()

    def send_file(self, file: BinaryIO, size: int, source: str) -> None:
        """A body that is a local file; the kernel copies it."""
        self._send(lambda: self._head(f"Content-Length: {size}\r\n"))
        sent: List[int] = []
        self._send(lambda: sent.append(self._connection.send_file(file, size)))
        if sent != [size]:
            raise OSError(errno.EIO, "it became shorter while it was read", source)
        self._finish()

    def send_stream(self, produce: Callable[[BinaryIO], object]) -> None:
        """A body that is made while it travels.

        When ``produce`` fails, the body is ended properly all the same: only so is it known
        that the DataNode is done with the file, which the caller then removes.
        """
        pieces = _Pieces(self)
        stream = io.BufferedWriter(pieces, AT_ONCE)
        try:
            produce(cast(BinaryIO, stream))
            if not stream.closed:
                stream.flush()
        except BaseException as error:
            pieces.broken = True  # what is left in the buffer is not wanted any more
            if self.begun and not isinstance(error, LostNode):
                self._end_early(pieces)
            raise
        finally:
            if not stream.closed:
                stream.detach()
        pieces.begin()
        self._send(lambda: self._connection.send(pieces.last))
        self._finish()

    # ------------------------------------------------------------------ steps

    def begin_chunked(self) -> None:
        """The head of a body whose length is not known."""
        self._send(lambda: self._head("Transfer-Encoding: chunked\r\n"))

    def piece(self, head: bytes, data: Any) -> None:
        """Part of such a body."""

        def send() -> None:
            self._connection.send(head)
            self._connection.send(data)

        self._send(send)

    def _head(self, length: str) -> None:
        self.begun = True
        self._connection.head("PUT", self._target, _FIELDS + length)

    def _send(self, step: Callable[[], None]) -> None:
        """A server that says no answers before it has all of the body, and closes."""
        try:
            step()
        except OSError as error:
            if error.filename is not None:
                raise
            try:
                answer = self._connection.answer()
            except OSError:
                raise LostNode(self.node, error) from None
            _refuse(answer, self._path, self._user)

    def _finish(self) -> None:
        try:
            answer = self._connection.answer()
            if answer.status not in (200, 201):
                _refuse(answer, self._path, self._user)
        except OSError as error:
            if error.filename is not None:
                raise
            raise LostNode(self.node, error) from None

    def _end_early(self, pieces: _Pieces) -> None:
        try:
            self._connection.send(pieces.last)
            self._connection.answer()
        except OSError:
            pass  # it has failed already; the caller hears why


class _Pieces(io.RawIOBase):
    """Each write is a chunk of the body."""

    def __init__(self, upload: Upload) -> None:
        super().__init__()
        self._upload = upload
        self._between = b""
        self.broken = False

    @property
    def last(self) -> bytes:
        """What ends the body."""
        return self._between + b"0\r\n\r\n"

    def writable(self) -> bool:
        return True

    def begin(self) -> None:
        """Once, with the first byte or without any."""
        if not self._upload.begun:
            self._upload.begin_chunked()

    def write(self, data: Any) -> Optional[int]:
        count = len(data)
        if count and not self.broken:
            self.begin()
            self._upload.piece(b"%s%x\r\n" % (self._between, count), data)
            self._between = b"\r\n"
        return count


def _refuse(answer: Answer, path: str, user: str) -> None:
    server = f"the DataNode {answer.connection.address}"
    refusal = parse_refusal(answer.status, answer.read(_FAILURE), server)
    raise translate_refusal(refusal, path, user)

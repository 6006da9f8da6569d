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

from .connection import CONNECT_S, WAIT_S, Address, Connection, Response, describe_error, split_url
from .responses import parse_remote_exception, translate_remote_exception

AT_ONCE = 1 << 20
DATA_NODES_TRIED = 3
_BUFFER = 64 << 10
_FAILURE = 64 << 10
_FIELDS = "Content-Type: application/octet-stream\r\nConnection: close\r\n"


class DataNodeLost(Exception):
    """A DataNode cannot be reached, or closed the connection: another one may serve."""

    def __init__(self, node: Address, error: OSError) -> None:
        super().__init__(str(error))
        self.node = node
        self.error = error

    def as_error(self, path: str, doing: str) -> OSError:
        """The error when no other DataNode serves either."""
        return OSError(
            errno.EHOSTUNREACH,
            f"the DataNode {self.node} could not be reached for {doing}"
            f" ({describe_error(self.error)})."
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


def fetch(
    url: str, path: str, user: str, limit_s: Optional[float] = None, authorities: str = ""
) -> io.BufferedReader:
    """Download from the URL that a NameNode gave; raises :class:`DataNodeLost`, or an OSError."""
    tls, address, target = split_url(url)
    try:
        wait_s = WAIT_S if limit_s is None else limit_s / DATA_NODES_TRIED
        connection = Connection(
            address,
            tls,
            wait_s=wait_s,
            connect_s=min(CONNECT_S, wait_s),
            authorities=authorities,
        )
    except OSError as error:
        raise DataNodeLost(address, error) from None
    try:
        response = connection.request("GET", target)
        if response.status != 200:
            _refuse(response, path, user)
    except OSError as error:
        connection.close()
        if error.filename is None:
            raise DataNodeLost(address, error) from None
        raise
    return io.BufferedReader(_Download(response, path), _BUFFER)


class _Download(io.RawIOBase):
    """The body of an answer."""

    def __init__(self, response: Response, path: str) -> None:
        super().__init__()
        self._answer = response
        self._path = path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._answer.read_into(memoryview(buffer))
        except OSError as error:
            node = self._answer.connection.address
            reason = describe_error(error)
            text = f"the DataNode {node} broke off in mid-file ({reason}); read it again"
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


class FileUpload:
    """A file on its way to a DataNode. ``begun`` is false while nothing has been sent."""

    def __init__(self, url: str, path: str, user: str, authorities: str = "") -> None:
        tls, address, self._target = split_url(url)
        self.node = address
        self._path = path
        self._user = user
        self.started = False
        try:
            self._connection = Connection(address, tls, authorities=authorities)
        except OSError as error:
            raise DataNodeLost(self.node, error) from None

    def close(self) -> None:
        """Close the connection, whatever has happened."""
        self._connection.close()

    def send_bytes(self, data: bytes) -> None:
        """Send a body from memory."""
        self._send(lambda: self._head(f"Content-Length: {len(data)}\r\n"))
        self._send(lambda: self._connection.send(data))
        self._finish()

    def send_file(self, file: BinaryIO, size: int, source: str) -> None:
        """Send a local file as the body; the kernel copies it."""
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
        pieces = _ChunkedBody(self)
        stream = io.BufferedWriter(pieces, AT_ONCE)
        try:
            produce(cast(BinaryIO, stream))
            if not stream.closed:
                stream.flush()
        except BaseException as error:
            pieces.broken = True  # what is left in the buffer is not wanted any more
            if self.started and not isinstance(error, DataNodeLost):
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
        """Begin a body of unknown length."""
        self._send(lambda: self._head("Transfer-Encoding: chunked\r\n"))

    def piece(self, head: bytes, data: Any) -> None:
        """Send a chunk of such a body."""

        def send() -> None:
            self._connection.send(head)
            self._connection.send(data)

        self._send(send)

    def _head(self, length: str) -> None:
        self.started = True
        self._connection.head("PUT", self._target, _FIELDS + length)

    def _send(self, step: Callable[[], None]) -> None:
        """Send; a server that refuses answers before it has read the body, and closes."""
        try:
            step()
        except OSError as error:
            if error.filename is not None:
                raise
            try:
                response = self._connection.response()
            except OSError:
                raise DataNodeLost(self.node, error) from None
            _refuse(response, self._path, self._user)

    def _finish(self) -> None:
        try:
            response = self._connection.response()
            if response.status not in (200, 201):
                _refuse(response, self._path, self._user)
        except OSError as error:
            if error.filename is not None:
                raise
            raise DataNodeLost(self.node, error) from None

    def _end_early(self, pieces: _ChunkedBody) -> None:
        try:
            self._connection.send(pieces.last)
            self._connection.response()
        except OSError:
            pass  # it has failed already; the caller hears why


class _ChunkedBody(io.RawIOBase):
    """A stream each of whose writes is a chunk of the body."""

    def __init__(self, upload: FileUpload) -> None:
        super().__init__()
        self._upload = upload
        self._between = b""
        self.broken = False

    @property
    def last(self) -> bytes:
        """The bytes that end the body."""
        return self._between + b"0\r\n\r\n"

    def writable(self) -> bool:
        return True

    def begin(self) -> None:
        """Once, with the first byte or without any."""
        if not self._upload.started:
            self._upload.begin_chunked()

    def write(self, data: Any) -> Optional[int]:
        count = len(data)
        if count and not self.broken:
            self.begin()
            self._upload.piece(b"%s%x\r\n" % (self._between, count), data)
            self._between = b"\r\n"
        return count


def _refuse(response: Response, path: str, user: str) -> None:
    server = f"the DataNode {response.connection.address}"
    refusal = parse_remote_exception(response.status, response.read(_FAILURE), server)
    raise translate_remote_exception(refusal, path, user)

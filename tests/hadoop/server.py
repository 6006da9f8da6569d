"""A small server of Hadoop's RPC on this machine (SIMPLE), which can misbehave as told."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Callable, List, Optional, Type, Union

from tony_core.hadoop.rpc.connection import Address
from tony_core.hadoop.rpc.messages import (
    IpcConnectionContext,
    RequestHeader,
    RpcRequestHeader,
    RpcResponseHeader,
)
from tony_core.hadoop.rpc.protobuf import Message, read_delimited


@dataclass(frozen=True)
class Failure:
    """An exception of Java's as the answer."""

    remote_class: str
    text: str = ""
    fatal: bool = False


@dataclass(frozen=True)
class Raw:
    """These bytes instead of an answer; then the connection is closed."""

    data: bytes = b""


SILENCE = "silence"
"""No answer at all."""

Reply = Union[Message, Failure, Raw, str]


@dataclass(frozen=True)
class Call:
    """What came."""

    method: str
    body: bytes
    call_id: int
    retry: int
    client_id: bytes
    user: str
    connection: int


@dataclass
class Server:
    """Answers each call by ``reply(call)``. A context manager."""

    reply: Callable[[Call], Reply]
    port: int = 0
    calls: List[Call] = field(default_factory=list)
    pings: int = 0
    accepted: int = 0

    def __post_init__(self) -> None:
        self._sock = socket.create_server(("127.0.0.1", self.port))
        self.address = Address(*self._sock.getsockname()[:2])
        self._open: List[socket.socket] = []
        self._threads: List[threading.Thread] = []

    def __enter__(self) -> Server:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Nothing listens any more, and every connection is closed."""
        for sock in (self._sock, *self._open):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        for sock in (self._sock, *self._open):
            sock.close()

    def drop_connections(self) -> None:
        """As an idle server does."""
        for sock in self._open:
            sock.shutdown(socket.SHUT_RDWR)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            self.accepted += 1
            self._open.append(sock)
            self._start(self._serve, sock, self.accepted)

    def _serve(self, sock: socket.socket, number: int) -> None:
        try:
            with sock.makefile("rb") as file:
                assert file.read(7) == b"hrpc\x09\x00\x00"
                user = ""
                while True:
                    size = int.from_bytes(file.read(4), "big")
                    packet = file.read(size)
                    if not size:
                        return
                    head, at = read_delimited(packet, 0)
                    header = RpcRequestHeader.decode(head)
                    if header.call_id == -3:
                        context, _ = read_delimited(packet, at)
                        user = IpcConnectionContext.decode(context).user_info.effective_user
                    elif header.call_id == -4:
                        self.pings += 1
                    elif not self._answer(sock, packet, at, header, user, number):
                        sock.shutdown(socket.SHUT_RDWR)
                        return
        except OSError:
            return

    def _answer(
        self,
        sock: socket.socket,
        packet: bytes,
        at: int,
        header: RpcRequestHeader,
        user: str,
        number: int,
    ) -> bool:
        what, at = read_delimited(packet, at)
        body, _ = read_delimited(packet, at)
        call = Call(
            RequestHeader.decode(what).method_name,
            body,
            header.call_id,
            header.retry_count,
            header.client_id,
            user,
            number,
        )
        self.calls.append(call)
        reply = self.reply(call)
        if isinstance(reply, Raw):
            sock.sendall(reply.data)
            return False
        if isinstance(reply, str):
            return True
        answer = RpcResponseHeader(call_id=header.call_id, status=0)
        data = b""
        if isinstance(reply, Failure):
            answer = answer.replace(
                status=2 if reply.fatal else 1,
                exception_class_name=reply.remote_class,
                error_msg=reply.text,
            )
        else:
            data = reply.delimited()
        data = answer.delimited() + data
        sock.sendall(len(data).to_bytes(4, "big") + data)
        return not (isinstance(reply, Failure) and reply.fatal)

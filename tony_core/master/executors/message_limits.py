"""What a master takes from one executor, in size and in number.

A training program can read the key of its own container, and speak to the master in its executor's
name. It may end its own job that way. It must not end the master by a value that no executor of
ours sends, nor fill its memory, its log or history. So every message passes through the
:class:`MessageLimits` of its container: texts are cut, names beyond a number are passed over, and
what no executor of ours can have meant ends the connection.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Type

from tony_core.printable import printable
from tony_core.protocol.codec import ProtocolError, decode_record
from tony_core.protocol.messages import (
    Ended,
    Measured,
    Message,
    Noted,
    Ready,
    Register,
    Reported,
    Running,
    Serving,
    StacksDumped,
    Stalled,
    StallKind,
    Stopped,
    StreamClosed,
    StreamData,
    StreamOpened,
)
from tony_core.protocol.tunnel import PIECE

MOST_BYTES = 4 * 1024 * 1024  # of one message
NAMES = 1000  # of all metrics of a container
NAME = 200
NOTES = 500  # lines in the story
TURNS = 100  # how often a web server beside the program may come and go
SESSIONS = 10_000
LINES = 1000  # in the master's own log
TEXT = 8 * 1024
TAIL = 256 * 1024
RESULT = 64 * 1024
GPUS = 1024
PORTS = 64
STALLS = 5000  # messages about them
STALL_KINDS: Sequence[str] = ("", *StallKind)
PHASES = ("idle", "ready", "running", "ended")
_LARGEST = 2**32 - 1  # of a process id, or of what is counted


class MessageLimits:
    """What one container's executor has sent so far, as far as it is counted."""

    def __init__(self) -> None:
        self._names: Set[str] = set()
        self._sessions: Set[int] = set()
        self._notes = self._turns = self._lines = self._stalls = 0

    def admits_line(self) -> bool:
        """Whether one more line about this executor may stand in the log."""
        self._lines += 1
        return self._lines <= LINES

    def admit(self, message: Any) -> Optional[Any]:
        """The message as it may be used; None: pass it over. Raises :class:`ProtocolError`."""
        check = _CHECKS.get(type(message))
        return message if check is None else check(self, message)

    def admit_first(self, m: Register) -> Register:
        """Check a connection's first message."""
        if m.phase not in PHASES:
            raise ProtocolError(_rejection("Register.phase", m.phase, ", ".join(PHASES)))
        _check_range("Register.session", m.session, -1, _LARGEST)
        _check_range("Register.restart", m.restart, 0, _LARGEST)
        _check_range("Register.pid", m.pid, 0, _LARGEST)
        _check_host("Register.host", m.host)
        _check_host("Register.listen_host", m.listen_host)
        _check_ports("Register.ports", m.ports)
        _check_range("Register.listen_port", m.listen_port, 0, 65535)
        stalled = None if m.stalled is None else decode_record(Stalled, m.stalled)
        return m._replace(
            task=_text(m.task, NAME),
            offsets=_offsets(m.offsets),
            ran_s=max(0.0, float(m.ran_s)),
            gpus=_gpus(m.gpus),
            stalled=None if stalled is None else dict(self._check_stalled(stalled)._asdict()),
        )

    def _ready(self, m: Ready) -> Ready:
        _check_host("Ready.host", m.host)
        _check_ports("Ready.ports", m.ports)
        return m

    def _running(self, m: Running) -> Running:
        _check_range("Running.pid", m.pid, 0, _LARGEST)
        return m._replace(offsets=_offsets(m.offsets), gpus=_gpus(m.gpus))

    def _ended(self, m: Ended) -> Ended:
        _check_range("Ended.exit_code", m.exit_code, -1, 255)
        _check_range("Ended.signal", m.signal, 0, 127)
        self._sessions.add(m.session)
        if len(self._sessions) > SESSIONS:
            raise ProtocolError(f"Ended in more than {SESSIONS} sessions")
        kept, left = [], TAIL
        for line in m.stderr_tail:
            if left <= 0:
                break
            kept.append(_text(line, left))
            left -= len(line) + 1
        return m._replace(
            cause=_text(m.cause, NAME), message=_text(m.message, TEXT), stderr_tail=kept,
            duration_s=max(0.0, float(m.duration_s)), usage=_first(m.usage, PORTS),
        )  # fmt: skip

    def _stopped(self, m: Stopped) -> Stopped:
        return m._replace(survivors=m.survivors[:100])

    def _measured(self, m: Measured) -> Measured:
        return m._replace(values=self._known(m.values))

    def _reported(self, m: Reported) -> Reported:
        progress = None if m.progress is None else min(1.0, max(0.0, float(m.progress)))
        return m._replace(
            progress=progress,
            metrics=self._known(m.metrics),
            result=m.result if _is_result(m.result) else "",
        )

    def _serving(self, m: Serving) -> Optional[Serving]:
        _check_range("Serving.port", m.port, 0, 65535)
        self._turns += 1
        return m._replace(message=_text(m.message, TEXT)) if self._turns <= TURNS else None

    def _stalled(self, m: Stalled) -> Optional[Stalled]:
        self._stalls += 1
        if self._stalls > STALLS and m.kind:
            return None
        return self._check_stalled(m)

    def _stacks_dumped(self, m: StacksDumped) -> Optional[StacksDumped]:
        self._stalls += 1
        if self._stalls > STALLS:
            return None
        return m._replace(cpu_percent=max(0.0, float(m.cpu_percent)), frame=_frame(m.frame))

    def _check_stalled(self, m: Stalled) -> Stalled:
        if m.kind not in STALL_KINDS:
            raise ProtocolError(_rejection("Stalled.kind", m.kind, ", ".join(StallKind)))
        return m._replace(
            still_s=max(0.0, float(m.still_s)),
            cpu_percent=max(0.0, float(m.cpu_percent)),
            frame=_frame(m.frame),
        )

    def _noted(self, m: Noted) -> Optional[Noted]:
        self._notes += 1
        if self._notes > NOTES:
            return None
        more = "; further notes of its executor are passed over" if self._notes == NOTES else ""
        return m._replace(text=_text(m.text, TEXT) + more, once=_text(m.once, NAME))

    def _stream_opened(self, m: StreamOpened) -> StreamOpened:
        return m._replace(note=_text(m.note, NAME))

    def _stream_data(self, m: StreamData) -> StreamData:
        if len(m.data) > 2 * PIECE:
            raise ProtocolError(f"StreamData of {len(m.data)} characters; at most {2 * PIECE}")
        return m

    def _stream_closed(self, m: StreamClosed) -> StreamClosed:
        if m.exit_code is not None:
            _check_range("StreamClosed.exit_code", m.exit_code, 0, 255)
        return m._replace(message=_text(m.message, TEXT), refused=_text(m.refused, NAME))

    def _known(self, values: Mapping[str, float]) -> Dict[str, float]:
        found = {}
        for name, value in values.items():
            if name not in self._names:
                if len(self._names) >= NAMES or len(name) > NAME or name != _text(name, NAME):
                    continue
                self._names.add(name)
            found[name] = value
        return found


_CHECKS: Mapping[Type[Any], Callable[[MessageLimits, Any], Optional[Message]]] = {
    Ready: MessageLimits._ready,
    Running: MessageLimits._running,
    Ended: MessageLimits._ended,
    Stopped: MessageLimits._stopped,
    Measured: MessageLimits._measured,
    Reported: MessageLimits._reported,
    Serving: MessageLimits._serving,
    Noted: MessageLimits._noted,
    Stalled: MessageLimits._stalled,
    StacksDumped: MessageLimits._stacks_dumped,
    StreamOpened: MessageLimits._stream_opened,
    StreamData: MessageLimits._stream_data,
    StreamClosed: MessageLimits._stream_closed,
}


def _text(text: str, most: int) -> str:
    """So much of it, without the halves of surrogates that no file and no page can hold."""
    return text[:most].encode("utf-8", "replace").decode()


def _frame(text: str) -> str:
    """Where a program stands, as one row of a log or a terminal."""
    return printable(_text(text, NAME))


def _is_result(text: str) -> bool:
    """Whether it can be shown and written as JSON."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return len(text) <= RESULT


def _rejection(field: str, value: object, expected: str) -> str:
    return f"{field}={ascii(value)[:100]} is out of range; expected {expected}"


def _check_range(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ProtocolError(_rejection(field, value, f"{least} to {most}"))


def _check_host(field: str, host: str) -> None:
    if len(host) > 255 or not host.isprintable() or set(host) & set(" /@\\\"'<>"):
        raise ProtocolError(_rejection(field, host, "a host name or an address"))


def _check_ports(field: str, ports: Mapping[str, int]) -> None:
    if len(ports) > PORTS:
        raise ProtocolError(f"{field} has {len(ports)} entries; expected at most {PORTS}")
    for name, port in ports.items():
        if len(name) > NAME or not name.isprintable():
            raise ProtocolError(
                _rejection(f"{field}, a name", name, f"at most {NAME} printable characters")
            )
        _check_range(f"{field}[{name!a}]", port, 1, 65535)


def _offsets(offsets: Mapping[str, int]) -> Dict[str, int]:
    return {_text(name, NAME): max(0, at) for name, at in _first(offsets, PORTS).items()}


def _gpus(names: Sequence[str]) -> List[str]:
    return [_text(name, NAME) for name in names[:GPUS]]


def _first(values: Mapping[str, Any], most: int) -> Dict[str, Any]:
    return {_text(name, NAME): value for name, value in list(values.items())[:most]}

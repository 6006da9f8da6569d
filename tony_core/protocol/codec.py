"""Messages as bytes and back: one JSON array ``["Name", {field: value}]`` per message.

Strict both ways: an unknown message, an unknown or missing field, a value of the wrong type
and a number that JSON cannot hold are refused by name. Fields that hold their default
are left out, so a heartbeat is thirty bytes.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Mapping, Tuple, Union, get_args, get_origin

from tony_core.protocol import messages
from tony_core.protocol.messages import Message


class ProtocolError(Exception):
    """The conversation cannot go on. ``fault`` says whose it is: ``local`` or ``remote``."""

    def __init__(self, message: str, fault: str = "remote") -> None:
        super().__init__(message)
        self.fault = fault


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number here")


# Made once: json.loads with an argument makes a decoder for each message.
_DECODER = json.JSONDecoder(parse_constant=_refuse)
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def encode(message: Message, raw: Mapping[str, bytes] = {}) -> bytes:
    """The message's bytes; a field named in ``raw`` is JSON already and put in as it is."""
    name = type(message).__name__
    if name not in _FIELDS:
        raise ProtocolError(f"{name} is no message of the protocol", fault="local")
    parts = []
    for field, value in zip(message._fields, message):
        if field in raw:
            parts.append(_ENCODER.encode(field).encode() + b":" + raw[field])
        elif not _is_default(type(message), field, value):
            try:
                text = _ENCODER.encode(value)
            except (TypeError, ValueError) as error:
                raise ProtocolError(
                    f"{name}.{field} cannot be sent: {error}", fault="local"
                ) from error
            parts.append(f'"{field}":{text}'.encode("ascii"))
    return b'["' + name.encode() + b'",{' + b",".join(parts) + b"}]"


def decode(payload: bytes) -> Message:
    """The message in these bytes; raises :class:`ProtocolError`."""
    try:
        decoded = _DECODER.decode(payload.decode("utf-8"))
    except RecursionError:
        raise ProtocolError("a message is nested too deeply") from None
    except ValueError as error:
        raise ProtocolError(f"a message is no JSON: {error}") from None
    if not (isinstance(decoded, list) and len(decoded) == 2 and isinstance(decoded[0], str)):
        raise ProtocolError('a message is no ["Name", {...}]')
    name, values = decoded
    fields = _FIELDS.get(name)
    if fields is None:
        raise ProtocolError(f"unknown message {name[:40]!r}")
    if not isinstance(values, dict):
        raise ProtocolError(f"the fields of {name} are no JSON object")
    for field, value in values.items():
        if field not in fields:
            raise ProtocolError(f"{name} has no field {field[:40]!r}")
        kind, fits = fields[field]
        if not fits(value):
            raise ProtocolError(f"{name}.{field} is no {kind}")
    missing = [f for f in fields if f not in values and f not in _defaults(_TYPES[name])]
    if missing:
        raise ProtocolError(f"{name} lacks {', '.join(missing)}")
    made: Message = _TYPES[name](**values)
    return made


def decode_record(kind: Any, values: Mapping[str, Any]) -> Any:
    """A message that came inside another, as strictly read; unknown fields are ignored."""
    fields = _FIELDS[kind.__name__]
    known = {field: value for field, value in values.items() if field in fields}
    for field, value in known.items():
        name, fits = fields[field]
        if not fits(value):
            raise ProtocolError(f"{kind.__name__}.{field} is no {name}")
    missing = [f for f in fields if f not in known and f not in _defaults(kind)]
    if missing:
        raise ProtocolError(f"{kind.__name__} lacks {', '.join(missing)}")
    return kind(**known)


# ------------------------------------------------------------------ the table of fields

_MOST = 1 << 63  # no count is larger, and no larger one can be reckoned with as a float
_INFINITE = float("inf")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_MOST <= value < _MOST


def _is_float(value: object) -> bool:
    if isinstance(value, float):
        return -_INFINITE < value < _INFINITE
    return _is_int(value)


def _is_str(value: object) -> bool:
    return isinstance(value, str)


_SCALARS: Dict[Any, Callable[[object], bool]] = {
    int: _is_int,
    float: _is_float,
    str: _is_str,
    bool: lambda value: isinstance(value, bool),
    Any: lambda value: True,
}


def _checker(kind: Any) -> Callable[[object], bool]:
    """The test for an annotation in messages.py."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    outer, inner = get_origin(kind), get_args(kind)
    if outer is Union and len(inner) == 2 and inner[1] is type(None):
        wanted = _checker(inner[0])
        return lambda value: value is None or wanted(value)
    if outer is list:
        item = _checker(inner[0])
        return lambda value: isinstance(value, list) and all(map(item, value))
    if outer is dict and inner[0] is str:
        each = _checker(inner[1])
        return lambda value: isinstance(value, dict) and all(map(each, value.values()))
    raise TypeError(f"messages.py uses {kind}, which the codec does not know")


def _fields_of(kind: Any) -> Dict[str, Tuple[str, Callable[[object], bool]]]:
    """Field -> its type for a message, and the test for its value."""
    found = {}
    for field in kind._fields:
        annotation = kind.__annotations__[field]
        is_class = isinstance(annotation, type)
        text = annotation.__name__ if is_class else str(annotation).replace("typing.", "")
        found[field] = (text, _checker(annotation))
    return found


def _defaults(kind: Any) -> Mapping[str, Any]:
    defaults: Mapping[str, Any] = kind._field_defaults
    return defaults


def _is_default(kind: Any, field: str, value: object) -> bool:
    defaults = _defaults(kind)
    if field not in defaults:
        return False
    default = defaults[field]
    # 0 == 0.0 == False: only the same type is the same value.
    return type(default) is type(value) and default == value


_ALL: Tuple[Any, ...] = (*messages.TO_MASTER, *messages.TO_EXECUTOR)
_TYPES: Dict[str, Any] = {kind.__name__: kind for kind in _ALL}
_FIELDS = {name: _fields_of(kind) for name, kind in _TYPES.items()}

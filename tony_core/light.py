"""What every executor needs of the standard library, without what the library brings along.

Theory of operation
===================

There are thousands of executors, and on a node a gang's start together: what each imports before
the program's first line is multiplied by their number. ``typing`` (with ``re``, ``enum`` and
``functools`` behind it), ``socket`` and ``signal`` (an enumeration for every constant), ``json``
(``re`` again) and ``collections`` cost more than Python itself. So whatever an executor's start
imports takes from here

- :data:`TYPE_CHECKING`, below which everything that only annotations name is imported;
- :class:`Record` for :class:`typing.NamedTuple`;
- ``signal`` and ``socket``: the C parts of those modules, numbers for constants;
- :func:`json_text` and :func:`json_value`: the C parts of ``json``;
- ``deque``.

For mypy they are the library's own. ``tests/executor/test_light.py`` holds the list of what an
executor's start must not import. Python 3.8; needs nothing of ours.
"""

from __future__ import annotations

import _json
import sys

TYPE_CHECKING = False  # by its name a type checker takes it for True

if TYPE_CHECKING:
    import signal
    import socket
    from collections import deque
    from typing import Any
    from typing import NamedTuple as Record
else:
    import _signal as signal
    import _socket
    from _collections import _tuplegetter, deque

    class _Socket(_socket.socket):
        """As :class:`socket.socket`, but for what makes files and enumerations of it."""

        __slots__ = ("__weakref__",)

        def accept(self):
            """(the connection, the peer's address)."""
            number, address = self._accept()
            return _Socket(self.family, self.type, self.proto, fileno=number), address

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.close()

    socket = type(sys)("socket")  # a module like that one
    vars(socket).update({**vars(_socket), "socket": _Socket})

    class _RecordType(type):
        def __new__(cls, name, bases, space):
            fields = tuple(space.get("__annotations__", ()))
            defaults = {field: space.pop(field) for field in fields if field in space}
            for index, field in enumerate(fields):
                space[field] = _tuplegetter(index, field)
            space.update(__slots__=(), _fields=fields, __match_args__=fields)
            space["_field_defaults"] = defaults
            return type.__new__(cls, name, bases, space)

    class Record(tuple, metaclass=_RecordType):
        """As :class:`typing.NamedTuple`, made without compiling anything."""

        def __new__(cls, *values, **named):
            fields = cls._fields
            if len(values) != len(fields):
                defaults = cls._field_defaults
                missing = [f for f in fields[len(values) :] if f not in named and f not in defaults]
                if missing:
                    raise TypeError(f"{cls.__name__} needs {', '.join(missing)}")
                values += tuple(
                    named.pop(field) if field in named else defaults[field]
                    for field in fields[len(values) :]
                )
            if named or len(values) > len(fields):
                what = ", ".join(named) or f"{len(values)} values"
                raise TypeError(f"{cls.__name__} has no place for {what}")
            return tuple.__new__(cls, values)

        @classmethod
        def _make(cls, values):
            return cls(*values)

        def _asdict(self):
            return dict(zip(self._fields, self))  # noqa: B905 (Python 3.8)

        def _replace(self, **named):
            return type(self)(**{**self._asdict(), **named})

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            fields = ", ".join(f"{f}={v!r}" for f, v in self._asdict().items())
            return f"{type(self).__name__}({fields})"


def json_text(value: Any) -> str:
    """As ``json.dumps``, without blanks. ValueError for a number that JSON has no word for."""
    return "".join(_ENCODER(value, 0))


def json_value(text: str) -> Any:
    """As ``json.loads``; ValueError for text that is none, and for NaN and its like."""
    text = text.strip(" \t\n\r")
    try:
        value, end = _SCANNER(text, 0)
    except StopIteration as error:
        raise ValueError(f"expecting a value: char {error.value}") from None
    if end != len(text):
        raise ValueError(f"extra data: char {end}")
    return value


def _unknown(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is nothing that JSON has a word for")


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number here")


class _Reading:
    """The settings of a ``json.JSONDecoder``."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, staticmethod(_refuse)


_READING: Any = _Reading()
_SCANNER = _json.make_scanner(_READING)
_ENCODER = _json.make_encoder(
    None, _unknown, _json.encode_basestring_ascii, None, ":", ",", False, False, False
)

__all__ = ["TYPE_CHECKING", "Record", "deque", "json_text", "json_value", "signal", "socket"]

"""Objects that Java has serialised, read as plain data.

Nothing is created and no class is looked for: an object becomes a :class:`JavaObject` with
its class's name, its fields, and what the class wrote beyond them. Maps and lists of
``java.util`` become ours. That is enough for an index that only holds texts and numbers.

The grammar is that of the *Java Object Serialization Specification*, protocol version 2.
Depth and number of objects are limited; everything else is bounded by the bytes given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from tony_core.hadoop.logs.datainput import (
    BytesSource,
    DataInput,
    FormatError,
    Unsupported,
    decode_modified_utf8,
)

_MAGIC = 0xACED
_VERSION = 5
_DEEPEST = 64
_FIRST_HANDLE = 0x7E0000

_WRITE_METHOD, _SERIALIZABLE, _EXTERNALIZABLE, _ENUM = 1, 2, 4, 16

_NULL, _REFERENCE, _CLASS_DESC, _OBJECT, _STRING = 0x70, 0x71, 0x72, 0x73, 0x74
_ARRAY, _CLASS, _BLOCK, _END, _RESET = 0x75, 0x76, 0x77, 0x78, 0x79
_LONG_BLOCK, _LONG_STRING, _PROXY, _ENUM_VALUE = 0x7A, 0x7C, 0x7D, 0x7E


class JavaClass(NamedTuple):
    """The description of a Java class in the stream."""

    name: str
    flags: int
    fields: Tuple[Tuple[str, str], ...]  # type code, name
    parent: Optional[JavaClass]


@dataclass
class JavaObject:
    """An object: its class, its fields, and what its ``writeObject`` method added."""

    name: str
    fields: Dict[str, Any] = field(default_factory=dict)
    extra: List[Any] = field(default_factory=list)


class _End:
    """Marks the end of what a ``writeObject`` method added."""


def read_object(data: bytes) -> Any:
    """The one object of a stream: texts, numbers, dicts, lists and :class:`JavaObject`."""
    return _Reader(data).whole()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._in = DataInput(BytesSource(data))
        self._handles: List[Any] = []
        self._depth = 0

    def whole(self) -> Any:
        if self._in.unsigned_short() != _MAGIC or self._in.unsigned_short() != _VERSION:
            raise FormatError("it does not begin as Java's serialised objects do")
        return _plain(self._content(), {}, 0)

    def _content(self) -> Any:
        if self._depth > _DEEPEST:
            raise FormatError(f"objects stand more than {_DEEPEST} deep in one another")
        self._depth += 1
        try:
            return self._one(self._in.unsigned_byte())
        finally:
            self._depth -= 1

    def _one(self, kind: int) -> Any:
        simple: Mapping[int, Callable[[], Any]] = {
            _NULL: lambda: None,
            _REFERENCE: self._reference,
            _STRING: lambda: self._keep(self._in.text()),
            _LONG_STRING: lambda: self._keep(decode_modified_utf8(self._in.take(self._in.long()))),
            _BLOCK: lambda: self._in.take(self._in.unsigned_byte()),
            _LONG_BLOCK: lambda: self._in.take(self._in.integer()),
            _OBJECT: self._object,
            _ARRAY: self._array,
            _ENUM_VALUE: self._enum,
            _END: _End,
        }
        read = simple.get(kind)
        if read is None:
            raise Unsupported(f"the serialised object holds something of kind {kind:#x}")
        return read()

    def _keep(self, value: Any) -> Any:
        self._handles.append(value)
        return value

    def _reference(self) -> Any:
        number = self._in.integer() - _FIRST_HANDLE
        if not 0 <= number < len(self._handles):
            raise FormatError(f"it refers to object {number} of {len(self._handles)}")
        return self._handles[number]

    # ---------------------------------------------------------------- classes

    def _class(self) -> Optional[JavaClass]:
        kind = self._in.unsigned_byte()
        if kind == _NULL:
            return None
        if kind == _REFERENCE:
            known = self._reference()
            if not isinstance(known, JavaClass):
                raise FormatError("a class refers to something else")
            return known
        if kind != _CLASS_DESC:
            raise Unsupported(f"a class is described in a way of kind {kind:#x}")
        if self._depth > _DEEPEST:
            raise FormatError(f"classes stand more than {_DEEPEST} deep in one another")
        name = self._in.text()
        self._in.long()  # the version of the class
        place = len(self._handles)
        self._keep(None)
        flags = self._in.unsigned_byte()
        fields = tuple(self._field() for _ in range(self._in.unsigned_short()))
        while not isinstance(self._content(), _End):
            pass  # annotations
        self._depth += 1
        parent = self._class()
        self._depth -= 1
        found = self._handles[place] = JavaClass(name, flags, fields, parent)
        return found

    def _field(self) -> Tuple[str, str]:
        code = chr(self._in.unsigned_byte())
        name = self._in.text()
        if code in "L[":
            self._content()  # the name of its class
        return code, name

    # ---------------------------------------------------------------- objects

    def _object(self) -> JavaObject:
        kind = self._class()
        if kind is None:
            raise FormatError("an object has no class")
        found: JavaObject = self._keep(JavaObject(kind.name))
        line: List[JavaClass] = []
        above: Optional[JavaClass] = kind
        while above is not None:
            line.insert(0, above)
            above = above.parent
            if len(line) > _DEEPEST:
                raise FormatError(f"a class has more than {_DEEPEST} above it")
        for one in line:
            if not one.flags & _SERIALIZABLE or one.flags & _EXTERNALIZABLE:
                raise Unsupported(f"objects of {one.name} are written in a way of their own")
            for code, name in one.fields:
                found.fields[name] = self._value(code)
            if one.flags & _WRITE_METHOD:
                while True:
                    more = self._content()
                    if isinstance(more, _End):
                        break
                    found.extra.append(more)
        return found

    def _array(self) -> List[Any]:
        kind = self._class()
        if kind is None or not kind.name.startswith("["):
            raise FormatError("an array has no class of arrays")
        found: List[Any] = self._keep([])
        for _ in range(self._in.integer()):
            found.append(self._value(kind.name[1:2]))
        return found

    def _enum(self) -> str:
        self._class()
        place = len(self._handles)
        self._keep("")
        name = self._content()
        if not isinstance(name, str):
            raise FormatError("a value of an enumeration has no name")
        self._handles[place] = name
        return name

    def _value(self, code: str) -> Any:
        readers: Mapping[str, Callable[[], Any]] = {
            "B": lambda: int.from_bytes(self._in.take(1), "big", signed=True),
            "C": self._in.unsigned_short,
            "D": self._in.double,
            "F": lambda: self._in.take(4),
            "I": self._in.integer,
            "J": self._in.long,
            "S": self._in.unsigned_short,
            "Z": lambda: self._in.unsigned_byte() != 0,
            "L": self._content,
            "[": self._content,
        }
        read = readers.get(code)
        if read is None:
            raise FormatError(f"there is no type {code!r}")
        return read()


def _plain(value: Any, known: Dict[int, Any], depth: int) -> Any:
    """Maps and lists as ours; each object once, whatever refers to it."""
    if depth > _DEEPEST:
        raise FormatError(f"objects stand more than {_DEEPEST} deep in one another")
    if id(value) in known:
        return known[id(value)]
    made: Any
    if isinstance(value, list):
        made = known[id(value)] = []
        made += [_plain(item, known, depth + 1) for item in value]
        return made
    if not isinstance(value, JavaObject):
        return value
    items = [item for item in value.extra if not isinstance(item, bytes)]
    if value.name in ("java.util.ArrayList", "java.util.LinkedList"):
        made = known[id(value)] = []
        made += [_plain(item, known, depth + 1) for item in items]
    elif value.name in ("java.util.HashMap", "java.util.LinkedHashMap"):
        made = known[id(value)] = {}
        for key, item in zip(items[::2], items[1::2]):
            if not isinstance(key, (str, int, type(None))):
                raise Unsupported(f"a map has keys that are no texts: {type(key).__name__}")
            made[key] = _plain(item, known, depth + 1)
    else:
        made = known[id(value)] = JavaObject(value.name)
        for name, item in value.fields.items():
            made.fields[name] = _plain(item, known, depth + 1)
    return made

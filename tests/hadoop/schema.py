"""All messages of the package, and how to make any of them."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Dict, List, Type

from hypothesis import strategies as st

import tony_core.hadoop.yarn.messages as package
from tony_core.hadoop.rpc.protobuf import (
    BOOL,
    BYTES,
    ENUM,
    FLOAT,
    INT32,
    INT64,
    SINT32,
    STRING,
    UINT32,
    UINT64,
    Field,
    Message,
)


def all_messages() -> Dict[str, Type[Message]]:
    """By name; two of one name would be one in the table of names."""
    found: Dict[str, Type[Message]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        for name, value in vars(
            importlib.import_module(f"{package.__name__}.{module.name}")
        ).items():
            if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                assert found.setdefault(name, value) is value, name
    return found


MESSAGES = all_messages()

_SCALARS: Dict[Any, st.SearchStrategy[Any]] = {
    INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    ENUM: st.integers(0, 100),
    INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    UINT32: st.integers(0, (1 << 32) - 1),
    UINT64: st.integers(0, (1 << 64) - 1),
    SINT32: st.integers(-(1 << 31), (1 << 31) - 1),
    BOOL: st.booleans(),
    FLOAT: st.floats(width=32, allow_nan=False),
    STRING: st.text(max_size=20),
    BYTES: st.binary(max_size=200),
}


def values(field: Field, depth: int) -> st.SearchStrategy[Any]:
    single = _SCALARS[field.kind] if field.kind in _SCALARS else instances(field.message(), depth)
    return st.lists(single, max_size=3).map(tuple) if field.repeated else single


def instances(kind: Type[Message], depth: int = 3) -> st.SearchStrategy[Message]:
    """Messages of a class, with any of its fields set to anything."""

    @st.composite
    def build(draw: st.DrawFn) -> Message:
        own: Dict[str, Any] = {}
        for field in kind.FIELDS:
            if (field.kind in _SCALARS or depth) and (field.required or draw(st.booleans())):
                value = draw(values(field, depth - 1))
                if value != ():
                    own[field.name] = value
        return kind(**own)

    return build()


def any_message() -> st.SearchStrategy[Message]:
    kinds: List[Type[Message]] = [MESSAGES[name] for name in sorted(MESSAGES)]
    return st.sampled_from(kinds).flatmap(instances)

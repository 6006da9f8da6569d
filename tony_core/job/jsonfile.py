"""A :class:`Job` as JSON and back, without loss: how the master on a node gets it.

Standard library only, Python 3.9. Nothing is masked: the file is for the master alone.
"""

from __future__ import annotations

import json
import typing
from enum import Enum
from typing import Any, Dict, Tuple, Union

from tony_core.job import spec
from tony_core.job.spec import Job
from tony_core.jsontext import read_object

FORMAT = 1
_HINTS: Dict[type, Dict[str, Any]] = {}


def job_to_json(job: Job) -> str:
    return json.dumps({"format": FORMAT, "job": _encode(job)}, ensure_ascii=True)


def job_from_json(text: str) -> Job:
    """The job that :func:`job_to_json` wrote; ValueError when it is anything else."""
    outer = read_object(text)
    if outer.get("format") != FORMAT:
        raise ValueError(f"not a job in format {FORMAT}")
    job = _decode(outer.get("job"), Job, "job")
    assert isinstance(job, Job)
    return job


def _encode(value: Any) -> Any:
    names = getattr(value, "_fields", ())  # of a NamedTuple
    if names:
        return {name: _encode(item) for name, item in zip(names, value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return value


def _decode(value: Any, kind: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin is Union:
        if value is None:
            return None
        return _decode(value, next(a for a in typing.get_args(kind) if a is not type(None)), where)
    if origin is tuple:
        return _decode_tuple(value, typing.get_args(kind), where)
    if hasattr(kind, "_fields"):
        return _decode_object(value, kind, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > 1e300:
            raise ValueError(f"{where}: too large")
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{where}: {type(value).__name__} instead of {kind.__name__}")
    return value


def _decode_tuple(value: Any, kinds: Tuple[Any, ...], where: str) -> Tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where}: not a list")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_decode(item, kinds[0], f"{where}[{i}]") for i, item in enumerate(value))
    if len(kinds) != len(value):
        raise ValueError(f"{where}: {len(value)} items instead of {len(kinds)}")
    return tuple(_decode(item, kind, where) for item, kind in zip(value, kinds))


def _decode_object(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: not an object")
    hints = _HINTS.get(kind)
    if hints is None:
        hints = _HINTS[kind] = typing.get_type_hints(kind, vars(spec))
    unknown = sorted(set(value) - set(hints))
    if unknown:
        raise ValueError(f"{where}: unknown fields {', '.join(unknown)}")
    fields = {name: _decode(item, hints[name], f"{where}.{name}") for name, item in value.items()}
    try:
        return kind(**fields)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None

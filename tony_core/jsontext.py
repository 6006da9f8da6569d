"""JSON out of a file that may be damaged: any damage is one ValueError.

What is read can be written again, as JSON and as UTF-8: numbers that are not finite, or huge, are
read as none, and half a surrogate pair as the replacement character.
What :func:`is_number` accepts can be counted with: JSON's true is a number to Python.

Standard library only, Python 3.8.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Dict, List, Match, Optional, Union

if TYPE_CHECKING:
    from typing import TypeGuard  # novm: only annotations name it

MOST_DIGITS = 40  # of a whole number
LARGEST = 1e300
_NOT_FINITE = {"NaN": None, "Infinity": None, "-Infinity": None}  # not JSON, yet written
_HALF = "\\ufffd"
# Each escape from left to right: what follows an escaped backslash is none.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair
    r"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2}|[\ud800-\udfff])|\\."
)
_AS_ZEROS = bytes.maketrans(b"123456789E", b"000000000e")
_ODD_NUMBERS = (b"e000", b"0" * (MOST_DIGITS + 1))


def _read_float(text: str) -> Optional[float]:
    value = float(text)
    return value if abs(value) < LARGEST else None


def _read_int(text: str) -> Optional[int]:
    return int(text) if len(text) <= MOST_DIGITS else None


_DECODER = json.JSONDecoder(
    parse_constant=_NOT_FINITE.__getitem__, parse_float=_read_float, parse_int=_read_int
)


def read_value(data: Union[bytes, str]) -> Any:
    """Any value; bytes are UTF-8."""
    text = data if isinstance(data, str) else data.decode("utf-8")
    if "\\ud" in text or "\\uD" in text or (isinstance(data, str) and not text.isascii()):
        text = _ESCAPE.sub(_whole, text)
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _whole(found: Match[str]) -> str:
    return _HALF if found.group("half") else found.group()


def may_be_odd(data: bytes) -> bool:
    """Whether JSON may hold what :func:`read_value` reads as something else; at little cost."""
    plain = data.translate(_AS_ZEROS, b"+")
    return (
        any(mark in plain for mark in _ODD_NUMBERS)
        or any(mark in data for mark in (b"NaN", b"Infinity", b"\\ud", b"\\uD"))
    )  # fmt: skip


def write_value(data: Any, indent: Optional[int] = None) -> str:
    """The value as JSON that any program reads: a number that is not finite is null there."""
    separators = (",", ":") if indent is None else None
    try:
        return json.dumps(data, indent=indent, separators=separators, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(data), indent=indent, separators=separators, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def read_object(data: Union[bytes, str]) -> Dict[str, Any]:
    """An object, and nothing else."""
    found = read_value(data)
    if not isinstance(found, dict):
        raise ValueError(f"{type(found).__name__} instead of an object")
    return found


def read_lines(data: bytes) -> Optional[List[Dict[str, Any]]]:
    """An object a line, all at once, which is several times as fast; None where a line is none."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    try:
        found = read_value(b"[%s]" % b",".join(lines))
    except ValueError:
        return None
    is_whole = len(found) == len(lines) and all(isinstance(one, dict) for one in found)
    return found if is_whole else None


def is_number(value: Any, below: float = LARGEST) -> TypeGuard[float]:
    """Whether it is a number, finite, and nearer to 0 than ``below``."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return known and abs(value) < below

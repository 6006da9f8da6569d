"""JSON out of a file that may be damaged: any damage is one ValueError.

What :func:`is_number` accepts can be counted with: JSON's true is a number to Python, and its
numbers may be too large for a float.

Standard library only, Python 3.8.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

if TYPE_CHECKING:
    from typing import TypeGuard  # novm: only annotations name it

_NOT_FINITE = {"NaN": None, "Infinity": None, "-Infinity": None}  # not JSON, yet written
_DECODER = json.JSONDecoder(parse_constant=_NOT_FINITE.__getitem__)


def read_value(data: Union[bytes, str]) -> Any:
    """Any value; bytes are UTF-8, and numbers that are not finite are read as none."""
    text = data if isinstance(data, str) else data.decode("utf-8")
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


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


def is_number(value: Any, below: float = 1e300) -> TypeGuard[float]:
    """Whether it is a number, finite, and nearer to 0 than ``below``."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return known and abs(value) < below

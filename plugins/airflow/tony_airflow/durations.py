"""How long: as a DAG says it. Imported when a DAG is parsed, so it imports nothing of ours."""

from __future__ import annotations

from datetime import timedelta
from typing import Optional


def seconds_of(value: object) -> float:
    """A ``timedelta`` or a number as seconds; ValueError for anything else, or for none at all."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"{value!r} is neither a timedelta nor a number of seconds above 0")
    return float(value)


def argument_s(name: str, value: object) -> float:
    """The same of an operator's argument, named in the error."""
    try:
        return seconds_of(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def optional_s(name: str, value: object) -> Optional[float]:
    """The same, where nothing said is something else's to decide."""
    return None if value is None else argument_s(name, value)

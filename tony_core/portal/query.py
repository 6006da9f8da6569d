"""A view of the list as a URL has it, and back. Pure."""

from __future__ import annotations

import datetime
import difflib
import re
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import urlencode

from tony_core.portal.index.queries import BadQuery
from tony_core.portal.index.rows import Query

STATES = ("ACCEPTED", "RUNNING", "SUCCEEDED", "FAILED", "KILLED", "TIMED_OUT")
MOST = 200  # rows of a page
_ONCE = ("q", "user", "queue", "framework", "tag", "pipeline", "location", "after")
_AGE = re.compile(r"(\d{1,4})([hdw])")
_UNITS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_LONGEST = 500  # characters of one value


def read_query(items: Iterable[Tuple[str, str]], now: Optional[float] = None) -> Query:
    """The view that a URL's parameters ask for; raises :class:`BadQuery`.

    Parameters that are empty, or that are for others, are ignored.
    """
    found: Dict[str, List[str]] = {}
    for name, value in items:
        if value and name in Query._fields:
            found.setdefault(name, []).append(value.strip()[:_LONGEST])
    values: Dict[str, Any] = {name: found[name][-1] for name in _ONCE if name in found}
    if "state" in found:
        values["state"] = tuple(_state(text) for text in dict.fromkeys(found["state"]))
    for name in ("since", "until"):
        if name in found:
            values[name] = read_moment(found[name][-1], name, now)
    if "sort" in found:
        values["sort"] = found["sort"][-1]
    if "limit" in found:
        values["limit"] = _limit(found["limit"][-1])
    return Query(**values)


def check_parameters(given: Iterable[str], known: Sequence[str]) -> None:
    """Raise :class:`BadQuery` for a parameter that is none: a program's filter would not count."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            meant = f"did you mean {near[0]}?" if near else f"there is: {', '.join(known)}"
            raise BadQuery(f"there is no parameter {name!r}; {meant}")


def read_moment(text: str, name: str = "since", now: Optional[float] = None) -> Optional[float]:
    """Seconds since the epoch of ``7d`` (that long ago), ``2026-01-31`` or seconds; None: all."""
    if text == "all":
        return None
    age = _AGE.fullmatch(text)
    if age:
        # To the minute, so that a page and its next page ask for the same.
        return (now or time.time()) // 60 * 60 - int(age[1]) * _UNITS[age[2]]
    try:
        if "-" in text[1:]:
            return datetime.datetime.fromisoformat(text).timestamp()
        seconds = float(text)
        if 0 <= seconds < 1e11:
            return seconds
    except (ValueError, OverflowError):
        pass
    raise BadQuery(
        f"{name}={text!r} is no time; expected 24h, 7d, 4w, a day such as 2026-01-31, or seconds"
        " since the epoch"
    )


def write_query(values: Mapping[str, Any], **changes: Any) -> str:
    """The URL's parameters (with ``?``) of these values with some changed; empty ones are left
    out, and so is the cursor when anything else changes."""
    merged = {**values, **changes}
    if changes and "after" not in changes:
        merged.pop("after", None)
    pairs: List[Tuple[str, str]] = []
    for name, value in merged.items():
        items: Sequence[Any] = value if isinstance(value, (list, tuple)) else [value]
        pairs += [(name, str(item)) for item in items if item not in ("", None)]
    return "?" + urlencode(pairs) if pairs else ""


def _state(text: str) -> str:
    if text.upper() in STATES:
        return text.upper()
    raise BadQuery(f"state={text!r} is no state; expected one of {', '.join(STATES)}")


def _limit(text: str) -> int:
    if text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MOST:
        return int(text)
    raise BadQuery(f"limit={text!r} is not a number from 1 to {MOST}")

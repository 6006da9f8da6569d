"""The SQL of a list: filters, order and cursor of a :class:`Query`. Pure.

A list is read in one of two ways. Either its order's index is walked, and each job on the way is
checked against the filters; that ends soon when many jobs pass. Or one filter that few jobs pass
gives them all, and they are sorted. Which way is cheaper follows from how many jobs pass each
filter (:func:`choose_driver`); SQLite is bound to the choice by the unary ``+``, which keeps it
from using an index.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from tony_core.jsontext import is_number, read_value
from tony_core.portal.index.rows import Query
from tony_core.portal.index.schema import FACETS, SORTS
from tony_core.portal.viewer import Viewer, names_of

MOST_ROWS = 500
"""Rows of one page."""

FEW = 1000
"""So many jobs are read and sorted sooner than an order's index is walked."""

_MOST_WORDS, _LONGEST_TEXT = 10, 500
_WORD = re.compile(r"[^\s\x00-\x1f]+")


class BadQuery(ValueError):
    """A parameter of a list makes no sense; the message says which, and what would."""


class Filter(NamedTuple):
    """A condition on jobs."""

    column: str  # of ``jobs``, that has an index; it is written with a + to keep it out of use
    condition: str  # what follows the column
    args: Tuple[Any, ...]
    passing: str  # SQL with the same arguments: how many jobs pass, or FEW + 1 of more


class Order(NamedTuple):
    """How a list is sorted: by a column, then the newest first."""

    name: str
    column: str
    descending: bool

    @property
    def sql(self) -> str:
        """The terms of ORDER BY, each with its direction."""
        return f"{self.column} {'DESC' if self.descending else 'ASC'}, {self._rest}"

    @property
    def unindexed(self) -> str:
        """The same order, with which SQLite sorts instead of walking an index."""
        return f"+{self.sql}"

    @property
    def _rest(self) -> str:
        return "id ASC" if self.column == "submitted" else "submitted DESC, id ASC"


def order_of(query: Query) -> Order:
    """The order that a query asks for; raises BadQuery for an unknown column."""
    name = query.sort.removeprefix("-") or "submitted"
    if name not in SORTS:
        raise BadQuery(f"sort: unknown column {name[:50]!r}; use one of {', '.join(sorted(SORTS))}")
    return Order(name, SORTS[name], query.sort.startswith("-") or not query.sort)


def filters_of(query: Query, viewer: Viewer, is_public: bool) -> List[Filter]:
    """Every condition of a query, and the one that the viewer may see the job."""
    found = []
    if not (is_public or viewer.is_admin):
        found.append(_audience(viewer))
    for field, column in FACETS.items():
        value = getattr(query, field)
        values = (value,) if isinstance(value, str) else tuple(value)
        values = tuple(_text(field, item) for item in values if item)
        if values:
            chosen = "IN (SELECT value FROM json_each(?))"
            counted = f"SELECT total(jobs) FROM counts WHERE kind = '{field}' AND value {chosen}"
            found.append(Filter(column, chosen, (json.dumps(values),), counted))
    if query.since is not None or query.until is not None:
        span = (_seconds("since", query.since, 0.0), _seconds("until", query.until, 1e15))
        found.append(_limited("submitted", "BETWEEN ? AND ?", span, "jobs WHERE submitted"))
    if query.tag:
        having = "IN (SELECT job FROM tags WHERE tag = ?)"
        tag = (_text("tag", query.tag),)
        found.append(Filter("id", having, tag, _bounded("tags WHERE tag = ?")))
    words = match_of(query.q)
    if words:
        having = "IN (SELECT rowid FROM search WHERE search MATCH ?)"
        matching = _bounded("search WHERE search MATCH ?")
        found.append(Filter("id", having, (words,), matching))
    return found


def _audience(viewer: Viewer) -> Filter:
    condition = "IN (SELECT audience FROM readers WHERE reader IN (SELECT value FROM json_each(?)))"
    names = (json.dumps(sorted(names_of(viewer))),)
    visible = f"SELECT total(jobs) FROM counts WHERE kind = '' AND audience {condition}"
    return Filter("audience", condition, names, visible)


def visible(viewer: Viewer, is_public: bool) -> Tuple[str, List[Any]]:
    """The condition on ``audience`` that a viewer may see its jobs."""
    if is_public or viewer.is_admin:
        return "audience > 0", []
    found = _audience(viewer)
    return f"{found.column} {found.condition}", list(found.args)


def _limited(column: str, condition: str, args: Tuple[Any, ...], source: str) -> Filter:
    return Filter(column, condition, args, _bounded(f"{source} {condition}"))


def _bounded(source: str) -> str:
    return f"SELECT count(*) FROM (SELECT 1 FROM {source} LIMIT {FEW + 1})"


def match_of(text: str) -> str:
    """What FTS5 is asked for a search: every word must begin a word of the job's.

    A word with marks in it, such as ``application_17_0042``, is a phrase, whose last word may be
    incomplete. Empty: the text has nothing to search for.
    """
    if len(text) > _LONGEST_TEXT:
        raise BadQuery(f"q: longer than {_LONGEST_TEXT} characters")
    words = [word for word in _WORD.findall(_clean(text)) if any(map(str.isalnum, word))]
    if len(words) > _MOST_WORDS:
        raise BadQuery(f"q: more than {_MOST_WORDS} words")
    return " AND ".join('"' + word.replace('"', " ") + '" *' for word in words)


def _clean(text: str) -> str:
    """Without what SQLite cannot store: zero bytes, halves of surrogates."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def _text(field: str, value: str) -> str:
    if len(value) > _LONGEST_TEXT:
        raise BadQuery(f"{field}: longer than {_LONGEST_TEXT} characters")
    return _clean(value)


def _seconds(field: str, value: Optional[float], default: float) -> float:
    if value is None:
        return default
    if not is_number(value, 1e15):
        raise BadQuery(f"{field}: {value!r} is no time in seconds since 1970")
    return float(value)


def counted(filters: Sequence[Filter], query: Query) -> Tuple[str, List[Any]]:
    """SQL for the size of the list: out of ``counts`` where that has it."""
    facets = [field for field in FACETS if getattr(query, field)]
    by_audience = [each for each in filters if each.column == "audience"]
    if len(filters) - len(by_audience) != len(facets) or len(facets) > 1:
        conditions, args = where(filters)
        return f"SELECT count(*) FROM jobs WHERE {conditions}", args
    sql, args = "SELECT total(jobs) FROM counts WHERE kind = ?", [*facets, ""][:1]
    for each in filters:
        column = "audience" if each in by_audience else "value"
        sql += f" AND {column} {each.condition}"
        args += each.args
    return sql, args


def choose_driver(filters: Sequence[Filter], passing: Sequence[int]) -> Optional[Filter]:
    """The filter that few jobs pass, the fewest first; None where the order's index is walked."""
    few = [(count, number) for number, count in enumerate(passing) if count <= FEW]
    return filters[min(few)[1]] if few else None


def where(filters: Sequence[Filter], driver: Optional[Filter] = None) -> Tuple[str, List[Any]]:
    """The conditions, of which only the driver may use an index; and their arguments."""
    terms = [f"{'' if each is driver else '+'}{each.column} {each.condition}" for each in filters]
    return " AND ".join(terms) or "1", [arg for each in filters for arg in each.args]


# ------------------------------------------------------------------ cursors


def cursor_after(order: Order, row: Sequence[Any]) -> str:
    """The cursor behind a row of (sort column, submitted, location, id)."""
    text = json.dumps([order.name, order.descending, *row], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def after(order: Order, cursor: str, indexed: bool) -> Tuple[str, List[Any]]:
    """The condition that a row comes behind the cursor; by the order's index, or without it.

    A cursor names its row by location and id, which stay when the index is made anew.
    """
    value, submitted, location, app_id = _read_cursor(order, cursor)
    mark = "<" if order.descending else ">"
    tie = "+id > coalesce((SELECT id FROM jobs WHERE location = ? AND app_id = ?), 0)"
    args: List[Any] = [location, app_id]
    if order.column != "submitted":
        tie = f"(submitted < ? OR (submitted = ? AND {tie}))"
        args = [submitted, submitted, *args]
    plain = f"+{order.column}"
    # The first term is implied; by it the index is entered at the right place.
    entry = order.column if indexed else plain
    sql = f"{entry} {mark}= ? AND ({plain} {mark} ? OR ({plain} = ? AND {tie}))"
    return sql, [value, value, value, *args]


def _read_cursor(order: Order, cursor: str) -> Tuple[Any, float, str, str]:
    try:
        if len(cursor) > 8 * _LONGEST_TEXT:
            raise ValueError("too long")
        padded = cursor + "=" * (-len(cursor) % 4)
        name, descending, value, submitted, location, app_id = read_value(
            base64.urlsafe_b64decode(padded.encode("ascii"))
        )
    except (ValueError, TypeError, binascii.Error):
        raise BadQuery("after: this is no cursor of a page before") from None
    if (name, descending) != (order.name, order.descending):
        raise BadQuery("after: this cursor is of a list that is sorted otherwise")
    texts: Dict[str, Any] = {"location": location, "app_id": app_id}
    right = isinstance(value, str) or is_number(value)
    if not (right and is_number(submitted) and all(isinstance(t, str) for t in texts.values())):
        raise BadQuery("after: this is no cursor of a page before")
    value = _clean(value) if isinstance(value, str) else float(value)
    return value, float(submitted), _clean(location), _clean(app_id)

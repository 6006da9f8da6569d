"""The index's tables.

``jobs`` is narrow: what lists are sorted, filtered and summed by. ``details`` has the rest of a
row, read for the jobs of one page alone. A job's readers are an *audience*, since most jobs share
theirs with others: whom a job may be shown to is a join with ``readers``. ``counts`` has, by
triggers, how many jobs each value of a facet has in each audience, so that totals and the choices
of a list's filters cost nothing. What no job has any more goes, of these and of the audiences: a
user may change whom he shows his jobs to as often as he likes.

A row holds no null: an unknown text is empty, an unknown number 0, since cursors compare them.
An order ends with the row's number, so that it is whole; by it each index covers its list.
"""

from __future__ import annotations

from typing import Dict, Tuple

from tony_core.version import __version__

#: Raised with each change of a table or of what fills it. The index is then made anew, as it is
#: with each version of TonY.
VERSION = 2
STAMP = f"{VERSION} {__version__}"

FIGURES: Tuple[str, ...] = (
    *("duration_s", "queued_s", "waiting_s", "running_s", "lost_s", "sessions", "restarts"),
    *("gpu_hours", "gpu_hours_used", "gpu_hours_wasted"),
    *("memory_gb_hours", "memory_gb_hours_used", "memory_gb_hours_wasted"),
    *("vcore_hours", "vcore_hours_used", "vcore_hours_wasted"),
)
"""Of :mod:`tony_core.history.figures`, those that lists are sorted by and sums are made of."""

TEXTS = ("app_id", "location", "owner", "name", "queue", "framework", "state", "pipeline")
NUMBERS = ("submitted", "started", "finished", "progress", "tasks")
"""The columns of ``jobs`` that are fields of a row."""

FACETS: Dict[str, str] = {
    "user": "owner",
    "queue": "queue",
    "framework": "framework",
    "state": "state",
    "location": "location",
    "pipeline": "pipeline",
}
"""Filters that are one value of a column, by the query's field."""

SORTS: Dict[str, str] = {
    **{name: name for name in (*TEXTS, *NUMBERS, *FIGURES) if name != "owner"},
    "user": "owner",
}
"""What a list can be sorted by, and its column."""

_SORTED_OFTEN = ("name", "owner", "queue", "state", "finished", "duration_s", "gpu_hours")


def _columns() -> str:
    texts = [f"{name} TEXT NOT NULL DEFAULT ''" for name in TEXTS]
    numbers = [f"{name} REAL NOT NULL DEFAULT 0" for name in (*NUMBERS, *FIGURES)]
    return ", ".join([*texts, *numbers])


def _sort_index(column: str) -> str:
    order = "DESC" if column not in TEXTS else "ASC"
    return f"CREATE INDEX by_{column} ON jobs ({column} {order}, submitted DESC, id, audience)"


def _count(row: str, change: int) -> str:
    """Add to the counts of the facets of a row."""
    kinds = [("", "''"), *((kind, f"{row}.{column}") for kind, column in FACETS.items())]
    return " ".join(
        f"INSERT INTO counts VALUES ('{kind}', {value}, {row}.audience, {change})"
        f" ON CONFLICT (kind, value, audience) DO UPDATE SET jobs = jobs + {change};"
        for kind, value in kinds
    )


def _triggers() -> Tuple[str, ...]:
    counted = ["audience", *FACETS.values()]
    changed = " OR ".join(f"old.{column} <> new.{column}" for column in counted)
    return (
        f"CREATE TRIGGER job_added AFTER INSERT ON jobs BEGIN {_count('new', 1)} END",
        f"CREATE TRIGGER job_removed AFTER DELETE ON jobs BEGIN {_count('old', -1)} END",
        f"CREATE TRIGGER job_changed AFTER UPDATE OF {', '.join(counted)} ON jobs WHEN {changed}"
        # First what it has now: what both have must not go meanwhile.
        f" BEGIN {_count('new', 1)} {_count('old', -1)} END",
        "CREATE TRIGGER count_ended AFTER UPDATE OF jobs ON counts WHEN new.jobs <= 0"
        " BEGIN DELETE FROM counts WHERE kind = new.kind AND value = new.value"
        " AND audience = new.audience; END",
        "CREATE TRIGGER audience_ended AFTER DELETE ON counts WHEN old.kind = ''"
        " BEGIN DELETE FROM readers WHERE audience = old.audience AND reader IN"
        " (SELECT value FROM audiences, json_each(audiences.readers)"
        " WHERE audiences.id = old.audience);"
        " DELETE FROM audiences WHERE id = old.audience; END",
    )


TABLES: Tuple[str, ...] = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE audiences (id INTEGER PRIMARY KEY, readers TEXT NOT NULL UNIQUE)",
    "CREATE TABLE readers (reader TEXT NOT NULL, audience INTEGER NOT NULL,"
    " PRIMARY KEY (reader, audience)) WITHOUT ROWID",
    f"CREATE TABLE jobs (id INTEGER PRIMARY KEY, {_columns()}, audience INTEGER NOT NULL,"
    " UNIQUE (location, app_id))",
    "CREATE TABLE details (id INTEGER PRIMARY KEY, tags TEXT NOT NULL, error TEXT NOT NULL,"
    " figures TEXT NOT NULL, problem TEXT NOT NULL, words TEXT NOT NULL,"
    " digest TEXT NOT NULL, changed REAL NOT NULL, size INTEGER NOT NULL,"
    " settled INTEGER NOT NULL)",
    "CREATE TABLE tags (tag TEXT NOT NULL, job INTEGER NOT NULL, PRIMARY KEY (tag, job))"
    " WITHOUT ROWID",
    "CREATE TABLE counts (kind TEXT NOT NULL, value TEXT NOT NULL, audience INTEGER NOT NULL,"
    " jobs INTEGER NOT NULL, PRIMARY KEY (kind, value, audience)) WITHOUT ROWID",
    # Words by their beginnings; a trigram index, which would find any part, is not in old SQLites.
    "CREATE VIRTUAL TABLE search USING fts5 (words, content='details', content_rowid='id',"
    " tokenize='unicode61', columnsize=0)",
    "CREATE INDEX by_submitted ON jobs (submitted DESC, id, audience)",
    *(_sort_index(column) for column in _SORTED_OFTEN),
    "CREATE INDEX by_app_id ON jobs (app_id)",
    "CREATE INDEX by_pipeline ON jobs (pipeline, submitted)",
    "CREATE INDEX by_audience ON jobs (audience, submitted)",
    *_triggers(),
)

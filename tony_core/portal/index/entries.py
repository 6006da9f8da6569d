"""Writing jobs into the index's tables, and removing them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from typing import Any, Iterable, NamedTuple, Sequence

from tony_core.portal.index.build import problem_row, words_of
from tony_core.portal.index.rows import JobRow
from tony_core.portal.index.schema import FIGURES, NUMBERS, TEXTS
from tony_core.portal.job_folders import Fingerprint

AGAIN = "!"
"""Before the digest of files to read again, though they may not change."""


class Entry(NamedTuple):
    """A job as the scanner hands it over."""

    row: JobRow
    words: str  # what a search finds it by
    fingerprint: Fingerprint
    settled: bool = False  # it has ended, and its files will hardly change


_COLUMNS = (*TEXTS, *NUMBERS, *FIGURES, "audience")
_INSERT = f"INSERT INTO jobs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_UPDATE = f"UPDATE jobs SET {', '.join(f'{name} = ?' for name in _COLUMNS)} WHERE id = ?"

_MOST_BYTES = 1 << 62  # that a column holds; files of holes may have more

_REFUSALS = (
    *(ArithmeticError, TypeError, ValueError),
    *(sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError),
)
"""Errors of a value that the tables do not take: of one job, not of the index."""


def put_entries(writer: sqlite3.Connection, entries: Iterable[Entry]) -> None:
    """Add jobs, or replace them. One that the tables do not take hides no other: it is a problem.

    In a place that users share, a history has what its owner likes.
    """
    for entry in entries:
        try:
            _put_whole(writer, entry)
        except _REFUSALS as error:
            row = entry.row
            problem = f"the index does not take what its files say: {type(error).__name__}"
            bad = problem_row(row.location, row.app_id, row.owner, problem, 0.0)
            with suppress(*_REFUSALS):
                _put_whole(writer, Entry(bad, words_of(bad), entry.fingerprint, entry.settled))


def _put_whole(writer: sqlite3.Connection, entry: Entry) -> None:
    """Put an entry, or nothing of it."""
    writer.execute("SAVEPOINT entry")
    try:
        put_entry(writer, entry)
    except _REFUSALS:
        writer.execute("ROLLBACK TO entry")
        raise
    finally:
        if writer.in_transaction:  # not after an error that has ended it
            writer.execute("RELEASE entry")


def put_entry(writer: sqlite3.Connection, entry: Entry) -> None:
    """Add a job, or replace it."""
    row = entry.row
    values = [
        *(getattr(row, name) for name in TEXTS),
        *(float(getattr(row, name) or 0.0) for name in NUMBERS),
        *(float(row.figures.get(name, 0.0)) for name in FIGURES),
        _audience(writer, row.readers),
    ]
    known = writer.execute(
        "SELECT id, words, tags FROM jobs JOIN details USING (id)"
        " WHERE location = ? AND app_id = ?",
        (row.location, row.app_id),
    ).fetchone()
    tags = json.dumps(row.tags)
    if known:
        number, words, before = known
        writer.execute(_UPDATE, (*values, number))
        if words != entry.words:
            _forget_words(writer, number, words)
        if before != tags:
            _forget_tags(writer, number, before)
    else:
        number, words, before = writer.execute(_INSERT, values).lastrowid, None, None
    made = entry.fingerprint
    writer.execute(
        "REPLACE INTO details (id, tags, error, figures, problem, words, digest, changed, size,"
        " settled) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (number, tags, row.error, json.dumps(dict(row.figures)), row.problem, entry.words,
         made.digest, made.changed, max(0, min(made.held, _MOST_BYTES)), entry.settled),
    )  # fmt: skip
    if words != entry.words:
        writer.execute("INSERT INTO search (rowid, words) VALUES (?, ?)", (number, entry.words))
    if before != tags:
        writer.executemany(
            "INSERT OR IGNORE INTO tags VALUES (?, ?)", [(tag, number) for tag in row.tags]
        )


def remove_jobs(writer: sqlite3.Connection, condition: str, args: Sequence[Any]) -> None:
    """Remove the jobs of a condition on ``jobs``."""
    found = writer.execute(
        f"SELECT id, words, tags FROM jobs JOIN details USING (id) WHERE {condition}", args
    ).fetchall()
    for number, words, tags in found:
        _forget_words(writer, number, words)
        _forget_tags(writer, number, tags)
        writer.execute("DELETE FROM details WHERE id = ?", (number,))
        writer.execute("DELETE FROM jobs WHERE id = ?", (number,))


def _audience(writer: sqlite3.Connection, readers: Sequence[str]) -> int:
    """The number of the audience with these readers."""
    text = json.dumps(sorted(set(readers)))
    known = writer.execute("SELECT id FROM audiences WHERE readers = ?", (text,)).fetchone()
    if known:
        return int(known[0])
    number = writer.execute("INSERT INTO audiences (readers) VALUES (?)", (text,)).lastrowid
    assert number is not None
    writer.executemany("INSERT INTO readers VALUES (?, ?)", [(one, number) for one in set(readers)])
    return number


def _forget_words(writer: sqlite3.Connection, number: int, words: str) -> None:
    # The search keeps no texts of its own: it has to be given what it once got.
    writer.execute(
        "INSERT INTO search (search, rowid, words) VALUES ('delete', ?, ?)", (number, words)
    )


def _forget_tags(writer: sqlite3.Connection, number: int, tags: str) -> None:
    for tag in json.loads(tags):
        writer.execute("DELETE FROM tags WHERE tag = ? AND job = ?", (tag, number))

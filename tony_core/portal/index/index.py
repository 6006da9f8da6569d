"""The index: every job of every history location, for lists, searches and sums.

It is filled by :class:`tony_core.portal.index.scanner.Scanner`. Any thread may ask. Each answer
holds only what the viewer may see, and is bounded in rows and in time.
"""

from __future__ import annotations

import json
import sqlite3
from typing import (
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from tony_core.history.retention import KeptHistory
from tony_core.portal.index import queries
from tony_core.portal.index.answers import Answers
from tony_core.portal.index.database import Database
from tony_core.portal.index.entries import AGAIN, Entry, put_entries, remove_jobs
from tony_core.portal.index.rows import JobPage, JobRow, Query, Usage
from tony_core.portal.index.schema import FACETS, FIGURES
from tony_core.portal.viewer import Viewer

MOST_RUNS, MOST_VALUES = 1000, 500
"""Jobs of one pipeline, values of one facet and rows of a sum that one answer holds at most."""

USAGE_BY: Mapping[str, str] = {**FACETS, "day": "coalesce(date(submitted, 'unixepoch'), '')"}
"""What sums can be made by."""

_READERS = "(SELECT readers FROM audiences WHERE audiences.id = jobs.audience)"
_COLUMNS = ", ".join(_READERS if field == "readers" else field for field in JobRow._fields)
_JOINED = "jobs JOIN details USING (id)"
_MINUTE = 60.0
_PART = 1000  # rows that are read at once, where all are asked for


class Tracked(NamedTuple):
    """What the scanner has to know of a job that is in the index."""

    app_id: str
    digest: str
    changed: float
    settled: bool
    has_ended: bool
    owner: str = ""


class Index:
    """All jobs. ``is_public``: every viewer may see every job."""

    def __init__(self, folder: str, is_public: bool = False) -> None:
        self._database = Database(folder)
        self._is_public = is_public
        self._answers = Answers()

    def close(self) -> None:
        """Close its file."""
        self._database.close()

    # ------------------------------------------------------------------ what pages ask

    def page(self, query: Query, viewer: Viewer) -> JobPage:
        """One page of a list; raises :class:`queries.BadQuery`."""
        order = queries.order_of(query)
        filters = queries.filters_of(query, viewer, self._is_public)
        limit = max(1, min(query.limit, queries.MOST_ROWS))
        with self._database.read() as reader:
            driver = queries.choose_driver(
                filters, [reader.execute(each.passing, each.args).fetchone()[0] for each in filters]
            )
            condition, args = queries.where(filters, driver)
            if query.after:
                behind, more = queries.after(order, query.after, driver is None)
                condition, args = f"{condition} AND {behind}", [*args, *more]
            found = reader.execute(
                f"SELECT id, {order.column}, submitted, location, app_id FROM jobs"
                f" WHERE {condition} ORDER BY {order.unindexed if driver else order.sql} LIMIT ?",
                [*args, limit + 1],
            ).fetchall()
            cursor = queries.cursor_after(order, found[limit - 1][1:]) if len(found) > limit else ""
            rows = self._rows_by_id(reader, [row[0] for row in found[:limit]])
        return JobPage(rows, cursor, max(self._count(*queries.counted(filters, query)), len(rows)))

    def _count(self, sql: str, args: Sequence[Any]) -> int:
        def ask() -> int:
            with self._database.read() as reader:
                return int(reader.execute(sql, args).fetchone()[0])

        return self._answers.get((self.generation, sql, *args), ask)

    def rows(self, app_id: str, viewer: Viewer) -> Tuple[JobRow, ...]:
        """The jobs of this id, one for each location that has one."""
        return self._select("app_id = ?", [app_id], viewer, 100)

    def known(self, jobs: Iterable[Tuple[str, str]]) -> Set[Tuple[str, str]]:
        """Of these jobs, by id and owner, those that the index has, for any viewer."""
        asked = set(jobs)
        if not asked:
            return set()
        with self._database.read() as reader:
            found = reader.execute(
                "SELECT app_id, owner FROM jobs WHERE app_id IN (SELECT value FROM json_each(?))",
                [json.dumps([app_id for app_id, _ in asked])],
            )
            return asked.intersection(found)

    def runs(
        self,
        viewer: Viewer,
        pipeline: str = "",
        tag: str = "",
        since: float = 0.0,
        owner: str = "",
    ) -> Tuple[JobRow, ...]:
        """The newest jobs of a pipeline or tag since a time, the oldest of them first.

        ``owner``: those of this user only.
        """
        condition, args = "submitted >= ?", [since]  # type: Tuple[str, List[Any]]
        if owner:
            condition, args = f"{condition} AND owner = ?", [*args, owner]
        if pipeline:
            condition, args = f"{condition} AND pipeline = ?", [*args, pipeline]
        if tag:
            condition += " AND +id IN (SELECT job FROM tags WHERE tag = ?)"
            args.append(tag)
        return self._select(condition, args, viewer, MOST_RUNS)[::-1]

    def usage(
        self, by: str, viewer: Viewer, since: float = 0.0, until: Optional[float] = None
    ) -> List[Usage]:
        """Sums by user, queue, framework, state, location, pipeline or day; most jobs first."""
        if by not in USAGE_BY:
            raise queries.BadQuery(f"by: unknown {by[:50]!r}; use one of {', '.join(USAGE_BY)}")
        query = Query(since=since // _MINUTE * _MINUTE, until=until)  # to be used again
        condition, args = queries.where(queries.filters_of(query, viewer, self._is_public))
        sums = ", ".join(f"sum({name})" for name in FIGURES)
        sql = (
            # To go through an index costs more than to sort: every row of the time is read.
            f"SELECT {USAGE_BY[by]}, state, count(*), max(submitted), {sums} FROM jobs NOT INDEXED"
            f" WHERE {condition} GROUP BY 1, 2"
        )

        def ask() -> List[Usage]:
            with self._database.read() as reader:
                return _sum_states(reader.execute(sql, args))

        return self._answers.get((self.generation, sql, *args), ask)

    def facets(self, viewer: Viewer) -> Mapping[str, Mapping[str, int]]:
        """Of each filter the values that occur, with how many jobs; the most frequent first."""
        seen, args = queries.visible(viewer, self._is_public)
        found: Dict[str, Dict[str, int]] = {kind: {} for kind in FACETS}
        with self._database.read() as reader:
            for kind, values in found.items():
                rows = reader.execute(
                    f"SELECT value, sum(jobs) FROM counts WHERE kind = ? AND value <> '' AND {seen}"
                    " GROUP BY value HAVING sum(jobs) > 0 ORDER BY 2 DESC, 1 LIMIT ?",
                    [kind, *args, MOST_VALUES],
                )
                values.update(rows)
        return found

    def _select(
        self, condition: str, args: Sequence[Any], viewer: Viewer, limit: int
    ) -> Tuple[JobRow, ...]:
        seen, more = queries.visible(viewer, self._is_public)
        with self._database.read() as reader:
            found = reader.execute(
                f"SELECT {_COLUMNS} FROM {_JOINED} WHERE {condition} AND +{seen}"
                " ORDER BY submitted DESC, location, app_id LIMIT ?",
                [*args, *more, limit],
            )
            return tuple(self._row(row) for row in found)

    def _rows_by_id(self, reader: sqlite3.Connection, ids: Sequence[int]) -> Tuple[JobRow, ...]:
        place = {number: at for at, number in enumerate(ids)}
        found = reader.execute(
            f"SELECT id, {_COLUMNS} FROM {_JOINED} WHERE id IN (SELECT value FROM json_each(?))",
            [json.dumps(list(ids))],
        )
        ordered = sorted(found, key=lambda row: place[row[0]])
        return tuple(self._row(row[1:]) for row in ordered)

    def _row(self, values: Sequence[Any]) -> JobRow:
        row = JobRow(*values)
        readers = tuple(json.loads(str(row.readers)))
        return row._replace(
            started=row.started or None,
            finished=row.finished or None,
            tasks=int(row.tasks),
            tags=tuple(json.loads(str(row.tags))),
            figures=json.loads(str(row.figures)),
            readers=(*readers, "*") if self._is_public and "*" not in readers else readers,
        )

    # ------------------------------------------------------------------ what the scanner asks

    def put(self, entries: Iterable[Entry]) -> None:
        """Add jobs, or replace them."""
        with self._database.write() as writer:
            put_entries(writer, entries)

    def remove(self, location: str, app_ids: Iterable[str]) -> None:
        """Forget jobs."""
        with self._database.write() as writer:
            for app_id in app_ids:
                remove_jobs(writer, "location = ? AND app_id = ?", (location, app_id))

    def keep_locations(self, roots: Mapping[str, str]) -> None:
        """Forget the jobs of all locations but these, by name and root."""
        with self._database.write() as writer:
            known = dict(writer.execute("SELECT name, value FROM about WHERE name LIKE 'at %'"))
            wanted = {f"at {name}": root for name, root in roots.items()}
            for (name,) in writer.execute("SELECT DISTINCT location FROM jobs").fetchall():
                if known.get(f"at {name}") != wanted.get(f"at {name}"):
                    remove_jobs(writer, "location = ?", (name,))
            writer.execute("DELETE FROM about WHERE name LIKE 'at %'")
            writer.executemany("INSERT INTO about VALUES (?, ?)", wanted.items())

    def tracked(self, location: str) -> Iterator[Tracked]:
        """Every job of a location, by id."""
        last = ""
        while True:
            with self._database.read() as reader:
                found = reader.execute(
                    f"SELECT app_id, digest, changed, settled, finished, owner FROM {_JOINED}"
                    f" WHERE location = ? AND app_id > ? ORDER BY app_id LIMIT {_PART}",
                    [location, last],
                ).fetchall()
            yield from (
                Tracked(row[0], row[1], row[2], bool(row[3]), bool(row[4]), row[5]) for row in found
            )
            if len(found) < _PART:
                return
            last = found[-1][0]

    def digest(self, location: str, app_id: str) -> str:
        """The fingerprint of a job's files when they were read; empty for an unknown job."""
        with self._database.read() as reader:
            found = reader.execute(
                f"SELECT digest FROM {_JOINED} WHERE location = ? AND app_id = ?",
                [location, app_id],
            ).fetchone()
        return str(found[0]) if found else ""

    def settle(self, location: str, app_id: str) -> None:
        """A job's files will hardly change any more."""
        with self._database.write() as writer:
            writer.execute(
                "UPDATE details SET settled = 1 WHERE id ="
                " (SELECT id FROM jobs WHERE location = ? AND app_id = ?)",
                [location, app_id],
            )

    def count(self, location: str) -> int:
        """How many jobs a location has."""
        with self._database.read() as reader:
            found = reader.execute(
                "SELECT total(jobs) FROM counts WHERE kind = 'location' AND value = ?", [location]
            ).fetchone()
            return int(found[0])

    def oldest(self, location: str, owner: str = "") -> Iterator[KeptHistory]:
        """The jobs of a location, or of one owner there, that ended or else changed first.

        Without those that cannot be opened: when they changed is not known.
        """
        last: Tuple[float, str] = (float("-inf"), "")
        ended = "CASE WHEN finished THEN finished ELSE changed END"
        while True:
            with self._database.read() as reader:
                found = reader.execute(
                    f"SELECT app_id, {ended}, size, finished <> 0, owner, changed FROM {_JOINED}"
                    " WHERE location = ? AND owner = coalesce(nullif(?, ''), owner)"
                    " AND (changed <> 0 OR digest <> ?)"
                    f" AND ({ended}, app_id) > (?, ?) ORDER BY 2, 1 LIMIT {_PART}",
                    [location, owner, AGAIN, *last],
                ).fetchall()
            for app_id, when, size, has_ended, whose, changed in found:
                yield KeptHistory(app_id, when, size, bool(has_ended), whose, changed)
            if len(found) < _PART:
                return
            last = found[-1][1], found[-1][0]

    def held(self, location: str) -> Mapping[str, int]:
        """How many bytes the histories of a location have, by owner."""
        with self._database.read() as reader:
            found = reader.execute(
                f"SELECT owner, total(size) FROM {_JOINED} WHERE location = ? GROUP BY owner",
                [location],
            )
            return {owner: int(size) for owner, size in found}

    @property
    def generation(self) -> int:
        """Grows each time the file is made anew."""
        return self._database.generation

    def rebuild(self) -> None:
        """Make the file anew, empty."""
        self._database.rebuild()


def _sum_states(found: Iterable[Sequence[Any]]) -> List[Usage]:
    """The sums of all states of each key."""
    sums: Dict[str, Usage] = {}
    for key, state, jobs, last, *figures in found:
        before = sums.get(key) or Usage(key, 0, {}, {})
        sums[key] = Usage(
            key,
            before.jobs + jobs,
            {**before.states, state: jobs},
            {
                name: before.figures.get(name, 0.0) + value
                for name, value in zip(FIGURES, figures, strict=True)
            },
            max(before.last, last),
        )
    return sorted(sums.values(), key=lambda usage: (-usage.jobs, usage.key))[:MOST_VALUES]

"""The index's file: one writer, a few readers, and what happens when it is damaged.

The index can be made from the history at any time, so damage, another version's tables or another
set of locations need no migration: the file is removed and made anew.
"""

from __future__ import annotations

import fcntl
import os
import queue
import sqlite3
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator, List, TextIO

from tony_core.portal.index.schema import STAMP, TABLES

NAME = "index.sqlite"
READERS = 4
"""Queries at once; further ones wait for a free connection."""

QUERY_S = 5.0
"""How long a query may take, and how long it waits for a connection."""

_STEPS = 20_000  # of SQLite's machine between two looks at the clock
_WAL_PAGES = 4000  # of 4 KB, before they go into the file
_READER_KB, _WRITER_KB = 2048, 16384


class IndexBusy(Exception):
    """The index gave no answer in time; the same request may work later."""


class IndexInUse(Exception):
    """Another portal uses this folder."""


class Database:
    """Connections to one index file."""

    def __init__(self, folder: str) -> None:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = os.path.join(folder, NAME)
        self._lock_file = _lock(folder)
        self._writing = threading.Lock()
        self._free: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        self._all: List[sqlite3.Connection] = []
        self.generation = 0  # grows each time the file is made
        try:
            self._open()
        except BaseException:
            self._lock_file.close()
            raise

    def _open(self) -> None:
        try:
            self._writer = self._connect(_WRITER_KB)
            is_current = _is_current(self._writer)
        except sqlite3.DatabaseError:
            is_current = False
        if not is_current:
            self._make()
        for _ in range(READERS):
            reader = self._connect(_READER_KB)
            reader.execute("PRAGMA query_only = ON")
            self._free.put(reader)

    def _make(self) -> None:
        for made in self._all:
            made.close()
        self._all.clear()
        for ending in ("", "-wal", "-shm", "-journal"):
            with suppress(FileNotFoundError):
                os.unlink(self._path + ending)
        os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        self._writer = self._connect(_WRITER_KB)
        with self._writer:
            self._writer.execute("BEGIN")
            for statement in TABLES:
                self._writer.execute(statement)
            self._writer.execute("INSERT INTO about VALUES ('stamp', ?)", (STAMP,))
        self.generation += 1

    def _connect(self, cache_kb: int) -> sqlite3.Connection:
        made = sqlite3.connect(
            self._path, timeout=QUERY_S, isolation_level=None, check_same_thread=False
        )
        self._all.append(made)
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("PRAGMA synchronous = NORMAL")
        made.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        made.execute(f"PRAGMA cache_size = -{cache_kb}")
        made.execute("PRAGMA temp_store = MEMORY")
        return made

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction. Readers see what was before until it is over."""
        with self._writing:
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
            except BaseException:
                self._writer.execute("ROLLBACK")
                raise
            self._writer.execute("COMMIT")

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state of the index; raises :class:`IndexBusy`."""
        end = time.monotonic() + QUERY_S
        try:
            reader = self._free.get(timeout=QUERY_S)
        except queue.Empty:
            raise IndexBusy("the portal answers too many requests at once; try again") from None
        try:
            reader.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
            reader.execute("BEGIN")
            yield reader
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                why = f"the list took longer than {QUERY_S:g} s; narrow it by a filter"
                raise IndexBusy(why) from None
            raise
        finally:
            reader.set_progress_handler(None, 0)
            if reader.in_transaction:
                reader.execute("ROLLBACK")
            self._free.put(reader)

    def rebuild(self) -> None:
        """Make the file anew, after damage. Waits for the queries that run."""
        with self._writing:
            for _ in range(READERS):
                with suppress(queue.Empty):
                    self._free.get(timeout=QUERY_S)
            self._make()
            for _ in range(READERS):
                reader = self._connect(_READER_KB)
                reader.execute("PRAGMA query_only = ON")
                self._free.put(reader)

    def close(self) -> None:
        """Close it; the next portal may use the folder."""
        with self._writing:
            for made in self._all:
                made.close()
        self._lock_file.close()


def _lock(folder: str) -> TextIO:
    """Hold the folder for this process."""
    file = open(os.path.join(folder, "lock"), "a")  # noqa: SIM115 - held until it is closed
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise IndexInUse(f"another portal uses the index in {folder}") from None
    return file


def _is_current(connection: sqlite3.Connection) -> bool:
    """Whether the file is whole and has the tables that this version makes."""
    try:
        (stamp,) = connection.execute("SELECT value FROM about WHERE name = 'stamp'").fetchone()
    except (sqlite3.OperationalError, TypeError):
        return False
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    return bool(stamp == STAMP and found == "ok")

"""Reads single jobs for the index, here or in a process of its own.

As a program it reads requests, one a line, and answers each with a line of outcomes:
:mod:`tony_core.portal.index.reader_processes` starts it, for many jobs at once and for large ones.
It ends with its standard input. A bound on its memory lets files that need more be damaged ones.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterable, List, NamedTuple, Optional

from tony_core.files.location import is_remote
from tony_core.history.limits import GLANCE
from tony_core.history.reader import NoHistory
from tony_core.portal.index.build import build_row, problem_row, words_of
from tony_core.portal.index.ends import ended_record
from tony_core.portal.index.entries import AGAIN, Entry
from tony_core.portal.index.rows import JobRow
from tony_core.portal.job_folders import LOCATION_ERRORS, Fingerprint, JobFolder
from tony_core.portal.locations import LocationReader, reader_of
from tony_core.portal.settings import HistoryLocation
from tony_core.schedulers.port import AppState, AppStatus
from tony_core.unexpected_errors import UnexpectedErrors

MEMORY = 3 << 30
"""Bytes of address space that a process of its own may have."""

_THREADS = 8  # of a process that reads a remote place, where each job is several round trips


class Request(NamedTuple):
    """A job to look at."""

    app_id: str
    digest: str = ""  # of its files when they were read; equal ones are not read again
    is_brief: bool = False  # without story and metrics, while it runs: its figures stay unknown
    end: Optional[AppStatus] = None  # that its scheduler reports, for a history that has none


class Outcome(NamedTuple):
    """What there was."""

    app_id: str
    made: Fingerprint = Fingerprint()
    entry: Optional[Entry] = None  # None: unchanged, or no history (yet)
    cost: float = 0.0  # seconds
    is_gone: bool = False
    is_large: bool = False  # and was not read here
    is_brief: bool = False


def look(
    reader: LocationReader,
    location: str,
    request: Request,
    faults: UnexpectedErrors,
    most_bytes: float = float("inf"),
) -> Outcome:
    """Look at one job, and read it if its files have changed.

    What is wrong with a job is in its row; an OSError is raised for what is the location's.
    """
    began = time.monotonic()
    app_id = request.app_id
    owner, found = "", Outcome(app_id)
    try:
        with reader.open(app_id) as folder:
            owner = folder.owner
            if most_bytes < float("inf"):
                folder.limits = GLANCE
            found = found._replace(made=folder.fingerprint())
            if not found.made.is_history or found.made.digest == request.digest:
                pass
            elif found.made.size > most_bytes and not request.is_brief:
                found = found._replace(is_large=True)
            else:
                found = _read(location, folder, found, request)
    except NoHistory:
        return Outcome(app_id, is_gone=True)
    except OSError as error:
        if error.errno in LOCATION_ERRORS:
            raise
        owner = getattr(error, "owner", "") or owner
        found = _problem(location, owner, str(error), found)
    except Exception:
        words = faults.record(f"history of {app_id} at {location}")
        found = _problem(location, owner, f"cannot be read: {words}", found)
    return found._replace(cost=time.monotonic() - began)


def _read(location: str, folder: JobFolder, found: Outcome, request: Request) -> Outcome:
    is_brief = request.is_brief and request.end is None
    while True:
        record = folder.record(events=not is_brief)
        if record.is_cut and folder.limits is GLANCE:
            return found._replace(is_large=True)
        record = ended_record(record, request.end)
        row = build_row(location, found.app_id, folder.owner, record, found.made.changed)
        if is_brief and row.has_ended:
            is_brief = False
            continue
        return _with_row(found, row)._replace(is_brief=is_brief)


def _problem(location: str, owner: str, problem: str, found: Outcome) -> Outcome:
    changed = found.made.changed or time.time()
    return _with_row(found, problem_row(location, found.app_id, owner, problem, changed))


def _with_row(found: Outcome, row: JobRow) -> Outcome:
    made = found.made
    if row.problem:
        made = made._replace(digest=AGAIN + made.digest)
    return found._replace(entry=Entry(row, words_of(row), made))


# ------------------------------------------------------------------ as lines


def request_from_json(data: List[Any]) -> Request:
    """A request out of the list that JSON makes of it."""
    app_id, digest, is_brief, end = data
    if end is not None:
        end = AppStatus(*end)
        end = end._replace(state=AppState(end.state), tags=tuple(end.tags))
    return Request(app_id, digest, is_brief, end)


def outcome_to_json(outcome: Outcome) -> Dict[str, Any]:
    """An outcome as JSON holds it."""
    entry = outcome.entry
    parts = None if entry is None else (entry.row, entry.words, entry.fingerprint, entry.settled)
    return {**outcome._asdict(), "entry": parts}


def outcome_from_json(data: Dict[str, Any]) -> Outcome:
    """The same outcome."""
    entry = None
    if data["entry"] is not None:
        values, words, made, settled = data["entry"]
        row = JobRow(*values)
        row = row._replace(tags=tuple(row.tags), readers=tuple(row.readers))
        entry = Entry(row, words, Fingerprint(*made), settled)
    return Outcome(**{**data, "made": Fingerprint(*data["made"]), "entry": entry})


def look_at_all(
    reader: LocationReader,
    location: HistoryLocation,
    requests: Iterable[Request],
    faults: UnexpectedErrors,
) -> List[Outcome]:
    """Look at many jobs; those of a remote place at the same time."""

    def one(request: Request) -> Outcome:
        return look(reader, location.name, request, faults)

    if not is_remote(location.root):
        return [one(request) for request in requests]
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(one, requests))


def main() -> None:
    """Serve requests until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    first = json.loads(sys.stdin.readline())
    location = HistoryLocation(**first)
    faults = UnexpectedErrors()
    reader: Optional[LocationReader] = None
    for line in sys.stdin:
        answer: Dict[str, Any] = {}
        try:
            reader = reader or reader_of(location)
            requests = [request_from_json(each) for each in json.loads(line)]
            outcomes = look_at_all(reader, location, requests, faults)
            answer["outcomes"] = [outcome_to_json(each) for each in outcomes]
        except OSError as error:
            answer["problem"] = [error.errno, error.strerror or str(error), error.filename]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

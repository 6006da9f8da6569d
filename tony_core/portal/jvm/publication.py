"""Writes the jobs of a history location as the JVM TonY's files, for Dr. Elephant and other tools.

Each job that has ended gets ``ROOT/intermediate/ID/`` with its configuration and its ``.jhist``
file, as that TonY's own masters write them: Dr. Elephant looks there, and a portal of that TonY
moves the folder on to ``finished``. What is there already, in either place, stays as it is, so
writing a job twice does no harm.

The scanner hands over what it finds (:meth:`JhistPublisher.on_ended`); a thread of its own opens
the job again and writes, so that a slow file system delays no list. What could not be written is
tried again; a job that has no end to write is left out.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from tony_core.files.location import base_name, join, masked
from tony_core.files.port import FileSystem, limited_wait
from tony_core.files.registry import filesystem
from tony_core.history.reader import NoHistory
from tony_core.portal.index.ends import end_of, ended_record
from tony_core.portal.index.rows import JobRow
from tony_core.portal.job_folders import REMOTE_WAIT_S, UnsafeHistory
from tony_core.portal.jvm.avro import library
from tony_core.portal.jvm.location import FINISHED, INTERMEDIATE
from tony_core.portal.jvm.names import ENDING, check_root
from tony_core.portal.jvm.writing import JvmFiles, NotEnded, jvm_files
from tony_core.portal.locations import open_job
from tony_core.portal.settings import HistoryLocation
from tony_core.unexpected_errors import UnexpectedErrors

FOLDER_MODE, FILE_MODE = 0o770, 0o640  # as that TonY's master makes them
OLDEST_S = 7 * 86400.0
"""Jobs that ended longer ago are not written: Dr. Elephant asks for new ones only."""
RETRY_S = 30.0


def write_files(root: str, made: JvmFiles) -> Optional[str]:
    """Write a job's files below a root of the JVM TonY; their folder, None if they were there."""
    files = filesystem(root)
    day = time.strftime("%Y/%m/%d", time.gmtime(made.ended_ms / 1000)).split("/")
    moved = join(root, FINISHED, *day, made.app_id)
    folder = join(root, INTERMEDIATE, made.app_id)
    if _is_there(files, folder) or _is_there(files, moved):
        return None
    files.mkdir(join(root, INTERMEDIATE), FOLDER_MODE)
    return write_folder(files, folder, made)


def write_folder(
    files: FileSystem,
    folder: str,
    made: JvmFiles,
    folder_mode: int = FOLDER_MODE,
    file_mode: int = FILE_MODE,
) -> str:
    """Write a job's files into a folder; the ``.jhist`` file last, since all is there with it."""
    files.mkdir(folder, folder_mode)
    files.put(join(folder, made.config_name), made.config, file_mode)
    files.put(join(folder, made.jhist_name), made.jhist, file_mode)
    return folder


def _is_there(files: FileSystem, folder: str) -> bool:
    try:
        return any(base_name(item.location).endswith(ENDING) for item in files.list(folder))
    except (FileNotFoundError, NotADirectoryError):
        return False


class _Waiting(NamedTuple):
    location: HistoryLocation
    row: JobRow


class JhistPublisher:
    """Writes the jobs of all locations that have a ``write_jhist``, on a thread of its own.

    Raises ``UnusableRoot`` for a place that cannot be used, ``MissingLibrary`` without the extra.
    """

    def __init__(
        self,
        locations: Sequence[HistoryLocation],
        log: Callable[[str], None] = lambda text: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._roots: Dict[str, str] = {
            each.name: check_root(each.write_jhist) for each in locations if each.write_jhist
        }
        if self._roots:
            library()
        self._log = log
        self._now = now
        self._faults = UnexpectedErrors(log)
        self._waiting: Deque[_Waiting] = deque()
        self._known: Set[Tuple[str, str]] = set()  # that wait
        self._problems: Dict[str, str] = {}  # of each root, as it was logged
        self._changed = threading.Condition()
        self._closing = False
        self._thread: Optional[threading.Thread] = None
        self.written = 0

    def on_ended(self, location: HistoryLocation, row: JobRow) -> None:
        """Take note of a job that has ended; never blocks."""
        if location.name not in self._roots or location.kind != "tony":
            return
        if (row.finished or 0.0) < self._now() - OLDEST_S:
            return
        with self._changed:
            if self._closing or (location.name, row.app_id) in self._known:
                return
            self._known.add((location.name, row.app_id))
            self._waiting.append(_Waiting(location, row))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="jhist", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def problems(self) -> List[str]:
        """What cannot be written now, a sentence each."""
        with self._changed:
            return [f"{text[0].upper()}{text[1:]}." for text in self._problems.values()]

    def close(self, timeout_s: float = 2 * REMOTE_WAIT_S) -> bool:
        """End; what still waits is written when the portal is started again."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if self._closing:
                    return
                job = self._waiting.popleft()
            if self._write(job):
                with self._changed:
                    self._known.discard((job.location.name, job.row.app_id))
                continue
            with self._changed:
                self._waiting.append(job)
                self._changed.wait_for(lambda: self._closing, RETRY_S)

    def _write(self, job: _Waiting) -> bool:
        """Write one job; False if it is to be tried again."""
        root = self._roots[job.location.name]
        try:
            with limited_wait(REMOTE_WAIT_S):
                with open_job(job.location, job.row.app_id) as folder:
                    record = ended_record(folder.record(events=False), end_of(job.row))
                    made = jvm_files(record, folder.config(), folder.owner)
                self.written += write_files(root, made) is not None
        except (NoHistory, UnsafeHistory, NotEnded):
            return True  # it went away, or there is no end to write
        except OSError as error:
            self._report(root, f"the files of write-jhist cannot be written: {error}")
            return False
        except Exception:
            self._faults.record(f".jhist file of {job.row.app_id}")
            return True
        with self._changed:
            had_failed = self._problems.pop(root, "")
        if had_failed:
            self._log(f"the files of write-jhist are written to {masked(root)} again")
        return True

    def _report(self, root: str, problem: str) -> None:
        """Log a problem, once until it has gone."""
        with self._changed:
            is_new = root not in self._problems
            self._problems[root] = problem
        if is_new:
            self._log(problem)

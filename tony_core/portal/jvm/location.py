"""A history location of the JVM TonY: finds its jobs and opens them.

The folder ``intermediate`` holds a folder for each job that runs or has just ended; that TonY's
portal moves ended ones to ``finished/yyyy/MM/dd``. A job that is in both is taken from the latter:
its portal made that folder, while ``intermediate`` is open to all who run jobs.

A site may have the two apart (``tony.history.intermediate``, ``tony.history.finished``): then each
is a location of its own.

The days of ``finished`` change seldom, so a day is listed again only when its time has changed.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from datetime import datetime, timezone
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from tony_core.files.location import base_name, is_app_id, is_remote, join, local_path
from tony_core.files.port import Stat
from tony_core.files.registry import filesystem
from tony_core.history.metric_file import Wanted
from tony_core.history.reader import JobHistory, NoHistory
from tony_core.portal.job_folders import (
    Fingerprint,
    JobFolder,
    bounded_wait,
    fingerprint_of,
    folder_of,
    open_local,
    open_remote,
)
from tony_core.portal.jvm import config as jvm_config
from tony_core.portal.jvm.avro import LARGEST_FILE
from tony_core.portal.jvm.config import CONFIG_NAMES, JvmConfig, read_jvm_config
from tony_core.portal.jvm.names import newest, parse_name
from tony_core.portal.jvm.reading import read_jhist
from tony_core.portal.locations import LocationReader, check_scheme
from tony_core.portal.settings import HistoryLocation

INTERMEDIATE, FINISHED = "intermediate", "finished"
_YEAR, _TWO_DIGITS = re.compile(r"[0-9]{4}", re.ASCII), re.compile(r"[0-9]{2}", re.ASCII)
_SHOWN = 5  # names in a message


class JvmFolder(JobFolder):
    """One job's folder: ``.jhist`` files and a configuration."""

    def fingerprint(self) -> Fingerprint:
        listed = self._files.list(self.location)
        name = newest(self._names(listed)[0], self.app_id)
        return fingerprint_of(listed)._replace(is_history=name is not None)

    def record(
        self,
        events: bool = True,
        metrics: Optional[Wanted] = None,
        known: Optional[JobHistory] = None,
    ) -> JobHistory:
        names, others = self._names(self._files.list(self.location))
        name = newest(names, self.app_id)
        if name is None:
            raise NoHistory(f"no .jhist file of {self.app_id} in its folder")
        config = self._config(names)
        try:
            data, problem = self._get(name, LARGEST_FILE), ""
        except (OSError, ValueError) as error:
            data, problem = b"", f"{name}: {error}"
        found = read_jhist(self.app_id, name, data, config, self.owner)
        problems = [problem, *config.problems] if problem else list(found.problems)
        if others:
            shown = ", ".join(each[:100] for each in others[:_SHOWN])
            problems.append(f"files of other users or applications are left out: {shown}")
        return found._replace(problems=tuple(problems), events=found.events if events else ())

    def config(self) -> Optional[bytes]:
        found = self._config(self._names(self._files.list(self.location))[0])
        return found.to_xml() if found.entries else None

    def _names(self, listed: List[Stat]) -> Tuple[List[str], List[str]]:
        """The names of the owner's files, and those that speak for nothing here."""
        ours: List[str] = []
        others: List[str] = []
        for item in listed:
            name = base_name(item.location)
            known = parse_name(name)
            if known is None and name not in CONFIG_NAMES:
                continue
            is_ours = item.owner in ("", self.owner) and (not known or known.app_id == self.app_id)
            (ours if is_ours else others).append(name)
        return ours, others

    def _config(self, names: List[str]) -> JvmConfig:
        name = next((each for each in CONFIG_NAMES if each in names), None)
        if name is None:
            return JvmConfig()
        try:
            return read_jvm_config(self._get(name, jvm_config.LARGEST), name)
        except (OSError, ValueError) as error:
            return JvmConfig((), (f"{name}: {error}",))

    def _get(self, name: str, limit: int) -> bytes:
        return self._files.get(join(self.location, name), limit)


class _Place(NamedTuple):
    """A folder with folders of jobs, and when it last changed (seconds)."""

    location: str
    changed: float


class JvmLocation:
    """All jobs below ``intermediate`` and ``finished``."""

    def __init__(self, root: str) -> None:
        self._is_remote = is_remote(root)
        self._root = root.rstrip("/") if self._is_remote else os.path.abspath(local_path(root))
        self._files = filesystem(self._root)
        self._roots: Optional[Tuple[str, str]] = None  # once they were there
        self._listed: Dict[str, Tuple[float, Mapping[str, float]]] = {}  # of each day
        self._places: Dict[str, str] = {}  # of each job the folder that holds its folder

    def version(self) -> str:
        today = datetime.now(timezone.utc).strftime("%Y/%m/%d").split("/")
        running, finished = self._roots = self._roots or self._find_roots()
        times = [self._changed(each) for each in (running, finished, join(finished, *today))]
        if times[:2] == [None, None]:
            self._roots = None
            raise FileNotFoundError(errno.ENOENT, "is no longer there", self._root)
        return " ".join(map(str, times))

    def _find_roots(self) -> Tuple[str, str]:
        """The folders of running and of finished jobs; a site may have them in places apart."""
        named = join(self._root, INTERMEDIATE), join(self._root, FINISHED)
        if any(self._changed(folder) is not None for folder in named):
            return named
        inside = [base_name(item.location) for item in self._folders(self._root, None)]
        if not any(_YEAR.fullmatch(name) or name.startswith("application_") for name in inside):
            raise FileNotFoundError(
                errno.ENOENT,
                f"is no history of the JVM TonY: it has no {INTERMEDIATE!r} or {FINISHED!r}, and no"
                " year or job",
                self._root,
            )
        return self._root, self._root

    def names(self) -> Mapping[str, float]:
        found: Dict[str, float] = {}
        places: Dict[str, str] = {}
        seen = set()
        for place in self._all_places():
            seen.add(place.location)
            for app_id, changed in self._jobs(place).items():
                found[app_id] = changed
                places[app_id] = place.location
        self._listed = {day: each for day, each in self._listed.items() if day in seen}
        self._places = places
        return found

    def open(self, app_id: str) -> JobFolder:
        folder_of(self._root, app_id)  # whether it can be an id at all
        for refresh in (False, True):
            if refresh:
                self.names()  # it may have been moved meanwhile
            place = self._places.get(app_id)
            if place is None:
                continue
            try:
                return self._open(place, app_id)
            except NoHistory:
                continue
        raise NoHistory(f"no history of {app_id} below {self._root}")

    def remove(self, app_id: str) -> bool:
        place = self._places.get(app_id)
        if place is None:
            return False
        folder = folder_of(place, app_id)
        if self._is_remote:
            with bounded_wait():
                return self._files.delete(folder)
        if os.path.islink(folder):
            raise OSError(errno.EPERM, "is a symbolic link, which is not removed", folder)
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return False
        return True

    def _open(self, place: str, app_id: str) -> JobFolder:
        if self._is_remote:
            return open_remote(self._files, place, app_id, JvmFolder)
        return open_local(place, app_id, JvmFolder)

    # ------------------------------------------------------------------ listings

    def _all_places(self) -> Iterator[_Place]:
        """What may hold jobs; ``finished`` comes later, and so it wins."""
        running, finished = self._roots = self._roots or self._find_roots()
        yield _Place(running, 0.0)  # always listed
        years = self._folders(finished, _YEAR)
        months = [month for year in years for month in self._folders(year.location, _TWO_DIGITS)]
        for month in months:
            for day in self._folders(month.location, _TWO_DIGITS):
                yield _Place(day.location, day.mtime_ms / 1000)

    def _jobs(self, place: _Place) -> Mapping[str, float]:
        """Of each job its id; and where a listing has it for nothing, when its folder changed."""
        known = self._listed.get(place.location)
        if known is not None and place.changed and known[0] == place.changed:
            return known[1]
        found = {
            base_name(item.location): item.mtime_ms / 1000 if self._is_remote else 0.0
            for item in self._folders(place.location, None)
        }
        found = {
            app_id: changed
            for app_id, changed in found.items()
            if is_app_id(app_id) and not _YEAR.fullmatch(app_id)
        }
        self._listed[place.location] = (place.changed, found)
        return found

    def _folders(self, folder: str, named: Optional[re.Pattern[str]]) -> List[Stat]:
        """The folders in a folder; on this machine no links."""
        try:
            if self._is_remote:
                with bounded_wait():
                    found = [item for item in self._files.list(folder) if item.is_dir]
            else:
                found = _local_folders(folder, links=named is None)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [item for item in found if not named or named.fullmatch(base_name(item.location))]

    def _changed(self, folder: str) -> Optional[int]:
        try:
            with bounded_wait():
                found = self._files.stat(folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.mtime_ms if found.is_dir else None


def _local_folders(folder: str, links: bool) -> List[Stat]:
    """``links``: symbolic links as well; opening one says why it is refused."""
    with os.scandir(folder) as found:
        return [
            Stat(item.path, True, 0, item.stat(follow_symlinks=False).st_mtime_ns // 1_000_000)
            for item in sorted(found, key=lambda each: each.name)
            if item.is_dir(follow_symlinks=False) or (links and item.is_symlink())
        ]


def jvm_location(location: HistoryLocation) -> LocationReader:
    """The reader of a location in the JVM TonY's layout; raises OSError for a wrong one."""
    check_scheme(location.root)
    return JvmLocation(location.root)

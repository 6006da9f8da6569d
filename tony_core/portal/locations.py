"""History locations: where jobs are found, by the kind of place and of layout.

:class:`LocationReader` is what the index asks of a location, and :func:`open_job` what a job's page
asks. A kind is a row of :data:`KINDS`: a module, and a function in it that makes the reader of a
:class:`HistoryLocation`. So another layout adds a reader and nothing else.
"""

from __future__ import annotations

import errno
import importlib
import os
import shutil
from typing import Mapping, Protocol, Tuple

from tony_core.files.location import base_name, is_app_id, is_remote, local_path, masked, scheme_of
from tony_core.files.port import FileSystem, UnsupportedLocation
from tony_core.files.registry import filesystem
from tony_core.portal.job_folders import JobFolder, bounded_wait, folder_of, open_local, open_remote
from tony_core.portal.settings import HistoryLocation

WITH_OWNERS = ("hdfs", "webhdfs", "swebhdfs")
"""The remote file systems that say whose a file is."""


def check_scheme(root: str) -> None:
    """Raise UnsupportedLocation where a location cannot say whose a file is."""
    if is_remote(root) and scheme_of(root) not in WITH_OWNERS:
        known = ", ".join(f"{scheme}://" for scheme in WITH_OWNERS)
        why = (
            f"the portal needs a file system that says whose a file is: a folder, or {known};"
            " copy the histories to one of these"
        )
        raise UnsupportedLocation(errno.EPROTONOSUPPORT, why, masked(root))


class LocationReader(Protocol):
    """One history location, for one thread at a time. Remote calls have a deadline."""

    def version(self) -> str:
        """Equal to the one before while no job has been added or removed. Costs one look."""

    def names(self) -> Mapping[str, float]:
        """Every job's id with the time of its folder's last change.

        0 where the times would cost a look at each folder.
        """

    def open(self, app_id: str) -> JobFolder:
        """One job's folder. Raises NoHistory, UnsafeHistory, or another OSError."""

    def remove(self, app_id: str) -> bool:
        """Remove one job's history; False if there was none."""


KINDS: Mapping[str, Tuple[str, str]] = {
    "tony": ("tony_core.portal.locations", "tony_location"),
    # The layout of the JVM TonY: intermediate and finished folders with .jhist files.
    "jvm-tony": ("tony_core.portal.jvm.location", "jvm_location"),
}


def reader_of(location: HistoryLocation) -> LocationReader:
    """The reader of a location; raises OSError that says what is wrong with its root or kind."""
    module, name = KINDS[location.kind]
    reader: LocationReader = getattr(importlib.import_module(module), name)(location)
    return reader


def open_job(location: HistoryLocation, app_id: str) -> JobFolder:
    """One job's folder at a location; the caller closes it.

    Raises NoHistory where there is none, UnsafeHistory where it breaks the rules of
    :mod:`tony_core.portal.job_folders`, and other OSErrors, each with a message for people.
    """
    return reader_of(location).open(app_id)


def tony_location(location: HistoryLocation) -> LocationReader:
    """A root with a folder for each job, on this machine or on HDFS."""
    root = location.root
    check_scheme(root)
    if not is_remote(root):
        return _LocalRoot(os.path.abspath(local_path(root)))
    return _RemoteRoot(root.rstrip("/"), filesystem(root))


class _LocalRoot:
    def __init__(self, root: str) -> None:
        self._root = root

    def version(self) -> str:
        return str(os.stat(self._root).st_mtime_ns)

    def names(self) -> Mapping[str, float]:
        with os.scandir(self._root) as found:
            return {
                item.name: 0.0
                for item in found
                if is_app_id(item.name) and (item.is_symlink() or item.is_dir())
            }

    def open(self, app_id: str) -> JobFolder:
        return open_local(self._root, app_id)

    def remove(self, app_id: str) -> bool:
        folder = folder_of(self._root, app_id)
        if os.path.islink(folder):
            raise OSError(errno.EPERM, "is a symbolic link, which is not removed", folder)
        try:
            shutil.rmtree(folder)  # follows no link below it either
        except FileNotFoundError:
            return False
        return True


class _RemoteRoot:
    def __init__(self, root: str, files: FileSystem) -> None:
        self._root = root
        self._files = files

    def version(self) -> str:
        with bounded_wait():
            return str(self._files.stat(self._root).mtime_ms)

    def names(self) -> Mapping[str, float]:
        with bounded_wait():
            found = self._files.list(self._root)
        named = ((base_name(item.location), item) for item in found if item.is_dir)
        return {name: item.mtime_ms / 1000 for name, item in named if is_app_id(name)}

    def open(self, app_id: str) -> JobFolder:
        with bounded_wait():
            return open_remote(self._files, self._root, app_id)

    def remove(self, app_id: str) -> bool:
        folder = folder_of(self._root, app_id)
        with bounded_wait():
            return self._files.delete(folder)

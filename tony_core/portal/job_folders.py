"""One job's history folder, opened so that it speaks for its owner alone.

In a place that many users write to, a folder's owner decides what it holds. So its owner is the
owner of the job, and nothing in it may lead elsewhere: the folder is no symbolic link, its files
are plain files of that same owner, opened by name below the open folder and through no link, and
none is larger than history's limit. What does not fit is an :class:`UnsafeHistory` that says why.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat as modes
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from typing import BinaryIO, Callable, Dict, Iterator, List, NamedTuple, Optional, TypeVar

from tony_core.files.local import stat_of, user_name
from tony_core.files.location import is_app_id, join, local_path, masked
from tony_core.files.port import FileSystem, ReadOnlyFileSystem, Stat, limited_wait, wait_limit
from tony_core.history.layout import CONFIG, METRICS, POINTS, is_history_file, segment_number
from tony_core.history.limits import LARGEST, READING, Limits, megabytes
from tony_core.history.metric_file import Wanted, page_json
from tony_core.history.reader import JobHistory, NoHistory, read_folder

MOST_FILES = 10_000
MOST_CONFIG = 8 << 20  # bytes
"""Names in one job's folder; a longer one is not read."""

REMOTE_WAIT_S = 10.0
"""How long one call to a remote file system may take."""

LOCATION_ERRORS = frozenset(
    [
        *(errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ECONNREFUSED, errno.ECONNRESET),
        *(errno.ETIMEDOUT, errno.ESTALE, errno.EPROTONOSUPPORT),
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    ]
)
"""Errors that are not a job's own."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_T = TypeVar("_T")


class UnsafeHistory(OSError):
    """A folder or file of history breaks the rules above; the message says which."""

    def __init__(self, location: str, why: str, owner: str = "") -> None:
        super().__init__(errno.EPERM, why, masked(location))
        self.owner = owner  # of the folder, where it is known

    def __str__(self) -> str:
        return f"{self.filename} {self.strerror}"


class Fingerprint(NamedTuple):
    """What a folder's files look like from outside; equal ones have not changed."""

    digest: str = ""
    changed: float = 0.0  # of the newest file, seconds since the epoch
    size: int = 0  # bytes of all files
    is_history: bool = False  # whether there is a file of history
    held: int = 0  # bytes of all files that are not holes


class JobFolder(ABC):
    """One job's files. A context manager; for one thread at a time."""

    app_id: str
    owner: str  # the user whose files they are
    location: str
    limits: Limits = READING

    def __init__(self, app_id: str, owner: str, location: str, files: FolderFiles) -> None:
        self.app_id = app_id
        self.owner = owner
        self.location = location
        self._files = files

    @abstractmethod
    def fingerprint(self) -> Fingerprint:
        """The newest state of its files."""

    @abstractmethod
    def record(
        self,
        events: bool = True,
        metrics: Optional[Wanted] = None,
        known: Optional[JobHistory] = None,
    ) -> JobHistory:
        """Everything known of the job; what cannot be read is in its ``problems``.

        ``metrics``: whether, or of which tasks, their series are wanted; unless it says otherwise,
        all with the events. ``known`` has the job and its tasks where they have been read, of a job
        that has ended.
        """

    @abstractmethod
    def config(self) -> Optional[bytes]:
        """The masked configuration that it ran with; None if it was not kept."""

    def metrics_json(self) -> Optional[bytes]:
        """The metrics as the page's JSON has them, where a file holds just that."""
        return None

    def close(self) -> None:
        """Give back what is open."""
        self._files.close()

    def __enter__(self) -> JobFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class TonyFolder(JobFolder):
    """A folder in the layout of :mod:`tony_core.history`."""

    def fingerprint(self) -> Fingerprint:
        return fingerprint_of(self._files.list(self.location))

    def record(
        self,
        events: bool = True,
        metrics: Optional[Wanted] = None,
        known: Optional[JobHistory] = None,
    ) -> JobHistory:
        record = read_folder(
            self.location, self.app_id, events, self._files, metrics, known, self.limits
        )
        try:
            self._files.check(join(self.location, CONFIG))
        except FileNotFoundError:
            return record
        except OSError as error:  # read on demand only, and named at once
            return record._replace(problems=(*record.problems, f"{CONFIG}: {error}"))
        return record

    def config(self) -> Optional[bytes]:
        return self._get(CONFIG, MOST_CONFIG)

    def metrics_json(self) -> Optional[bytes]:
        data = self._get(METRICS, self.limits.metrics)
        return page_json(data) if data else None

    def _get(self, name: str, most: int) -> Optional[bytes]:
        try:
            return self._files.get(join(self.location, name), most)
        except ValueError as error:
            raise OSError(errno.EFBIG, str(error)) from None
        except FileNotFoundError:
            return None


Make = Callable[[str, str, str, "FolderFiles"], JobFolder]
"""Makes a folder of its layout: of the job's id, its owner, its location and its files."""


def open_local(root: str, app_id: str, make: Make = TonyFolder) -> JobFolder:
    """A job's folder on this machine; raises NoHistory, UnsafeHistory, or OSError."""
    location = folder_of(root, app_id)
    try:
        handle = os.open(local_path(location), _FOLDER)
    except FileNotFoundError:
        raise NoHistory(f"no history of {app_id} below {root}") from None
    except OSError as error:
        raise _refused(location, error) from None
    try:
        owner = user_name(os.fstat(handle).st_uid)
    except BaseException:
        os.close(handle)
        raise
    return make(app_id, owner, location, _LocalFiles(location, handle))


def open_remote(files: FileSystem, root: str, app_id: str, make: Make = TonyFolder) -> JobFolder:
    """A job's folder on a remote file system that knows owners."""
    location = folder_of(root, app_id)
    try:
        with bounded_wait():
            found = files.stat(location)
    except FileNotFoundError:
        raise NoHistory(f"no history of {app_id} below {masked(root)}") from None
    if not found.owner:
        raise UnsafeHistory(location, "the file system does not say whose folder this is")
    if not found.is_dir:
        raise UnsafeHistory(location, "is not a folder", found.owner)
    return make(app_id, found.owner, location, _RemoteFiles(files, location, found.owner))


@contextmanager
def bounded_wait() -> Iterator[None]:
    """Wait for a remote file system no longer than the caller, and no longer than the limit."""
    with limited_wait(min(REMOTE_WAIT_S, wait_limit.get() or REMOTE_WAIT_S)):
        yield


def folder_of(root: str, app_id: str) -> str:
    """The location of a job's folder; raises NoHistory for what can be no id."""
    if not is_app_id(app_id):
        raise NoHistory(f"{app_id[:100]!r} is not the id of an application")
    return join(root, app_id)


def fingerprint_of(files: List[Stat]) -> Fingerprint:
    """The fingerprint of these files.

    The points of a running job's metrics are left out of the digest: they come each second, and
    lists show none of them.
    """
    digest = hashlib.blake2b(digest_size=12)
    for item in files:
        name = item.location.rpartition("/")[2]
        if segment_number(name, POINTS):
            continue
        digest.update(f"{name}\0{item.size}\0{item.mtime_ms}\0".encode("utf-8", "replace"))
    return Fingerprint(
        digest.hexdigest(),
        max((item.mtime_ms / 1000 for item in files), default=0.0),
        sum(item.size for item in files),
        any(is_history_file(item.location.rpartition("/")[2]) for item in files),
        sum(item.held for item in files),
    )


def _refused(location: str, error: OSError) -> OSError:
    """The folder could not be opened: whose it is, and why."""
    owner = ""
    with suppress(OSError):
        found = os.lstat(local_path(location))
        owner = user_name(found.st_uid)
        if modes.S_ISLNK(found.st_mode):
            return UnsafeHistory(location, "is a symbolic link, not a folder", owner)
        if not modes.S_ISDIR(found.st_mode):
            return UnsafeHistory(location, "is not a folder", owner)
    if isinstance(error, PermissionError):
        why = f"user {user_name(os.geteuid())!r}, who runs the portal, may not read it"
        return UnsafeHistory(location, why, owner)
    return error


class FolderFiles(ReadOnlyFileSystem):
    """The files of one folder, and no others."""

    refusal = (errno.EROFS, "the portal only reads history")

    def __init__(self, folder: str) -> None:
        self._folder = folder

    @abstractmethod
    def check(self, location: str) -> None:
        """Raise the OSError of a file that may not be read, without reading it."""

    def _name(self, location: str) -> str:
        """The name below the folder; empty for the folder itself."""
        if location.rstrip("/") == self._folder:
            return ""
        name = location[len(self._folder) + 1 :]
        if location != join(self._folder, name) or "/" in name or name in ("", ".", ".."):
            raise UnsafeHistory(location, f"is not in {masked(self._folder)}")
        return name


class _LocalFiles(FolderFiles):
    """By the open folder: what its name leads to meanwhile does not matter."""

    def __init__(self, folder: str, handle: int) -> None:
        super().__init__(folder)
        self._handle = handle
        self._owner = os.fstat(handle).st_uid

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def stat(self, location: str) -> Stat:
        name = self._name(location)
        found = (
            os.stat(name, dir_fd=self._handle, follow_symlinks=False)
            if name
            else os.fstat(self._handle)
        )
        return stat_of(location, found)

    def list(self, location: str) -> List[Stat]:
        if self._name(location):
            raise UnsafeHistory(location, "folders in a job's history are not read")
        found = []
        for name in sorted(_bounded(location, os.listdir(self._handle))):
            with suppress(FileNotFoundError):  # removed meanwhile
                item = os.stat(name, dir_fd=self._handle, follow_symlinks=False)
                if not modes.S_ISDIR(item.st_mode):  # links as well: opening one names the problem
                    found.append(stat_of(f"{self._folder}/{name}", item))
        return found

    def open(self, location: str, offset: int = 0) -> BinaryIO:
        name = self._name(location)
        try:
            handle = os.open(name or ".", _FILE, dir_fd=self._handle)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK):
                raise UnsafeHistory(location, "is a symbolic link, which is not followed") from None
            error.filename = location
            raise
        try:
            found = os.fstat(handle)
            if not modes.S_ISREG(found.st_mode):
                raise UnsafeHistory(location, "is not a plain file")
            _check_owner(location, user_name(found.st_uid), user_name(self._owner))
            _check_size(location, found.st_size)
            os.lseek(handle, offset, os.SEEK_SET)
            return os.fdopen(handle, "rb")
        except BaseException:
            os.close(handle)
            raise

    def check(self, location: str) -> None:
        self.open(location).close()

    def get(self, location: str, limit: Optional[int] = None) -> bytes:
        """The file as it is now: to ask for all that the limit allows would reserve that memory."""
        with self.open(location) as stream:
            size = os.fstat(stream.fileno()).st_size
            if limit is not None and size > limit:
                raise OSError(errno.EFBIG, f"is larger than {megabytes(limit)}", location)
            return stream.read(size)


class _RemoteFiles(FolderFiles):
    """By the folder's own listing, which names each file's owner."""

    def __init__(self, files: FileSystem, folder: str, owner: str) -> None:
        super().__init__(folder)
        self._files = files
        self._owner = owner
        self._listed: Dict[str, Stat] = {}

    def stat(self, location: str) -> Stat:
        self._name(location)
        with bounded_wait():
            return self._files.stat(location)

    def list(self, location: str) -> List[Stat]:
        if self._name(location):
            raise UnsafeHistory(location, "folders in a job's history are not read")
        with bounded_wait():
            found = _bounded(location, self._files.list(location))
        self._listed = {item.location: item for item in found}
        return [item for item in found if not item.is_dir]

    def check(self, location: str) -> None:
        self._name(location)
        found = self._listed.get(location) or self.stat(location)
        if found.is_dir:
            raise UnsafeHistory(location, "is not a plain file")
        _check_owner(location, found.owner, self._owner)
        _check_size(location, found.size)

    def open(self, location: str, offset: int = 0) -> BinaryIO:
        self.check(location)
        with bounded_wait():
            return self._files.open(location, offset)


def _bounded(location: str, found: List[_T]) -> List[_T]:
    if len(found) > MOST_FILES:
        raise UnsafeHistory(location, f"holds more than {MOST_FILES} files")
    return found


def _check_owner(location: str, owner: str, expected: str) -> None:
    if owner != expected:
        why = f"belongs to {owner or 'an unknown user'!r}, and the job's folder to {expected!r}"
        raise UnsafeHistory(location, why)


def _check_size(location: str, size: int) -> None:
    if size > LARGEST:
        raise OSError(errno.EFBIG, f"is larger than {megabytes(LARGEST)}", masked(location))

"""The file-system port: the few verbs that staging, history and job files need.

A *location* is a local path or a URL, exactly as a user writes it; every method takes whole
locations, so that no caller of this port cuts a URL apart. Files are written whole, from bytes
(``put``), from a local file (``upload``) or by a function that produces them while they travel
(``write``); nothing is appended. All three are atomic: a reader sees the old file or the new
one. Files are read forwards, from any offset on.

Errors are Python's own ``OSError`` family (``FileNotFoundError``, ``PermissionError``...),
each naming the location; :class:`ReadOnlyError` and :class:`UnsupportedLocation` are of it too.

Runs on the nodes' Python (3.9), standard library only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from contextvars import ContextVar
from typing import BinaryIO, Callable, Iterator, List, NamedTuple, NoReturn, Optional, Tuple

from tony_core.files.location import masked

COPIED_AT_ONCE = 1 << 20

#: See :func:`limited_wait`.
wait_limit: ContextVar[Optional[float]] = ContextVar("wait_limit", default=None)


@contextmanager
def limited_wait(seconds: float) -> Iterator[None]:
    """Give up a remote file system that does not answer after so many seconds.

    For a verb that only looks. What writes, or runs for long, has each file system's own patience.
    """
    before = wait_limit.set(seconds)
    try:
        yield
    finally:
        wait_limit.reset(before)


class ReadOnlyError(PermissionError):
    """This kind of location can only be read."""


class UnsupportedLocation(OSError):
    """No file system for such a location; the message says what is missing."""


class Stat(NamedTuple):
    """Kind, size and time of a location."""

    location: str
    is_dir: bool
    size: int
    mtime_ms: int
    mode: Optional[int] = None  # permission bits, where the file system has them
    owner: str = ""  # user and group by name, where the file system has them; else empty
    group: str = ""
    on_disk: Optional[int] = None  # bytes, where the file system says it: less than size with holes

    @property
    def held(self) -> int:
        """The bytes of the file that are not holes: anyone may make a file of any size of holes."""
        return self.size if self.on_disk is None else min(self.size, self.on_disk)


class FileSystem(ABC):
    """One kind of file system. Stateless for its callers: any thread may use it."""

    scheme: str = ""

    @abstractmethod
    def stat(self, location: str) -> Stat:
        """Raises ``FileNotFoundError``. Symbolic links are followed."""

    @abstractmethod
    def open(self, location: str, offset: int = 0) -> BinaryIO:
        """A stream of the file's bytes from ``offset`` on, empty at or behind its end.

        The caller closes it.
        """

    @abstractmethod
    def list(self, location: str) -> List[Stat]:
        """What a folder holds, by name; raises ``NotADirectoryError`` for a file."""

    @abstractmethod
    def write(
        self, location: str, produce: Callable[[BinaryIO], object], mode: int = 0o644
    ) -> None:
        """Write a whole file, atomically, replacing an older one. Its folder must exist.

        ``produce`` writes into the stream that it is given, and does not close it. When it
        raises, nothing has changed at ``location``.
        """

    def put(self, location: str, data: bytes, mode: int = 0o644) -> None:
        """Like :meth:`write`, from memory."""
        self.write(location, lambda stream: stream.write(data), mode)

    def upload(self, source: str, location: str, mode: int = 0o644) -> None:
        """Like :meth:`write`, from a local file of any size."""

        def copy(stream: BinaryIO) -> None:
            with open(source, "rb") as origin:
                while block := origin.read(COPIED_AT_ONCE):
                    stream.write(block)

        self.write(location, copy, mode)

    @abstractmethod
    def mkdir(self, location: str, mode: int = 0o755) -> None:
        """Make a folder and those above it; all that were missing have this mode, whatever
        the umask. One that is there already stays as it is."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Atomic, within one file system. A file at ``target`` is replaced, a folder never."""

    @abstractmethod
    def delete(self, location: str) -> bool:
        """Remove a file, or a folder with all it holds; False when there was nothing."""

    @abstractmethod
    def chmod(self, location: str, mode: int) -> None:
        """Set permission bits."""

    def close(self) -> None:
        """Give back what it holds (connections); it can be used again all the same."""

    def exists(self, location: str) -> bool:
        try:
            self.stat(location)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def get(self, location: str, limit: Optional[int] = None) -> bytes:
        """The whole file; ``ValueError`` when it is longer than ``limit`` bytes."""
        with self.open(location) as stream:
            data = stream.read() if limit is None else stream.read(limit + 1)
        if limit is not None and len(data) > limit:
            raise ValueError(f"{location} is longer than the {limit} bytes allowed here")
        return data


class ReadOnlyFileSystem(FileSystem):
    """A file system whose writing methods raise :class:`ReadOnlyError`."""

    #: The errno of that error, and its words.
    refusal: Tuple[int, str]

    def write(
        self, location: str, produce: Callable[[BinaryIO], object], mode: int = 0o644
    ) -> None:
        self._refuse(location)

    def mkdir(self, location: str, mode: int = 0o755) -> None:
        self._refuse(location)

    def rename(self, source: str, target: str) -> None:
        self._refuse(target)

    def delete(self, location: str) -> bool:
        self._refuse(location)

    def chmod(self, location: str, mode: int) -> None:
        self._refuse(location)

    def _refuse(self, location: str) -> NoReturn:
        raise ReadOnlyError(*self.refusal, masked(location))

"""The folder of a master's state: on this machine, or on a file system that may not answer.

:class:`LocalFolder` writes at once and is durable when it returns, unless the disk is full: then
the newest version of each file waits in memory, and :meth:`LocalFolder.retry` writes it.
:class:`RemoteFolder` is for any other place of the file-system port, above all HDFS, and has two
rules:

* **The master's thread never waits for it.** A NameNode may take long, or not answer at all. A
  thread gets what is to be written; it makes the folder (for its owner only) before the first
  file, and puts one file at a time. Of several versions of a file it puts only the newest, which
  holds everything. It calls ``on_change`` after each try, and :meth:`RemoteFolder.pending` says
  whether a version is durable.
* **It gives nothing up.** A put that failed is tried again until it succeeds or the master ends;
  meanwhile :attr:`RemoteFolder.problem` says why it fails.

Closing a file on HDFS may take half a second. A file that commands wait for (``soon``) is therefore
kept, compressed, as an attribute of the folder where the file system has such *notes* and the file
is short. Once it was written as a file it stays one, so where there is a file, it is the newer of
the two.

:mod:`tony_core.master.state.journal_gate` decides what waits for a write, and for how long. A
thread reads the folder once, before a master begins, for a limited time.
"""

from __future__ import annotations

import errno
import threading
import time
import zlib
from pathlib import Path
from typing import Callable, Dict, List, Optional, Set, Tuple, TypeVar, Union

from tony_core.files.durable import replace_file
from tony_core.files.location import is_remote, join, local_path
from tony_core.files.registry import filesystem
from tony_core.unexpected_errors import UnexpectedErrors, log_to_stderr

READ_S = 60.0  # longer than a NameNode's failover, well below YARN's limit for a master (600 s)
RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)  # pauses after failed puts; the last one repeats
FULL = (errno.ENOSPC, errno.EDQUOT)
NOTE_BYTES = 8000  # what fits into a request's URL
T = TypeVar("T")
OnChange = Callable[[], None]
Log = Callable[[str], None]


class LocalFolder:
    """Files of this machine, durable when :meth:`put` returns unless the disk is full."""

    def __init__(self, folder: str, on_change: OnChange = lambda: None) -> None:
        self.folder = folder
        self.problem = ""  # why waiting files are not written
        self._path = Path(local_path(folder))
        self._waiting: Dict[str, Tuple[bytes, int, bool]] = {}
        self._on_change = on_change

    def get(self, name: str) -> bytes:
        """Read a file; raises ``FileNotFoundError``."""
        return (self._path / name).read_bytes()

    def put(
        self, name: str, data: bytes, mode: int = 0o600, sync: bool = True, soon: bool = False
    ) -> None:
        """Replace a file; ``soon`` has no effect here."""
        self._waiting[name] = (data, mode, sync)
        if self.retry():
            self._on_change()

    def retry(self) -> bool:
        """Write what the full disk refused; return whether some of it still waits."""
        for name, (data, mode, sync) in list(self._waiting.items()):
            try:
                replace_file(str(self._path / name), data, mode, sync)
            except OSError as error:
                if error.errno in FULL:
                    self.problem = error.strerror or str(error)
                    return True
                del self._waiting[name]
                raise
            del self._waiting[name]
        self.problem = ""
        return False

    def pending(self, name: str) -> bool:
        """Whether the newest version is not durable yet."""
        return name in self._waiting

    def close(self, timeout_s: float) -> List[str]:
        """Try a last time; return what is not written, and why."""
        self.retry()
        return [f"{join(self.folder, name)}: {self.problem}" for name in self._waiting]


class RemoteFolder:
    """Files of a remote file system, put by a thread."""

    def __init__(
        self, folder: str, on_change: OnChange = lambda: None, log: Log = log_to_stderr
    ) -> None:
        self.folder = folder
        self.problem = ""  # why the last put failed; empty after one that succeeded
        self._on_change = on_change
        self.faults = UnexpectedErrors(log)
        self._files = filesystem(folder)
        self._made = False
        self._soon: Set[str] = set()  # files that go as notes where possible
        self._is_file: Dict[str, bool] = {}
        self._waiting: Dict[str, Tuple[int, bytes, int]] = {}
        self._handed: Dict[str, int] = {}
        self._there: Dict[str, int] = {}
        self._closing = False
        self._hurried = False  # close() waits: retry with short pauses
        self._changed = threading.Condition()
        self._thread: Optional[threading.Thread] = None

    def get(self, name: str) -> bytes:
        """Read a file, with retries for :data:`READ_S`; raises ``FileNotFoundError`` at once."""
        location = join(self.folder, name)
        try:
            found = read_with_retries(lambda: self._files.get(location), READ_S)
        except FileNotFoundError:
            noted = getattr(self._files, "noted", None)
            note = read_with_retries(lambda: noted(self.folder, name), READ_S) if noted else None
            if note is None:
                raise
            self._is_file[name] = False
            return zlib.decompress(note)
        self._is_file[name] = True
        return found

    def put(
        self, name: str, data: bytes, mode: int = 0o600, sync: bool = True, soon: bool = False
    ) -> None:
        """Queue a file, in place of a version that still waits; ``soon``: commands wait for it."""
        with self._changed:
            if self._closing:
                return
            number = self._handed[name] = self._handed.get(name, 0) + 1
            self._waiting[name] = (number, data, mode)
            if soon:
                self._soon.add(name)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="state", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def retry(self) -> bool:
        """Do nothing: the thread retries by itself."""
        return False

    def pending(self, name: str) -> bool:
        """Whether the newest version is not durable yet."""
        with self._changed:
            return self._there.get(name, 0) < self._handed.get(name, 0)

    def close(self, timeout_s: float) -> List[str]:
        """Wait at most so long for queued files; return what is not written, and why."""
        end = time.monotonic() + timeout_s
        with self._changed:
            self._hurried = True
            self._changed.notify_all()
            while self._behind() and not self._closing:
                left = end - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            self._closing = True
            self._changed.notify_all()
            missing = self._behind()
        thread = self._thread
        if thread is not None and not missing:
            thread.join(1.0)
        return [f"{join(self.folder, name)}: {self.problem or 'no answer'}" for name in missing]

    def _behind(self) -> List[str]:
        return [name for name, n in self._handed.items() if self._there.get(name, 0) < n]

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if self._closing:
                    return
                # In the order they were queued: the journal comes before files that can wait.
                name = next(iter(self._waiting))
                number, data, mode = self._waiting.pop(name)
            problem = self._try(name, data, mode)
            with self._changed:
                self.problem = problem
                if problem:
                    self._waiting = {name: (number, data, mode), **self._waiting}
                else:
                    self._there[name] = number
                self._changed.notify_all()
            self._on_change()
            failures = failures + 1 if problem else 0
            if failures:
                self._pause(RETRY_S[min(failures, len(RETRY_S)) - 1])

    def _try(self, name: str, data: bytes, mode: int) -> str:
        try:
            if not self._made:
                self._files.mkdir(self.folder, 0o700)
                self._made = True
            if not (name in self._soon and self._noted(name, data)):
                self._files.put(join(self.folder, name), data, mode)
                self._is_file[name] = True
        except FileNotFoundError as error:
            self._made = False  # it was removed
            return str(error) or "the folder is gone"
        except OSError as error:
            return str(error) or type(error).__name__
        except Exception:  # a fault of ours: the next try may succeed, a dead thread never
            return self.faults.record(f"state, {name}")
        return ""

    def _noted(self, name: str, data: bytes) -> bool:
        """Keep a file as the folder's note; return whether that was possible."""
        note = getattr(self._files, "note", None)
        if note is None:
            return False
        if name not in self._is_file:
            self._is_file[name] = self._files.exists(join(self.folder, name))
        short = zlib.compress(data)
        if self._is_file[name] or len(short) > NOTE_BYTES:
            return False
        try:
            note(self.folder, name, short)
        except FileNotFoundError:
            raise
        except OSError:
            self._is_file[name] = True  # this file system refuses notes
            return False
        return True

    def _pause(self, seconds: float) -> None:
        began = time.monotonic()
        with self._changed:
            while not self._closing:
                pause = min(seconds, RETRY_S[0]) if self._hurried else seconds
                left = began + pause - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)


StateFolder = Union[LocalFolder, RemoteFolder]


def state_folder(
    location: str, on_change: OnChange = lambda: None, log: Log = log_to_stderr
) -> StateFolder:
    """Open the folder at a path or URL.

    ``on_change`` is called when a write was tried: at once, or on the thread that writes.
    """
    if is_remote(location):
        return RemoteFolder(location, on_change, log)
    return LocalFolder(location, on_change)


def read_with_retries(read: Callable[[], T], seconds: float) -> T:
    """Return what ``read`` returns, with retries for so long; a call that hangs is abandoned.

    ``FileNotFoundError`` is raised at once; in the end the last ``OSError`` or ``TimeoutError`` is.
    """
    found: List[T] = []
    failed: List[BaseException] = []
    over = threading.Event()
    end = time.monotonic() + seconds

    def run() -> None:
        tries = 0
        while True:
            try:
                found.append(read())
            except OSError as error:
                failed.append(error)
                left = end - time.monotonic()
                pause = RETRY_S[min(tries, len(RETRY_S) - 1)]
                if not isinstance(error, FileNotFoundError) and left > pause:
                    tries += 1
                    time.sleep(pause)
                    continue
            except BaseException as error:
                failed.append(error)
            over.set()
            return

    threading.Thread(target=run, name="state-read", daemon=True).start()
    if over.wait(seconds + min(seconds, 1.0)) and found:
        return found[0]
    raise failed[-1] if failed else TimeoutError(f"no answer within {seconds:g} s")

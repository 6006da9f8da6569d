"""The folder of a master's state: on this machine, or somewhere that may be away.

:class:`LocalFolder` writes at once and is on disk when it returns, unless the disk is full: then
the newest version of each file waits in memory until there is room, and somebody tries again
(:meth:`LocalFolder.again`). :class:`RemoteFolder` is for any other place of the file-system port,
above all HDFS, and has two rules:

* **The master's thread never waits for it.** A name node may take long, or not answer at
  all. What is to be written is handed to a thread, which makes the folder (for its owner
  alone) before the first file, and then puts one file at a time. Of several versions of a file
  only the newest is put: each holds everything. Whoever must know that a version is there
  asks :meth:`RemoteFolder.pending` when the thread says that something happened.
* **Nothing is given up.** What cannot be put is put again, until it is there or the master
  ends; meanwhile :attr:`RemoteFolder.problem` says why it is not.

A file on HDFS may take half a second to be closed. What somebody waits for (``soon``) is
therefore kept, compressed, as an attribute of the folder where the file system knows such
*notes* and it is short; once it was written as a file it stays one. So where there is a file,
it is the newer of the two.

What must wait for a write, and for how long, is decided in
:mod:`tony_core.master.session.journal_gate`.
Reading happens once, before a master begins, by a thread that is waited for, for so long.
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

READ_S = 60.0  # longer than the failover of a name node; well below YARN's patience (600 s)
AGAIN_S = (0.2, 0.5, 1.0, 2.0, 5.0)  # pauses after a put that failed, the last ones for ever
FULL = (errno.ENOSPC, errno.EDQUOT)
NOTE_BYTES = 8000  # of what may travel in a request's address
T = TypeVar("T")
OnChange = Callable[[], None]
Log = Callable[[str], None]


class LocalFolder:
    """Files of this machine, on disk when :meth:`put` returns, or waiting for room there."""

    def __init__(self, folder: str, on_change: OnChange = lambda: None) -> None:
        self.folder = folder
        self.problem = ""  # why what waits is not there
        self._path = Path(local_path(folder))
        self._waiting: Dict[str, Tuple[bytes, int, bool]] = {}
        self._on_change = on_change

    def get(self, name: str) -> bytes:
        """The whole file; ``FileNotFoundError``."""
        return (self._path / name).read_bytes()

    def put(
        self, name: str, data: bytes, mode: int = 0o600, sync: bool = True, soon: bool = False
    ) -> None:
        """Replace a file; ``soon``: somebody waits for it."""
        self._waiting[name] = (data, mode, sync)
        if self.again():
            self._on_change()

    def again(self) -> bool:
        """Write what found no room; whether some of it still waits."""
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
        """Whether the newest version is not there yet."""
        return name in self._waiting

    def close(self, timeout_s: float) -> List[str]:
        """What was not written, and why."""
        self.again()
        return [f"{join(self.folder, name)}: {self.problem}" for name in self._waiting]


class RemoteFolder:
    """Files elsewhere, put by a thread. See the module."""

    def __init__(
        self, folder: str, on_change: OnChange = lambda: None, log: Log = log_to_stderr
    ) -> None:
        self.folder = folder
        self.problem = ""  # why what waits is not there; empty while it is only on its way
        self._on_change = on_change
        self.faults = UnexpectedErrors(log)
        self._files = filesystem(folder)
        self._made = False
        self._soon: Set[str] = set()  # that go as notes, as far as they can
        self._is_file: Dict[str, bool] = {}
        self._waiting: Dict[str, Tuple[int, bytes, int]] = {}
        self._handed: Dict[str, int] = {}
        self._there: Dict[str, int] = {}
        self._closing = False
        self._hurried = False  # somebody waits for the end
        self._changed = threading.Condition()
        self._thread: Optional[threading.Thread] = None

    def get(self, name: str) -> bytes:
        """The whole file, tried for :data:`READ_S`; ``FileNotFoundError`` at once."""
        location = join(self.folder, name)
        try:
            found = patiently(lambda: self._files.get(location), READ_S)
        except FileNotFoundError:
            noted = getattr(self._files, "noted", None)
            note = patiently(lambda: noted(self.folder, name), READ_S) if noted else None
            if note is None:
                raise
            self._is_file[name] = False
            return zlib.decompress(note)
        self._is_file[name] = True
        return found

    def put(
        self, name: str, data: bytes, mode: int = 0o600, sync: bool = True, soon: bool = False
    ) -> None:
        """Hand a file over; it replaces a version that still waits."""
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

    def again(self) -> bool:
        """The thread tries by itself: nobody has to ask it."""
        return False

    def pending(self, name: str) -> bool:
        """Whether the newest version is not there yet."""
        with self._changed:
            return self._there.get(name, 0) < self._handed.get(name, 0)

    def close(self, timeout_s: float) -> List[str]:
        """Wait so long for what waits; nothing is put afterwards. What is not there, and why."""
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
                # The first handed over first: the journal before what nobody waits for.
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
                self._pause(AGAIN_S[min(failures, len(AGAIN_S)) - 1])

    def _try(self, name: str, data: bytes, mode: int) -> str:
        try:
            if not self._made:
                self._files.mkdir(self.folder, 0o700)
                self._made = True
            if not (name in self._soon and self._noted(name, data)):
                self._files.put(join(self.folder, name), data, mode)
                self._is_file[name] = True
        except FileNotFoundError as error:
            self._made = False  # somebody removed it
            return str(error) or "the folder is gone"
        except OSError as error:
            return str(error) or type(error).__name__
        except Exception:  # a fault of ours: the next try may succeed, a dead thread never
            return self.faults.record(f"state, {name}")
        return ""

    def _noted(self, name: str, data: bytes) -> bool:
        """Keep it as the folder's note; whether that could be done."""
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
            self._is_file[name] = True  # this place takes none
            return False
        return True

    def _pause(self, seconds: float) -> None:
        began = time.monotonic()
        with self._changed:
            while not self._closing:
                pause = min(seconds, AGAIN_S[0]) if self._hurried else seconds
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


def patiently(read: Callable[[], T], seconds: float) -> T:
    """What ``read`` returns, tried again for so long; it may hang, and is left behind then.

    ``FileNotFoundError`` is an answer. In the end it is the last ``OSError``, or a
    ``TimeoutError``.
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
                pause = AGAIN_S[min(tries, len(AGAIN_S) - 1)]
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

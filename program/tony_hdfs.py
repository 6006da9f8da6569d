"""Checkpoints and data sets on HDFS, for :mod:`tony`: see ``tony.checkpoints``, ``tony.dataset``.

What is written has a temporary name until it is whole, and gets its own by a rename; what is
read is copied to the container once, under a lock, and appears there by a rename too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import socket
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator, List, Optional, Tuple, Union

from tony_hdfs_client import Hdfs, connect
from tony_webhdfs.responses import FileStatus

__all__ = ["HdfsCheckpoints", "connect", "fetch", "upload"]

AT_ONCE = 4

# ------------------------------------------------------------------ what is fetched


def fetch(hdfs: Any, path: str, url: str) -> str:
    """The local copy of a file or folder; made once per container, whole or not at all.

    ``hdfs`` is an :class:`Hdfs`, or an object store that answers to the same calls.
    """
    top = hdfs.status(path)
    found = list(hdfs.walk(path)) if top.is_dir else [("", top)]
    version = hashlib.blake2b(digest_size=8)
    for word in (url, *(f"{name} {each.size} {each.changed_ms}" for name, each in found)):
        version.update(word.encode() + b"\n")
    base = os.path.basename(path) or "root"
    folder = os.path.join(cache_dir(), f"{base}-{version.hexdigest()}")
    target = os.path.join(folder, base)
    os.makedirs(folder, exist_ok=True)
    with _locked(os.path.join(folder, "lock")):
        if os.path.lexists(target):
            return target
        # What an earlier try got of this very version is not fetched again.
        making = target + ".making"
        if top.is_dir:
            _make_folder(making)
        for name, each in found:
            if each.is_dir:
                _make_folder(os.path.join(making, name))

        top_path = path.rstrip("/")

        def get(item: Tuple[str, FileStatus]) -> None:
            name, each = item
            remote, local = (f"{top_path}/{name}", f"{making}/{name}") if name else (path, making)
            hdfs.download(remote, each.size, local)

        _all(get, [item for item in found if not item[1].is_dir])
        os.rename(making, target)
    return target


def _make_folder(path: str) -> None:
    """Make a folder, or take the one that is there; never one that a link leads to."""
    try:
        os.mkdir(path)
    except FileExistsError:
        if os.path.islink(path) or not os.path.isdir(path):
            raise


def cache_dir() -> str:
    """The container's cache folder, which outlives sessions; outside a job the user's."""
    given = os.environ.get("TONY_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = given or os.path.join(home, "tony")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    import fcntl

    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # its holder makes progress, gives up or dies
        yield


def _all(do: Callable[[Any], None], items: List[Any]) -> None:
    """Do it for some at a time; raises the first error once all have ended."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(do, item) for item in items]:
            done.result()


# ------------------------------------------------------------------ what is sent


def upload(local: str, url: str) -> str:
    """A local file or folder to a URL, whole or not at all; what was there is replaced."""
    if not os.path.exists(local):
        raise FileNotFoundError(f"{local} does not exist")
    hdfs, path, url = connect(url)
    making = f"{os.path.dirname(path).rstrip('/')}/.making-{_own_name()}"
    try:
        _send(hdfs, local, making)
        _put(hdfs, making, path)
    except BaseException:
        with contextlib.suppress(OSError):
            hdfs.delete(making)
        raise
    return url


def _own_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}"


def _send(hdfs: Hdfs, local: str, remote: str) -> None:
    if not os.path.isdir(local):
        hdfs.upload(local, remote)
        return
    files: List[Tuple[str, str]] = []
    hdfs.mkdirs(remote)
    for here, folders, names in os.walk(local):
        there = remote + here[len(local.rstrip("/")) :]
        for each in folders:
            hdfs.mkdirs(f"{there}/{each}")
        files += [(os.path.join(here, each), f"{there}/{each}") for each in names]
    _all(lambda pair: hdfs.upload(*pair), files)


def _put(hdfs: Hdfs, making: str, target: str) -> None:
    try:
        hdfs.rename(making, target)
    except FileExistsError:
        # Nothing replaces a folder in one go: the old one moves aside first.
        aside = f"{making}.old"
        hdfs.rename(target, aside)
        hdfs.rename(making, target)
        hdfs.delete(aside)


# ------------------------------------------------------------------ checkpoints

_STEP = re.compile(r"step-([0-9]{1,100})\Z")
_MAKING = re.compile(r"making-\d+-[\w.-]+$")
_ABANDONED_MS = 3600 * 1000
Content = Union[bytes, bytearray, memoryview, Callable[[str], Any]]


class HdfsCheckpoints:
    """As :class:`tony.Checkpoints`, in a folder of HDFS."""

    def __init__(
        self,
        url: str,
        keep: int = 3,
        background: bool = False,
        on_saved: Callable[[int], object] = lambda step: None,
    ) -> None:
        self._hdfs, self._path, self.folder = connect(url)
        self._begin(keep, background, on_saved)

    def _begin(self, keep: int, background: bool, on_saved: Callable[[int], object]) -> None:
        if keep < 1:
            raise ValueError("keep at least one checkpoint")
        self.keep = keep
        self._background = background
        self._on_saved = on_saved
        self._thread: Optional[threading.Thread] = None
        self._failed: Optional[BaseException] = None

    def save(self, step: int, content: Content) -> str:
        """Write one and remove the oldest; returns its URL. Only uploads run in background."""
        if step < 0:
            raise ValueError(f"a step is not negative: {step}")
        self.wait()
        local = tempfile.mkdtemp(prefix="save-", dir=cache_dir())
        making = os.path.join(local, f"making-{step}")
        try:
            if callable(content):
                content(making)
                if not os.path.lexists(making):
                    raise ValueError(f"nothing was written to {making}")
            else:
                with open(making, "wb") as file:
                    file.write(content)
        except BaseException:
            shutil.rmtree(local, ignore_errors=True)
            raise
        if self._background:
            # No daemon: a program that ends waits for its last checkpoint.
            self._thread = threading.Thread(target=self._keep_failure, args=(step, making))
            self._thread.start()
        else:
            self._upload(step, making)
        return self.path(step)

    def wait(self) -> None:
        """Wait until what is saved in the background is there; raises what it failed with."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def latest(self) -> Optional[Tuple[int, str]]:
        """(step, path of a local copy) of the newest; None when there is none."""
        self.wait()
        while True:
            steps = self.steps()
            if not steps:
                return None
            try:
                return steps[-1], self.fetch(steps[-1])
            except FileNotFoundError:
                if self.steps() == steps:  # not removed meanwhile by the saving process
                    raise

    def fetch(self, step: int) -> str:
        """A local copy of a step."""
        return fetch(self._hdfs, self._at(step), self.path(step))

    def steps(self) -> List[int]:
        """The steps that are there, the oldest first."""
        try:
            found = [_STEP.match(each.name) for each in self._hdfs.list(self._path)]
        except FileNotFoundError:
            return []
        return sorted(int(match.group(1)) for match in found if match)

    def path(self, step: int) -> str:
        """The URL of a step."""
        return f"{self.folder}/step-{step:010d}"

    def _at(self, step: int) -> str:
        return f"{self._path.rstrip('/')}/step-{step:010d}"

    def _keep_failure(self, step: int, making: str) -> None:
        try:
            self._upload(step, making)
        except BaseException as error:
            self._failed = error
            raise

    def _upload(self, step: int, local: str) -> None:
        making = f"{self._path.rstrip('/')}/making-{step}-{_own_name()}"
        try:
            _send(self._hdfs, local, making)
            _put(self._hdfs, making, self._at(step))
        except BaseException:
            with contextlib.suppress(OSError):
                self._hdfs.delete(making)
            raise
        finally:
            shutil.rmtree(os.path.dirname(local), ignore_errors=True)
        self._on_saved(step)
        self._forget(step)

    def _forget(self, saved: int) -> None:
        found = self._hdfs.list(self._path)
        now = max((each.changed_ms for each in found), default=0)  # by the clock of HDFS, not ours
        steps = sorted(int(m.group(1)) for m in (_STEP.match(each.name) for each in found) if m)
        older = [step for step in steps if step != saved]
        for step in older[: max(0, len(older) + 1 - self.keep)]:
            self._hdfs.delete(self._at(step))
        for each in found:
            if _MAKING.match(each.name) and now - each.changed_ms > _ABANDONED_MS:
                self._hdfs.delete(f"{self._path.rstrip('/')}/{each.name}")

"""Which GPUs of the node are ours, where the scheduler counts them and does not hand them out.

One file per GPU in a folder of the user's, locked by the executor that holds the GPU and
released by the kernel when that one ends, however it ends. Another lock is held while one
chooses, so that two executors that each got half of what they need cannot keep each other
waiting.

The folder is /tmp/tony-gpus-UID. What another user has put there is passed over: the folder then
has a random name behind that, and is found by its owner. Where this user has several (another
user's went away meanwhile) a GPU is locked in all of them, so that executors which began with
different ones still exclude each other; a folder is never removed.
"""

from __future__ import annotations

import fcntl
import os
import stat
from typing import Dict, List, Mapping, Optional, Sequence


class CannotLock(Exception):
    """The folder of locks cannot be used; the text says why and what to do."""


def folder_of(environment: Mapping[str, str]) -> str:
    """The folder that an administrator names for all containers of the node; empty if none."""
    return environment.get("TONY_GPU_LOCKS", "")


class GpuLocks:
    """Those that this executor holds."""

    def __init__(self, folder: str = "", parent: str = "/tmp") -> None:  # noqa: S108
        self._named = folder
        self._parent = parent
        self._folders: List[str] = []
        self._held: Dict[str, List[int]] = {}

    @property
    def folder(self) -> str:
        """Where the locks are, for a person."""
        return ", ".join(self._folders)

    @property
    def held(self) -> List[str]:
        """UUIDs, in the order they were taken."""
        return list(self._held)

    def take(self, count: int, among: Sequence[str]) -> Optional[List[str]]:
        """So many of these, those we hold already first; None when others hold too many."""
        self._folders = [self._make(self._named)] if self._named else self._find()
        choosing = self._lock("choosing")
        if choosing is None:
            return None
        try:
            for uuid in self.held:
                if uuid not in among:
                    _close(self._held.pop(uuid))
            fresh: Dict[str, List[int]] = {}
            for uuid in among:
                if len(self._held) + len(fresh) >= count:
                    break
                if uuid in self._held:
                    continue
                files = self._lock(uuid.replace("/", "-"))
                if files is not None:
                    fresh[uuid] = files
            if len(self._held) + len(fresh) < count:
                for files in fresh.values():
                    _close(files)
                return None
            self._held.update(fresh)
            return self.held[:count]
        finally:
            _close(choosing)

    def release(self) -> None:
        """All of them."""
        for files in self._held.values():
            _close(files)
        self._held.clear()

    def _find(self) -> List[str]:
        """All folders of this user; the first executor of the node makes one."""
        name = f"tony-gpus-{os.geteuid()}"
        for tail in ("", "-" + os.urandom(8).hex()):
            found = self._ours(name)
            if found:
                return found
            try:
                os.mkdir(os.path.join(self._parent, name + tail), 0o700)
            except FileExistsError:
                continue
            except OSError as error:
                reason = error.strerror
                raise CannotLock(f"{self._parent}/{name}{tail} cannot be made: {reason}") from None
        # Looked at once more: another executor may have made another one at the same time.
        return self._ours(name)

    def _ours(self, name: str) -> List[str]:
        try:
            entries = sorted(each for each in os.listdir(self._parent) if _is_name(each, name))
        except OSError as error:
            raise CannotLock(f"{self._parent} cannot be read: {error.strerror}") from None
        paths = [os.path.join(self._parent, each) for each in entries]
        return [path for path in paths if _is_ours(path)]

    def _make(self, folder: str) -> str:
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise CannotLock(f"{folder} cannot be made: {error.strerror}") from None
        if not _is_ours(folder):
            raise CannotLock(f"{folder} is not a folder of this user: remove it")
        return folder

    def _lock(self, name: str) -> Optional[List[int]]:
        """Locked in every folder, or in none."""
        files: List[int] = []
        try:
            for folder in self._folders:
                path = os.path.join(folder, name)
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                try:
                    files.append(os.open(path, flags, 0o600))
                except OSError as error:
                    raise CannotLock(f"{path} cannot be opened: {error.strerror}") from None
                fcntl.flock(files[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            _close(files)
            return None
        except CannotLock:
            _close(files)
            raise
        return files


def _is_name(entry: str, name: str) -> bool:
    return entry == name or entry.startswith(name + "-")


def _is_ours(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _close(files: List[int]) -> None:
    for file in files:
        os.close(file)

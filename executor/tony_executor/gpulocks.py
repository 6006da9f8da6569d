"""Which GPUs of the node are ours, where the scheduler counts them and does not hand them out.

One file per GPU in a folder of the user's, locked by the executor that holds the GPU and
released by the kernel when that one ends, however it ends. Another lock is held while one
chooses, so that two executors that each got half of what they need cannot keep each other
waiting.
"""

from __future__ import annotations

import fcntl
import os
import stat

from tony_core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Sequence


class CannotLock(Exception):
    """The folder of locks cannot be used; the text says why and what to do."""


def folder_of(environment: Mapping[str, str]) -> str:
    """The same for all containers of this user on this node."""
    return environment.get("TONY_GPU_LOCKS") or f"/tmp/tony-gpus-{os.geteuid()}"  # noqa: S108


class GpuLocks:
    """Those that this executor holds."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._held: Dict[str, int] = {}

    @property
    def held(self) -> List[str]:
        """UUIDs, in the order they were taken."""
        return list(self._held)

    def take(self, count: int, among: Sequence[str]) -> Optional[List[str]]:
        """So many of these, those we hold already first; None when others hold too many."""
        self._make_folder()
        choosing = self._lock("choosing")
        if choosing is None:
            return None
        try:
            for uuid in self.held:
                if uuid not in among:
                    os.close(self._held.pop(uuid))
            fresh: Dict[str, int] = {}
            for uuid in among:
                if len(self._held) + len(fresh) >= count:
                    break
                if uuid in self._held:
                    continue
                file = self._lock(uuid.replace("/", "-"))
                if file is not None:
                    fresh[uuid] = file
            if len(self._held) + len(fresh) < count:
                for file in fresh.values():
                    os.close(file)
                return None
            self._held.update(fresh)
            return self.held[:count]
        finally:
            os.close(choosing)

    def release(self) -> None:
        """All of them."""
        for file in self._held.values():
            os.close(file)
        self._held.clear()

    def _make_folder(self) -> None:
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            found = os.lstat(self.folder)
        except OSError as error:
            raise CannotLock(f"{self.folder} cannot be made: {error.strerror}") from None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise CannotLock(f"{self.folder} is not a folder of this user: remove it")

    def _lock(self, name: str) -> Optional[int]:
        path = os.path.join(self.folder, name)
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CannotLock(f"{path} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return None
        return file
